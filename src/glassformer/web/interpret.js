// The interpreter of a compiled model's source (compiler/interpreter.py): every value at every
// position. Values are integer tables made by report_page/sources.py; members of a domain are
// indices.

const ARRAY_TYPES = { i1: Int8Array, i2: Int16Array, i4: Int32Array, f8: Float64Array };

/** The integers written by sources.encode_ints, decoded once. */
function decodeInts(packed) {
  packed.numbers ??=
    new ARRAY_TYPES[packed.of](Uint8Array.from(atob(packed.data), (c) => c.charCodeAt(0)).buffer);
  return packed.numbers;
}

/** Tokens [T] of the source -> the members [T] of every value. */
export function trace(source, tokens) {
  const { values } = source, T = tokens.length, out = [];
  for (const value of values) out.push(EVALUATE[value.kind](value, tokens, T, out, values));
  return out;
}

const atEachPosition = (T, f) => Array.from({ length: T }, (_, t) => f(t));

/** The positions s <= t that pass all tests of a selector at t. */
function matchingPositions(value, t, out, values) {
  const positions = [];
  for (let s = 0; s <= t; s++) {
    const passes = value.tests.every(({ query, key, table }) => {
      const width = key === null ? 1 : values[key].size;
      const i = query === null ? 0 : out[query][t], j = key === null ? 0 : out[key][s];
      return decodeInts(table)[i * width + j];
    });
    if (passes) positions.push(s);
  }
  return positions;
}

/** Compare two positions by the first ordering that distinguishes them. */
function comparePositions(value, a, b, out) {
  for (const [by, ranks] of value.order) {
    const difference = decodeInts(ranks)[out[by][a]] - decodeInts(ranks)[out[by][b]];
    if (difference) return difference;
  }
  return 0;
}

const EVALUATE = {
  token: (value, tokens, T) => atEachPosition(T, (t) => decodeInts(value.table)[tokens[t]]),

  position: (value, tokens, T) => atEachPosition(T, (t) => decodeInts(value.table)[t]),

  map: (value, tokens, T, out, values) => atEachPosition(T, (t) => {
    const at = value.args.reduce((place, a) => place * values[a].size + out[a][t], 0);
    const member = decodeInts(value.table)[at];
    if (member < 0)
      throw new Error(`${value.name}: a combination of values that the source declares impossible`);
    return member;
  }),

  sum: (value, tokens, T, out) => atEachPosition(T, (t) => {
    let total = value.constant;
    for (let i = 0; i < value.args.length; i++) {
      const number = value.numbers[i][out[value.args[i]][t]];
      if (number === null) return value.otherwise;
      total += value.factors[i] * number;
    }
    return decodeInts(value.table)[total - value.low];
  }),

  select: (value, tokens, T, out, values) => atEachPosition(T, (t) => {
    const positions = matchingPositions(value, t, out, values);
    if (!positions.length) return value.default;
    let best = positions[0];
    for (const s of positions) if (comparePositions(value, s, best, out) > 0) best = s;
    return decodeInts(value.members)[out[value.value][best]];
  }),

  count: (value, tokens, T, out, values) => atEachPosition(T, (t) => {
    const positions = matchingPositions(value, t, out, values);
    let passed = 0;
    for (const [one, cuts, weights] of value.rows) {
      let total = 0;
      for (const s of positions) {
        total += one;
        value.terms.forEach((term, i) => { total += decodeInts(weights[i])[out[term][s]]; });
      }
      for (const cut of decodeInts(cuts)) passed += total >= cut;
    }
    return decodeInts(value.results)[passed];
  }),
};
