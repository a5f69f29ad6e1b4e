// The panel of a page that came from a server: open another model, type a source and see what is wrong with it in its
// place, verify and prove what is shown, train and look on.
import { grouped, inDigits, inPercent, lineChart, make } from "../charts.js";
import { columns, follow, type } from "../store.js";
import { again, ask, begin, cameFrom, followEdits, judge, messages, proving, server, stopJudging } from "../server.js";
import { idOf, partOf } from "./input.js";

const SOON = 300; // milliseconds after the last key
const BEGIN = { glass: `"""The token that came first."""
tokens = [*"abc"]
length = 8

emit = first(token, default="a")
`, taotp: `tokens: "ab"        # what comes after a is b, after b is a
block_size: 8
tok_emb: [[1 -1] [-1 1]]
out_emb: [[-1 1] [1 -1]]
` };

let openModels = null; // of page.js: shows these models instead
const shown = []; // payloads, in the order of the columns
const panel = make("section", { id: "python", class: "python", "aria-label": "With Python" });

/** Called once, when the page has opened its models; `show(payloads)` opens others. */
export function openServer(payloads, show) {
  if (!server) return;
  openModels = show;
  for (const payload of payloads) { cameFrom(payload, { ref: payload.ref }); shown.push(payload); }
  document.getElementById("columns").after(panel);
  document.querySelector("#head .tools").prepend(make("button", { id: "to-python", type: "button", title: "Other models, sources, training: what needs Python",
    onclick: () => { panel.scrollIntoView({ block: "start" }); document.getElementById("ref").focus({ preventScroll: true }); } }, "With Python"));
  panel.append(opener(), editor(), trainer());
  afterOpening();
  ask("refs").then(offer, (e) => { panel.prepend(make("p", { class: "problem", role: "alert" }, e.message)); });
}

/** A line for the verdict in every column, under its answer, which is always in sight. */
function afterOpening() {
  for (const column of columns) {
    const button = (id, name, act) => make("button", { id: idOf(id, column), type: "button", onclick: act }, name);
    const known = column.base.task ? "" : "This model names no task: there is nothing to prove.";
    partOf("said", column).append(make("div", { class: "judged", id: idOf("judged", column) },
      make("span", { class: "tools" }, column.base.task ? [
        button("prove", "Prove", () => judge(column, "prove", drawVerdict)), button("verify", "Verify", () => judge(column, "verify", drawVerdict)),
        button("stop", "Stop", () => stopJudging(column))] : ""),
      make("span", { id: idOf("verdict", column), class: "says", role: "status" }, known)));
    if (column.base.task) partOf("stop", column).hidden = true;
  }
  followEdits(drawVerdict);
  follow((column) => [column.actions.length > 0], (column) => again(column, drawVerdict));
}

function showModels(payloads) {
  shown.splice(0, shown.length, ...payloads);
  openModels(payloads);
  afterOpening();
}

/** A model in its own place: that of `before`, beside the others, or instead of them all. */
function place(payload, before) {
  const at = shown.indexOf(before), beside = document.getElementById("beside").checked && shown.length < 4;
  showModels(at >= 0 ? shown.with(at, payload) : beside ? [...shown, payload] : [payload]);
}

// ── verdicts ───────────────────────────────────────────────────────────────────────────────────
function drawVerdict(column, { kind, state, progress = {}, result, errors = [] }) {
  const place = partOf("verdict", column), going = state === "running" || state === "waiting";
  if (!place) return;
  partOf("stop", column).hidden = !going;
  partOf("judged", column).dataset.state = state;
  delete partOf("judged", column).dataset.result;
  if (!state) { // of the model that is shown now nothing is known
    delete partOf("judged", column).dataset.state;
    return place.replaceChildren();
  }
  if (going) {
    const far = progress.todo ? ` ${inPercent(progress.done / progress.todo)} of ${grouped(progress.todo)}` : "";
    const found = progress.counterexample ? [" — already wrong: ", example(column, progress.counterexample)] : [];
    return place.replaceChildren(state === "waiting" ? "waiting for a turn …" : `${progress.doing ?? (kind === "prove" ? "proving" : "verifying")} …${far}`, ...found);
  }
  if (state === "stopped") return place.replaceChildren("stopped");
  if (state === "wrong") return place.replaceChildren(messages(errors));
  const { proof, verdict, margin, counterexample } = result;
  const word = proof ? proof.result : verdict.wrong ? `${grouped(verdict.wrong)} wrong of ${grouped(verdict.checked)}` : `right on ${grouped(verdict.checked)}`;
  partOf("judged", column).dataset.result = proof ? proof.result : verdict.wrong ? "refuted" : "right";
  const how = proof ? proof.reason : verdict.exhaustive ? "every input was run" : "a sample and the edge cases";
  place.replaceChildren(make("b", {}, word), counterexample ? ": " : "", counterexample ? example(column, counterexample) : "",
    margin === null || margin === undefined ? "" : `, margin ${inDigits(margin)}`, counterexample ? "" : ` — ${how}`,
    column.actions.length ? "; of the model itself, with no part changed" : "");
}

/** A counterexample, which a click loads. */
function example(column, { input, got, expected }) {
  return make("span", {}, make("button", { type: "button", class: "plain", onclick: () => type(column.group, input) }, input || "nothing"),
    " says ", make("b", {}, got || "nothing"), ", right is ", make("b", {}, expected));
}

// ── another model ──────────────────────────────────────────────────────────────────────────────
function opener() {
  const problem = make("p", { id: "ref-problem", class: "problem", role: "alert" });
  const ref = make("input", { id: "ref", type: "text", list: "refs", autocomplete: "off", spellcheck: "false", placeholder: "addition:digits=3, lang/sort, …",
    "aria-describedby": "ref-problem" });
  const submit = async (e) => {
    e.preventDefault();
    problem.textContent = "";
    const asked = { ref: ref.value.trim() };
    try {
      const payload = await ask("model", asked);
      if (payload.errors) throw new Error(messages(payload.errors));
      cameFrom(payload, asked);
      place(payload, null);
    } catch (error) {
      problem.textContent = error.message;
    }
  };
  return make("section", { class: "part", "aria-labelledby": "open-heading" }, make("h3", { id: "open-heading" }, "Open a model"),
    make("form", { id: "open-form", class: "tools", onsubmit: submit }, make("label", { for: "ref" }, "Ref"), ref, make("button", { id: "open" }, "Open"),
      make("label", {}, make("input", { id: "beside", type: "checkbox" }), " beside what is shown"),
      make("label", {}, make("input", { id: "after", type: "checkbox", checked: true, onchange: (e) => { proving.after = e.target.checked; } }),
        " prove after every edit")),
    make("datalist", { id: "refs" }), problem);
}

function offer(names) {
  const options = (list) => list.map((name) => make("option", { value: name }));
  const refs = [...names.typed, ...names.files, ...names.programs, ...names.trained, ...names.texts, ...names.lang];
  document.getElementById("refs").append(...options([...new Set(refs)]));
  document.getElementById("tasks").append(...options(names.tasks));
  document.getElementById("recipe").append(...names.recipes.map((name) => make("option", { value: name }, name === "auto" ? "what suits the task (auto)" : name)));
}

// ── a source ───────────────────────────────────────────────────────────────────────────────────
function editor() {
  const given = columns[0]?.base.provenance?.compiled?.source;
  const box = make("textarea", { id: "source-text", spellcheck: "false", autocapitalize: "off", rows: 12, wrap: "off", "aria-describedby": "source-errors",
    "aria-label": "Source" });
  const marks = make("pre", { class: "marks", "aria-hidden": "true" }), errors = make("ul", { id: "source-errors", class: "errors", "aria-live": "polite" });
  const kind = make("select", { id: "source-kind", "aria-label": "Language" }, make("option", { value: "glass" }, "source (.glass)"), make("option", { value: "taotp" }, "weights as text (.taotp)"));
  const said = make("span", { id: "source-said", class: "says", role: "status" });
  let typed = false, clock = 0, asking = false, mine = null;
  box.value = given ?? BEGIN.glass;

  async function compile() {
    if (asking) return; // and once more when that is answered
    asking = true;
    const asked = { source: box.value, kind: kind.value };
    said.textContent = kind.value === "glass" ? "compiling …" : "reading …";
    try {
      const found = await ask("model", asked);
      draw(found.errors ?? []);
      const proved = found.source ? `compiled, and proved for every text of up to ${grouped(found.source.length)} tokens` : "read";
      said.textContent = found.errors ? "" : proved;
      if (!found.errors) {
        cameFrom(found, asked);
        const [at, view] = [box.selectionStart, document.activeElement === box];
        place(found, mine);
        mine = found;
        if (view) { box.focus({ preventScroll: true }); box.setSelectionRange(at, box.selectionEnd); }
      }
    } catch (e) {
      said.textContent = e.message;
    }
    asking = false;
    if (box.value !== asked.source || kind.value !== asked.kind) compile();
  }

  /** What is wrong, each at its line and column: a mark under it, words after the line, and a list for all. */
  function draw(wrong) {
    box.setAttribute("aria-invalid", String(wrong.length > 0));
    const at = new Map(wrong.filter((e) => e.line).map((e) => [e.line, e]));
    marks.replaceChildren(...box.value.split("\n").flatMap((line, i) => {
      const error = at.get(i + 1);
      if (!error) return [`${line}\n`];
      const from = Math.max(0, (error.column ?? 1) - 1), word = /^[\w.]*/.exec(line.slice(from))[0].length || 1;
      return [line.slice(0, from), make("mark", {}, line.slice(from, from + word) || " "), line.slice(from + word),
        make("span", { class: "aside" }, `  ← ${error.message}`), "\n"];
    }));
    errors.replaceChildren(...wrong.map((e) => make("li", {}, e.line ? make("button", { type: "button", class: "plain", onclick: () => go(e) },
      `line ${e.line}${e.column ? `, column ${e.column}` : ""}`) : "", e.line ? ` ${e.message}` : e.message)));
    scroll();
  }

  function go({ line, column }) {
    const lines = box.value.split("\n"), at = lines.slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0) + (column ?? 1) - 1;
    box.focus();
    box.setSelectionRange(at, at);
  }

  const scroll = () => { marks.scrollTop = box.scrollTop; marks.scrollLeft = box.scrollLeft; };
  const soon = () => { typed = true; said.textContent = ""; marks.replaceChildren(); clearTimeout(clock); clock = setTimeout(compile, SOON); };
  box.addEventListener("input", soon);
  box.addEventListener("scroll", scroll);
  kind.addEventListener("change", () => { if (!typed) box.value = BEGIN[kind.value]; soon(); typed = box.value !== BEGIN[kind.value]; });
  return make("section", { class: "part", "aria-labelledby": "source-heading" }, make("h3", { id: "source-heading" }, "Type a source"),
    make("p", { class: "tools" }, kind, make("button", { id: "compile", type: "button", onclick: compile }, "Compile"), said),
    make("div", { class: "code" }, marks, box), errors);
}

// ── a training ─────────────────────────────────────────────────────────────────────────────────
function trainer() {
  const field = (id, label, attributes, tag = "input") => make("span", { class: "field" }, make("label", { for: id }, label), make(tag, { id, ...attributes }));
  const said = make("p", { id: "train-said", class: "says", role: "status" }), charts = make("div", { id: "train-charts", class: "charts" });
  const start = make("button", { id: "train" }, "Train"), stop = make("button", { id: "train-stop", type: "button", hidden: true }, "Stop");
  let job = null;
  const value = (id) => document.getElementById(id).value.trim();
  const submit = async (e) => {
    e.preventDefault();
    const steps = value("train-steps"), body = { task: value("train-task"), recipe: value("recipe"), seed: Number(value("train-seed")) || 0,
      settings: steps ? { steps: Number(steps) } : {} };
    charts.replaceChildren();
    said.textContent = "beginning …";
    start.disabled = true;
    stop.hidden = false;
    try {
      job = begin("train", body, (now) => draw(now, said, charts, job.stopped));
      const { state, result, errors } = await job.over;
      if (state === "wrong") said.textContent = messages(errors);
      if (state === "stopped") said.textContent = "stopped";
      if (result) {
        const { training, model } = result;
        said.textContent = `${training.status} after ${grouped(training.steps)} steps: ${inPercent(training.accuracy)} of test rows right`;
        place(model, null); // where it came from nobody knows: it goes to the server whole
      }
    } catch (error) {
      said.textContent = error.message;
    }
    start.disabled = false;
    stop.hidden = true;
  };
  stop.addEventListener("click", () => { said.textContent = "stopping …"; job?.stop(); });
  return make("section", { class: "part", "aria-labelledby": "train-heading" }, make("h3", { id: "train-heading" }, "Train"),
    make("form", { id: "train-form", class: "tools", onsubmit: submit },
      field("train-task", "Task", { type: "text", list: "tasks", required: true, value: columns[0]?.base.task?.ref ?? "", spellcheck: "false" }),
      make("datalist", { id: "tasks" }), field("recipe", "Recipe", {}, "select"), field("train-seed", "Seed", { type: "text", inputmode: "numeric", size: 4, value: "0" }),
      field("train-steps", "Steps", { type: "text", inputmode: "numeric", size: 6, placeholder: "all" }), start, stop), said, charts);
}

/** How far a training is, in words. */
function howFar({ progress, events, state }, stopping) {
  if (stopping) return "stopping …";
  if (state === "waiting") return "waiting for a turn …";
  if (progress.of === undefined) return "beginning …"; // its process starts
  const last = events.findLast((e) => e.kind === "evaluation"), turn = events.findLast((e) => e.kind !== "evaluation");
  const step = grouped(Math.max(progress.step ?? 0, last?.step ?? 0)), loss = progress.loss === undefined ? "" : `loss ${inDigits(progress.loss, 3)}`;
  // The length of the full-domain phase is unknown, and it trains on test rows: show the result of the last domain check.
  const look = events.findLast((e) => e.kind === "domain checked");
  const words = look ? [`step ${step}, in the full-domain phase`, loss, `${grouped(look.wrong)} wrong of ${grouped(look.checked)} (${look.coverage}) at step ${grouped(look.step)}`]
    : [`step ${step} of ${grouped(progress.of)}`, loss, last ? `${inPercent(last.accuracy)} of test rows right` : "", turn ? `${turn.kind} at step ${grouped(turn.step)}` : ""];
  return words.filter(Boolean).join(", ");
}

function draw(now, said, charts, stopping) {
  const { progress, events, state } = now, seen = events.filter((e) => e.kind === "evaluation"), last = seen.at(-1);
  if (state === "running" || state === "waiting") said.textContent = howFar(now, stopping);
  if (!seen.length) return;
  const x = seen.map((e) => e.step), of = (name, f) => ({ name, x, y: seen.map(f) });
  const digits = (progress.names ?? []).map((name, k) => of(name, (e) => e.digits[k])).slice(0, 4);
  charts.replaceChildren(lineChart({ series: [of("loss", (e) => e.loss)], title: "loss" }),
    lineChart({ series: [of("test rows right", (e) => e.accuracy), ...(last.train_accuracy === undefined ? [] : [of("training rows", (e) => e.train_accuracy)])],
      title: "right", low: 0, high: 1 }), digits.length ? lineChart({ series: digits, title: "right, by place", low: 0, high: 1 }) : "");
}
