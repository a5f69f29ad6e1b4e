// Puzzles: levels to solve, each with a goal, a text to begin from, and hints one at a time. The judge is Python's, so with
// a server the page asks it (POST /api/check); without one it says what to type. What was solved is kept in this browser.
import { grouped, make } from "../charts.js";
import { ask, server } from "../server.js";

const KEPT = "glassformer.puzzles"; // level -> {text, hints, solved, score: the best on each axis}
const STYLE = `
#puzzles { margin: 2rem var(--side) 3rem; padding-top: 1.2rem; border-top: 1px solid var(--rule); display: grid; gap: .8rem; grid-template-columns: minmax(0, 1fr); scroll-margin-top: 9rem; }
#puzzles p, #puzzles ul, #puzzles ol { margin: 0; max-width: 60rem; }
#puzzles .which { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; }
#puzzles .which select { max-width: 24rem; min-width: 0; flex: 1 1 15rem; }
#puzzles .goal { font-size: 1.2rem; }
#puzzles textarea { width: 100%; font: .875rem/1.55 var(--mono); padding: .8rem .9rem; border: 1px solid var(--rule); border-radius: 6px; background: var(--wash); color: var(--ink); white-space: pre; overflow: auto; resize: vertical; tab-size: 2; }
#puzzles .hints { list-style: decimal; padding-left: 1.6rem; }
#puzzles .hints:empty { display: none; }
#puzzles #judgement { display: grid; gap: .8rem; justify-items: start; }
#puzzles table { border-collapse: collapse; font-size: .9375rem; }
#puzzles td, #puzzles th { padding: .2rem 1rem .2rem 0; text-align: right; font-weight: normal; border-bottom: 1px solid var(--rule); }
#puzzles tr > :first-child { text-align: left; }
#puzzles .verdict { font-weight: 600; padding: 0 0 0 .6rem; margin: 0; max-height: none; overflow-wrap: anywhere; white-space: pre-wrap; border-left: 3px solid var(--less); font-size: 1rem; }
#puzzles .verdict.right { border-left-color: var(--more); }
#puzzles code { font-family: var(--mono); overflow-wrap: anywhere; white-space: pre-wrap; }
`;

let levels = [], axes = {}, at = 0, turn = 0;
const kept = read();

/** Called once, with the levels in their order and what the axes are called; no level, and there is nothing to see. */
export function openPuzzles(given, named) {
  levels = given ?? [];
  axes = named ?? {};
  if (!levels.length) return;
  const unsolved = levels.findIndex((level) => !kept[level.id]?.solved);
  at = Math.max(0, unsolved);
  const panel = make("section", { id: "puzzles", "aria-labelledby": "puzzles-title" });
  document.head.append(make("style", {}, STYLE));
  document.getElementById("foot").before(panel);
  document.querySelector("#head .tools")?.prepend(make("button", { id: "to-puzzles", type: "button", title: "Build one yourself: levels to solve",
    onclick: () => { panel.scrollIntoView({ block: "start" }); document.getElementById("solution").focus({ preventScroll: true }); } }, "Puzzles"));
  draw();
}

// ── what is kept ───────────────────────────────────────────────────────────────────────────────
function read() {
  try {
    const found = JSON.parse(localStorage.getItem(KEPT));
    return found && typeof found === "object" && !Array.isArray(found) ? found : {};
  } catch { // nothing kept, or a browser that keeps nothing of a file
    return {};
  }
}

function keep(level, changes) {
  kept[level.id] = { ...kept[level.id], ...changes };
  try {
    localStorage.setItem(KEPT, JSON.stringify(kept));
  } catch { /* then it lasts as long as the page is open */ }
}

/** The best that was done here, on each axis. */
function better(known, score) {
  return Object.fromEntries(Object.entries(score).map(([axis, n]) => [axis, Math.min(n, Number.isFinite(known?.[axis]) ? known[axis] : Infinity)]));
}

const textOf = (level) => (typeof kept[level.id]?.text === "string" ? kept[level.id].text : level.stub);
const hintsOf = (level) => Math.min(Number(kept[level.id]?.hints) || 0, level.hints.length);

// ── one level ──────────────────────────────────────────────────────────────────────────────────
function draw() {
  const level = levels[at], solved = levels.filter((each) => kept[each.id]?.solved).length;
  turn += 1; // what a judge says to an older question is not shown
  const button = (id, name, act, more = {}) => make("button", { id, type: "button", onclick: act, ...more }, name);
  const title = (each) => `${each.number} ${each.title} (${each.id})${kept[each.id]?.solved ? " ✓" : ""}`;
  const text = make("textarea", { id: "solution", rows: Math.min(30, Math.max(8, textOf(level).split("\n").length + 2)), spellcheck: "false", autocapitalize: "off", wrap: "off",
    "aria-label": `Your ${level.file}`, oninput: () => { keep(level, { text: text.value }); forget(); },
    onkeydown: (e) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) { e.preventDefault(); check(level, text); } } });
  text.value = textOf(level);
  const place = document.getElementById("puzzles");
  place.replaceChildren(
    make("h2", { id: "puzzles-title" }, "Puzzles"),
    make("p", { class: "which" },
      button("level-before", "‹", () => go(at - 1), { "aria-label": "The level before", disabled: at === 0 }),
      make("select", { id: "level", "aria-label": "Level", onchange: (e) => go(e.target.selectedIndex) },
        levels.map((each, i) => make("option", { value: each.id, selected: i === at }, title(each)))),
      button("level-after", "›", () => go(at + 1), { "aria-label": "The next level", disabled: at === levels.length - 1 }),
      make("span", { id: "progress", class: "quiet" }, `${solved} of ${levels.length} solved`)),
    make("p", { id: "goal", class: "goal" }, level.goal),
    make("ul", { class: "examples" }, Object.entries(level.examples).map(([asked, said]) => make("li", {}, make("code", {}, asked), " → ", make("code", {}, said)))),
    make("p", { class: "quiet" }, limits(level), `It is judged on every question there is, not on these examples${level.read ? `; docs/${level.read} says more` : ""}.`),
    text,
    make("p", { class: "which" },
      server ? button("check", "Check", () => check(level, text)) : button("save-solution", `Save ${level.file}`, () => save(level, text)),
      button("hint", `Hint (${level.hints.length - hintsOf(level)} left)`, () => { keep(level, { hints: hintsOf(level) + 1 }); drawHints(level); }),
      button("begin-again", "Begin again", () => { keep(level, { text: level.stub }); text.value = level.stub; forget(); })),
    make("ol", { id: "hints", class: "hints" }),
    make("div", { id: "judgement", role: "status" }, server ? "" : make("p", {}, "Judging needs Python. Save the text, and type ", make("code", {}, level.command))));
  drawHints(level);
}

const limits = (level) => Object.entries(level.limits).map(([axis, n]) => `At most ${grouped(n)} ${axes[axis] ?? axis}. `).join("");

function drawHints(level) {
  const shown = hintsOf(level), button = document.getElementById("hint");
  document.getElementById("hints").replaceChildren(...level.hints.slice(0, shown).map((hint) => make("li", {}, hint)));
  button.textContent = `Hint (${level.hints.length - shown} left)`;
  button.disabled = shown === level.hints.length;
}

function go(to) {
  at = Math.max(0, Math.min(to, levels.length - 1));
  draw();
  document.getElementById("level").focus();
}

// ── the judge ──────────────────────────────────────────────────────────────────────────────────
/** The text is another: what was said of the one before, or will be, is not said of this one. */
function forget() {
  turn += 1;
  if (server) document.getElementById("judgement").replaceChildren();
}

async function check(level, text) {
  const button = document.getElementById("check"), place = document.getElementById("judgement");
  if (!button || button.disabled) return;
  turn += 1;
  const now = turn;
  button.disabled = true;
  place.replaceChildren(make("p", {}, "Judging, on every question …"));
  let found;
  try {
    found = await ask("check", { level: level.id, text: text.value });
  } catch (e) {
    found = { problem: e.message };
  }
  if (found.passed) keep(level, { solved: true, score: better(kept[level.id]?.score, found.score) });
  button.disabled = false;
  if (turn === now) place.replaceChildren(...verdict(level, found));
  document.getElementById("progress").textContent = `${levels.filter((each) => kept[each.id]?.solved).length} of ${levels.length} solved`;
  const option = document.getElementById("level").options[levels.indexOf(level)];
  if (found.passed && !option.textContent.endsWith("✓")) option.textContent += " ✓";
}

function verdict(level, found) {
  const said = found.problem ? `Not judged: ${found.problem}` : found.lines[0];
  const table = found.score && Object.keys(found.score).length ? make("table", {},
    make("tr", {}, ["score", "yours", "best known", "at most", "your best"].map((name) => make("th", { scope: "col" }, name))),
    Object.entries(found.score).map(([axis, n]) => make("tr", {}, make("th", { scope: "row" }, axes[axis] ?? axis), make("td", {}, grouped(n)),
      make("td", {}, found.best[axis] === undefined ? "–" : grouped(found.best[axis]), found.passed && n < found.best[axis] ? " beaten" : ""),
      make("td", {}, found.limits[axis] === undefined ? "–" : grouped(found.limits[axis])),
      make("td", {}, kept[level.id]?.score?.[axis] === undefined ? "–" : grouped(kept[level.id].score[axis]))))) : "";
  const next = found.passed && at < levels.length - 1 ? make("button", { id: "next-level", type: "button", onclick: () => go(at + 1) }, `Next: ${levels[at + 1].title}`) : "";
  const counts = table && make("p", { class: "quiet" }, "Less is better. What is counted is your text's own weights, as ", make("code", {}, `glassformer count ${level.file}`),
    " does (strict: different weights but 0 and ±1, with eps, scale and base where they are used), and so it is for the best known. No formula that would make weights from fewer numbers is looked for.");
  return [make("p", { class: `verdict ${found.passed ? "right" : "wrong"}` }, said), table, counts, next].filter((part) => part !== "");
}

/** The text as a file, from a page that has no server. */
function save(level, text) {
  const address = URL.createObjectURL(new Blob([text.value], { type: "text/plain" }));
  make("a", { href: address, download: level.file }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
