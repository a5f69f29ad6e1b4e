// Edited weights, and the model as a checkpoint that Python's `load` reads: a safetensors file with
// the header of core/checkpoint.py, sealed as core/checkpoint_format.py requires.

import { withWeights } from "./model.js";
import { InputError } from "./vocabulary.js";
import { sha256 } from "./sha256.js";

const utf8 = new TextEncoder();

/** The model with edits [{name, index, value}] applied; the index is flat or one per axis. */
export function applyEdits(model, edits) {
  const changed = {};
  for (const { name, index, value } of edits) {
    if (!Object.hasOwn(model.weights, name))
      throw new InputError(`the model has no weight ${name}`, "not_found");
    const w = model.weights[name], at = flatIndex(name, w.shape, index), number = Number(value);
    if (!Number.isFinite(number)
        || !Number.isFinite(w.data instanceof Float32Array ? Math.fround(number) : number)) {
          throw new InputError(`${name}: expected a finite number, got ${value}`);
        }
    changed[name] ??= { shape: w.shape, data: w.data.slice() };
    changed[name].data[at] = number;
  }
  return { ...withWeights(model, changed), edits: [...model.edits, ...edits] };
}

/** The index of an entry in the flat array. */
export function flatIndex(name, shape, index) {
  const size = shape.reduce((a, b) => a * b, 1), isFlat = !Array.isArray(index);
  const at = isFlat ? Number(index) : shape.reduce((sum, n, axis) => sum * n + index[axis], 0);
  const inRange = isFlat ? at < size
    : index.length === shape.length && index.every((i, axis) => i >= 0 && i < shape[axis]);
  if (!Number.isInteger(at) || at < 0 || !inRange) {
    throw new InputError(`${name} has shape [${shape.join(", ")}] and no entry ${index}`);
  }
  return at;
}

const dtypeOf = (model) => (model.dtype === "float32" ? "float32" : "float64");
const sortedNames = (model) => Object.keys(model.weights).sort(byCodePoint);

function byCodePoint(a, b) {
  const [x, y] = [Array.from(a), Array.from(b)];
  const i = x.findIndex((char, at) => char !== y[at]);
  if (i < 0) return x.length - y.length;
  return y[i] === undefined ? 1 : x[i].codePointAt(0) - y[i].codePointAt(0);
}

/** SHA-256 of config, vocabulary and weights, as cited by verdicts. */
export function digest(model) {
  const { header } = model;
  const words = `{"blueprint":"","config":${header.chosen},"vocabulary":${header.vocabulary}}`;
  const pieces = [utf8.encode(words)];
  for (const name of sortedNames(model)) {
    const w = model.weights[name];
    pieces.push(utf8.encode(JSON.stringify([name, dtypeOf(model), w.shape])), bytesOf(w.data));
  }
  return sha256(concatBytes(pieces));
}

/** The header of a checkpoint. The seal is computed from a copy with sorted keys (`sealed`). */
function headerOf(model, sealed) {
  const { header } = model, editNote = describeEdits(model);
  const provenance_ = editNote
    ? [...header.provenance.filter(([key]) => key !== "edited"),
      ["edited", JSON.stringify(editNote)]]
    : [...header.provenance];
  if (sealed) provenance_.sort(([a], [b]) => byCodePoint(a, b));
  const provenance = provenance_.map(([key, text]) => `${JSON.stringify(key)}:${text}`).join(",");
  const labels = sealed ? sortedJson(header.labels) : JSON.stringify(header.labels);
  return `{"config":${header.config},"format":${header.format},"labels":${labels},`
    + `"parametrization":"","provenance":{${provenance}},"task":${header.task},`
    + `"vocabulary":${header.vocabulary}}`;
}

/** A description of the changes made in the page, for the provenance; "" if there are none. */
function describeEdits(model) {
  const n = new Set(model.edits.map(({ name, index }) => `${name} ${index}`)).size;
  if (n) return `${n} number${n > 1 ? "s" : ""}, in the page`;
  return Object.entries(model.weights).some(([name, w]) => w !== model.original[name])
    ? "a snapshot, in the page" : "";
}

/** JSON with sorted keys. */
function sortedJson(value) {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(sortedJson).join(",")}]`;
  const keys = Object.keys(value).sort(byCodePoint);
  return `{${keys.map((name) => `${JSON.stringify(name)}:${sortedJson(value[name])}`).join(",")}}`;
}

/** The bytes of a .safetensors checkpoint. */
export function checkpoint(model) {
  const hash = digest(model), seal = sha256(utf8.encode(`[${headerOf(model, true)},"${hash}"]`));
  const sealed = `{"header":${headerOf(model, false)},"model":"${hash}","sha256":"${seal}"}`;
  const entries = { __metadata__: { glassformer: sealed } };
  let at = 0;
  for (const name of sortedNames(model)) {
    const { shape, data } = model.weights[name];
    entries[name] = { dtype: dtypeOf(model) === "float32" ? "F32" : "F64", shape,
      data_offsets: [at, at + data.byteLength] };
    at += data.byteLength;
  }
  let text = utf8.encode(JSON.stringify(entries));
  text = concatBytes([text, utf8.encode(" ".repeat((8 - (text.length % 8)) % 8))]);
  const size = new Uint8Array(8);
  new DataView(size.buffer).setBigUint64(0, BigInt(text.length), true);
  return concatBytes([size, text,
    ...sortedNames(model).map((name) => bytesOf(model.weights[name].data))]);
}

/** The bytes of an array; browsers are little-endian. */
const bytesOf = (data) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

function concatBytes(pieces) {
  const out = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    out.set(piece, at);
    at += piece.length;
  }
  return out;
}
