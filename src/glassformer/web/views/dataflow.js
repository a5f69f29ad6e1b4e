// Point at a token, head, slot, neuron or logit: what it came from and what it goes to lights up, and a line says it.
import { inWords, visible } from "../charts.js";
import { columns, placeName } from "../store.js";
import { headPart } from "../components.js";
import { partName } from "./interventions.js";
import { patternOf } from "./attention.js";
import { sources } from "../stream.js";

const LEAST = 0.08; // of the largest: what is less does not light up

/** Once, whatever models are opened. */
export function openLinks() {
  const point = (e) => light(e.target.closest?.("[data-link]"));
  document.addEventListener("pointerover", point);
  document.addEventListener("focusin", point);
  document.addEventListener("pointerleave", () => light(null));
}

let lit = "";
function light(element) {
  const home = element?.closest("[data-column]"), key = home ? `${home.dataset.column} ${element.dataset.link}` : "";
  if (key === lit) return;
  lit = key;
  for (const old of document.querySelectorAll(".from, .to, .pointed")) old.classList.remove("from", "to", "pointed");
  const line = document.getElementById("pointed");
  line.hidden = !key;
  if (!key) return;
  const column = columns[home.dataset.column], link = element.dataset.link;
  const { from, to } = column.cache && !column.cache.arrays.problem ? linksOf(column, link) : { from: [], to: [] };
  const sets = [[new Set(from), "from"], [new Set(to), "to"], [new Set([link]), "pointed"]];
  for (const each of home.querySelectorAll("[data-link]")) {
    for (const [set, name] of sets) if (set.has(each.dataset.link)) each.classList.add(name);
  }
  const told = (links) => inWords(links.slice(0, 6).map((l) => spelledLink(column, l)).concat(links.length > 6 ? [`${links.length - 6} more`] : []));
  const parts = [spelledLink(column, link), from.length ? `from ${told(from)}` : "", to.length ? `to ${told(to)}` : ""];
  line.textContent = parts.filter(Boolean).join("  ·  ");
}

function spelledLink(column, link) {
  const [kind, place] = link.split(/ (.*)/s), word = (token) => visible(column.live.vocabulary.text(token));
  if (kind === "token") {
    const said = column.ran && Number(place) < column.ran.tokens.length ? word(column.ran.tokens[place]) : "?", at = placeName(column, Number(place));
    return at ? `${said} at ${at}` : said;
  }
  if (kind === "logit") return `logit of ${word(Number(place))}`;
  return partName(column, link);
}

// ── who hangs on whom ──────────────────────────────────────────────────────────────────────────
/** Those of [link, size] that count, the largest first. */
function strong(found, most = 8) {
  const largest = Math.max(...found.map(([, x]) => x), 0);
  return found.filter(([, x]) => x > LEAST * largest && x > 0).sort((a, b) => b[1] - a[1]).slice(0, most).map(([link]) => link);
}

export function linksOf(column, link) {
  const [kind, place] = link.split(/ (.*)/s), found = KINDS[kind]?.(view(column), place);
  return found ?? { from: [], to: [] };
}

/** What the kinds ask for: weights and arrays at the last position read. */
function view(column) {
  const { live, cache } = column, { config: c, weights: w } = live, x = cache.arrays, D = c.d_model;
  const at = (name, size) => (x[name] ? x[name].data.subarray(cache.last * size, (cache.last + 1) * size) : null);
  const bySlot = (vector) => Object.entries(live.labels.slots ?? {}).map(([name, [a, b]]) => [`slot ${name}`, Math.hypot(...vector.subarray(a, b))]);
  const logits = (vector) => { // what a vector of the stream speaks for: centred and gained, as by the last norm
    const said = new Float64Array(c.d_vocab), W = c.tied ? w["embed.W_E"].data : w["unembed.W_U"].data;
    const middle = c.norm === "layer" ? vector.reduce((a, b) => a + b, 0) / D : 0, gain = w["ln_final.w"]?.data;
    const x = Float64Array.from(vector, (a, d) => (a - middle) * (gain ? gain[d] : 1));
    for (let v = 0; v < c.d_vocab; v++) for (let d = 0; d < D; d++) said[v] += x[d] * (c.tied ? W[v * D + d] : W[d * c.d_vocab + v]);
    const mean = said.reduce((a, b) => a + b, 0) / said.length;
    return Array.from(said, (s, v) => [`logit ${v}`, s - mean]);
  };
  const wrote = (l, h) => { // by a head, at the last position
    const K = c.d_head, z = at(`blocks.${l}.attn.hook_z`, c.n_heads * K), W = w[`blocks.${l}.attn.W_O`].data, out = new Float64Array(D);
    for (let k = 0; k < K; k++) for (let d = 0; d < D; d++) out[d] += z[h * K + k] * W[(h * K + k) * D + d];
    return out;
  };
  const readBy = (l, h) => { // sizes of what a head's matrices take, by dimension
    const out = new Float64Array(D);
    for (const name of ["W_Q", "W_K", "W_V"]) {
      const W = w[`blocks.${l}.attn.${name}`].data, K = c.d_head;
      const part = Float64Array.from({ length: D }, (_, d) => Math.hypot(...W.subarray((h * D + d) * K, (h * D + d + 1) * K)));
      const largest = Math.max(...part) || 1;
      part.forEach((s, d) => { out[d] = Math.max(out[d], s / largest); });
    }
    return out;
  };
  const neuron = (l, n) => {
    const F = c.d_mlp, post = at(`blocks.${l}.mlp.hook_post`, F)?.[n] ?? 0;
    return { post, takes: Float64Array.from({ length: D }, (_, d) => Math.abs(w[`blocks.${l}.mlp.W_in`].data[d * F + n])),
      gives: w[`blocks.${l}.mlp.W_out`].data.slice(n * D, (n + 1) * D).map((g) => g * post) };
  };
  const heads = Array.from({ length: c.n_layers * c.n_heads }, (_, i) => [Math.floor(i / c.n_heads), i % c.n_heads]);
  const mlps = Array.from({ length: c.n_layers }, (_, l) => l).filter((l) => w[`blocks.${l}.mlp.W_out`]);
  return { column, live, cache, c, at, bySlot, logits, wrote, readBy, neuron, heads, mlps };
}

const KINDS = {
  token({ column, cache, heads, c }, place) {
    const p = Number(place) - cache.first, pattern = c.n_layers ? patternOf(column, ...column.head) : null;
    if (p === cache.last + 1) return { from: [`logit ${column.step.winner}`], to: [] };
    if (!pattern || p < 0 || p > cache.last) return { from: [], to: [] };
    const from = strong(Array.from(pattern.row(p), (s, t) => [`token ${cache.first + t}`, s]));
    const readers = Array.from({ length: cache.last + 1 }, (_, t) => [`token ${cache.first + t}`, t === p ? 0 : pattern.at(t, p)]).filter(([, s]) => s > LEAST);
    const by = heads.map(([l, h]) => [headPart(l, h), patternOf(column, l, h)?.at(cache.last, p) ?? 0]).filter(([, s]) => s > LEAST);
    return { from, to: [...strong(by), ...strong(readers)] };
  },
  head({ column, cache, bySlot, logits, wrote, readBy }, place) {
    const [l, h] = place.split(".").map(Number), read = patternOf(column, l, h)?.row(cache.last) ?? [], out = wrote(l, h);
    return { from: [...strong(Array.from(read, (s, t) => [`token ${cache.first + t}`, s])), ...strong(bySlot(readBy(l, h)))],
      to: [...strong(bySlot(out)), ...strong(logits(out), 2)] };
  },
  neuron({ bySlot, logits, neuron }, place) {
    const [l, n] = place.split(".").map(Number), { takes, gives } = neuron(l, n);
    return { from: strong(bySlot(takes)), to: [...strong(bySlot(gives)), ...strong(logits(gives), 2)] };
  },
  slot({ live, cache, c, at, bySlot, logits, wrote, readBy, neuron, heads, mlps }, name) {
    const link = `slot ${name}`, of = (vector) => bySlot(vector).find(([each]) => each === link)?.[1] ?? 0;
    const [a, b] = live.labels.slots[name], embedded = at("hook_embed", c.d_model);
    const from = [[`token ${cache.first + cache.last}`, of(embedded)], ...heads.map(([l, h]) => [headPart(l, h), of(wrote(l, h))])], to = [];
    for (const [l, h] of heads) to.push([headPart(l, h), of(readBy(l, h))]);
    for (const l of mlps) for (let n = 0; n < c.d_mlp; n++) {
      const { takes, gives } = neuron(l, n);
      from.push([`neuron ${l}.${n}`, of(gives)]);
      to.push([`neuron ${l}.${n}`, of(takes)]);
    }
    const end = at(c.n_layers ? `blocks.${c.n_layers - 1}.hook_resid_post` : "hook_embed", c.d_model);
    const alone = Float64Array.from(end, (x, d) => (d >= a && d < b ? x : 0));
    return { from: strong(from), to: [...strong(to), ...strong(logits(alone), 1)] };
  },
  logit({ column, cache, live }, place) {
    const { step } = column, token = Number(place), rival = token === step.winner ? step.second : step.winner;
    let found = [];
    try {
      const other = new Map(sources(live, cache.arrays, cache.last, rival).map(({ part, amount }) => [part, amount]));
      found = sources(live, cache.arrays, cache.last, token).map(({ part, amount }) => [part, amount - (other.get(part) ?? 0)]);
    } catch { /* no plain sum */ }
    return { from: strong(found), to: token === step.winner ? [`token ${cache.first + cache.last + 1}`] : [] };
  },
};
KINDS.position = KINDS.token;
