// Highlight the inputs and outputs of the token, head, slot, neuron or logit under the pointer.
import { visibleToken } from "../charts.js";
import { joinWords } from "../vocabulary.js";
import { columns, positionName } from "../store.js";
import { headPart } from "../components.js";
import { componentName } from "./interventions.js";
import { patternOf } from "./attention.js";
import { logitContributions } from "../stream.js";

const MIN_SHARE = 0.08; // of the largest link

/** Called once, also if other models are opened later. */
export function openLinks() {
  const point = (e) => highlight(e.target.closest?.("[data-link]"));
  document.addEventListener("pointerover", point);
  document.addEventListener("focusin", point);
  document.addEventListener("pointerleave", () => highlight(null));
}

let highlighted = "";
function highlight(element) {
  const home = element?.closest("[data-column]"),
    key = home ? `${home.dataset.column} ${element.dataset.link}` : "";
  if (key === highlighted) return;
  highlighted = key;
  for (const old of document.querySelectorAll(".from, .to, .pointed"))
    old.classList.remove("from", "to", "pointed");
  const line = document.getElementById("pointed");
  line.hidden = !key;
  if (!key) return;
  const column = columns[home.dataset.column], link = element.dataset.link;
  const { from,
    to } = column.cache && !column.cache.arrays.problem ? linksOf(column, link)
    : { from: [], to: [] };
  const sets = [[new Set(from), "from"], [new Set(to), "to"], [new Set([link]), "pointed"]];
  for (const target of home.querySelectorAll("[data-link]")) {
    for (const [set, name] of sets) if (set.has(target.dataset.link)) target.classList.add(name);
  }
  const linkTexts =
    (links) =>
    joinWords(links.slice(0, 6).map((l) => linkText(column, l)).concat(links.length > 6
        ? [`${links.length - 6} more`] : []));
  const parts = [linkText(column, link), from.length ? `from ${linkTexts(from)}` : "",
    to.length ? `to ${linkTexts(to)}` : ""];
  line.textContent = parts.filter(Boolean).join("  ·  ");
}

function linkText(column, link) {
  const [kind, place] = link.split(/ (.*)/s),
    word = (token) => visibleToken(column.live.vocabulary.text(token));
  if (kind === "token") {
    const token_ = column.ran && Number(place) < column.ran.tokens.length
      ? word(column.ran.tokens[place]) : "?", at = positionName(column, Number(place));
    return at ? `${token_} at ${at}` : token_;
  }
  if (kind === "logit") return `logit of ${word(Number(place))}`;
  return componentName(column, link);
}

// ── links ──────────────────────────────────────────────────────────────────────────────────────
/** The largest of [link, size], sorted. */
function strongest(links, maxLinks = 8) {
  const largest = Math.max(...links.map(([, x]) => x), 0);
  return links.filter(([, x]) => x > MIN_SHARE * largest && x > 0).sort((a, b) => b[1] - a[1])
    .slice(0, maxLinks).map(([link]) => link);
}

export function linksOf(column, link) {
  const [kind, place] = link.split(/ (.*)/s),
    links = LINKS_BY_KIND[kind]?.(dataflowContext(column), place);
  return links ?? { from: [], to: [] };
}

/** Functions of the weights and activations at the last position read. */
function dataflowContext(column) {
  const { live, cache } = column, { config: c, weights: w } = live, x = cache.arrays, D = c.d_model;
  const at =
    (name, size) =>
    (x[name] ? x[name].data.subarray(cache.last * size, (cache.last + 1) * size) : null);
  const bySlot =
    (vector) =>
    Object.entries(live.labels.slots ?? {})
    .map(([name, [a, b]]) => [`slot ${name}`, Math.hypot(...vector.subarray(a, b))]);
  // logit lens of a vector of the stream, with the last norm's centering and gain
  const logits = (vector) => {
    const scores = new Float64Array(c.d_vocab),
      W = c.tied ? w["embed.W_E"].data : w["unembed.W_U"].data;
    const middle = c.norm === "layer" ? vector.reduce((a, b) => a + b, 0) / D : 0,
      gain = w["ln_final.w"]?.data;
    const x = Float64Array.from(vector, (a, d) => (a - middle) * (gain ? gain[d] : 1));
    for (let v = 0; v < c.d_vocab; v++)
      for (let d = 0; d < D; d++)
      scores[v] += x[d] * (c.tied ? W[v * D + d] : W[d * c.d_vocab + v]);
    const mean = scores.reduce((a, b) => a + b, 0) / scores.length;
    return Array.from(scores, (s, v) => [`logit ${v}`, s - mean]);
  };
  const wrote = (l, h) => { // a head's output
    const K = c.d_head, z = at(`blocks.${l}.attn.hook_z`, c.n_heads * K),
      W = w[`blocks.${l}.attn.W_O`].data, out = new Float64Array(D);
    for (let k = 0; k < K; k++)
      for (let d = 0; d < D; d++) out[d] += z[h * K + k] * W[(h * K + k) * D + d];
    return out;
  };
  const readBy = (l, h) => { // the norm of a head's input weights, by dimension
    const out = new Float64Array(D);
    for (const name of ["W_Q", "W_K", "W_V"]) {
      const W = w[`blocks.${l}.attn.${name}`].data, K = c.d_head;
      const part = Float64Array.from({ length: D },
        (_, d) => Math.hypot(...W.subarray((h * D + d) * K, (h * D + d + 1) * K)));
      const largest = Math.max(...part) || 1;
      part.forEach((s, d) => { out[d] = Math.max(out[d], s / largest); });
    }
    return out;
  };
  const neuron = (l, n) => {
    const F = c.d_mlp, post = at(`blocks.${l}.mlp.hook_post`, F)?.[n] ?? 0;
    return { post,
      takes: Float64Array.from({ length: D },
        (_, d) => Math.abs(w[`blocks.${l}.mlp.W_in`].data[d * F + n])),
      gives: w[`blocks.${l}.mlp.W_out`].data.slice(n * D, (n + 1) * D).map((g) => g * post) };
  };
  const heads = Array.from({ length: c.n_layers * c.n_heads },
    (_, i) => [Math.floor(i / c.n_heads), i % c.n_heads]);
  const mlps =
    Array.from({ length: c.n_layers }, (_, l) => l).filter((l) => w[`blocks.${l}.mlp.W_out`]);
  return { column, live, cache, c, at, bySlot, logits, wrote, readBy, neuron, heads, mlps };
}

const LINKS_BY_KIND = {
  token({ column, cache, heads, c }, place) {
    const p = Number(place) - cache.first,
      pattern = c.n_layers ? patternOf(column, ...column.head) : null;
    if (p === cache.last + 1) return { from: [`logit ${column.step.winner}`], to: [] };
    if (!pattern || p < 0 || p > cache.last) return { from: [], to: [] };
    const from = strongest(Array.from(pattern.row(p), (s, t) => [`token ${cache.first + t}`, s]));
    const readers =
      Array.from({ length: cache.last + 1 },
        (_, t) => [`token ${cache.first + t}`, t === p ? 0 : pattern.at(t, p)])
      .filter(([, s]) => s > MIN_SHARE);
    const by =
      heads.map(([l, h]) => [headPart(l, h), patternOf(column, l, h)?.at(cache.last, p) ?? 0])
      .filter(([, s]) => s > MIN_SHARE);
    return { from, to: [...strongest(by), ...strongest(readers)] };
  },
  head({ column, cache, bySlot, logits, wrote, readBy }, place) {
    const [l, h] = place.split(".").map(Number),
      read = patternOf(column, l, h)?.row(cache.last) ?? [], out = wrote(l, h);
    return { from: [...strongest(Array.from(read, (s, t) => [`token ${cache.first + t}`, s])),
      ...strongest(bySlot(readBy(l, h)))],
      to: [...strongest(bySlot(out)), ...strongest(logits(out), 2)] };
  },
  neuron({ bySlot, logits, neuron }, place) {
    const [l, n] = place.split(".").map(Number), { takes, gives } = neuron(l, n);
    return { from: strongest(bySlot(takes)),
      to: [...strongest(bySlot(gives)), ...strongest(logits(gives), 2)] };
  },
  slot({ live, cache, c, at, bySlot, logits, wrote, readBy, neuron, heads, mlps }, name) {
    const link = `slot ${name}`,
      of = (vector) => bySlot(vector).find(([name_]) => name_ === link)?.[1] ?? 0;
    const [a, b] = live.labels.slots[name], embedded = at("hook_embed", c.d_model);
    const from = [[`token ${cache.first + cache.last}`, of(embedded)],
      ...heads.map(([l, h]) => [headPart(l, h), of(wrote(l, h))])], to = [];
    for (const [l, h] of heads) to.push([headPart(l, h), of(readBy(l, h))]);
    for (const l of mlps) for (let n = 0; n < c.d_mlp; n++) {
      const { takes, gives } = neuron(l, n);
      from.push([`neuron ${l}.${n}`, of(gives)]);
      to.push([`neuron ${l}.${n}`, of(takes)]);
    }
    const end = at(c.n_layers ? `blocks.${c.n_layers - 1}.hook_resid_post` : "hook_embed",
      c.d_model);
    const alone = Float64Array.from(end, (x, d) => (d >= a && d < b ? x : 0));
    return { from: strongest(from), to: [...strongest(to), ...strongest(logits(alone), 1)] };
  },
  logit({ column, cache, live }, place) {
    const { step } = column, token = Number(place),
      rival = token === step.winner ? step.second : step.winner;
    let contributions = [];
    try {
      const rivalContributions =
        new Map(logitContributions(live, cache.arrays, cache.last, rival)
            .map(({ part, amount }) => [part, amount]));
      contributions =
        logitContributions(live, cache.arrays, cache.last, token)
        .map(({ part, amount }) => [part, amount - (rivalContributions.get(part) ?? 0)]);
    } catch { /* not a sum */ }
    return { from: strongest(contributions),
      to: token === step.winner ? [`token ${cache.first + cache.last + 1}`] : [] };
  },
};
LINKS_BY_KIND.position = LINKS_BY_KIND.token;
