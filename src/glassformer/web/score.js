// Is it right, and by how much? The page's examples, as evaluation.py judges them: the margin of an
// answer token is its logit minus the best other, and 0 or less is wrong, as is what is not finite.

import { forward } from "./forward.js";
import { next } from "./decoding.js";
import { readModel, withWeights } from "./model.js";
import { answer } from "./parse_input.js";
import { tapOf } from "./components.js";

const LISTED = 100; // wrong examples that are told one by one

/** The margin of a token among logits [V]; NaN if one is not finite. */
function lead(logits, token) {
  let other = -Infinity;
  for (let i = 0; i < logits.length; i++) {
    if (!Number.isFinite(logits[i])) return NaN;
    if (i !== token && logits[i] > other) other = logits[i];
  }
  return logits[token] - other;
}

/** The smallest margin over an example's answer. A causal model is given question and answer at once:
 * it decodes them if and only if each next token leads. Any other decodes. */
export function marginOf(model, example, tap) {
  const { config: c } = model, { prompt, answer: wanted } = example;
  const tokens = [...prompt, ...wanted.slice(0, -1)], V = c.d_vocab;
  const worse = (a, b) => (Number.isNaN(a) || Number.isNaN(b) ? NaN : Math.min(a, b));
  let least = Infinity;
  if ((tap?.config?.mask ?? c.mask) === "causal" && tokens.length <= c.n_ctx) {
    // Who looks at all that flows sees all positions.
    const logits = forward(c, model.weights, tokens, tap, tap ? tokens.length : wanted.length).data;
    const first = logits.length - wanted.length * V;
    wanted.forEach((token, i) => {
      const at = first + i * V;
      least = worse(least, lead(logits.subarray(at, at + V), token));
    });
    return least;
  }
  for (let i = 0; i < wanted.length; i++) {
    least = worse(least, lead(next(model, tokens.slice(0, prompt.length + i), tap), wanted[i]));
    if (!(least > 0)) return least; // what follows its first wrong token is as wrong
  }
  return least;
}

/** What a model really says, as many tokens as the right answer has. */
function said(model, example, tap) {
  const tokens = [...example.prompt], { stop } = model.task;
  for (let i = 0; i < example.answer.length; i++) {
    const logits = next(model, tokens, tap);
    if (!logits.every(Number.isFinite)) return "no finite number";
    tokens.push(logits.indexOf(logits.reduce((a, b) => Math.max(a, b))));
    if (tokens.at(-1) === stop) break;
  }
  return answer(model, tokens.slice(example.prompt.length));
}

/** The score, here and now: {right, total, worst, wrong: […], byClass: {name: {right, total}}}. */
export function scoreNow(model, actions = []) {
  const tap = actions.length ? tapOf(model, actions) : null, wrong = [];
  const byClass = Object.create(null); // a class may have any name
  let right = 0, worst = Infinity, worstText = "";
  for (const example of model.examples) {
    const margin = marginOf(model, example, tap), good = margin > 0;
    const group = (byClass[example.class] ??= { right: 0, total: 0 });
    group.total += 1;
    if (good) [right, group.right] = [right + 1, group.right + 1];
    if (!(margin >= worst)) [worst, worstText] = [margin, example.text];
    if (!good && wrong.length < LISTED) {
      const { text, expected, class: name } = example;
      wrong.push({ text, got: said(model, example, tap), expected, margin, class: name });
    }
  }
  return { right, total: model.examples.length, worst, worstText, wrong, byClass };
}

// ── in a worker ────────────────────────────────────────────────────────────────────────────────
let worker = null, asked = 0, heard = false, alone = false; // alone: no worker may be had here, as in some notebooks
const waiting = new Map(), known = new Map();

/** The same, in a worker made from the engine's own text: the page stays free. */
export function score(model, actions = []) {
  const script = globalThis.document?.getElementById("engine");
  const now = () => scoreNow(model, actions);
  if (alone || !script || !globalThis.Worker) return Promise.resolve().then(now);
  worker ??= hire(script.textContent);
  const id = (asked += 1), first = !known.has(model.data);
  if (first) known.set(model.data, known.size);
  const changed = Object.entries(model.weights).filter(([name, w]) => w !== model.original[name]);
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject, now });
    const data = first ? model.data : null;
    worker.postMessage({ id, model: known.get(model.data), data, weights: Object.fromEntries(changed), actions });
  });
}

function hire(text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  const found = new Worker(address);
  found.onmessage = ({ data: { id, result, problem } }) => {
    heard = true;
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (problem === undefined) resolve(result);
    else reject(new Error(problem));
  };
  found.onerror = (e) => {
    if (heard) return dismiss(e.message || "the worker ended"); // whoever waits is told; the next question hires anew
    alone = true; // its page's policy lets none begin: what was asked is done here
    const left = [...waiting.values()];
    waiting.clear();
    for (const { resolve, now } of left) resolve(Promise.resolve().then(now));
  };
  return found;
}

function dismiss(why) {
  worker?.terminate();
  worker = null;
  known.clear();
  const left = [...waiting.values()];
  waiting.clear();
  for (const { reject } of left) reject(new Error(`the score — ${why}`));
}

/** Other models are to be opened: none is kept, here or in the worker. */
export const forgetModels = () => dismiss("other models were opened");

/** What the worker does with a message. */
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
