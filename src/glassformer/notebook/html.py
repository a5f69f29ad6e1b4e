"""How things look in a notebook: a sentence, small tables, small pictures, at most about a screen.

`html(thing)` is what `_repr_html_` gives; `body` has one short function for each kind of thing, and
shows what it does not know by its words, or field by field.
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
from .html_widgets import (  # fmt: skip
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
)

MAX_MAPS = 6  # maps side by side


def html(thing: Any) -> str:
    """A thing as a piece of a page."""
    with np.errstate(all="ignore"):
        inside = render(thing)
    return f'<div style="max-width:860px;overflow-x:auto;font-size:13px">{inside}</div>'


# ── the things ─────────────────────────────────────────────────────────────────────────────────
@singledispatch
def render(thing: Any) -> Markup:
    """What no function below knows: what it says of itself, or its fields."""
    kind = type(thing).__name__
    if has_custom_str(thing):
        first, *rest = str(thing).split("\n")
        said = [
            heading(kind, first),
            *(join(to_markup(line), "<br>") for line in rest[:MAX_TABLE_ROWS]),
        ]
        more = (
            [to_markup(f"… {len(rest) - MAX_TABLE_ROWS} more lines")]
            if len(rest) > MAX_TABLE_ROWS
            else []
        )
        return join(*said, *more)
    tall = {k: v for k, v in repr_fields(thing).items() if _is_table(v)}
    flat = {k: v for k, v in repr_fields(thing).items() if k not in tall}
    maps = [
        heatmap(v, [], [], k) for k, v in flat.items() if np.ndim(v) == 2 and hasattr(v, "shape")
    ]
    facts = [(k, v if isinstance(v, str) else brief_repr(v)) for k, v in flat.items()]
    below = [collapsible(k, _rows_table(v)) for k, v in tall.items()]
    return join(
        heading(kind, ""), table(facts, max_rows=16), side_by_side(*maps[:MAX_MAPS]), *below
    )


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(is_dataclass(v) for v in value)


def _rows_table(things: Sequence[Any]) -> Markup:
    """Things of one kind, a row each."""
    names = [f.name for f in fields(things[0]) if f.repr][:6]
    rows = [
        [v if isinstance(v := getattr(t, n), str) else brief_repr(v) for n in names] for t in things
    ]
    return table(rows, names)


@render.register
def _model(model: Model) -> Markup:
    sizes = {n: int(np.prod(w.shape)) for n, w in model.weights.items()}
    used = {n: int((w != 0).sum()) for n, w in model.weights.items()}
    slots = ", ".join(f"{n} [{a}:{b}]" for n, (a, b) in model.labels.slots.items())
    facts = [
        ("config", model.config), ("task", task_name(model)), ("tokens", model.vocabulary),
        ("made by", model.provenance.get("maker", "")), ("slots", slots),
        *((f"head {k}", v) for k, v in [*model.labels.heads.items()][:MAX_MAPS]),
    ]  # fmt: skip
    rows = [
        (n, "×".join(map(str, w.shape)), used[n], _thumbnail(w)) for n, w in model.weights.items()
    ]
    zeros = f"{sum(used.values()):,} of them not 0, {model.dtype}"
    said = f"{model.name}: {sum(sizes.values()):,} parameters, {zeros}"
    known = table([fact for fact in facts if str(fact[1])], max_rows=16)
    return join(heading("Model", said), known, table(rows, ("array", "shape", "not 0", ""), 10))


def _thumbnail(w: Any) -> Markup:
    """A weight as a small picture: what is not 0 is seen, whatever else is large."""
    x = backend.to_numpy(w).astype(float)
    x = x.reshape(-1, x.shape[-1])
    x = (x.T if len(x) > x.shape[1] else x)[:MAX_MAP_CELLS, :MAX_MAP_CELLS]  # wider than high
    size = np.where(np.isfinite(x) & (x != 0), np.log(np.abs(x) + (x == 0)), np.nan)
    low, high = (np.nanmin(size), np.nanmax(size)) if np.isfinite(size).any() else (0.0, 0.0)
    depth = np.nan_to_num(0.3 + 0.7 * (size - low) / (high - low or 1))
    h, wide = (n * min(4, max(1, 96 // n)) for n in x.shape)
    return svg(wide, h, svg_image(0, 0, wide, h, to_colors(np.sign(x) * depth, False)), "weights")


@render.register
def _config(c: Config) -> Markup:
    usual = {f.name: f.default for f in fields(c)}
    own = [(k, v) for k, v in vars(c).items() if v != usual[k]]
    return join(heading("Config", c), table(((k, str(v)) for k, v in own), max_rows=24))


@render.register
def _count(c: ParameterCount) -> Markup:
    ways = table([(way, getattr(c, way)) for way in COUNT_NAMES], max_rows=20)
    return join(heading("Count", f"{c.total:,} parameters"), side_by_side(ways, bar_table(
        [(n, float(k)) for n, k in c.arrays.items()], "by array")))  # fmt: skip


@render.register
def _run(r: Generation) -> Markup:
    n = len(r.prompt)
    facts = [("read", f"{n} tokens"), ("said", f"{len(r.tokens) - n} tokens")]
    return join(heading("Run", f"{r.input} → {r.output}"), table(facts))


@render.register
def _record(cache: ActivationCache) -> Markup:
    rows = [(name, "×".join(map(str, x.shape))) for name, x in cache.items()]
    maps = []
    for name, x in cache.items():
        if name.endswith("attn.hook_pattern"):
            for h in range(x.shape[1]):
                title = components.head_name(int(name.split(".")[1]), h)
                called = components.display_name(cache.model, title) if cache.model else title
                words = _cache_tokens(cache)
                maps.append(heatmap(backend.to_numpy(x)[0, h], words, words, called, False))
    said = f"{len(cache)} activations of one run"
    shown = rows if len(rows) <= MAX_TABLE_ROWS else rows[:MAX_TABLE_ROWS]
    left = (
        collapsible("all names", table(rows[MAX_TABLE_ROWS:], max_rows=40))
        if len(rows) > MAX_TABLE_ROWS
        else Markup("")
    )
    names = table(shown, ("activation", "shape"))
    return join(heading("Record", said), side_by_side(names, *maps[:4]), left)


def _cache_tokens(cache: ActivationCache) -> list[str]:
    if cache.model is None or cache.tokens is None:
        return []
    first = np.atleast_2d(backend.to_numpy(cache.tokens))[0]
    return [cache.model.vocabulary[int(t)] for t in first]


@render.register
def _score(s: Score) -> Markup:
    return join(
        heading("Score", s, GOOD_STYLE if s.checked and not s.wrong else BAD_STYLE), _score_bars(s)
    )


def _score_bars(s: Score) -> Markup:
    """What share is right: of each token of the answer, of each class of input."""
    tokens = [(f"y{i + 1}", p) for i, p in enumerate(s.positions)]
    kinds = [(k or "all", 1 - bad / n) for k, (n, bad) in s.classes.items() if n]
    return side_by_side(
        bar_table(tokens, "answer token", 1.0), bar_table(kinds, "class of input", 1.0)
    )


@render.register
def _ablated(a: AblatedScore) -> Markup:
    said = f"without {a.component}{f' ({a.name})' if a.name else ''} ({a.method}): {a.score}"
    return join(heading("Ablated", said), _score_bars(a.score))


@render.register
def _verdict(v: Verdict) -> Markup:
    how = "every input" if v.exhaustive else "a sample"
    said = f"{v.wrong:,} wrong of {v.checked:,} ({how} of {v.task}), worst margin "
    facts = [("right", join(share_bar(1 - v.wrong / v.checked, GREEN) if v.checked else "")),
             ("in", v.dtype), ("weights", v.model[:12])]  # fmt: skip
    if v.error_bound is not None:
        sure = f"{100 * v.error_bound:.2g} % of all, with {v.confidence:.0%} confidence"
        facts += [("wrong at most", sure)]
    kinds = [(k or "all", 1 - c["wrong"] / c["checked"])
             for k, c in v.classes.items() if c["checked"]]  # fmt: skip
    kinds = sorted(kinds, key=lambda k: k[1])[:6]
    wrong = [(c["input"], c["got"], c["expected"], c["margin"]) for c in v.counterexamples]
    shown = table(wrong, ("input", "says", "right is", "margin"), 6)
    style = GOOD_STYLE if v.holds else BAD_STYLE
    return join(
        heading("Verdict", said + format_number(v.worst_margin), style),
        side_by_side(table(facts), bar_table(kinds, "right, by class", 1.0), shown),
    )


@render.register
def _proof(p: Proof) -> Markup:
    margin = (
        "" if p.margin is None else f", no right token leads by less than {format_number(p.margin)}"
    )
    said = f"{p.task} is {p.result}{margin}"
    facts: list[Any] = [("how", f"{p.method}: {p.reason}"), ("weights", p.model[:12])]
    if p.counterexample:
        facts += [(k, p.counterexample.get(k)) for k in ("input", "got", "expected")]
    try:
        task: Task | None = resolve.load_task(p.task)
    except GlassformerError:  # of a file that is not here, or compiled from a text
        task = None
    logs = [("inputs", task.size if task else 0), ("cases looked at", p.cases)]
    most = max(len(str(n)) for _, n in logs)
    counted = [(k, share_bar(len(str(n)) / most), format_count(n)) for k, n in logs if n]
    cases = table(counted, ("how many, by digits", "", ""))
    style = GOOD_STYLE if p.holds else BAD_STYLE
    strip = _certificate_strip(p.certificate or {}, task)
    return join(heading("Proof", said, style), side_by_side(cases, table(facts)), strip)


def _certificate_strip(certificate: Mapping[str, Any], task: Task | None) -> Markup:
    """A text of the task, each token of the answer with the columns that are told apart for it."""
    spots, rows = certificate.get("layout"), certificate.get("rows")
    if (
        not task
        or not isinstance(spots, list)
        or not isinstance(rows, list)
        or len(spots) > MAX_MAP_CELLS
    ):
        return Markup("")
    told = {r["row"] + 1: len(r["split"]) for r in rows}
    most, inside, x = max(told.values(), default=1), "", 0
    for i, spot in enumerate(spots):
        name = task.vocabulary[int(spot[1:])] if spot[0] == "=" else spot  # always the same token
        wide, n = max(22, 7 * len(name) + 4), told.get(i, 0)
        box = f'x="{x}" y="0" width="{wide}" height="20" rx="3"'
        inside += f'<rect {box} fill="{GREEN if n else GRAY}" opacity="{0.3 if n else 0.12}"/>'
        inside += svg_text(x + wide / 2, 14, name, "middle")
        for k in range(n):
            y = 24 + 6 * k
            inside += (
                f'<rect x="{x + wide // 2 - 6}" y="{y}" width="12" height="4" fill="{GREEN}"/>'
            )
        x += wide + 2
    about = "green: written by the model; a bar for each column that the proof tells apart there"
    inside += svg_text(0, 38 + 6 * most, about)
    return svg(max(x, 560), 44 + 6 * most, inside, "what the proof tells apart")


@render.register
def _explanation(e: Explanation) -> Markup:
    beats = f"its logit beats that of {e.runner_up} by {format_number(e.margin)}"
    said = f"after {' '.join(e.tokens)} comes {e.winner}: {beats}"
    readers = [h for layer in e.layers for h in layer.heads][:MAX_TABLE_ROWS]
    seen = np.zeros((len(readers), len(e.tokens)))
    for row, h in zip(seen, readers, strict=True):
        for at, _, share in h.read:
            row[at] = share
    from_ = max(0, len(e.tokens) - MAX_MAP_CELLS)
    looks = heatmap(seen[:, from_:], [h.name for h in readers], e.tokens[from_:],
                 "where its heads looked", False)  # fmt: skip
    last = e.layers[-1].slots if e.layers else e.slots
    slots = [
        (s.name, " ".join(map(format_number, s.values[:6])) + " …" * (len(s.values) > 6), s.means)
        for s in last
    ]
    values = [(v.name, v.holds, "✓" if v.holds == v.means else f"not {v.means}") for v in e.values]
    shares = sorted(e.shares, key=lambda s: -abs(s[1]))
    return join(
        heading("Explanation", said), side_by_side(looks, bar_table(e.top, "logit")),
        bar_table(shares[:8], "share of the margin"),
        collapsible("its stream at the end", table(slots, ("slot", "holds", "means"))),
        collapsible("its values", table(values, ("value", "is", "by the interpreter"), 20)),
    )  # fmt: skip


@render.register
def _training(t: Training) -> Markup:
    said = f"{t.status} after {t.steps:,} steps, seed {t.seed}: {format_percent_down(t.accuracy)} right"
    events = [(f"step {e.step:,}", e.kind) for e in t.events]
    at = [h["step"] for h in t.history]
    curves = {"loss": [h["loss"] for h in t.history], "right": [h["accuracy"] for h in t.history]}
    curves = {f"{k} {format_number(v[-1], 3)}": v for k, v in curves.items() if v}
    drawn = line_chart(curves, at, "learning") if at else Markup("")
    done = f"{t.seconds:.1f} s of training"
    return join(
        heading("Training", said),
        side_by_side(drawn, table([*events, ("took", done)], max_rows=10)),
    )


@render.register
def _comparison(c: Comparison) -> Markup:
    a, b = c.names
    q = c.quantiles(0), c.quantiles(1)
    rows = [
        ("parameters", *(k.total for k in c.counts)), ("not 0", *(k.nonzero for k in c.counts)),
        ("wrong", *(v.wrong for v in c.verdicts)), ("worst margin", *(x[0.0] for x in q)),
        ("median margin", *(x[0.5] for x in q)),
    ]  # fmt: skip
    alike = heatmap(c.attention.overlap, c.attention.heads[0], c.attention.heads[1],
                 "attention in common", False) if c.attention else Markup("")  # fmt: skip
    wrong = [(e["input"], e["a"], e["b"], e["expected"]) for e in c.examples]
    differ = table(wrong, ("input", a, b, "right"), 5)
    said = f"{a} and {b} on {c.task}: outputs differ on {c.differ:,} of {c.verdicts[0].checked:,}"
    return join(heading("Comparison", said), side_by_side(table(rows, ("", a, b)), alike, differ))


@render.register
def _compiled(c: Compiled) -> Markup:
    m, found = c.model, c.certificate
    text = to_markup(c.program.source or m.provenance.get("compiled", {}).get("source", ""), 1500)
    source = Markup(f'<pre style="margin:4px 0">{text}</pre>')
    facts = [("proved in", found.dtype), ("for texts of up to", f"{c.program.length} tokens"),
             ("cases", found.cases), ("the right token leads by", found.margin),
             ("tightest at", found.tightest), ("model", m.config)]  # fmt: skip
    room = bar_table(sorted(found.slack.items(), key=lambda s: s[1])[:8], "room left", 1.0)
    size = sum(int(np.prod(w.shape)) for w in m.weights.values())
    return join(heading("Compiled", f"{c.program.name}: {size:,} parameters", GOOD_STYLE),
                side_by_side(source, room), table(facts))  # fmt: skip


@render.register
def _patch(p: Patch) -> Markup:
    share = format_percent_down(p.recovered)
    rows = [("patched run", share_bar(p.recovered), share)]
    return join(heading("Patch", f"brings back {share} of the answer"), table(rows))


@render.register
def _patch_grid(g: PatchGrid) -> Markup:
    said = f"{g.what}: share of the answer that a patch there brings back"
    return join(heading("PatchGrid", said), heatmap(g.values, g.rows, g.columns))


@render.register
def _interchange(i: Interchange) -> Markup:
    names = [*dict.fromkeys(k for m in i.moved for k in m.shares), "other"]
    shares = [[{**m.shares, "other": m.other}.get(n, 0.0) for n in names] for m in i.moved]
    told = [
        (
            f"y{m.token + 1}",
            f"{m.cases:,} cases",
            ", ".join(
                f"{n} {format_percent_down(s)}" for n, s in zip(names, row, strict=True) if s
            ),
        )
        for m, row in zip(i.moved, shares, strict=True)
    ]
    what = f"{i.what}{f' ({i.name})' if i.name else ''}: what it carries, by answer token"
    drawn = heatmap(shares, [f"y{m.token + 1}" for m in i.moved], names, "", False)
    return join(heading("Interchange", what), side_by_side(drawn, table(told)))


@render.register
def _steps(s: HeadSteps) -> Markup:
    words = s.tokens
    said = f"{components.head_name(s.layer, s.head)} on {' '.join(words)}"
    maps = [heatmap(s.pattern, words, words, "attention", False)]
    maps += [heatmap(x, words, [str(i) for i in range(x.shape[1])], n, True)
             for n, x in (("queries", s.q), ("keys", s.k), ("values", s.v))]  # fmt: skip
    return join(heading("Steps", said), side_by_side(*maps))


@render.register
def _embeddings(e: Embeddings) -> Markup:
    alike = heatmap(e.cosine, e.names, e.names, "cosine", True, cell=12)
    return join(heading("Embeddings", f"{e.kind}: {e}"), alike)


@render.register
def _logit_lens(lens: LogitLens) -> Markup:
    said = [[lens.vocabulary[t] for t in part[0]] for part in lens.top_tokens]
    rows = [(part, *row[-20:]) for part, row in zip(lens.parts, said, strict=True)]
    titles = ("stopped after", *lens.str_tokens[0][-20:])
    return join(heading("LogitLens", "what would come next at each token"), table(rows, titles))


@render.register
def _alignment(a: Alignment) -> Markup:
    L, H, _ = a.entropy.shape
    heads = [components.head_name(i, h) for i, h in np.ndindex(L, H)]
    shares = np.stack([a.mean_share(role).ravel() for role in a.roles], axis=1)  # heads roles
    said = f"share of attention on what {a.task} needs, {a.rows:,} inputs"
    return join(heading("Alignment", said), heatmap(shares, heads, a.roles, "", False))


@render.register
def _inspection(i: Inspection) -> Markup:
    s = i.subject
    said = f"{len(i.results)} views of {s.model.name}, {len(s.rows):,} inputs"
    gists = [block.split("\n") for block in re.split(r"\n(?! )", str(i)) if "\n " in block]
    folded = [
        collapsible(n, *(join(to_markup(g), "<br>") for g in gist[:MAX_TABLE_ROWS]))
        for n, *gist in gists
    ]
    left = table([(n, why) for n, why in i.skipped.items()], ("left out", ""))
    return join(
        heading("Inspection", said), *folded, collapsible(f"{len(i.skipped)} left out", left)
    )


@render.register
def _task(t: Task) -> Markup:
    said = f"{t.ref or type(t).__name__}: {format_count(t.inputs)} inputs"
    rows = t.sample_or_all(5)
    tokens, answer = t.batch(rows[t.defined(rows)])
    examples = []
    for row, mask in zip(tokens.tolist(), answer, strict=True):
        at = np.nonzero(mask)[0]
        read, told = row[: at[0]], row[at[0] : at[-1] + 1]
        examples.append(tuple(" ".join(t.vocabulary[k] for k in part) for part in (read, told)))
    facts = table([("tokens", str(t.vocabulary))])
    return join(heading("Task", said), facts, table(examples, ("reads", "is to write"), 5))
