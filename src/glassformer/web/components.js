// The names of a model's components as in core/components.py, and hooks that intervene on them:
//
//   zero   output 0 (position: hidden from attention; norm: divide by 1)
//   mean   at each position, the mean over the page's examples
//   from   the value on another input, at the positions that it has
//
// Two kinds exist only here: "mask" (zero: attention also sees later positions) and
// "norm blocks.0.ln1", the scale of a norm.

import { forward, POSITIONS, zeros } from "./forward.js";
import { run } from "./decoding.js";
import { InputError, quoted } from "./vocabulary.js";

const MEAN_EXAMPLES = 100;


export const headPart = (layer, index) => `head ${layer}.${index}`;

export const hasMlp = (model, layer) => `blocks.${layer}.mlp.W_out` in model.weights;

/** {name: [start, stop]} of the slots; without slots the whole stream is one. */
export function slotsOf(model) {
  const { slots } = model.labels;
  return Object.keys(slots).length ? slots : { stream: [0, model.config.d_model] };
}

/** The label of a head or neuron, or "". */
export function labelOf(model, name) {
  const [kind, place] = name.split(" "),
    labels = { head: model.labels.heads, neuron: model.labels.neurons };
  return Object.hasOwn(labels, kind) && Object.hasOwn(labels[kind], place) ? labels[kind][place]
    : "";
}


export const displayName = (model, name) => labelOf(model, name) || name;

/** All components except positions and neurons, in the order in which they write. */
export function componentNames(model) {
  const { config: c } = model, names = embeddings(model);
  for (let i = 0; i < c.n_layers; i++) {
    for (let h = 0; h < c.n_heads; h++) names.push(headPart(i, h));
    if (hasMlp(model, i)) names.push(`mlp ${i}`);
  }
  const slots = c.n_layers ? Object.keys(model.labels.slots).map((name) => `slot ${name}`) : [];
  return [...names, ...slots, ...(c.n_layers && c.mask !== "none" ? ["mask"] : []),
    ...normNames(model)];
}


export function normNames(model) {
  const { config: c } = model;
  if (c.norm === "none") return [];
  const names = [];
  for (let i = 0; i < c.n_layers; i++) {
    names.push(`norm blocks.${i}.ln1`);
    if (c.qk_norm) names.push(`norm blocks.${i}.attn.q_norm`, `norm blocks.${i}.attn.k_norm`);
    if (hasMlp(model, i)) names.push(`norm blocks.${i}.ln2`);
  }
  return c.norm_first ? [...names, "norm ln_final"] : names;
}

function embeddings(model) {
  return POSITIONS[model.config.positions].embed ? ["embed", "pos_embed"] : ["embed"];
}

// ── components and their hooks ─────────────────────────────────────────────────────────────────
/** The component of a name or label: {name, kind, hooks, span, position}. `span(width)` is the
 * range
 * of its numbers at a position. */
export function findComponent(model, name) {
  const component = findByName(model, normalizeName(name)) ?? findByLabel(model, name.trim());
  if (component) return component;
  throw new InputError(`no component is named ${quoted(name)}`, "not_found");
}

function normalizeName(name) {
  const [, kind, place] = /^\s*([^\s:]*)[\s:]*(.*?)\s*$/s.exec(name);
  return `${kind.toLowerCase()} ${place}`.trim();
}

function findByLabel(model, name) {
  const matches = [];
  for (const [kind, labels] of [["head", model.labels.heads], ["neuron", model.labels.neurons]]) {
    for (const [place, label] of Object.entries(labels))
      if (label === name) matches.push(`${kind} ${place}`);
  }
  if (matches.length > 1) {
    throw new InputError(`${quoted(name)} labels several components: ${matches.join(", ")}`);
  }
  return matches.length ? findByName(model, matches[0]) : null;
}

const wholeSpan = (width) => [0, width];

function findByName(model, name) {
  const { config: c } = model, [, kind, place] = /^(\S*)\s?(.*)$/s.exec(name);
  const layers = Array.from({ length: c.n_layers }, (_, i) => i);
  if (kind === "slot" || kind === "dims") return findSlot(model, name, kind, place);
  if (kind === "mask" && !place)
    return c.n_layers && c.mask !== "none" ? { name, kind, hooks: [] } : null;
  if (kind === "norm") {
    return normNames(model).includes(name)
      ? { name, kind, hooks: [`${place}.hook_scale`], span: wholeSpan } : null;
  }
  if (embeddings(model).includes(name))
    return { name, kind, hooks: [`hook_${name}`], span: wholeSpan };
  const numbers = /^([0-9]{1,9})(?:\.([0-9]{1,9}))?$/.exec(place);
  if (!numbers) return null;
  const layer = Number(numbers[1]), index = numbers[2] === undefined ? null : Number(numbers[2]);
  const normalized = index === null ? `${kind} ${layer}` : `${kind} ${layer}.${index}`;
  if (kind === "position" && index === null && layers.length && layer < c.n_ctx) {
    const hooks = layers.flatMap((i) => [`blocks.${i}.attn.hook_k`, `blocks.${i}.attn.hook_v`]);
    return { name: normalized, kind, hooks, span: wholeSpan, position: layer };
  }
  if (layer >= c.n_layers) return null;
  const at = `blocks.${layer}.`;
  if (kind === "attention" && index === null)
    return { name: normalized, kind, hooks: [`${at}hook_attn_out`], span: wholeSpan };
  if (kind === "mlp" && index === null && hasMlp(model, layer)) {
    return { name: normalized, kind, hooks: [`${at}hook_mlp_out`], span: wholeSpan };
  }
  if (kind === "head" && index !== null && index < c.n_heads) {
    const K = c.d_head;
    return { name: normalized, kind, hooks: [`${at}attn.hook_z`],
      span: () => [index * K, (index + 1) * K] };
  }
  if (kind === "neuron" && index !== null && index < c.d_mlp && hasMlp(model, layer)) {
    return { name: normalized, kind, hooks: [`${at}mlp.hook_post`],
      span: () => [index, index + 1] };
  }
  return null;
}

/** A slot by name, or dimensions by number. */
function findSlot(model, name, kind, place) {
  const { config: c } = model, slots = slotsOf(model);
  const range =
    (kind === "dims" ? /^([0-9]{1,9}):([0-9]{1,9})$/
        : /^rest \[([0-9]{1,9}):([0-9]{1,9})\]$/).exec(place);
  const span = kind === "slot" && Object.hasOwn(slots, place) ? slots[place]
    : range ? [Number(range[1]), Number(range[2])] : null;
  if (!span || !c.n_layers || span[0] >= span[1] || span[1] > c.d_model) return null;
  const hooks = [];
  for (let i = 0; i < c.n_layers; i++) {
    for (const end of hasMlp(model, i) ? ["pre", "mid", "post"] : ["pre", "post"]) {
      hooks.push(`blocks.${i}.hook_resid_${end}`);
    }
  }
  return { name, kind, hooks, span: () => span };
}

function describeComponents(model) {
  const { config: c } = model, ends = embeddings(model);
  if (!c.n_layers) return `no layers, but ${ends.join(", ")} and unembed`;
  const range = (first, last) => (first.endsWith(` ${last}`) ? first : `${first} … ${last}`);
  const names = [range("head 0.0", `${c.n_layers - 1}.${c.n_heads - 1}`),
    range("attention 0", c.n_layers - 1)];
  const layers = Array.from({ length: c.n_layers }, (_, i) => i).filter((i) => hasMlp(model, i));
  if (layers.length) {
    names.push(...layers.map((i) => `mlp ${i}`));
    names.push(range(`neuron ${layers[0]}.0`, `${layers.at(-1)}.${c.d_mlp - 1}`));
  }
  names.push(range("position 0", c.n_ctx - 1),
    ...Object.keys(model.labels.slots).map((name) => `slot ${name}`));
  return [...names, `dims 0:${c.d_model} or a part of them`, ...ends, "unembed"].join(", ");
}

// ── interventions ──────────────────────────────────────────────────────────────────────────────
/** A hook that applies [{part, how: "zero"|"mean"|"from", text?}]. `hook.config` has the changed
 * config fields: a hook alone cannot remove the mask. */
export function interventionHook(model, actions) {
  const interventions = actions.map((action) => intervention(model, action));
  const hook =
    (name, value) =>
    interventions.reduce((x, intervention) => (intervention.see ? intervention.see(name, x) : x),
      value);
  hook.config = Object.assign({},
    ...interventions.map((intervention) => intervention.config ?? {}));
  return hook;
}

function intervention(model, { part: name, how, text = "" }) {
  const part = findComponent(model, name);
  if (!["zero", "mean", "from"].includes(how)) {
    throw new InputError(`${part.name}: expected zero, mean or from, got ${quoted(String(how))}`);
  }
  if (part.kind === "mask") {
    if (how !== "zero") throw new InputError(`mask: expected zero, got ${quoted(how)}`);
    return { config: { mask: "none" } };
  }
  if (how === "zero") {
    if (part.kind === "position") {
      return { see: (hook, x) =>
          (hook.endsWith("hook_attn_scores") ? hideKey(x, part.position) : x) };
    }
    const constant = part.kind === "norm" ? 1 : 0;
    return { see: (hook, x) =>
        (part.hooks.includes(hook) ? replaceSpan(x, part, () => constant) : x) };
  }
  return { see: replaceWith(part,
    how === "mean" ? meanValues(model, part) : valuesOnInput(model, part, text)) };
}

/** A hook that replaces a component by `valuesFor(T)`: {hook: array} of at most T positions. */
function replaceWith(part, valuesFor) {
  let length = 0;
  return (hook, x) => {
    if (hook === "hook_embed") length = x.shape[0];
    if (!part.hooks.includes(hook)) return x;
    const source = valuesFor(length)[hook];
    return replaceSpan(x, part, (i) => (i < source.data.length ? source.data[i] : x.data[i]));
  };
}

/** A copy of an array [T,…] with `value(i)` at the component's entries. */
function replaceSpan(x, part, value) {
  const T = x.shape[0], width = x.data.length / T, [start, stop] = part.span(width);
  const out = { shape: x.shape, data: x.data.slice() };
  for (let t = 0; t < T; t++) {
    if (part.position !== undefined && t !== part.position) continue;
    for (let i = t * width + start; i < t * width + stop; i++) out.data[i] = value(i);
  }
  return out;
}

/** Scores [H,T,S] without the key at a position, except for queries that see no other key. */
function hideKey(x, position) {
  const S = x.shape[2], out = { shape: x.shape, data: x.data.slice() };
  if (position >= S) return x;
  for (let at = 0; at < x.data.length; at += S) {
    const row = x.data.subarray(at, at + S);
    if (row.some((score, s) => s !== position && score !== -Infinity))
      out.data[at + position] = -Infinity;
  }
  return out;
}

function recordComponent(model, part, tokens) {
  const activations = {};
  forward(model.config, model.weights, tokens, (hook, x) => {
    if (part.hooks.includes(hook)) activations[hook] = x;
    return x;
  });
  return activations;
}

/** The values of a component on another input and the model's answer to it. */
function valuesOnInput(model, part, text) {
  const { tokens } = run(model, text), byLength = new Map();
  return (T) => {
    const n = Math.min(T, tokens.length);
    if (!byLength.has(n)) byLength.set(n, recordComponent(model, part, tokens.slice(0, n)));
    return byLength.get(n);
  };
}

/** The mean of a component over the examples of at least T tokens, by T. */
function meanValues(model, part) {
  const step = Math.max(1, Math.floor(model.examples.length / MEAN_EXAMPLES)), byLength = new Map();
  const texts =
    model.examples.filter((_, i) => i % step === 0)
    .map((value) => [...value.prompt, ...value.answer]);
  return (T) => {
    if (!byLength.has(T)) {
      const sequences = texts.filter((tokens) => tokens.length >= T);
      if (!sequences.length)
        throw new InputError(`${part.name}: no example has ${T} tokens for a mean`);
      const sums = {};
      for (const tokens of sequences) {
        for (const [hook, x] of Object.entries(recordComponent(model, part, tokens.slice(0, T)))) {
          const sum = (sums[hook] ??= zeros(x.shape, x));
          x.data.forEach((value, i) => { sum.data[i] += value / sequences.length; });
        }
      }
      byLength.set(T, sums);
    }
    return byLength.get(T);
  };
}
