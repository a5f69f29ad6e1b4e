// The residual stream as a table of positions and slots with decoded values; and the neurons.
import { barChart, formatNumber, create, heatmap, MAX_TEXT_TINT, fontScale, tint,
  visibleToken } from "../charts.js";
import { openComponentMenu, componentName } from "./interventions.js";
import { interventionOn, update, subscribe, state } from "../store.js";
import { elementId, elementOf, widthOf, tokenText } from "./input.js";
import { slotContents, streamAfter, sublayersOf, timeOf } from "../stream.js";

export function openStream() {
  subscribe((c) => [c.cache, c.after, c.actions, state.layout], drawStream, { soon: true });
  subscribe((c) => [c.cache, c.actions, c.wideNeurons], drawNeurons, { soon: true });
}

// ── the stream ─────────────────────────────────────────────────────────────────────────────────
function drawStream(column) {
  const { live, cache } = column, place = elementOf("stream", column).querySelector(".body");
  if (!cache || cache.arrays.problem) return place.replaceChildren();
  const layers = sublayersOf(live),
    sublayer = layers.includes(column.after) ? column.after : layers.at(-1);
  const tabs = create("div", { class: "tabs", role: "group", "aria-label": "The stream after" },
    create("span", { class: "quiet" }, "after"),
    layers.map((name) => create("button",
      { type: "button", "aria-pressed": String(name === sublayer),
        id: elementId(`after-${name.replace(" ", "-")}`, column),
        onclick: () => update(() => { column.after = name; }) }, name)));
  const named = Object.keys(live.labels.slots ?? {}).length > 0;
  const caption = live.source
    ? live.source.problem
    || "Each slot decoded into its value; below it the value by the interpreter of the source."
    : "Each slot decoded into its token or position; else its numbers, blue above 0, orange below.";
  place.replaceChildren(...(named
      ? [create("p", { class: "quiet" }, caption), tabs, slotTable(column, sublayer)]
      : [tabs, rawStream(column, sublayer)]));
}

function slotTable(column, sublayer) {
  const { live, cache } = column,
    contents =
    slotContents(live, cache.arrays, cache.tokens).filter((s) => s.sublayer === sublayer);
  const names = Object.keys(live.labels.slots),
    cells = new Map(contents.map((s) => [`${s.slot} ${s.position}`, s]));
  const rowOf = (name) => cache.tokens.map((_, t) => cells.get(`${name} ${t}`));
  const largest = (row) => Math.max(1e-300, ...row.flatMap((cell) => cell.numbers.map(Math.abs)));
  const written =
    (name) => live.source?.codes?.find(({ start }) => start === live.labels.slots[name][0])?.time
    ?? Infinity;
  const isLater = (name) => timeOf(sublayer) > written(name);
  const head = create("tr", {}, create("td"),
    cache.tokens.map((token, t) => create("th",
      { scope: "col", "data-link": `token ${cache.first + t}`,
        class: t === cache.last ? "asking" : "" }, tokenText(column, token))));
  const rows =
    names.map((name) => create("tr", { class: interventionOn(column, `slot ${name}`) ? "off" : "" },
      create("th", { scope: "row" },
        create("button",
          { type: "button", id: elementId(`slot-${name}`, column), "data-link": `slot ${name}`,
            onclick: (e) => openComponentMenu(column, `slot ${name}`, e.currentTarget) }, name)),
      rowOf(name)
        .map((cell, t) => slotCell(cell, name, t === cache.last, largest(rowOf(name)),
          isLater(name)))));
  return create("div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": `The stream after ${sublayer}` },
    create("table", { class: "slots" }, create("thead", {}, head), create("tbody", {}, rows)));
}

function slotCell(cell, name, asking, largest, later) {
  const kind = asking ? "asking" : "";
  // the slot was overwritten
  if (cell && cell.share === 0 && later) cell = { ...cell, kind: "vector", means: "" };
  if (!cell || cell.kind === "nothing")
    return create("td", { class: kind }, create("span", { class: "none" }, "·"));
  const value = cell.kind === "vector" ? formatNumber(cell.numbers[0], 2)
    : cell.kind === "number" ? formatNumber(Number(cell.value), 3) : cell.value;
  const wrong = cell.means !== "" && cell.means !== cell.value;
  const title =
    [`${name}: ${cell.kind} ${value}`, cell.means === "" ? "" : `interpreter: ${cell.means}`,
      cell.numbers.slice(0, 12).map((x) => formatNumber(x, 3)).join("  ")].filter(Boolean)
    .join("\n");
  return create("td", { class: `${kind} ${cell.kind} ${wrong ? "differs" : ""}`, title,
    style: { "background-color": tint((cell.share ?? 0) * MAX_TEXT_TINT * 0.6) } },
    cell.kind === "vector"
      ? create("span", { class: "codes" },
        cell.numbers.slice(0, 16)
          .map((x) => create("i", { style: { "background-color": tint(x / largest) } })),
        cell.numbers.length < 3 ? create("small", {}, value) : "")
      : create("span", {}, visibleToken(value)),
    cell.means === "" ? ""
      : create("small", { class: "means" },
        wrong ? `not ${visibleToken(cell.means)}` : `= ${visibleToken(cell.means)}`));
}

/** A heatmap of every dimension, for streams without slots. */
function rawStream(column, sublayer) {
  const { live, cache } = column, x = streamAfter(live, cache.arrays, sublayer), [T, D] = x.shape;
  const transposed = new Float64Array(T * D);
  let largest = 0;
  for (let t = 0; t < T; t++) for (let d = 0; d < D; d++) {
    transposed[d * T + t] = x.data[t * D + d];
    largest = Math.max(largest, Math.abs(x.data[t * D + d]));
  }
  const words = cache.tokens.map((token) => tokenText(column, token)),
    status = create("p", { class: "status", "aria-live": "polite" });
  const available = widthOf("stream", column),
    cellWidth = Math.max(4, Math.min(40 * fontScale(), Math.floor((available - 60) / T)));
  const height = Math.max(90, Math.min(320, D * cellWidth)),
    every = Math.ceil(14 * fontScale() * D / height);
  const map = heatmap({ values: transposed,
    rows: Array.from({ length: D }, (_, d) => (d % every ? "" : String(d))), columns: words,
    maximum: largest, size: cellWidth,
    label: `The stream after ${sublayer}: ${D} dimensions at ${T} positions`,
    leave: () => { status.textContent = ""; },
    point: (d,
      t) => { status.textContent = `dimension ${d} at ${words[t]}, position ${cache.first + t}: `
          + formatNumber(transposed[d * T + t]); } });
  map.style.setProperty("--high", `${height}px`);
  map.classList.add("flat");
  return create("div", {}, create("p", { class: "quiet" },
    `No named slots: ${D} dimensions from top to bottom, blue above 0, orange below.`), map,
    status);
}

// ── neurons ────────────────────────────────────────────────────────────────────────────────────
const MAX_LISTED_NEURONS = 12;

function drawNeurons(column) {
  const { base, cache } = column, place = elementOf("neurons", column), layers = [];
  for (let l = 0; l < base.config.n_layers; l++) {
    const post = cache?.arrays?.[`blocks.${l}.mlp.hook_post`];
    if (post) layers.push(...neuronLayer(column, l, post));
  }
  const has = Object.keys(base.weights).some((name) => name.endsWith("mlp.W_out"));
  place.hidden = !has;
  if (layers.length || !has) place.querySelector(".body").replaceChildren(...layers);
}

function neuronLayer(column, l, post) {
  const F = post.shape[1],
    last = post.data.subarray(column.cache.last * F, (column.cache.last + 1) * F);
  const largest = Math.max(1e-300, ...Array.from(last, Math.abs)),
    labels = column.base.labels.neurons ?? {};
  const order = Array.from(last.keys());
  if (F > MAX_LISTED_NEURONS && !column.wideNeurons)
    order.sort((a, b) => Math.abs(last[b]) - Math.abs(last[a]) || a - b);
  const isOff = (n) => Boolean(interventionOn(column, `neuron ${l}.${n}`)),
    counts = (n) => Math.abs(last[n]) > 1e-9 * largest && Math.abs(last[n]) > 1e-12;
  const shown = column.wideNeurons || F <= MAX_LISTED_NEURONS ? order
    : order.filter((n) => counts(n) || isOff(n)).slice(0, MAX_LISTED_NEURONS).sort((a, b) => a - b);
  const row =
    (n) => ({ name: create("span", {}, create("b", {}, `${l}.${n}`),
      labels[`${l}.${n}`] ? ` ${labels[`${l}.${n}`]}` : ""),
      note: neuronSummary(column.live, l, n),
      value: Math.abs(last[n]) < 1e-12 * largest ? 0 : last[n], link: `neuron ${l}.${n}`,
      id: elementId(`neuron-${l}-${n}`, column),
      act: (e) => openComponentMenu(column, `neuron ${l}.${n}`, e.currentTarget) });
  const fired = Array.from(last.keys()).filter(counts).length;
  const bars = barChart(shown.map(row), { maximum: largest, label: `Neurons of layer ${l}` });
  shown.forEach((n, i) => bars.children[i].classList.toggle("off", isOff(n)));
  const squares = F > MAX_LISTED_NEURONS
    ? create("div",
      { class: "squares", role: "img", "aria-label": `All ${F} neurons of layer ${l}` },
      Array.from(last,
        (x, n) => create("i",
          { "data-link": `neuron ${l}.${n}`,
            title: `${componentName(column, `neuron ${l}.${n}`)}: ${formatNumber(x)}`,
            style: { "background-color": tint(x / largest) },
            onclick: () => openComponentMenu(column, `neuron ${l}.${n}`,
              bars.parentElement ?? bars) })))
    : "";
  const more = F > MAX_LISTED_NEURONS
    ? create("button",
      { type: "button", class: "plain",
        onclick: () => update(() => { column.wideNeurons = !column.wideNeurons; }) },
      column.wideNeurons ? "show the strongest" : `all ${F}`) : "";
  return [create("div", { class: "layer" },
    create("p", { class: "quiet" }, `layer ${l}: ${fired} of ${F} fired at the last position read`),
    squares, bars, more)];
}

const summariesByWeights = new WeakMap(); // W_in -> {neuron: summary}

/** The slots that a neuron reads and writes, "digit → column"; without slots its top token, "→ 7".
 * */
function neuronSummary({ config: c, weights: w, labels, vocabulary }, l, n) {
  const W_in = w[`blocks.${l}.mlp.W_in`], W_out = w[`blocks.${l}.mlp.W_out`], [D, F] = W_in.shape;
  if (!summariesByWeights.has(W_in)) summariesByWeights.set(W_in, new Map());
  const summaries = summariesByWeights.get(W_in);
  if (summaries.has(n)) return summaries.get(n);
  const slots = Object.entries(labels.slots ?? {});
  const named = (size) => {
    const norms =
      slots.map(([name, [a, b]]) => [name,
        Math.hypot(...Array.from({ length: b - a }, (_, i) => size(a + i)))]);
    const largest = Math.max(0, ...norms.map(([, x]) => x));
    return norms.filter(([, x]) => x > 0.1 * largest).map(([name]) => name).slice(0, 3).join(", ");
  };
  let text;
  if (slots.length) {
    const reads = named((d) => W_in.data[d * F + n]), writes = named((d) => W_out.data[n * D + d]);
    text = `${reads || "its bias"} → ${writes || "nothing"}`;
  } else {
    let best = -1, largest = -Infinity;
    for (let v = 0; v < c.d_vocab; v++) {
      let sum = 0;
      for (let d = 0; d < D; d++)
        sum += W_out.data[n * D + d]
       * (c.tied ? w["embed.W_E"].data[v * D + d] : w["unembed.W_U"].data[d * c.d_vocab + v]);
      if (sum > largest) [best, largest] = [v, sum];
    }
    text = `→ ${visibleToken(vocabulary.text(best))}`;
  }
  summaries.set(n, text);
  return text;
}
