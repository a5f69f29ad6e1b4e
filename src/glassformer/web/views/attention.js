// Attention: tokens with the arcs of the selected head, its heatmap, and thumbnails of all heads.
import { attentionArcs, formatPercent, create, heatmap, paintHeatmap,
  fontScale } from "../charts.js";
import { headPart } from "../components.js";
import { openComponentMenu, modeSwitch } from "./interventions.js";
import { interventionOn, update, subscribe, positionName, state } from "../store.js";
import { elementId, elementOf, widthOf, stepTo, tokenText } from "./input.js";
import { summarizeStep } from "../step_summary.js";

export const headLabel =
  (column, layer, head) => column.base.labels.heads?.[`${layer}.${head}`] ?? "";

/** The attention pattern of a head, {n, at(t, s), row(t), all}; null if unknown. */
export function patternOf(column, layer, head) {
  const pattern = column.cache?.arrays?.[`blocks.${layer}.attn.hook_pattern`];
  if (!pattern) return null;
  const [, rows, keys] = pattern.shape;
  return { n: keys, at: (t, s) => pattern.data[(head * rows + t) * keys + s],
    row: (t) => pattern.data.subarray((head * rows + t) * keys, (head * rows + t + 1) * keys),
    all: pattern.data.subarray(head * rows * keys, (head + 1) * rows * keys) };
}

export function openAttention() {
  subscribe((c) => [c.ran, c.cache, c.head[0], c.head[1], c.actions, state.layout], drawStage);
  subscribe((c) => [c.cache, c.head[0], c.head[1]], drawSummary);
  subscribe((c) => [c.cache, c.head[0], c.head[1], c.actions, state.layout], drawHeads,
    { soon: true });
  subscribe((c) => [c.cache, c.head[0], c.head[1], state.layout], drawMap, { soon: true });
}

// ── tokens and the attention of the selected head ──────────────────────────────────────────────
function drawStage(column) {
  const place = elementOf("tokens", column), { ran, cache } = column;
  if (!ran) return place.parentElement.replaceChildren(create("div", { class: "arcs" }), place);
  const words = ran.tokens.map((token) => tokenText(column, token));
  const available = widthOf("stage", column), scale = fontScale();
  const needs = words.map((word) => (14 + 12 * Math.min(word.length, 12)) * scale);
  const wideTokens = needs.filter((w) => w > 40 * scale),
    freeWidth = available - 4 - wideTokens.reduce((a, b) => a + b, 0);
  const size = Math.min(68 * scale,
    Math.floor(freeWidth / Math.max(1, words.length - wideTokens.length)));
  const widths = needs.map((w) => Math.max(w, size));
  column.widths = widths;
  const current = cache.first + cache.last;
  const token = (word, t) => {
    const off = interventionOn(column, `position ${t}`);
    const kind =
      [t >= ran.prompt.length ? "written" : "", t === current ? "asking" : "",
        t === current + 1 ? "writing" : "",
        t > current + 1 ? "later" : "", off ? "off" : "",
        t < cache.first ? "outside" : ""].filter(Boolean).join(" ");
    return create("button",
      { type: "button", class: kind, id: elementId(`token-${t}`, column), "data-link": `token ${t}`,
        tabindex: t === current ? 0 : -1,
        onclick: (e) => openComponentMenu(column, `position ${t}`, e.currentTarget),
        onkeydown: (e) => moveFocus(e, column, t), style: { width: `${widths[t]}px` },
        onpointerenter: () => showRow(column, t), onpointerleave: () => showRow(column, current),
        onfocus: () => showRow(column, t), onblur: () => showRow(column, current) },
      create("span", {}, word),
      create("small", {},
        create("span", { class: "unseen" }, off ? "ablated, position " : "position "),
        positionName(column, t) || "\u00a0"));
  };
  place.replaceChildren(...words.map(token));
  showRow(column, current);
  const stage = place.parentElement, sum = (numbers) => numbers.reduce((a, b) => a + b, 0),
    x = sum(widths.slice(0, current));
  const hidden = x < stage.scrollLeft || x > stage.scrollLeft + available - 2 * size;
  if (sum(widths) > available && hidden)
    stage.scrollLeft = x - available / 2;
}

function moveFocus(e, column, t) {
  const to = { ArrowRight: t + 1, ArrowLeft: t - 1, Home: 0,
    End: column.ran.tokens.length - 1 }[e.key];
  const target = to === undefined ? null : elementOf(`token-${to}`, column);
  if (!target) return;
  e.preventDefault();
  e.stopPropagation();
  target.focus();
}

/** Draw the attention of the selected head at position t as arcs and shades. */
export function showRow(column, t) {
  const place = elementOf("tokens", column), pattern = patternOf(column, ...column.head),
    first = column.cache?.first ?? 0;
  const stage = place.parentElement;
  const row = pattern && t - first >= 0 && t - first < pattern.n ? pattern.row(t - first) : [];
  const shares = [...new Array(first).fill(0), ...row];
  const arcs = attentionArcs(shares, t, column.widths);
  stage.querySelector(".arcs")?.remove();
  stage.prepend(arcs);
  [...place.children].forEach((cell, s) => {
    cell.style.setProperty("--read", (shares[s] ?? 0).toFixed(4));
  });
  for (const tick of elementOf("attention", column)?.querySelectorAll(".ticks.rows span") ?? []) {
    tick.classList.toggle("now", Number(tick.dataset.i) + first === t);
  }
}

function drawSummary(column) {
  const { live, cache, step } = column, place = elementOf("sentence", column);
  if (!cache || !step || cache.arrays.problem) return place.replaceChildren();
  let text = "";
  try {
    const head = live.config.n_layers ? column.head : null,
      off = head && interventionOn(column, headPart(...head));
    const mode = off?.how === "zero" ? "off" : off?.how, next = live.vocabulary.text(step.winner);
    text = off ? `${headPart(...head)} is ablated (${mode}); then comes ${next}`
      : summarizeStep(live, cache.arrays, step, head, cache.tokens);
  } catch { /* no sentence */ }
  const parts = text.replace(/ %/g, "\u00a0%").split("`");
  place.replaceChildren(...parts.map((text, i) => (i % 2 ? create("em", {}, text) : text)));
}

// ── all heads ──────────────────────────────────────────────────────────────────────────────────
function drawHeads(column) {
  const place = elementOf("heads", column), { n_layers, n_heads } = column.base.config;
  place.hidden = !n_layers;
  if (!n_layers || !column.cache) return;
  const labelled = Object.keys(column.base.labels.heads ?? {}).length > 0;
  const rows = Array.from({ length: n_layers },
    (_, l) => create("div",
      { class: `layer ${labelled ? "named" : ""}`, role: "group", "aria-label": `Layer ${l}` },
      n_layers > 1 ? create("p", { class: "quiet" }, `layer ${l}`) : "",
      Array.from({ length: n_heads }, (_, h) => thumbnail(column, l, h))));
  place.querySelector(".body").replaceChildren(...rows);
}

function thumbnail(column, l, h) {
  const part = headPart(l, h), pattern = patternOf(column, l, h), label = headLabel(column, l, h);
  const chosen = column.head[0] === l && column.head[1] === h, off = interventionOn(column, part);
  const canvas = create("canvas", { "aria-hidden": "true" });
  if (pattern) paintHeatmap(canvas, pattern.all, pattern.n, pattern.n);
  return create("div",
    { class: `head ${chosen ? "chosen" : ""} ${off ? "off" : ""}`, "data-link": part },
    create("button",
      { type: "button", class: "thumb", id: elementId(`head-${l}-${h}`, column),
        "aria-pressed": String(chosen),
        "aria-label": `${part}${label ? `, ${label}` : ""}${off ? ", ablated" : ""}`,
        onclick: () => pickHead(column, l, h) }, canvas),
    create("p", { class: "name", title: label }, create("b", {}, `${l}.${h}`),
      label ? ` ${label}` : ""),
    modeSwitch(column, part));
}

export const pickHead =
  (column, l, h) => update(() => { column.head = [l, h]; state.model = column.m; });

// ── the heatmap of the selected head ───────────────────────────────────────────────────────────
function drawMap(column) {
  const place = elementOf("attention", column), [l, h] = column.head,
    pattern = patternOf(column, l, h);
  place.hidden = !column.base.config.n_layers;
  if (!pattern) return place.querySelector(".body").replaceChildren();
  const { first, tokens } = column.cache, words = tokens.map((token) => tokenText(column, token)),
    n = words.length;
  const values = Float64Array.from(pattern.all,
    (x, i) => (i % n > Math.floor(i / n) && x === 0 ? NaN : x));
  const widest = Math.max(...words.map((word) => word.length));
  const available = widthOf("attention", column) - 30 - 8 * Math.min(widest, 8);
  const size = Math.max(3, Math.min(30 * fontScale(), Math.floor(available / n)));
  const status = create("p", { class: "status", "aria-live": "polite" });
  const point = (t, s) => {
    showRow(column, first + t);
    const share = pattern.at(t, s);
    const at =
      (i) => (positionName(column, first + i) ? `${words[i]} at ${positionName(column, first + i)}`
          : words[i]);
    status.textContent = `${at(t)} looks at ${at(s)}: ${formatPercent(share)}`;
  };
  const map = heatmap({ values, rows: words, columns: words, size, aside: "query", above: "key",
    point,
    label: `Attention of ${headPart(l, h)}: ${n} queries (rows), ${n} keys (columns)`,
    leave: () => { showRow(column, first + n - 1); status.textContent = ""; },
    pick: (t) => {
      const at = column.ran.steps.findIndex((s) => s.at === first + t + 1); if (at >= 0)
        stepTo(at); } });
  const label = headLabel(column, l, h);
  place.querySelector(".body").replaceChildren(
    create("p", { class: "quiet" },
      `Head ${l}.${h}${label ? `, ${label}` : ""}. Each row shows where that token looks.`), map,
    status);
  map.querySelector(".ticks.rows span:last-child").classList.add("now");
}
