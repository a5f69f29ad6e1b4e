"""HTML displays of results in notebooks: a sentence, small tables and pictures on about one screen.

`_repr_html_` calls `html(thing)`. `render` has one function for each type; other values are shown
as their string or their fields.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from .. import resolve
from ..compiler.driver import Compiled
from ..compiler.task import task_name
from ..core import backend, components
from ..core.hooks import ActivationCache
from ..core.model import Config, Model
from ..core.param_count import COUNT_NAMES, ParameterCount
from ..generate import Generation
from ..lens.attention import Alignment, HeadSteps
from ..lens.compare import Comparison
from ..lens.embeddings import Embeddings
from ..lens.explain import Explanation
from ..lens.inspect import Inspection
from ..lens.interventions.ablate import AblatedScore
from ..lens.interventions.patch import Interchange, Patch, PatchGrid
from ..lens.logits import LogitLens
from ..plotting.style import GRAY, GREEN
from ..proof.prover import Proof
from ..tasks.base import Task
from ..training.result import Training
from ..utils.errors import GlassformerError
from ..utils.limits import format_count
from ..utils.numfmt import format_number, format_percent_down
from ..utils.results import brief_repr, has_custom_str, repr_fields
from ..verification.evaluation import Score
from ..verification.verdict import Verdict
from .html_widgets import (
    BAD_STYLE,
    GOOD_STYLE,
    MAX_MAP_CELLS,
    MAX_TABLE_ROWS,
    Markup,
    bar_table,
    collapsible,
    heading,
    heatmap,
    join,
    line_chart,
    share_bar,
    side_by_side,
    svg,
    svg_image,
    svg_text,
    table,
    to_colors,
    to_markup,
)  # fmt: skip

MAX_MAPS = 6  # maximum number of maps side by side
MAX_CACHE_MAPS = 4
MAX_LENS_TOKENS = 20


def html(thing: Any) -> str:
    """Return a value as HTML."""
    with np.errstate(all="ignore"):
        inside = render(thing)
    return f'<div style="max-width:860px;overflow-x:auto;font-size:13px">{inside}</div>'


def _display(thing: Any, words: Any, *parts: Markup, style: str = "") -> Markup:
    return join(heading(type(thing).__name__, words, style), *parts)


@singledispatch
def render(thing: Any) -> Markup:
    """Return a value without a specific display as its string or its fields."""
    if has_custom_str(thing):
        first, *rest = str(thing).split("\n")
        more = len(rest) - MAX_TABLE_ROWS
        shown = [join(to_markup(line), "<br>") for line in rest[:MAX_TABLE_ROWS]]
        return _display(thing, first, *shown, to_markup(f"… {more} more lines" if more > 0 else ""))
    values = repr_fields(thing)
    tables = {k: v for k, v in values.items() if _is_table(v)}
    flat = {k: v for k, v in values.items() if k not in tables}
    matrices = {k: v for k, v in flat.items() if np.ndim(v) == 2 and hasattr(v, "shape")}
    maps = [heatmap(v, [], [], k) for k, v in matrices.items()][:MAX_MAPS]
    facts = [(k, v if isinstance(v, str) else brief_repr(v)) for k, v in flat.items()]
    below = [collapsible(k, _rows_table(v)) for k, v in tables.items()]
    return _display(thing, "", table(facts, max_rows=16), side_by_side(*maps), *below)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(is_dataclass(v) for v in value)


def _rows_table(items: Sequence[Any]) -> Markup:
    names = [f.name for f in fields(items[0]) if f.repr][:6]
    rows = [[getattr(item, name) for name in names] for item in items]
    return table([[v if isinstance(v, str) else brief_repr(v) for v in row] for row in rows], names)


def _shape(x: Any) -> str:
    return "×".join(map(str, x.shape))


# ── models, tasks and runs ─────────────────────────────────────────────────────────────────────
@render.register
def _model(model: Model) -> Markup:
    total = sum(int(np.prod(w.shape)) for w in model.weights.values())
    nonzero = {n: int((w != 0).sum()) for n, w in model.weights.items()}
    slots = ", ".join(f"{n} [{a}:{b}]" for n, (a, b) in model.labels.slots.items())
    facts = [
        ("config", model.config), ("task", task_name(model)), ("tokens", model.vocabulary),
        ("made by", model.provenance.get("maker", "")), ("slots", slots),
        *((f"head {k}", v) for k, v in [*model.labels.heads.items()][:MAX_MAPS]),
    ]  # fmt: skip
    rows = [(n, _shape(w), nonzero[n], _thumbnail(w)) for n, w in model.weights.items()]
    counts = f"{total:,} parameters, {sum(nonzero.values()):,} nonzero, {model.dtype}"
    details = table([fact for fact in facts if str(fact[1])], max_rows=16)
    weights = table(rows, ("array", "shape", "nonzero", ""), 10)
    return join(heading("Model", f"{model.name}: {counts}"), details, weights)


def _thumbnail(w: Any) -> Markup:
    """Return a small picture of a weight array on a log scale that shows all nonzero entries."""
    x = backend.to_numpy(w).astype(float)
    x = x.reshape(-1, x.shape[-1])
    x = (x.T if len(x) > x.shape[1] else x)[:MAX_MAP_CELLS, :MAX_MAP_CELLS]
    size = np.where(np.isfinite(x) & (x != 0), np.log(np.abs(x) + (x == 0)), np.nan)
    low, high = (np.nanmin(size), np.nanmax(size)) if np.isfinite(size).any() else (0.0, 0.0)
    depth = np.nan_to_num(0.3 + 0.7 * (size - low) / (high - low or 1))
    h, w = (n * min(4, max(1, 96 // n)) for n in x.shape)
    return svg(w, h, svg_image(0, 0, w, h, to_colors(np.sign(x) * depth, False)), "weights")


@render.register
def _config(c: Config) -> Markup:
    defaults = {f.name: f.default for f in fields(c)}
    changed = [(k, str(v)) for k, v in vars(c).items() if v != defaults[k]]
    return _display(c, c, table(changed, max_rows=24))


@render.register
def _count(c: ParameterCount) -> Markup:
    counts = table([(name, getattr(c, name)) for name in COUNT_NAMES], max_rows=20)
    arrays = bar_table([(n, float(k)) for n, k in c.arrays.items()], "by array")
    return _display(c, f"{c.total:,} parameters", side_by_side(counts, arrays))


@render.register
def _task(t: Task) -> Markup:
    rows = t.sample_or_all(5)
    examples = []
    for tokens, mask in zip(*t.batch(rows[t.defined(rows)]), strict=True):
        at = np.nonzero(mask)[0]
        parts = tokens[: at[0]], tokens[at[0] : at[-1] + 1]
        examples.append(tuple(" ".join(t.vocabulary[int(k)] for k in part) for part in parts))
    facts = table([("tokens", str(t.vocabulary))])
    title = heading("Task", f"{t.ref or type(t).__name__}: {format_count(t.inputs)} inputs")
    return join(title, facts, table(examples, ("input", "answer"), 5))


@render.register
def _generation(r: Generation) -> Markup:
    n = len(r.prompt)
    facts = [("input", f"{n} tokens"), ("output", f"{len(r.tokens) - n} tokens")]
    return _display(r, f"{r.input} → {r.output}", table(facts))


@render.register
def _cache(cache: ActivationCache) -> Markup:
    rows, maps = [(name, _shape(x)) for name, x in cache.items()], []
    tokens = _cache_tokens(cache)
    for name, x in cache.items():
        if name.endswith("attn.hook_pattern"):
            for h in range(x.shape[1]):
                title = components.head_name(int(name.split(".")[1]), h)
                label = components.display_name(cache.model, title) if cache.model else title
                maps.append(heatmap(backend.to_numpy(x)[0, h], tokens, tokens, label, False))
    names = table(rows[:MAX_TABLE_ROWS], ("activation", "shape"))
    more = collapsible("all names", table(rows[MAX_TABLE_ROWS:], max_rows=40))
    beside = side_by_side(names, *maps[:MAX_CACHE_MAPS])
    return _display(cache, f"{len(cache)} activations of one run", beside, more)


def _cache_tokens(cache: ActivationCache) -> list[str]:
    if cache.model is None or cache.tokens is None:
        return []
    first = np.atleast_2d(backend.to_numpy(cache.tokens))[0]
    return [cache.model.vocabulary[int(t)] for t in first]


@render.register
def _training(t: Training) -> Markup:
    accuracy = format_percent_down(t.accuracy)
    words = f"{t.status} after {t.steps:,} steps, seed {t.seed}: accuracy {accuracy}"
    steps = [h["step"] for h in t.history]
    curves = {k: [h[k] for h in t.history] for k in ("loss", "accuracy")}
    curves = {f"{k} {format_number(v[-1], 3)}": v for k, v in curves.items() if v}
    chart = line_chart(curves, steps, "training") if steps else Markup("")
    events = [*((f"step {e.step:,}", e.kind) for e in t.events), ("time", f"{t.seconds:.1f} s")]
    return _display(t, words, side_by_side(chart, table(events, max_rows=10)))


@render.register
def _compiled(c: Compiled) -> Markup:
    m, certificate = c.model, c.certificate
    source = c.program.source or m.provenance.get("compiled", {}).get("source", "")
    text = Markup(f'<pre style="margin:4px 0">{to_markup(source, 1500)}</pre>')
    facts = [
        ("proved in", certificate.dtype), ("longest text", f"{c.program.length} tokens"),
        ("cases", certificate.cases), ("margin", certificate.margin),
        ("tightest at", certificate.tightest), ("model", m.config),
    ]  # fmt: skip
    slack = bar_table(sorted(certificate.slack.items(), key=lambda s: s[1])[:8], "slack", 1.0)
    size = sum(int(np.prod(w.shape)) for w in m.weights.values())
    words = f"{c.program.name}: {size:,} parameters"
    return _display(c, words, side_by_side(text, slack), table(facts), style=GOOD_STYLE)


# ── scores and proofs ──────────────────────────────────────────────────────────────────────────
@render.register
def _score(s: Score) -> Markup:
    style = GOOD_STYLE if s.checked and not s.wrong else BAD_STYLE
    return _display(s, s, _score_bars(s), style=style)


def _score_bars(s: Score) -> Markup:
    tokens = [(f"y{i + 1}", p) for i, p in enumerate(s.positions)]
    kinds = [(k or "all", 1 - bad / n) for k, (n, bad) in s.classes.items() if n]
    bars = bar_table(kinds, "class of input", 1.0)
    return side_by_side(bar_table(tokens, "answer token", 1.0), bars)


@render.register
def _ablated(a: AblatedScore) -> Markup:
    name = a.component + (f" ({a.name})" if a.name else "")
    return _display(a, f"without {name} ({a.method}): {a.score}", _score_bars(a.score))


@render.register
def _verdict(v: Verdict) -> Markup:
    how = "every input" if v.exhaustive else "a sample"
    words = f"{v.wrong:,} wrong of {v.checked:,} ({how} of {v.task}), worst margin "
    accuracy = share_bar(1 - v.wrong / v.checked, GREEN) if v.checked else Markup("")
    facts = [("accuracy", accuracy), ("float type", v.dtype), ("weights", v.model[:12])]
    if v.error_bound is not None:
        bound = f"{100 * v.error_bound:.2g} % of all, with {v.confidence:.0%} confidence"
        facts += [("wrong at most", to_markup(bound))]
    checked = [(k, c) for k, c in v.classes.items() if c["checked"]]
    kinds = [(k or "all", 1 - c["wrong"] / c["checked"]) for k, c in checked]
    classes = bar_table(sorted(kinds, key=lambda k: k[1])[:6], "accuracy by class", 1.0)
    wrong = [(c["input"], c["got"], c["expected"], c["margin"]) for c in v.counterexamples]
    shown = table(wrong, ("input", "output", "expected", "margin"), 6)
    beside = side_by_side(table(facts), classes, shown)
    style = GOOD_STYLE if v.holds else BAD_STYLE
    return _display(v, words + format_number(v.worst_margin), beside, style=style)


@render.register
def _proof(p: Proof) -> Markup:
    words = f"{p.task} is {p.result}"
    if p.margin is not None:
        words += f", the right token always leads by at least {format_number(p.margin)}"
    facts: list[Any] = [("method", f"{p.method}: {p.reason}"), ("weights", p.model[:12])]
    if p.counterexample:
        facts += [(k, p.counterexample.get(k)) for k in ("input", "got", "expected")]
    try:
        task: Task | None = resolve.load_task(p.task)
    except GlassformerError:  # the file is missing, or the task was compiled from source text
        task = None
    counts = [(k, n) for k, n in (("inputs", task.size if task else 0), ("cases", p.cases)) if n]
    width = max((len(str(n)) for _, n in counts), default=1)
    bars = [(k, share_bar(len(str(n)) / width), format_count(n)) for k, n in counts]
    cases = table(bars, ("count (log scale)", "", ""))
    strip = _certificate_strip(p.certificate or {}, task)
    style = GOOD_STYLE if p.holds else BAD_STYLE
    return _display(p, words, side_by_side(cases, table(facts)), strip, style=style)


def _certificate_strip(certificate: Mapping[str, Any], task: Task | None) -> Markup:
    """Return an example of the task with the number of split columns below each answer token."""
    spots, rows = certificate.get("layout"), certificate.get("rows")
    if not task or not isinstance(spots, list) or not isinstance(rows, list):
        return Markup("")
    if len(spots) > MAX_MAP_CELLS:
        return Markup("")
    splits = {r["row"] + 1: len(r["split"]) for r in rows}
    height, inside, x = max(splits.values(), default=1), "", 0
    for i, spot in enumerate(spots):
        name = task.vocabulary[int(spot[1:])] if spot[0] == "=" else spot  # a fixed token
        width, n = max(22, 7 * len(name) + 4), splits.get(i, 0)
        box = f'x="{x}" y="0" width="{width}" height="20" rx="3"'
        inside += f'<rect {box} fill="{GREEN if n else GRAY}" opacity="{0.3 if n else 0.12}"/>'
        inside += svg_text(x + width / 2, 14, name, "middle")
        for k in range(n):
            bar = f'x="{x + width // 2 - 6}" y="{24 + 6 * k}" width="12" height="4"'
            inside += f'<rect {bar} fill="{GREEN}"/>'
        x += width + 2
    caption = "green: answer tokens, with a bar for each column the proof splits there"
    inside += svg_text(0, 38 + 6 * height, caption)
    return svg(max(x, 560), 44 + 6 * height, inside, "columns the proof splits")


# ── views ──────────────────────────────────────────────────────────────────────────────────────
@render.register
def _explanation(e: Explanation) -> Markup:
    lead = f"it leads {e.runner_up} by {format_number(e.margin)}"
    heads = [h for layer in e.layers for h in layer.heads][:MAX_TABLE_ROWS]
    pattern = np.zeros((len(heads), len(e.tokens)))
    for row, h in zip(pattern, heads, strict=True):
        for at, _, share in h.read:
            row[at] = share
    start, names = max(0, len(e.tokens) - MAX_MAP_CELLS), [h.name for h in heads]
    attention = heatmap(pattern[:, start:], names, e.tokens[start:], "attention", False)
    slots = []
    for s in e.layers[-1].slots if e.layers else e.slots:
        numbers = " ".join(map(format_number, s.values[:6])) + " …" * (len(s.values) > 6)
        slots.append((s.name, numbers, s.means))
    values = [(v.name, v.holds, "✓" if v.holds == v.means else f"not {v.means}") for v in e.values]
    shares = sorted(e.shares, key=lambda s: -abs(s[1]))[:8]
    return _display(
        e, f"after {' '.join(e.tokens)} comes {e.winner}: {lead}",
        side_by_side(attention, bar_table(e.top, "logit")),
        bar_table(shares, "share of the margin"),
        collapsible("final stream", table(slots, ("slot", "values", "meaning"))),
        collapsible("values", table(values, ("value", "decoded", "interpreter"), 20)),
    )  # fmt: skip


@render.register
def _comparison(c: Comparison) -> Markup:
    a, b = c.names
    overlap = Markup("")
    if c.attention:
        overlap = heatmap(c.attention.overlap, *c.attention.heads, "attention overlap", False)
    wrong = [(e["input"], e["a"], e["b"], e["expected"]) for e in c.examples]
    differ = table(wrong, ("input", a, b, "right"), 5)
    words = f"{a} and {b} on {c.task}: outputs differ on {c.differ:,} of {c.verdicts[0].checked:,}"
    return _display(c, words, side_by_side(table(c.summary(), ("", a, b)), overlap, differ))


@render.register
def _patch(p: Patch) -> Markup:
    share = format_percent_down(p.recovered)
    rows = [("patched run", share_bar(p.recovered), share)]
    return _display(p, f"recovers {share} of the logit difference", table(rows))


@render.register
def _patch_grid(g: PatchGrid) -> Markup:
    words = f"{g.what}: recovered share of the logit difference"
    return _display(g, words, heatmap(g.values, g.rows, g.columns))


@render.register
def _interchange(i: Interchange) -> Markup:
    names = [*dict.fromkeys(k for m in i.moved for k in m.shares), "other"]
    tokens = [f"y{m.token + 1}" for m in i.moved]
    shares = [m.shares | {"other": m.other} for m in i.moved]
    rows = [
        (token, f"{m.cases:,} cases",
         ", ".join(f"{n} {format_percent_down(share[n])}" for n in names if share.get(n)))
        for token, m, share in zip(tokens, i.moved, shares, strict=True)
    ]  # fmt: skip
    values = [[share.get(n, 0.0) for n in names] for share in shares]
    words = f"{i.what}{f' ({i.name})' if i.name else ''}: explanations by answer token"
    return _display(i, words, side_by_side(heatmap(values, tokens, names, "", False), table(rows)))


@render.register
def _head_steps(s: HeadSteps) -> Markup:
    maps = [heatmap(s.pattern, s.tokens, s.tokens, "attention", False)]
    for name, x in (("queries", s.q), ("keys", s.k), ("values", s.v)):
        maps.append(heatmap(x, s.tokens, [str(i) for i in range(x.shape[1])], name, True))
    words = f"{components.head_name(s.layer, s.head)} on {' '.join(s.tokens)}"
    return _display(s, words, side_by_side(*maps))


@render.register
def _embeddings(e: Embeddings) -> Markup:
    cosines = heatmap(e.cosine, e.names, e.names, "cosine", True, cell=12)
    return _display(e, f"{e.kind}: {e}", cosines)


@render.register
def _logit_lens(lens: LogitLens) -> Markup:
    tops = [[lens.vocabulary[t] for t in part[0][-MAX_LENS_TOKENS:]] for part in lens.top_tokens]
    rows = [(part, *row) for part, row in zip(lens.parts, tops, strict=True)]
    titles = ("stopped after", *lens.str_tokens[0][-MAX_LENS_TOKENS:])
    return _display(lens, "top token at each position", table(rows, titles))


@render.register
def _alignment(a: Alignment) -> Markup:
    heads = [components.head_name(i, h) for i, h in np.ndindex(*a.entropy.shape[:2])]
    shares = np.stack([a.mean_share(role).ravel() for role in a.roles], axis=1)  # heads roles
    words = f"attention by role in {a.task}, {a.rows:,} inputs"
    return _display(a, words, heatmap(shares, heads, a.roles, "", False))


@render.register
def _inspection(i: Inspection) -> Markup:
    s, below = i.subject, []
    for block in re.split(r"\n(?! )", str(i)):
        if "\n " in block:
            name, *lines = block.split("\n")
            shown = [join(to_markup(line), "<br>") for line in lines[:MAX_TABLE_ROWS]]
            below.append(collapsible(name, *shown))
    skipped = table([*i.skipped.items()], ("skipped", ""))
    words = f"{len(i.results)} views of {s.model.name}, {len(s.rows):,} inputs"
    return _display(i, words, *below, collapsible(f"{len(i.skipped)} skipped", skipped))
