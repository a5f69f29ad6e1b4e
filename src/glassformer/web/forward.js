// The transformer of core/model.py, for the browser. A test compares the two, activation by
// activation.
//
// An array is {shape, data}: a Float64Array, or a Float32Array for float32 models, whose stored
// values are rounded to float32 while sums are computed in float64. There is no batch axis.
// T positions, S keys, D d_model, H heads, K d_head, F d_mlp, V vocabulary.

import { ACTIVATIONS } from "./activations.js";

/** An array of zeros with the float type of another. */
export function zeros(shape, like) {
  const size = shape.reduce((a, b) => a * b, 1);
  return { shape, data: new like.data.constructor(size) };
}

function mapArray(x, f) {
  const out = zeros(x.shape, x);
  for (let i = 0; i < x.data.length; i++) out.data[i] = f(x.data[i], i);
  return out;
}

function add(x, y) {
  return mapArray(x, (a, i) => a + y.data[i]);
}

/** The weights and hooks below a path such as blocks.0.attn: get("W_Q"), activation("hook_q", q).
 * */
class Scope {
  constructor(weights, hook, path = "") {
    Object.assign(this, { weights, hook, path });
  }
  child(name) {
    return new Scope(this.weights, this.hook, `${this.path}${name}.`);
  }
  get(name) {
    return Object.hasOwn(this.weights, this.path + name) ? this.weights[this.path + name] : null;
  }
  activation(name, value) {
    if (!this.hook) return value;
    const replacement = this.hook(this.path + name, value);
    if (!replacement?.data || String(replacement.shape) !== String(value.shape)) {
      const newShape = replacement?.shape ? `[${replacement.shape.join(", ")}]`
        : String(replacement);
      const oldShape = `[${value.shape.join(", ")}]`;
      throw new Error(`hook ${this.path}${name}: expected shape ${oldShape}, got ${newShape}`);
    }
    return replacement;
  }
}

/** tokens [T] -> logits [T,V]. `hook(name, array) -> array` may replace any activation, and
 * `hook.config` fields of the config. `last`: compute the logits [last,V] of the last positions. */
export function forward(config, weights, tokens, hook = null, last = tokens.length) {
  const c = hook?.config ? { ...config, ...hook.config } : config, at = new Scope(weights, hook),
    W_E = at.get("embed.W_E");
  let x = at.activation("hook_embed", gatherRows(W_E, tokens));  // T D
  const embed = POSITIONS[c.positions].embed;
  if (embed) x = add(x, at.activation("hook_pos_embed", embed(c, at, x)));
  for (let i = 0; i < c.n_layers; i++) {
    x = block(c, at.child(`blocks.${i}`), x, i === c.n_layers - 1 ? last : tokens.length);
  }
  x = lastPositions(x, last);
  if (c.norm_first) x = NORMS[c.norm](c, at.child("ln_final"), x);
  return c.tied ? affineTied(x, W_E, at.get("unembed.b_U"))
    : affine(x, at.get("unembed.W_U"), at.get("unembed.b_U"));  // T V
}

function block(c, at, x, last) {
  x = at.activation("hook_resid_pre", x);  // T D
  x = residual(c, at.child("ln1"), x,
    (y) => at.activation("hook_attn_out", attention(c, at.child("attn"), y, last)));
  if (at.get("mlp.W_out")) {
    x = at.activation("hook_resid_mid", x);
    x = residual(c, at.child("ln2"), x,
      (y) => at.activation("hook_mlp_out", mlp(c, at.child("mlp"), y)));
  }
  return at.activation("hook_resid_post", x);
}

function residual(c, ln, x, f) {
  const norm = NORMS[c.norm];
  const wrote = f(c.norm_first ? norm(c, ln, x) : x),
    y = add(lastPositions(x, wrote.shape[0]), wrote);
  return c.norm_first ? y : norm(c, ln, y);
}

function attention(c, at, x, last) {
  const { rotate, bias } = POSITIONS[c.positions], norm = NORMS[c.norm],
    queries = lastPositions(x, last);
  let q = at.activation("hook_q", project(queries, at.get("W_Q"), at.get("b_Q")));  // T H K
  let k = at.activation("hook_k", project(x, at.get("W_K"), at.get("b_K")));  // S H K
  const v = at.activation("hook_v", project(x, at.get("W_V"), at.get("b_V")));  // S H K
  if (c.qk_norm) [q, k] = [norm(c, at.child("q_norm"), q), norm(c, at.child("k_norm"), k)];
  if (rotate)
    [q, k] = [at.activation("hook_rot_q", rotate(c, q, x.shape[0] - last)),
      at.activation("hook_rot_k", rotate(c, k, 0))];
  // H T S
  const scores = at.activation("hook_attn_scores", scoreKeys(c, q, k, bias, MASKS[c.mask]));
  const pattern = at.activation("hook_pattern", softmax(scores));  // H T S
  const z = at.activation("hook_z", attend(pattern, v));  // T H K
  return affine(z, at.get("W_O"), at.get("b_O"));  // T D
}

function mlp(c, at, x) {
  const pre = at.activation("hook_pre", affine(x, at.get("W_in"), at.get("b_in")));  // T F
  let post = mapArray(pre, ACTIVATIONS[c.activation]);
  if (at.get("W_gate")) {
    const gate = at.activation("hook_pre_linear", affine(x, at.get("W_gate"), at.get("b_gate")));
    post = mapArray(post, (a, i) => a * gate.data[i]);
  }
  return affine(at.activation("hook_post", post), at.get("W_out"), at.get("b_out"));
}

/** The last n positions of x [T,…]. */
function lastPositions(x, n) {
  const T = x.shape[0];
  if (n >= T) return x;
  return { shape: [n, ...x.shape.slice(1)], data: x.data.slice((T - n) * (x.data.length / T)) };
}

// ── matrix products ────────────────────────────────────────────────────────────────────────────
/** The embeddings of tokens: W [V,D] -> [T,D]. */
function gatherRows(W, tokens) {
  const D = W.shape[1], out = zeros([tokens.length, D], W);
  for (let t = 0; t < tokens.length; t++) {
    out.data.set(W.data.subarray(tokens[t] * D, (tokens[t] + 1) * D), t * D);
  }
  return out;
}

/** x [T,*in] times W [*in,m] plus b [m] -> [T,m]. */
function affine(x, W, b) {
  const T = x.shape[0], n = x.data.length / T, m = W.shape.at(-1); // n may be 0
  const out = zeros([T, m], x), [y, a, w] = [out.data, x.data, W.data];
  for (let t = 0; t < T; t++) {
    for (let i = 0; i < n; i++) {
      const factor = a[t * n + i];
      if (factor === 0) continue; // weights are finite
      for (let j = 0, at = t * m, from = i * m; j < m; j++) y[at + j] += factor * w[from + j];
    }
    if (b) for (let j = 0; j < m; j++) y[t * m + j] += b.data[j];
  }
  return out;
}

/** The tied unembedding: x [T,D] times the transpose of W [V,D] -> [T,V]. */
function affineTied(x, W, b) {
  const [T, D] = x.shape, V = W.shape[0], out = zeros([T, V], x);
  for (let t = 0; t < T; t++) {
    for (let v = 0; v < V; v++) {
      let sum = 0;
      for (let d = 0; d < D; d++) sum += x.data[t * D + d] * W.data[v * D + d];
      out.data[t * V + v] = sum;
      if (b) out.data[t * V + v] += b.data[v];
    }
  }
  return out;
}

/** x [T,D] times W [H,D,K] of every head plus b [H,K] -> [T,H,K]. */
function project(x, W, b) {
  const T = x.shape[0], [H, D, K] = W.shape, out = zeros([T, H, K], x);
  const [y, a, w] = [out.data, x.data, W.data];
  for (let t = 0; t < T; t++) {
    for (let h = 0; h < H; h++) {
      const at = (t * H + h) * K;
      for (let d = 0; d < D; d++) {
        const factor = a[t * D + d];
        if (factor === 0) continue;
        for (let k = 0, from = (h * D + d) * K; k < K; k++) y[at + k] += factor * w[from + k];
      }
      if (b) for (let k = 0; k < K; k++) y[at + k] += b.data[h * K + k];
    }
  }
  return out;
}

/** Attention scores of q [T,H,K], at the last T positions, and k [S,H,K] -> [H,T,S], with position
 * bias and mask. */
function scoreKeys(c, q, k, bias, mask) {
  const [T, H, K] = q.shape, S = k.shape[0], out = zeros([H, T, S], q);
  const scale = c.scale || c.d_head ** -0.5;
  for (let h = 0; h < H; h++) {
    for (let t = 0; t < T; t++) {
      for (let s = 0; s < S; s++) {
        const distance = S - T + t - s;
        let sum = 0;
        for (let i = 0; i < K; i++)
          sum += q.data[(t * H + h) * K + i] * k.data[(s * H + h) * K + i];
        const at = (h * T + t) * S + s;
        out.data[at] = sum * scale;
        if (bias) out.data[at] += bias(c, h, distance);
        out.data[at] += mask(distance);
      }
    }
  }
  return out;
}

/** pattern [H,T,S], v [S,H,K] -> [T,H,K]. */
function attend(pattern, v) {
  const [H, T, S] = pattern.shape, K = v.shape[2], out = zeros([T, H, K], v);
  for (let h = 0; h < H; h++) {
    for (let t = 0; t < T; t++) {
      const at = (t * H + h) * K;
      for (let s = 0; s < S; s++) {
        const share = pattern.data[(h * T + t) * S + s];
        for (let k = 0, from = (s * H + h) * K; k < K; k++)
          out.data[at + k] += share * v.data[from + k];
      }
    }
  }
  return out;
}

function softmax(x) {
  const S = x.shape.at(-1), out = zeros(x.shape, x), y = out.data;
  for (let at = 0; at < y.length; at += S) {
    let maximum = -Infinity, sum = 0;
    for (let s = at; s < at + S; s++) maximum = Math.max(maximum, x.data[s]);
    for (let s = at; s < at + S; s++) sum += y[s] = Math.exp(x.data[s] - maximum);
    for (let s = at; s < at + S; s++) y[s] /= sum;
  }
  return out;
}

// ── norms ──────────────────────────────────────────────────────────────────────────────────────
function rmsNorm(c, at, x) {
  const D = x.shape.at(-1), mean = rowMeans(mapArray(x, (a) => a * a));
  const scale = at.activation("hook_scale", mapArray(mean, (a) => Math.sqrt(a + c.eps)));
  const normalized = at.activation("hook_normalized", mapWithRowValue(x, scale, (a, b) => a / b));
  const w = at.get("w"), b = at.get("b");
  const scaled = w ? mapArray(normalized, (a, i) => a * w.data[i % D]) : normalized;
  return b ? mapArray(scaled, (a, i) => a + b.data[i % D]) : scaled;
}

function layerNorm(c, at, x) {
  return rmsNorm(c, at, mapWithRowValue(x, rowMeans(x), (a, b) => a - b));
}

/** f(x, row value) for x [..., D] and row values [..., 1]. */
function mapWithRowValue(x, ofRow, f) {
  const D = x.shape.at(-1), out = zeros(x.shape, x);
  for (let row = 0; row < ofRow.data.length; row++) {
    const b = ofRow.data[row];
    for (let i = row * D; i < (row + 1) * D; i++) out.data[i] = f(x.data[i], b);
  }
  return out;
}

/** The mean over the last axis, [..., D] -> [..., 1]. */
function rowMeans(x) {
  const D = x.shape.at(-1), out = zeros([...x.shape.slice(0, -1), 1], x);
  for (let i = 0; i < out.data.length; i++) {
    let sum = 0;
    for (let d = i * D; d < (i + 1) * D; d++) sum += x.data[d];
    out.data[i] = sum / D;
  }
  return out;
}

export const NORMS = { layer: layerNorm, rms: rmsNorm, none: (c, at, x) => x };

// ── positions: added to the stream, a rotation of q and k, or added to the scores ─────────────
function learned(c, at, x) {
  const W = at.get("pos_embed.W_pos"), [T, D] = x.shape;
  return { shape: [T, D], data: W.data.slice(0, T * D) };
}

function sinusoidal(c, at, x) {
  const [T, D] = x.shape, out = zeros([T, D], x);
  for (let t = 0; t < T; t++) {
    for (let i = 0; i < D / 2; i++) {
      const a = angle(c, t, i, D / 2);
      out.data[t * D + 2 * i] = Math.sin(a);
      out.data[t * D + 2 * i + 1] = Math.cos(a);
    }
  }
  return out;
}

function rotary(c, x, start) {
  const [T, H, K] = x.shape, n = Math.floor(K / 2), out = { shape: x.shape, data: x.data.slice() };
  const table = zeros([2], x).data; // cosine and sine in the model's float type
  for (let t = 0; t < T; t++) {
    for (let i = 0; i < n; i++) {
      const a = angle(c, start + t, i, n);
      table[0] = Math.cos(a), table[1] = Math.sin(a);
      for (let h = 0; h < H; h++) {
        const at = (t * H + h) * K + i, u = x.data[at], v = x.data[at + n];
        out.data[at] = u * table[0] - v * table[1];
        out.data[at + n] = v * table[0] + u * table[1];
      }
    }
  }
  return out;
}

function angle(c, position, i, n) {
  return position * c.base ** (-i / Math.max(n, 1));
}

function alibi(c, head, distance) {
  return -c.slope * 2 ** (-8 * (head + 1) / c.n_heads) * Math.abs(distance);
}

export const POSITIONS = {
  learned: { embed: learned },
  none: {},
  sinusoidal: { embed: sinusoidal },
  rotary: { rotate: rotary },
  alibi: { bias: alibi },
};

// ── masks: added to the score of a key at a distance behind the query ──────────────────────────
export const MASKS = { causal: (distance) => (distance >= 0 ? 0 : -Infinity), none: () => 0 };

// ── activations ────────────────────────────────────────────────────────────────────────────────
/** The names of all activations in the order in which hooks see them. */
export function hookNames(config, weights = null) {
  const c = config, names = ["hook_embed"];
  const has =
    (name) => (weights ? Object.hasOwn(weights, name) : c.d_mlp > 0 && !name.endsWith("gate"));
  const norm = (at) => (c.norm === "none" ? [] : [`${at}.hook_scale`, `${at}.hook_normalized`]);
  if (POSITIONS[c.positions].embed) names.push("hook_pos_embed");
  for (let i = 0; i < c.n_layers; i++) {
    const at = `blocks.${i}.`, attn = `${at}attn.`, first = c.norm_first;
    names.push(`${at}hook_resid_pre`, ...(first ? norm(`${at}ln1`) : []));
    names.push(...["hook_q", "hook_k", "hook_v"].map((n) => attn + n));
    if (c.qk_norm) names.push(...norm(`${attn}q_norm`), ...norm(`${attn}k_norm`));
    if (POSITIONS[c.positions].rotate) names.push(`${attn}hook_rot_q`, `${attn}hook_rot_k`);
    names.push(...["hook_attn_scores", "hook_pattern", "hook_z"].map((n) => attn + n));
    names.push(`${at}hook_attn_out`, ...(first ? [] : norm(`${at}ln1`)));
    if (has(`${at}mlp.W_out`)) {
      names.push(`${at}hook_resid_mid`, ...(first ? norm(`${at}ln2`) : []), `${at}mlp.hook_pre`);
      if (has(`${at}mlp.W_gate`)) names.push(`${at}mlp.hook_pre_linear`);
      names.push(`${at}mlp.hook_post`, `${at}hook_mlp_out`, ...(first ? [] : norm(`${at}ln2`)));
    }
    names.push(`${at}hook_resid_post`);
  }
  return c.norm_first ? [...names, ...norm("ln_final")] : names;
}

/** All activations for tokens [T] by name, and "logits". */
export function record(model, tokens, hook = null) {
  const cache = {}, keep = (name, value) => (cache[name] = hook ? hook(name, value) : value);
  const logits = forward(model.config, model.weights, tokens,
    Object.assign(keep, { config: hook?.config }));
  return Object.assign(cache, { logits });
}
