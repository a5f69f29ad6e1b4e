// Weights that were edited, and the model as a checkpoint that `load` reads: the arrays as safetensors
// has them, the header as checkpoint.py writes it, sealed as checkpoint_format.py wants it.

import { withWeights } from "./model.js";
import { sha256 } from "./sha256.js";

const utf8 = new TextEncoder();

/** The model with other numbers in places: [{name, index, value}], index flat or one for each axis. */
export function edited(model, edits) {
  const changed = {};
  for (const { name, index, value } of edits) {
    if (!Object.hasOwn(model.weights, name)) throw new Error(`edit — no weight ${name} in this model`);
    const w = model.weights[name], at = flat(name, w.shape, index), number = Number(value);
    if (!Number.isFinite(number) || !Number.isFinite(w.data instanceof Float32Array ? Math.fround(number) : number)) {
      throw new Error(`edit — ${name} must be a finite number, got ${value}`);
    }
    changed[name] ??= { shape: w.shape, data: w.data.slice() };
    changed[name].data[at] = number;
  }
  return { ...withWeights(model, changed), edits: [...model.edits, ...edits] };
}

/** The place of an entry in a flat array. */
export function flat(name, shape, index) {
  const size = shape.reduce((a, b) => a * b, 1), one = !Array.isArray(index);
  const at = one ? Number(index) : shape.reduce((sum, n, axis) => sum * n + index[axis], 0);
  const within = one ? at < size : index.length === shape.length && index.every((i, axis) => i >= 0 && i < shape[axis]);
  if (!Number.isInteger(at) || at < 0 || !within) {
    throw new Error(`edit — ${name} is [${shape.join(", ")}] and has no entry ${index}`);
  }
  return at;
}

const kindOf = (model) => (model.dtype === "float32" ? "float32" : "float64");
const names = (model) => Object.keys(model.weights).sort(byCodePoint);

function byCodePoint(a, b) {
  const [x, y] = [Array.from(a), Array.from(b)];
  const i = x.findIndex((char, at) => char !== y[at]);
  if (i < 0) return x.length - y.length;
  return y[i] === undefined ? 1 : x[i].codePointAt(0) - y[i].codePointAt(0);
}

/** SHA-256 of config, vocabulary and tensors: what verdicts cite. */
export function digest(model) {
  const { header } = model;
  const words = `{"blueprint":"","config":${header.chosen},"vocabulary":${header.vocabulary}}`;
  const pieces = [utf8.encode(words)];
  for (const name of names(model)) {
    const w = model.weights[name];
    pieces.push(utf8.encode(JSON.stringify([name, kindOf(model), w.shape])), bytesOf(w.data));
  }
  return sha256(joined(pieces));
}

/** The header of a checkpoint: as it is written, and as it is sealed, with all names in order. */
function headerOf(model, sealed) {
  const { header } = model, since = edits(model);
  const told = since ? [...header.provenance.filter(([key]) => key !== "edited"), ["edited", JSON.stringify(since)]]
    : [...header.provenance];
  if (sealed) told.sort(([a], [b]) => byCodePoint(a, b));
  const provenance = told.map(([key, text]) => `${JSON.stringify(key)}:${text}`).join(",");
  const labels = sealed ? inOrder(header.labels) : JSON.stringify(header.labels);
  return `{"config":${header.config},"format":${header.format},"labels":${labels},"parametrization":"",`
    + `"provenance":{${provenance}},"task":${header.task},"vocabulary":${header.vocabulary}}`;
}

/** What was done to the weights in the page, in words; "" if nothing was. */
function edits(model) {
  const n = new Set(model.edits.map(({ name, index }) => `${name} ${index}`)).size;
  if (n) return `${n} number${n > 1 ? "s" : ""}, in the page`;
  return Object.entries(model.weights).some(([name, w]) => w !== model.original[name]) ? "a snapshot, in the page" : "";
}

/** JSON with the names of every object in order. */
function inOrder(value) {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(inOrder).join(",")}]`;
  const keys = Object.keys(value).sort(byCodePoint);
  return `{${keys.map((name) => `${JSON.stringify(name)}:${inOrder(value[name])}`).join(",")}}`;
}

/** The bytes of a .safetensors file that `load` reads as this model. */
export function checkpoint(model) {
  const hash = digest(model), seal = sha256(utf8.encode(`[${headerOf(model, true)},"${hash}"]`));
  const sealed = `{"header":${headerOf(model, false)},"model":"${hash}","sha256":"${seal}"}`;
  const entries = { __metadata__: { glassformer: sealed } };
  let at = 0;
  for (const name of names(model)) {
    const { shape, data } = model.weights[name];
    entries[name] = { dtype: kindOf(model) === "float32" ? "F32" : "F64", shape, data_offsets: [at, at + data.byteLength] };
    at += data.byteLength;
  }
  let text = utf8.encode(JSON.stringify(entries));
  text = joined([text, utf8.encode(" ".repeat((8 - (text.length % 8)) % 8))]);
  const size = new Uint8Array(8);
  new DataView(size.buffer).setBigUint64(0, BigInt(text.length), true);
  return joined([size, text, ...names(model).map((name) => bytesOf(model.weights[name].data))]);
}

/** The bytes of an array, little-endian as every browser's are. */
const bytesOf = (data) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

function joined(pieces) {
  const out = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    out.set(piece, at);
    at += piece.length;
  }
  return out;
}
