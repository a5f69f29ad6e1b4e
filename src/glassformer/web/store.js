// The state of the page and everything computed from it. A view subscribes to values of a column
// and
// is redrawn when one of them changes. The address of the page holds the whole state.
import { applyEdits } from "./save_checkpoint.js";
import { run } from "./decoding.js";
import { record } from "./forward.js";
import { readModel } from "./model.js";
import { interventionHook } from "./components.js";
import { forgetModels, score } from "./score.js";

export const state = { step: 0, model: 0, playing: false, layout: "" }; // layout: theme and width
export const columns = []; // one per model
const subscriptions = [], afterDraw = [];

/** Make a column per model. Columns share an input if they can read it. */
export function openColumns(payloads) {
  payloads.forEach((payload, m) => {
    const base = readModel(payload), first = inputsOf(base)[0] ?? "";
    const sameInput = columns.find((column) => reads(base, column.input));
    columns.push({ m, base, payload, input: sameInput ? sameInput.input : first,
      group: sameInput ? sameInput.group : m, head: [0, 0],
      actions: [], edits: [], snapshot: null, memo: {}, score: null, place: null, after: null });
  });
}

/** Remove all columns and subscriptions. */
export function closeColumns() {
  for (const list of [columns, subscriptions, afterDraw, undoStack]) list.length = 0;
  forgetModels();
  Object.assign(state, { step: 0, model: 0, playing: false });
}

/** Inputs to offer: those of the payload, then examples evenly spaced. */
export function inputsOf({ inputs, examples }) {
  const n = examples?.length ?? 0,
    samples = Array.from({ length: Math.min(8, n) },
      (_, i) => examples[Math.floor(i * n / Math.min(8, n))].text);
  return [...new Set([...(inputs ?? []), ...samples])].slice(0, 8);
}

function reads(model, text) {
  try {
    run(model, text, {});
    return true;
  } catch {
    return false;
  }
}

// ── derived values ─────────────────────────────────────────────────────────────────────────────
function memoized(column, name, needs, make) {
  const entry = column.memo[name];
  if (entry && entry.needs.every((x, i) => x === needs[i])) return entry.value;
  const value = make();
  column.memo[name] = { needs, value };
  return value;
}

const orProblem = (work) => {
  try {
    return work();
  } catch (e) {
    return { problem: e.message };
  }
};

/** The current model: the selected snapshot with all edits. */
function liveModel(column) {
  const { base, snapshot, edits } = column;
  const snapshotModel = memoized(column, "then", [base, snapshot], () => (snapshot === null ? base
      : { ...base, weights: { ...base.weights, ...base.snapshots[snapshot].weights } }));
  const edited = memoized(column, "live", [snapshotModel, edits],
    () => (edits.length ? orProblem(() => applyEdits(snapshotModel, edits)) : snapshotModel));
  if (!edited.problem) return edited;
  column.edits = column.edits.slice(0, -1); // an edit from the address may be out of range
  return liveModel(column);
}

function updateColumn(column) {
  const { base, input, actions } = column, previous = column.ran;
  column.live = liveModel(column);
  column.hook = memoized(column, "hook", [column.live, actions],
    () => orProblem(() => (actions.length ? interventionHook(column.live, actions) : null)));
  const { hook } = column;
  column.ran = memoized(column, "ran", [column.live, input, actions],
    () => (hook?.problem ? hook : orProblem(() => run(column.live, input, { hook }))));
  if (column.ran.problem) { // keep the previous result, drawn pale
    Object.assign(column,
      { problem: column.ran.problem, ran: previous?.problem ? null : previous });
    if (!column.ran) return Object.assign(column, { cache: null, step: null, plain: null });
  } else column.problem = "";
  const touched = column.live !== base || actions.length > 0;
  column.plain = touched && !column.problem
    ? memoized(column, "plain", [base, input], () => orProblem(() => run(base, input, {}))) : null;
  column.at = Math.min(state.step, column.ran.steps.length - 1);
  column.step = column.ran.steps[column.at] ?? null;
  column.cache = memoized(column, "cache", [column.ran, column.at],
    () => activationsAtStep(column));
}

/** The activations at a step: {first position, tokens, last, arrays by name}. */
function activationsAtStep(column) {
  const { ran, live, step } = column, n = step ? step.at : ran.tokens.length;
  const first = Math.max(0, n - live.config.n_ctx), tokens = Array.from(ran.tokens.slice(first, n));
  return { first, tokens, last: tokens.length - 1,
    arrays: orProblem(() => record(live, tokens, column.hook)) };
}

export const maxSteps = () => Math.max(1, ...columns.map((c) => c.ran?.steps.length ?? 0));

// ── subscriptions ────────────────────────────────────────────────────────────────────────────────
/** Call `draw(column)` now and whenever a value of `needs(column)` changes; `soon`: in the next
 * frame. */
export function subscribe(needs, draw, { soon = false } = {}) {
  subscriptions.push({ needs, draw, soon, previous: new Map() });
}

/** Call `work()` after every redraw. */
export const runAfterDraw = (work) => afterDraw.push(work);

let frame = 0;
/** Change the state by `work()` and redraw: the first screen at once, the rest in the next frame.
 * */
export function update(work = () => {}) {
  work();
  for (const column of columns) updateColumn(column);
  state.step = Math.max(0, Math.min(state.step, maxSteps() - 1));
  redraw(false);
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(() => {
    redraw(true); requestScores(); writeAddress(); for (const last of afterDraw) last(); });
}

/** Draw without waiting for the next frame, for printing. */
export const redrawNow = () => redraw(true);

function redraw(soon) {
  for (const subscription of subscriptions) {
    if (subscription.soon !== soon) continue;
    for (const column of columns) {
      const needs = subscription.needs(column), previous = subscription.previous.get(column);
      if (previous && previous.length === needs.length
          && previous.every((x, i) => Object.is(x, needs[i]))) continue;
      subscription.previous.set(column, needs);
      try {
        keepFocus(() => subscription.draw(column));
      } catch (e) {
        reportError(e); // and draw the other views
      }
    }
  }
}

/** Restore the focus if `work()` replaces the focused element. */
function keepFocus(work) {
  const id = document.activeElement?.id;
  work();
  if (id && document.activeElement?.id !== id)
    document.getElementById(id)?.focus({ preventScroll: true });
}

/** Whether the score belongs to the current model. */
export const isScored =
  (column) => Boolean(column.scored) && column.scored[0] === column.live
  && column.scored[1] === column.actions;

// ── the score, computed in the worker ──────────────────────────────────────────────────────────
async function requestScores() {
  for (const column of columns) {
    const needs = [column.live, column.actions];
    if (column.asking || !column.base.examples?.length
        || column.scored?.every((x, i) => x === needs[i])) continue;
    column.asking = true;
    try {
      const result = await score(column.live, column.actions);
      column.score = result;
    } catch (e) {
      column.score = { problem: e.message };
    }
    Object.assign(column, { asking: false, scored: needs });
    if (columns[column.m] === column) update();
  }
}

// ── undo ───────────────────────────────────────────────────────────────────────────────────────
const MAX_UNDO_STEPS = 200;
const undoStack = [];
export const canUndo = () => undoStack.length > 0;

/** Push the edits and interventions of a column on the undo stack. */
export function saveForUndo(column) {
  undoStack.push({ column, edits: column.edits, actions: column.actions });
  if (undoStack.length > MAX_UNDO_STEPS) undoStack.shift();
}

export function undo() {
  const last = undoStack.pop();
  if (last) update(() => Object.assign(last.column, { edits: last.edits, actions: last.actions }));
}

/** Set a component to "zero", "mean" or "from" another input; "" restores it. */
export function setIntervention(column, part, how, text = "") {
  saveForUndo(column);
  update(() => {
    const actions = column.actions.filter((a) => a.part !== part);
    column.actions = how ? [...actions, how === "from" ? { part, how, text } : { part, how }]
      : actions;
  });
}

/** The number of a position; compiled models count from the first token after <bos>. */
export const positionName =
  (column, t) => (column.base.source ? (t > 0 ? String(t - 1) : "") : String(t));

export const interventionOn = (column, part) => column.actions.find((a) => a.part === part) ?? null;

/** Set one weight. `sameEdit`: continue the last edit, as in dragging. */
export function editWeight(column, name, index, value, sameEdit = false) {
  column.refused = orProblem(() => applyEdits(column.base, [{ name, index, value }])).problem ?? "";
  if (column.refused) return;
  if (!sameEdit) saveForUndo(column);
  const same = (e) => e.name === name && String(e.index) === String(index);
  update(() => {
    column.edits = [...column.edits.filter((e) => !same(e)), { name, index, value }]; });
}

export function setInput(group, text) {
  update(() => {
    for (const column of columns) if (column.group === group) column.input = text;
    state.step = 0;
  });
}

// ── the address ────────────────────────────────────────────────────────────────────────────────
export function pageAddress() {
  const fields = new URLSearchParams();
  fields.set("model", columns[state.model].base.title);
  for (const column of columns) if (column.group === column.m) fields.append("input", column.input);
  fields.set("step", state.step + 1);
  for (const column of columns) {
    const { m } = column;
    if (column.base.config.n_layers) fields.append("head", [m, column.head.join(".")].join("|"));
    for (const { part, how, text } of column.actions)
      fields.append("part", [m, part, how, text ?? ""].join("|"));
    for (const { name, index, value } of column.edits)
      fields.append("edit", [m, name, [index].flat().join(","), value].join("|"));
    if (column.snapshot !== null) fields.append("snapshot", [m, column.snapshot].join("|"));
  }
  return `#${fields}`;
}

function writeAddress() {
  const current = pageAddress();
  // The address of a notebook's frame cannot change.
  if (location.hash !== current && location.protocol !== "about:")
    history.replaceState(null, "", current);
}

/** Whether a text is an index of a list, and not "length" or "map". */
const isIndexOf = (text, list) => /^\d{1,9}$/.test(text) && Number(text) < list.length;

/** Set the state from an address; invalid fields are ignored. */
export function readAddress(hash = location.hash) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const lines =
    (name) =>
    fields.getAll(name).map((line) => line.split("|")).filter(([m]) => isIndexOf(m, columns));
  const model = columns.findIndex((c) => c.base.title === fields.get("model"));
  if (model >= 0) state.model = model;
  const homes = columns.filter((c) => c.group === c.m);
  fields.getAll("input").forEach((text, i) => {
    for (const column of columns) if (column.group === homes[i]?.m) column.input = text;
  });
  state.step = Math.max(0, (Number.parseInt(fields.get("step"), 10) || 1) - 1);
  for (const column of columns) Object.assign(column, { actions: [], edits: [], snapshot: null });
  for (const [m, head] of lines("head")) {
    const [layer, index] = String(head).split(".").map(Number), c = columns[m].base.config;
    if (layer >= 0 && layer < c.n_layers && index >= 0 && index < c.n_heads)
      columns[m].head = [layer, index];
  }
  for (const [m, part, how, ...text] of lines("part")) {
    const action = { part, how, ...(how === "from" ? { text: text.join("|") } : {}) };
    if (!orProblem(() => interventionHook(columns[m].base, [action]))?.problem)
      columns[m].actions = [...columns[m].actions, action];
  }
  for (const [m, name, at, value] of lines("edit")) {
    const index = String(at).split(",").map(Number), weight = columns[m].base.weights[name];
    const fits = Object.hasOwn(columns[m].base.weights, name)
      && index.length === weight.shape.length
      && index.every((i, k) => Number.isInteger(i) && i >= 0 && i < weight.shape[k]);
    if (fits && value !== "" && Number.isFinite(Number(value))) {
      columns[m].edits = [...columns[m].edits, { name, index, value: Number(value) }];
    }
  }
  for (const [m, at] of lines("snapshot")) {
    if (isIndexOf(at, columns[m].base.snapshots ?? [])) columns[m].snapshot = Number(at);
  }
}
