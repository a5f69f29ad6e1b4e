// What comes next, as the gap to the winner; and where the margin comes from, part by part.
import { barRows, grouped, inDigits, make } from "../charts.js";
import { partMenu, partName } from "./interventions.js";
import { change, follow } from "../store.js";
import { idOf, partOf, wordOf } from "./input.js";
import { sources } from "../stream.js";

const SHOWN = 8;

export function openLogits() {
  follow((c) => [c.step, c.rival, c.allLogits], drawLogits, { soon: true });
  follow((c) => [c.cache, c.rival], drawSources, { soon: true });
}

/** The token that the winner is set against: the one chosen, or else the second. */
export const rivalOf = (column) => (column.rival !== undefined && column.rival !== column.step.winner ? column.rival : column.step.second);

function drawLogits(column) {
  const place = partOf("logits", column).querySelector(".body"), { step } = column;
  if (!step) return place.replaceChildren(make("p", { class: "quiet" }, "Nothing is written after this text."));
  const best = step.logits[step.winner], order = Array.from(step.logits.keys()).sort((a, b) => step.logits[b] - step.logits[a] || a - b);
  const shown = order.slice(0, column.allLogits ? order.length : SHOWN), rival = rivalOf(column);
  if (rival >= 0 && !shown.includes(rival)) shown.push(rival);
  const rows = shown.map((v) => ({ name: wordOf(column, v), value: step.logits[v] - best, link: `logit ${v}`, strong: v === step.winner,
    id: idOf(`logit-${v}`, column), act: () => change(() => { column.rival = v === step.winner ? undefined : v; }),
    text: v === step.winner ? inDigits(best) : inDigits(step.logits[v] - best),
    title: `logit ${inDigits(step.logits[v])}` }));
  const bars = barRows(rows, { label: "Logits as the gap to the winner" });
  shown.forEach((v, i) => bars.children[i].classList.toggle("rival", v === rival));
  place.replaceChildren(make("p", { class: "quiet" }, "Next token: the winner's logit, and how far behind the others are."), bars,
    order.length > SHOWN ? make("button", { type: "button", class: "plain", id: idOf("all-logits", column),
      onclick: () => change(() => { column.allLogits = !column.allLogits; }) },
    column.allLogits ? "only the best" : `all ${grouped(order.length)}`) : "");
}

/** a − b, or 0 if that is no more than what rounding leaves. */
const swept = (a, b) => (Math.abs(a - b) <= 1e-12 * Math.max(Math.abs(a), Math.abs(b)) ? 0 : a - b);

function drawSources(column) {
  const place = partOf("sources", column).querySelector(".body"), { step, cache, live } = column;
  if (!step || !cache || cache.arrays.problem || step.second < 0) return place.replaceChildren();
  const rival = rivalOf(column);
  let found;
  try {
    const to = (token) => sources(live, cache.arrays, cache.last, token);
    const against = new Map(to(rival).map(({ part, amount }) => [part, amount]));
    found = to(step.winner).map(({ part, amount }) => ({ part, amount: swept(amount, against.get(part) ?? 0) }));
  } catch (e) {
    return place.replaceChildren(make("p", { class: "quiet" }, e.message));
  }
  if (!found.length) return place.replaceChildren(make("p", { class: "quiet" },
    "The norms of this model stand after the sums, so its margin is no plain sum of parts."));
  const most = Math.max(...found.map(({ amount }) => Math.abs(amount)));
  const rows = found.map(({ part, amount }) => ({ name: partName(column, part), link: part,
    value: Math.abs(amount) > 1e-12 * most ? amount : 0, id: idOf(`source-${part.replace(/[^\w]+/g, "-")}`, column),
    act: /^(head|mlp|attention) \d/.test(part) && !part.includes("bias") ? (e) => partMenu(column, part, e.currentTarget) : null }));
  const total = step.logits[step.winner] - step.logits[rival];
  place.replaceChildren(make("p", { class: "quiet" },
    `What puts ${wordOf(column, step.winner)} ahead of ${wordOf(column, rival)} by ${inDigits(total)}: the shares add up to it.`),
  barRows(rows, { signed: true, label: "Shares of the margin" }));
}
