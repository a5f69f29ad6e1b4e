// The contents of the stream's slots after each sublayer, as in lens/explain.py, and the
// contributions of components to a logit.

import { slotOrigins } from "./slot_origins.js";
import { trace } from "./interpret.js";
import { displayName, hasMlp, headPart, slotsOf } from "./components.js";

const MIN_COSINE = 0.999; // from here on a slot holds the code of a token or position


export const short = (x, digits = 4) => String(Number(x.toPrecision(digits)));

/** The sublayers in order. */
export function sublayersOf(model) {
  const names = ["embedding"];
  for (let i = 0; i < model.config.n_layers; i++) {
    names.push(`attention ${i}`, ...(hasMlp(model, i) ? [`mlp ${i}`] : []));
  }
  return names;
}

/** The stream [T,D] after a sublayer, from recorded activations. */
export function streamAfter(model, cache, sublayer) {
  const [kind, layer] = sublayer.split(" ");
  if (kind === "embedding") {
    const x = cache.hook_embed, added = cache.hook_pos_embed;
    return added ? { shape: x.shape, data: x.data.map((a, i) => a + added.data[i]) } : x;
  }
  const end = kind === "attention" && hasMlp(model, layer) ? "mid" : "post";
  return cache[`blocks.${layer}.hook_resid_${end}`];
}

/** The time of a sublayer in the compiler's count: embedding 0, attention and MLP by turns. */
export function timeOf(sublayer) {
  const [kind, layer] = sublayer.split(" ");
  return kind === "embedding" ? 0 : 2 * Number(layer) + (kind === "mlp" ? 2 : 1);
}

/** The first position of the text: 1 after the <bos> of a compiled model. */
const textStart = (model, tokens) => Number(Boolean(model.source) && tokens[0] === 0);

// ── slot contents ────────────────────────────────────────────────────────────────────────────
/** [{sublayer, position, slot, start, stop, kind, value, share, numbers, means}].
 *
 * kind: "value" of a source, "token" or "position" (the slot holds its code), "number", "nothing"
 * written yet or erased, or "vector" (no code, or overwritten by a counting head). share:
 * confidence from 0 to 1. means: the value by the source's interpreter, or "". */
export function slotContents(model, cache, tokens) {
  const contents = [], names = Object.entries(slotsOf(model)),
    expected = interpreterValues(model, tokens);
  const codes = names.map(([name, span]) => slotCode(model, name, span)),
    zero = textStart(model, tokens);
  const sublayers = sublayersOf(model), spans = names.map(([, span]) => span);
  const streams = sublayers.map((sublayer) => streamAfter(model, cache, sublayer));
  const sources = slotOrigins(model, cache, sublayers, streams, spans);
  for (const [at, sublayer] of sublayers.entries()) {
    const x = zeroNegligible(streams[at]), [T, D] = x.shape, time = timeOf(sublayer);
    for (let position = 0; position < T; position++) {
      names.forEach(([slot, [start, stop]], i) => {
        const numbers = Array.from(x.data.subarray(position * D + start, position * D + stop));
        const { code, domain, value, time: since, until } = codes[i];
        const isCoded = code !== null && time >= since && time < until;
        const [from, to] = spans[sources[at].origins[position][i]];
        const origin = to - from === stop - start ? from : start;
        const content = code === null && sources[at].erased[position][i]
          ? { kind: "nothing", value: "", share: 1 }
          : code === null ? matchEmbedding(model, numbers, origin, zero)
          : isCoded ? nearestCode(numbers, code, domain)
          : { kind: time < since ? "nothing" : "vector", value: "", share: 0 };
        const means = isCoded && expected && position >= zero
          ? domain[expected[value][position - zero]] : "";
        contents.push({ sublayer, position, slot, start, stop, numbers, means, ...content });
      });
    }
  }
  return contents;
}

/** The interpreter's values of a compiled model's source at every position; null if unknown. */
function interpreterValues(model, tokens) {
  const { source } = model, text = Array.from(tokens).slice(1);
  if (!source?.values || tokens[0] !== 0 || text.includes(0) || !text.length) return null;
  if (text.length > source.length) return null;
  return trace(source, text.map((token) => token - 1));
}

/** The codes of the source's value in this slot. */
function slotCode(model, name, [start, stop]) {
  const at = model.source?.codes.findIndex((code) => code.start === start && code.stop === stop)
    ?? -1;
  if (at < 0 || stop === start) return { code: null };
  const { value, time, until } = model.source.codes[at];
  return { value, time, until: until ?? Infinity, domain: model.source.domains[value],
    code: model.provenance.compiled.values[at][3] };
}

/** The domain member with the nearest code; share 0 is halfway to the next code. */
function nearestCode(numbers, code, domain) {
  const distance = (a, b) => Math.hypot(...a.map((x, i) => x - b[i]));
  const distances = code.map((row) => distance(numbers, row)),
    i = distances.indexOf(Math.min(...distances));
  const gap = Math.min(...code.map((row, j) => (i === j ? Infinity : distance(row, code[i]))));
  return { kind: "value", value: domain[i], share: Math.max(0, 1 - 2 * distances[i] / gap) || 0 };
}

/** The token, or else position, whose embedding is parallel to the slot's numbers. */
function matchEmbedding(model, numbers, start, zero) {
  const size = Math.hypot(...numbers);
  if (size === 0) return { kind: "nothing", value: "", share: 1 };
  if (numbers.length < 2) return { kind: "number", value: short(numbers[0]), share: 1 };
  for (const [name, kind] of [["embed.W_E", "token"], ["pos_embed.W_pos", "position"]]) {
    const match = model.weights[name] ? bestCosine(model.weights[name], numbers, start, size)
      : null;
    if (!match) continue;
    const value = kind === "token" ? model.vocabulary.text(match.row) : String(match.row - zero);
    return { kind, value, share: Math.min(1, match.cosine) };
  }
  return { kind: "vector", value: "", share: 0 };
}

function bestCosine(W, numbers, start, size) {
  const [rows, D] = W.shape;
  let row = -1, cosine = -2, second = -2;
  for (let r = 0; r < rows; r++) {
    let product = 0, square = 0;
    for (let i = 0; i < numbers.length; i++) {
      const w = W.data[r * D + start + i];
      product += w * numbers[i], square += w * w;
    }
    if (square === 0) return null;
    const similarity = product / (Math.sqrt(square) * size);
    if (similarity > cosine) [row, cosine, second] = [r, similarity, cosine];
    else if (similarity > second) second = similarity;
  }
  return cosine > MIN_COSINE && cosine - second > 1e-9 ? { row, cosine } : null;
}

/** An array with rounding noise, relative to the largest number at a position, set to 0. */
function zeroNegligible(x) {
  const D = x.shape.at(-1), out = { shape: x.shape, data: x.data.slice() };
  const eps = x.data instanceof Float32Array ? 2 ** -23 : 2 ** -52;
  for (let at = 0; at < out.data.length; at += D) {
    const row = out.data.subarray(at, at + D);
    const threshold = 16 * eps * row.reduce((largest, a) => Math.max(largest, Math.abs(a)), 0);
    row.forEach((a, i) => { if (Math.abs(a) <= threshold) row[i] = 0; });
  }
  return out;
}

// ── contributions to a logit ───────────────────────────────────────────────────────────────────
/** [{part, name, amount}] with the logit of a token at a position as its sum.
 *
 * With the scale of the last norm fixed, a logit is linear in the output of each component. With
 * post-norms it is not: then "stream" has all of it. "ablated" is what hooks removed from the
 * stream. */
export function logitContributions(model, cache, position, token) {
  const { config: c, weights: w } = model, D = c.d_model;
  const logit = cache.logits.data[position * c.d_vocab + token];
  if (!c.norm_first) return [{ part: "stream", name: "stream", amount: logit }];
  const gradient = logitGradient(model, cache, position, token), contributions = [];
  const dot = (data, from = 0) => gradient.reduce((sum, a, d) => sum + a * data[from + d], 0);
  const add =
    (part, amount) => contributions.push({ part, name: displayName(model, part), amount });
  const bias = (part, name) => { if (w[name]?.data.some(Boolean)) add(part, dot(w[name].data)); };
  add("embed", dot(cache.hook_embed.data, position * D));
  if (cache.hook_pos_embed) add("pos_embed", dot(cache.hook_pos_embed.data, position * D));
  for (let i = 0; i < c.n_layers; i++) {
    const at = `blocks.${i}.`, z = cache[`${at}attn.hook_z`].data, W_O = w[`${at}attn.W_O`].data,
      K = c.d_head;
    for (let h = 0; h < c.n_heads; h++) {
      let amount = 0;
      for (let k = 0; k < K; k++) {
        amount += z[(position * c.n_heads + h) * K + k] * dot(W_O, (h * K + k) * D);
      }
      add(headPart(i, h), amount);
    }
    bias(`attention bias ${i}`, `${at}attn.b_O`);
    if (!hasMlp(model, i)) continue;
    add(`mlp ${i}`,
      neuronContributions(model, cache, i, position, gradient).reduce((sum, a) => sum + a, 0));
    bias(`mlp bias ${i}`, `${at}mlp.b_out`);
  }
  const last = unembedBias(model, token);
  if (last) add("unembed bias", last);
  const rest = logit - contributions.reduce((sum, { amount }) => sum + amount, 0);
  const largest = Math.max(Math.abs(logit), ...contributions.map(({ amount }) => Math.abs(amount)));
  if (Math.abs(rest) > (w["embed.W_E"].data instanceof Float32Array ? 1e-4 : 1e-9) * largest)
    add("ablated", rest);
  return contributions;
}

/** The contribution [F] of each neuron of a layer to a logit at a position. */
function neuronContributions(model, cache, layer, position, gradient) {
  const W_out = model.weights[`blocks.${layer}.mlp.W_out`], [F, D] = W_out.shape;
  const post = cache[`blocks.${layer}.mlp.hook_post`].data;
  return Array.from({ length: F }, (_, f) => {
    let sum = 0;
    for (let d = 0; d < D; d++) sum += gradient[d] * W_out.data[f * D + d];
    return sum * post[position * F + f];
  });
}

/** The gradient of a logit in the stream at a position, with the scale of the last norm fixed. */
function logitGradient(model, cache, position, token) {
  const { config: c, weights: w } = model, D = c.d_model, V = c.d_vocab;
  const head = c.tied ? w["embed.W_E"].data.subarray(token * D, (token + 1) * D)
    : Array.from({ length: D }, (_, d) => w["unembed.W_U"].data[d * V + token]);
  let gradient = Array.from(head);
  if (c.norm === "none") return gradient;
  if (w["ln_final.w"]) gradient = gradient.map((a, d) => a * w["ln_final.w"].data[d]);
  if (c.norm === "layer") {
    const mean = gradient.reduce((sum, a) => sum + a, 0) / D;
    gradient = gradient.map((a) => a - mean);
  }
  const scale = cache["ln_final.hook_scale"].data[position];
  return gradient.map((a) => a / scale);
}

function unembedBias(model, token) {
  const { config: c, weights: w } = model, D = c.d_model;
  let sum = w["unembed.b_U"] ? w["unembed.b_U"].data[token] : 0;
  if (c.norm !== "none" && w["ln_final.b"]) {
    for (let d = 0; d < D; d++) {
      const weight = c.tied ? w["embed.W_E"].data[token * D + d]
        : w["unembed.W_U"].data[d * c.d_vocab + token];
      sum += weight * w["ln_final.b"].data[d];
    }
  }
  return sum;
}
