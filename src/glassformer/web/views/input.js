// The fixed bar at the top: the input, the steps, and for each model the answer, margin and score.
import { formatInteger, formatNumber, formatPercent, create, visibleToken } from "../charts.js";
import { update, columns, subscribe, inputsOf, isScored, maxSteps, state,
  setInput } from "../store.js";

/** The id of a column's element: plain for the first column, numbered for the others. */
export const elementId = (name, column) => (column.m ? `${name}-${column.m}` : name);
export const elementOf = (name, column) => document.getElementById(elementId(name, column));
/** The width of a section, measured once per layout of the page, as measuring forces a layout. */
export function widthOf(name, column) {
  const widths = (column.sectionWidths ??= {});
  if (widths[name]?.layout !== state.layout)
    widths[name] = { layout: state.layout, width: elementOf(name, column).clientWidth };
  return widths[name].width || 500;
}

export const tokenText = (column, token) => visibleToken(column.live.vocabulary.text(token));

export function openInput() {
  const walk = document.getElementById("walk");
  for (const column of columns) {
    const cell = create("div", { class: "result", id: elementId("result", column) },
      columns.length > 1
        ? create("p", { class: "title" },
          create("a", { href: `#${elementId("model", column)}`, onclick: (e) => {
            e.preventDefault();
            elementOf("model", column).scrollIntoView({ block: "start" });
          } }, column.base.title)) : "",
      column.group === column.m && column.m ? inputBox(column) : "",
      create("p", { class: "answer-line" },
        create("span", { class: "gives", "aria-hidden": "true" }, "→"),
        create("output",
          { id: elementId("answer", column), class: "answer", "aria-live": "polite",
            for: "input" }),
        create("span", { id: elementId("was", column), class: "was" })),
      create("p", { class: "figures" }, create("span", { id: elementId("margin", column) }),
        create("a", {
          id: elementId("score", column), href: `#${elementId("examples", column)}`,
          onclick: (e) => {
            e.preventDefault();
            elementOf("examples", column).scrollIntoView({ block: "center" });
      } })),
      create("p", { id: elementId("problem", column), class: "problem", role: "alert" }));
    document.getElementById("answers").append(cell);
  }
  document.getElementById("input-form").prepend(inputBox(columns[0]));
  document.getElementById("input-form").onsubmit = (e) => { e.preventDefault(); play(true); };
  const button = (id, sign, name, act) => create("button",
    { id, type: "button", "aria-label": name, title: name, onclick: act }, sign);
  walk.append(button("step-back", "‹", "Previous token", () => stepBy(-1)),
    button("play", "▶", "Play the answer token by token", () => play(!state.playing, true)),
    button("step-forward", "›", "Next token", () => stepBy(1)),
    create("output", { id: "step", "aria-live": "polite" }));
  subscribe((c) => [c.ran, c.at, c.problem, columns[c.group].problem, c.plain], drawAnswer);
  subscribe((c) => [c.score, isScored(c)], drawScore);
  subscribe(() => [state.step, state.playing, maxSteps()], drawSteps);
  subscribe((c) => [c.input], (c) => {
    const box = c.group === c.m ? document.getElementById(c.m ? `input-${c.m}` : "input") : null;
    if (box && box.value !== c.input) box.value = c.input;
  });
}

function inputBox(column) {
  const id = column.m ? `input-${column.m}` : "input", tries = inputsOf(column.base).slice(0, 8);
  const box = create("input",
    { id, type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false",
      "aria-label": `Input of ${column.base.title}`,
      "aria-describedby": elementId("problem", column),
      list: `${id}-list`,
      oninput: (e) => { state.playing = false; setInput(column.group, e.target.value); },
      onkeydown: (e) => { if (e.key === "Enter") { e.preventDefault(); play(true); } } });
  return create("div", { class: "box" }, create("label", { for: id, class: "quiet" }, "Input"), box,
    create("datalist", { id: `${id}-list` },
      tries.map((text) => create("option", { value: text }))));
}

// ── steps ──────────────────────────────────────────────────────────────────────────────────────
export function stepBy(n) {
  update(() => {
    state.step = Math.max(0, Math.min(maxSteps() - 1, state.step + n)); state.playing = false; });
}

export const stepTo = (step) => update(() => { state.step = step; state.playing = false; });

let timer = 0;
const prefersReducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Play the answer from its first token, or from the current one if `resume`; or stop. */
export function play(start, resume = false) {
  clearTimeout(timer);
  update(() => {
    state.playing = start && !prefersReducedMotion() && maxSteps() > 1;
    if (start && prefersReducedMotion()) state.step = maxSteps() - 1;
    else if (start && (!resume || state.step >= maxSteps() - 1)) state.step = 0;
  });
  if (state.playing) timer = setTimeout(playNext, 700);
}

function playNext() {
  if (!state.playing) return;
  update(() => { state.step += 1; state.playing = state.step < maxSteps() - 1; });
  if (state.playing) timer = setTimeout(playNext, 700);
}

function drawSteps() {
  const n = maxSteps();
  document.getElementById("step").textContent = `token ${state.step + 1} of ${n}`;
  document.getElementById("step-back").disabled = state.step === 0;
  document.getElementById("step-forward").disabled = state.step >= n - 1;
  const play = document.getElementById("play");
  play.textContent = state.playing ? "❚❚" : "▶";
  play.setAttribute("aria-pressed", String(state.playing));
  play.disabled = n < 2;
}

// ── the answer ─────────────────────────────────────────────────────────────────────────────────
function drawAnswer(column) {
  const { ran, step, plain, problem } = column, place = elementOf("answer", column);
  for (const name of ["result", "model"])
    elementOf(name, column).classList.toggle("stale", Boolean(problem));
  const first = columns[column.group]; // show a shared problem once
  elementOf("problem", column).textContent = first !== column && first.problem === problem ? ""
    : problem;
  if (!ran) {
    for (const name of ["answer", "was", "margin"]) elementOf(name, column).textContent = "";
    return;
  }
  const words = ran.steps.map((s) => column.live.vocabulary.text(s.winner)),
    sep = column.live.vocabulary.sep;
  const n = words.findIndex((_, i) => words.slice(0, i + 1).join(sep) === ran.output) + 1;
  if (!n) place.replaceChildren(create("span", {}, ran.output || "empty answer"));
  else {
    place.replaceChildren(...words.slice(0, n).flatMap((word, i) => [i ? sep : "",
      create("span", { class: i === column.at ? "writing" : i > column.at ? "later" : "" },
        word)]));
  }
  const changed = plain && !plain.problem && plain.output !== ran.output;
  elementOf("was", column).textContent = changed ? `was ${plain.output}` : "";
  elementOf("margin", column)
    .replaceChildren(...(step && step.second >= 0 ? [`${tokenText(column, step.winner)} leads `
        + `${tokenText(column, step.second)} by `, create("b", {}, formatNumber(step.margin))]
        : []));
}

/** A description of the set of examples. */
export const exampleScope = ({ whole }) => (whole ? "all inputs" : "edge cases and a sample");

function drawScore(column) {
  const { score, base } = column, place = elementOf("score", column);
  if (!base.examples?.length) return place.replaceChildren();
  if (!score) return place.replaceChildren("scoring the examples …");
  if (score.problem) return place.replaceChildren("no score");
  place.classList.toggle("stale", !isScored(column));
  const all = score.right === score.total;
  const meter = create("i",
    { class: "meter", "aria-hidden": "true",
      style: { "--share": (score.right / score.total).toFixed(4) } });
  place.classList.toggle("broken", !all);
  place.replaceChildren(meter, create("b", {}, formatInteger(score.right)),
    create("span", { class: "long" }, ` of ${formatInteger(score.total)} examples right`),
    create("span", { class: "brief" }, ` / ${formatInteger(score.total)}`),
    ...(all ? []
        : [` (${formatPercent(score.right / score.total)}`,
          create("span", { class: "long" }, ` of ${exampleScope(base)}`), ")"]));
  place.title = `${exampleScope(base)}${base.whole ? "" : ", not a share of all inputs"}`;
}
