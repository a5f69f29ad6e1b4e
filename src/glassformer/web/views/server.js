// The studio's panel: open models, edit a source with errors in place, verify, prove and train.
import { formatInteger, formatNumber, formatPercent, lineChart, create } from "../charts.js";
import { columns, subscribe, setInput } from "../store.js";
import { showCheckAgain, request, startJob, setOrigin, proveAfterEdits, startCheck, joinMessages,
  checkSettings, server, stopCheck } from "../server.js";
import { elementId, elementOf } from "./input.js";

const TYPING_DELAY_MS = 300;
const STARTER_SOURCES = { glass: `"""The first token."""
tokens = [*"abc"]
length = 8

emit = first(token, default="a")
`, taotp: `tokens: "ab"        # b follows a, a follows b
block_size: 8
tok_emb: [[1 -1] [-1 1]]
out_emb: [[-1 1] [1 -1]]
` };

let showInPage = null; // page.js: replace the models of the page
const shown = []; // payloads, in the order of the columns
const panel = create("section", { id: "python", class: "python", "aria-label": "Python tools" });

/** Called once, after the page has opened its models; `show(payloads)` opens others. */
export function openServer(payloads, show) {
  if (!server) return;
  showInPage = show;
  for (const payload of payloads) { setOrigin(payload, { ref: payload.ref }); shown.push(payload); }
  document.getElementById("columns").after(panel);
  document.querySelector("#head .tools").prepend(create("button",
    { id: "to-python", type: "button", title: "Open models, edit sources, train",
      onclick: () => {
        panel.scrollIntoView({ block: "start" }); document.getElementById("ref")
          .focus({ preventScroll: true }); } }, "Python tools"));
  panel.append(openForm(), sourceEditor(), trainForm());
  addCheckControls();
  request("refs").then(fillChoices,
    (e) => { panel.prepend(create("p", { class: "problem", role: "alert" }, e.message)); });
}

/** Add the buttons and the verdict to every column. */
function addCheckControls() {
  for (const column of columns) {
    const button = (id, name, act) => create("button",
      { id: elementId(id, column), type: "button", onclick: act }, name);
    const note = column.base.task ? "" : "This model has no task to prove.";
    elementOf("result", column).append(create("div",
      { class: "judged", id: elementId("judged", column) },
      create("span", { class: "tools" }, column.base.task ? [
        button("prove", "Prove", () => startCheck(column, "prove", drawVerdict)),
        button("verify", "Verify", () => startCheck(column, "verify", drawVerdict)),
        button("stop", "Stop", () => stopCheck(column))] : ""),
      create("span", { id: elementId("verdict", column), class: "status", role: "status" }, note)));
    if (column.base.task) elementOf("stop", column).hidden = true;
  }
  proveAfterEdits(drawVerdict);
  subscribe((column) => [column.actions.length > 0],
    (column) => showCheckAgain(column, drawVerdict));
}

function showModels(payloads) {
  shown.splice(0, shown.length, ...payloads);
  showInPage(payloads);
  addCheckControls();
}

/** Show a model: in place of `previous`, beside the others, or instead of all. */
function placeModel(payload, previous) {
  const at = shown.indexOf(previous),
    sideBySide = document.getElementById("beside").checked && shown.length < 4;
  showModels(at >= 0 ? shown.with(at, payload) : sideBySide ? [...shown, payload] : [payload]);
}

// ── verdicts ───────────────────────────────────────────────────────────────────────────────────
function drawVerdict(column, { kind, state, progress = {}, result, errors = [] }) {
  const place = elementOf("verdict", column),
    isRunning = state === "running" || state === "waiting";
  if (!place) return;
  elementOf("stop", column).hidden = !isRunning;
  elementOf("judged", column).dataset.state = state;
  delete elementOf("judged", column).dataset.result;
  if (!state) {
    delete elementOf("judged", column).dataset.state;
    return place.replaceChildren();
  }
  if (isRunning) {
    const fraction = progress.total
      ? ` ${formatPercent(progress.done / progress.total)} of ${formatInteger(progress.total)}`
      : "";
    const example_ = progress.counterexample
      ? [" — wrong for: ", counterexampleElement(column, progress.counterexample)] : [];
    return place.replaceChildren(state === "waiting" ? "waiting for a free worker …"
        : `${progress.stage ?? (kind === "prove" ? "proving" : "verifying")} …${fraction}`,
      ...example_);
  }
  if (state === "stopped") return place.replaceChildren("stopped");
  if (state === "wrong") return place.replaceChildren(joinMessages(errors));
  const { proof, verdict, margin, counterexample } = result;
  const word = proof ? proof.result
    : verdict.wrong ? `${formatInteger(verdict.wrong)} wrong of ${formatInteger(verdict.checked)}`
    : `right on ${formatInteger(verdict.checked)}`;
  elementOf("judged", column).dataset.result = proof ? proof.result
    : verdict.wrong ? "refuted" : "right";
  const how = proof ? proof.reason
    : verdict.exhaustive ? "every input was run" : "a sample and the edge cases were run";
  place.replaceChildren(create("b", {}, word), counterexample ? ": " : "",
    counterexample ? counterexampleElement(column, counterexample) : "",
    margin === null || margin === undefined ? "" : `, margin ${formatNumber(margin)}`,
    counterexample ? "" : ` — ${how}`,
    column.actions.length ? "; without the interventions shown" : "");
}

/** A counterexample with a button that loads it. */
function counterexampleElement(column, { input, got, expected }) {
  return create("span", {},
    create("button",
      { type: "button", class: "plain", onclick: () => setInput(column.group, input) },
      input || "empty input"),
    " gives ", create("b", {}, got || "nothing"), ", expected ", create("b", {}, expected));
}

// ── another model ──────────────────────────────────────────────────────────────────────────────
function openForm() {
  const problem = create("p", { id: "ref-problem", class: "problem", role: "alert" });
  const ref = create("input",
    { id: "ref", type: "text", list: "refs", autocomplete: "off", spellcheck: "false",
      placeholder: "addition:digits=3, lang/sort, …",
      "aria-describedby": "ref-problem" });
  const submit = async (e) => {
    e.preventDefault();
    problem.textContent = "";
    const body = { ref: ref.value.trim() };
    try {
      const payload = await request("model", body);
      if (payload.errors) throw new Error(joinMessages(payload.errors));
      setOrigin(payload, body);
      placeModel(payload, null);
    } catch (error) {
      problem.textContent = error.message;
    }
  };
  return create("section", { class: "part", "aria-labelledby": "open-heading" },
    create("h3", { id: "open-heading" }, "Open a model"),
    create("form", { id: "open-form", class: "tools", onsubmit: submit },
      create("label", { for: "ref" }, "Ref"), ref, create("button", { id: "open" }, "Open"),
      create("label", {}, create("input", { id: "beside", type: "checkbox" }),
        " beside the current models"),
      create("label", {},
        create("input",
          { id: "after", type: "checkbox", checked: true,
            onchange: (e) => { checkSettings.afterEdits = e.target.checked; } }),
        " prove after every edit")),
    create("datalist", { id: "refs" }), problem);
}

function fillChoices(names) {
  const options = (list) => list.map((name) => create("option", { value: name }));
  const refs = [...names.typed, ...names.files, ...names.programs, ...names.trained, ...names.texts,
    ...names.lang];
  document.getElementById("refs").append(...options([...new Set(refs)]));
  document.getElementById("tasks").append(...options(names.tasks));
  document.getElementById("recipe")
    .append(...names.recipes.map((name) => create("option", { value: name },
      name === "auto" ? "recipe of the task (auto)" : name)));
}

// ── a source ───────────────────────────────────────────────────────────────────────────────────
function sourceEditor() {
  const source = columns[0]?.base.provenance?.compiled?.source;
  const box = create("textarea",
    { id: "source-text", spellcheck: "false", autocapitalize: "off", rows: 12, wrap: "off",
      "aria-describedby": "source-errors",
      "aria-label": "Source" });
  const marks = create("pre", { class: "marks", "aria-hidden": "true" }),
    errors = create("ul", { id: "source-errors", class: "errors", "aria-live": "polite" });
  const kind = create("select", { id: "source-kind", "aria-label": "Language" },
    create("option", { value: "glass" }, "source (.glass)"),
    create("option", { value: "taotp" }, "weights as text (.taotp)"));
  const status = create("span", { id: "source-status", class: "status", role: "status" });
  let typed = false, clock = 0, asking = false, ownPayload = null;
  box.value = source ?? STARTER_SOURCES.glass;

  async function compile() {
    if (asking) return; // compile again after the answer
    asking = true;
    const body = { source: box.value, kind: kind.value };
    status.textContent = kind.value === "glass" ? "compiling …" : "reading …";
    try {
      const payload = await request("model", body);
      draw(payload.errors ?? []);
      const proved = payload.source
        ? `compiled and proved for all texts of up to ${payload.source.length} tokens` : "read";
      status.textContent = payload.errors ? "" : proved;
      if (!payload.errors) {
        setOrigin(payload, body);
        const [at, view] = [box.selectionStart, document.activeElement === box];
        placeModel(payload, ownPayload);
        ownPayload = payload;
        if (view) {
          box.focus({ preventScroll: true }); box.setSelectionRange(at, box.selectionEnd); }
      }
    } catch (e) {
      status.textContent = e.message;
    }
    asking = false;
    if (box.value !== body.source || kind.value !== body.kind) compile();
  }

  /** Mark every error at its line and column, and list them all. */
  function draw(wrong) {
    box.setAttribute("aria-invalid", String(wrong.length > 0));
    const at = new Map(wrong.filter((e) => e.line).map((e) => [e.line, e]));
    marks.replaceChildren(...box.value.split("\n").flatMap((line, i) => {
      const error = at.get(i + 1);
      if (!error) return [`${line}\n`];
      const from = Math.max(0, (error.column ?? 1) - 1),
        word = /^[\w.]*/.exec(line.slice(from))[0].length || 1;
      return [line.slice(0, from), create("mark", {}, line.slice(from, from + word) || " "),
        line.slice(from + word),
        create("span", { class: "aside" }, `  ← ${error.message}`), "\n"];
    }));
    errors.replaceChildren(...wrong.map((e) => create("li", {},
      e.line ? create("button", { type: "button", class: "plain", onclick: () => go(e) },
        `line ${e.line}${e.column ? `, column ${e.column}` : ""}`) : "",
      e.line ? ` ${e.message}` : e.message)));
    scroll();
  }

  function go({ line, column }) {
    const lines = box.value.split("\n"),
      at = lines.slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0) + (column ?? 1) - 1;
    box.focus();
    box.setSelectionRange(at, at);
  }

  const scroll = () => { marks.scrollTop = box.scrollTop; marks.scrollLeft = box.scrollLeft; };
  const soon = () => {
    typed = true; status.textContent = ""; marks.replaceChildren(); clearTimeout(clock); clock =
      setTimeout(compile, TYPING_DELAY_MS); };
  box.addEventListener("input", soon);
  box.addEventListener("scroll", scroll);
  kind.addEventListener("change",
    () => { if (!typed)
        box.value = STARTER_SOURCES[kind.value]; soon(); typed = box.value
        !== STARTER_SOURCES[kind.value]; });
  return create("section", { class: "part", "aria-labelledby": "source-heading" },
    create("h3", { id: "source-heading" }, "Edit a source"),
    create("p", { class: "tools" }, kind,
      create("button", { id: "compile", type: "button", onclick: compile }, "Compile"), status),
    create("div", { class: "code" }, marks, box), errors);
}

// ── a training ─────────────────────────────────────────────────────────────────────────────────
function trainForm() {
  const field = (id, label, attributes, tag = "input") => create("span", { class: "field" },
    create("label", { for: id }, label), create(tag, { id, ...attributes }));
  const status = create("p", { id: "train-status", class: "status", role: "status" }),
    charts = create("div", { id: "train-charts", class: "charts" });
  const start = create("button", { id: "train" }, "Train"),
    stop = create("button", { id: "train-stop", type: "button", hidden: true }, "Stop");
  let job = null;
  const value = (id) => document.getElementById(id).value.trim();
  const submit = async (e) => {
    e.preventDefault();
    const steps = value("train-steps"),
      body = { task: value("train-task"), recipe: value("recipe"),
        seed: Number(value("train-seed")) || 0,
        settings: steps ? { steps: Number(steps) } : {} };
    charts.replaceChildren();
    status.textContent = "starting …";
    start.disabled = true;
    stop.hidden = false;
    try {
      job = startJob("train", body, (job_) => drawTraining(job_, status, charts, job.stopped));
      const { state, result, errors } = await job.over;
      if (state === "wrong") status.textContent = joinMessages(errors);
      if (state === "stopped") status.textContent = "stopped";
      if (result) {
        const { training, model } = result;
        status.textContent = `${training.status} after ${formatInteger(training.steps)} steps: `
          + `${formatPercent(training.accuracy)} of held-out rows right`;
        placeModel(model, null); // has no origin: requests send the whole checkpoint
      }
    } catch (error) {
      status.textContent = error.message;
    }
    start.disabled = false;
    stop.hidden = true;
  };
  stop.addEventListener("click", () => { status.textContent = "stopping …"; job?.stop(); });
  return create("section", { class: "part", "aria-labelledby": "train-heading" },
    create("h3", { id: "train-heading" }, "Train"),
    create("form", { id: "train-form", class: "tools", onsubmit: submit },
      field("train-task", "Task",
        { type: "text", list: "tasks", required: true, value: columns[0]?.base.task?.ref ?? "",
          spellcheck: "false" }),
      create("datalist", { id: "tasks" }), field("recipe", "Recipe", {}, "select"),
      field("train-seed", "Seed", { type: "text", inputmode: "numeric", size: 4, value: "0" }),
      field("train-steps", "Steps",
        { type: "text", inputmode: "numeric", size: 6, placeholder: "all" }), start, stop), status,
    charts);
}

/** The progress of a training as a text. */
function trainingStatus({ progress, events, state }, stopping) {
  if (stopping) return "stopping …";
  if (state === "waiting") return "waiting for a free worker …";
  if (progress.steps === undefined) return "starting …";
  const last = events.findLast((e) => e.kind === "evaluation"),
    turn = events.findLast((e) => e.kind !== "evaluation");
  const step = formatInteger(Math.max(progress.step ?? 0, last?.step ?? 0)),
    loss = progress.loss === undefined ? "" : `loss ${formatNumber(progress.loss, 3)}`;
  // The full-domain phase has no step limit and trains on held-out rows: show its domain checks.
  const check = events.findLast((e) => e.kind === "domain checked");
  const words = check
    ? [`step ${step}, in the full-domain phase`, loss,
      `${formatInteger(check.wrong)} wrong of ${formatInteger(check.checked)} (${check.coverage}) `
        + `at step ${formatInteger(check.step)}`]
    : [`step ${step} of ${formatInteger(progress.steps)}`, loss,
      last ? `${formatPercent(last.accuracy)} of held-out rows right` : "",
      turn ? `${turn.kind} at step ${formatInteger(turn.step)}` : ""];
  return words.filter(Boolean).join(", ");
}

function drawTraining(job, status, charts, stopping) {
  const { progress, events, state } = job,
    evaluations = events.filter((e) => e.kind === "evaluation"), last = evaluations.at(-1);
  if (state === "running" || state === "waiting")
    status.textContent = trainingStatus(job, stopping);
  if (!evaluations.length) return;
  const x = evaluations.map((e) => e.step), of = (name, f) => ({ name, x, y: evaluations.map(f) });
  const digits = (progress.names ?? []).map((name, k) => of(name, (e) => e.digits[k])).slice(0, 4);
  charts.replaceChildren(lineChart({ series: [of("loss", (e) => e.loss)], title: "loss" }),
    lineChart({ series: [of("held-out rows", (e) => e.accuracy),
      ...(last.train_accuracy === undefined ? [] : [of("training rows", (e) => e.train_accuracy)])],
      title: "accuracy", minimum: 0, maximum: 1 }),
    digits.length
      ? lineChart({ series: digits, title: "accuracy by answer token", minimum: 0, maximum: 1 })
      : "");
}
