// Every weight as a grid with named axes, to edit by typing or dragging, and to save.
import { formatInteger, formatNumber, create, paintHeatmap, MAX_TEXT_TINT, tint,
  visibleToken } from "../charts.js";
import { update, editWeight, subscribe, saveForUndo, state } from "../store.js";
import { elementId, elementOf } from "./input.js";
import { checkpoint } from "../save_checkpoint.js";
import { taotpText } from "../taotp.js";

const MAX_TABLE_CELLS = 1500; // larger grids are drawn on a canvas
const drawnGrids = new Map(); // column -> {grid, cells, keys, canvas, spot}

export function openWeights(column) {
  const names = Object.keys(column.base.weights);
  column.grid = { name: names[0], head: 0, at: [0, 0] };
  const place = elementOf("weights", column).querySelector(".body");
  const save = (id, word, title, work) => create("button",
    { type: "button", id: elementId(id, column), title: title, onclick: work }, word);
  place.append(
    create("div", { class: "tools" },
      create("label", { for: elementId("weight", column) }, "Weight"),
      create("select",
        { id: elementId("weight", column),
          onchange: (e) => updateGrid(column, { name: e.target.value, head: 0, at: [0, 0] }) },
        names.map((name) => create("option", { value: name, selected: name === column.grid.name },
          weightLabel(column, name)))),
      create("span", { class: "head-pick", id: elementId("weight-heads", column) }),
      create("span", { class: "fill" }),
      save("save-checkpoint", "Save checkpoint", "a .safetensors checkpoint for glassformer",
        () => saveAs(column, "safetensors", checkpoint)),
      save("save-taotp", "Save text", "a .taotp file: the weights as text",
        () => saveAs(column, "taotp", taotpText))),
    create("form", { class: "cell", onsubmit: (e) => { e.preventDefault(); applyTyped(column); } },
      create("label",
        { for: elementId("weight-value", column), id: elementId("weight-place", column) }),
      create("input",
        { id: elementId("weight-value", column), type: "text", inputmode: "decimal",
          autocomplete: "off",
          onchange: () => applyTyped(column) }),
      create("button",
        { type: "button", class: "plain", id: elementId("weight-back", column),
          onclick: () => resetWeight(column) }, "reset"),
      create("span", { class: "problem", id: elementId("weight-problem", column), role: "alert" })),
    create("div", { class: "beside" },
      create("div", { class: "scroll", id: elementId("grid", column) }),
      create("details",
        { class: "text", id: elementId("text", column), ontoggle: () => drawText(column) },
        create("summary", {}, "As text"), create("pre", { tabindex: 0 }))));
  if (column.m === 0) {
    subscribe((c) => [c.grid.name, c.grid.head, state.layout], drawGrid, { soon: true });
    subscribe((c) => [c.live.weights[c.grid.name], c.grid, c.edits], paintGrid, { soon: true });
    subscribe((c) => [c.live], drawText, { soon: true });
  }
}

// ── names of axes ──────────────────────────────────────────────────────────────────────────────
/** The kind of each axis of a weight: token, position, stream, head, key, neuron. */
export function axesOf(name) {
  const last = name.split(".").at(-1), place = name.split(".").at(-2);
  const axes = { W_E: ["token", "stream"], W_pos: ["position", "stream"],
    W_Q: ["head", "stream", "key"], W_K: ["head", "stream", "key"],
    W_V: ["head", "stream", "key"], W_O: ["head", "key", "stream"], b_Q: ["head", "key"],
    b_K: ["head", "key"], b_V: ["head", "key"],
    b_O: ["stream"], W_in: ["stream", "neuron"], W_gate: ["stream", "neuron"], b_in: ["neuron"],
    b_gate: ["neuron"],
    W_out: ["neuron", "stream"], b_out: ["stream"], W_U: ["stream", "token"], b_U: ["token"] };
  if (Object.hasOwn(axes, last)) return axes[last];
  return [/^[qk]_norm$/.test(place) ? "key" : "stream"];
}

/** The names along an axis of `size`. */
export function axisNames(column, axis, size, layer) {
  const { vocabulary, labels } = column.base,
    plain = Array.from({ length: size }, (_, i) => String(i));
  if (axis === "token") return plain.map((_, i) => visibleToken(vocabulary.text(i)));
  if (axis === "neuron")
    return plain.map((i) =>
        (labels.neurons?.[`${layer}.${i}`] ? `${i} ${labels.neurons[`${layer}.${i}`]}` : i));
  if (axis === "head")
    return plain.map((i) =>
        (labels.heads?.[`${layer}.${i}`] ? `${layer}.${i} ${labels.heads[`${layer}.${i}`]}`
            : `${layer}.${i}`));
  if (axis !== "stream") return plain;
  const names = [...plain];
  for (const [slot, [a, b]] of Object.entries(labels.slots ?? {}))
    for (let i = a; i < b; i++) names[i] = b - a > 1 ? `${slot} ${i - a}` : slot;
  return names;
}

function weightLabel(column, name) {
  return `${name}  ${column.base.weights[name].shape.join(" × ")}`;
}

/** The shown weight as a matrix: names of rows and columns, and the index of a cell. */
function gridOf(column) {
  const { name, head } = column.grid, { shape } = column.base.weights[name], axes = axesOf(name),
    layer = name.split(".")[1];
  const of = (k) => axisNames(column, axes[k], shape[k], layer);
  if (shape.length === 1)
    return { rows: [""], columns: of(0), axes: ["", axes[0]], index: (i, j) => [j],
      flat: (i, j) => j };
  if (shape.length === 2)
    return { rows: of(0), columns: of(1), axes, index: (i, j) => [i, j],
      flat: (i, j) => i * shape[1] + j };
  return { rows: of(1), columns: of(2), axes: axes.slice(1), heads: of(0),
    index: (i, j) => [head, i, j],
    flat: (i, j) => (head * shape[1] + i) * shape[2] + j };
}

// ── the grid ───────────────────────────────────────────────────────────────────────────────────
function updateGrid(column, grid) {
  update(() => { column.grid = { ...column.grid, ...grid }; state.model = column.m; });
}

function drawGrid(column) {
  const grid = gridOf(column), { rows, columns } = grid, place = elementOf("grid", column),
    old = place.scrollTop;
  const many = rows.length * columns.length > MAX_TABLE_CELLS;
  elementOf("weight-heads", column)
    .replaceChildren(...(grid.heads
        ? [create("label", { for: elementId("weight-head", column) }, "head"),
          create("select",
            { id: elementId("weight-head", column),
              onchange: (e) => updateGrid(column, { head: Number(e.target.value), at: [0, 0] }) },
            grid.heads.map((name, i) => create("option",
              { value: i, selected: i === column.grid.head },
              name)))] : []));
  const drawn = { grid, cells: [], keys: [] };
  drawnGrids.set(column, drawn);
  if (many) place.replaceChildren(bigGrid(column, drawn));
  else {
    const head = create("tr", {},
      create("td", { class: "corner" },
        grid.axes[0] ? `${axisLabel(grid.axes[0])} × ${axisLabel(grid.axes[1])}`
          : axisLabel(grid.axes[1])),
      columns.map((name) => create("th", { scope: "col", title: name }, name)));
    const body =
      rows.map((name, i) => create("tr", {}, create("th", { scope: "row", title: name }, name),
        columns.map((_, j) => {
          const cell = create("td", { role: "gridcell", tabindex: -1, "data-i": i, "data-j": j });
          drawn.cells.push(cell);
          return cell;
      })));
    const table = create("table", { class: "grid", role: "grid", "aria-label": column.grid.name },
      create("thead", {}, head), create("tbody", {}, body));
    table.addEventListener("pointerdown", (e) => drag(e, column));
    table.addEventListener("keydown", (e) => gridKey(e, column));
    table.addEventListener("focusin",
      (e) => { if (e.target.dataset.i)
          selectCell(column, Number(e.target.dataset.i), Number(e.target.dataset.j)); });
    place.replaceChildren(table);
  }
  place.scrollTop = old;
}

const axisLabel = (axis) => ({ stream: "slot", key: "dimension of the head" })[axis] ?? axis;

function bigGrid(column, drawn) {
  const { rows, columns } = drawn.grid,
    size = Math.max(3, Math.min(9, Math.floor(900 / columns.length)));
  drawn.canvas = create("canvas",
    { tabindex: 0, role: "application",
      "aria-label": `${column.grid.name}: arrows move, Enter edits` });
  const at = (e) => {
    const box = drawn.canvas.getBoundingClientRect();
    return [Math.min(rows.length - 1,
      Math.max(0, Math.floor((e.clientY - box.top) / box.height * rows.length))),
      Math.min(columns.length - 1,
        Math.max(0, Math.floor((e.clientX - box.left) / box.width * columns.length)))];
  };
  drawn.canvas.addEventListener("pointerdown",
    (e) => { selectCell(column, ...at(e)); drag(e, column, true); });
  drawn.canvas.addEventListener("keydown", (e) => gridKey(e, column));
  drawn.canvas.style.width = `${columns.length * size}px`;
  drawn.canvas.style.height = `${rows.length * size}px`;
  drawn.spot = create("i", { class: "spot" });
  return create("div", { class: "big", style: { "--size": `${size}px` } },
    create("p", { class: "quiet" },
      `rows: ${axisLabel(drawn.grid.axes[0])}, columns: ${axisLabel(drawn.grid.axes[1])}`),
    create("div", { class: "cells" }, drawn.canvas, drawn.spot));
}

function paintGrid(column) {
  const drawn = drawnGrids.get(column);
  if (!drawn) return;
  const { data } = column.live.weights[column.grid.name], { rows, columns, flat } = drawn.grid,
    first = flat(0, 0);
  const part = data.subarray(first, first + rows.length * columns.length),
    was = column.base.weights[column.grid.name].data;
  let largest = 0;
  for (const x of part) if (Math.abs(x) > largest && Number.isFinite(x)) largest = Math.abs(x);
  if (drawn.canvas) {
    paintHeatmap(drawn.canvas, part, rows.length, columns.length, largest);
    drawn.spot.style.setProperty("--i", column.grid.at[0]);
    drawn.spot.style.setProperty("--j", column.grid.at[1]);
  }
  drawn.cells.forEach((cell, k) => {
    const isCurrent = column.grid.at[0] === Number(cell.dataset.i)
      && column.grid.at[1] === Number(cell.dataset.j), share = largest ? part[k] / largest : 0;
    const key = `${part[k]} ${largest} ${isCurrent} ${was[first + k]}`;
    if (drawn.keys[k] === key) return;
    drawn.keys[k] = key;
    cell.textContent = formatNumber(part[k]);
    cell.style.backgroundColor = tint(share * MAX_TEXT_TINT);
    cell.className =
      [isCurrent ? "now" : "", part[k] !== was[first + k] ? "edited" : "",
        part[k] === 0 ? "zero" : ""].join(" ");
    cell.tabIndex = isCurrent ? 0 : -1;
  });
  drawCell(column, drawn);
}

function drawCell(column, drawn) {
  const [i, j] = column.grid.at, { rows, columns, flat, heads } = drawn.grid,
    box = elementOf("weight-value", column);
  const value = column.live.weights[column.grid.name].data[flat(i, j)],
    was = column.base.weights[column.grid.name].data[flat(i, j)];
  const at =
    [heads?.[column.grid.head], rows[i],
      columns[j]].filter((word) => word !== undefined && word !== "").join(", ");
  elementOf("weight-place", column).textContent = `${column.grid.name.split(".").at(-1)} [${at}]`;
  if (document.activeElement !== box) box.value = String(value);
  elementOf("weight-back", column).hidden = value === was;
  elementOf("weight-back", column).textContent = `reset to ${formatNumber(was)}`;
}

function selectCell(column, i, j) {
  if (String(column.grid.at) !== String([i, j])) updateGrid(column, { at: [i, j] });
}

// ── editing ───────────────────────────────────────────────────────────────────────────────────
const currentGrid = (column) => ({ ...drawnGrids.get(column).grid, at: column.grid.at });
const currentValue =
  (column) =>
  column.live.weights[column.grid.name].data[drawnGrids.get(column).grid.flat(...column.grid.at)];

function setWeight(column, value, sameEdit = false) {
  editWeight(column, column.grid.name, currentGrid(column).index(...column.grid.at), value,
    sameEdit);
  elementOf("weight-problem", column).textContent = column.refused;
}

function applyTyped(column) {
  const box = elementOf("weight-value", column), value = Number(box.value.trim().replace("−", "-"));
  const good = box.value.trim() !== "" && Number.isFinite(value);
  elementOf("weight-problem", column).textContent = good ? ""
    : `expected a finite number, got ${box.value.slice(0, 40) || "nothing"}`;
  if (good && value !== currentValue(column)) setWeight(column, value);
}

function resetWeight(column) {
  const name = column.grid.name, index = String(currentGrid(column).index(...column.grid.at));
  saveForUndo(column);
  update(() => {
    column.edits = column.edits.filter((e) => e.name !== name || String(e.index) !== index); });
  if (column.snapshot !== null
      || currentValue(column)
      !== column.base.weights[name].data[currentGrid(column).flat(...column.grid.at)]) return;
  elementOf("weight-value", column).value = String(currentValue(column));
}

/** Drag a cell right to increase its number, left to decrease it. */
function drag(e, column, onCanvas = false) {
  const cell = onCanvas ? drawnGrids.get(column).canvas : e.target.closest("td[data-i]");
  if (!cell || e.button) return;
  if (!onCanvas) selectCell(column, Number(cell.dataset.i), Number(cell.dataset.j));
  const start = currentValue(column), x = e.clientX, unit = dragUnit(column);
  let isDragging = false;
  const move = (event) => {
    const distance = event.clientX - x;
    if (!isDragging && Math.abs(distance) < 4) return;
    if (!isDragging) { saveForUndo(column); document.body.classList.add("dragging"); }
    isDragging = true;
    setWeight(column, Number((start + distance * unit).toPrecision(6)), true);
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

/** The change per pixel of dragging. */
function dragUnit(column) {
  const { data } = column.live.weights[column.grid.name];
  let largest = 0;
  for (const x of data) if (Math.abs(x) > largest) largest = Math.abs(x);
  return (Math.abs(currentValue(column)) || largest || 1) / 100;
}

function gridKey(e, column) {
  const [i, j] = column.grid.at, { rows, columns } = currentGrid(column),
    box = elementOf("weight-value", column);
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.shiftKey && (e.key === "ArrowUp" || e.key === "ArrowDown")) {
    setWeight(column,
      Number((currentValue(column)
          + (e.key === "ArrowUp" ? 10 : -10) * dragUnit(column)).toPrecision(6)));
  } else if (/^Arrow|^Home$|^End$/.test(e.key)) {
    const to = { ArrowUp: [i - 1, j], ArrowDown: [i + 1, j], ArrowLeft: [i, j - 1],
      ArrowRight: [i, j + 1], Home: [i, 0], End: [i, columns.length - 1] }[e.key];
    if (to[0] < 0 || to[1] < 0 || to[0] >= rows.length || to[1] >= columns.length) return;
    const cell = drawnGrids.get(column).cells[to[0] * columns.length + to[1]];
    if (cell) cell.focus();
    else selectCell(column, ...to);
  } else if (e.key === "Enter" || /^[0-9.\-]$/.test(e.key)) {
    box.focus();
    if (e.key === "Enter") box.select();
    else box.value = e.key;
  } else return;
  e.preventDefault();
  e.stopPropagation();
}

// ── text and files ─────────────────────────────────────────────────────────────────────────────
function drawText(column) {
  const place = elementOf("text", column);
  if (!place.open) return;
  let text;
  try {
    text = taotpText(column.live);
  } catch (e) {
    text = e.message;
  }
  const rest = `\n… ${formatInteger(text.length)} characters; save the file to see all`;
  place.querySelector("pre").textContent = text.length <= 60_000 ? text
    : text.slice(0, 60_000) + rest;
}

function saveAs(column, ending, work) {
  const problem = elementOf("weight-problem", column);
  let content;
  try {
    content = work(column.live);
  } catch (e) {
    problem.textContent = e.message;
    return;
  }
  problem.textContent = "";
  const name =
    column.base.title.replace(/\.(safetensors|taotp|glass)$/, "").replace(/[^\w.-]+/g, "-").slice(0,
      60) || "model";
  const url = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
  create("a", { href: url, download: `${name}${column.edits.length ? "-edited" : ""}.${ending}` })
    .click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

