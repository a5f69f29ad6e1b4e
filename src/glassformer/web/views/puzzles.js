// Puzzles: levels with a goal, a starting text and hints. The server judges a solution (POST
// /api/check); a page without a server shows the command. Progress is kept in this browser.
import { formatInteger, create } from "../charts.js";
import { request, server } from "../server.js";

const STORAGE_KEY = "glassformer.puzzles"; // level id -> {text, hints, solved, score}

let levels = [], axes = {}, levelIndex = 0, requestNumber = 0;
const progress = readProgress();

/** Called once with the levels in order and the names of the score's axes. */
export function openPuzzles(allLevels, axisNames_) {
  levels = allLevels ?? [];
  axes = axisNames_ ?? {};
  if (!levels.length) return;
  const unsolved = levels.findIndex((level) => !progress[level.id]?.solved);
  levelIndex = Math.max(0, unsolved);
  const panel = create("section", { id: "puzzles", "aria-labelledby": "puzzles-title" });
  document.getElementById("foot").before(panel);
  document.querySelector("#head .tools")?.prepend(create("button",
    { id: "to-puzzles", type: "button", title: "Build models yourself: levels to solve",
      onclick: () => {
        panel.scrollIntoView({ block: "start" }); document.getElementById("solution")
          .focus({ preventScroll: true }); } }, "Puzzles"));
  draw();
}

// ── progress ────────────────────────────────────────────────────────────────────────────────
function readProgress() {
  try {
    const stored = JSON.parse(localStorage.getItem(STORAGE_KEY));
    return stored && typeof stored === "object" && !Array.isArray(stored) ? stored : {};
  } catch { // nothing stored, or no storage for files
    return {};
  }
}

function saveProgress(level, changes) {
  progress[level.id] = { ...progress[level.id], ...changes };
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify(progress));
  } catch { /* lost when the page is closed */ }
}

/** The best score on each axis. */
function bestScores(best, score) {
  return Object.fromEntries(Object.entries(score)
      .map(([axis, n]) => [axis,
        Math.min(n, Number.isFinite(best?.[axis]) ? best[axis] : Infinity)]));
}

const textOf =
  (level) => (typeof progress[level.id]?.text === "string" ? progress[level.id].text : level.stub);
const hintsOf = (level) => Math.min(Number(progress[level.id]?.hints) || 0, level.hints.length);

// ── one level ──────────────────────────────────────────────────────────────────────────────────
function draw() {
  const level = levels[levelIndex],
    solved = levels.filter((other) => progress[other.id]?.solved).length;
  requestNumber += 1; // ignore answers to older requests
  const button = (id, name, act, more = {}) => create("button",
    { id, type: "button", onclick: act, ...more }, name);
  const title =
    (other) =>
    `${other.number} ${other.title} (${other.id})${progress[other.id]?.solved ? " ✓" : ""}`;
  const text = create("textarea",
    { id: "solution", rows: Math.min(30, Math.max(8, textOf(level).split("\n").length + 2)),
      spellcheck: "false", autocapitalize: "off", wrap: "off",
      "aria-label": `Your ${level.file}`,
      oninput: () => { saveProgress(level, { text: text.value }); clearJudgement(); },
      onkeydown: (e) => {
        if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) {
          e.preventDefault(); check(level, text); } } });
  text.value = textOf(level);
  const place = document.getElementById("puzzles");
  place.replaceChildren(
    create("h2", { id: "puzzles-title" }, "Puzzles"),
    create("p", { class: "which" },
      button("level-before", "‹", () => go(levelIndex - 1),
        { "aria-label": "Previous level", disabled: levelIndex === 0 }),
      create("select",
        { id: "level", "aria-label": "Level", onchange: (e) => go(e.target.selectedIndex) },
        levels.map((other, i) => create("option", { value: other.id, selected: i === levelIndex },
          title(other)))),
      button("level-after", "›", () => go(levelIndex + 1),
        { "aria-label": "Next level", disabled: levelIndex === levels.length - 1 }),
      create("span", { id: "progress", class: "quiet" }, `${solved} of ${levels.length} solved`)),
    create("p", { id: "goal", class: "goal" }, level.goal),
    create("ul", { class: "examples" },
      Object.entries(level.examples)
        .map(([question, answer]) => create("li", {}, create("code", {}, question), " → ",
          create("code", {}, answer)))),
    create("p", { class: "quiet" }, limits(level),
      "It is judged on every question, not only on these examples",
      level.read ? `; see docs/${level.read}.` : "."),
    text,
    create("p", { class: "which" },
      server ? button("check", "Check", () => check(level, text))
        : button("save-solution", `Save ${level.file}`, () => save(level, text)),
      button("hint", `Hint (${level.hints.length - hintsOf(level)} left)`,
        () => { saveProgress(level, { hints: hintsOf(level) + 1 }); drawHints(level); }),
      button("begin-again", "Start over",
        () => { saveProgress(level,
          { text: level.stub }); text.value = level.stub; clearJudgement(); })),
    create("ol", { id: "hints", class: "hints" }),
    create("div", { id: "judgement", role: "status" },
      server ? ""
        : create("p", {}, "Judging needs Python. Save the text and run ",
          create("code", {}, level.command))));
  drawHints(level);
}

const limits =
  (level) =>
  Object.entries(level.limits)
  .map(([axis, n]) => `At most ${formatInteger(n)} ${axes[axis] ?? axis}. `).join("");

function drawHints(level) {
  const shown = hintsOf(level), button = document.getElementById("hint");
  document.getElementById("hints")
    .replaceChildren(...level.hints.slice(0, shown).map((hint) => create("li", {}, hint)));
  button.textContent = `Hint (${level.hints.length - shown} left)`;
  button.disabled = shown === level.hints.length;
}

function go(to) {
  levelIndex = Math.max(0, Math.min(to, levels.length - 1));
  draw();
  document.getElementById("level").focus();
}

// ── the judge ──────────────────────────────────────────────────────────────────────────────────
/** Clear the judgement, as the text has changed. */
function clearJudgement() {
  requestNumber += 1;
  if (server) document.getElementById("judgement").replaceChildren();
}

async function check(level, text) {
  const button = document.getElementById("check"), place = document.getElementById("judgement");
  if (!button || button.disabled) return;
  requestNumber += 1;
  const request_ = requestNumber;
  button.disabled = true;
  place.replaceChildren(create("p", {}, "Judging on every question …"));
  let judgement;
  try {
    judgement = await request("check", { level: level.id, text: text.value });
  } catch (e) {
    judgement = { problem: e.message };
  }
  if (judgement.passed)
    saveProgress(level,
      { solved: true, score: bestScores(progress[level.id]?.score, judgement.score) });
  button.disabled = false;
  if (requestNumber === request_) place.replaceChildren(...verdict(level, judgement));
  document.getElementById("progress").textContent =
    `${levels.filter((other) => progress[other.id]?.solved).length} of ${levels.length} solved`;
  const option = document.getElementById("level").options[levels.indexOf(level)];
  if (judgement.passed && !option.textContent.endsWith("✓")) option.textContent += " ✓";
}

function verdict(level, judgement) {
  const message = judgement.problem ? `Not judged: ${judgement.problem}` : judgement.lines[0];
  const table = judgement.score && Object.keys(judgement.score).length ? create("table", {},
    create("tr", {},
      ["score", "yours", "best known", "limit", "your best"].map((name) => create("th",
        { scope: "col" }, name))),
    Object.entries(judgement.score)
      .map(([axis, n]) => create("tr", {}, create("th", { scope: "row" }, axes[axis] ?? axis),
        create("td", {}, formatInteger(n)),
        create("td", {},
          judgement.best[axis] === undefined ? "–" : formatInteger(judgement.best[axis]),
          judgement.passed && n < judgement.best[axis] ? " beaten" : ""),
        create("td", {},
          judgement.limits[axis] === undefined ? "–" : formatInteger(judgement.limits[axis])),
        create("td", {},
          progress[level.id]?.score?.[axis] === undefined ? "–"
            : formatInteger(progress[level.id].score[axis]))))) : "";
  const next = judgement.passed && levelIndex < levels.length - 1
    ? create("button", { id: "next-level", type: "button", onclick: () => go(levelIndex + 1) },
      `Next: ${levels[levelIndex + 1].title}`) : "";
  const counts = table
    && create("p", { class: "quiet" },
      "Less is better. The score counts the weights of your text, as ",
      create("code", {}, `glassformer count ${level.file}`),
      " does (strict: distinct weights except 0 and ±1, plus eps, scale and base where used).");
  return [create("p", { class: `verdict ${judgement.passed ? "right" : "wrong"}` }, message), table,
    counts, next].filter((part) => part !== "");
}

/** Save the text to a file. */
function save(level, text) {
  const address = URL.createObjectURL(new Blob([text.value], { type: "text/plain" }));
  create("a", { href: address, download: level.file }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
