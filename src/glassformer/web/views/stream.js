// The stream by name: position × slot, each slot with the value that it holds; and the neurons, by name and case.
import { barRows, inDigits, make, namedMap, READABLE, scaleOf, tint, visible } from "../charts.js";
import { partMenu, partName } from "./interventions.js";
import { actionOn, change, follow, state } from "../store.js";
import { idOf, partOf, roomOf, wordOf } from "./input.js";
import { slots, streamAfter, sublayersOf } from "../stream.js";

export function openStream() {
  follow((c) => [c.cache, c.after, c.actions, state.look], drawStream, { soon: true });
  follow((c) => [c.cache, c.actions, c.wideNeurons], drawNeurons, { soon: true });
}

// ── the stream ─────────────────────────────────────────────────────────────────────────────────
function drawStream(column) {
  const { live, cache } = column, place = partOf("stream", column).querySelector(".body");
  if (!cache || cache.arrays.problem) return place.replaceChildren();
  const layers = sublayersOf(live), now = layers.includes(column.after) ? column.after : layers.at(-1);
  const tabs = make("div", { class: "tabs", role: "group", "aria-label": "The stream after" }, make("span", { class: "quiet" }, "after"),
    layers.map((name) => make("button", { type: "button", "aria-pressed": String(name === now), id: idOf(`after-${name.replace(" ", "-")}`, column),
      onclick: () => change(() => { column.after = name; }) }, name)));
  const named = Object.keys(live.labels.slots ?? {}).length > 0;
  const says = live.source ? live.source.problem || "Each slot decoded into the value it holds, and below it what the interpreter of the source says."
    : "Each slot decoded into the token or position whose code it holds; else its numbers, blue above 0 and orange below.";
  place.replaceChildren(...(named ? [make("p", { class: "quiet" }, says), tabs, slotTable(column, now)] : [tabs, rawStream(column, now)]));
}

function slotTable(column, sublayer) {
  const { live, cache } = column, found = slots(live, cache.arrays, cache.tokens).filter((s) => s.sublayer === sublayer);
  const names = Object.keys(live.labels.slots), cells = new Map(found.map((s) => [`${s.slot} ${s.position}`, s]));
  const rowOf = (name) => cache.tokens.map((_, t) => cells.get(`${name} ${t}`));
  const largest = (row) => Math.max(1e-300, ...row.flatMap((cell) => cell.numbers.map(Math.abs)));
  const written = (name) => live.source?.codes?.find(({ start }) => start === live.labels.slots[name][0])?.time ?? Infinity;
  const isLater = (name) => timeOf(sublayer) > written(name);
  const head = make("tr", {}, make("td"), cache.tokens.map((token, t) => make("th", { scope: "col", "data-link": `token ${cache.first + t}`,
    class: t === cache.last ? "asking" : "" }, wordOf(column, token))));
  const rows = names.map((name) => make("tr", { class: actionOn(column, `slot ${name}`) ? "off" : "" },
    make("th", { scope: "row" }, make("button", { type: "button", id: idOf(`slot-${name}`, column), "data-link": `slot ${name}`,
      onclick: (e) => partMenu(column, `slot ${name}`, e.currentTarget) }, name)),
    rowOf(name).map((cell, t) => slotCell(cell, name, t === cache.last, largest(rowOf(name)), isLater(name)))));
  return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": `The stream after ${sublayer}` },
    make("table", { class: "slots" }, make("thead", {}, head), make("tbody", {}, rows)));
}

/** When a sublayer ends, as the compiler counts: 0 the embedding, then heads and neurons by turns. */
function timeOf(sublayer) {
  const [what, layer] = sublayer.split(" ");
  return what === "embedding" ? 0 : 2 * Number(layer) + (what === "mlp" ? 2 : 1);
}

function slotCell(cell, name, asking, most, later) {
  const kind = asking ? "asking" : "";
  if (cell && cell.share === 0 && later) cell = { ...cell, kind: "vector", means: "" }; // its slot is used again
  if (!cell || cell.kind === "nothing") return make("td", { class: kind }, make("span", { class: "none" }, "·"));
  const value = cell.kind === "vector" ? inDigits(cell.numbers[0], 2) : cell.kind === "number" ? inDigits(Number(cell.value), 3) : cell.value;
  const wrong = cell.means !== "" && cell.means !== cell.value;
  const title = [`${name}: ${cell.kind} ${value}`, cell.means === "" ? "" : `the interpreter says ${cell.means}`,
    cell.numbers.slice(0, 12).map((x) => inDigits(x, 3)).join("  ")].filter(Boolean).join("\n");
  return make("td", { class: `${kind} ${cell.kind} ${wrong ? "differs" : ""}`, title,
    style: { "background-color": tint((cell.share ?? 0) * READABLE * 0.6) } },
  cell.kind === "vector" ? make("span", { class: "codes" }, cell.numbers.slice(0, 16).map((x) => make("i", { style: { "background-color": tint(x / most) } })),
      cell.numbers.length < 3 ? make("small", {}, value) : "")
    : make("span", {}, visible(value)),
  cell.means === "" ? "" : make("small", { class: "means" }, wrong ? `not ${visible(cell.means)}` : `= ${visible(cell.means)}`));
}

/** Where slots have no names: every dimension at every position. */
function rawStream(column, sublayer) {
  const { live, cache } = column, x = streamAfter(live, cache.arrays, sublayer), [T, D] = x.shape;
  const turned = new Float64Array(T * D);
  let most = 0;
  for (let t = 0; t < T; t++) for (let d = 0; d < D; d++) {
    turned[d * T + t] = x.data[t * D + d];
    most = Math.max(most, Math.abs(x.data[t * D + d]));
  }
  const words = cache.tokens.map((token) => wordOf(column, token)), says = make("p", { class: "says", "aria-live": "polite" });
  const room = roomOf("stream", column), wide = Math.max(4, Math.min(40 * scaleOf(), Math.floor((room - 60) / T)));
  const high = Math.max(90, Math.min(320, D * wide)), every = Math.ceil(14 * scaleOf() * D / high); // as many names as find room
  const map = namedMap({ values: turned, rows: Array.from({ length: D }, (_, d) => (d % every ? "" : String(d))), columns: words, most, size: wide,
    label: `The stream after ${sublayer}: ${D} dimensions at ${T} positions`, leave: () => { says.textContent = ""; },
    point: (d, t) => { says.textContent = `dimension ${d} at ${words[t]}, position ${cache.first + t}: ${inDigits(turned[d * T + t])}`; } });
  map.style.setProperty("--high", `${high}px`);
  map.classList.add("flat");
  return make("div", {}, make("p", { class: "quiet" },
    `The slots of this model have no names: ${D} dimensions from top to bottom. Blue is more than 0, orange less.`), map, says);
}

// ── neurons ────────────────────────────────────────────────────────────────────────────────────
const FEW = 12; // that are told one by one, of a layer with more

function drawNeurons(column) {
  const { base, cache } = column, place = partOf("neurons", column), found = [];
  for (let l = 0; l < base.config.n_layers; l++) {
    const post = cache?.arrays?.[`blocks.${l}.mlp.hook_post`];
    if (post) found.push(...neuronLayer(column, l, post));
  }
  const has = Object.keys(base.weights).some((name) => name.endsWith("mlp.W_out"));
  place.hidden = !has;
  if (found.length || !has) place.querySelector(".body").replaceChildren(...found);
}

function neuronLayer(column, l, post) {
  const F = post.shape[1], last = post.data.subarray(column.cache.last * F, (column.cache.last + 1) * F);
  const most = Math.max(1e-300, ...Array.from(last, Math.abs)), labels = column.base.labels.neurons ?? {};
  const order = Array.from(last.keys());
  if (F > FEW && !column.wideNeurons) order.sort((a, b) => Math.abs(last[b]) - Math.abs(last[a]) || a - b);
  const isOff = (n) => Boolean(actionOn(column, `neuron ${l}.${n}`)), counts = (n) => Math.abs(last[n]) > 1e-9 * most && Math.abs(last[n]) > 1e-12;
  const shown = column.wideNeurons || F <= FEW ? order : order.filter((n) => counts(n) || isOff(n)).slice(0, FEW).sort((a, b) => a - b);
  const row = (n) => ({ name: make("span", {}, make("b", {}, `${l}.${n}`), labels[`${l}.${n}`] ? ` ${labels[`${l}.${n}`]}` : ""),
    note: caseOf(column.live, l, n), value: Math.abs(last[n]) < 1e-12 * most ? 0 : last[n], link: `neuron ${l}.${n}`, id: idOf(`neuron-${l}-${n}`, column),
    act: (e) => partMenu(column, `neuron ${l}.${n}`, e.currentTarget) });
  const fired = Array.from(last.keys()).filter(counts).length;
  const bars = barRows(shown.map(row), { most, label: `Neurons of layer ${l}` });
  shown.forEach((n, i) => bars.children[i].classList.toggle("off", isOff(n)));
  const squares = F > FEW ? make("div", { class: "squares", role: "img", "aria-label": `All ${F} neurons of layer ${l}` },
    Array.from(last, (x, n) => make("i", { "data-link": `neuron ${l}.${n}`, title: `${partName(column, `neuron ${l}.${n}`)}: ${inDigits(x)}`,
      style: { "background-color": tint(x / most) }, onclick: () => partMenu(column, `neuron ${l}.${n}`, bars.parentElement ?? bars) }))) : "";
  const more = F > FEW ? make("button", { type: "button", class: "plain", onclick: () => change(() => { column.wideNeurons = !column.wideNeurons; }) },
    column.wideNeurons ? "only the strongest" : `all ${F}`) : "";
  return [make("div", { class: "layer" }, make("p", { class: "quiet" }, `layer ${l}: ${fired} of ${F} fired at the last position read`),
    squares, bars, more)];
}

const cases = new WeakMap(); // W_in -> what each of its neurons takes and gives, in words

/** What a neuron is for, by its weights: "digit → column"; where slots have no names, "→ 7", the token it speaks for. */
function caseOf({ config: c, weights: w, labels, vocabulary }, l, n) {
  const W_in = w[`blocks.${l}.mlp.W_in`], W_out = w[`blocks.${l}.mlp.W_out`], [D, F] = W_in.shape;
  if (!cases.has(W_in)) cases.set(W_in, new Map());
  const known = cases.get(W_in);
  if (known.has(n)) return known.get(n);
  const slots = Object.entries(labels.slots ?? {});
  const named = (size) => {
    const found = slots.map(([name, [a, b]]) => [name, Math.hypot(...Array.from({ length: b - a }, (_, i) => size(a + i)))]);
    const most = Math.max(0, ...found.map(([, x]) => x));
    return found.filter(([, x]) => x > 0.1 * most).map(([name]) => name).slice(0, 3).join(", ");
  };
  let said;
  if (slots.length) {
    said = `${named((d) => W_in.data[d * F + n]) || "its bias"} → ${named((d) => W_out.data[n * D + d]) || "nothing"}`;
  } else {
    let best = -1, most = -Infinity;
    for (let v = 0; v < c.d_vocab; v++) {
      let sum = 0;
      for (let d = 0; d < D; d++) sum += W_out.data[n * D + d] * (c.tied ? w["embed.W_E"].data[v * D + d] : w["unembed.W_U"].data[d * c.d_vocab + v]);
      if (sum > most) [best, most] = [v, sum];
    }
    said = `→ ${visible(vocabulary.text(best))}`;
  }
  known.set(n, said);
  return said;
}
