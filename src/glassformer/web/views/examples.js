// The page's examples, scored after every deed: how many are right, class by class, and those that are not.
import { barRows, grouped, inDigits, inPercent, make, visible } from "../charts.js";
import { follow, type } from "../store.js";
import { among, idOf, partOf } from "./input.js";

const SHOWN = 60;

export function openExamples() {
  follow((c) => [c.score], drawExamples, { soon: true });
}

function drawExamples(column) {
  const { score, base } = column, place = partOf("examples", column);
  place.hidden = !base.examples?.length;
  const body = place.querySelector(".body");
  if (place.hidden || !score) return body.replaceChildren(make("p", { class: "quiet" }, "Trying the examples …"));
  if (score.problem) return body.replaceChildren(make("p", { class: "quiet" }, score.problem));
  const all = score.right === score.total, wrong = score.wrong.slice(0, SHOWN);
  const classes = classesOf(score);
  body.replaceChildren(
    make("p", { class: "quiet" }, `${grouped(score.right)} of ${grouped(score.total)} right; the worst margin is ${inDigits(score.worst)}.`
      + (base.whole ? " These are all inputs there are." : ` These are ${among(base)} of every class: no share of all inputs.`)
      + (all ? ` Silence a part or edit a weight, and those that break are listed here${classes.length > 1 ? `, with the ${classes.length} classes that they are of` : ""}.`
        : " Click one to load it.")),
    classes.length > 1 && !all ? barRows(classes.map(([name, right, n]) => ({ name: String(name), value: n ? right / n : 0,
      text: right === n ? grouped(n) : `${inPercent(right / n)} of ${grouped(n)}` })), { most: 1, signed: false, label: "Right, by class" }) : "",
    make("ol", { id: idOf("wrong", column), class: "failures", "aria-label": "Examples that are wrong" }, wrong.map((w) => make("li", {},
      make("button", { type: "button", onclick: () => load(column, w.text) }, visible(w.text)),
      make("span", {}, "says ", make("b", {}, visible(w.got) || "nothing"), ", right is ", make("b", {}, visible(w.expected)),
        make("small", {}, ` margin ${inDigits(w.margin, 3)}`))))),
    score.wrong.length > SHOWN || score.total - score.right > wrong.length
      ? make("p", { class: "quiet" }, `and ${grouped(score.total - score.right - wrong.length)} more`) : "");
}

/** [name, right, of how many], whichever way they are told. */
function classesOf({ byClass }) {
  const found = Array.isArray(byClass) ? byClass : Object.entries(byClass ?? {});
  return found.map((each) => {
    if (!Array.isArray(each)) return [each.class ?? each.name, each.right, each.total];
    const [name, told] = each;
    return Array.isArray(told) ? [name, told[0], told[1]] : [name, told.right, told.total];
  }).filter(([, , n]) => n).sort(([a], [b]) => String(a).localeCompare(String(b), "en", { numeric: true }));
}

function load(column, text) {
  type(column.group, text);
  document.getElementById("bar").scrollIntoView({ block: "start" });
  partOf("model", column).scrollIntoView({ block: "start" });
}
