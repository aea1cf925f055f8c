"""Scripts that the browser test of the sliders runs in a page."""

# What the explorer with this id shows: its own record, what the document says, and the index
# that each of its controls is at; as JSON, which a browser returns in a tenth of the time.
STATE = """id => {
  const root = document.getElementById(id), part = name => root.querySelector('.kv-' + name);
  const drawn = [...part('figure').querySelectorAll('[data-label]')];
  return JSON.stringify({
    ...root.kvState,
    at: Object.fromEntries([...root.querySelectorAll('input, select')].map(e => [e.id, e.value])),
    marks: drawn.map(e => [e.dataset.label, e.dataset.value, e.getAttribute('width')]),
    title: part('title').textContent,
    summary: part('summary').textContent,
    label: part('figure').getAttribute('aria-label'),
    formula: [...part('formula').children].map(e => e.textContent),
    numbers: [...part('numbers').querySelectorAll('div')].map(e =>
      ({label: e.querySelector('dt').textContent, text: e.querySelector('dd').textContent})),
    valuetexts: [...root.querySelectorAll('input')].map(e =>
      [e.getAttribute('aria-valuetext'), root.querySelector(`output[for="${e.id}"]`).value]),
  });
}"""
# Puts controls, by id, at an index of their values. All are set before the page is told of the
# last one, or it is told of each.
SET = """([places, each]) => {
  const found = Object.entries(places).map(([id, i]) => [document.getElementById(id), i]);
  for (const [e, i] of found) {
    e.value = i;
    if (each) e.dispatchEvent(new Event('input'));
  }
  if (!each) found.at(-1)[0].dispatchEvent(new Event('input'));
}"""
# A control has the focus and is in the middle of the screen; returns where.
PLACE = """id => {
  const e = document.getElementById(id);
  e.scrollIntoView({block: 'center', behavior: 'instant'});
  e.focus({preventScroll: true});
  return e.getBoundingClientRect().toJSON();
}"""
# Scenes and the hashes of their drawings at many settings: [name, settings, width] each. A width of
# 0 asks for no drawing.
BATCH = """async batch => JSON.stringify(await Promise.all(JSON.parse(batch).map(
  async ([name, settings, width]) => {
    const page = window.kvExplorers, scene = page.scenes[name](settings, page.tables);
    if (!width) return [scene, ''];
    const text = new TextEncoder().encode(page.draw(scene, width));
    const sum = new Uint8Array(await crypto.subtle.digest('SHA-1', text));
    return [scene, [...sum].map(b => b.toString(16).padStart(2, '0')).join('')];
  })))"""
# Every visible text of the explorers with its colour and its background, as sRGB. In a drawing
# that is the last box drawn before it that holds its middle.
TEXTS = """() => {
  const rgb = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number), found = [];
  const words = '.kv-explorer :is(p, span, label, output, dt, dd, button, select, .kv-note)';
  for (const e of document.querySelectorAll(words)) {
    if (!e.checkVisibility() || !e.textContent.trim() || e.classList.contains('kv-voice')) continue;
    let back = e;
    while (/rgba\\(.*, 0\\)|transparent/.test(getComputedStyle(back).backgroundColor))
      back = back.parentElement;
    found.push([e.textContent.trim().slice(0, 50), rgb(getComputedStyle(e).color),
                rgb(getComputedStyle(back).backgroundColor)]);
  }
  for (const drawing of document.querySelectorAll('.kv-figure > svg')) {
    const boxes = [];
    for (const e of drawing.querySelectorAll('rect, text')) {
      const place = e.getBoundingClientRect();
      if (e.tagName === 'rect') { boxes.push([place, getComputedStyle(e).fill]); continue; }
      const x = (place.left + place.right) / 2, y = (place.top + place.bottom) / 2;
      const under = boxes.filter(([r]) =>
        r.left <= x && x <= r.right && r.top <= y && y <= r.bottom);
      found.push([e.textContent, rgb(getComputedStyle(e).fill), rgb(under.at(-1)[1])]);
    }
  }
  return found;
}"""
# Every drawn mark: its colours, and the card under it.
MARKS = """() => [...document.querySelectorAll('.kv-figure [data-label]')].map(e => {
  const rgb = text => text.match(/[\\d.]+/g)?.slice(0, 3).map(Number);
  const style = getComputedStyle(e);
  const card = e.closest('.kv-figure').querySelector('svg > rect');
  return [e.dataset.label, [rgb(style.fill), rgb(style.stroke)].filter(Boolean),
          rgb(getComputedStyle(card).fill)];
})"""
# What in an explorer is too small, not labelled, cut off, or laid over other words.
FAULTS = """() => {
  const faults = [], ids = [...document.querySelectorAll('[id]')].map(e => e.id);
  for (const root of document.querySelectorAll('.kv-explorer')) {
    const say = words => faults.push(root.id + ': ' + words);
    if (root.getAttribute('role') !== 'group' || !root.getAttribute('aria-label')) say('no name');
    for (const e of root.querySelectorAll('input, select, button')) {
      if (!e.checkVisibility()) continue;
      const size = e.getBoundingClientRect();
      if (size.height < 24 || size.width < 24) say(`${e.id || e.textContent} is too small`);
      if (e.tagName === 'BUTTON') { if (!e.textContent.trim()) say('an empty button'); continue; }
      if (e.labels.length !== 1 || !e.labels[0].textContent.trim()) say(e.id + ' has no label');
      if (ids.filter(id => id === e.id).length !== 1) say(e.id + ' is not the only one');
      e.focus({preventScroll: true, focusVisible: true});
      const ring = ['outlineWidth', 'outlineOffset'].map(k => parseFloat(getComputedStyle(e)[k]));
      const words = [e.labels[0], ...root.querySelectorAll(`output[for="${e.id}"]`)];
      for (const at of words.map(word => word.getBoundingClientRect()))
        if (at.bottom > size.top - ring[0] - ring[1]) say(`the ring of ${e.id} touches its label`);
      e.blur();
    }
    const figure = root.querySelector('.kv-figure'), drawing = figure.querySelector('svg');
    if (figure.getAttribute('role') !== 'img') say('the figure is no image');
    const scale = drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width;
    const edge = drawing.getBoundingClientRect();
    const texts = [...drawing.querySelectorAll('text')].map(e =>
      [e.textContent, e.getBoundingClientRect()]);
    const size = parseFloat(getComputedStyle(drawing).fontSize) * scale;
    if (size < 10.5) say(`words of ${size} pixels`);
    for (const [text, at] of texts) {
      if (at.left < edge.left - 2 || at.right > edge.right + 2) say(text + ' is cut off');
    }
    texts.forEach(([text, a], i) => texts.slice(i + 1).forEach(([other, b]) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 2 && down > 5) say(`${text} lies over ${other}`);
    }));
  }
  return faults;
}"""
# Whether the last summary of each of these explorers was read out.
SPOKEN = """ids => ids.every(id => {
  const e = document.getElementById(id);
  return e.querySelector('.kv-voice').textContent === e.kvState.scene.summary;
})"""
# The height of an explorer after each of six steps of this slider.
HEIGHTS = """id => {
  const slider = document.getElementById(id), root = slider.closest('.kv-explorer');
  return [1, 2, 3, 4, 5, 6].map(step => {
    slider.value = +slider.min + step;
    slider.dispatchEvent(new Event('input'));
    return root.getBoundingClientRect().height;
  });
}"""
# Six steps of each of these sliders; how many times each explorer then speaks is counted in `said`.
SIX_STEPS = """ids => {
  window.said = {};
  for (const id of ids) {
    const slider = document.getElementById(id), root = slider.closest('.kv-explorer');
    said[root.id] = 0;
    new MutationObserver(() => said[root.id]++).observe(
      root.querySelector('.kv-voice'), {childList: true});
    for (let i = 6; i >= 0; i--) {
      slider.value = +slider.min + i;
      slider.dispatchEvent(new Event('input'));
    }
  }
}"""
