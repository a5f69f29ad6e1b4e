// What the page does when it came from a server (`glassformer studio`): requests, jobs, and a proof after every edit.
// Without one nothing here does anything. What the panel shows of it is in views/server.js.
import { checkpoint } from "./save_checkpoint.js";
import { afterwards, columns } from "./store.js";

const told = document.getElementById("server");
/** {token, base} where there is a server; null in a file. */
export const server = told ? JSON.parse(told.textContent) : null;

// A page that was opened by a ticket, which is good for once, takes the address that can be opened again.
if (server && new URLSearchParams(location.search).get("token") !== server.token) {
  history.replaceState(null, "", `?token=${encodeURIComponent(server.token)}${location.hash}`);
}

const SOON = 350, AGAIN = 250; // milliseconds: after the last key, between two looks at a job

/** The answer to a request as data. Throws Error(message), in the words of the server. */
export async function ask(path, body, method = body === undefined ? "GET" : "POST") {
  let answer;
  try {
    answer = await fetch(`${server.base}/api/${path}`, { method, credentials: "omit", cache: "no-store",
      headers: { "X-Glassformer-Token": server.token, ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Error("the server does not answer: was it closed? Start it again with glassformer studio");
  }
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(found.error ?? `status ${answer.status}`), { status: answer.status });
  return found;
}

const wait = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
export const messages = (errors) => errors.map((e) => e.message).join("; ");

/** Long work: begins it, shows how it stands, and gives what came of it. `stop()` ends it. */
export function begin(kind, body, show = () => {}) {
  const job = { stopped: false, id: null, ended: false };
  job.stop = () => {
    job.stopped = true;
    if (job.id && !job.ended) ask(`jobs/${job.id}`, undefined, "DELETE").catch(() => {});
  };
  job.over = (async () => {
    while (!job.id) {
      try {
        job.id = (await ask(kind, body)).job;
      } catch (e) {
        if (e.status !== 429 || job.stopped) throw e;
        show({ state: "waiting", progress: {}, events: [] }); // for its turn
        await wait(4 * AGAIN);
      }
      if (job.stopped && !job.id) return { state: "stopped", events: [] };
    }
    if (job.stopped) job.stop();
    let events = [], now;
    do {
      if (now) await wait(AGAIN);
      now = await ask(`jobs/${job.id}?after=${events.length}`);
      events = [...events, ...now.events];
      show({ ...now, events });
    } while (now.state === "running");
    job.ended = true;
    return { ...now, events };
  })();
  return job;
}

// ── which model? ───────────────────────────────────────────────────────────────────────────────
const origins = new WeakMap(); // payload -> what the server makes it from

/** A model that the page shows was made from this: {ref}, or {source, kind}. */
export const cameFrom = (payload, origin) => origins.set(payload, origin);

/** A column's model, for the server: where it came from and what was edited, or all of it. */
export function modelOf(column) {
  const origin = origins.get(column.payload) ?? null;
  if (!origin || column.snapshot !== null) return { checkpoint: base64(checkpoint(column.live)) };
  const edits = column.edits.map(({ name, index, value }) => ({ name, index: placeOf(column.base.weights[name].shape, index), value: Number(value) }));
  return { ...origin, edits };
}

/** An index for each axis. */
function placeOf(shape, index) {
  if (Array.isArray(index)) return index.map(Number);
  let rest = Number(index);
  return shape.map((_, axis) => {
    const size = shape.slice(axis + 1).reduce((a, b) => a * b, 1), at = Math.floor(rest / size);
    rest -= at * size;
    return at;
  });
}

function base64(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}

// ── verdicts, and a proof after every edit ─────────────────────────────────────────────────────
export const proving = { after: true }; // every edit, unless someone says no
const watched = new Map(); // column -> {live, edits, job, clock, told}: of which model, and what was told of it

/** Whatever was asked of the model that a column showed is over: from now on it is about the one that it shows. */
function anew(column) {
  const before = watched.get(column), now = { live: column.live, edits: column.edits, job: null, clock: 0, told: null };
  clearTimeout(before?.clock);
  before?.job?.stop();
  watched.set(column, now);
  return now;
}

/** Begins to prove (or to verify) what a column shows; `show(column, told)` as it goes. */
export function judge(column, kind, show) {
  const now = anew(column);
  const say = (what) => { if (watched.get(column) === now) show(column, now.told = { kind, ...what }); };
  say({ state: "running", progress: {} });
  try {
    now.job = begin(kind, modelOf(column), say);
  } catch (e) {
    return say({ state: "wrong", errors: [{ message: e.message }] });
  }
  now.job.over.then(say, (e) => say({ state: "wrong", errors: [{ message: e.message }] }));
}

/** What was told last, once more. */
export function again(column, show) {
  const told = watched.get(column)?.told;
  if (told) show(column, told);
}

export function stopJudging(column) {
  watched.get(column)?.job?.stop();
}

/** From now on, and until other models are opened: a verdict goes with its model, and what was edited is proved anew. */
export function followEdits(show) {
  for (const column of watched.keys()) anew(column);
  watched.clear();
  afterwards(() => {
    for (const column of columns) {
      const known = watched.get(column); // nothing, as it was opened
      if (known?.live === column.live) continue;
      const edited = known ? known.edits !== column.edits : column.edits.length > 0, now = anew(column);
      if (!column.base.task) continue;
      show(column, { state: "" });
      if (edited && proving.after) now.clock = setTimeout(() => judge(column, "prove", show), SOON);
    }
  });
}
