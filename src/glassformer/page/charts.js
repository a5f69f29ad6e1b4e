// Charts: what the page asks of Plotly, in one quiet style. Texts of tokens pass through `plain`, since Plotly reads
// tags in labels.
"use strict";

const COLOURS = JSON.parse(document.getElementById("data").textContent).colours;
const SHARES = ["#ffffff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b"]
  .map((colour, i) => [i / 8, colour]);
const SIGNED = [[0, COLOURS.orange], [0.5, "#ffffff"], [1, COLOURS.blue]];
const ROLES = [COLOURS.orange, COLOURS.green, COLOURS.purple, COLOURS.amber];
const DASHES = ["solid", "dash", "dot", "dashdot"]; // what tells roles and lines apart where colour does not
const CONFIG = { displayModeBar: false, responsive: true };
const FONT = { family: "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif", size: 12,
  color: COLOURS.ink };

/** A token that can be seen: spaces and line ends have signs of their own. */
function visible(token) {
  return token.replace(/ /g, "␣").replace(/\n/g, "↵").replace(/\t/g, "⇥")
    .replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e]/g,
      (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

/** Text as Plotly must be given it, so that a tag is shown and not obeyed. */
function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

/** The same, in lines of about so many letters. */
function wrapped(text, width) {
  const lines = [""];
  for (const word of String(text).split(" ")) {
    if (lines.at(-1) && (lines.at(-1) + word).length > width) lines.push("");
    lines[lines.length - 1] += (lines.at(-1) ? " " : "") + word;
  }
  return lines.map(plain).join("<br>");
}

function layout(more) {
  return { font: FONT, paper_bgcolor: "#fff", plot_bgcolor: "#fff", showlegend: false, hovermode: "closest",
    dragmode: false, hoverlabel: { bgcolor: "#fff", bordercolor: COLOURS.grey, font: FONT }, ...more };
}

function axis(more) {
  return { zeroline: false, showgrid: false, fixedrange: true, automargin: true, ticks: "", ...more };
}

/** Ticks with token texts; of very many only every so many-th. */
function tokenTicks(texts, most) {
  const every = Math.ceil(texts.length / most);
  const at = texts.map((_, i) => i).filter((i) => i % every === 0);
  return { tickvals: at, ticktext: at.map((i) => plain(visible(texts[i]))), range: [-0.5, texts.length - 0.5] };
}

function box(x0, y0, x1, y1, line) {
  return { type: "rect", x0, y0, x1, y1, line, fillcolor: "rgba(0,0,0,0)", layer: "above" };
}

/** A square map: values[row][column], with rows from top to bottom. */
function map(div, { values, rows, columns, hover, shapes = [], signed = false, rowTitle = "", columnTitle = "", cell }) {
  const width = div.clientWidth || 500, gap = columns.length > 60 ? 0 : 1;
  const side = Math.min(width - 70, Math.max(140, cell * columns.length));
  const height = Math.min(700, Math.max(60, side * rows.length / columns.length));
  const colorbar = { thickness: 10, outlinewidth: 0, len: Math.min(1, 160 / height), y: 1, yanchor: "top",
    tickvals: signed ? [-1, 0, 1] : [0, 0.5, 1], ticktext: signed ? ["−1", "0", "1"] : ["0", "50 %", "100 %"] };
  const trace = { type: "heatmap", z: values, zmin: signed ? -1 : 0, zmax: 1, colorscale: signed ? SIGNED : SHARES,
    xgap: gap, ygap: gap, text: hover, hoverinfo: "text", colorbar };
  const most = Math.floor(side / 15), widest = Math.max(...columns.map((c) => visible(c).length));
  const tickangle = widest * 8 > side / Math.min(most, columns.length) ? -90 : 0;
  const title = (text) => ({ text, standoff: 6 });
  return Plotly.react(div, [trace], layout({
    height: height + 75, width: Math.min(width, side + 150), margin: { l: 45, r: 60, t: 8, b: 45 }, shapes,
    xaxis: axis({ ...tokenTicks(columns, most), tickangle, title: title(columnTitle) }),
    yaxis: axis({ ...tokenTicks(rows, most), range: [rows.length - 0.5, -0.5], title: title(rowTitle) }),
  }), CONFIG);
}

/** Horizontal bars, the first on top, with their figures in a column on the right. */
function bars(div, { names, values, texts, colours, title }) {
  const labels = names.map((n) => wrapped(n, 26));
  const tall = 9 + 14 * Math.max(1, ...labels.map((l) => l.split("<br>").length));
  const trace = { type: "bar", orientation: "h", x: values, y: names.map((_, i) => i), marker: { color: colours },
    hoverinfo: "skip" };
  const notes = texts.map((text, i) => ({ xref: "paper", x: 1, xanchor: "left", xshift: 8, y: i, text: plain(text),
    showarrow: false }));
  return Plotly.react(div, [trace], layout({
    height: tall * names.length + 50, bargap: 0.3, annotations: notes,
    margin: { l: 10, r: 18 + 7 * Math.max(1, ...texts.map((t) => t.length)), t: 4, b: 40 },
    xaxis: axis({ title: { text: title, standoff: 6 }, zeroline: true, zerolinecolor: COLOURS.grey, nticks: 5,
      tickfont: { color: COLOURS.grey }, exponentformat: "e" }),
    yaxis: axis({ tickvals: names.map((_, i) => i), ticktext: labels, range: [names.length - 0.5, -0.5] }),
  }), CONFIG);
}

/** A table of shares whose cells are shaded. */
function shadedTable(div, { values, rows, columns }) {
  const text = values.map((r) => r.map((v) => (v === null ? "" : percent(v))));
  const lines = rows.map((n) => wrapped(n, 26));
  const heights = lines.map((l) => Math.max(24, 8 + 15 * l.split("<br>").length));
  const trace = { type: "heatmap", z: values, zmin: 0, zmax: 1, colorscale: [[0, "#ffffff"], [1, "#9ecae1"]], xgap: 2,
    ygap: 2, showscale: false, text, texttemplate: "%{text}", textfont: { color: COLOURS.ink }, hoverinfo: "skip" };
  return Plotly.react(div, [trace], layout({
    height: Math.max(...heights) * rows.length + 40, margin: { l: 10, r: 10, t: 30, b: 5 },
    xaxis: axis({ tickvals: columns.map((_, i) => i), ticktext: columns.map(plain), side: "top",
      range: [-0.5, columns.length - 0.5] }),
    yaxis: axis({ tickvals: rows.map((_, i) => i), ticktext: lines, range: [rows.length - 0.5, -0.5] }),
  }), CONFIG);
}

/** Points in a plane, both axes on one scale. Names stand beside the points where there are few of them. */
function cloud(div, { x, y, names, titles }) {
  const few = names.length <= 40;
  const span = (v) => Math.max(...v) - Math.min(...v) || 1e-12;
  const width = Math.min(div.clientWidth || 500, 620);
  const height = Math.max(200, Math.min(400, (width - 65) * span(y) / span(x) + 120));
  const scale = 0.9 * Math.min((width - 65) / span(x), (height - 55) / span(y)); // pixels of a unit
  if (few) ({ x, y, names } = joined(x, y, names.map(visible), scale));
  const marker = few ? { size: 6, color: COLOURS.sky }
    : { size: 7, color: names.map((_, i) => i), colorscale: "Viridis", showscale: true,
      colorbar: { thickness: 10, outlinewidth: 0, title: { text: "token", side: "right" } } };
  const sides = few ? beside(x, y, names, scale) : [];
  const trace = { type: "scatter", mode: few ? "markers+text" : "markers", x, y, marker, hoverinfo: "text",
    text: (few ? names : names.map(visible)).map(plain), textfont: { size: 13 }, cliponaxis: false,
    textposition: few ? sides.map((s) => s.place) : "top center" };
  const ends = (k) => sides.map((s) => s.area[k] / scale);
  const range = few ? [Math.min(...ends(0)) - 10 / scale, Math.max(...ends(2)) + 10 / scale] : undefined; // names fit in
  const grid = { showgrid: true, gridcolor: "#eee", zeroline: true, zerolinecolor: COLOURS.pale, nticks: 6,
    tickfont: { color: COLOURS.grey }, automargin: false };
  return Plotly.react(div, [trace], layout({
    width, height, margin: { l: 60, r: 15, t: 10, b: 45 },
    xaxis: axis({ ...grid, range, title: { text: titles[0] } }),
    yaxis: axis({ ...grid, title: { text: height < 300 ? titles[1].replace(/ \(.*/, "") : titles[1] }, scaleanchor: "x" }),
  }), CONFIG);
}

/** Points that cannot be told apart become one, with all their names. */
function joined(x, y, names, scale) {
  const kept = [];
  names.forEach((name, i) => {
    const same = kept.find((k) => Math.hypot(k.x - x[i], k.y - y[i]) * scale < 4);
    if (same) same.name += "  " + name;
    else kept.push({ x: x[i], y: y[i], name });
  });
  return { x: kept.map((k) => k.x), y: kept.map((k) => k.y), names: kept.map((k) => k.name) };
}

/** On which side of its point each name covers least of the names before it, and the area that it takes. */
function beside(x, y, names, scale) {
  const taken = [];
  return names.map((name, i) => {
    const w = 8 * name.length, h = 16, px = x[i] * scale, py = y[i] * scale;
    const places = { "top center": [-w / 2, 4], "bottom center": [-w / 2, -4 - h], "middle right": [6, -h / 2],
      "middle left": [-6 - w, -h / 2] };
    const covers = Object.entries(places).map(([place, [dx, dy]]) => {
      const area = [px + dx, py + dy, px + dx + w, py + dy + h];
      const along = (t, k) => Math.max(0, Math.min(t[k + 2], area[k + 2]) - Math.max(t[k], area[k]));
      return { covered: taken.reduce((sum, t) => sum + along(t, 0) * along(t, 1), 0), place, area };
    });
    const best = covers.reduce((a, b) => (b.covered < a.covered ? b : a));
    taken.push(best.area, [px - 4, py - 4, px + 4, py + 4]);
    return best;
  });
}

/** Upright bars over numbers, some of them marked. */
function uprights(div, { x, y, marked, titles }) {
  const colour = x.map((k) => (marked.includes(k) ? COLOURS.orange : COLOURS.sky));
  const hovertext = x.map((k, i) => `frequency ${k}: ${percent(y[i])}`);
  const trace = { type: "bar", x, y, marker: { color: colour }, hovertext, hoverinfo: "text" };
  const notes = marked.map((k) => ({ x: k, y: y[x.indexOf(k)], text: String(k), showarrow: false, yshift: 9 }));
  return Plotly.react(div, [trace], layout({
    height: 280, margin: { l: 55, r: 10, t: 15, b: 45 }, annotations: notes, bargap: 0.2,
    xaxis: axis({ title: { text: titles[0] } }),
    yaxis: axis({ title: { text: titles[1] }, tickformat: ".0%", showgrid: true, gridcolor: "#eee" }),
  }), CONFIG);
}

/** Lines over steps. */
function lines(div, { series, title, log = false, share = false }) {
  const palette = [COLOURS.blue, COLOURS.orange, COLOURS.green, COLOURS.purple];
  const traces = series.map((s, i) => ({ type: "scatter", mode: "lines", name: plain(s.name), x: s.x,
    y: s.y.map((v) => (log && !(v > 0) ? null : v)), line: { color: palette[i % 4], dash: DASHES[i % 4], width: 2 } }));
  return Plotly.react(div, traces, layout({
    height: 240, margin: { l: 60, r: 10, t: 10, b: 45 }, hovermode: "x", showlegend: series.length > 1,
    legend: { orientation: "h", y: 1.15 },
    xaxis: axis({ title: { text: "step" } }),
    yaxis: axis({ title: { text: title }, type: log ? "log" : "linear", showgrid: true, gridcolor: "#eee",
      ...(share ? { range: [-0.03, 1.05], tickformat: ".0%" } : { exponentformat: "e", nticks: 5 }) }),
  }), CONFIG);
}

/** Rounded down, so that only what is whole is 100 %. */
function percent(share) {
  return share >= 1 ? "100\u00a0%" : `${(Math.floor(share * 1000 + 1e-6) / 10).toFixed(1)}\u00a0%`;
}
