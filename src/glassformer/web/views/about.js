// The source that a model was compiled from; and at the end, folded, the verdict and who made the model.
import { make } from "../charts.js";
import { follow } from "../store.js";
import { partOf } from "./input.js";

export function openFacts(column) {
  const { verdict, facts, provenance } = column.base, place = partOf("facts", column).querySelector(".body");
  const since = make("p", { class: "since quiet", hidden: true }, "All of this is of the model as it was opened: it was changed since.");
  follow((c) => (c === column ? [c.live] : []), (c) => { if (c === column) since.hidden = c.live === c.base; });
  place.append(since,
    verdict ? make("p", { class: `verdict ${verdict.holds === true ? "right" : verdict.holds === false ? "wrong" : ""}` }, verdict.text) : "",
    make("dl", {}, facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])));
  const code = partOf("source", column), text = provenance.compiled?.source;
  code.hidden = typeof text !== "string";
  if (!code.hidden) code.querySelector(".body").append(make("pre", { tabindex: 0 }, text));
}
