// The page comes to life: a column for each model, the theme, the keys. What each part of a column shows is in views/.
import { forgetLook, make } from "./charts.js";
import { change, closeColumns, columns, drawnNow, inputsOf, openColumns, readAddress, state, type, undo } from "./store.js";
import { openAttention, pickHead } from "./views/attention.js";
import { openExamples } from "./views/examples.js";
import { openFacts } from "./views/about.js";
import { idOf, openInput, partOf, play, walkBy, walkTo } from "./views/input.js";
import { openLinks } from "./views/dataflow.js";
import { openLogits } from "./views/logits.js";
import { closeMenu, openMenu, openOthers, openParts, silenceChosen } from "./views/interventions.js";
import { openServer } from "./views/server.js";
import { openPuzzles } from "./views/puzzles.js";
import { openSnapshots, scrubBy } from "./views/snapshots.js";
import { openStream } from "./views/stream.js";
import { openWeights } from "./views/weights.js";

/** The places of a column, in the order in which they are read: name, heading, is it as wide as the column? */
const SECTIONS = [
  ["training", "Training", "wide"], ["heads", "Heads"], ["attention", "Attention"], ["logits", "Next token"],
  ["sources", "Where the margin comes from"], ["stream", "The stream", "wide"], ["source", "Source"], ["neurons", "Neurons"], ["examples", "Examples"],
  ["others", "Other parts"], ["weights", "Weights", "wide"], ["facts", "About this model", "folded"],
];

function columnOf(column) {
  const id = (name) => idOf(name, column);
  const section = ([name, heading, kind = ""]) => (kind === "folded"
    ? make("details", { id: id(name), class: "part folded wide" }, make("summary", {}, make("h3", {}, heading)), make("div", { class: "body" }))
    : make("section", { id: id(name), class: `part ${kind}`, "aria-label": columns.length > 1 ? `${heading}, ${column.base.title}` : heading },
      make("h3", {}, heading), make("div", { class: "body" })));
  return make("article", { id: id("model"), class: "model", "data-column": column.m, "aria-label": column.base.title },
    make("h2", { class: "unseen" }, column.base.title),
    make("p", { class: "tries quiet" }, column.group === column.m ? ["Try ", ...inputsOf(column.base).slice(0, [6, 4, 3, 3][columns.length - 1]).map((text) => make("button", {
      type: "button", class: "plain", onclick: () => type(column.group, text) }, text || "nothing"))] : ""),
    make("p", { id: id("sentence"), class: "sentence", "aria-live": "polite" }),
    make("div", { id: id("stage"), class: "stage", tabindex: -1 }, make("div", { class: "arcs" }), make("div", { id: id("tokens"), class: "tokens", role: "group",
      "aria-label": "Tokens read and written" })),
    make("p", { id: id("chips"), class: "chips" }),
    make("div", { class: "parts" }, SECTIONS.map(section)));
}

// ── the theme ──────────────────────────────────────────────────────────────────────────────────
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme || (prefersDark.matches ? "dark" : "light")) === "dark";

/** Colours or width are others: whatever was painted or measured is drawn anew. */
function lookAgain() {
  const button = document.getElementById("theme"), other = isDark() ? "Light" : "Dark";
  button.textContent = other;
  button.setAttribute("aria-label", `${other} colours`);
  forgetLook();
  document.getElementById("columns").dataset.width = innerWidth;
  change(() => { state.look = `${isDark()} ${matchMedia("print").matches} ${innerWidth}`; });
}

function switchTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  lookAgain();
}

// ── keys ───────────────────────────────────────────────────────────────────────────────────────
const chosen = () => columns[state.model];

function headBy(n) {
  const { n_layers, n_heads } = chosen().base.config, all = n_layers * n_heads;
  if (!all) return;
  const now = chosen().head[0] * n_heads + chosen().head[1], to = (now + n + all) % all;
  pickHead(chosen(), Math.floor(to / n_heads), to % n_heads);
}

const show = (name) => {
  const place = partOf(name, chosen());
  place.scrollIntoView({ block: "start" });
  (place.querySelector('button:not(:disabled), select, [tabindex="0"]') ?? place).focus({ preventScroll: true });
};

const KEYS = [ // key, in words, what it does
  ["/", "to the input", () => { document.getElementById("input").focus(); document.getElementById("input").select(); }],
  ["ArrowLeft", "one token back", () => walkBy(-1)], ["ArrowRight", "one token on", () => walkBy(1)],
  ["Home", "to the first token of the answer", () => walkTo(0)], ["End", "to its last", () => walkTo(Infinity)],
  [" ", "write the answer, or stop", () => play(!state.playing, true)],
  ["[", "the head before", () => headBy(-1)], ["]", "the next head", () => headBy(1)],
  ["x", "silence the chosen head, or let it speak", silenceChosen], ["u", "undo", undo],
  ["t", "to the tokens", () => partOf("tokens", chosen()).querySelector('[tabindex="0"]')?.focus()],
  ["h", "to the heads", () => show("heads")], ["s", "to the stream", () => show("stream")], ["n", "to the neurons", () => show("neurons")],
  ["l", "to the logits", () => show("logits")], ["e", "to the examples", () => show("examples")],
  ["w", "to the weights: arrows move, Enter edits, Shift and arrows change", () => show("weights")],
  ["m", "the next model", () => change(() => { state.model = (state.model + 1) % columns.length; markChosen(); })],
  [",", "the snapshot before", () => scrubBy(chosen(), -1)], [".", "the next snapshot", () => scrubBy(chosen(), 1)],
  ["d", "dark or light", switchTheme], ["?", "these keys", openKeys],
];
const NAMES = { " ": "Space", ArrowLeft: "←", ArrowRight: "→" };

function markChosen() {
  for (const column of columns) partOf("model", column).classList.toggle("current", columns.length > 1 && column.m === state.model);
  partOf("model", chosen()).scrollIntoView({ block: "nearest", inline: "nearest" });
}

function openKeys() {
  const box = document.getElementById("keys");
  if (box.open) box.close();
  else box.showModal();
}

function onKey(e) {
  if (e.key === "Escape") { closeMenu(); return; }
  if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "z" && !e.target.closest("input, textarea")) { e.preventDefault(); undo(); return; }
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, select, textarea, dialog, #menu, [role=grid]")) return;
  if (e.key === " " && e.target.closest("button, summary, a")) return;
  const found = KEYS.find(([key]) => key === e.key);
  if (!found) return;
  e.preventDefault();
  found[2]();
}

/** The address to hand on: without the token of a server, which is for one person alone. */
function linkOf({ href }) {
  const found = new URL(href);
  found.searchParams.delete("token");
  return found.href;
}

function openTools() {
  document.getElementById("theme").addEventListener("click", switchTheme);
  document.getElementById("help").addEventListener("click", openKeys);
  document.getElementById("keys").querySelector("dl").append(...KEYS.flatMap(([key, words]) => [
    make("dt", {}, make("kbd", {}, NAMES[key] ?? key)), make("dd", {}, words)]), make("dt", {}, make("kbd", {}, "Enter")), make("dd", {}, "in the input: write the answer"));
  const copy = document.getElementById("copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(linkOf(location));
      copy.textContent = "Copied";
    } catch { // a browser that does not let a file do so: the address bar has it
      copy.textContent = "It is in the address bar";
    }
    setTimeout(() => { copy.textContent = "Copy link"; }, 2000);
  });
  document.addEventListener("keydown", onKey);
  prefersDark.addEventListener("change", lookAgain);
  matchMedia("print").addEventListener("change", () => { lookAgain(); drawnNow(); });
  addEventListener("hashchange", () => change(() => readAddress()));
  let width = innerWidth, soon = 0;
  addEventListener("resize", () => {
    clearTimeout(soon);
    soon = setTimeout(() => { if (innerWidth !== width) { width = innerWidth; lookAgain(); } }, 150);
  });
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  document.getElementById("made").textContent = data.made ?? "";
  document.getElementById("notes").append(...(data.notes ?? []).map((note) => make("li", {}, note)));
  openTools();
  openMenu();
  openLinks();
  openModels(data.models);
  if (location.hash.includes("=")) readAddress();
  lookAgain();
  openServer(data.models, (models) => {
    openModels(models);
    document.title = document.getElementById("title").textContent = models.map((model) => model.title).join(", ");
    change();
  });
  openPuzzles(data.levels, data.axes);
}

/** These models, instead of any that were there. */
function openModels(models) {
  closeColumns();
  for (const id of ["columns", "answers", "walk"]) document.getElementById(id).replaceChildren();
  for (const box of document.querySelectorAll("#ask > .box")) box.remove();
  openColumns(models);
  document.documentElement.style.setProperty("--models", columns.length);
  document.body.classList.toggle("several", columns.length > 1);
  document.getElementById("columns").append(...columns.map(columnOf));
  openInput();
  openParts();
  openAttention();
  openLogits();
  openStream();
  openExamples();
  openOthers();
  for (const column of columns) { openSnapshots(column); openWeights(column); openFacts(column); }
}

start();
