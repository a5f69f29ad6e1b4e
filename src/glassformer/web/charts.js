// DOM elements, number formatting and charts: heatmaps, bars, lines, arcs. Colors come from the
// style sheet: positive is --more (blue), negative is --less (orange), zero is the background.
// Texts are inserted as text, never as markup.

import { joinWords } from "./vocabulary.js";

export function create(tag, attributes = {}, ...children) {
  return setUpElement(document.createElement(tag), attributes, children);
}

export function createSvg(tag, attributes = {}, ...children) {
  return setUpElement(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes,
    children);
}

function setUpElement(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style")
      for (const [k, v] of Object.entries(value)) element.style.setProperty(k, v);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(name, value);
  }
  element.append(...children.flat()
      .filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/** The font size of the page relative to 16 pixels. */
export const fontScale =
  () => (cachedScale ??= Number.parseFloat(getComputedStyle(document.documentElement).fontSize)
      / 16);
let cachedScale = null;

// ── texts ──────────────────────────────────────────────────────────────────────────────────────
/** A token with visible signs for whitespace and control characters. */
export function visibleToken(token) {
  return String(token).replace(/ /g, "␣").replace(/\n/g, "↵").replace(/\t/g, "⇥")
    .replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]/g,
      (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

/** A number in a few significant digits. */
export function formatNumber(x, digits = 4) {
  if (x === null || x === undefined || Number.isNaN(x)) return "not a number";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const useExponent = x !== 0 && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e6);
  const text = useExponent
    ? x.toExponential(Math.min(2, digits - 1)).replace(/\.?0+e/, "e").replace("e+", "e")
    : String(Number(x.toPrecision(digits)));
  return text.replace(/-/g, "−");
}

export const formatPercent =
  (x) => (x > 0 && x < 0.01 ? "< 1 %" : x < 1 && x > 0.99 ? "> 99 %" : `${Math.round(100 * x)} %`);
export const formatInteger = (n) => Math.round(n).toLocaleString("en");


// ── colors ─────────────────────────────────────────────────────────────────────────────────────
let palette = null;
export const resetColors = () => { palette = cachedScale = null; };

function cssColor(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
}

/** The RGB color of a share from -1 to 1. */
function colorOf(share) {
  palette ??= { paper: cssColor("--sheet"), more: cssColor("--more"), less: cssColor("--less") };
  const { paper } = palette, ink = share < 0 ? palette.less : palette.more,
    part = Math.min(1, Math.abs(share));
  return ink.map((c, k) => Math.round(paper[k] + (c - paper[k]) * part));
}

/** The CSS color of a share from -1 to 1. Shares behind text are at most MAX_TEXT_TINT. */
export const MAX_TEXT_TINT = 0.5;
export const tint = (share) => `color-mix(in srgb, var(--${share < 0 ? "less" : "more"}) `
  + `${(100 * Math.min(1, Math.abs(share || 0))).toFixed(1)}%, var(--sheet))`;

// ── heatmaps
// ───────────────────────────────────────────────────────────────────────────────────────
/** Paint numbers [rows, columns] on a canvas, one pixel each; NaN stays blank. */
export function paintHeatmap(canvas, values, rows, columns, maximum = 1) {
  canvas.width = Math.max(1, columns);
  canvas.height = Math.max(1, rows);
  const pen = canvas.getContext("2d"), image = pen.createImageData(canvas.width, canvas.height);
  for (let i = 0; i < rows * columns; i++) {
    if (Number.isNaN(values[i])) continue;
    const [r, g, b] = colorOf(maximum ? values[i] / maximum : 0);
    image.data.set([r, g, b, 255], 4 * i);
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

/** A heatmap with names along both axes. Pointing at a cell calls `point(i, j)`, a click `pick(i,
 * j)`. */
export function heatmap({ values, rows, columns, maximum = 1, size = 28, label, point, pick, leave,
  aside = "", above = "" }) {
    const width = columns.length * size, height = rows.length * size;
    const canvas = paintHeatmap(create("canvas", { role: "img", "aria-label": label }), values,
      rows.length, columns.length, maximum);
    const cellAt = (e) => {
      const box = canvas.getBoundingClientRect();
      const i = Math.floor((e.clientY - box.top) / box.height * rows.length);
      const j = Math.floor((e.clientX - box.left) / box.width * columns.length);
      return [Math.max(0, Math.min(rows.length - 1, i)),
        Math.max(0, Math.min(columns.length - 1, j))];
    };
    if (point) canvas.addEventListener("pointermove", (e) => point(...cellAt(e), e));
    if (leave) canvas.addEventListener("pointerleave", leave);
    if (pick) canvas.addEventListener("click", (e) => pick(...cellAt(e), e));
    const every = Math.ceil(12 / size) || 1,
      isLong = (name) => name.length * 7.5 * fontScale() > size * every;
    const ticks = (names, kind) => create("div", { class: `ticks ${kind}`, "aria-hidden": "true" },
      names.map((name, i) => create("span",
        { "data-i": i, class: kind === "columns" && isLong(name) ? "upright" : "" },
        i % every ? "" : name)));
    return create("div",
      { class: "map",
        style: { "--size": `${size}px`, "--wide": `${width}px`, "--high": `${height}px` } },
      above ? create("p", { class: "axis above" }, above) : "",
      aside ? create("p", { class: "axis aside" }, aside) : "",
      ticks(columns, "columns"), ticks(rows, "rows"),
      create("div", { class: "cells" }, canvas, create("i", { class: "lattice" })));
  }

// ── bars ───────────────────────────────────────────────────────────────────────────────────────
/** Horizontal bars, one per {name, note, value, text, title, link, act, strong}. */
export function barChart(rows,
  { maximum, label,
    signed = rows.some((row) => row.value < 0) && rows.some((row) => row.value > 0) } = {}) {
      const largest = maximum
        ?? Math.max(1e-300, ...rows.map((row) => Math.abs(row.value)).filter(Number.isFinite));
      return create("ul", { class: `bars ${signed ? "signed" : ""}`, "aria-label": label },
        rows.map((row) => {
          const share = Math.min(1, Math.abs(row.value) / largest) || 0;
          const bar = create("i",
            { class: row.value < 0 ? "less" : "more", style: { "--share": share.toFixed(4) } });
          const name = row.act
            ? create("button", { type: "button", onclick: row.act, id: row.id }, row.name)
            : row.name;
          return create("li",
            { "data-link": row.link, class: row.strong ? "strong" : "", title: row.title },
            create("span", { class: "name" }, name, row.note ? create("small", {}, row.note) : ""),
            create("span", { class: "track" }, bar),
            create("span", { class: "value" }, row.text ?? formatNumber(row.value)));
      }));
    }

// ── lines ──────────────────────────────────────────────────────────────────────────────────────
const DASHES = ["", "7 3", "2 2", "8 3 2 3", "12 4"];

/** A line chart of series {name, x, y}. `at` marks an x; dragging calls `pick(x)`. */
export function lineChart({ series, width = 480, height = 150, log = false, at = null, title = "",
  pick = null, minimum, maximum }) {
    const left = 54, right = 12, top = 14, bottom = 24;
    const fit = (y) => (log ? Math.log10(Math.max(y, 1e-12)) : y);
    const xs = series.flatMap((s) => s.x),
      ys = series.flatMap((s) => s.y).filter(Number.isFinite).map(fit);
    const span = [Math.min(...xs), Math.max(...xs)];
    const range = [minimum ?? Math.min(...ys), maximum ?? Math.max(...ys)];
    if (range[0] === range[1]) range[1] += 1;
    const x = (v) => left + (v - span[0]) / (span[1] - span[0] || 1) * (width - left - right);
    const y = (v) => top + (range[1] - fit(v)) / (range[1] - range[0]) * (height - top - bottom);
    const tickText = (v) => formatNumber(log ? 10 ** v : v, 3);
    const paths =
      series.map((s, i) => createSvg("polyline",
        { class: `line line-${i}`, "stroke-dasharray": DASHES[i % 5],
          points: s.x.map((v, k) => [v, s.y[k]]).filter(([, v]) => Number.isFinite(v))
            .map(([u, v]) => `${x(u).toFixed(1)},${y(v).toFixed(1)}`).join(" ") }));
    const chart = createSvg("svg",
      { class: "lines", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
        "aria-label": title },
      createSvg("line",
        { class: "rule", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
      createSvg("text", { x: left - 6, y: top + 4, class: "end" }, tickText(range[1])),
      createSvg("text", { x: left - 6, y: height - bottom, class: "end" }, tickText(range[0])),
      createSvg("text", { x: left, y: height - 8 }, formatInteger(span[0])),
      createSvg("text", { x: width - right, y: height - 8, class: "end" }, formatInteger(span[1])),
      ...paths,
      at === null ? ""
        : createSvg("line", { class: "now", x1: x(at), x2: x(at), y1: top, y2: height - bottom }));
    if (pick) {
      const choose = (e) => {
        const box = chart.getBoundingClientRect();
        const u = ((e.clientX - box.left) / box.width * width - left) / (width - left - right);
        pick(span[0] + Math.max(0, Math.min(1, u)) * (span[1] - span[0]));
      };
      chart.addEventListener("pointerdown",
        (e) => { chart.setPointerCapture(e.pointerId); choose(e); });
      chart.addEventListener("pointermove", (e) => { if (e.buttons) choose(e); });
    }
    const keys = series.length > 1
      ? create("p", { class: "keys" }, series.map((s, i) => create("span", {},
        createSvg("svg", { width: 22, height: 8, "aria-hidden": "true" },
          createSvg("line",
            { class: `line line-${i}`, x1: 0, x2: 22, y1: 4, y2: 4,
              "stroke-dasharray": DASHES[i % 5] })),
        s.name))) : "";
    return create("figure", { class: "chart" }, create("figcaption", {}, title), chart, keys);
  }

/** Vertical bars for `names`, with tick labels at the indices `marked`. */
export function columnChart({ values, names, marked, width = 480, height = 150, title = "" }) {
  const left = 54, right = 12, top = 14, bottom = 24, maximum = Math.max(1e-300, ...values),
    barWidth = (width - left - right) / values.length;
  const nameWithPercent = (i) => `${names[i]} (${formatPercent(values[i])})`;
  const barHeight = (v) => v / maximum * (height - top - bottom);
  const tickIndices =
    marked.filter((i, k) => !marked.slice(0, k).some((j) => Math.abs(i - j) * barWidth < 16));
  return create("figure", { class: "chart" }, create("figcaption", {}, title),
    createSvg("svg",
      { class: "lines still", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
        "aria-label": `${title}; the largest: ${joinWords(marked.map(nameWithPercent))}` },
      createSvg("line",
        { class: "rule", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
      createSvg("text", { x: left - 6, y: top + 4, class: "end" }, formatPercent(maximum)),
      values.map((v, i) => createSvg("rect",
        { class: "upright", x: left + i * barWidth, width: Math.max(1, barWidth - 1),
          y: height - bottom - barHeight(v), height: barHeight(v) })),
      tickIndices.map((i) => createSvg("text",
        { x: left + (i + 0.5) * barWidth, y: height - 8, class: "middle" }, names[i]))));
}

// ── arcs ───────────────────────────────────────────────────────────────────────────────────────
/** Arcs above tokens of these widths, from token `from` to each token with attention; width is the
 * share. */
export function attentionArcs(shares, from, widths) {
  let width = 0;
  const centers = widths.map((w) => { width += w; return width - w / 2; });
  const minShare = 0.01, maxDistance = Math.max(1, widths.length - 1);
  const height = Math.min(96 * fontScale(), 24 + 3 * Math.sqrt(width));
  const base = height - 1;
  const paths = Array.from(shares, (w, s) => {
    if (!(w >= minShare)) return "";
    const a = centers[s], b = centers[from], strokeWidth = (1 + 3.5 * w).toFixed(2),
      opacity = (0.25 + 0.75 * w).toFixed(3);
    const style = { class: "arc", "stroke-width": strokeWidth, "stroke-opacity": opacity,
      "data-link": `token ${s}`, "data-s": s };
    if (s === from) {
      const loop = Math.min(base - 6, 34), side = Math.min(22, widths[s] / 2.2);
      const curve = `C ${a - side} ${base - loop}, ${a + side} ${base - loop}, ${a + 4} ${base}`;
      return createSvg("path", { ...style, "stroke-width": (1 + 1.2 * w).toFixed(2),
        d: `M ${a - 4} ${base} ${curve}` });
    }
    const top = base - (base - 8) * Math.sqrt(Math.abs(s - from) / maxDistance) * 4 / 3;
    return createSvg("path",
      { ...style, d: `M ${b} ${base} C ${b} ${top}, ${a} ${top}, ${a} ${base}` });
  });
  return createSvg("svg",
    { class: "arcs", width, height: height, viewBox: `0 0 ${width} ${height}`,
      "aria-hidden": "true" }, paths);
}
