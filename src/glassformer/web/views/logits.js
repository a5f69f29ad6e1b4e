// The logits of the next token, and the margin by component.
import { barChart, formatInteger, formatNumber, create } from "../charts.js";
import { openComponentMenu, componentName } from "./interventions.js";
import { update, subscribe } from "../store.js";
import { elementId, elementOf, tokenText } from "./input.js";
import { logitContributions } from "../stream.js";

const MAX_SHOWN_LOGITS = 8;

export function openLogits() {
  subscribe((c) => [c.step, c.rival, c.allLogits], drawLogits, { soon: true });
  subscribe((c) => [c.cache, c.rival], drawContributions, { soon: true });
}

/** The token compared with the winner: the selected one, or else the second. */
export const comparedToken =
  (column) =>
  (column.rival !== undefined && column.rival !== column.step.winner ? column.rival
      : column.step.second);

function drawLogits(column) {
  const place = elementOf("logits", column).querySelector(".body"), { step } = column;
  if (!step)
    return place.replaceChildren(create("p", { class: "quiet" }, "No token follows this text."));
  const best = step.logits[step.winner],
    order = Array.from(step.logits.keys()).sort((a, b) => step.logits[b] - step.logits[a] || a - b);
  const shown = order.slice(0, column.allLogits ? order.length : MAX_SHOWN_LOGITS),
    rival = comparedToken(column);
  if (rival >= 0 && !shown.includes(rival)) shown.push(rival);
  const rows =
    shown.map((v) =>
        ({ name: tokenText(column, v), value: step.logits[v] - best, link: `logit ${v}`,
          strong: v === step.winner,
          id: elementId(`logit-${v}`, column),
          act: () => update(() => { column.rival = v === step.winner ? undefined : v; }),
          text: v === step.winner ? formatNumber(best) : formatNumber(step.logits[v] - best),
          title: `logit ${formatNumber(step.logits[v])}` }));
  const bars = barChart(rows, { label: "Logits relative to the winner" });
  shown.forEach((v, i) => bars.children[i].classList.toggle("rival", v === rival));
  place.replaceChildren(create("p", { class: "quiet" },
    "The winner's logit, and the distance of the others to it."), bars,
    order.length > MAX_SHOWN_LOGITS
      ? create("button", { type: "button", class: "plain", id: elementId("all-logits", column),
        onclick: () => update(() => { column.allLogits = !column.allLogits; }) },
        column.allLogits ? "show fewer" : `show all ${formatInteger(order.length)}`) : "");
}

/** a − b, or 0 within rounding error. */
const subtractExact =
  (a, b) => (Math.abs(a - b) <= 1e-12 * Math.max(Math.abs(a), Math.abs(b)) ? 0 : a - b);

function drawContributions(column) {
  const place = elementOf("sources", column).querySelector(".body"), { step, cache, live } = column;
  if (!step || !cache || cache.arrays.problem || step.second < 0) return place.replaceChildren();
  const rival = comparedToken(column);
  let contributions;
  try {
    const contributionsTo = (token) => logitContributions(live, cache.arrays, cache.last, token);
    const rivalAmounts = new Map(contributionsTo(rival).map(({ part, amount }) => [part, amount]));
    contributions =
      contributionsTo(step.winner)
      .map(({ part, amount }) =>
          ({ part, amount: subtractExact(amount, rivalAmounts.get(part) ?? 0) }));
  } catch (e) {
    return place.replaceChildren(create("p", { class: "quiet" }, e.message));
  }
  if (!contributions.length) return place.replaceChildren(create("p", { class: "quiet" },
    "This model has post-norms, so its margin is not a sum over components."));
  const largest = Math.max(...contributions.map(({ amount }) => Math.abs(amount)));
  const rows =
    contributions.map(({ part, amount }) => ({ name: componentName(column, part), link: part,
      value: Math.abs(amount) > 1e-12 * largest ? amount : 0,
      id: elementId(`source-${part.replace(/[^\w]+/g, "-")}`, column),
      act: /^(head|mlp|attention) \d/.test(part) && !part.includes("bias")
        ? (e) => openComponentMenu(column, part, e.currentTarget) : null }));
  const total = step.logits[step.winner] - step.logits[rival];
  place.replaceChildren(create("p", { class: "quiet" },
    `${tokenText(column, step.winner)} leads ${tokenText(column, rival)} by `
      + `${formatNumber(total)}, the sum of these contributions.`),
    barChart(rows, { signed: true, label: "Contributions to the margin" }));
}
