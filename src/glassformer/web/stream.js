// The stream by name: what each slot holds after each sublayer, as `explain` says it, and what a
// logit is made of.

import { trace } from "./interpret.js";
import { called, hasMlp, headPart, slotsOf } from "./components.js";

const SAME = 0.999; // cosine from which a slot is said to hold the code of a token or position

/** A number in a few digits. */
export const short = (x, digits = 4) => String(Number(x.toPrecision(digits)));

/** After what the stream can be looked at, in order. */
export function sublayersOf(model) {
  const found = ["embedding"];
  for (let i = 0; i < model.config.n_layers; i++) {
    found.push(`attention ${i}`, ...(hasMlp(model, i) ? [`mlp ${i}`] : []));
  }
  return found;
}

/** The stream [T,D] after a sublayer, out of what `record` kept. */
export function streamAfter(model, cache, sublayer) {
  const [what, layer] = sublayer.split(" ");
  if (what === "embedding") {
    const x = cache.hook_embed, added = cache.hook_pos_embed;
    return added ? { shape: x.shape, data: x.data.map((a, i) => a + added.data[i]) } : x;
  }
  const end = what === "attention" && hasMlp(model, layer) ? "mid" : "post";
  return cache[`blocks.${layer}.hook_resid_${end}`];
}

/** When a sublayer ends, as the compiler counts: 0 the embedding, then heads and neurons by turns. */
function timeOf(sublayer) {
  const [what, layer] = sublayer.split(" ");
  return what === "embedding" ? 0 : 2 * Number(layer) + (what === "mlp" ? 2 : 1);
}

/** Where the text begins that people count from 0: of a compiled model after <bos>. */
export const firstOf = (model, tokens) => Number(Boolean(model.source) && tokens[0] === 0);

// ── what slots hold ────────────────────────────────────────────────────────────────────────────
/** [{sublayer, position, slot, start, stop, kind, value, share, numbers, means}].
 *
 * kind: "value" of a source, "token" or "position" whose code it is, a "number", "nothing" written
 * yet, or a "vector" that is no code (or none any more: a tally's sum took the place). share: how sure that is, from 0 to 1. means: of a compiled
 * model, what the interpreter says that it should be; else "". */
export function slots(model, cache, tokens) {
  const found = [], names = Object.entries(slotsOf(model)), meant = meanings(model, tokens);
  const known = names.map(([name, span]) => codesOf(model, name, span)), zero = firstOf(model, tokens);
  for (const sublayer of sublayersOf(model)) {
    const x = swept(streamAfter(model, cache, sublayer)), [T, D] = x.shape, time = timeOf(sublayer);
    for (let position = 0; position < T; position++) {
      names.forEach(([slot, [start, stop]], i) => {
        const numbers = Array.from(x.data.subarray(position * D + start, position * D + stop));
        const { code, domain, value, time: since, until } = known[i];
        const there = code !== null && time >= since && time < until;
        const held = code === null ? byEmbedding(model, numbers, start, zero)
          : there ? nearest(numbers, code, domain) : { kind: time < since ? "nothing" : "vector", value: "", share: 0 };
        const means = there && meant && position >= zero ? domain[meant[value][position - zero]] : "";
        found.push({ sublayer, position, slot, start, stop, numbers, means, ...held });
      });
    }
  }
  return found;
}

/** What every value of a compiled model's source should be at every position; null if not known. */
function meanings(model, tokens) {
  const { source } = model, text = Array.from(tokens).slice(1);
  if (!source?.values || tokens[0] !== 0 || text.includes(0) || !text.length) return null;
  if (text.length > source.length) return null;
  return trace(source, text.map((token) => token - 1));
}

/** The codes of the source's value that has this slot. */
function codesOf(model, name, [start, stop]) {
  const at = model.source?.codes.findIndex((each) => each.start === start && each.stop === stop) ?? -1;
  if (at < 0 || stop === start) return { code: null };
  const { value, time, until } = model.source.codes[at];
  return { value, time, until: until ?? Infinity, domain: model.source.domains[value], code: model.provenance.compiled.values[at][3] };
}

/** The member of a domain whose code is nearest, and how sure that is: 0 is halfway to the next. */
function nearest(numbers, code, domain) {
  const apart = (a, b) => Math.hypot(...a.map((x, i) => x - b[i]));
  const far = code.map((row) => apart(numbers, row)), i = far.indexOf(Math.min(...far));
  const next = Math.min(...code.map((row, j) => (i === j ? Infinity : apart(row, code[i]))));
  return { kind: "value", value: domain[i], share: Math.max(0, 1 - 2 * far[i] / next) || 0 };
}

/** The one token, or else position, whose embedding points the same way in this slot. */
function byEmbedding(model, numbers, start, zero) {
  const size = Math.hypot(...numbers);
  if (size === 0) return { kind: "nothing", value: "", share: 1 };
  if (numbers.length < 2) return { kind: "number", value: short(numbers[0]), share: 1 };
  for (const [name, kind] of [["embed.W_E", "token"], ["pos_embed.W_pos", "position"]]) {
    const found = model.weights[name] ? alike(model.weights[name], numbers, start, size) : null;
    if (!found) continue;
    const value = kind === "token" ? model.vocabulary.text(found.row) : String(found.row - zero);
    return { kind, value, share: Math.min(1, found.cosine) };
  }
  return { kind: "vector", value: "", share: 0 };
}

function alike(W, numbers, start, size) {
  const [rows, D] = W.shape;
  let row = -1, cosine = -2, second = -2;
  for (let r = 0; r < rows; r++) {
    let product = 0, square = 0;
    for (let i = 0; i < numbers.length; i++) {
      const w = W.data[r * D + start + i];
      product += w * numbers[i], square += w * w;
    }
    if (square === 0) return null;
    const found = product / (Math.sqrt(square) * size);
    if (found > cosine) [row, cosine, second] = [r, found, cosine];
    else if (found > second) second = found;
  }
  return cosine > SAME && cosine - second > 1e-9 ? { row, cosine } : null;
}

/** An array with 0 for what is nothing next to the largest number at its position. */
function swept(x) {
  const D = x.shape.at(-1), out = { shape: x.shape, data: x.data.slice() };
  const eps = x.data instanceof Float32Array ? 2 ** -23 : 2 ** -52;
  for (let at = 0; at < out.data.length; at += D) {
    const row = out.data.subarray(at, at + D);
    const least = 16 * eps * row.reduce((most, a) => Math.max(most, Math.abs(a)), 0);
    row.forEach((a, i) => { if (Math.abs(a) <= least) row[i] = 0; });
  }
  return out;
}

// ── what a logit is made of ────────────────────────────────────────────────────────────────────
/** [{part, name, amount}], summing to the logit of a token at a position.
 *
 * Once the last norm's scale is known, a logit is linear in what each part wrote. After a post-norm
 * there is no such sum: then all is the stream's. What a tap took from the stream itself is told as
 * "silenced". */
export function sources(model, cache, position, token) {
  const { config: c, weights: w } = model, D = c.d_model;
  const logit = cache.logits.data[position * c.d_vocab + token];
  if (!c.norm_first) return [{ part: "stream", name: "stream", amount: logit }];
  const way = direction(model, cache, position, token), found = [];
  const dot = (data, from = 0) => way.reduce((sum, a, d) => sum + a * data[from + d], 0);
  const add = (part, amount) => found.push({ part, name: called(model, part), amount });
  const bias = (part, name) => { if (w[name]?.data.some(Boolean)) add(part, dot(w[name].data)); };
  add("embed", dot(cache.hook_embed.data, position * D));
  if (cache.hook_pos_embed) add("pos_embed", dot(cache.hook_pos_embed.data, position * D));
  for (let i = 0; i < c.n_layers; i++) {
    const at = `blocks.${i}.`, z = cache[`${at}attn.hook_z`].data, W_O = w[`${at}attn.W_O`].data, K = c.d_head;
    for (let h = 0; h < c.n_heads; h++) {
      let amount = 0;
      for (let k = 0; k < K; k++) {
        amount += z[(position * c.n_heads + h) * K + k] * dot(W_O, (h * K + k) * D);
      }
      add(headPart(i, h), amount);
    }
    bias(`attention bias ${i}`, `${at}attn.b_O`);
    if (!hasMlp(model, i)) continue;
    add(`mlp ${i}`, neurons(model, cache, i, position, way).reduce((sum, a) => sum + a, 0));
    bias(`mlp bias ${i}`, `${at}mlp.b_out`);
  }
  const last = unembedBias(model, token);
  if (last) add("unembed bias", last);
  const rest = logit - found.reduce((sum, { amount }) => sum + amount, 0);
  const largest = Math.max(Math.abs(logit), ...found.map(({ amount }) => Math.abs(amount)));
  if (Math.abs(rest) > (w["embed.W_E"].data instanceof Float32Array ? 1e-4 : 1e-9) * largest) add("silenced", rest);
  return found;
}

/** What each neuron of a layer adds to a logit at a position, [F]. */
export function neuronSources(model, cache, layer, position, token) {
  return neurons(model, cache, layer, position, direction(model, cache, position, token));
}

function neurons(model, cache, layer, position, way) {
  const W_out = model.weights[`blocks.${layer}.mlp.W_out`], [F, D] = W_out.shape;
  const post = cache[`blocks.${layer}.mlp.hook_post`].data;
  return Array.from({ length: F }, (_, f) => {
    let sum = 0;
    for (let d = 0; d < D; d++) sum += way[d] * W_out.data[f * D + d];
    return sum * post[position * F + f];
  });
}

/** The direction of the stream that a logit grows in at a position: head, gain, centring, scale. */
function direction(model, cache, position, token) {
  const { config: c, weights: w } = model, D = c.d_model, V = c.d_vocab;
  const head = c.tied ? w["embed.W_E"].data.subarray(token * D, (token + 1) * D)
    : Array.from({ length: D }, (_, d) => w["unembed.W_U"].data[d * V + token]);
  let way = Array.from(head);
  if (c.norm === "none") return way;
  if (w["ln_final.w"]) way = way.map((a, d) => a * w["ln_final.w"].data[d]);
  if (c.norm === "layer") {
    const mean = way.reduce((sum, a) => sum + a, 0) / D;
    way = way.map((a) => a - mean);
  }
  const scale = cache["ln_final.hook_scale"].data[position];
  return way.map((a) => a / scale);
}

function unembedBias(model, token) {
  const { config: c, weights: w } = model, D = c.d_model;
  let sum = w["unembed.b_U"] ? w["unembed.b_U"].data[token] : 0;
  if (c.norm !== "none" && w["ln_final.b"]) {
    for (let d = 0; d < D; d++) {
      const way = c.tied ? w["embed.W_E"].data[token * D + d] : w["unembed.W_U"].data[d * c.d_vocab + token];
      sum += way * w["ln_final.b"].data[d];
    }
  }
  return sum;
}
