// Tokens and attention: a strip of tokens, the map of one head, and all heads in a table.

function attentionSection(model, m) {
  const run = runOf(model), look = looks[m];
  if (run.problem) return [words(run.problem)];
  if (!model.layers) {
    const why = "This model has no layers, and so no attention: a token, and where it stands, decide what comes next.";
    return [words(why), strip(model, m)];
  }
  const change = (what) => (value) => { look[what] = value; draw("attention", m); };
  const layers = Array.from({ length: model.layers }, (_, i) => String(i));
  const heads = model.headNames[look.layer].map((name, h) => (name ? `${h}: ${name}` : String(h)));
  const roles = Object.keys(run.roles);
  const outline = make("input", { type: "checkbox", id: `roles-${m}`, checked: look.roles,
    onchange: (e) => change("roles")(e.target.checked) });
  return [
    make("fieldset", {}, select("Layer", layers, look.layer, change("layer"), `layer-${m}`),
      select("Head", heads, look.head, change("head"), `head-${m}`)),
    strip(model, m),
    make("p", { class: "row-says", "aria-live": "polite" }),
    chart("attention", (place) => drawMap(place, model, m)),
    roles.length ? make("div", { class: "under-map" }, make("label", {}, outline, "outline what is needed:"),
      ...roles.map((name, i) => make("span", { class: "key" }, key(i), name))) : "",
    ...run.notes.map((note) => quiet(note)),
    ...headTable(model, m),
  ];
}

/** The tokens, to point at and to walk along with the arrow keys; all but the last ask for a next one. */
function strip(model, m) {
  const run = runOf(model);
  return make("div", { class: "tokens", role: "group", "aria-label": "Tokens" }, ...run.tokens.map((token, t) => {
    const kind = { class: t >= run.prompt ? "written" : "", title: `position ${run.first + t}` };
    if (!model.layers || t === run.tokens.length - 1) return make("span", kind, visible(token));
    const show = () => showRow(m, t);
    const walk = (e) => {
      const to = { ArrowRight: t + 1, ArrowLeft: t - 1, Home: 0, End: run.tokens.length - 2 }[e.key];
      const target = to === undefined ? null : e.currentTarget.parentElement.children[to];
      if (target?.tagName !== "BUTTON") return;
      e.preventDefault();
      target.focus();
    };
    return make("button", { ...kind, type: "button", onmouseenter: show, onfocus: show, onclick: show, onkeydown: walk },
      visible(token));
  }));
}

/** Marks the row of a position: on the map, on the tokens, and in words. */
function showRow(m, row) {
  const model = DATA.models[m], run = runOf(model), look = looks[m], panel = panels.attention[m];
  look.row = Math.min(row, run.tokens.length - 2);
  const weights = run.patterns[look.layer][look.head][look.row] ?? [];
  [...panel.querySelector(".tokens").children].forEach((element, s) => {
    const share = (weights[s] ?? 0) / 1000;
    element.style.backgroundColor = shade(share);
    element.style.color = share > 0.55 ? "#fff" : "";
    element.classList.toggle("asking", s === look.row);
    if (element.tagName === "BUTTON") element.tabIndex = s === look.row ? 0 : -1;
  });
  const read = weights.map((w, s) => [run.first + s, w]).filter(([, w]) => w >= 10).sort((a, b) => b[1] - a[1]);
  const then = look.row + 1 >= run.prompt ? "then writes" : "followed by";
  panel.querySelector(".row-says").textContent = `Position ${run.first + look.row}, ${quoted(run.tokens[look.row])}`
    + ` (${then} ${quoted(run.tokens[look.row + 1])}), reads: ${readWords(run, read.slice(0, 6))}.`;
  const map = panel.querySelector("[data-chart]");
  if (map.layout) Plotly.relayout(map, { "shapes[0]": rowBox(look.row, run.tokens.length - 1) });
}

const rowBox = (row, n) => box(-0.5, row - 0.5, n - 0.5, row + 0.5, { color: COLOURS.ink, width: 2 });

/** The colour that a share has on the map. */
function shade(share) {
  const at = Math.min(7.999, Math.max(0, share * 8)), i = Math.floor(at);
  const channels = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  const [low, high] = [channels(SHARES[i][1]), channels(SHARES[i + 1][1])];
  return `rgb(${low.map((x, k) => Math.round(x + (high[k] - x) * (at - i))).join(",")})`;
}

function key(i) {
  const swatch = make("i");
  swatch.style.borderColor = ROLES[i % ROLES.length];
  swatch.style.borderStyle = ["solid", "dashed", "dotted", "double"][i % DASHES.length];
  return swatch;
}

function drawMap(place, model, m) {
  const run = runOf(model), look = looks[m], n = run.tokens.length - 1;
  const names = run.tokens.slice(0, n);
  const pattern = run.patterns[look.layer][look.head];
  const values = names.map((_, t) => names.map((_, s) => (pattern[t][s] ?? 0) / 1000));
  const at = (t) => `${visible(names[t])} at ${run.first + t}`;
  const hover = values.map((row, t) => row.map((x, s) => plain(`${at(t)} reads ${at(s)}: ${percent(x)}`)));
  const edge = run.prompt - 0.5, dashed = { color: COLOURS.grey, width: 1.5, dash: "dash" };
  const shapes = [rowBox(Math.min(look.row, n - 1), n)];
  if (edge > 0 && edge < n - 0.5) {
    shapes.push({ type: "line", x0: edge, x1: edge, y0: -0.5, y1: n - 0.5, line: dashed },
      { type: "line", x0: -0.5, x1: n - 0.5, y0: edge, y1: edge, line: dashed });
  }
  if (look.roles) {
    Object.values(run.roles).forEach((cells, i) => {
      const line = { color: ROLES[i % ROLES.length], width: 2, dash: DASHES[i % DASHES.length] };
      shapes.push(...cells.map(([t, s]) => box(s - 0.42, t - 0.42, s + 0.42, t + 0.42, line)));
    });
  }
  const cell = n < 7 ? 56 : 34;
  map(place, { values, rows: names, columns: names, hover, shapes, cell, rowTitle: "asks", columnTitle: "is read" });
  place.on("plotly_hover", (e) => showRow(m, e.points[0].pointIndex[0]));
  showRow(m, look.row);
}

/** All heads at a glance: what each is called, what kind it is, how much of it is where the task needs it. */
function headTable(model, m) {
  const look = looks[m], { kinds, share, says, problem } = model.measured, rows = [];
  for (let l = 0; l < model.layers; l++) for (let h = 0; h < model.heads; h++) {
    const pick = make("button", { type: "button", id: `pick-${m}-${l}-${h}`,
      "aria-pressed": String(l === look.layer && h === look.head),
      onclick: () => { Object.assign(look, { layer: l, head: h }); draw("attention", m); } },
    `${l}.${h} ${model.headNames[l][h]}`.trim());
    const cells = [make("td", {}, pick)];
    if (kinds) cells.push(kinds[l][h]);
    if (share) cells.push(make("td", { class: "number" }, share[l][h] === null ? "" : percent(share[l][h])));
    rows.push(cells);
  }
  const titles = ["head", ...(kinds ? ["kind"] : []), ...(share ? ["on what is needed"] : [])];
  return [heading("All heads"), quiet(problem ?? says), table(titles, rows)];
}
