// Token by token: what generate.py and decoding.py do with a text, greedily and without a cache.

import { forward } from "./forward.js";
import { answer, read, room, steps } from "./parse_input.js";

const UNASKED = 1024; // tokens that a model without a task says

/** The best and the second of logits [V]: {winner, second, margin}; null if one is not finite. */
export function best(logits) {
  let winner = -1, second = -1;
  for (let i = 0; i < logits.length; i++) {
    if (!Number.isFinite(logits[i])) return null;
    if (winner < 0 || logits[i] > logits[winner]) [winner, second] = [i, winner];
    else if (second < 0 || logits[i] > logits[second]) second = i;
  }
  return { winner, second, margin: second < 0 ? Infinity : logits[winner] - logits[second] };
}

/** The logits of what comes after tokens [T]; past the block a window slides: positions anew. */
export function next(model, tokens, tap = null) {
  const read = tokens.slice(-model.config.n_ctx);
  const logits = forward(model.config, model.weights, read, tap, tap ? read.length : 1);
  return logits.data.slice(-model.config.d_vocab);
}

/** What a model says after a text.
 *
 * steps: [{at, logits, margin, winner, second}], `at` being the position that is written. `stopped`:
 * why no more was said, where there was more; `most`: no more tokens than these. */
export function run(model, text, { tap = null, most = Infinity } = {}) {
  const [question, start] = read(model, text), prompt = [...question, ...start];
  const { task } = model, limit = task ? room(task, prompt) : null;
  const wanted = task ? steps(task, question) - start.length
    : Math.min(Math.max(1, model.config.n_ctx - prompt.length + 1), UNASKED);
  const n = Math.min(wanted, limit ?? Infinity), stop = task ? task.stop : null;
  const tokens = [...prompt], done = [];
  while (done.length < Math.min(n, most)) {
    const logits = next(model, tokens, tap), found = best(logits);
    if (!found) throw new Error(`decoding — logits are not finite after ${tokens.length} tokens`);
    done.push({ at: tokens.length, logits, ...found });
    tokens.push(found.winner);
    if (found.winner === stop) break;
  }
  const said = tokens.slice(prompt.length);
  return {
    text, prompt, tokens, steps: done, output: answer(model, said),
    stopped: why(model, tokens, said, limit, wanted > limit),
  };
}

/** Why no more was said than this, if there was more to say. */
function why(model, tokens, said, limit, far) {
  const stop = model.task?.stop ?? null;
  if (limit === null || said.length !== limit || said.includes(stop) || !(far || stop !== null)) return "";
  const known = model.provenance.compiled ? "proved" : "known of what is right";
  const many = (tokens.length - 2).toLocaleString("en");
  return `${stop !== null ? "the answer is cut off: " : ""}stopped after ${many} tokens, beyond which nothing is ${known}`;
}
