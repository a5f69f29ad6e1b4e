// The one store: what is chosen, what follows from it, and who follows. A view says what it needs of a column and is
// drawn anew when some of it is another thing than before. The address of the page holds all that was chosen.
import { edited } from "./save_checkpoint.js";
import { run } from "./decoding.js";
import { record } from "./forward.js";
import { readModel } from "./model.js";
import { tapOf } from "./components.js";
import { forgetModels, score } from "./score.js";

export const state = { step: 0, model: 0, playing: false, look: "" }; // look: colours and width
export const columns = []; // one for each model
const followers = [], done = [];

/** A column for each model. Those that cannot read what the first reads have an input of their own. */
export function openColumns(payloads) {
  payloads.forEach((payload, m) => {
    const base = readModel(payload), first = inputsOf(base)[0] ?? "";
    const home = columns.find((other) => reads(base, other.input));
    columns.push({ m, base, payload, input: home ? home.input : first, group: home ? home.group : m, head: [0, 0],
      actions: [], edits: [], snapshot: null, memo: {}, score: null, place: null, after: null });
  });
}

/** Other models are to be opened: nothing follows these any more. */
export function closeColumns() {
  for (const list of [columns, followers, done, past]) list.length = 0;
  forgetModels();
  Object.assign(state, { step: 0, model: 0, playing: false });
}

/** Texts to try: those that the page was made with, then some of its examples, from all over. */
export function inputsOf({ inputs, examples }) {
  const n = examples?.length ?? 0, some = Array.from({ length: Math.min(8, n) }, (_, i) => examples[Math.floor(i * n / Math.min(8, n))].text);
  return [...new Set([...(inputs ?? []), ...some])].slice(0, 8);
}

function reads(model, text) {
  try {
    run(model, text, { tap: null });
    return true;
  } catch {
    return false;
  }
}

// ── what follows from what ─────────────────────────────────────────────────────────────────────
function kept(column, name, needs, make) {
  const known = column.memo[name];
  if (known && known.needs.every((x, i) => x === needs[i])) return known.value;
  const value = make();
  column.memo[name] = { needs, value };
  return value;
}

const attempt = (work) => {
  try {
    return work();
  } catch (e) {
    return { problem: e.message };
  }
};

/** The model as it is now: a snapshot of its training, with what was edited. */
function liveModel(column) {
  const { base, snapshot, edits } = column;
  const then = kept(column, "then", [base, snapshot], () => (snapshot === null ? base
    : { ...base, weights: { ...base.weights, ...base.snapshots[snapshot].weights } }));
  const made = kept(column, "live", [then, edits], () => (edits.length ? attempt(() => edited(then, edits)) : then));
  if (!made.problem) return made;
  column.edits = column.edits.slice(0, -1); // an address may say what no weight of this type can be
  return liveModel(column);
}

function settle(column) {
  const { base, input, actions } = column, was = column.ran;
  column.live = liveModel(column);
  column.tap = kept(column, "tap", [column.live, actions], () => attempt(() => (actions.length ? tapOf(column.live, actions) : null)));
  const tap = column.tap;
  column.ran = kept(column, "ran", [column.live, input, actions],
    () => (tap?.problem ? tap : attempt(() => run(column.live, input, { tap }))));
  if (column.ran.problem) { // what was there before stays, pale
    Object.assign(column, { problem: column.ran.problem, ran: was?.problem ? null : was });
    if (!column.ran) return Object.assign(column, { cache: null, step: null, plain: null });
  } else column.problem = "";
  const touched = column.live !== base || actions.length > 0;
  column.plain = touched && !column.problem ? kept(column, "plain", [base, input], () => attempt(() => run(base, input, {}))) : null;
  column.at = Math.min(state.step, column.ran.steps.length - 1);
  column.step = column.ran.steps[column.at] ?? null;
  column.cache = kept(column, "cache", [column.ran, column.at], () => seen(column));
}

/** All that flows at a step: the tokens read, where the first of them stands, and every named array. */
function seen(column) {
  const { ran, live, step } = column, n = step ? step.at : ran.tokens.length;
  const first = Math.max(0, n - live.config.n_ctx), tokens = Array.from(ran.tokens.slice(first, n));
  return { first, tokens, last: tokens.length - 1, arrays: attempt(() => record(live, tokens, column.tap)) };
}

export const longest = () => Math.max(1, ...columns.map((c) => c.ran?.steps.length ?? 0));

// ── who follows ────────────────────────────────────────────────────────────────────────────────
/** `draw(column)` for every column, now and whenever something of `needs(column)` has become another thing. */
export function follow(needs, draw, { soon = false } = {}) {
  followers.push({ needs, draw, soon, known: new Map() });
}

/** `work()` once all views have followed a change. */
export const afterwards = (work) => done.push(work);

let waiting = 0;
/** Changes what is chosen by `work()`, and everything that hangs on it follows: the first screen at once. */
export function change(work = () => {}) {
  work();
  for (const column of columns) settle(column);
  state.step = Math.max(0, Math.min(state.step, longest() - 1));
  drawn(false);
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => { drawn(true); askScores(); writeAddress(); for (const last of done) last(); });
}

/** What waits for the next frame is drawn now: on paper there is none. */
export const drawnNow = () => drawn(true);

function drawn(soon) {
  for (const follower of followers) {
    if (follower.soon !== soon) continue;
    for (const column of columns) {
      const needs = follower.needs(column), known = follower.known.get(column);
      if (known && known.length === needs.length && known.every((x, i) => Object.is(x, needs[i]))) continue;
      follower.known.set(column, needs);
      try {
        keepingFocus(() => follower.draw(column));
      } catch (e) {
        reportError(e); // of one view: the others go on
      }
    }
  }
}

/** What had the focus may be replaced by its like, which gets it back. */
function keepingFocus(work) {
  const id = document.activeElement?.id;
  work();
  if (id && document.activeElement?.id !== id) document.getElementById(id)?.focus({ preventScroll: true });
}

/** Whether the score is that of the model as it is now. */
export const isScored = (column) => Boolean(column.scored) && column.scored[0] === column.live && column.scored[1] === column.actions;

// ── the score over the page's examples, in the worker ──────────────────────────────────────────
async function askScores() {
  for (const column of columns) {
    const needs = [column.live, column.actions];
    if (column.asking || !column.base.examples?.length || column.scored?.every((x, i) => x === needs[i])) continue;
    column.asking = true;
    try {
      const found = await score(column.live, column.actions);
      column.score = found;
    } catch (e) {
      column.score = { problem: e.message };
    }
    Object.assign(column, { asking: false, scored: needs });
    if (columns[column.m] === column) change(); // else other models are open by now
  }
}

// ── deeds that can be undone ───────────────────────────────────────────────────────────────────
const MAX_UNDO_STEPS = 200;
const past = [];
export const canUndo = () => past.length > 0;

/** Before a deed: how things stand is put on the pile. */
export function remember(column) {
  past.push({ column, edits: column.edits, actions: column.actions });
  if (past.length > MAX_UNDO_STEPS) past.shift();
}

export function undo() {
  const last = past.pop();
  if (last) change(() => Object.assign(last.column, { edits: last.edits, actions: last.actions }));
}

/** A part off, at its mean or as it is on another input; `how` "" lets it be as it is. */
export function act(column, part, how, text = "") {
  remember(column);
  change(() => {
    const others = column.actions.filter((a) => a.part !== part);
    column.actions = how ? [...others, how === "from" ? { part, how, text } : { part, how }] : others;
  });
}

/** What a position is called: a source counts from the first token after <bos>, which has none. */
export const placeName = (column, t) => (column.base.source ? (t > 0 ? String(t - 1) : "") : String(t));

export const actionOn = (column, part) => column.actions.find((a) => a.part === part) ?? null;

/** One number among the weights is another. `again`: the same deed goes on, as in dragging. */
export function edit(column, name, index, value, again = false) {
  column.refused = attempt(() => edited(column.base, [{ name, index, value }])).problem ?? "";
  if (column.refused) return;
  if (!again) remember(column);
  const same = (e) => e.name === name && String(e.index) === String(index);
  change(() => { column.edits = [...column.edits.filter((e) => !same(e)), { name, index, value }]; });
}

export function type(group, text) {
  change(() => {
    for (const column of columns) if (column.group === group) column.input = text;
    state.step = 0;
  });
}

// ── the address ────────────────────────────────────────────────────────────────────────────────
export function address() {
  const found = new URLSearchParams();
  found.set("model", columns[state.model].base.title);
  for (const column of columns) if (column.group === column.m) found.append("input", column.input);
  found.set("step", state.step + 1);
  for (const column of columns) {
    const { m } = column;
    if (column.base.config.n_layers) found.append("head", [m, column.head.join(".")].join("|"));
    for (const { part, how, text } of column.actions) found.append("part", [m, part, how, text ?? ""].join("|"));
    for (const { name, index, value } of column.edits) found.append("edit", [m, name, [index].flat().join(","), value].join("|"));
    if (column.snapshot !== null) found.append("snapshot", [m, column.snapshot].join("|"));
  }
  return `#${found}`;
}

function writeAddress() {
  const now = address();
  // A frame of a notebook has no address that could be another.
  if (location.hash !== now && location.protocol !== "about:") history.replaceState(null, "", now);
}

/** Whether a text is the number of a place in a list, and not "length" or "map". */
const isPlace = (text, list) => /^\d{1,9}$/.test(text) && Number(text) < list.length;

/** What an address says, as far as this page can do it; the rest is as if it were not there. */
export function readAddress(hash = location.hash) {
  const said = new URLSearchParams(hash.replace(/^#/, ""));
  const lines = (name) => said.getAll(name).map((line) => line.split("|")).filter(([m]) => isPlace(m, columns));
  const model = columns.findIndex((c) => c.base.title === said.get("model"));
  if (model >= 0) state.model = model;
  const homes = columns.filter((c) => c.group === c.m);
  said.getAll("input").forEach((text, i) => {
    for (const column of columns) if (column.group === homes[i]?.m) column.input = text;
  });
  state.step = Math.max(0, (Number.parseInt(said.get("step"), 10) || 1) - 1);
  for (const column of columns) Object.assign(column, { actions: [], edits: [], snapshot: null });
  for (const [m, head] of lines("head")) {
    const [layer, index] = String(head).split(".").map(Number), c = columns[m].base.config;
    if (layer >= 0 && layer < c.n_layers && index >= 0 && index < c.n_heads) columns[m].head = [layer, index];
  }
  for (const [m, part, how, ...text] of lines("part")) {
    const action = { part, how, ...(how === "from" ? { text: text.join("|") } : {}) };
    if (!attempt(() => tapOf(columns[m].base, [action]))?.problem) columns[m].actions = [...columns[m].actions, action];
  }
  for (const [m, name, at, value] of lines("edit")) {
    const index = String(at).split(",").map(Number), weight = columns[m].base.weights[name];
    const fits = Object.hasOwn(columns[m].base.weights, name) && index.length === weight.shape.length
      && index.every((i, k) => Number.isInteger(i) && i >= 0 && i < weight.shape[k]);
    if (fits && value !== "" && Number.isFinite(Number(value))) {
      columns[m].edits = [...columns[m].edits, { name, index, value: Number(value) }];
    }
  }
  for (const [m, at] of lines("snapshot")) {
    if (isPlace(at, columns[m].base.snapshots ?? [])) columns[m].snapshot = Number(at);
  }
}
