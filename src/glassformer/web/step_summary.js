// One sentence about a step: which tokens the selected head reads, with their place in the task's
// format or the head's label; for a compiled model, the values it writes.

import { headPart, labelOf } from "./components.js";
import { joinWords } from "./vocabulary.js";
import { slotContents, logitContributions, sublayersOf } from "./stream.js";

const MIN_ATTENTION = 0.01; // smaller attention is not mentioned
const EVEN_SPREAD = 0.02; // shares closer than this count as equal
const MAX_NAMED_TOKENS = 6;
const DIGIT_NAMES = ["ones", "tens", "hundreds", "thousands"];


/** The head [layer, index] that adds most to the margin at a step, or null. */
export function mostInfluentialHead(model, cache, step) {
  const at = cache.logits.shape[0] - 1;
  const [first,
    second] =
    [step.winner, step.second].map((token) => logitContributions(model, cache, at,
      Math.max(0, token)));
  const lead =
    first.map(({ part, amount }, i) => ({ part, amount: amount - (second[i]?.amount ?? 0) }));
  const heads =
    lead.filter(({ part }) => /^head \d/.test(part)).sort((a, b) => b.amount - a.amount);
  return heads.length ? heads[0].part.slice(5).split(".").map(Number) : null;
}

/** "`ahead` reads 3 and 6, a and b of the column to write; then comes 9". `head`: [layer, index],
 * by default the most influential one. `tokens`: those read. */
export function summarizeStep(model, cache, step, head = null, tokens = null) {
  const { config: c } = model, read = tokens ?? step.read ?? null;
  const chosen = head ?? mostInfluentialHead(model, cache, step);
  if (!c.n_layers || !chosen)
    return withNextToken(model, step, "No head attends: the current token alone decides");
  const [layer, index] = chosen, pattern = cache[`blocks.${layer}.attn.hook_pattern`];
  const [, T, S] = pattern.shape, row = (index * T + T - 1) * S;
  const weights = Array.from(pattern.data.subarray(row, row + S));
  const headLabel = labelOf(model, headPart(layer, index)), [name, about] = splitLabel(headLabel);
  const headText = headLabel ? `\`${name}\`` : headPart(layer, index);
  const reads =
    weights.map((weight, s) => ({ s, weight })).filter(({ weight }) => weight >= MIN_ATTENTION)
    .sort((a, b) => b.weight - a.weight);
  const readText = describeReads(model, reads, S, tokenTexts(model, cache, read));
  const placeText = about
    || (model.source ? describeWrittenSlots(model, cache, read, layer, headLabel)
        : describePlaces(model, reads, S));
  return withNextToken(model, step,
    `${headText} reads ${readText}${placeText ? `, ${placeText}` : ""}`);
}

const withNextToken =
  (model, step, text) => `${text}; then comes ${model.vocabulary.text(step.winner)}`;

/** The name and the description of a label "name: description". */
function splitLabel(text) {
  const at = text.indexOf(": ");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 2)];
}

/** A function from a position to the text of its token. */
function tokenTexts(model, cache, tokens) {
  if (tokens) return (s) => model.vocabulary.text(tokens[s]);
  const W = model.weights["embed.W_E"], x = cache.hook_embed, D = W.shape[1];
  return (s) => {
    for (let v = 0; v < W.shape[0]; v++) {
      let same = true;
      for (let d = 0; d < D && same; d++) same = W.data[v * D + d] === x.data[s * D + d];
      if (same) return model.vocabulary.text(v);
    }
    return `position ${s}`;
  };
}

/** The tokens read: in text order if their shares are equal, else with shares. */
function describeReads(model, reads, S, word) {
  if (!reads.length) return "all tokens a little";
  if (reads[0].weight - reads.at(-1).weight < EVEN_SPREAD) {
    if (reads.length === S && S > MAX_NAMED_TOKENS) return `all ${S} tokens equally`;
    const texts = consecutiveRuns(reads.map(({ s }) => s).sort((a, b) => a - b)).flatMap(
      (run) => (run.length > 2 ? [run.map(word).join(model.vocabulary.sep)] : run.map(word)));
    return texts.length > MAX_NAMED_TOKENS ? `${reads.length} of ${S} tokens equally`
      : joinWords(texts);
  }
  const named = reads.slice(0, MAX_NAMED_TOKENS), rest = reads.length - named.length;
  const words = named.map(({ s, weight }) => `${word(s)} (${Math.round(100 * weight)} %)`);
  return joinWords([...words, ...(rest ? [`${rest} more`] : [])]);
}

/** Sorted positions as runs without gaps. */
function consecutiveRuns(places) {
  const out = [];
  for (const s of places) {
    if (out.length && out.at(-1).at(-1) === s - 1) out.at(-1).push(s);
    else out.push([s]);
  }
  return out;
}

/** The places read, by the task's format: "the tens of a and b", "all of a and b". */
function describePlaces(model, reads, S) {
  const form = model.task?.format;
  if (!form?.padded || S > form.spots.length) return "";
  const spots = reads.map(({ s }) => form.spots[s]).filter(([name]) => name !== "token");
  const names = [...new Set(spots.map(([name]) => name))].sort(),
    digits = (name) => form.spots.filter(([n]) => n === name).length;
  if (!names.length || names.length > MAX_NAMED_TOKENS) return "";
  if (names.every((name) => digits(name) === 1))
    return reads.length === spots.length ? joinWords(names) : "";
  if (names.every((name) => spots.filter(([n]) => n === name).length === digits(name)))
    return `all of ${joinWords(names)}`;
  if (reads.length !== spots.length) return "";
  const columns = [...new Set(spots.map(([, digit]) => digit))].sort((a, b) => b - a);
  if (columns.length * names.length !== spots.length) return "";
  const digitNames = columns.map((digit) => DIGIT_NAMES[digit] ?? `digit ${digit}`);
  return `the ${joinWords(digitNames)} of ${joinWords(names)}`;
}

/** The values that a compiled head writes, after its layer: "so `after` is True". */
function describeWrittenSlots(model, cache, tokens, layer, headLabel) {
  if (!headLabel || !tokens) return "";
  const names = headLabel.split(" and "),
    sublayers = sublayersOf(model).filter((slot) => slot.endsWith(` ${layer}`));
  const last = tokens.length - 1;
  const written = slotContents(model, cache, tokens).filter((slot) => slot.position === last
      && slot.sublayer === sublayers.at(-1) && slot.kind === "value"
      && (names.includes(slot.slot) || slot.slot === headLabel));
  return written.length
    ? `so ${joinWords(written.map((slot) => `\`${slot.slot}\` is ${slot.value}`))}` : "";
}
