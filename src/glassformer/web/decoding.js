// Greedy generation token by token, as generate.py and core/decoding.py do it, without a cache.

import { forward } from "./forward.js";
import { answer, maxNewTokens, read, tokensWithinDomain } from "./parse_input.js";
import { END } from "./vocabulary.js";

const MAX_TOKENS_WITHOUT_TASK = 1024;

/** The two largest of logits [V]: {winner, second, margin}; null if one is not finite. */
export function topTwo(logits) {
  let winner = -1, second = -1;
  for (let i = 0; i < logits.length; i++) {
    if (!Number.isFinite(logits[i])) return null;
    if (winner < 0 || logits[i] > logits[winner]) [winner, second] = [i, winner];
    else if (second < 0 || logits[i] > logits[second]) second = i;
  }
  return { winner, second, margin: second < 0 ? Infinity : logits[winner] - logits[second] };
}

/** The logits after tokens [T]. Beyond n_ctx the context window slides and positions restart at 0.
 * */
export function nextLogits(model, tokens, hook = null) {
  const context = tokens.slice(-model.config.n_ctx);
  const logits = forward(model.config, model.weights, context, hook, hook ? context.length : 1);
  return logits.data.slice(-model.config.d_vocab);
}

/** Generate at most `maxTokens` tokens after a text.
 *
 * steps: [{at, logits, margin, winner, second}] with `at` the position of the new token. */
export function run(model, text, { hook = null, maxTokens = Infinity } = {}) {
  const [question, start] = read(model, text), prompt = [...question, ...start];
  const { task } = model, limit = task ? tokensWithinDomain(task, prompt) : null;
  const wanted = task ? maxNewTokens(task, question) - start.length
    : Math.min(Math.max(1, model.config.n_ctx - prompt.length + 1), MAX_TOKENS_WITHOUT_TASK);
  const budget = Math.min(wanted, limit ?? Infinity, maxTokens);
  const stop = task ? task.stop : model.vocabulary.idOf(END);
  const tokens = [...prompt], steps = [];
  while (steps.length < budget) {
    const logits = nextLogits(model, tokens, hook), top = topTwo(logits);
    if (!top) throw new Error(`logits are not finite after ${tokens.length} tokens`);
    steps.push({ at: tokens.length, logits, ...top });
    tokens.push(top.winner);
    if (top.winner === stop) break;
  }
  return { text, prompt, tokens, steps, output: answer(model, tokens.slice(prompt.length)) };
}
