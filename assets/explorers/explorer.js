// Gives every .kv-explorer of a page its controls. The figure, the words and the numbers come from
// scenes.js (Python, translated); here is only what Python cannot do: listen, and show.
(function () {
"use strict";

const SHARED = location.protocol.startsWith("http"); // a file's address cannot carry a setting
const STILL = matchMedia("(prefers-reduced-motion: reduce)");
const QUIET = 700; // milliseconds without a change, after which the summary is read out
const FRAME = 550, PAUSE = 1200; // milliseconds that a played setting is shown, and the first one
const NARROWEST = 320, WIDEST = 720, STEP = 40; // widths a figure is laid out for, in pixels

/** An element with properties, attributes (names with a dash, role) and children. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

/** One control: a slider over listed values, or a list of names. `changed` is called after a move. */
class Control {
  constructor(data, id, changed) {
    this.name = data.name;
    this.first = data.value;
    const pairs = data.kind === "choice" ? data.options : data.values.map((v, i) => [v, data.texts[i]]);
    this.values = pairs.map(pair => pair[0]);
    this.texts = pairs.map(pair => pair[1]);
    const label = make("label", {htmlFor: id, textContent: data.label});
    if (data.kind === "choice") {
      const options = this.texts.map((text, i) => make("option", {value: String(i), textContent: text}));
      const groups = (data.groups || []).map(([heading, count]) =>
        make("optgroup", {label: heading}, ...options.splice(0, count)));
      this.input = make("select", {id}, ...groups, ...options);
      this.box = make("div", {className: "kv-control"}, label, this.input);
    } else {
      this.input = make("input", {id, type: "range", min: "0", max: String(this.values.length - 1), step: "1"});
      // the slider itself tells its text; a second voice for every step would be noise
      this.output = make("output", {htmlFor: id, "aria-live": "off"});
      this.box = make("div", {className: "kv-control"},
        make("div", {className: "kv-line"}, label, this.output), this.input);
      this.plays = Boolean(data.play);
    }
    this.input.addEventListener("input", changed);
    this.value = this.first;
  }

  get index() { return Number(this.input.value); }
  set index(i) {
    this.input.value = String(i);
    this.tell();
  }
  get value() { return this.values[this.index]; }

  set value(value) { this.index = this.values.indexOf(value); }

  /** Show beside a slider where it stands. */
  tell() {
    if (!this.output) return;
    this.output.value = this.texts[this.index];
    this.input.setAttribute("aria-valuetext", this.texts[this.index]);
  }

  /** The offered value that is written so in an address, if any. */
  find(text) { return this.values.find(value => String(value) === text); }
}

/** A Play button for one slider: shows its values one after the other and stops at the last. */
class Player {
  constructor(control, show, settle) {
    Object.assign(this, {control, show, settle});
    this.button = make("button", {type: "button", className: "kv-play"});
    this.button.addEventListener("click", () => {
      this.asked = true;
      if (this.timer) this.stop();
      else this.play();
    });
    const track = make("div", {className: "kv-track"}, this.button);
    control.box.classList.add("kv-played");
    control.input.before(track);
    track.append(control.input);
    this.name("Play");
  }

  /** From where the slider is, or from the first value if it is at the last. */
  play() {
    const {control} = this;
    if (control.index === control.values.length - 1) this.turn(0);
    this.name("Pause");
    this.timer = setTimeout(() => this.next(), control.index === 0 ? PAUSE : FRAME);
  }

  next() {
    const last = this.control.values.length - 1;
    this.turn(Math.min(this.control.index + 1, last));
    if (this.control.index === last) this.stop();
    else this.timer = setTimeout(() => this.next(), FRAME);
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.name("Play");
    if (this.asked) this.settle(); // what plays by itself is not read out
  }

  turn(index) {
    this.control.index = index;
    this.show();
  }

  name(word) {
    this.button.textContent = word;
    this.button.setAttribute("aria-label", `${word} ${this.control.box.querySelector("label").textContent}`);
  }

  /** Play once, as soon as `figure` can be seen. */
  once(figure) {
    this.turn(0);
    const watcher = new IntersectionObserver(seen => {
      if (!seen.some(entry => entry.isIntersecting)) return;
      watcher.disconnect();
      if (this.waiting) this.play();
      this.waiting = false;
    }, {threshold: 0.5});
    this.waiting = true;
    watcher.observe(figure);
  }

  /** The reader has moved something: what was to play by itself does so no more. */
  leave() {
    this.waiting = false;
    if (this.timer) this.stop();
  }
}

class Explorer {
  constructor(root) {
    this.root = root;
    this.data = JSON.parse(root.dataset.explorer);
    this.scenes = window.kvExplorers.scenes[this.data.name];
    if (!this.scenes && !this.data.frames) throw new Error(`no scenes for explorer ${this.data.name}`);
    this.part = name => root.querySelector(`.kv-${name}`);
    this.controls = this.data.controls.map(data =>
      new Control(data, `${root.id}-${data.name}`, () => this.moved()));
    const found = this.read();
    const played = this.controls.find(control => control.plays);
    if (played) this.player = new Player(played, () => this.show(), () => this.later());
    this.build();
    this.show();
    if (this.player && !found && !STILL.matches) this.player.once(this.part("figure"));
    // a figure is laid out for the room it has: words keep their size on a phone
    new ResizeObserver(() => {
      if (this.part("figure").clientWidth !== this.room) this.show(true);
    }).observe(this.part("figure"));
  }

  build() {
    const {root, data} = this;
    this.voice = make("p", {className: "kv-voice", "aria-live": "polite"});
    this.link = make("button", {type: "button", textContent: "Copy link", hidden: !SHARED});
    const reset = make("button", {type: "button", textContent: "Reset"});
    reset.addEventListener("click", () => {
      for (const control of this.controls) control.value = control.first;
      this.moved();
    });
    this.link.addEventListener("click", () => this.copy());
    root.setAttribute("role", "group");
    root.setAttribute("aria-label", data.title);
    root.prepend(
      make("p", {className: "kv-name"}, make("span", {textContent: data.title}),
        make("span", {className: "kv-buttons"}, reset, this.link)),
      make("div", {className: "kv-controls"}, ...this.controls.map(control => control.box)));
    root.append(this.voice);
    root.classList.add("kv-live");
  }

  width() {
    const room = this.part("figure").clientWidth || WIDEST;
    return Math.min(WIDEST, Math.max(NARROWEST, Math.floor(room / STEP) * STEP));
  }

  settings() {
    return Object.fromEntries(this.controls.map(control => [control.name, control.value]));
  }

  scene(settings) {
    if (this.data.frames) // of the last control fastest
      return this.data.frames[this.controls.reduce((at, c) => at * c.values.length + c.index, 0)];
    return this.scenes(settings, window.kvExplorers.tables);
  }

  /** A control was moved: show at once; the address and the screen reader's voice follow later. */
  moved() {
    this.player?.leave();
    for (const control of this.controls) control.tell();
    this.show();
    this.later();
  }

  /** Once nothing has changed for a while, write the address and let the summary be read out. */
  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.write();
      this.voice.textContent = this.root.kvState.scene.summary;
    }, QUIET);
  }

  /** Draw the scene of the present settings. `anew`: the room has changed, so forget old heights. */
  show(anew = false) {
    const {root} = this;
    const settings = this.settings(), scene = this.scene(settings), width = this.width();
    const svg = window.kvExplorers.draw(scene, width);
    const figure = this.part("figure");
    this.room = figure.clientWidth;
    figure.innerHTML = svg;
    figure.setAttribute("aria-label", scene.summary);
    this.part("title").textContent = scene.title;
    this.part("summary").textContent = scene.summary;
    this.part("formula").replaceChildren(...scene.formula.map(line => make("span", {textContent: line})));
    this.part("numbers").replaceChildren(...scene.numbers.map(row => make("div", {},
      make("dt", {textContent: row.label}), make("dd", {textContent: row.text}))));
    root.kvState = {settings, scene, svg, width};
    // nothing below may jump while a slider moves, so each part keeps the greatest height it had
    const parts = ["title", "figure", "summary", "numbers", "formula"].map(this.part);
    if (anew) for (const part of parts) part.style.minHeight = "";
    const heights = parts.map(part => Math.ceil(part.getBoundingClientRect().height));
    parts.forEach((part, i) => { part.style.minHeight = `${heights[i]}px`; });
  }

  /** The address with this explorer's settings: those that are not what the page begins with. */
  address() {
    const url = new URL(location.href);
    for (const control of this.controls) {
      const key = `${this.data.name}.${control.name}`;
      if (control.value === control.first) url.searchParams.delete(key);
      else url.searchParams.set(key, String(control.value));
    }
    return url;
  }

  write() {
    if (SHARED) history.replaceState(history.state, "", this.address());
  }

  /** Take settings from the address, and go to the explorer they are for; true if there are any. */
  read() {
    if (!SHARED) return false;
    let found = false;
    for (const control of this.controls) {
      const text = new URLSearchParams(location.search).get(`${this.data.name}.${control.name}`);
      const value = text === null ? undefined : control.find(text);
      if (value === undefined) continue;
      control.value = value;
      found = true;
    }
    // where a page is only loaded again, the browser returns to the place it was left at
    const arrived = performance.getEntriesByType("navigation")[0]?.type === "navigate";
    if (found && arrived && !location.hash)
      addEventListener("load", () => this.root.scrollIntoView({block: "start"}), {once: true});
    return found;
  }

  async copy() {
    this.write();
    const url = this.address();
    url.hash = this.root.id;
    try {
      await navigator.clipboard.writeText(url.href);
      this.link.textContent = "Copied";
    } catch {
      this.link.textContent = "Copy it from the address bar"; // the browser allows no copying here
    }
    setTimeout(() => { this.link.textContent = "Copy link"; }, 2500);
  }
}

function start() {
  for (const root of document.querySelectorAll(".kv-explorer")) {
    try {
      root.kvExplorer = new Explorer(root);
    } catch (error) {
      console.error(error); // the first view stays, and the others live
    }
  }
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
})();
