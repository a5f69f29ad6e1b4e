// A training to scrub: a slider over its snapshots, and with it everything else on the page moves. Loss and what was
// right so far are drawn with a line where the slider stands.
import { grouped, inDigits, inPercent, lineChart, make, uprights } from "../charts.js";
import { change, follow, state } from "../store.js";
import { idOf, partOf } from "./input.js";

export function openSnapshots(column) {
  const { snapshots } = column.base, place = partOf("training", column), history = column.payload.history ?? null;
  place.hidden = !snapshots?.length && !history;
  if (place.hidden) return;
  const slider = snapshots?.length ? make("div", { class: "tools" },
    make("label", { for: idOf("snapshots", column) }, "Step of the training"),
    make("input", { id: idOf("snapshots", column), type: "range", min: 0, max: snapshots.length - 1, step: 1, value: snapshots.length - 1,
      oninput: (e) => scrub(column, Number(e.target.value)) }),
    make("output", { id: idOf("snapshot-at", column), for: idOf("snapshots", column) })) : "";
  place.querySelector(".body").append(slider, make("div", { class: "charts", id: idOf("snapshot-charts", column) }));
  follow((c) => (c === column ? [c.snapshot, c.live, state.look] : []), (c) => { if (c === column) drawSnapshots(c, history); }, { soon: true });
}

/** The last snapshot is the model itself. */
const atOf = (column) => column.snapshot ?? column.base.snapshots.length - 1;

export function scrub(column, at) {
  const last = column.base.snapshots.length - 1;
  change(() => { column.snapshot = at >= last ? null : Math.max(0, at); });
}

export const scrubBy = (column, n) => { if (column.base.snapshots?.length) scrub(column, atOf(column) + n); };

/** The curves of a training, from its history or else its snapshots: {x, loss, accuracy, trained, places}. */
function curvesOf(snapshots, history) {
  const known = snapshots ?? [], of = (name) => known.map((s) => s[name] ?? NaN);
  const places = known.at(-1)?.places?.map((_, k) => known.map((s) => s.places?.[k] ?? NaN)) ?? [];
  const steps = known.map((s) => s.step), curve = history ?? { steps, loss: of("loss"), accuracy: of("accuracy"), trained: of("trained") };
  const line = (name, y) => (y?.some(Number.isFinite) ? [{ name, x: curve.steps, y: y.map((v) => v ?? NaN) }] : []);
  return { loss: line("loss", curve.loss), right: [...line("test", curve.accuracy), ...line("training", curve.trained)],
    places: places.map((y, k) => ({ y, k, x: steps })), steps };
}

function drawSnapshots(column, history) {
  const { snapshots } = column.base, place = partOf("snapshot-charts", column), { loss, right, places, steps } = curvesOf(snapshots, history);
  let at = null, pick = null;
  if (snapshots?.length) {
    const i = atOf(column), now = snapshots[i], slider = partOf("snapshots", column);
    slider.value = i;
    slider.setAttribute("aria-valuetext", `step ${now.step}`);
    partOf("snapshot-at", column).textContent = `step ${grouped(now.step)}, loss ${inDigits(now.loss, 3)}`
      + (Number.isFinite(now.accuracy) ? `, ${inPercent(now.accuracy)} right` : "");
    at = now.step;
    pick = (x) => scrub(column, steps.reduce((best, s, k) => (Math.abs(s - x) < Math.abs(steps[best] - x) ? k : best), 0));
  }
  const power = spectrumOf(column.live), n = (loss.length > 0) + (right.length > 0) + (places.length > 1) + (power !== null);
  const room = place.clientWidth || 600, across = Math.max(1, Math.min(n, Math.floor((room + 32) / 300)));
  const width = Math.floor((room - 32 * (across - 1)) / across), shape = { width, height: 160, at, pick };
  const positive = loss.flatMap((s) => s.y).filter((y) => y > 0), log = Math.max(...positive) > 100 * Math.min(...positive);
  const named = places.map(({ x, y, k }) => ({ x, y, name: column.base.task?.places?.[k] ?? `token ${k + 1}` }));
  place.style.setProperty("--across", across);
  place.replaceChildren(...[
    loss.length ? lineChart({ ...shape, series: loss, log, title: log ? "loss, on a scale of powers" : "loss" }) : "",
    right.length ? lineChart({ ...shape, series: right, low: 0, high: 1, title: "share of answers that are right" }) : "",
    named.length > 1 ? lineChart({ ...shape, series: named, low: 0, high: 1, title: "the same, token by token of the answer" }) : "",
    power ? uprights({ width, height: 160, values: power, names: power.map((_, k) => String(k + 1)), marked: largest(power, 5),
      title: "spectrum of the embedding: share of each frequency" }) : "",
  ].filter(Boolean));
}

const largest = (values, n) => Array.from(values.keys()).sort((a, b) => values[b] - values[a]).slice(0, n).filter((i) => values[i] > 0.03);

/** The share of the power at each frequency, from 1 on, of the number tokens' embedding on the circle modulo p. */
export function spectrumOf({ task, weights }) {
  const p = task?.modular?.[0] ?? 0;
  if (!p) return null;
  const { shape: [, D], data } = weights["embed.W_E"], found = [];
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
    found.push(power);
  }
  const all = found.reduce((sum, x) => sum + x, 0) || 1;
  return found.map((x) => x / all);
}
