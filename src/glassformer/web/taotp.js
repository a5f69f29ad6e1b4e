// A model as a text program: taotp/write.py in the browser's language. The text reads back as exactly
// the same model; a test compares it with what Python writes, line by line.

const TOP = [["tok_emb", "embed.W_E", "VD"], ["pos_emb", "pos_embed.W_pos", "TD"],
  ["out_emb", "unembed.W_U", "VD"], ["out_bias", "unembed.b_U", "V"]];
const LAYER = [["Q", "attn.W_Q", "HDK"], ["K", "attn.W_K", "HDK"], ["V", "attn.W_V", "HDK"], ["P", "attn.W_O", "HDK"],
  ["bQ", "attn.b_Q", "HK"], ["bK", "attn.b_K", "HK"], ["bV", "attn.b_V", "HK"], ["bP", "attn.b_O", "D"],
  ["M1", "mlp.W_in", "DF"], ["b1", "mlp.b_in", "F"], ["gate", "mlp.W_gate", "DF"], ["b_gate", "mlp.b_gate", "F"],
  ["M2", "mlp.W_out", "FD"], ["b2", "mlp.b_out", "D"]];
const HEAD = LAYER.filter(([, , axes]) => axes[0] === "H");
const NORMS = [["ln1", "ln1"], ["ln2", "ln2"], ["lnq", "attn.q_norm"], ["lnk", "attn.k_norm"]];
const CHOICES = { norm: "layer", norm_first: true, eps: 1e-20, activation: "relu", positions: "learned",
  base: 10000, slope: 1, mask: "causal", scale: 0, qk_norm: false };
const MOST_CELLS = 4e6, MOST_STRING = 10000, MOST_NAMES = 1000, MOST_TEXT = 8e6, MOST_NUMBERS = 1e6;

/** The text of a model. */
export function taotp(model) {
  const { config: c, weights: w, labels } = model, lines = [`# ${model.title.replaceAll(/[\r\n]+/g, " ")}`];
  const say = (line) => lines.push(line), v = model.vocabulary;
  const cells = Object.values(w).reduce((sum, { data }) => sum + data.length, 0);
  if (cells > MOST_CELLS) refuse(model, `at most ${MOST_CELLS.toLocaleString("en")} numbers`);
  const task = JSON.parse(model.header.task);
  if (task) say(`task: ${quote(task)}`);
  if (!v.numbers) {
    const single = v.size <= MOST_STRING / 2 && v.tokens.every((t) => Array.from(t).length === 1);
    say(`tokens: ${single ? quote(v.tokens.join("")) : `[${v.tokens.map(quote).join(" ")}]`}`);
    if (v.sep) say(`sep: ${quote(v.sep)}`);
  } else if (v.first) say(`first: ${v.first}`);
  if (model.dtype === "float32") say("dtype: float32");
  for (const [key, usual] of Object.entries(CHOICES)) if (c[key] !== usual) say(`${key}: ${choice(model, key)}`);
  if (!w["pos_embed.W_pos"]) say(`block_size: ${c.n_ctx}`);
  if (!c.n_layers) {
    const silent = { n_heads: 1, d_head: Math.floor(c.d_model / c.n_heads), d_mlp: 0 };
    for (const [key, size] of Object.entries(silent)) if (c[key] !== size) say(`${key}: ${c[key]}`);
  }
  const roomy = 4 * cells <= MOST_CELLS, slots = roomy ? tiles(model) : {}, named = roomy ? headNames(model) : {};
  if (Object.keys(slots).length) {
    const widths = Object.entries(slots).map(([name, [a, b]]) => `${quote(name)}: ${b - a}`);
    say(`slots: {${widths.join("  ")}}`);
  }
  for (const [key, name, axes] of TOP) {
    if (w[name]) say(`${key}: ${bySlots(turned(name, w[name]), axes, slots, "  ")}`);
  }
  lines.push(...norms(w, [["lnf", "ln_final"]], "", ""));
  if (c.n_layers) {
    say("layers: [");
    for (let i = 0; i < c.n_layers; i++) {
      say("  {");
      if (named[i]) lines.push(...heads(named[i], w, slots, i));
      for (const [key, name, axes] of LAYER) {
        const path = `blocks.${i}.${name}`;
        if (!w[path] || (named[i] && axes[0] === "H")) continue;
        let [x, rest] = [turned(name, w[path]), axes];
        if (axes[0] === "H" && x.shape[0] === 1) [x, rest] = [{ shape: x.shape.slice(1), data: x.data }, axes.slice(1)];
        say(`    ${key}: ${bySlots(x, rest, slots, "      ")}`);
      }
      lines.push(...norms(w, NORMS, `blocks.${i}.`, "    "));
      say("  }");
    }
    say("]");
  }
  const groups = { slots: Object.keys(slots).length ? {} : labels.slots, neurons: labels.neurons,
    heads: Object.fromEntries(Object.entries(labels.heads).filter(([at]) => !said(named, at))) };
  lines.push(...labelled(groups));
  const text = `${lines.join("\n")}\n`;
  if (text.length > MOST_TEXT || text.split(/\s+/).length > MOST_NUMBERS) refuse(model, "a shorter text");
  return text;
}

function refuse(model, expected) {
  throw new Error(`${model.title} as text — expected ${expected}; save it as .safetensors instead`);
}

const said = (named, at) => {
  const [layer, head] = at.split(".").map(Number);
  return named[layer] && head < named[layer].length;
};

function norms(w, table, path, indent) {
  return table.flatMap(([key, name]) => {
    const texts = [["gamma", "w"], ["beta", "b"]].filter(([, weight]) => w[`${path}${name}.${weight}`])
      .map(([gain, weight]) => `${gain}: ${array(w[`${path}${name}.${weight}`], `${indent}  `)}`);
    return texts.length ? [`${indent}${key}: {${texts.join(" ")}}`] : [];
  });
}

/** The slots of a stream that is made of slots from end to end, or none. */
function tiles(model) {
  const { slots } = model.labels;
  let stop = 0;
  for (const [start, end] of Object.values(slots)) {
    if (start !== stop || end <= start) return {};
    stop = end;
  }
  return stop === model.config.d_model && Object.keys(slots).length <= MOST_NAMES ? slots : {};
}

/** The names of the heads, of the layers in which each has one of its own. */
function headNames(model) {
  const { config: c, labels } = model, found = {};
  for (let i = 0; i < c.n_layers; i++) {
    const places = Array.from({ length: c.n_heads }, (_, h) => `${i}.${h}`);
    const names = places.filter((at) => Object.hasOwn(labels.heads, at)).map((at) => labels.heads[at]);
    if (new Set(names).size === places.length) found[i] = names;
  }
  return found;
}

/** Heads with names, one by one. */
function heads(names, w, slots, layer) {
  const out = ["    heads: {"];
  names.forEach((head, h) => {
    out.push(`      ${quote(head)}: {`);
    for (const [key, name, axes] of HEAD) {
      const path = `blocks.${layer}.${name}`;
      if (w[path]) out.push(`        ${key}: ${bySlots(part(turned(name, w[path]), h), axes.slice(1), slots, "          ")}`);
    }
    out.push("      }");
  });
  return [...out, "    }"];
}

/** The names that do not stand elsewhere. */
function labelled({ slots, heads: ofHeads, neurons }) {
  const out = [];
  for (const [group, names] of [["slots", slots], ["heads", ofHeads], ["neurons", neurons]]) {
    if (!Object.keys(names).length) continue;
    out.push(`  ${group}: {`);
    for (const [key, value] of Object.entries(names)) {
      out.push(`    ${quote(key)}: ${Array.isArray(value) ? `[${value[0]} ${value[1]}]` : quote(String(value))}`);
    }
    out.push("  }");
  }
  return out.length ? ["labels: {", ...out, "}"] : [];
}

// ── arrays ─────────────────────────────────────────────────────────────────────────────────────
/** One of those side by side on the first axis. */
function part(x, i) {
  const size = x.data.length / x.shape[0];
  return { shape: x.shape.slice(1), data: x.data.subarray(i * size, (i + 1) * size) };
}

/** From our way round to the booklet's: the last two axes change places. */
function turned(name, x) {
  if (name !== "unembed.W_U" && name !== "attn.W_O") return x;
  const [n, m] = x.shape.slice(-2), data = x.data.slice();
  for (let at = 0; at < data.length; at += n * m) {
    for (let i = 0; i < n; i++) for (let j = 0; j < m; j++) data[at + j * n + i] = x.data[at + i * m + j];
  }
  return { shape: [...x.shape.slice(0, -2), m, n], data };
}

const used = (x) => x !== 0 || Object.is(x, -0); // -0 is not 0, or it would not come back

/** {slot: piece} where it leaves a slot out, or else as any array. */
function bySlots(x, axes, slots, indent) {
  if (!axes.includes("D") || axes[0] === "H" || !x.data.some(used)) return array(x, indent);
  const along = axes.indexOf("D"), pieces = Object.entries(slots).map(([name, span]) => [name, cutOut(x, along, span)]);
  const full = pieces.filter(([, piece]) => piece.data.some(used));
  if (full.length === pieces.length) return (pieces.length && eye(x)) || array(x, indent);
  const deeper = full.length > 1 ? `${indent}  ` : indent;
  const texts = full.map(([name, piece]) => `${quote(name)}: ${eye(piece) || array(piece, deeper)}`);
  return `{${(texts.length > 1 ? ["", ...texts] : texts).join(`\n${indent}`)}}`;
}

/** A stretch of an array of one or two axes, along one of them. */
function cutOut(x, along, [start, stop]) {
  const width = x.shape.at(-1), last = along === x.shape.length - 1;
  if (!last) return { shape: [stop - start, width], data: x.data.subarray(start * width, stop * width) };
  const data = x.data.filter((_, i) => i % width >= start && i % width < stop);
  return { shape: [...x.shape.slice(0, -1), stop - start], data };
}

/** The identity times a number above 0, or "". */
function eye(x) {
  const [n, m] = x.shape, scale = x.data[0];
  if (x.shape.length !== 2 || n !== m || n < 2 || !(scale > 0)) return "";
  if (!x.data.every((a, i) => Object.is(a, i % (n + 1) ? 0 : scale))) return "";
  return scale === 1 ? `eye(${n})` : `eye(${n}) * ${number(scale)}`;
}

/** zeros(…), sparse(…) or the numbers themselves, whichever is short. */
function array(x, indent) {
  const there = [], sizes = x.shape.join(" "), size = x.data.length;
  x.data.forEach((a, i) => { if (used(a)) there.push(i); });
  if (!there.length && (x.shape.length > 1 || size > 8 || !size)) return `zeros(${sizes})`;
  if (size > 16 && 5 * there.length < size) {
    const entries = there.map((at) => {
      let rest = at;
      const index = [...x.shape].reverse().map((n) => { const i = rest % n; rest = (rest - i) / n; return i; });
      return `[${index.reverse().join(" ")} ${number(x.data[at])}]`;
    });
    return `sparse([${sizes}]\n${indent}${entries.join(`\n${indent}`)})`;
  }
  return dense(x, indent);
}

function dense(x, indent) {
  if (x.shape.length === 1) return `[${Array.from(x.data, number).join(" ")}]`;
  const rows = (deeper) => Array.from({ length: x.shape[0] }, (_, i) => dense(part(x, i), deeper));
  if (x.shape.length === 2 && (x.shape[0] === 1 || x.data.length <= 8)) return `[${rows("").join(" ")}]`;
  return `[\n${indent}${rows(`${indent}  `).join(`\n${indent}`)}]`;
}

// ── words ──────────────────────────────────────────────────────────────────────────────────────
/** The shortest text that reads back as the same number, as Python writes it. */
export function number(x) {
  if (Object.is(x, -0)) return "-0";
  const [digits, exponent] = x.toExponential().split("e").map((text, i) => (i ? Number(text) : text));
  if (x !== 0 && (exponent < -4 || exponent >= 16)) {
    return `${digits}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  return String(x); // plain from 1e-6 to 1e21, which is more than is asked for here
}

/** A choice of the config, as Python writes it: 1.0 is not 1. */
function choice(model, key) {
  const value = model.config[key];
  if (typeof value === "boolean") return value ? "True" : "False";
  return typeof value === "number" ? new RegExp(`"${key}":([^,}]*)`).exec(model.header.config)[1] : value;
}

/** A word as it is; anything else in quotes. */
function quote(text) {
  if (Array.from(text).length > MOST_STRING / 2) {
    throw new Error(`a name as text — expected at most ${MOST_STRING / 2} characters`);
  }
  if (/^[A-Za-z_][-.A-Za-z0-9_]*$/.test(text) && !/^(nan|inf|infinity)$/i.test(text)) return text;
  const plain = (char) => char !== '"' && char !== "\\" && (char.codePointAt(0) > 0xffff || char === " " || !/[\p{C}\p{Z}]/u.test(char));
  return `"${Array.from(text, (char) => (plain(char) ? char : `\\u${char.codePointAt(0).toString(16).padStart(4, "0")}`)).join("")}"`;
}
