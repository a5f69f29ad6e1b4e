// The source of a compiled model, and the folded section with its verdict and facts.
import { create } from "../charts.js";
import { subscribe } from "../store.js";
import { elementOf } from "./input.js";

const VERDICT_CLASSES = { true: "right", false: "wrong" };

export function openFacts(column) {
  const { verdict, facts, provenance } = column.base,
    place = elementOf("facts", column).querySelector(".body");
  const since = create("p", { class: "since quiet", hidden: true },
    "This describes the model as opened. It has been changed since.");
  subscribe((c) => (c === column ? [c.live] : []),
    (c) => { if (c === column) since.hidden = c.live === c.base; });
  place.append(since,
    verdict ? create("p", { class: `verdict ${VERDICT_CLASSES[verdict.holds] ?? ""}` },
      verdict.text) : "",
    create("dl", {},
      facts.flatMap(([name, value]) => [create("dt", {}, name), create("dd", {}, value)])));
  const code = elementOf("source", column), text = provenance.compiled?.source;
  code.hidden = typeof text !== "string";
  if (!code.hidden) code.querySelector(".body").append(create("pre", { tabindex: 0 }, text));
}
