// Marks on the page: elements, numbers in words, and the kinds of chart: a map of numbers, bars, lines, arcs.
// Colours are the style sheet's. One polarity everywhere: more is --more (blue), less is --less (orange), nothing is
// the paper. Texts enter the page as text, never as markup.

export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function mark(tag, attributes = {}, ...children) { // of SVG
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [k, v] of Object.entries(value)) element.style.setProperty(k, v);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/** How large the page's letters are, next to the usual 16 pixels. */
export const scaleOf = () => (scale ??= Number.parseFloat(getComputedStyle(document.documentElement).fontSize) / 16);
let scale = null;

// ── texts ──────────────────────────────────────────────────────────────────────────────────────
/** A token that can be seen: spaces and line ends have signs of their own. */
export function visible(token) {
  return String(token).replace(/ /g, "␣").replace(/\n/g, "↵").replace(/\t/g, "⇥")
    .replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]/g,
      (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

/** A number in a few digits, as short as they go. */
export function inDigits(x, digits = 4) {
  if (x === null || x === undefined || Number.isNaN(x)) return "not a number";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const far = x !== 0 && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e6);
  const text = far ? x.toExponential(Math.min(2, digits - 1)).replace(/\.?0+e/, "e").replace("e+", "e")
    : String(Number(x.toPrecision(digits)));
  return text.replace(/-/g, "−");
}

export const inPercent = (x) => (x > 0 && x < 0.01 ? "< 1 %" : x < 1 && x > 0.99 ? "> 99 %" : `${Math.round(100 * x)} %`);
export const grouped = (n) => Math.round(n).toLocaleString("en");

/** A list in words: a, b and c. */
export function inWords(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

// ── colours ────────────────────────────────────────────────────────────────────────────────────
let inks = null;
export const forgetLook = () => { inks = scale = null; }; // theme or width have changed

function inkOf(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
}

/** The colour of a share from -1 to 1, as three channels. */
function colourOf(share) {
  inks ??= { paper: inkOf("--sheet"), more: inkOf("--more"), less: inkOf("--less") };
  const { paper } = inks, ink = share < 0 ? inks.less : inks.more, part = Math.min(1, Math.abs(share));
  return ink.map((c, k) => Math.round(paper[k] + (c - paper[k]) * part));
}

/** The same in the words of CSS. Under letters a share is at most READABLE: they stay the ink's colour. */
export const READABLE = 0.5;
export const tint = (share) => `color-mix(in srgb, var(--${share < 0 ? "less" : "more"}) `
  + `${(100 * Math.min(1, Math.abs(share || 0))).toFixed(1)}%, var(--sheet))`;

// ── maps ───────────────────────────────────────────────────────────────────────────────────────
/** Numbers [rows, columns] on a canvas, a pixel each, which the style sheet enlarges. Not a number: left blank. */
export function paintMap(canvas, values, rows, columns, most = 1) {
  canvas.width = Math.max(1, columns);
  canvas.height = Math.max(1, rows);
  const pen = canvas.getContext("2d"), image = pen.createImageData(canvas.width, canvas.height);
  for (let i = 0; i < rows * columns; i++) {
    if (Number.isNaN(values[i])) continue;
    const [r, g, b] = colourOf(most ? values[i] / most : 0);
    image.data.set([r, g, b, 255], 4 * i);
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

/** A map with names along both axes. `point(i, j)` when a cell is pointed at, `pick(i, j)` when it is clicked. */
export function namedMap({ values, rows, columns, most = 1, size = 28, label, point, pick, leave, aside = "", above = "" }) {
  const wide = columns.length * size, high = rows.length * size;
  const canvas = paintMap(make("canvas", { role: "img", "aria-label": label }), values, rows.length, columns.length, most);
  const cellAt = (e) => {
    const box = canvas.getBoundingClientRect();
    const i = Math.floor((e.clientY - box.top) / box.height * rows.length);
    const j = Math.floor((e.clientX - box.left) / box.width * columns.length);
    return [Math.max(0, Math.min(rows.length - 1, i)), Math.max(0, Math.min(columns.length - 1, j))];
  };
  if (point) canvas.addEventListener("pointermove", (e) => point(...cellAt(e), e));
  if (leave) canvas.addEventListener("pointerleave", leave);
  if (pick) canvas.addEventListener("click", (e) => pick(...cellAt(e), e));
  const every = Math.ceil(12 / size) || 1, isLong = (name) => name.length * 7.5 * scaleOf() > size * every;
  const ticks = (names, kind) => make("div", { class: `ticks ${kind}`, "aria-hidden": "true" },
    names.map((name, i) => make("span", { "data-i": i, class: kind === "columns" && isLong(name) ? "upright" : "" }, i % every ? "" : name)));
  return make("div", { class: "map", style: { "--size": `${size}px`, "--wide": `${wide}px`, "--high": `${high}px` } },
    above ? make("p", { class: "axis above" }, above) : "", aside ? make("p", { class: "axis aside" }, aside) : "",
    ticks(columns, "columns"), ticks(rows, "rows"), make("div", { class: "cells" }, canvas, make("i", { class: "lattice" })));
}

// ── bars ───────────────────────────────────────────────────────────────────────────────────────
/** Rows of {name, note, value, text, title, link, act, strong}: bars from one side, or to both sides of nothing. */
export function barRows(rows, { most, label, signed = rows.some((row) => row.value < 0) && rows.some((row) => row.value > 0) } = {}) {
  const largest = most ?? Math.max(1e-300, ...rows.map((row) => Math.abs(row.value)).filter(Number.isFinite));
  return make("ul", { class: `bars ${signed ? "signed" : ""}`, "aria-label": label }, rows.map((row) => {
    const share = Math.min(1, Math.abs(row.value) / largest) || 0;
    const bar = make("i", { class: row.value < 0 ? "less" : "more", style: { "--share": share.toFixed(4) } });
    const name = row.act ? make("button", { type: "button", onclick: row.act, id: row.id }, row.name) : row.name;
    return make("li", { "data-link": row.link, class: row.strong ? "strong" : "", title: row.title },
      make("span", { class: "name" }, name, row.note ? make("small", {}, row.note) : ""), make("span", { class: "track" }, bar),
      make("span", { class: "value" }, row.text ?? inDigits(row.value)));
  }));
}

// ── lines ──────────────────────────────────────────────────────────────────────────────────────
const DASHES = ["", "7 3", "2 2", "8 3 2 3", "12 4"]; // what tells lines apart where colour does not

/** Lines over one axis: series of {name, x, y}; `at` marks a place on it; `pick(x)` when one is chosen. */
export function lineChart({ series, width = 480, height = 150, log = false, at = null, title = "", pick = null, low, high }) {
  const left = 54, right = 12, top = 14, bottom = 24;
  const fit = (y) => (log ? Math.log10(Math.max(y, 1e-12)) : y);
  const xs = series.flatMap((s) => s.x), ys = series.flatMap((s) => s.y).filter(Number.isFinite).map(fit);
  const span = [Math.min(...xs), Math.max(...xs)];
  const range = [low ?? Math.min(...ys), high ?? Math.max(...ys)];
  if (range[0] === range[1]) range[1] += 1;
  const x = (v) => left + (v - span[0]) / (span[1] - span[0] || 1) * (width - left - right);
  const y = (v) => top + (range[1] - fit(v)) / (range[1] - range[0]) * (height - top - bottom);
  const back = (v) => inDigits(log ? 10 ** v : v, 3);
  const paths = series.map((s, i) => mark("polyline", { class: `line line-${i}`, "stroke-dasharray": DASHES[i % 5],
    points: s.x.map((v, k) => [v, s.y[k]]).filter(([, v]) => Number.isFinite(v))
      .map(([u, v]) => `${x(u).toFixed(1)},${y(v).toFixed(1)}`).join(" ") }));
  const chart = mark("svg", { class: "lines", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title },
    mark("line", { class: "rule", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
    mark("text", { x: left - 6, y: top + 4, class: "end" }, back(range[1])),
    mark("text", { x: left - 6, y: height - bottom, class: "end" }, back(range[0])),
    mark("text", { x: left, y: height - 8 }, grouped(span[0])),
    mark("text", { x: width - right, y: height - 8, class: "end" }, grouped(span[1])),
    ...paths, at === null ? "" : mark("line", { class: "now", x1: x(at), x2: x(at), y1: top, y2: height - bottom }));
  if (pick) {
    const choose = (e) => {
      const box = chart.getBoundingClientRect();
      const u = ((e.clientX - box.left) / box.width * width - left) / (width - left - right);
      pick(span[0] + Math.max(0, Math.min(1, u)) * (span[1] - span[0]));
    };
    chart.addEventListener("pointerdown", (e) => { chart.setPointerCapture(e.pointerId); choose(e); });
    chart.addEventListener("pointermove", (e) => { if (e.buttons) choose(e); });
  }
  const keys = series.length > 1 ? make("p", { class: "keys" }, series.map((s, i) => make("span", {},
    mark("svg", { width: 22, height: 8, "aria-hidden": "true" },
      mark("line", { class: `line line-${i}`, x1: 0, x2: 22, y1: 4, y2: 4, "stroke-dasharray": DASHES[i % 5] })), s.name))) : "";
  return make("figure", { class: "chart" }, make("figcaption", {}, title), chart, keys);
}

/** Upright bars, one for each of `names` in their order, those of `marked` named. */
export function uprights({ values, names, marked, width = 480, height = 150, title = "" }) {
  const left = 54, right = 12, top = 14, bottom = 24, most = Math.max(1e-300, ...values), wide = (width - left - right) / values.length;
  const high = (v) => v / most * (height - top - bottom);
  const told = marked.filter((i, k) => !marked.slice(0, k).some((j) => Math.abs(i - j) * wide < 16)); // names that stand apart
  return make("figure", { class: "chart" }, make("figcaption", {}, title),
    mark("svg", { class: "lines still", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `${title}; the largest: ${inWords(marked.map((i) => `${names[i]} (${inPercent(values[i])})`))}` },
    mark("line", { class: "rule", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
    mark("text", { x: left - 6, y: top + 4, class: "end" }, inPercent(most)),
    values.map((v, i) => mark("rect", { class: "upright", x: left + i * wide, width: Math.max(1, wide - 1), y: height - bottom - high(v), height: high(v) })),
    told.map((i) => mark("text", { x: left + (i + 0.5) * wide, y: height - 8, class: "middle" }, names[i]))));
}

// ── arcs ───────────────────────────────────────────────────────────────────────────────────────
/** Arcs over a row of tokens of these widths, from the one that asks to those that it reads: as thick as the share. */
export function arcs(shares, from, widths) {
  let width = 0;
  const middles = widths.map((w) => { width += w; return width - w / 2; });
  const least = 0.01, far = Math.max(1, widths.length - 1);
  const high = Math.min(96 * scaleOf(), 24 + 3 * Math.sqrt(width)); // whoever asks: as high
  const base = high - 1;
  const drawn = Array.from(shares, (w, s) => {
    if (!(w >= least)) return "";
    const a = middles[s], b = middles[from], thick = (1 + 3.5 * w).toFixed(2), opacity = (0.25 + 0.75 * w).toFixed(3);
    const style = { class: "arc", "stroke-width": thick, "stroke-opacity": opacity, "data-link": `token ${s}`, "data-s": s };
    if (s === from) {
      const loop = Math.min(base - 6, 34), side = Math.min(22, widths[s] / 2.2);
      return mark("path", { ...style, "stroke-width": (1 + 1.2 * w).toFixed(2), d: `M ${a - 4} ${base} C ${a - side} ${base - loop}, ${a + side} ${base - loop}, ${a + 4} ${base}` });
    }
    const top = base - (base - 8) * Math.sqrt(Math.abs(s - from) / far) * 4 / 3;
    return mark("path", { ...style, d: `M ${b} ${base} C ${b} ${top}, ${a} ${top}, ${a} ${base}` });
  });
  return mark("svg", { class: "arcs", width, height: high, viewBox: `0 0 ${width} ${high}`, "aria-hidden": "true" }, drawn);
}
