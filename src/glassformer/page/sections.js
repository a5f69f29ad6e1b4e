// What each section says of a model. A section is a function that returns the elements of one panel.

const SECTIONS = { card, attention: attentionSection, decoding, margin, embeddings, spectrum, ablation, history: training };

function card(model) {
  const { holds, text, wrong } = model.verdict;
  const found = [make("p", { class: "verdict " + (holds === null ? "" : holds ? "right" : "wrong") }, text),
    make("dl", {}, ...model.facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]))];
  if (!wrong.length) return found;
  return [...found, heading("Inputs that it gets wrong"), table(["input", "says", "right is", "margin"], wrong)];
}

function decoding(model, m) {
  const run = runOf(model);
  if (run.problem) return [words(run.problem)];
  const step = stepOf(model), now = chosen[model.group];
  const written = run.steps.map((s, i) => make("button", {
    type: "button", id: `written-${m}-${i}`, "aria-pressed": String(s === step),
    class: "written" + (s === step ? " asking" : i > now.step ? " later" : ""),
    onclick: () => { now.step = i; pickStep(model.group); } }, visible(s.token)));
  const found = [
    quiet("It answers ", make("strong", { class: "answer" }, run.output || "(nothing)"), ". Written, token by token:"),
    make("div", { class: "tokens" }, ...written),
    make("p", { class: "step-says", "aria-live": "polite" }, `After ${step.at} token${step.at === 1 ? "" : "s"} it writes`
      + ` ${quoted(step.token)}, ahead of ${quoted(step.over)} by ${figure(step.margin)}.`),
    chart("logits", (place) => bars(place, {
      names: step.top.map(([t]) => visible(t)), values: step.top.map(([, x]) => x ?? 0), title: "logit",
      texts: step.top.map(([, x, behind]) => figure(x) + (behind ? ` (${figure(behind)} behind)` : "")),
      colours: step.top.map((_, i) => (i ? COLOURS.sky : COLOURS.blue)) })),
  ];
  if (step.reads.length) {
    found.push(heading("What each head read"),
      table([], step.reads.map(([l, h, read]) => [headName(model, l, h), readWords(run, read)])));
  } else if (model.layers) found.push(words("No head wrote anything at this step."));
  if (step.stops.length) {
    found.push(heading("What it would say if it stopped after a part"),
      table([], step.stops.map(([part, token, lead]) => [part, `${quoted(token)}, ahead by ${figure(lead)}`])));
  }
  return found;
}

function margin(model) {
  const run = runOf(model);
  if (run.problem) return [words(run.problem)];
  const step = stepOf(model);
  const rows = model.parts.map((name, i) => [name, step.shares[i] ?? null]).filter(([, x]) => x !== null);
  if (!rows.length) return [words("The norms of this model stand after the sums, so its margin is no plain sum of parts.")];
  const found = [heading("At this step"),
    quiet(`${quoted(step.token)} ahead of ${quoted(step.over)} by ${figure(step.margin)}.`),
    shares("margin", rows.map(([n]) => n), rows.map(([, x]) => x), "share of the margin")];
  const { positions, problem } = model.average;
  const at = problem ? -1 : positions.indexOf(step.at);
  if (at < 0) return found;
  const average = model.average;
  return [...found, heading("On average"),
    quiet(`The right token at position ${step.at} ahead of the best other, mean of`
      + ` ${average.rows.toLocaleString("en")} inputs: ${figure(average.margin[at])}.`),
    shares("average", average.names, average.shares.map((row) => row[at]), "mean share of the margin")];
}

function shares(name, names, values, title) {
  return chart(name, (place) => bars(place, { names, values: values.map((x) => x ?? 0), texts: values.map(figure), title,
    colours: values.map((x) => (x < 0 ? COLOURS.orange : COLOURS.blue)) }));
}

function embeddings(model) {
  const e = model.embeddings;
  if (e.problem) return [quiet(e.problem)];
  const found = [heading("Tokens in a plane"), quiet(e.pca.says), chart("plane", (place) => cloud(place, e.pca))];
  for (const [title, part] of [["How alike tokens are", e.tokens], ["How alike positions are", e.positions]]) {
    if (!part) continue;
    const names = part.names, values = part.cosine.map((row) => row.map((x) => x / 100));
    const pair = (i, j, x) => plain(`${visible(names[i])} and ${visible(names[j])}: ${x.toFixed(2)}`);
    const hover = values.map((row, i) => row.map((x, j) => pair(i, j, x)));
    found.push(heading(title), part.says ? quiet(part.says) : "",
      chart("alike", (place) => map(place, { values, rows: names, columns: names, hover, signed: true, cell: 18 })));
  }
  return e.noPositions ? [...found, quiet(e.noPositions)] : found;
}

function spectrum(model) {
  const s = model.spectrum;
  if (!s) return [quiet("The task of this model has no circle of remainders.")];
  const titles = ["frequency", "share of the power"];
  return [quiet(s.says),
    chart("spectrum", (place) => uprights(place, { x: s.frequencies, y: s.power, marked: s.key, titles }))];
}

function ablation(model) {
  const a = model.ablation;
  if (a.problem) return [quiet(a.problem)];
  if (a.columns.length > 1) return [quiet(a.says), chart("ablation", (place) => shadedTable(place, a))];
  const right = a.values.map(([x]) => x);
  return [quiet(a.says), chart("ablation", (place) => bars(place, { names: a.rows, values: right,
    texts: right.map(percent), title: "share of answers that are right",
    colours: right.map((_, i) => (i ? COLOURS.sky : COLOURS.blue)) }))];
}

function training(model) {
  const h = model.history;
  if (!h) return [quiet("No history of a training was given for this model.")];
  const positive = h.loss.filter((x) => x > 0);
  const log = Math.max(...positive) > 1000 * Math.min(...positive);
  const series = [{ name: "test rows", x: h.steps, y: h.accuracy }];
  if (h.trained) series.push({ name: "training rows", x: h.steps, y: h.trained });
  const loss = [{ name: "loss", x: h.steps, y: h.loss }];
  return [chart("loss", (place) => lines(place, { series: loss, title: "training loss", log })),
    chart("accuracy", (place) => lines(place, { series, title: "answers right", share: true }))];
}
