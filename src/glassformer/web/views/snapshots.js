// A training: a slider over its snapshots, which the whole page follows, and its curves.
import { formatInteger, formatNumber, formatPercent, lineChart, create,
  columnChart } from "../charts.js";
import { update, subscribe, state } from "../store.js";
import { elementId, elementOf } from "./input.js";

export function openSnapshots(column) {
  const { snapshots } = column.base, place = elementOf("training", column),
    history = column.payload.history ?? null;
  place.hidden = !snapshots?.length && !history;
  if (place.hidden) return;
  const slider = snapshots?.length ? create("div", { class: "tools" },
    create("label", { for: elementId("snapshots", column) }, "Training step"),
    create("input",
      { id: elementId("snapshots", column), type: "range", min: 0, max: snapshots.length - 1,
        step: 1,
        value: snapshots.length - 1,
        oninput: (e) => scrub(column, Number(e.target.value)) }),
    create("output", { id: elementId("snapshot-at", column), for: elementId("snapshots", column) }))
    : "";
  place.querySelector(".body").append(slider,
    create("div", { class: "charts", id: elementId("snapshot-charts", column) }));
  subscribe((c) => (c === column ? [c.snapshot, c.live, state.layout] : []),
    (c) => { if (c === column) drawSnapshots(c, history); }, { soon: true });
}

/** The index of the selected snapshot; the last one is the model itself. */
const indexOf = (column) => column.snapshot ?? column.base.snapshots.length - 1;

export function scrub(column, at) {
  const last = column.base.snapshots.length - 1;
  update(() => { column.snapshot = at >= last ? null : Math.max(0, at); });
}

export const scrubBy = (column,
  n) => { if (column.base.snapshots?.length) scrub(column, indexOf(column) + n); };

/** The curves of a training, from its history or else from its snapshots. */
function curvesOf(snapshots, history) {
  const points = snapshots ?? [], of = (name) => points.map((s) => s[name] ?? NaN);
  const places = points.at(-1)?.places?.map((_, k) => points.map((s) => s.places?.[k] ?? NaN))
    ?? [];
  const steps = points.map((s) => s.step),
    curve = history
    ?? { steps, loss: of("loss"), accuracy: of("accuracy"), trained: of("trained") };
  const line =
    (name, y) =>
    (y?.some(Number.isFinite) ? [{ name, x: curve.steps, y: y.map((v) => v ?? NaN) }] : []);
  return { loss: line("loss", curve.loss),
    right: [...line("held out", curve.accuracy), ...line("training", curve.trained)],
    places: places.map((y, k) => ({ y, k, x: steps })), steps };
}

function drawSnapshots(column, history) {
  const { snapshots } = column.base, place = elementOf("snapshot-charts", column),
    { loss, right, places, steps } = curvesOf(snapshots, history);
  let at = null, pick = null;
  if (snapshots?.length) {
    const i = indexOf(column), current = snapshots[i], slider = elementOf("snapshots", column);
    slider.value = i;
    slider.setAttribute("aria-valuetext", `step ${current.step}`);
    elementOf("snapshot-at", column).textContent =
      `step ${formatInteger(current.step)}, loss ${formatNumber(current.loss, 3)}`
      + (Number.isFinite(current.accuracy) ? `, ${formatPercent(current.accuracy)} right` : "");
    at = current.step;
    pick = (x) => scrub(column,
      steps.reduce((best, s, k) => (Math.abs(s - x) < Math.abs(steps[best] - x) ? k : best), 0));
  }
  const power = spectrumOf(column.live),
    n = (loss.length > 0) + (right.length > 0) + (places.length > 1) + (power !== null);
  const available = place.clientWidth || 600,
    across = Math.max(1, Math.min(n, Math.floor((available + 32) / 300)));
  const width = Math.floor((available - 32 * (across - 1)) / across),
    shape = { width, height: 160, at, pick };
  const positive = loss.flatMap((s) => s.y).filter((y) => y > 0),
    log = Math.max(...positive) > 100 * Math.min(...positive);
  const named =
    places.map(({ x, y, k }) =>
        ({ x, y, name: column.base.task?.places?.[k] ?? `token ${k + 1}` }));
  place.style.setProperty("--across", across);
  place.replaceChildren(...[
    loss.length
      ? lineChart({ ...shape, series: loss, log, title: log ? "loss (log scale)" : "loss" }) : "",
    right.length ? lineChart({ ...shape, series: right, minimum: 0, maximum: 1, title: "accuracy" })
      : "",
    named.length > 1
      ? lineChart({ ...shape, series: named, minimum: 0, maximum: 1,
        title: "accuracy by answer token" }) : "",
    power ? columnChart({ width, height: 160, values: power,
      names: power.map((_, k) => String(k + 1)), marked: largest(power, 5),
      title: "spectrum of the embedding: share of each frequency" }) : "",
  ].filter(Boolean));
}

const largest =
  (values, n) =>
  Array.from(values.keys()).sort((a, b) => values[b] - values[a]).slice(0, n)
  .filter((i) => values[i] > 0.03);

/** The share of power at each frequency from 1 of the number tokens' embedding, modulo p. */
export function spectrumOf({ task, weights }) {
  const p = task?.modular?.[0] ?? 0;
  if (!p) return null;
  const { shape: [, D], data } = weights["embed.W_E"], powers = [];
  const cos = Float64Array.from({ length: p }, (_, n) => Math.cos(2 * Math.PI * n / p));
  const sin = Float64Array.from({ length: p }, (_, n) => Math.sin(2 * Math.PI * n / p));
  for (let k = 1; k <= p >> 1; k++) {
    let power = 0;
    for (let d = 0; d < D; d++) {
      let re = 0, im = 0;
      for (let n = 0; n < p; n++) {
        re += data[n * D + d] * cos[(k * n) % p];
        im += data[n * D + d] * sin[(k * n) % p];
      }
      power += re * re + im * im;
    }
    powers.push(power);
  }
  const all = powers.reduce((sum, x) => sum + x, 0) || 1;
  return powers.map((x) => x / all);
}
