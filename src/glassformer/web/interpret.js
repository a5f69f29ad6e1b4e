// What a source means: every value at every position of a text, as compiler/interpreter.py defines it. The
// values come as tables of whole numbers (sources.py); a member of a domain is told by its number.

const KINDS = { i1: Int8Array, i2: Int16Array, i4: Int32Array, f8: Float64Array };

/** The numbers that sources.ints wrote; kept, as they are asked for at every position. */
function ints(packed) {
  packed.numbers ??= new KINDS[packed.of](Uint8Array.from(atob(packed.data), (c) => c.charCodeAt(0)).buffer);
  return packed.numbers;
}

/** tokens [T], numbers of the source's tokens -> for every value its members, [T]. */
export function trace(source, tokens) {
  const { values } = source, T = tokens.length, out = [];
  for (const value of values) out.push(MEANING[value.kind](value, tokens, T, out, values));
  return out;
}

const each = (T, f) => Array.from({ length: T }, (_, t) => f(t));

/** Which positions s a look at t may see and finds: never those that are to come. */
function matches(value, t, out, values) {
  const found = [];
  for (let s = 0; s <= t; s++) {
    const all = value.tests.every(({ here, there, table }) => {
      const width = there === null ? 1 : values[there].size;
      const i = here === null ? 0 : out[here][t], j = there === null ? 0 : out[there][s];
      return ints(table)[i * width + j];
    });
    if (all) found.push(s);
  }
  return found;
}

/** Which of two positions is better, by the first that tells them apart. */
function compare(value, a, b, out) {
  for (const [by, ranks] of value.order) {
    const apart = ints(ranks)[out[by][a]] - ints(ranks)[out[by][b]];
    if (apart) return apart;
  }
  return 0;
}

const MEANING = {
  token: (value, tokens, T) => each(T, (t) => ints(value.table)[tokens[t]]),

  position: (value, tokens, T) => each(T, (t) => ints(value.table)[t]),

  map: (value, tokens, T, out, values) => each(T, (t) => {
    const at = value.args.reduce((place, a) => place * values[a].size + out[a][t], 0);
    const found = ints(value.table)[at];
    if (found < 0) throw new Error(`${value.name} — a combination that was said never to be`);
    return found;
  }),

  sum: (value, tokens, T, out) => each(T, (t) => {
    let total = value.constant;
    for (let i = 0; i < value.args.length; i++) {
      const number = value.numbers[i][out[value.args[i]][t]];
      if (number === null) return value.otherwise;
      total += value.factors[i] * number;
    }
    return ints(value.table)[total - value.low];
  }),

  look: (value, tokens, T, out, values) => each(T, (t) => {
    const found = matches(value, t, out, values);
    if (!found.length) return value.default;
    let best = found[0];
    for (const s of found) if (compare(value, s, best, out) > 0) best = s;
    return ints(value.there)[out[value.value][best]];
  }),

  tally: (value, tokens, T, out, values) => each(T, (t) => {
    const found = matches(value, t, out, values);
    let passed = 0;
    for (const [one, cuts, weights] of value.rows) {
      let total = 0;
      for (const s of found) {
        total += one;
        value.terms.forEach((term, i) => { total += ints(weights[i])[out[term][s]]; });
      }
      for (const cut of ints(cuts)) passed += total >= cut;
    }
    return ints(value.results)[passed];
  }),
};
