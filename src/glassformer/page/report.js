// The page comes to life: the controls of each group, and a panel for every section and model, drawn anew when
// something else is chosen.

function drawControls() {
  keepingFocus(() => document.getElementById("controls").replaceChildren(...DATA.groups.map((group, g) => {
    const now = chosen[g];
    const longest = Math.max(1, ...group.members.map((m) => runOf(DATA.models[m]).steps?.length ?? 0));
    const inputs = group.texts.map((text) => (text.length > 60 ? text.slice(0, 59) + "…" : text || "(nothing)"));
    const button = (name, text, to) => make("button", { id: `${name}-${g}`, type: "button",
      disabled: to < 0 || to >= longest, onclick: () => { now.step = to; pickStep(g); } }, text);
    return make("fieldset", {},
      DATA.groups.length > 1 ? make("legend", {}, group.name) : "",
      select("Input", inputs, now.input, (i) => { Object.assign(now, { input: i, step: 0 }); pickStep(g); }, `input-${g}`),
      button("previous", "Previous token", now.step - 1),
      make("output", { id: `step-${g}` }, `token ${now.step + 1} of ${longest}`),
      button("next", "Next token", now.step + 1));
  })));
}

/** What had the focus is replaced by its like, which gets it back. */
function keepingFocus(work) {
  const id = document.activeElement?.id;
  work();
  if (id) document.getElementById(id)?.focus();
}

function pickStep(g) {
  drawControls();
  for (const m of DATA.groups[g].members) {
    const run = runOf(DATA.models[m]);
    if (!run.problem) looks[m].row = Math.max(0, stepOf(DATA.models[m]).at - 1 - run.first);
    for (const name of ["attention", "decoding", "margin"]) draw(name, m);
  }
}

function draw(name, m) {
  const panel = panels[name][m];
  for (const old of panel.querySelectorAll(".js-plotly-plot")) Plotly.purge(old);
  keepingFocus(() => panel.replaceChildren(make("h3", {}, DATA.models[m].title), ...SECTIONS[name](DATA.models[m], m)));
  while (waiting.length) waiting.shift()();
}

function drawAll() {
  DATA.groups.forEach((_, g) => pickStep(g));
  for (const name of ["card", "embeddings", "spectrum", "ablation", "history"]) {
    if (!document.getElementById(name).hidden) DATA.models.forEach((_, m) => draw(name, m));
  }
}

function start() {
  for (const name of ["title", "about", "made"]) document.getElementById(name).textContent = DATA[name];
  document.getElementById("notes").append(...DATA.notes.map((note) => make("li", {}, note)));
  document.getElementById("controls").classList.toggle("stays", DATA.groups.length < 3);
  for (const model of DATA.models) for (const run of model.runs) {
    run.all = Object.fromEntries((run.tokens ?? []).map((token, t) => [run.first + t, token])); // by position
  }
  for (const name of Object.keys(SECTIONS)) {
    const section = document.getElementById(name), place = section.querySelector(".panels");
    section.hidden = ["spectrum", "history"].includes(name) && !DATA.models.some((model) => model[name]);
    panels[name] = DATA.models.map(() => make("article", { class: "panel" }));
    place.classList.toggle("one", DATA.models.length === 1);
    place.append(...panels[name]);
  }
  drawAll();
}

let width = window.innerWidth, soon = 0;
window.addEventListener("resize", () => {
  clearTimeout(soon);
  soon = setTimeout(() => { if (window.innerWidth !== width) { width = window.innerWidth; drawAll(); } }, 200);
});
start();
