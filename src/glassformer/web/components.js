// What the parts of a model are called, as components.py spells them, and taps that take parts out:
//
//   zero   the part says nothing (a position: nobody looks at it; a norm: it divides by 1)
//   mean   it says, at each position, its mean over the page's examples
//   from   it says what it says on another input, as far as that goes
//
// Two more than Python has are for the page: "mask" (off: everyone sees what is to come) and
// "norm blocks.0.ln1", the number that a norm divides by.

import { forward, POSITIONS, zeros } from "./forward.js";
import { run } from "./decoding.js";
import { quoted } from "./vocabulary.js";

const REFERENCE = 100; // examples that a mean is taken over

/** The name of a head among the parts. */
export const headPart = (layer, index) => `head ${layer}.${index}`;

export const hasMlp = (model, layer) => `blocks.${layer}.mlp.W_out` in model.weights;

/** The named slots of the stream, or the whole stream as one: {name: [start, stop]}. */
export function slotsOf(model) {
  const { slots } = model.labels;
  return Object.keys(slots).length ? slots : { stream: [0, model.config.d_model] };
}

/** The name that people gave to a head or neuron, or "". */
export function label(model, name) {
  const [kind, place] = name.split(" "), given = { head: model.labels.heads, neuron: model.labels.neurons };
  return Object.hasOwn(given, kind) && Object.hasOwn(given[kind], place) ? given[kind][place] : "";
}

/** The name that people gave to a part, or else its own. */
export const called = (model, name) => label(model, name) || name;

/** All parts that can be silenced but positions and neurons, in the order in which they write. */
export function partNames(model) {
  const { config: c } = model, found = embeddings(model);
  for (let i = 0; i < c.n_layers; i++) {
    for (let h = 0; h < c.n_heads; h++) found.push(headPart(i, h));
    if (hasMlp(model, i)) found.push(`mlp ${i}`);
  }
  const slots = c.n_layers ? Object.keys(model.labels.slots).map((name) => `slot ${name}`) : [];
  return [...found, ...slots, ...(c.n_layers && c.mask !== "none" ? ["mask"] : []), ...normNames(model)];
}

/** The norms of a model, as parts. */
export function normNames(model) {
  const { config: c } = model;
  if (c.norm === "none") return [];
  const found = [];
  for (let i = 0; i < c.n_layers; i++) {
    found.push(`norm blocks.${i}.ln1`);
    if (c.qk_norm) found.push(`norm blocks.${i}.attn.q_norm`, `norm blocks.${i}.attn.k_norm`);
    if (hasMlp(model, i)) found.push(`norm blocks.${i}.ln2`);
  }
  return c.norm_first ? [...found, "norm ln_final"] : found;
}

function embeddings(model) {
  return POSITIONS[model.config.positions].embed ? ["embed", "pos_embed"] : ["embed"];
}

// ── a part and where it is seen ────────────────────────────────────────────────────────────────
/** The part that a name stands for: {name, kind, hooks, span, position}. `span(width)`: which of the
 * numbers at a position are its own. */
export function find(model, name) {
  const found = lookUp(model, spelled(name)) ?? byLabel(model, name.trim());
  if (found) return found;
  throw new Error(`${quoted(name)} — no such part; this model has ${thereIs(model)}`);
}

function spelled(name) {
  const [, kind, place] = /^\s*([^\s:]*)[\s:]*(.*?)\s*$/s.exec(name);
  return `${kind.toLowerCase()} ${place}`.trim();
}

function byLabel(model, name) {
  const named = [];
  for (const [kind, labels] of [["head", model.labels.heads], ["neuron", model.labels.neurons]]) {
    for (const [place, given] of Object.entries(labels)) if (given === name) named.push(`${kind} ${place}`);
  }
  if (named.length > 1) throw new Error(`${quoted(name)} — the name of several parts: ${named.join(", ")}`);
  return named.length ? lookUp(model, named[0]) : null;
}

const whole = (width) => [0, width];

function lookUp(model, name) {
  const { config: c } = model, [, kind, place] = /^(\S*)\s?(.*)$/s.exec(name);
  const layers = Array.from({ length: c.n_layers }, (_, i) => i);
  if (kind === "slot" || kind === "dims") return stretch(model, name, kind, place);
  if (kind === "mask" && !place) return c.n_layers && c.mask !== "none" ? { name, kind, hooks: [] } : null;
  if (kind === "norm") {
    return normNames(model).includes(name) ? { name, kind, hooks: [`${place}.hook_scale`], span: whole } : null;
  }
  if (embeddings(model).includes(name)) return { name, kind, hooks: [`hook_${name}`], span: whole };
  const numbers = /^([0-9]{1,9})(?:\.([0-9]{1,9}))?$/.exec(place);
  if (!numbers) return null;
  const layer = Number(numbers[1]), index = numbers[2] === undefined ? null : Number(numbers[2]);
  const tidy = index === null ? `${kind} ${layer}` : `${kind} ${layer}.${index}`;
  if (kind === "position" && index === null && layers.length && layer < c.n_ctx) {
    const hooks = layers.flatMap((i) => [`blocks.${i}.attn.hook_k`, `blocks.${i}.attn.hook_v`]);
    return { name: tidy, kind, hooks, span: whole, position: layer };
  }
  if (layer >= c.n_layers) return null;
  const at = `blocks.${layer}.`;
  if (kind === "attention" && index === null) return { name: tidy, kind, hooks: [`${at}hook_attn_out`], span: whole };
  if (kind === "mlp" && index === null && hasMlp(model, layer)) {
    return { name: tidy, kind, hooks: [`${at}hook_mlp_out`], span: whole };
  }
  if (kind === "head" && index !== null && index < c.n_heads) {
    const K = c.d_head;
    return { name: tidy, kind, hooks: [`${at}attn.hook_z`], span: () => [index * K, (index + 1) * K] };
  }
  if (kind === "neuron" && index !== null && index < c.d_mlp && hasMlp(model, layer)) {
    return { name: tidy, kind, hooks: [`${at}mlp.hook_post`], span: () => [index, index + 1] };
  }
  return null;
}

/** A slot by its name, or dimensions by their numbers. */
function stretch(model, name, kind, place) {
  const { config: c } = model, slots = slotsOf(model);
  const said = (kind === "dims" ? /^([0-9]{1,9}):([0-9]{1,9})$/ : /^rest \[([0-9]{1,9}):([0-9]{1,9})\]$/).exec(place);
  const span = kind === "slot" && Object.hasOwn(slots, place) ? slots[place] : said ? [Number(said[1]), Number(said[2])] : null;
  if (!span || !c.n_layers || span[0] >= span[1] || span[1] > c.d_model) return null;
  const hooks = [];
  for (let i = 0; i < c.n_layers; i++) {
    for (const end of hasMlp(model, i) ? ["pre", "mid", "post"] : ["pre", "post"]) {
      hooks.push(`blocks.${i}.hook_resid_${end}`);
    }
  }
  return { name, kind, hooks, span: () => span };
}

function thereIs(model) {
  const { config: c } = model, ends = embeddings(model);
  if (!c.n_layers) return `no layers, but ${ends.join(", ")} and unembed`;
  const range = (first, last) => (first.endsWith(` ${last}`) ? first : `${first} … ${last}`);
  const listed = [range("head 0.0", `${c.n_layers - 1}.${c.n_heads - 1}`), range("attention 0", c.n_layers - 1)];
  const layers = Array.from({ length: c.n_layers }, (_, i) => i).filter((i) => hasMlp(model, i));
  if (layers.length) {
    listed.push(...layers.map((i) => `mlp ${i}`));
    listed.push(range(`neuron ${layers[0]}.0`, `${layers.at(-1)}.${c.d_mlp - 1}`));
  }
  listed.push(range("position 0", c.n_ctx - 1), ...Object.keys(model.labels.slots).map((name) => `slot ${name}`));
  return [...listed, `dims 0:${c.d_model} or a part of them`, ...ends, "unembed"].join(", ");
}

// ── taking parts out ───────────────────────────────────────────────────────────────────────────
/** A tap that does what is asked: [{part, how: "zero"|"mean"|"from", text?}]. `tap.config`: what of
 * the config is another (a mask that is off cannot be seen through by a tap). */
export function tapOf(model, actions) {
  const deeds = actions.map((action) => deed(model, action));
  const tap = (name, value) => deeds.reduce((x, each) => (each.see ? each.see(name, x) : x), value);
  tap.config = Object.assign({}, ...deeds.map((each) => each.config ?? {}));
  return tap;
}

function deed(model, { part: name, how, text = "" }) {
  const part = find(model, name);
  if (!["zero", "mean", "from"].includes(how)) {
    throw new Error(`${part.name} — ${quoted(String(how))}: expected one of zero, mean, from`);
  }
  if (part.kind === "mask") {
    if (how !== "zero") throw new Error(`mask — it is there or not: ${how} says nothing of it`);
    return { config: { mask: "none" } };
  }
  if (how === "zero") {
    if (part.kind === "position") {
      return { see: (hook, x) => (hook.endsWith("hook_attn_scores") ? hidden(x, part.position) : x) };
    }
    const still = part.kind === "norm" ? 1 : 0;
    return { see: (hook, x) => (part.hooks.includes(hook) ? put(x, part, () => still) : x) };
  }
  return { see: instead(part, how === "mean" ? means(model, part) : other(model, part, text)) };
}

/** A tap that puts what `known(T)` has for a part: {hook: array}, of T positions or fewer. */
function instead(part, known) {
  let length = 0;
  return (hook, x) => {
    if (hook === "hook_embed") length = x.shape[0];
    if (!part.hooks.includes(hook)) return x;
    const source = known(length)[hook];
    return put(x, part, (i) => (i < source.data.length ? source.data[i] : x.data[i]));
  };
}

/** A copy of an array [T,…] with something else where a part is. */
function put(x, part, value) {
  const T = x.shape[0], width = x.data.length / T, [start, stop] = part.span(width);
  const out = { shape: x.shape, data: x.data.slice() };
  for (let t = 0; t < T; t++) {
    if (part.position !== undefined && t !== part.position) continue;
    for (let i = t * width + start; i < t * width + stop; i++) out.data[i] = value(i);
  }
  return out;
}

/** scores [H,T,S] with a key that nobody sees but those who see nothing else. */
function hidden(x, position) {
  const S = x.shape[2], out = { shape: x.shape, data: x.data.slice() };
  if (position >= S) return x;
  for (let at = 0; at < x.data.length; at += S) {
    const row = x.data.subarray(at, at + S);
    if (row.some((score, s) => s !== position && score !== -Infinity)) out.data[at + position] = -Infinity;
  }
  return out;
}

function seen(model, part, tokens) {
  const kept = {};
  forward(model.config, model.weights, tokens, (hook, x) => {
    if (part.hooks.includes(hook)) kept[hook] = x;
    return x;
  });
  return kept;
}

/** What a part is on another input, and on what the model says after it. */
function other(model, part, text) {
  const { tokens } = run(model, text), known = new Map();
  return (T) => {
    const n = Math.min(T, tokens.length);
    if (!known.has(n)) known.set(n, seen(model, part, tokens.slice(0, n)));
    return known.get(n);
  };
}

/** The mean of a part over the examples that are as long as the input, by that length. */
function means(model, part) {
  const step = Math.max(1, Math.floor(model.examples.length / REFERENCE)), known = new Map();
  const texts = model.examples.filter((_, i) => i % step === 0).map((each) => [...each.prompt, ...each.answer]);
  return (T) => {
    if (!known.has(T)) {
      const long = texts.filter((tokens) => tokens.length >= T);
      if (!long.length) throw new Error(`${part.name} — no example of ${T} tokens to take a mean over`);
      const sums = {};
      for (const tokens of long) {
        for (const [hook, x] of Object.entries(seen(model, part, tokens.slice(0, T)))) {
          const sum = (sums[hook] ??= zeros(x.shape, x));
          x.data.forEach((each, i) => { sum.data[i] += each / long.length; });
        }
      }
      known.set(T, sums);
    }
    return known.get(T);
  };
}
