// The first screen's upper half, always in sight: the input, the steps, and for each model the answer being written,
// its margin and its score.
import { grouped, inDigits, inPercent, make, visible } from "../charts.js";
import { change, columns, follow, inputsOf, isScored, longest, state, type } from "../store.js";

/** An element's id: plain for the first model, numbered for the others. */
export const idOf = (name, column) => (column.m ? `${name}-${column.m}` : name);
export const partOf = (name, column) => document.getElementById(idOf(name, column));
/** The width that a column has for a part, asked once for each look of the page: to ask makes a browser lay it out. */
export function roomOf(name, column) {
  const known = (column.rooms ??= {});
  if (known[name]?.look !== state.look) known[name] = { look: state.look, width: partOf(name, column).clientWidth };
  return known[name].width || 500;
}

export const wordOf = (column, token) => visible(column.live.vocabulary.text(token));

export function openInput() {
  const walk = document.getElementById("walk");
  for (const column of columns) {
    const cell = make("div", { class: "said", id: idOf("said", column) },
      columns.length > 1 ? make("p", { class: "title" }, make("a", { href: `#${idOf("model", column)}`, onclick: (e) => {
        e.preventDefault();
        partOf("model", column).scrollIntoView({ block: "start" });
      } }, column.base.title)) : "",
      column.group === column.m && column.m ? inputBox(column) : "",
      make("p", { class: "answer-line" }, make("span", { class: "gives", "aria-hidden": "true" }, "→"),
        make("output", { id: idOf("answer", column), class: "answer", "aria-live": "polite", for: "input" }),
        make("span", { id: idOf("was", column), class: "was" })),
      make("p", { class: "figures" }, make("span", { id: idOf("margin", column) }), make("a", {
        id: idOf("score", column), href: `#${idOf("examples", column)}`, onclick: (e) => {
          e.preventDefault();
          partOf("examples", column).scrollIntoView({ block: "center" });
        } })),
      make("p", { id: idOf("problem", column), class: "problem", role: "alert" }));
    document.getElementById("answers").append(cell);
  }
  document.getElementById("ask").prepend(inputBox(columns[0]));
  document.getElementById("ask").onsubmit = (e) => { e.preventDefault(); play(true); }; // one, however often models are opened
  const button = (id, sign, name, act) => make("button", { id, type: "button", "aria-label": name, title: name, onclick: act }, sign);
  walk.append(button("step-back", "‹", "One token back", () => walkBy(-1)),
    button("play", "▶", "Write the answer token by token", () => play(!state.playing, true)),
    button("step-forward", "›", "One token on", () => walkBy(1)),
    make("output", { id: "step", "aria-live": "polite" }));
  follow((c) => [c.ran, c.at, c.problem, columns[c.group].problem, c.plain], drawAnswer);
  follow((c) => [c.score, isScored(c)], drawScore);
  follow(() => [state.step, state.playing, longest()], drawWalk);
  follow((c) => [c.input], (c) => {
    const box = c.group === c.m ? document.getElementById(c.m ? `input-${c.m}` : "input") : null;
    if (box && box.value !== c.input) box.value = c.input;
  });
}

function inputBox(column) {
  const id = column.m ? `input-${column.m}` : "input", tries = inputsOf(column.base).slice(0, 8);
  const box = make("input", { id, type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false",
    "aria-label": `Input of ${column.base.title}`, "aria-describedby": idOf("problem", column), list: `${id}-list`,
    oninput: (e) => { state.playing = false; type(column.group, e.target.value); },
    onkeydown: (e) => { if (e.key === "Enter") { e.preventDefault(); play(true); } } });
  return make("div", { class: "box" }, make("label", { for: id, class: "quiet" }, "Input"), box,
    make("datalist", { id: `${id}-list` }, tries.map((text) => make("option", { value: text }))));
}

// ── steps ──────────────────────────────────────────────────────────────────────────────────────
export function walkBy(n) {
  change(() => { state.step = Math.max(0, Math.min(longest() - 1, state.step + n)); state.playing = false; });
}

export const walkTo = (step) => change(() => { state.step = step; state.playing = false; });

let clock = 0;
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Writes the answer from its first token; `on`: from where it stands, if it is not at the end. */
export function play(going, on = false) {
  clearTimeout(clock);
  change(() => {
    state.playing = going && !still() && longest() > 1;
    if (going && still()) state.step = longest() - 1;
    else if (going && (!on || state.step >= longest() - 1)) state.step = 0;
  });
  if (state.playing) clock = setTimeout(goOn, 700);
}

function goOn() {
  if (!state.playing) return;
  change(() => { state.step += 1; state.playing = state.step < longest() - 1; });
  if (state.playing) clock = setTimeout(goOn, 700);
}

function drawWalk() {
  const n = longest();
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
  const { ran, step, plain, problem } = column, place = partOf("answer", column);
  for (const name of ["said", "model"]) partOf(name, column).classList.toggle("stale", Boolean(problem)); // of the text before
  const first = columns[column.group]; // the same text is refused in the same words: once is enough
  partOf("problem", column).textContent = first !== column && first.problem === problem ? "" : problem;
  if (!ran) {
    for (const name of ["answer", "was", "margin"]) partOf(name, column).textContent = "";
    return;
  }
  const words = ran.steps.map((s) => column.live.vocabulary.text(s.winner)), sep = column.live.vocabulary.sep;
  const n = words.findIndex((_, i) => words.slice(0, i + 1).join(sep) === ran.output) + 1;
  if (!n) place.replaceChildren(make("span", {}, ran.output || "nothing"));
  else {
    place.replaceChildren(...words.slice(0, n).flatMap((word, i) => [i ? sep : "",
      make("span", { class: i === column.at ? "writing" : i > column.at ? "later" : "" }, word)]));
  }
  const other = plain && !plain.problem && plain.output !== ran.output;
  partOf("was", column).textContent = other ? `was ${plain.output}` : "";
  partOf("margin", column).replaceChildren(...(step ? ["margin ", make("b", {}, inDigits(step.margin)),
    step.second >= 0 ? ` over ${wordOf(column, step.second)}` : ""] : []));
}

/** What the page's examples are, in words. */
export const among = ({ whole }) => (whole ? "all inputs" : "edge cases and a sample");

function drawScore(column) {
  const { score, base } = column, place = partOf("score", column);
  if (!base.examples?.length) return place.replaceChildren();
  if (!score) return place.replaceChildren("trying the examples …");
  if (score.problem) return place.replaceChildren("no score");
  place.classList.toggle("stale", !isScored(column));
  const all = score.right === score.total;
  const meter = make("i", { class: "meter", "aria-hidden": "true", style: { "--share": (score.right / score.total).toFixed(4) } });
  place.classList.toggle("broken", !all);
  place.replaceChildren(meter, make("b", {}, grouped(score.right)), make("span", { class: "long" }, ` of ${grouped(score.total)} examples right`), make("span", { class: "brief" }, ` / ${grouped(score.total)}`),
    ...(all ? [] : [` (${inPercent(score.right / score.total)}`, make("span", { class: "long" }, ` of ${among(base)}`), ")"]));
  place.title = `${among(base)}${base.whole ? "" : ", not a share of all inputs"}`;
}
