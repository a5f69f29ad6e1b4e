// The payload of a model, as payload.py makes it, into what everyone else here works with.

import { encode, Vocabulary } from "./vocabulary.js";
import { answer, read } from "./parse_input.js";

/** payload -> {title, ref, config, weights, vocabulary, labels, provenance, dtype, task, facts, …}. */
export function readModel(data) {
  const { header } = data, parsed = (name) => JSON.parse(header[name]);
  const model = {
    title: data.title, ref: data.ref, dtype: data.dtype, digest: data.digest, header,
    config: parsed("config"), labels: header.labels,
    vocabulary: new Vocabulary(parsed("vocabulary")),
    provenance: Object.fromEntries(header.provenance.map(([key, text]) => [key, JSON.parse(text)])),
    weights: readWeights(data.weights, data.dtype),
    inputs: data.inputs ?? [], verdict: data.verdict ?? null, facts: data.facts ?? [],
    source: data.source ?? null, history: data.history ?? null, edits: [], data,
  };
  model.original = model.weights;
  model.snapshots = data.snapshots?.map((each) => readSnapshot(each, data.dtype)) ?? null;
  model.task = data.task ? { ...data.task } : null;
  model.whole = Boolean(data.task?.examples.whole); // the examples are all inputs that there are
  model.examples = model.task ? readExamples(model, data.task.examples) : [];
  return model;
}

/** {name: {shape, data}} of what payload.weights made: base64, little-endian. */
export function readWeights(data, dtype) {
  const Store = dtype === "float32" ? Float32Array : Float64Array;
  return Object.fromEntries(Object.entries(data).map(([name, w]) => {
    const given = new Store(bytes(w.data).buffer);
    if (w.at === undefined) return [name, { shape: w.shape, data: given }];
    const whole = new Store(w.shape.reduce((a, b) => a * b, 1));
    new Uint32Array(bytes(w.at).buffer).forEach((at, i) => { whole[at] = given[i]; });
    return [name, { shape: w.shape, data: whole }];
  }));
}

/** A model of the training: its weights are read when they are first asked for. */
function readSnapshot({ weights, ...told }, dtype) {
  let read = null;
  return Object.defineProperty(told, "weights", { enumerable: true, get: () => (read ??= asType(weights, dtype)) });
}

/** Snapshots go as float32, whatever the model's own float type. */
function asType(weights, dtype) {
  const read = readWeights(weights, "float32");
  if (dtype === "float32") return read;
  return Object.fromEntries(Object.entries(read).map(([name, w]) => [name, { shape: w.shape, data: Float64Array.from(w.data) }]));
}

function bytes(base64) {
  return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
}

/** [{text, expected, class, prompt, answer}]: what is typed, what is right, in words and in tokens. */
function readExamples(model, { texts, answers, classes, names, tokens }) {
  const { reading } = model.task;
  const found = texts.map((text, i) => {
    const told = tokens[i], said = told ? told[1] : encode(model, answers[i]);
    const example = { text, expected: answer(model, said), class: names[classes[i]], answer: said };
    // Read when it is first asked for: a page that opens need not read them all.
    let prompt = told ? told[0] : null;
    return Object.defineProperty(example, "prompt", {
      enumerable: false, get: () => (prompt ??= read(model, text).flat()),
    });
  });
  if (reading.how === "examples") {
    model.task.reading = { ...reading, known: new Map(found.map((each, i) => [each.text, tokens[i]?.[0]])) };
  }
  return found;
}

/** The same model with other weights: {name: array} in place of those of that name. */
export function withWeights(model, weights) {
  return { ...model, weights: { ...model.weights, ...weights } };
}
