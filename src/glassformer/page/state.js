// What is chosen, and the few helpers that all sections use. A group of models shares an input and a step; each
// model has a layer, a head and a row of its own. Texts enter the page as text, never as markup.
const DATA = JSON.parse(document.getElementById("data").textContent);
const chosen = DATA.groups.map(() => ({ input: 0, step: 0 })); // by group
const looks = DATA.models.map(() => ({ layer: 0, head: 0, row: 0, roles: true })); // by model
const panels = {}; // section -> [panel of each model]

const runOf = (model) => model.runs[chosen[model.group].input];
const stepOf = (model) => runOf(model).steps[Math.min(chosen[model.group].step, runOf(model).steps.length - 1)];
const headName = (model, layer, head) => model.headNames[layer][head] || `head ${layer}.${head}`;
const quoted = (token) => `‘${visible(token)}’`;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const words = (text) => make("p", {}, text);
const quiet = (...children) => make("p", { class: "quiet" }, ...children);
const heading = (text) => make("h4", {}, text);

function table(titles, rows) {
  const head = titles.length ? [make("tr", {}, ...titles.map((t) => make("th", {}, t)))] : [];
  const cells = (row) => row.map((cell) => (cell instanceof Node ? cell : make("td", {}, cell)));
  return make("div", { class: "scroll" }, make("table", {}, ...head, ...rows.map((row) => make("tr", {}, ...cells(row)))));
}

function select(label, options, at, act, id) {
  const box = make("select", { id, onchange: (e) => act(Number(e.target.value)) },
    ...options.map((text, i) => make("option", { value: i, selected: i === at }, text)));
  return make("label", {}, label, box);
}

/** A place for a chart, drawn by `drawing` once it stands on the page and has a width. */
const waiting = [];
function chart(name, drawing) {
  const place = make("div", { class: "chart", "data-chart": name });
  waiting.push(() => drawing(place));
  return place;
}

/** Four digits, as short as they go. */
function figure(x) {
  if (x === null || x === undefined) return "not finite";
  const far = x !== 0 && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e6);
  const text = far ? x.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e") : String(Number(x.toPrecision(4)));
  return text.replace(/-/g, "−");
}

/** What was read, [[position, thousandths]], in words. */
function readWords(run, reads) {
  if (!reads.length) return "everything a little";
  return reads.map(([s, w]) => `${quoted(run.all[s] ?? "…")} at ${s} (${percent(w / 1000)})`).join(", ");
}
