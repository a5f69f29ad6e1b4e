// A model as a .taotp text, as taotp/write.py writes it; a test compares the two line by line.

import { InputError } from "./vocabulary.js";

const TOP_ARRAYS = [["tok_emb", "embed.W_E", "VD"], ["pos_emb", "pos_embed.W_pos", "TD"],
  ["out_emb", "unembed.W_U", "VD"], ["out_bias", "unembed.b_U", "V"]];
const LAYER_ARRAYS = [["Q", "attn.W_Q", "HDK"], ["K", "attn.W_K", "HDK"], ["V", "attn.W_V", "HDK"],
  ["P", "attn.W_O", "HDK"],
  ["bQ", "attn.b_Q", "HK"], ["bK", "attn.b_K", "HK"], ["bV", "attn.b_V", "HK"],
  ["bP", "attn.b_O", "D"],
  ["M1", "mlp.W_in", "DF"], ["b1", "mlp.b_in", "F"], ["gate", "mlp.W_gate", "DF"],
  ["b_gate", "mlp.b_gate", "F"],
  ["M2", "mlp.W_out", "FD"], ["b2", "mlp.b_out", "D"]];
const HEAD_ARRAYS = LAYER_ARRAYS.filter(([, , axes]) => axes[0] === "H");
const NORM_KEYS = [["ln1", "ln1"], ["ln2", "ln2"], ["lnq", "attn.q_norm"], ["lnk", "attn.k_norm"]];
const CONFIG_DEFAULTS = { norm: "layer", norm_first: true, eps: 1e-20, activation: "relu",
  positions: "learned",
  base: 10000, slope: 1, mask: "causal", scale: 0, qk_norm: false };
const MAX_CELLS = 4e6, MAX_STRING = 10000, MAX_NAMES = 1000, MAX_TEXT = 8e6, MAX_WORDS = 1e6;


export function taotpText(model) {
  const { config: c, weights: w, labels } = model,
    lines = [`# ${model.title.replaceAll(/[\r\n]+/g, " ")}`];
  const add = (line) => lines.push(line), v = model.vocabulary;
  const cells = Object.values(w).reduce((sum, { data }) => sum + data.length, 0);
  if (cells > MAX_CELLS) refuse(`at most ${MAX_CELLS.toLocaleString("en")} numbers`);
  const task = JSON.parse(model.header.task);
  if (task) add(`task: ${quote(task)}`);
  if (!v.numbers) {
    const single = v.size <= MAX_STRING / 2 && v.tokens.every((t) => Array.from(t).length === 1);
    add(`tokens: ${single ? quote(v.tokens.join("")) : `[${v.tokens.map(quote).join(" ")}]`}`);
    if (v.sep) add(`sep: ${quote(v.sep)}`);
  } else if (v.first) add(`first: ${v.first}`);
  if (model.dtype === "float32") add("dtype: float32");
  for (const [key, usual] of Object.entries(CONFIG_DEFAULTS))
    if (c[key] !== usual) add(`${key}: ${optionText(model, key)}`);
  if (!w["pos_embed.W_pos"]) add(`block_size: ${c.n_ctx}`);
  if (!c.n_layers) {
    const silent = { n_heads: 1, d_head: Math.floor(c.d_model / c.n_heads), d_mlp: 0 };
    for (const [key, size] of Object.entries(silent)) if (c[key] !== size) add(`${key}: ${c[key]}`);
  }
  const small = 4 * cells <= MAX_CELLS, slots = small ? contiguousSlots(model) : {},
    named = small ? headNames(model) : {};
  if (Object.keys(slots).length) {
    const widths = Object.entries(slots).map(([name, [a, b]]) => `${quote(name)}: ${b - a}`);
    add(`slots: {${widths.join("  ")}}`);
  }
  for (const [key, name, axes] of TOP_ARRAYS) {
    if (w[name]) add(`${key}: ${arrayBySlot(toBookletLayout(name, w[name]), axes, slots, "  ")}`);
  }
  lines.push(...normLines(w, [["lnf", "ln_final"]], "", ""));
  if (c.n_layers) {
    add("layers: [");
    for (let i = 0; i < c.n_layers; i++) {
      add("  {");
      if (named[i]) lines.push(...headLines(named[i], w, slots, i));
      for (const [key, name, axes] of LAYER_ARRAYS) {
        const path = `blocks.${i}.${name}`;
        if (!w[path] || (named[i] && axes[0] === "H")) continue;
        let [x, rest] = [toBookletLayout(name, w[path]), axes];
        if (axes[0] === "H" && x.shape[0] === 1)
          [x, rest] = [{ shape: x.shape.slice(1), data: x.data }, axes.slice(1)];
        add(`    ${key}: ${arrayBySlot(x, rest, slots, "      ")}`);
      }
      lines.push(...normLines(w, NORM_KEYS, `blocks.${i}.`, "    "));
      add("  }");
    }
    add("]");
  }
  const groups = { slots: Object.keys(slots).length ? {} : labels.slots, neurons: labels.neurons,
    heads: Object.fromEntries(Object.entries(labels.heads)
        .filter(([at]) => !hasNamedHead(named, at))) };
  lines.push(...labelLines(groups));
  const text = `${lines.join("\n")}\n`;
  if (text.length > MAX_TEXT || text.split(/\s+/).length > MAX_WORDS) {
    refuse(`at most ${MAX_TEXT / 1e6} million characters and ${MAX_WORDS / 1e6} million words`);
  }
  return text;
}

function refuse(expected) {
  throw new InputError(`a .taotp text has ${expected}; save a checkpoint instead`);
}

const hasNamedHead = (named, at) => {
  const [layer, head] = at.split(".").map(Number);
  return named[layer] && head < named[layer].length;
};

function normLines(w, table, path, indent) {
  return table.flatMap(([key, name]) => {
    const texts =
      [["gamma", "w"], ["beta", "b"]].filter(([, weight]) => w[`${path}${name}.${weight}`])
      .map(([gain, weight]) =>
          `${gain}: ${arrayText(w[`${path}${name}.${weight}`], `${indent}  `)}`);
    return texts.length ? [`${indent}${key}: {${texts.join(" ")}}`] : [];
  });
}

/** The slots if they cover the whole stream in order, else {}. */
function contiguousSlots(model) {
  const { slots } = model.labels;
  let stop = 0;
  for (const [start, end] of Object.values(slots)) {
    if (start !== stop || end <= start) return {};
    stop = end;
  }
  return stop === model.config.d_model && Object.keys(slots).length <= MAX_NAMES ? slots : {};
}

/** {layer: head labels} of the layers whose heads all have distinct labels. */
function headNames(model) {
  const { config: c, labels } = model, named = {};
  for (let i = 0; i < c.n_layers; i++) {
    const places = Array.from({ length: c.n_heads }, (_, h) => `${i}.${h}`);
    const names =
      places.filter((at) => Object.hasOwn(labels.heads, at)).map((at) => labels.heads[at]);
    if (new Set(names).size === places.length) named[i] = names;
  }
  return named;
}


function headLines(names, w, slots, layer) {
  const out = ["    heads: {"];
  names.forEach((head, h) => {
    out.push(`      ${quote(head)}: {`);
    for (const [key, name, axes] of HEAD_ARRAYS) {
      const path = `blocks.${layer}.${name}`;
      if (!w[path]) continue;
      const x = subarray(toBookletLayout(name, w[path]), h);
      out.push(`        ${key}: ${arrayBySlot(x, axes.slice(1), slots, "          ")}`);
    }
    out.push("      }");
  });
  return [...out, "    }"];
}

/** The labels that are written nowhere else. */
function labelLines({ slots, heads: ofHeads, neurons }) {
  const out = [];
  for (const [group, names] of [["slots", slots], ["heads", ofHeads], ["neurons", neurons]]) {
    if (!Object.keys(names).length) continue;
    out.push(`  ${group}: {`);
    for (const [key, value] of Object.entries(names)) {
      const text = Array.isArray(value) ? `[${value[0]} ${value[1]}]` : quote(String(value));
      out.push(`    ${quote(key)}: ${text}`);
    }
    out.push("  }");
  }
  return out.length ? ["labels: {", ...out, "}"] : [];
}

// ── arrays ─────────────────────────────────────────────────────────────────────────────────────
/** Entry i along the first axis. */
function subarray(x, i) {
  const size = x.data.length / x.shape[0];
  return { shape: x.shape.slice(1), data: x.data.subarray(i * size, (i + 1) * size) };
}

/** W_U and W_O with their last two axes swapped, as the booklet has them. */
function toBookletLayout(name, x) {
  if (name !== "unembed.W_U" && name !== "attn.W_O") return x;
  const [n, m] = x.shape.slice(-2), data = x.data.slice();
  for (let at = 0; at < data.length; at += n * m) {
    for (let i = 0; i < n; i++)
      for (let j = 0; j < m; j++) data[at + j * n + i] = x.data[at + i * m + j];
  }
  return { shape: [...x.shape.slice(0, -2), m, n], data };
}

const isNonzero = (x) => x !== 0 || Object.is(x, -0); // -0 is written

/** {slot: piece} if some slots are zero, else the array. */
function arrayBySlot(x, axes, slots, indent) {
  if (!axes.includes("D") || axes[0] === "H" || !x.data.some(isNonzero))
    return arrayText(x, indent);
  const axis = axes.indexOf("D"),
    pieces = Object.entries(slots).map(([name, span]) => [name, sliceAxis(x, axis, span)]);
  const nonzero = pieces.filter(([, piece]) => piece.data.some(isNonzero));
  if (nonzero.length === pieces.length)
    return (pieces.length && identityText(x)) || arrayText(x, indent);
  const deeper = nonzero.length > 1 ? `${indent}  ` : indent;
  const texts =
    nonzero.map(([name, piece]) =>
        `${quote(name)}: ${identityText(piece) || arrayText(piece, deeper)}`);
  return `{${(texts.length > 1 ? ["", ...texts] : texts).join(`\n${indent}`)}}`;
}

/** A range of an array of one or two axes. */
function sliceAxis(x, axis, [start, stop]) {
  const width = x.shape.at(-1), last = axis === x.shape.length - 1;
  if (!last)
    return { shape: [stop - start, width], data: x.data.subarray(start * width, stop * width) };
  const data = x.data.filter((_, i) => i % width >= start && i % width < stop);
  return { shape: [...x.shape.slice(0, -1), stop - start], data };
}

/** "eye(n) * scale" of a positive multiple of the identity, else "". */
function identityText(x) {
  const [n, m] = x.shape, scale = x.data[0];
  if (x.shape.length !== 2 || n !== m || n < 2 || !(scale > 0)) return "";
  if (!x.data.every((a, i) => Object.is(a, i % (n + 1) ? 0 : scale))) return "";
  return scale === 1 ? `eye(${n})` : `eye(${n}) * ${numberText(scale)}`;
}

/** An array as zeros(…), sparse(…) or a list of its numbers, whichever is short. */
function arrayText(x, indent) {
  const nonzero = [], sizes = x.shape.join(" "), size = x.data.length;
  x.data.forEach((a, i) => { if (isNonzero(a)) nonzero.push(i); });
  if (!nonzero.length && (x.shape.length > 1 || size > 8 || !size)) return `zeros(${sizes})`;
  if (size > 16 && 5 * nonzero.length < size) {
    const entries = nonzero.map((at) => {
      let rest = at;
      const index =
        [...x.shape].reverse().map((n) => { const i = rest % n; rest = (rest - i) / n; return i; });
      return `[${index.reverse().join(" ")} ${numberText(x.data[at])}]`;
    });
    return `sparse([${sizes}]\n${indent}${entries.join(`\n${indent}`)})`;
  }
  return denseText(x, indent);
}

function denseText(x, indent) {
  if (x.shape.length === 1) return `[${Array.from(x.data, numberText).join(" ")}]`;
  const rows = (deeper) => Array.from({ length: x.shape[0] },
    (_, i) => denseText(subarray(x, i), deeper));
  if (x.shape.length === 2 && (x.shape[0] === 1 || x.data.length <= 8))
    return `[${rows("").join(" ")}]`;
  return `[\n${indent}${rows(`${indent}  `).join(`\n${indent}`)}]`;
}

// ── scalars ──────────────────────────────────────────────────────────────────────────────────────
/** A number as Python's repr writes it. */
export function numberText(x) {
  if (Object.is(x, -0)) return "-0";
  const [digits,
    exponent] = x.toExponential().split("e").map((text, i) => (i ? Number(text) : text));
  if (x !== 0 && (exponent < -4 || exponent >= 16)) {
    return `${digits}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  return String(x);
}

/** A config field as Python writes it: 1.0, not 1. */
function optionText(model, key) {
  const value = model.config[key];
  if (typeof value === "boolean") return value ? "True" : "False";
  return typeof value === "number" ? new RegExp(`"${key}":([^,}]*)`).exec(model.header.config)[1]
    : value;
}

/** A word as it is; any other text in quotes. */
function quote(text) {
  if (Array.from(text).length > MAX_STRING / 2) {
    refuse(`names of at most ${MAX_STRING / 2} characters`);
  }
  if (/^[A-Za-z_][-.A-Za-z0-9_]*$/.test(text) && !/^(nan|inf|infinity)$/i.test(text)) return text;
  const plain =
    (char) => char !== '"' && char !== "\\"
    && (char.codePointAt(0) > 0xffff || char === " " || !/[\p{C}\p{Z}]/u.test(char));
  const escape = (char) => `\\u${char.codePointAt(0).toString(16).padStart(4, "0")}`;
  return `"${Array.from(text, (char) => (plain(char) ? char : escape(char))).join("")}"`;
}
