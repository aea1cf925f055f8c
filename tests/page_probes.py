"""Scripts that the browser tests run in a page of the book."""

# Opens what is folded: code, hints, solutions.
UNFOLD = """() => {
  for (const e of document.querySelectorAll('details')) e.open = true;
  for (const e of document.querySelectorAll('.toggle-hidden')) {
    const button = e.querySelector('button.toggle-button');
    if (button) button.click(); else e.classList.remove('toggle-hidden');
  }
}"""
# Pictures below the screen may wait until one scrolls to them: they load now.
LOAD_IMAGES = "() => { for (const image of document.images) image.loading = 'eager'; }"
# Every picture, with what is wrong with it.
BAD_IMAGES = """() => [...document.images].filter(
  image => !(image.alt || '').trim() || !image.complete || image.naturalWidth === 0
).map(image => image.getAttribute('src') + ' alt=' + JSON.stringify(image.alt))"""
# Icons that are not drawn, and drawings of icons that are not as high as the words beside them.
BAD_ICONS = """() => [
  ...document.querySelectorAll(':is(.fa, .fas, .far, .fab, .fa-solid, .fa-regular, .fa-brands)'),
  ...[...document.querySelectorAll('svg.svg-inline--fa')].filter(icon => {
    const high = icon.getBoundingClientRect().height;
    return high && Math.abs(high - parseFloat(getComputedStyle(icon).fontSize)) > 0.5;
  }),
].map(icon => icon.outerHTML.slice(0, 120))"""
MATH = """async () => {
  const formulas = [...document.querySelectorAll('.math')], wanted = formulas.length;
  if (wanted && !window.MathJax?.startup?.promise)
    return {wanted, drawn: 0, errors: ['no MathJax']};
  if (wanted) await window.MathJax.startup.promise;
  // a formula that MathJax cannot read, or one with a command it does not know (drawn in red)
  const broken = '[data-mml-node=merror], [data-mml-node=mtext][fill=red]';
  const errors = formulas.filter(e => e.querySelector(broken));
  return {
    wanted,
    drawn: formulas.filter(e => e.querySelector('mjx-container')).length,
    errors: errors.map(e => e.textContent || e.closest('p')?.textContent || 'a formula'),
  };
}"""
# Every visible text: a few words, its colour and its background (the nearest opaque one), as sRGB.
# The same pair of colours is given once for each kind of element.
COLOURS = """selector => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const backs = new Map([[null, [255, 255, 255]]]);  // of elements seen before: they share parents
  const back = e => {
    if (!backs.has(e)) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      backs.set(e, c.length === 3 || c[3] > 0.99 ? c.slice(0, 3) : back(e.parentElement));
    }
    return backs.get(e);
  };
  const found = new Map();
  for (const e of document.querySelectorAll(selector)) {
    const words = e.textContent.trim();
    if (!words || !e.checkVisibility()) continue;
    const answer = [words.slice(0, 60), rgb(getComputedStyle(e).color).slice(0, 3), back(e)];
    const key = [e.tagName, ...answer[1], ...answer[2]].join();
    if (!found.has(key)) found.set(key, answer);
  }
  return [...found.values()];
}"""
# Style of a figure: nothing may dim it, and it is on a card.
CARD = "e => { const s = getComputedStyle(e); return [s.filter, s.backgroundColor]; }"
# What is wider than the screen has to be reachable: it, or a box around it, scrolls.
CUT_OFF = """() => [...document.querySelectorAll(
    '.bd-article :is(table, pre, img, mjx-container[display=true])')].filter(element => {
  const width = window.innerWidth;
  if (element.scrollWidth <= width && element.getBoundingClientRect().right <= width) return false;
  for (let n = element; n && !n.classList.contains('bd-article'); n = n.parentElement)
    if (['auto', 'scroll'].includes(getComputedStyle(n).overflowX)) return false;
  return true;
}).map(element => element.tagName + ' ' + element.textContent.slice(0, 60))"""
