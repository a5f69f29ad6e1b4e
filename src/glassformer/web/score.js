// The score on the page's examples, as in verification/evaluation.py: the margin of an answer token
// is its logit minus the best other; a margin that is not a positive number is an error.

import { forward } from "./forward.js";
import { nextLogits } from "./decoding.js";
import { readModel, withWeights } from "./model.js";
import { answer } from "./parse_input.js";
import { interventionHook } from "./components.js";

const MAX_LISTED_ERRORS = 100;

/** The margin of a token among logits [V]; NaN if one is not finite. */
function tokenMargin(logits, token) {
  let best = -Infinity;
  for (let i = 0; i < logits.length; i++) {
    if (!Number.isFinite(logits[i])) return NaN;
    if (i !== token && logits[i] > best) best = logits[i];
  }
  return logits[token] - best;
}

/** The smallest margin over an example's answer. A causal model gets question and right answer in
 * one pass, which is equivalent to greedy decoding; any other model decodes. */
export function answerMargin(model, example, hook) {
  const { config: c } = model, { prompt, answer: rightTokens } = example;
  const tokens = [...prompt, ...rightTokens.slice(0, -1)], V = c.d_vocab;
  const minimum = (a, b) => (Number.isNaN(a) || Number.isNaN(b) ? NaN : Math.min(a, b));
  let smallest = Infinity;
  if ((hook?.config?.mask ?? c.mask) === "causal" && tokens.length <= c.n_ctx) {
    // A hook must see all positions.
    const logits = forward(c, model.weights, tokens, hook,
      hook ? tokens.length : rightTokens.length).data;
    const first = logits.length - rightTokens.length * V;
    rightTokens.forEach((token, i) => {
      const at = first + i * V;
      smallest = minimum(smallest, tokenMargin(logits.subarray(at, at + V), token));
    });
    return smallest;
  }
  for (let i = 0; i < rightTokens.length; i++) {
    smallest = minimum(smallest,
      tokenMargin(nextLogits(model, tokens.slice(0, prompt.length + i), hook), rightTokens[i]));
    if (!(smallest > 0)) return smallest; // wrong from here on
  }
  return smallest;
}

/** The greedy answer of a model, at most as long as the right one. */
function generatedText(model, example, hook) {
  const tokens = [...example.prompt], { stop } = model.task;
  for (let i = 0; i < example.answer.length; i++) {
    const logits = nextLogits(model, tokens, hook);
    if (!logits.every(Number.isFinite)) return "logits not finite";
    tokens.push(logits.indexOf(logits.reduce((a, b) => Math.max(a, b))));
    if (tokens.at(-1) === stop) break;
  }
  return answer(model, tokens.slice(example.prompt.length));
}

/** The score: {right, total, worst, wrong: […], byClass: {name: {right, total}}}. */
export function scoreNow(model, actions = []) {
  const hook = actions.length ? interventionHook(model, actions) : null, wrong = [];
  const byClass = Object.create(null); // a class may have any name
  let right = 0, worst = Infinity, worstText = "";
  for (const example of model.examples) {
    const margin = answerMargin(model, example, hook), isRight = margin > 0;
    const group = (byClass[example.class] ??= { right: 0, total: 0 });
    group.total += 1;
    if (isRight) [right, group.right] = [right + 1, group.right + 1];
    if (!(margin >= worst)) [worst, worstText] = [margin, example.text];
    if (!isRight && wrong.length < MAX_LISTED_ERRORS) {
      const { text, expected, class: name } = example;
      wrong.push({ text, got: generatedText(model, example, hook), expected, margin, class: name });
    }
  }
  return { right, total: model.examples.length, worst, worstText, wrong, byClass };
}

// ── in a worker ────────────────────────────────────────────────────────────────────────────────
// noWorkers: the page may not start workers, as in some notebooks.
let worker = null, lastId = 0, hasReplied = false, noWorkers = false;
const pending = new Map(), sentModels = new Map();

/** The score, computed in a worker that runs the engine's script. */
export function score(model, actions = []) {
  const script = globalThis.document?.getElementById("engine");
  const scoreLocally = () => scoreNow(model, actions);
  if (noWorkers || !script || !globalThis.Worker) return Promise.resolve().then(scoreLocally);
  worker ??= startWorker(script.textContent);
  const id = (lastId += 1), first = !sentModels.has(model.data);
  if (first) sentModels.set(model.data, sentModels.size);
  const changed = Object.entries(model.weights).filter(([name, w]) => w !== model.original[name]);
  return new Promise((resolve, reject) => {
    pending.set(id, { resolve, reject, now: scoreLocally });
    const data = first ? model.data : null;
    worker.postMessage({ id, model: sentModels.get(model.data), data,
      weights: Object.fromEntries(changed), actions });
  });
}

function startWorker(text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  const started = new Worker(address);
  started.onmessage = ({ data: { id, result, problem } }) => {
    hasReplied = true;
    const { resolve, reject } = pending.get(id);
    pending.delete(id);
    if (problem === undefined) resolve(result);
    else reject(new Error(problem));
  };
  started.onerror = (e) => {
    if (hasReplied) return stopWorker(e.message || "the worker ended");
    noWorkers = true; // blocked by a policy: compute here instead
    const requests = [...pending.values()];
    pending.clear();
    for (const { resolve, now: scoreLocally } of requests)
      resolve(Promise.resolve().then(scoreLocally));
  };
  return started;
}

function stopWorker(reason) {
  worker?.terminate();
  worker = null;
  sentModels.clear();
  const requests = [...pending.values()];
  pending.clear();
  for (const { reject } of requests) reject(new Error(`score: ${reason}`));
}

/** Forget all models, here and in the worker. */
export const forgetModels = () => stopWorker("other models were opened");

/** Answer the messages of a page, in a worker. */
export function listen(scope) {
  const models = new Map();
  scope.onmessage = ({ data: { id, model, data, weights, actions } }) => {
    try {
      if (data) models.set(model, readModel(data));
      scope.postMessage({ id, result: scoreNow(withWeights(models.get(model), weights), actions) });
    } catch (e) {
      scope.postMessage({ id, problem: e.message });
    }
  };
}
