// The page's examples, scored after every change: number right, by class, and the wrong ones.
import { barChart, formatInteger, formatNumber, formatPercent, create,
  visibleToken } from "../charts.js";
import { subscribe, setInput } from "../store.js";
import { exampleScope, elementId, elementOf } from "./input.js";

const MAX_SHOWN_ERRORS = 60;

export function openExamples() {
  subscribe((c) => [c.score], drawExamples, { soon: true });
}

function drawExamples(column) {
  const { score, base } = column, place = elementOf("examples", column);
  place.hidden = !base.examples?.length;
  const body = place.querySelector(".body");
  if (place.hidden || !score)
    return body.replaceChildren(create("p", { class: "quiet" }, "Scoring the examples …"));
  if (score.problem) return body.replaceChildren(create("p", { class: "quiet" }, score.problem));
  const all = score.right === score.total, wrong = score.wrong.slice(0, MAX_SHOWN_ERRORS);
  const classes = classesOf(score);
  body.replaceChildren(
    create("p", { class: "quiet" },
      `${formatInteger(score.right)} of ${formatInteger(score.total)} right; worst margin `
        + `${formatNumber(score.worst)}.`
        + (base.whole ? " These are all inputs."
            : ` These are ${exampleScope(base)} of every class, not a share of all inputs.`)
        + (all ? " Ablate a component or edit a weight to see which ones break."
            : " Click one to load it.")),
    classes.length > 1 && !all
      ? barChart(classes.map(([name, right, n]) => ({ name: String(name), value: n ? right / n : 0,
        text: right === n ? formatInteger(n)
          : `${formatPercent(right / n)} of ${formatInteger(n)}` })),
        { maximum: 1, signed: false, label: "Right by class" }) : "",
    create("ol",
      { id: elementId("wrong", column), class: "failures", "aria-label": "Wrong examples" },
      wrong.map((w) => create("li", {},
        create("button", { type: "button", onclick: () => load(column, w.text) },
          visibleToken(w.text)),
        create("span", {}, "got ", create("b", {}, visibleToken(w.got) || "nothing"), ", expected ",
          create("b", {}, visibleToken(w.expected)),
          create("small", {}, ` margin ${formatNumber(w.margin, 3)}`))))),
    score.wrong.length > MAX_SHOWN_ERRORS || score.total - score.right > wrong.length
      ? create("p", { class: "quiet" },
        `and ${formatInteger(score.total - score.right - wrong.length)} more`) : "");
}

/** [class, right, total], sorted. */
function classesOf({ byClass }) {
  return Object.entries(byClass).map(([name, { right, total }]) => [name, right, total])
    .sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
}

function load(column, text) {
  setInput(column.group, text);
  document.getElementById("bar").scrollIntoView({ block: "start" });
  elementOf("model", column).scrollIntoView({ block: "start" });
}
