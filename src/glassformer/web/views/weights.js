// Every weight in a grid whose axes have names: token, position, slot, head, neuron. Type another number, or drag one;
// undo; save what came of it.
import { grouped, inDigits, make, paintMap, READABLE, tint, visible } from "../charts.js";
import { change, edit, follow, remember, state } from "../store.js";
import { idOf, partOf } from "./input.js";
import { checkpoint } from "../save_checkpoint.js";
import { taotp } from "../taotp.js";

const CELLS = 1500; // more than these are drawn, not written
const shapes = new Map(); // column -> what its grid is made of, while it stands

export function openWeights(column) {
  const names = Object.keys(column.base.weights);
  column.grid = { name: names[0], head: 0, at: [0, 0] };
  const place = partOf("weights", column).querySelector(".body");
  const save = (id, word, what, work) => make("button", { type: "button", id: idOf(id, column), title: what, onclick: work }, word);
  place.append(
    make("div", { class: "tools" },
      make("label", { for: idOf("weight", column) }, "Weight"),
      make("select", { id: idOf("weight", column), onchange: (e) => pick(column, { name: e.target.value, head: 0, at: [0, 0] }) },
        names.map((name) => make("option", { value: name, selected: name === column.grid.name }, spelledWeight(column, name)))),
      make("span", { class: "head-pick", id: idOf("weight-heads", column) }),
      make("span", { class: "fill" }),
      save("save-checkpoint", "Save checkpoint", "a .safetensors file that glassformer loads", () => saveAs(column, "safetensors", checkpoint)),
      save("save-taotp", "Save text", "a .taotp file: the weights as text", () => saveAs(column, "taotp", taotp))),
    make("form", { class: "cell", onsubmit: (e) => { e.preventDefault(); typed(column); } },
      make("label", { for: idOf("weight-value", column), id: idOf("weight-place", column) }),
      make("input", { id: idOf("weight-value", column), type: "text", inputmode: "decimal", autocomplete: "off",
        onchange: () => typed(column) }),
      make("button", { type: "button", class: "plain", id: idOf("weight-back", column), onclick: () => backTo(column) }, "as it was"),
      make("span", { class: "problem", id: idOf("weight-problem", column), role: "alert" })),
    make("div", { class: "beside" },
      make("div", { class: "scroll", id: idOf("grid", column) }),
      make("details", { class: "text", id: idOf("text", column), ontoggle: () => drawText(column) },
        make("summary", {}, "As text"), make("pre", { tabindex: 0 }))));
  if (column.m === 0) {
    follow((c) => [c.grid.name, c.grid.head, state.look], drawGrid, { soon: true });
    follow((c) => [c.live.weights[c.grid.name], c.grid, c.edits], paintGrid, { soon: true });
    follow((c) => [c.live], drawText, { soon: true });
  }
}

// ── names of axes ──────────────────────────────────────────────────────────────────────────────
/** What each axis of a weight counts: token, position, stream, head, key, neuron. */
export function axesOf(name) {
  const last = name.split(".").at(-1), place = name.split(".").at(-2);
  const known = { W_E: ["token", "stream"], W_pos: ["position", "stream"], W_Q: ["head", "stream", "key"], W_K: ["head", "stream", "key"],
    W_V: ["head", "stream", "key"], W_O: ["head", "key", "stream"], b_Q: ["head", "key"], b_K: ["head", "key"], b_V: ["head", "key"],
    b_O: ["stream"], W_in: ["stream", "neuron"], W_gate: ["stream", "neuron"], b_in: ["neuron"], b_gate: ["neuron"],
    W_out: ["neuron", "stream"], b_out: ["stream"], W_U: ["stream", "token"], b_U: ["token"] };
  if (Object.hasOwn(known, last)) return known[last];
  return [/^[qk]_norm$/.test(place) ? "key" : "stream"];
}

/** The names along an axis of `size`. */
export function axisNames(column, axis, size, layer) {
  const { vocabulary, labels } = column.base, plain = Array.from({ length: size }, (_, i) => String(i));
  if (axis === "token") return plain.map((_, i) => visible(vocabulary.text(i)));
  if (axis === "neuron") return plain.map((i) => (labels.neurons?.[`${layer}.${i}`] ? `${i} ${labels.neurons[`${layer}.${i}`]}` : i));
  if (axis === "head") return plain.map((i) => (labels.heads?.[`${layer}.${i}`] ? `${layer}.${i} ${labels.heads[`${layer}.${i}`]}` : `${layer}.${i}`));
  if (axis !== "stream") return plain;
  const names = [...plain];
  for (const [slot, [a, b]] of Object.entries(labels.slots ?? {})) for (let i = a; i < b; i++) names[i] = b - a > 1 ? `${slot} ${i - a}` : slot;
  return names;
}

function spelledWeight(column, name) {
  return `${name}  ${column.base.weights[name].shape.join(" × ")}`;
}

/** The weight that is shown as a matrix: names of rows and columns, and the place of a cell in the array. */
function gridOf(column) {
  const { name, head } = column.grid, { shape } = column.base.weights[name], axes = axesOf(name), layer = name.split(".")[1];
  const of = (k) => axisNames(column, axes[k], shape[k], layer);
  if (shape.length === 1) return { rows: [""], columns: of(0), axes: ["", axes[0]], index: (i, j) => [j], flat: (i, j) => j };
  if (shape.length === 2) return { rows: of(0), columns: of(1), axes, index: (i, j) => [i, j], flat: (i, j) => i * shape[1] + j };
  return { rows: of(1), columns: of(2), axes: axes.slice(1), heads: of(0), index: (i, j) => [head, i, j],
    flat: (i, j) => (head * shape[1] + i) * shape[2] + j };
}

// ── the grid ───────────────────────────────────────────────────────────────────────────────────
function pick(column, grid) {
  change(() => { column.grid = { ...column.grid, ...grid }; state.model = column.m; });
}

function drawGrid(column) {
  const grid = gridOf(column), { rows, columns } = grid, place = partOf("grid", column), old = place.scrollTop;
  const many = rows.length * columns.length > CELLS;
  partOf("weight-heads", column).replaceChildren(...(grid.heads ? [make("label", { for: idOf("weight-head", column) }, "head"),
    make("select", { id: idOf("weight-head", column), onchange: (e) => pick(column, { head: Number(e.target.value), at: [0, 0] }) },
      grid.heads.map((name, i) => make("option", { value: i, selected: i === column.grid.head }, name)))] : []));
  const made = { grid, cells: [], known: [] };
  shapes.set(column, made);
  if (many) place.replaceChildren(bigGrid(column, made));
  else {
    const head = make("tr", {}, make("td", { class: "corner" }, grid.axes[0] ? `${axisWord(grid.axes[0])} × ${axisWord(grid.axes[1])}` : axisWord(grid.axes[1])),
      columns.map((name) => make("th", { scope: "col", title: name }, name)));
    const body = rows.map((name, i) => make("tr", {}, make("th", { scope: "row", title: name }, name), columns.map((_, j) => {
      const cell = make("td", { role: "gridcell", tabindex: -1, "data-i": i, "data-j": j });
      made.cells.push(cell);
      return cell;
    })));
    const table = make("table", { class: "grid", role: "grid", "aria-label": column.grid.name }, make("thead", {}, head), make("tbody", {}, body));
    table.addEventListener("pointerdown", (e) => drag(e, column));
    table.addEventListener("keydown", (e) => gridKey(e, column));
    table.addEventListener("focusin", (e) => { if (e.target.dataset.i) choose(column, Number(e.target.dataset.i), Number(e.target.dataset.j)); });
    place.replaceChildren(table);
  }
  place.scrollTop = old;
}

const axisWord = (axis) => ({ stream: "slot", key: "dimension of the head" })[axis] ?? axis;

function bigGrid(column, made) {
  const { rows, columns } = made.grid, size = Math.max(3, Math.min(9, Math.floor(900 / columns.length)));
  made.canvas = make("canvas", { tabindex: 0, role: "application", "aria-label": `${column.grid.name}: arrows move, Enter edits` });
  const at = (e) => {
    const box = made.canvas.getBoundingClientRect();
    return [Math.min(rows.length - 1, Math.max(0, Math.floor((e.clientY - box.top) / box.height * rows.length))),
      Math.min(columns.length - 1, Math.max(0, Math.floor((e.clientX - box.left) / box.width * columns.length)))];
  };
  made.canvas.addEventListener("pointerdown", (e) => { choose(column, ...at(e)); drag(e, column, true); });
  made.canvas.addEventListener("keydown", (e) => gridKey(e, column));
  made.canvas.style.width = `${columns.length * size}px`;
  made.canvas.style.height = `${rows.length * size}px`;
  made.spot = make("i", { class: "spot" });
  return make("div", { class: "big", style: { "--size": `${size}px` } },
    make("p", { class: "quiet" }, `${axisWord(made.grid.axes[0])} from top to bottom, ${axisWord(made.grid.axes[1])} from left to right`),
    make("div", { class: "cells" }, made.canvas, made.spot));
}

function paintGrid(column) {
  const made = shapes.get(column);
  if (!made) return;
  const { data } = column.live.weights[column.grid.name], { rows, columns, flat } = made.grid, first = flat(0, 0);
  const part = data.subarray(first, first + rows.length * columns.length), was = column.base.weights[column.grid.name].data;
  let most = 0;
  for (const x of part) if (Math.abs(x) > most && Number.isFinite(x)) most = Math.abs(x);
  if (made.canvas) {
    paintMap(made.canvas, part, rows.length, columns.length, most);
    made.spot.style.setProperty("--i", column.grid.at[0]);
    made.spot.style.setProperty("--j", column.grid.at[1]);
  }
  made.cells.forEach((cell, k) => {
    const now = column.grid.at[0] === Number(cell.dataset.i) && column.grid.at[1] === Number(cell.dataset.j), share = most ? part[k] / most : 0;
    const key = `${part[k]} ${most} ${now} ${was[first + k]}`;
    if (made.known[k] === key) return;
    made.known[k] = key;
    cell.textContent = inDigits(part[k]);
    cell.style.backgroundColor = tint(share * READABLE);
    cell.className = [now ? "now" : "", part[k] !== was[first + k] ? "edited" : "", part[k] === 0 ? "zero" : ""].join(" ");
    cell.tabIndex = now ? 0 : -1;
  });
  drawCell(column, made);
}

function drawCell(column, made) {
  const [i, j] = column.grid.at, { rows, columns, flat, heads } = made.grid, box = partOf("weight-value", column);
  const value = column.live.weights[column.grid.name].data[flat(i, j)], was = column.base.weights[column.grid.name].data[flat(i, j)];
  const at = [heads?.[column.grid.head], rows[i], columns[j]].filter((word) => word !== undefined && word !== "").join(", ");
  partOf("weight-place", column).textContent = `${column.grid.name.split(".").at(-1)} [${at}]`;
  if (document.activeElement !== box) box.value = String(value);
  partOf("weight-back", column).hidden = value === was;
  partOf("weight-back", column).textContent = `as it was: ${inDigits(was)}`;
}

function choose(column, i, j) {
  if (String(column.grid.at) !== String([i, j])) pick(column, { at: [i, j] });
}

// ── another number ─────────────────────────────────────────────────────────────────────────────
const placeOf = (column) => ({ ...shapes.get(column).grid, at: column.grid.at });
const valueAt = (column) => column.live.weights[column.grid.name].data[shapes.get(column).grid.flat(...column.grid.at)];

function put(column, value, again = false) {
  edit(column, column.grid.name, placeOf(column).index(...column.grid.at), value, again);
  partOf("weight-problem", column).textContent = column.refused;
}

function typed(column) {
  const box = partOf("weight-value", column), value = Number(box.value.trim().replace("−", "-"));
  const good = box.value.trim() !== "" && Number.isFinite(value);
  partOf("weight-problem", column).textContent = good ? "" : `a weight is a finite number, got ${box.value.slice(0, 40) || "nothing"}`;
  if (good && value !== valueAt(column)) put(column, value);
}

function backTo(column) {
  const name = column.grid.name, index = String(placeOf(column).index(...column.grid.at));
  remember(column);
  change(() => { column.edits = column.edits.filter((e) => e.name !== name || String(e.index) !== index); });
  if (column.snapshot !== null || valueAt(column) !== column.base.weights[name].data[placeOf(column).flat(...column.grid.at)]) return;
  partOf("weight-value", column).value = String(valueAt(column));
}

/** Dragging a cell to the right makes its number larger, to the left smaller. */
function drag(e, column, onCanvas = false) {
  const cell = onCanvas ? shapes.get(column).canvas : e.target.closest("td[data-i]");
  if (!cell || e.button) return;
  if (!onCanvas) choose(column, Number(cell.dataset.i), Number(cell.dataset.j));
  const start = valueAt(column), x = e.clientX, unit = unitOf(column);
  let going = false;
  const move = (event) => {
    const far = event.clientX - x;
    if (!going && Math.abs(far) < 4) return;
    if (!going) { remember(column); document.body.classList.add("dragging"); }
    going = true;
    put(column, Number((start + far * unit).toPrecision(6)), true);
  };
  const end = () => {
    document.body.classList.remove("dragging");
    removeEventListener("pointermove", move);
    removeEventListener("pointerup", end);
    removeEventListener("pointercancel", end);
  };
  addEventListener("pointermove", move);
  addEventListener("pointerup", end);
  addEventListener("pointercancel", end);
}

/** What a pixel of dragging is worth: a hundredth of the largest number there is. */
function unitOf(column) {
  const { data } = column.live.weights[column.grid.name];
  let most = 0;
  for (const x of data) if (Math.abs(x) > most) most = Math.abs(x);
  return (Math.abs(valueAt(column)) || most || 1) / 100;
}

function gridKey(e, column) {
  const [i, j] = column.grid.at, { rows, columns } = placeOf(column), box = partOf("weight-value", column);
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.shiftKey && (e.key === "ArrowUp" || e.key === "ArrowDown")) {
    put(column, Number((valueAt(column) + (e.key === "ArrowUp" ? 10 : -10) * unitOf(column)).toPrecision(6)));
  } else if (/^Arrow|^Home$|^End$/.test(e.key)) {
    const to = { ArrowUp: [i - 1, j], ArrowDown: [i + 1, j], ArrowLeft: [i, j - 1], ArrowRight: [i, j + 1], Home: [i, 0], End: [i, columns.length - 1] }[e.key];
    if (to[0] < 0 || to[1] < 0 || to[0] >= rows.length || to[1] >= columns.length) return;
    const cell = shapes.get(column).cells[to[0] * columns.length + to[1]];
    if (cell) cell.focus();
    else choose(column, ...to);
  } else if (e.key === "Enter" || /^[0-9.\-]$/.test(e.key)) {
    box.focus();
    if (e.key === "Enter") box.select();
    else box.value = e.key;
  } else return;
  e.preventDefault();
  e.stopPropagation();
}

// ── as text, and saved ─────────────────────────────────────────────────────────────────────────
function drawText(column) {
  const place = partOf("text", column);
  if (!place.open) return;
  let text;
  try {
    text = taotp(column.live);
  } catch (e) {
    text = e.message;
  }
  place.querySelector("pre").textContent = text.length > 60_000 ? `${text.slice(0, 60_000)}\n… ${grouped(text.length)} characters in all; save it to see them` : text;
}

function saveAs(column, ending, work) {
  const problem = partOf("weight-problem", column);
  let made;
  try {
    made = work(column.live);
  } catch (e) {
    problem.textContent = e.message;
    return;
  }
  problem.textContent = "";
  const name = column.base.title.replace(/\.(safetensors|taotp|glass)$/, "").replace(/[^\w.-]+/g, "-").slice(0, 60) || "model";
  const url = URL.createObjectURL(new Blob([made], { type: "application/octet-stream" }));
  make("a", { href: url, download: `${name}${column.edits.length ? "-edited" : ""}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

