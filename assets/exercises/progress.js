// Ticks for the exercises, kept in this browser. Every exercise gets a box; the page "Exercises" gets
// the same boxes in its table, a count, and the record as a file. Nothing leaves the browser.
(function () {
"use strict";

const KEY = "kvlib.progress"; // {"version": 1, "exercises": {label: {"passed": "2026-11-21"}}}
const listeners = [];
let memory = null; // stands in where the browser keeps nothing for a page

function read() {
  let text = null;
  try { text = localStorage.getItem(KEY); } catch { text = memory; }
  try {
    const found = JSON.parse(text)?.exercises;
    return found && typeof found === "object" ? found : {};
  } catch {
    return {};
  }
}

function write(exercises) {
  memory = JSON.stringify({version: 1, exercises});
  try { localStorage.setItem(KEY, memory); } catch { /* kept until the page is left */ }
  tell();
}

function tell() {
  const exercises = read();
  for (const listener of listeners) listener(exercises);
}

function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** A box for one exercise. Ticked, it keeps the day. */
function box(label, title) {
  const input = make("input", {type: "checkbox", className: "kv-tick"});
  input.setAttribute("aria-label", `Done: ${title}`);
  input.addEventListener("change", () => {
    const exercises = read();
    if (input.checked) exercises[label] = {passed: new Date().toISOString().slice(0, 10)};
    else delete exercises[label];
    write(exercises);
  });
  listeners.push(exercises => { input.checked = Boolean(exercises[label]?.passed); });
  return input;
}

/** Under the title of each exercise of a chapter. */
function mark(exercise) {
  const head = exercise.querySelector(":scope > .admonition-title");
  const title = head.textContent.replace(/^\s*Exercise \d+\s*\((.*)\)\s*$/, "$1");
  head.after(make("p", {className: "kv-done"}, make("label", {}, box(exercise.id, title), " Done")));
}

/** In the table of all exercises: the last cell of a row gets the box. */
function rows(root) {
  const found = [];
  for (const row of root.querySelectorAll("tbody tr")) {
    const link = row.querySelector("a[href*='#']");
    if (!link) continue;
    const label = decodeURIComponent(link.hash.slice(1));
    const cells = [...row.cells].map(cell => cell.textContent.trim());
    row.cells[row.cells.length - 1].replaceChildren(box(label, link.textContent.trim()));
    found.push({label, points: Number(cells[2]), minutes: Number(cells[3])});
  }
  return found;
}

/** How much is done, and the record as a file. */
function summary(place, table) {
  const all = rows(table);
  const words = make("p", {className: "kv-count"});
  words.setAttribute("role", "status");
  listeners.push(exercises => {
    const done = all.filter(row => exercises[row.label]?.passed);
    const sum = (list, key) => list.reduce((total, row) => total + row[key], 0);
    const text = `${done.length} of ${all.length} exercises done, ${sum(done, "points")} of `
      + `${sum(all, "points")} points. About ${sum(all, "minutes") - sum(done, "minutes")} minutes are left.`;
    if (words.textContent !== text) words.textContent = text;
  });
  const save = make("button", {type: "button", textContent: "Save as a file"});
  save.addEventListener("click", () => {
    const text = JSON.stringify({version: 1, exercises: read()}, null, 1) + "\n";
    const url = URL.createObjectURL(new Blob([text], {type: "application/json"}));
    make("a", {href: url, download: "kvlib-progress.json"}).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  });
  const clear = make("button", {type: "button", textContent: "Forget all ticks"});
  clear.addEventListener("click", () => {
    if (confirm("Remove all ticks? This cannot be undone.")) write({});
  });
  place.replaceChildren(words, make("p", {className: "kv-actions"}, save, " ", clear));
}

function start() {
  for (const exercise of document.querySelectorAll(".exercise.admonition[id]")) mark(exercise);
  const place = document.getElementById("exercise-progress");
  const table = document.querySelector(".bd-article table");
  if (place && table) summary(place, table);
  addEventListener("storage", event => { if (event.key === KEY || event.key === null) tell(); });
  tell();
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
})();
