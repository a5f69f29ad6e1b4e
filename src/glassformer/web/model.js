// The model object of the page, from the payload that report_page/payload.py writes.

import { Vocabulary } from "./vocabulary.js";
import { answer, read } from "./parse_input.js";

/** payload -> {title, ref, config, weights, vocabulary, labels, dtype, task, facts, …}. */
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
  model.snapshots = data.snapshots?.map((snapshot) => readSnapshot(snapshot, data.dtype)) ?? null;
  model.task = data.task ? { ...data.task } : null;
  model.whole = Boolean(data.task?.examples.whole); // the examples are the whole domain
  model.examples = model.task ? readExamples(model, data.task.examples) : [];
  return model;
}

/** {name: {shape, data}} from the base64 of payload.encode_weights, little-endian. */
export function readWeights(data, dtype) {
  const Store = dtype === "float32" ? Float32Array : Float64Array;
  return Object.fromEntries(Object.entries(data).map(([name, w]) => {
    const values = new Store(base64Bytes(w.data).buffer);
    if (w.at === undefined) return [name, { shape: w.shape, data: values }];
    const dense = new Store(w.shape.reduce((a, b) => a * b, 1));
    new Uint32Array(base64Bytes(w.at).buffer).forEach((at, i) => { dense[at] = values[i]; });
    return [name, { shape: w.shape, data: dense }];
  }));
}

/** A training snapshot; its weights are decoded at first use. */
function readSnapshot({ weights, ...fields }, dtype) {
  let read = null;
  return Object.defineProperty(fields, "weights",
    { enumerable: true, get: () => (read ??= readFloat32(weights, dtype)) });
}

/** Snapshots are stored as float32. */
function readFloat32(weights, dtype) {
  const read = readWeights(weights, "float32");
  if (dtype === "float32") return read;
  return Object.fromEntries(Object.entries(read)
      .map(([name, w]) => [name, { shape: w.shape, data: Float64Array.from(w.data) }]));
}

function base64Bytes(base64) {
  return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
}

/** [{text, expected, class, prompt, answer}]: input and right answer, as texts and as tokens. */
function readExamples(model, { texts, answers, classes, names, tokens }) {
  const { parser } = model.task;
  const examples = texts.map((text, i) => {
    const pair = tokens[i], answerTokens = pair ? pair[1] : model.vocabulary.encode(answers[i]);
    const example = { text, expected: answer(model, answerTokens), class: names[classes[i]],
      answer: answerTokens };
    // Parsed at first use, so that the page opens fast.
    let prompt = pair ? pair[0] : null;
    return Object.defineProperty(example, "prompt", {
      enumerable: false, get: () => (prompt ??= read(model, text).flat()),
    });
  });
  if (parser.name === "examples") {
    model.task.parser = { ...parser,
      known: new Map(examples.map((example, i) => [example.text, tokens[i]?.[0]])) };
  }
  return examples;
}

/** The model with some weights {name: array} replaced. */
export function withWeights(model, weights) {
  return { ...model, weights: { ...model.weights, ...weights } };
}
