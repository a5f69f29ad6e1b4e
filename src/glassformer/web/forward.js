// The one transformer once more, for the browser: model.py read line by line. A test holds the two
// together, name by name.
//
// An array is {shape, data}, data a Float64Array, or a Float32Array where the model is float32: then
// whatever is stored is rounded to float32, and what lies between two arrays is computed in float64.
// There is no batch: T positions, S keys, D d_model, H heads, K d_head, F d_mlp, V vocabulary.

import { ACTIVATIONS } from "./activations.js";

/** A new array of zeros, of the same float type as another. */
export function zeros(shape, like) {
  const size = shape.reduce((a, b) => a * b, 1);
  return { shape, data: new like.data.constructor(size) };
}

function mapped(x, f) {
  const out = zeros(x.shape, x);
  for (let i = 0; i < x.data.length; i++) out.data[i] = f(x.data[i], i);
  return out;
}

function plus(x, y) {
  return mapped(x, (a, i) => a + y.data[i]);
}

/** A place like blocks.0.attn: get("W_Q") is a weight, see("hook_q", q) shows q to a tap. */
class Place {
  constructor(weights, tap, path = "") {
    Object.assign(this, { weights, tap, path });
  }
  below(name) {
    return new Place(this.weights, this.tap, `${this.path}${name}.`);
  }
  get(name) {
    return Object.hasOwn(this.weights, this.path + name) ? this.weights[this.path + name] : null;
  }
  see(name, value) {
    if (!this.tap) return value;
    const got = this.tap(this.path + name, value);
    if (!got?.data || String(got.shape) !== String(value.shape)) {
      const has = got?.shape ? `[${got.shape.join(", ")}]` : String(got);
      const had = `[${value.shape.join(", ")}]`;
      throw new Error(`hook — ${this.path}${name} must keep its shape ${had}, got ${has}`);
    }
    return got;
  }
}

/** tokens [T] -> logits [T,V]. `tap(name, array) -> array` sees all that flows, and may replace it;
 * `tap.config` may have other choices than the config. `last`: logits [last,V] of the last positions
 * alone, and the last block skips what nobody asked for. */
export function forward(config, weights, tokens, tap = null, last = tokens.length) {
  const c = tap?.config ? { ...config, ...tap.config } : config, at = new Place(weights, tap), W_E = at.get("embed.W_E");
  let x = at.see("hook_embed", rows(W_E, tokens));                              // T D
  const embed = POSITIONS[c.positions].embed;
  if (embed) x = plus(x, at.see("hook_pos_embed", embed(c, at, x)));
  for (let i = 0; i < c.n_layers; i++) {
    x = block(c, at.below(`blocks.${i}`), x, i === c.n_layers - 1 ? last : tokens.length);
  }
  x = ending(x, last);
  if (c.norm_first) x = NORMS[c.norm](c, at.below("ln_final"), x);
  return c.tied ? against(x, W_E, at.get("unembed.b_U"))
    : affine(x, at.get("unembed.W_U"), at.get("unembed.b_U"));                  // T V
}

function block(c, at, x, last) {
  x = at.see("hook_resid_pre", x);                                              // T D
  x = residual(c, at.below("ln1"), x, (y) => at.see("hook_attn_out", attention(c, at.below("attn"), y, last)));
  if (at.get("mlp.W_out")) {
    x = at.see("hook_resid_mid", x);
    x = residual(c, at.below("ln2"), x, (y) => at.see("hook_mlp_out", mlp(c, at.below("mlp"), y)));
  }
  return at.see("hook_resid_post", x);
}

function residual(c, ln, x, f) {
  const norm = NORMS[c.norm];
  const wrote = f(c.norm_first ? norm(c, ln, x) : x), y = plus(ending(x, wrote.shape[0]), wrote);
  return c.norm_first ? y : norm(c, ln, y);
}

function attention(c, at, x, last) {
  const { rotate, bias } = POSITIONS[c.positions], norm = NORMS[c.norm], asking = ending(x, last);
  let q = at.see("hook_q", project(asking, at.get("W_Q"), at.get("b_Q")));           // T H K
  let k = at.see("hook_k", project(x, at.get("W_K"), at.get("b_K")));           // S H K
  const v = at.see("hook_v", project(x, at.get("W_V"), at.get("b_V")));         // S H K
  if (c.qk_norm) [q, k] = [norm(c, at.below("q_norm"), q), norm(c, at.below("k_norm"), k)];
  if (rotate) [q, k] = [at.see("hook_rot_q", rotate(c, q, x.shape[0] - last)), at.see("hook_rot_k", rotate(c, k, 0))];
  const scores = at.see("hook_attn_scores", score_keys(c, q, k, bias, MASKS[c.mask]));  // H T S
  const pattern = at.see("hook_pattern", softmax(scores));                      // H T S
  const z = at.see("hook_z", mix(pattern, v));                                  // T H K
  return affine(z, at.get("W_O"), at.get("b_O"));                               // T D
}

function mlp(c, at, x) {
  const pre = at.see("hook_pre", affine(x, at.get("W_in"), at.get("b_in")));    // T F
  let post = mapped(pre, ACTIVATIONS[c.activation]);
  if (at.get("W_gate")) {
    const gate = at.see("hook_pre_linear", affine(x, at.get("W_gate"), at.get("b_gate")));
    post = mapped(post, (a, i) => a * gate.data[i]);
  }
  return affine(at.see("hook_post", post), at.get("W_out"), at.get("b_out"));
}

/** The last n positions of x [T,…]. */
function ending(x, n) {
  const T = x.shape[0];
  if (n >= T) return x;
  return { shape: [n, ...x.shape.slice(1)], data: x.data.slice((T - n) * (x.data.length / T)) };
}

// ── sums of products ───────────────────────────────────────────────────────────────────────────
/** The rows of W that tokens name: [V,D] -> [T,D]. */
function rows(W, tokens) {
  const D = W.shape[1], out = zeros([tokens.length, D], W);
  for (let t = 0; t < tokens.length; t++) {
    out.data.set(W.data.subarray(tokens[t] * D, (tokens[t] + 1) * D), t * D);
  }
  return out;
}

/** x [T,*in] times W [*in,m] plus b [m] -> [T,m]. */
function affine(x, W, b) {
  const T = x.shape[0], n = x.data.length / T, m = W.data.length / n;
  const out = zeros([T, m], x), [y, a, w] = [out.data, x.data, W.data];
  for (let t = 0; t < T; t++) {
    for (let i = 0; i < n; i++) {
      const factor = a[t * n + i];
      if (factor === 0) continue; // weights are finite: it would add nothing
      for (let j = 0, at = t * m, from = i * m; j < m; j++) y[at + j] += factor * w[from + j];
    }
    if (b) for (let j = 0; j < m; j++) y[t * m + j] += b.data[j];
  }
  return out;
}

/** x [T,D] against the rows of W [V,D]: a tied head, [T,V]. */
function against(x, W, b) {
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

/** x [T,D] into every head, W [H,D,K], b [H,K] -> [T,H,K]. */
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

/** How well keys fit queries: q [T,H,K], k [S,H,K] -> [H,T,S], with the bias of positions and the
 * mask. The queries are those of the last T positions. */
function score_keys(c, q, k, bias, mask) {
  const [T, H, K] = q.shape, S = k.shape[0], out = zeros([H, T, S], q);
  const scale = c.scale || c.d_head ** -0.5;
  for (let h = 0; h < H; h++) {
    for (let t = 0; t < T; t++) {
      for (let s = 0; s < S; s++) {
        const distance = S - T + t - s;
        let sum = 0;
        for (let i = 0; i < K; i++) sum += q.data[(t * H + h) * K + i] * k.data[(s * H + h) * K + i];
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
function mix(pattern, v) {
  const [H, T, S] = pattern.shape, K = v.shape[2], out = zeros([T, H, K], v);
  for (let h = 0; h < H; h++) {
    for (let t = 0; t < T; t++) {
      const at = (t * H + h) * K;
      for (let s = 0; s < S; s++) {
        const share = pattern.data[(h * T + t) * S + s];
        for (let k = 0, from = (s * H + h) * K; k < K; k++) out.data[at + k] += share * v.data[from + k];
      }
    }
  }
  return out;
}

function softmax(x) {
  const S = x.shape.at(-1), out = zeros(x.shape, x), y = out.data;
  for (let at = 0; at < y.length; at += S) {
    let most = -Infinity, sum = 0;
    for (let s = at; s < at + S; s++) most = Math.max(most, x.data[s]);
    for (let s = at; s < at + S; s++) sum += y[s] = Math.exp(x.data[s] - most);
    for (let s = at; s < at + S; s++) y[s] /= sum;
  }
  return out;
}

// ── norms ──────────────────────────────────────────────────────────────────────────────────────
function rms_norm(c, at, x) {
  const D = x.shape.at(-1), mean = means(mapped(x, (a) => a * a));
  const scale = at.see("hook_scale", mapped(mean, (a) => Math.sqrt(a + c.eps)));
  const even = at.see("hook_normalized", byRow(x, scale, (a, b) => a / b));
  const w = at.get("w"), b = at.get("b");
  const gained = w ? mapped(even, (a, i) => a * w.data[i % D]) : even;
  return b ? mapped(gained, (a, i) => a + b.data[i % D]) : gained;
}

function layer_norm(c, at, x) {
  return rms_norm(c, at, byRow(x, means(x), (a, b) => a - b));
}

/** f of each number and the one of its row, [..., D] and [..., 1]. */
function byRow(x, ofRow, f) {
  const D = x.shape.at(-1), out = zeros(x.shape, x);
  for (let row = 0; row < ofRow.data.length; row++) {
    const b = ofRow.data[row];
    for (let i = row * D; i < (row + 1) * D; i++) out.data[i] = f(x.data[i], b);
  }
  return out;
}

/** Over the last axis, which stays, of length 1. */
function means(x) {
  const D = x.shape.at(-1), out = zeros([...x.shape.slice(0, -1), 1], x);
  for (let i = 0; i < out.data.length; i++) {
    let sum = 0;
    for (let d = i * D; d < (i + 1) * D; d++) sum += x.data[d];
    out.data[i] = sum / D;
  }
  return out;
}

export const NORMS = { layer: layer_norm, rms: rms_norm, none: (c, at, x) => x };

// ── positions: added to the stream, turning q and k, or added to the scores ────────────────────
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

// ── masks: what is added to the score of a key so far behind the query ─────────────────────────
export const MASKS = { causal: (distance) => (distance >= 0 ? 0 : -Infinity), none: () => 0 };

// ── looking inside ─────────────────────────────────────────────────────────────────────────────
/** The names of all activations that a tap sees, in the order in which they flow. */
export function hookNames(config, weights = null) {
  const c = config, found = ["hook_embed"];
  const has = (name) => (weights ? Object.hasOwn(weights, name) : c.d_mlp > 0 && !name.endsWith("gate"));
  const norm = (at) => (c.norm === "none" ? [] : [`${at}.hook_scale`, `${at}.hook_normalized`]);
  if (POSITIONS[c.positions].embed) found.push("hook_pos_embed");
  for (let i = 0; i < c.n_layers; i++) {
    const at = `blocks.${i}.`, attn = `${at}attn.`, first = c.norm_first;
    found.push(`${at}hook_resid_pre`, ...(first ? norm(`${at}ln1`) : []));
    found.push(...["hook_q", "hook_k", "hook_v"].map((n) => attn + n));
    if (c.qk_norm) found.push(...norm(`${attn}q_norm`), ...norm(`${attn}k_norm`));
    if (POSITIONS[c.positions].rotate) found.push(`${attn}hook_rot_q`, `${attn}hook_rot_k`);
    found.push(...["hook_attn_scores", "hook_pattern", "hook_z"].map((n) => attn + n));
    found.push(`${at}hook_attn_out`, ...(first ? [] : norm(`${at}ln1`)));
    if (has(`${at}mlp.W_out`)) {
      found.push(`${at}hook_resid_mid`, ...(first ? norm(`${at}ln2`) : []), `${at}mlp.hook_pre`);
      if (has(`${at}mlp.W_gate`)) found.push(`${at}mlp.hook_pre_linear`);
      found.push(`${at}mlp.hook_post`, `${at}hook_mlp_out`, ...(first ? [] : norm(`${at}ln2`)));
    }
    found.push(`${at}hook_resid_post`);
  }
  return c.norm_first ? [...found, ...norm("ln_final")] : found;
}



/** All that flows for some tokens [T], by name; the logits among it, as "logits". */
export function record(model, tokens, tap = null) {
  const cache = {}, keep = (name, value) => (cache[name] = tap ? tap(name, value) : value);
  const logits = forward(model.config, model.weights, tokens, Object.assign(keep, { config: tap?.config }));
  return Object.assign(cache, { logits });
}
