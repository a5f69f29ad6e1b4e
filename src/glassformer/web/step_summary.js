// What is happening at a step, in one sentence: what the chosen head reads, in the words of its label,
// of the task's format and of the tokens; for a compiled model, what it makes of it.

import { headPart, label } from "./components.js";
import { slots, sources, sublayersOf } from "./stream.js";

const READ = 0.01; // attention below this is not worth a word
const EVEN = 0.02; // shares that differ by less are alike
const MOST = 6; // tokens that are named one by one
const PLACES = ["ones", "tens", "hundreds", "thousands"];

export const listed = (words) => (words.length < 2 ? words.join("")
  : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`);

/** The head that speaks most for the winner over the second at a step: [layer, index], or null. */
export function loudest(model, cache, step) {
  const at = cache.logits.shape[0] - 1;
  const [first, second] = [step.winner, step.second].map((token) => sources(model, cache, at, Math.max(0, token)));
  const lead = first.map(({ part, amount }, i) => ({ part, amount: amount - (second[i]?.amount ?? 0) }));
  const heads = lead.filter(({ part }) => /^head \d/.test(part)).sort((a, b) => b.amount - a.amount);
  return heads.length ? heads[0].part.slice(5).split(".").map(Number) : null;
}

/** "`ahead` reads 3 and 6, a and b of the column to write". `head`: [layer, index]; without one, the
 * head that matters most. `tokens`: what was read; without, they are taken from the run's step. */
export function sentence(model, cache, step, head = null, tokens = null) {
  const { config: c } = model, read = tokens ?? step.read ?? null;
  const chosen = head ?? loudest(model, cache, step);
  if (!c.n_layers || !chosen) return ending(model, step, "No head reads anything: the token alone decides");
  const [layer, index] = chosen, pattern = cache[`blocks.${layer}.attn.hook_pattern`];
  const [, T, S] = pattern.shape, row = (index * T + T - 1) * S;
  const weights = Array.from(pattern.data.subarray(row, row + S));
  const given = label(model, headPart(layer, index)), [name, about] = parted(given);
  const who = given ? `\`${name}\`` : headPart(layer, index);
  const found = weights.map((weight, s) => ({ s, weight })).filter(({ weight }) => weight >= READ)
    .sort((a, b) => b.weight - a.weight);
  const what = inWords(model, found, S, wordsOf(model, cache, read));
  const where = about || (model.source ? becomes(model, cache, read, layer, given) : places(model, found, S));
  return ending(model, step, `${who} reads ${what}${where ? `, ${where}` : ""}`);
}

const ending = (model, step, text) => `${text}; then comes ${model.vocabulary.text(step.winner)}`;

/** A label's name, and what it says after a colon. */
function parted(given) {
  const at = given.indexOf(": ");
  return at < 0 ? [given, ""] : [given.slice(0, at), given.slice(at + 2)];
}

/** The texts of the tokens that were read, by position. */
function wordsOf(model, cache, tokens) {
  if (tokens) return (s) => model.vocabulary.text(tokens[s]);
  const W = model.weights["embed.W_E"], x = cache.hook_embed, D = W.shape[1]; // whose embedding is it?
  return (s) => {
    for (let v = 0; v < W.shape[0]; v++) {
      let same = true;
      for (let d = 0; d < D && same; d++) same = W.data[v * D + d] === x.data[s * D + d];
      if (same) return model.vocabulary.text(v);
    }
    return `position ${s}`;
  };
}

/** What was read: a few tokens, in the order of the text if all are read alike, else with shares. */
function inWords(model, found, S, word) {
  if (!found.length) return "everything a little";
  if (found[0].weight - found.at(-1).weight < EVEN) {
    if (found.length === S && S > MOST) return `all ${S} tokens alike`;
    const texts = stretches(found.map(({ s }) => s).sort((a, b) => a - b)).flatMap(
      (run) => (run.length > 2 ? [run.map(word).join(model.vocabulary.sep)] : run.map(word)));
    return texts.length > MOST ? `${found.length} of ${S} tokens alike` : listed(texts);
  }
  const named = found.slice(0, MOST), more = found.length - named.length;
  const words = named.map(({ s, weight }) => `${word(s)} (${Math.round(100 * weight)} %)`);
  return listed([...words, ...(more ? [`${more} more`] : [])]);
}

/** Positions in order, as runs without a gap. */
function stretches(places) {
  const out = [];
  for (const s of places) {
    if (out.length && out.at(-1).at(-1) === s - 1) out.at(-1).push(s);
    else out.push([s]);
  }
  return out;
}

/** Where that stands, in the words of the task's format: "the tens of a and b", "all of a and b". */
function places(model, found, S) {
  const form = model.task?.format;
  if (!form?.padded || S > form.spots.length) return "";
  const spots = found.map(({ s }) => form.spots[s]).filter(([name]) => name !== "token");
  const names = [...new Set(spots.map(([name]) => name))].sort(), digits = (name) => form.spots.filter(([n]) => n === name).length;
  if (!names.length || names.length > MOST) return "";
  if (names.every((name) => digits(name) === 1)) return found.length === spots.length ? listed(names) : "";
  if (names.every((name) => spots.filter(([n]) => n === name).length === digits(name))) return `all of ${listed(names)}`;
  if (found.length !== spots.length) return "";
  const columns = [...new Set(spots.map(([, digit]) => digit))].sort((a, b) => b - a);
  if (columns.length * names.length !== spots.length) return "";
  return `the ${listed(columns.map((digit) => PLACES[digit] ?? `digit ${digit}`))} of ${listed(names)}`;
}

/** What the slot holds that a compiled head writes, after its layer: "so `after` is True". */
function becomes(model, cache, tokens, layer, given) {
  if (!given || !tokens) return "";
  const names = given.split(" and "), done = sublayersOf(model).filter((each) => each.endsWith(` ${layer}`));
  const last = tokens.length - 1;
  const held = slots(model, cache, tokens).filter((each) => each.position === last
    && each.sublayer === done.at(-1) && each.kind === "value" && (names.includes(each.slot) || each.slot === given));
  return held.length ? `so ${listed(held.map((each) => `\`${each.slot}\` is ${each.value}`))}` : "";
}
