// Ablate and patch components: a switch, a menu opened by a click, and chips for all changes.
import { create } from "../charts.js";
import { setIntervention, interventionOn, canUndo, update, columns, subscribe, inputsOf,
  saveForUndo, state, undo } from "../store.js";
import { elementId, elementOf } from "./input.js";
import { headPart, componentNames } from "../components.js";

const MODES = [["", "on", "unchanged"], ["zero", "off", "ablated: replaced by 0"],
  ["mean", "mean", "replaced by its mean over the examples"],
  ["from", "from …", "patched from another input"]];
const MODE_TEXTS = { zero: () => "off", mean: () => "mean", from: (a) => `from ${a.text}` };
// components that can only be on or off
const ONLY_OFF = /^(mask|norm)\b/;

/** The name of a component with its label. */
export function componentName(column, part) {
  const [kind, place = ""] = part.split(/ (.*)/s), { labels } = column.base;
  const label = kind === "head" ? labels.heads?.[place]
    : kind === "neuron" ? labels.neurons?.[place] : "";
  if (kind === "position" && column.ran) {
    const token = column.ran.tokens[Number(place)];
    return token === undefined ? part : `${part}, ${column.live.vocabulary.text(token)}`;
  }
  return label ? `${part}, ${label}` : part;
}

/** The buttons on, off, mean and from. */
export function modeSwitch(column, part) {
  const current = interventionOn(column, part)?.how ?? "", name = part.replace(/[^\w]+/g, "-");
  return create("div", { class: "switch", role: "group", "aria-label": `State of ${part}` },
    MODES.filter(([how]) => !ONLY_OFF.test(part) || !how || how === "zero")
      .map(([how, word, title]) => create("button", {
        type: "button", title, id: elementId(`do-${name}-${how || "on"}`, column),
        "aria-pressed": String(current === how),
        onclick: (e) => {
          if (how === "from")
            openComponentMenu(column, part, e.currentTarget, true); else setIntervention(column,
              part,
              how); } }, word)));
}

// ── the menu ───────────────────────────────────────────────────────────────────────────────────
let opened = null; // {column, part, anchor, askInput}

export function openComponentMenu(column, part, anchor, askInput = false) {
  const menu = document.getElementById("menu"), box = anchor.getBoundingClientRect();
  opened = { column, part, beside: anchor.id, asking: askInput };
  state.model = column.m;
  fillMenu();
  menu.hidden = false;
  const width = menu.offsetWidth, height = menu.offsetHeight, edge = 8;
  const x = Math.max(edge, Math.min(box.left, document.documentElement.clientWidth - width - edge));
  const y = box.bottom + 6 + height > innerHeight ? Math.max(edge, box.top - height - 6)
    : box.bottom + 6;
  menu.style.left = `${x}px`;
  menu.style.top = `${y}px`;
  (askInput ? menu.querySelector("input")
      : menu.querySelector('[aria-pressed="true"]') ?? menu.querySelector("button"))?.focus();
}

export function closeMenu(back = true) {
  const menu = document.getElementById("menu");
  if (menu.hidden) return false;
  menu.hidden = true;
  if (back && opened?.beside)
    document.getElementById(opened.beside)?.focus({ preventScroll: true });
  opened = null;
  return true;
}

function fillMenu() {
  const { column, part } = opened, current = interventionOn(column, part),
    menu = document.getElementById("menu");
  const apply = () => setIntervention(column, part, "from", menu.querySelector("input").value);
  const from = create("form", { onsubmit: (e) => { e.preventDefault(); apply(); } },
    create("label", { for: "menu-text" }, "value on the input"),
    create("input", { id: "menu-text", type: "text", autocomplete: "off", spellcheck: "false",
      value: current?.text ?? inputsOf(column.base).find((text) => text !== column.input)
        ?? column.input }),
    create("button", { type: "submit" }, "Patch"));
  const switcher = modeSwitch(column, part);
  switcher.id = "menu-switch";
  for (const button of switcher.querySelectorAll("button")) button.id = `menu-${button.id}`;
  menu.replaceChildren(create("p", { class: "name" }, componentName(column, part)), switcher,
    opened.asking || current?.how === "from" ? from : "");
}

// ── chips and other components ─────────────────────────────────────────────────────────────────
export function openChips() {
  subscribe((c) => [c.actions, c.edits, c.snapshot, canUndo()], drawChips);
  subscribe((c) => [c.actions],
    (c) => { if (opened?.column === c && !document.getElementById("menu").hidden) fillMenu(); },
    { soon: true });
}

/** Called once, also if other models are opened later. */
export function openMenu() {
  document.addEventListener("pointerdown",
    (e) => { if (!e.target.closest("#menu")) closeMenu(false); });
  document.getElementById("undo").addEventListener("click", undo);
}

function drawChips(column) {
  const chip = (name, how, remove) => create("span", { class: "chip" }, create("b", {}, name),
    ` ${how}`,
    create("button",
      { type: "button", "aria-label": `Restore ${name}`, title: "restore", onclick: remove }, "×"));
  const changes =
    column.actions.map((a) => chip(componentName(column, a.part), MODE_TEXTS[a.how](a),
      () => setIntervention(column, a.part, "")));
  const n = column.edits.length;
  const changed = n ? [chip(`${n} weight${n > 1 ? "s" : ""}`, "edited", () => {
    saveForUndo(column);
    update(() => { column.edits = []; });
  })] : [];
  const all = [...changes, ...changed];
  elementOf("chips", column).replaceChildren(...all,
    ...(all.length > 1 ? [create("button", { type: "button", class: "plain",
      onclick: () => {
        saveForUndo(column); update(() => Object.assign(column, { edits: [], actions: [] })); } },
      "restore all")] : []));
  document.getElementById("undo").disabled = !canUndo();
}

/** Mask, norms and whole sublayers, which have no picture elsewhere. */
export function otherComponents(column) {
  const layers = Array.from({ length: column.base.config.n_layers }, (_, l) => `attention ${l}`);
  const named = componentNames(column.base).filter((part) => !/^(head|slot) /.test(part));
  const at = named.findIndex((part) => !part.endsWith("embed"));
  return at < 0 ? named : [...named.slice(0, at), ...layers, ...named.slice(at)];
}

export function openOtherComponents() {
  subscribe((c) => [c.actions], (column) => {
    const place = elementOf("others", column), parts = otherComponents(column);
    place.hidden = !parts.length;
    place.querySelector(".body").replaceChildren(create("ul", { class: "others" },
      parts.map((part) => create("li", {
        "data-link": part, class: interventionOn(column, part) ? "off" : "" },
        create("span", { class: "name" }, part), modeSwitch(column, part)))));
  }, { soon: true });
}

export const toggleCurrentHead = () => {
  const column = columns[state.model], part = headPart(...column.head);
  if (column.base.config.n_layers)
    setIntervention(column, part, interventionOn(column, part) ? "" : "zero");
};
