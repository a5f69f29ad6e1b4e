// The page: one column per model, the theme and the keys. views/ draws the sections of a column.
import { resetColors, create } from "./charts.js";
import { update, closeColumns, columns, redrawNow, inputsOf, openColumns, readAddress, state,
  setInput, undo } from "./store.js";
import { openAttention, pickHead } from "./views/attention.js";
import { openExamples } from "./views/examples.js";
import { openFacts } from "./views/about.js";
import { elementId, openInput, elementOf, play, stepBy, stepTo } from "./views/input.js";
import { openLinks } from "./views/dataflow.js";
import { openLogits } from "./views/logits.js";
import { closeMenu, openMenu, openOtherComponents, openChips,
  toggleCurrentHead } from "./views/interventions.js";
import { openServer } from "./views/server.js";
import { openPuzzles } from "./views/puzzles.js";
import { openSnapshots, scrubBy } from "./views/snapshots.js";
import { openStream } from "./views/stream.js";
import { openWeights } from "./views/weights.js";

/** The sections of a column: id, heading, "wide" or "folded". */
const SECTIONS = [
  ["training", "Training", "wide"], ["heads", "Heads"], ["attention", "Attention"],
  ["logits", "Next token"],
  ["sources", "Margin by component"], ["stream", "Residual stream", "wide"], ["source", "Source"],
  ["neurons", "Neurons"], ["examples", "Examples"],
  ["others", "Other components"], ["weights", "Weights", "wide"],
  ["facts", "About this model", "folded"],
];

function columnElement(column) {
  const id = (name) => elementId(name, column);
  const section = ([name, heading, kind = ""]) => (kind === "folded"
      ? create("details", { id: id(name), class: "part folded wide" },
        create("summary", {}, create("h3", {}, heading)), create("div", { class: "body" }))
      : create("section",
        { id: id(name), class: `part ${kind}`,
          "aria-label": columns.length > 1 ? `${heading}, ${column.base.title}` : heading },
        create("h3", {}, heading), create("div", { class: "body" })));
  return create("article",
    { id: id("model"), class: "model", "data-column": column.m, "aria-label": column.base.title },
    create("h2", { class: "unseen" }, column.base.title),
    create("p", { class: "tries quiet" },
      column.group === column.m
        ? ["Try ",
          ...inputsOf(column.base).slice(0, [6, 4, 3, 3][columns.length - 1])
            .map((text) => create("button", {
              type: "button", class: "plain", onclick: () => setInput(column.group, text) },
              text || "empty input"))] : ""),
    create("p", { id: id("sentence"), class: "sentence", "aria-live": "polite" }),
    create("div", { id: id("stage"), class: "stage", tabindex: -1 },
      create("div", { class: "arcs" }),
      create("div", { id: id("tokens"), class: "tokens", role: "group",
        "aria-label": "Input and output tokens" })),
    create("p", { id: id("chips"), class: "chips" }),
    create("div", { class: "parts" }, SECTIONS.map(section)));
}

// ── the theme ──────────────────────────────────────────────────────────────────────────────────
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const isDark =
  () => (document.documentElement.dataset.theme || (prefersDark.matches ? "dark" : "light"))
  === "dark";

/** Redraw everything after a change of theme, width or medium. */
function redrawAll() {
  const button = document.getElementById("theme"), otherTheme = isDark() ? "Light" : "Dark";
  button.textContent = otherTheme;
  button.setAttribute("aria-label", `${otherTheme} colors`);
  resetColors();
  document.getElementById("columns").dataset.width = innerWidth;
  update(() => { state.layout = `${isDark()} ${matchMedia("print").matches} ${innerWidth}`; });
}

function switchTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  redrawAll();
}

// ── keys ───────────────────────────────────────────────────────────────────────────────────────
const currentColumn = () => columns[state.model];

function selectHeadBy(n) {
  const { n_layers, n_heads } = currentColumn().base.config, count = n_layers * n_heads;
  if (!count) return;
  const current = currentColumn().head[0] * n_heads + currentColumn().head[1],
    to = (current + n + count) % count;
  pickHead(currentColumn(), Math.floor(to / n_heads), to % n_heads);
}

const focusSection = (name) => {
  const place = elementOf(name, currentColumn());
  place.scrollIntoView({ block: "start" });
  (place.querySelector('button:not(:disabled), select, [tabindex="0"]')
      ?? place).focus({ preventScroll: true });
};

const KEYS = [ // key, description, action
  ["/", "go to the input",
    () => { document.getElementById("input").focus(); document.getElementById("input").select(); }],
  ["ArrowLeft", "previous token", () => stepBy(-1)], ["ArrowRight", "next token", () => stepBy(1)],
  ["Home", "first token of the answer", () => stepTo(0)],
  ["End", "last token of the answer", () => stepTo(Infinity)],
  [" ", "play or pause the answer", () => play(!state.playing, true)],
  ["[", "previous head", () => selectHeadBy(-1)], ["]", "next head", () => selectHeadBy(1)],
  ["x", "ablate or restore the selected head", toggleCurrentHead], ["u", "undo", undo],
  ["t", "go to the tokens",
    () => elementOf("tokens", currentColumn()).querySelector('[tabindex="0"]')?.focus()],
  ["h", "go to the heads", () => focusSection("heads")],
  ["s", "go to the stream", () => focusSection("stream")],
  ["n", "go to the neurons", () => focusSection("neurons")],
  ["l", "go to the logits", () => focusSection("logits")],
  ["e", "go to the examples", () => focusSection("examples")],
  ["w", "go to the weights: arrows move, Enter edits, Shift + arrows change the value",
    () => focusSection("weights")],
  ["m", "next model",
    () => update(() => { state.model = (state.model + 1) % columns.length; markCurrent(); })],
  [",", "previous snapshot", () => scrubBy(currentColumn(), -1)],
  [".", "next snapshot", () => scrubBy(currentColumn(), 1)],
  ["d", "dark or light theme", switchTheme], ["?", "show these keys", openKeys],
];
const KEY_SYMBOLS = { " ": "Space", ArrowLeft: "←", ArrowRight: "→" };

function markCurrent() {
  for (const column of columns)
    elementOf("model", column).classList.toggle("current",
      columns.length > 1 && column.m === state.model);
  elementOf("model", currentColumn()).scrollIntoView({ block: "nearest", inline: "nearest" });
}

function openKeys() {
  const box = document.getElementById("keys");
  if (box.open) box.close();
  else box.showModal();
}

function onKey(e) {
  if (e.key === "Escape") { closeMenu(); return; }
  if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "z"
      && !e.target.closest("input, textarea")) { e.preventDefault(); undo(); return; }
  if (e.ctrlKey || e.metaKey || e.altKey
      || e.target.closest("input, select, textarea, dialog, #menu, [role=grid]")) return;
  if (e.key === " " && e.target.closest("button, summary, a")) return;
  const binding = KEYS.find(([key]) => key === e.key);
  if (!binding) return;
  e.preventDefault();
  binding[2]();
}

/** The URL to share: without the server's secret token. */
function linkOf({ href }) {
  const url = new URL(href);
  url.searchParams.delete("token");
  return url.href;
}

function openTools() {
  document.getElementById("theme").addEventListener("click", switchTheme);
  document.getElementById("help").addEventListener("click", openKeys);
  document.getElementById("keys").querySelector("dl").append(...KEYS.flatMap(([key, words]) => [
    create("dt", {}, create("kbd", {}, KEY_SYMBOLS[key] ?? key)), create("dd", {}, words)]),
    create("dt", {}, create("kbd", {}, "Enter")),
    create("dd", {}, "in the input: play the answer"));
  const copy = document.getElementById("copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(linkOf(location));
      copy.textContent = "Copied";
    } catch { // some browsers deny clipboard access to local files
      copy.textContent = "Copy it from the address bar";
    }
    setTimeout(() => { copy.textContent = "Copy link"; }, 2000);
  });
  document.addEventListener("keydown", onKey);
  prefersDark.addEventListener("change", redrawAll);
  matchMedia("print").addEventListener("change", () => { redrawAll(); redrawNow(); });
  addEventListener("hashchange", () => update(() => readAddress()));
  let width = innerWidth, timer = 0;
  addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { if (innerWidth !== width) { width = innerWidth; redrawAll(); } },
      150);
  });
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  document.getElementById("footer").textContent = data.footer ?? "";
  document.getElementById("notes")
    .append(...(data.notes ?? []).map((note) => create("li", {}, note)));
  openTools();
  openMenu();
  openLinks();
  openModels(data.models);
  if (location.hash.includes("=")) readAddress();
  redrawAll();
  openServer(data.models, (models) => {
    openModels(models);
    document.title =
      document.getElementById("title").textContent = models.map((model) => model.title).join(", ");
    update();
  });
  openPuzzles(data.levels, data.axes);
}

/** Replace the models of the page. */
function openModels(models) {
  closeColumns();
  for (const id of ["columns", "answers", "walk"]) document.getElementById(id).replaceChildren();
  for (const box of document.querySelectorAll("#input-form > .box")) box.remove();
  openColumns(models);
  document.documentElement.style.setProperty("--models", columns.length);
  document.body.classList.toggle("several", columns.length > 1);
  document.getElementById("columns").append(...columns.map(columnElement));
  openInput();
  openChips();
  openAttention();
  openLogits();
  openStream();
  openExamples();
  openOtherComponents();
  for (const column of columns) { openSnapshots(column); openWeights(column); openFacts(column); }
}

start();
