// Requests to the studio's server, jobs, and a proof after every edit. views/server.js draws them.
// A report without a server uses nothing of this.
import { checkpoint } from "./save_checkpoint.js";
import { runAfterDraw, columns } from "./store.js";

const element = document.getElementById("server");
/** {token, base} of the server; null in a report. */
export const server = element ? JSON.parse(element.textContent) : null;

// A page opened by a one-time ticket replaces it in the address by the token, to allow reloading.
if (server && new URLSearchParams(location.search).get("token") !== server.token) {
  history.replaceState(null, "", `?token=${encodeURIComponent(server.token)}${location.hash}`);
}

const EDIT_DELAY_MS = 350, POLL_MS = 250;

/** The JSON answer to a request. Throws Error(message) with `status` and `code` of the server. */
export async function request(path, body, method = body === undefined ? "GET" : "POST") {
  let response;
  try {
    response = await fetch(`${server.base}/api/${path}`,
      { method, credentials: "omit", cache: "no-store",
        headers: { "X-Glassformer-Token": server.token,
          ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
        body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Error("the server does not answer; start it again: glassformer studio");
  }
  const content = await response.json();
  if (!response.ok)
    throw Object.assign(new Error(content.error ?? `status ${response.status}`),
      { status: response.status, code: content.code });
  return content;
}

const wait = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
export const joinMessages = (errors) => errors.map((e) => e.message).join("; ");

/** Start a job and poll it: `job.over` resolves to its final status, `job.stop()` ends it. */
export function startJob(kind, body, onStatus = () => {}) {
  const job = { stopped: false, id: null, ended: false };
  job.stop = () => {
    job.stopped = true;
    if (job.id && !job.ended) request(`jobs/${job.id}`, undefined, "DELETE").catch(() => {});
  };
  job.over = (async () => {
    while (!job.id) {
      try {
        job.id = (await request(kind, body)).job;
      } catch (e) {
        if (e.status !== 429 || job.stopped) throw e;
        onStatus({ state: "waiting", progress: {}, events: [] });
        await wait(4 * POLL_MS);
      }
      if (job.stopped && !job.id) return { state: "stopped", events: [] };
    }
    if (job.stopped) job.stop();
    let events = [], status;
    do {
      if (status) await wait(POLL_MS);
      status = await request(`jobs/${job.id}?after=${events.length}`);
      events = [...events, ...status.events];
      onStatus({ ...status, events });
    } while (status.state === "running");
    job.ended = true;
    return { ...status, events };
  })();
  return job;
}

// ── the model to send
// ───────────────────────────────────────────────────────────────────────────────
const origins = new WeakMap(); // payload -> {ref}, or {source, kind}


export const setOrigin = (payload, origin) => origins.set(payload, origin);

/** A column's model for a request: its origin and edits, or else the whole checkpoint. */
export function modelRequest(column) {
  const origin = origins.get(column.payload) ?? null;
  if (!origin || column.snapshot !== null) return { checkpoint: base64(checkpoint(column.live)) };
  const edits =
    column.edits.map(({ name, index, value }) =>
        ({ name, index: axisIndices(column.base.weights[name].shape, index),
          value: Number(value) }));
  return { ...origin, edits };
}

/** A flat index as one index per axis. */
function axisIndices(shape, index) {
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
  for (let i = 0; i < bytes.length; i += 8192)
    text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}

// ── verdicts, and a proof after every edit ─────────────────────────────────────────────────────
export const checkSettings = { afterEdits: true };
const checks = new Map(); // column -> {live, edits, job, timer, status}

/** Stop the check of a column's previous model and start over with the current one. */
function resetCheck(column) {
  const previous = checks.get(column),
    check = { live: column.live, edits: column.edits, job: null, timer: 0, status: null };
  clearTimeout(previous?.timer);
  previous?.job?.stop();
  checks.set(column, check);
  return check;
}

/** Start to prove or verify the model of a column; `show(column, status)` follows its progress. */
export function startCheck(column, kind, show) {
  const check = resetCheck(column);
  const report = (status) => {
    if (checks.get(column) === check) show(column, check.status = { kind, ...status }); };
  report({ state: "running", progress: {} });
  try {
    check.job = startJob(kind, modelRequest(column), report);
  } catch (e) {
    return report({ state: "wrong", errors: [{ message: e.message }] });
  }
  check.job.over.then(report, (e) => report({ state: "wrong", errors: [{ message: e.message }] }));
}


export function showCheckAgain(column, show) {
  const status = checks.get(column)?.status;
  if (status) show(column, status);
}

export function stopCheck(column) {
  checks.get(column)?.job?.stop();
}

/** Clear the verdict of a model that changed, and prove it again if it was edited. */
export function proveAfterEdits(show) {
  for (const column of checks.keys()) resetCheck(column);
  checks.clear();
  runAfterDraw(() => {
    for (const column of columns) {
      const check = checks.get(column);
      if (check?.live === column.live) continue;
      const wasEdited = check ? check.edits !== column.edits : column.edits.length > 0,
        next = resetCheck(column);
      if (!column.base.task) continue;
      show(column, { state: "" });
      if (wasEdited && checkSettings.afterEdits)
        next.timer = setTimeout(() => startCheck(column, "prove", show), EDIT_DELAY_MS);
    }
  });
}
