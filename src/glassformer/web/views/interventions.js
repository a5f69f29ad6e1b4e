// Silence and patch: every part of a model can be off, at its mean, or as it is on another input. A switch, a menu that
// opens where a part is clicked, and chips of what is not as it was.
import { make } from "../charts.js";
import { act, actionOn, canUndo, change, columns, follow, inputsOf, remember, state, undo } from "../store.js";
import { idOf, partOf } from "./input.js";
import { headPart, partNames } from "../components.js";

const WAYS = [["", "on", "as it is"], ["zero", "off", "silenced: 0 in its place"], ["mean", "mean", "its mean over the examples"],
  ["from", "from …", "as it is on another input"]];
const IN_WORDS = { zero: () => "off", mean: () => "mean", from: (a) => `from ${a.text}` };
// what has no mean and is on no other input
const ONLY_OFF = /^(mask|norm)\b/;

/** The name of a part, with the one that people gave to it. */
export function partName(column, part) {
  const [kind, place = ""] = part.split(/ (.*)/s), { labels } = column.base;
  const given = kind === "head" ? labels.heads?.[place] : kind === "neuron" ? labels.neurons?.[place] : "";
  if (kind === "position" && column.ran) {
    const token = column.ran.tokens[Number(place)];
    return token === undefined ? part : `${part}, ${column.live.vocabulary.text(token)}`;
  }
  return given ? `${part}, ${given}` : part;
}

/** Four buttons: on, off, mean, from. */
export function partSwitch(column, part) {
  const now = actionOn(column, part)?.how ?? "", name = part.replace(/[^\w]+/g, "-");
  return make("div", { class: "switch", role: "group", "aria-label": `What ${part} does` },
    WAYS.filter(([how]) => !ONLY_OFF.test(part) || !how || how === "zero").map(([how, word, title]) => make("button", {
      type: "button", title, id: idOf(`do-${name}-${how || "on"}`, column), "aria-pressed": String(now === how),
      onclick: (e) => { if (how === "from") partMenu(column, part, e.currentTarget, true); else act(column, part, how); } }, word)));
}

// ── the menu ───────────────────────────────────────────────────────────────────────────────────
let opened = null; // {column, part, from}

export function partMenu(column, part, beside, asking = false) {
  const menu = document.getElementById("menu"), box = beside.getBoundingClientRect();
  opened = { column, part, beside: beside.id, asking };
  state.model = column.m;
  fillMenu();
  menu.hidden = false;
  const wide = menu.offsetWidth, high = menu.offsetHeight, edge = 8;
  const x = Math.max(edge, Math.min(box.left, document.documentElement.clientWidth - wide - edge));
  const y = box.bottom + 6 + high > innerHeight ? Math.max(edge, box.top - high - 6) : box.bottom + 6;
  menu.style.left = `${x}px`;
  menu.style.top = `${y}px`;
  (asking ? menu.querySelector("input") : menu.querySelector('[aria-pressed="true"]') ?? menu.querySelector("button"))?.focus();
}

export function closeMenu(back = true) {
  const menu = document.getElementById("menu");
  if (menu.hidden) return false;
  menu.hidden = true;
  if (back && opened?.beside) document.getElementById(opened.beside)?.focus({ preventScroll: true });
  opened = null;
  return true;
}

function fillMenu() {
  const { column, part } = opened, now = actionOn(column, part), menu = document.getElementById("menu");
  const apply = () => act(column, part, "from", menu.querySelector("input").value);
  const from = make("form", { onsubmit: (e) => { e.preventDefault(); apply(); } },
    make("label", { for: "menu-text" }, "as it is on the input"),
    make("input", { id: "menu-text", type: "text", autocomplete: "off", spellcheck: "false",
      value: now?.text ?? inputsOf(column.base).find((text) => text !== column.input) ?? column.input }),
    make("button", { type: "submit" }, "Patch"));
  const silence = partSwitch(column, part);
  silence.id = "menu-switch";
  for (const button of silence.querySelectorAll("button")) button.id = `menu-${button.id}`;
  menu.replaceChildren(make("p", { class: "name" }, partName(column, part)), silence,
    opened.asking || now?.how === "from" ? from : "");
}

// ── chips, and parts that stand nowhere else ───────────────────────────────────────────────────
export function openParts() {
  follow((c) => [c.actions, c.edits, c.snapshot, canUndo()], drawChips);
  follow((c) => [c.actions], (c) => { if (opened?.column === c && !document.getElementById("menu").hidden) fillMenu(); }, { soon: true });
}

/** Once, whatever models are opened: what is outside the menu closes it, and the button undoes. */
export function openMenu() {
  document.addEventListener("pointerdown", (e) => { if (!e.target.closest("#menu")) closeMenu(false); });
  document.getElementById("undo").addEventListener("click", undo);
}

function drawChips(column) {
  const chip = (name, how, remove) => make("span", { class: "chip" }, make("b", {}, name), ` ${how}`,
    make("button", { type: "button", "aria-label": `${name} as it was`, title: "as it was", onclick: remove }, "×"));
  const silenced = column.actions.map((a) => chip(partName(column, a.part), IN_WORDS[a.how](a), () => act(column, a.part, "")));
  const n = column.edits.length;
  const changed = n ? [chip(`${n} weight${n > 1 ? "s" : ""}`, "edited", () => {
    remember(column);
    change(() => { column.edits = []; });
  })] : [];
  const all = [...silenced, ...changed];
  partOf("chips", column).replaceChildren(...all, ...(all.length > 1 ? [make("button", { type: "button", class: "plain",
    onclick: () => { remember(column); change(() => Object.assign(column, { edits: [], actions: [] })); } }, "all as it was")] : []));
  document.getElementById("undo").disabled = !canUndo();
}

/** Mask, norms, whole sublayers: what can be off and has no picture of its own. */
export function otherParts(column) {
  const layers = Array.from({ length: column.base.config.n_layers }, (_, l) => `attention ${l}`);
  const named = partNames(column.base).filter((part) => !/^(head|slot) /.test(part));
  const at = named.findIndex((part) => !part.endsWith("embed"));
  return at < 0 ? named : [...named.slice(0, at), ...layers, ...named.slice(at)];
}

export function openOthers() {
  follow((c) => [c.actions], (column) => {
    const place = partOf("others", column), parts = otherParts(column);
    place.hidden = !parts.length;
    place.querySelector(".body").replaceChildren(make("ul", { class: "others" }, parts.map((part) => make("li", {
      "data-link": part, class: actionOn(column, part) ? "off" : "" }, make("span", { class: "name" }, part), partSwitch(column, part)))));
  }, { soon: true });
}

export const silenceChosen = () => {
  const column = columns[state.model], part = headPart(...column.head);
  if (column.base.config.n_layers) act(column, part, actionOn(column, part) ? "" : "zero");
};
