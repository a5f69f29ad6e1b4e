// The slot of the embedding whose codes each slot of the stream holds, and slots that were erased,
// as in lens/slot_origins.py.

const MAX_RESIDUE = 1e-6; // a slot that held numbers this many times as large is erased
const RESIDUE_ULPS = 64;
const TIE = 1e-9; // of almost equal contributions the first counts

/** [{origins, erased}] for each sublayer: for each position and slot, the index of the slot that it
 * comes from, and whether it holds only the residue of what it held. `streams` are the streams
 * [T,D] after the sublayers, `spans` the [start, stop] of the slots. */
export function slotOrigins(model, cache, sublayers, streams, spans) {
  const [T, D] = streams[0].shape, n = spans.length, { data } = streams[0];
  const eps = data instanceof Float32Array ? 2 ** -23 : 2 ** -52;
  const residue = Math.max(MAX_RESIDUE, RESIDUE_ULPS * eps), seen = new Float64Array(T * n);
  let origins = Array.from({ length: T }, () => spans.map((_, i) => i));
  return sublayers.map((sublayer, at) => {
    const x = streams[at].data, [kind, layer] = sublayer.split(" ");
    if (kind === "attention" && n > 1)
      origins = afterAttention(model, cache, layer, streams[at - 1], spans, origins);
    if (kind === "mlp") {
      const before = streams[at - 1].data, change = x.map((a, i) => a - before[i]);
      origins = origins.map((row, t) => row.map((origin, i) => {
        const [wrote, held] = [change, before].map((each) => slotNorm(each, t * D, spans[i]));
        return wrote > MAX_RESIDUE * held ? i : origin;
      }));
    }
    const erased = origins.map((row, t) => row.map((_, i) => {
      const size = slotNorm(x, t * D, spans[i]), largest = seen[t * n + i];
      seen[t * n + i] = Math.max(largest, size);
      return size > 0 && size <= residue * largest;
    }));
    return { origins, erased };
  });
}

function slotNorm(x, from, [start, stop]) {
  return Math.hypot(...x.subarray(from + start, from + stop));
}

/** The origins after a layer's attention. A slot comes from the slot that contributes most to it,
 * where the head that contributes most of that attends. */
function afterAttention(model, cache, layer, stream, spans, before) {
  const at = `blocks.${layer}.`, { shape: [T, D], data: x } = stream;
  const W_V = model.weights[`${at}attn.W_V`], W_O = model.weights[`${at}attn.W_O`];
  const pattern = cache[`${at}attn.hook_pattern`].data, reads = attentionInput(model, cache, at, x);
  const [H, , K] = W_V.shape;
  return before.map((_, t) => {
    const brought = [], looksAt = [t];
    for (let h = 0; h < H; h++) {
      const row = pattern.subarray((h * T + t) * T, (h * T + t + 1) * T);
      looksAt.push(row.indexOf(Math.max(...row)));
      const mixed = new Float64Array(D);
      row.forEach((share, s) => {
        for (let d = 0; d < D; d++) mixed[d] += share * reads[s * D + d];
      });
      brought.push(spans.map(([start, stop]) => {
        const v = new Float64Array(K), out = new Float64Array(D);
        for (let d = start; d < stop; d++)
          for (let k = 0; k < K; k++) v[k] += mixed[d] * W_V.data[(h * D + d) * K + k];
        for (let k = 0; k < K; k++)
          for (let d = 0; d < D; d++) out[d] += v[k] * W_O.data[(h * K + k) * D + d];
        return out;
      }));
    }
    return spans.map((span, i) => {
      const own = x.subarray(t * D, (t + 1) * D);
      const terms = spans.map((_, j) =>
        [j === i ? own : new Float64Array(D), ...brought.map((head) => head[j])]);
      const total = (list) => Float64Array.from({ length: D }, (_, d) =>
        list.reduce((sum, term) => sum + term[d], 0));
      const source = firstLargest(terms.map((list) => slotNorm(total(list), 0, span)));
      const term = firstLargest(terms[source].map((each) => slotNorm(each, 0, span)));
      return before[looksAt[term]][source];
    });
  });
}

/** What a layer's attention reads: the normalized stream with gain and bias, or the stream. */
function attentionInput(model, cache, at, x) {
  const { norm_first, norm: kind, d_model: D } = model.config;
  if (!norm_first || kind === "none") return x;
  const w = model.weights[`${at}ln1.w`]?.data, b = model.weights[`${at}ln1.b`]?.data;
  return cache[`${at}ln1.hook_normalized`].data.map((a, i) =>
    a * (w ? w[i % D] : 1) + (b ? b[i % D] : 0));
}

function firstLargest(values) {
  const largest = Math.max(...values);
  return values.findIndex((value) => value >= largest * (1 - TIE));
}
