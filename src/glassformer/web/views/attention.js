// Who looks where: the tokens with arcs of the chosen head above them, the head's map, and all heads as thumbnails.
import { arcs, inPercent, make, namedMap, paintMap, scaleOf } from "../charts.js";
import { headPart } from "../components.js";
import { partMenu, partSwitch } from "./interventions.js";
import { actionOn, change, follow, placeName, state } from "../store.js";
import { idOf, partOf, roomOf, walkTo, wordOf } from "./input.js";
import { sentence } from "../step_summary.js";

export const headName = (column, layer, head) => column.base.labels.heads?.[`${layer}.${head}`] ?? "";

/** The attention of a head, {n, at(t, s)}; null if there is none. */
export function patternOf(column, layer, head) {
  const found = column.cache?.arrays?.[`blocks.${layer}.attn.hook_pattern`];
  if (!found) return null;
  const [, rows, keys] = found.shape;
  return { n: keys, at: (t, s) => found.data[(head * rows + t) * keys + s],
    row: (t) => found.data.subarray((head * rows + t) * keys, (head * rows + t + 1) * keys),
    all: found.data.subarray(head * rows * keys, (head + 1) * rows * keys) };
}

export function openAttention() {
  follow((c) => [c.ran, c.cache, c.head[0], c.head[1], c.actions, state.look], drawStage);
  follow((c) => [c.cache, c.head[0], c.head[1]], drawSentence);
  follow((c) => [c.cache, c.head[0], c.head[1], c.actions, state.look], drawHeads, { soon: true });
  follow((c) => [c.cache, c.head[0], c.head[1], state.look], drawMap, { soon: true });
}

// ── the tokens, and what the chosen head reads ─────────────────────────────────────────────────
function drawStage(column) {
  const place = partOf("tokens", column), { ran, cache } = column;
  if (!ran) return place.parentElement.replaceChildren(make("div", { class: "arcs" }), place);
  const words = ran.tokens.map((token) => wordOf(column, token));
  const room = roomOf("stage", column), scale = scaleOf();
  const needs = words.map((word) => (14 + 12 * Math.min(word.length, 12)) * scale);
  const long = needs.filter((w) => w > 40 * scale), left = room - 4 - long.reduce((a, b) => a + b, 0);
  const size = Math.min(68 * scale, Math.floor(left / Math.max(1, words.length - long.length)));
  const widths = needs.map((w) => Math.max(w, size));
  column.widths = widths;
  const asking = cache.first + cache.last;
  const token = (word, t) => {
    const off = actionOn(column, `position ${t}`);
    const kind = [t >= ran.prompt.length ? "written" : "", t === asking ? "asking" : "", t === asking + 1 ? "writing" : "",
      t > asking + 1 ? "later" : "", off ? "off" : "", t < cache.first ? "outside" : ""].filter(Boolean).join(" ");
    return make("button", { type: "button", class: kind, id: idOf(`token-${t}`, column), "data-link": `token ${t}`,
      tabindex: t === asking ? 0 : -1,
      onclick: (e) => partMenu(column, `position ${t}`, e.currentTarget), onkeydown: (e) => along(e, column, t), style: { width: `${widths[t]}px` },
      onpointerenter: () => showRow(column, t), onpointerleave: () => showRow(column, asking),
      onfocus: () => showRow(column, t), onblur: () => showRow(column, asking) }, make("span", {}, word),
    make("small", {}, make("span", { class: "unseen" }, off ? "silenced, position " : "position "), placeName(column, t) || "\u00a0"));
  };
  place.replaceChildren(...words.map(token));
  showRow(column, asking);
  const stage = place.parentElement, sum = (some) => some.reduce((a, b) => a + b, 0), x = sum(widths.slice(0, asking));
  if (sum(widths) > room && (x < stage.scrollLeft || x > stage.scrollLeft + room - 2 * size)) stage.scrollLeft = x - room / 2;
}

function along(e, column, t) {
  const to = { ArrowRight: t + 1, ArrowLeft: t - 1, Home: 0, End: column.ran.tokens.length - 1 }[e.key];
  const target = to === undefined ? null : partOf(`token-${to}`, column);
  if (!target) return;
  e.preventDefault();
  e.stopPropagation();
  target.focus();
}

/** What the chosen head reads when position t asks: arcs, and shades on the tokens. */
export function showRow(column, t) {
  const place = partOf("tokens", column), pattern = patternOf(column, ...column.head), first = column.cache?.first ?? 0;
  const stage = place.parentElement;
  const row = pattern && t - first >= 0 && t - first < pattern.n ? pattern.row(t - first) : [];
  const shares = [...new Array(first).fill(0), ...row];
  const drawn = arcs(shares, t, column.widths);
  stage.querySelector(".arcs")?.remove();
  stage.prepend(drawn);
  [...place.children].forEach((cell, s) => {
    cell.style.setProperty("--read", (shares[s] ?? 0).toFixed(4));
  });
  for (const tick of partOf("attention", column)?.querySelectorAll(".ticks.rows span") ?? []) {
    tick.classList.toggle("now", Number(tick.dataset.i) + first === t);
  }
}

function drawSentence(column) {
  const { live, cache, step } = column, place = partOf("sentence", column);
  if (!cache || !step || cache.arrays.problem) return place.replaceChildren();
  let said = "";
  try {
    const head = live.config.n_layers ? column.head : null, off = head && actionOn(column, headPart(...head));
    said = off ? `${headPart(...head)} is silenced (${off.how === "zero" ? "off" : off.how}); then comes ${live.vocabulary.text(step.winner)}`
      : sentence(live, cache.arrays, step, head, cache.tokens);
  } catch { /* nothing is better than half a sentence */ }
  const parts = said.replace(/ %/g, "\u00a0%").split("`");
  place.replaceChildren(...parts.map((text, i) => (i % 2 ? make("em", {}, text) : text)));
}

// ── all heads ──────────────────────────────────────────────────────────────────────────────────
function drawHeads(column) {
  const place = partOf("heads", column), { n_layers, n_heads } = column.base.config;
  place.hidden = !n_layers;
  if (!n_layers || !column.cache) return;
  const labelled = Object.keys(column.base.labels.heads ?? {}).length > 0;
  const rows = Array.from({ length: n_layers }, (_, l) => make("div", { class: `layer ${labelled ? "named" : ""}`, role: "group", "aria-label": `Layer ${l}` },
    n_layers > 1 ? make("p", { class: "quiet" }, `layer ${l}`) : "",
    Array.from({ length: n_heads }, (_, h) => thumbnail(column, l, h))));
  place.querySelector(".body").replaceChildren(...rows);
}

function thumbnail(column, l, h) {
  const part = headPart(l, h), pattern = patternOf(column, l, h), given = headName(column, l, h);
  const chosen = column.head[0] === l && column.head[1] === h, off = actionOn(column, part);
  const canvas = make("canvas", { "aria-hidden": "true" });
  if (pattern) paintMap(canvas, pattern.all, pattern.n, pattern.n);
  return make("div", { class: `head ${chosen ? "chosen" : ""} ${off ? "off" : ""}`, "data-link": part },
    make("button", { type: "button", class: "thumb", id: idOf(`head-${l}-${h}`, column), "aria-pressed": String(chosen),
      "aria-label": `${part}${given ? `, ${given}` : ""}${off ? ", silenced" : ""}`, onclick: () => pickHead(column, l, h) }, canvas),
    make("p", { class: "name", title: given }, make("b", {}, `${l}.${h}`), given ? ` ${given}` : ""),
    partSwitch(column, part));
}

export const pickHead = (column, l, h) => change(() => { column.head = [l, h]; state.model = column.m; });

// ── the map of the chosen head ─────────────────────────────────────────────────────────────────
function drawMap(column) {
  const place = partOf("attention", column), [l, h] = column.head, pattern = patternOf(column, l, h);
  place.hidden = !column.base.config.n_layers;
  if (!pattern) return place.querySelector(".body").replaceChildren();
  const { first, tokens } = column.cache, words = tokens.map((token) => wordOf(column, token)), n = words.length;
  const values = Float64Array.from(pattern.all, (x, i) => (i % n > Math.floor(i / n) && x === 0 ? NaN : x));
  const widest = Math.max(...words.map((word) => word.length));
  const room = roomOf("attention", column) - 30 - 8 * Math.min(widest, 8);
  const size = Math.max(3, Math.min(30 * scaleOf(), Math.floor(room / n)));
  const says = make("p", { class: "says", "aria-live": "polite" });
  const point = (t, s) => {
    showRow(column, first + t);
    const share = pattern.at(t, s);
    const at = (i) => (placeName(column, first + i) ? `${words[i]} at ${placeName(column, first + i)}` : words[i]);
    says.textContent = `${at(t)} reads ${at(s)}: ${inPercent(share)}`;
  };
  const map = namedMap({ values, rows: words, columns: words, size, aside: "asks", above: "is read", point,
    label: `Attention of ${headPart(l, h)}: ${n} rows that ask, ${n} columns that are read`,
    leave: () => { showRow(column, first + n - 1); says.textContent = ""; },
    pick: (t) => { const at = column.ran.steps.findIndex((s) => s.at === first + t + 1); if (at >= 0) walkTo(at); } });
  const given = headName(column, l, h);
  place.querySelector(".body").replaceChildren(
    make("p", { class: "quiet" }, `Head ${l}.${h}${given ? `, ${given}` : ""}. A row asks, a column is read.`), map, says);
  map.querySelector(".ticks.rows span:last-child").classList.add("now");
}
