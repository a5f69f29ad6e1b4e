"""Two models of one task side by side: usually a trained one and a hand-made one.

    print(compare(trained, made, task))

Both are verified over the same rows, the whole domain if it has up to about a million. What is
looked at more closely (attention, logits, swapped tokens, interchange) is looked at on a sample.
What each figure means:

- differ: rows on which the two decode different answers.
- margins: quantiles of each model's row margins (the least over the row's answer tokens), and the
  rank correlation of the two models' margins by answer token: do both find the same inputs hard?
  Only ranks can be compared, since logits have no common scale.
- runner_up: the share of answer tokens for which both have the same second choice among the tokens
  that can be right there. logits: the mean correlation of their logits of those tokens, over the
  places where there are at least three.
- overlap: Σ min(p, q) of two heads' attention, a mean over answer rows: 1 the same, 0 no position
  in common. aligned: the share of attention on the positions that the token is made of (see
  lens/attention).
- swapped: what both say when one token of the text is another (see lens/perturb). `foretold` is the
  part of the one model's behaviour that the other's algorithm predicts where no training row shows
  it; `unmoved` is what "nothing changes" would have predicted.
- interchange: what each head carries (see lens/patch).
- similarity: linear CKA, debiased, of what flows where an answer token is due (see lens/cka).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..core import components
from ..core.backend import Array
from ..core.checkpoint import digest
from ..core.model import Model
from ..core.param_count import ParameterCount, count
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError, ascii_name
from ..utils.numfmt import format_percent, stable_argmax
from ..utils.progress import Progress, ProgressCallback
from ..utils.results import Displayable, to_jsonable
from ..verification.evaluation import MAX_EXHAUSTIVE_ROWS, chunk_size, greedy_outputs, token_margins
from ..verification.verifier import Verdict, check_domain_size, verify
from .attention import ROLE_SUM_LABELS, Alignment, alignment, attention_patterns
from .cka import Similarity, similarity
from .interventions.ablate import with_fast_backend
from .interventions.patch import Interchange, interchange_each
from .interventions.perturb import PerturbationComparison, PredictionAgreement, perturb

T = TypeVar("T")
QUANTILES = (0.0, 0.01, 0.25, 0.5, 0.75, 1.0)
DETAIL_SAMPLE_ROWS = 500  # rows of the sample
MAX_INTERCHANGE_HEADS = 16  # of each model, for what takes a run a head


@dataclass(frozen=True)
class AttentionComparison(Displayable):
    """Attention of both models on the same inputs."""

    heads: tuple[list[str], list[str]]
    overlap: Array  # [heads of a, heads of b]
    str_tokens: list[str]  # of one input …
    patterns: tuple[Any, Any]  # … and the attention on it, [L,H,T,S] each
    alignment: tuple[Alignment | None, Alignment | None]

    def best_matches(self) -> list[tuple[str, str, float]]:
        """For each head of a, the head of b that is most like it."""
        pairs = zip(self.heads[0], stable_argmax(self.overlap), self.overlap.max(1), strict=True)
        return [(name, self.heads[1][j], float(share)) for name, j, share in pairs]

    def aligned_shares(self, side: int) -> dict[str, float]:
        """Head -> share of its attention on what the token is made of."""
        if (found := self.alignment[side]) is None:
            return {}
        return dict(
            zip(self.heads[side], found.mean_share("aligned").ravel().tolist(), strict=True)
        )

    def to_json(self) -> dict[str, Any]:
        best = [{"head": x, "like": y, "overlap": share} for x, y, share in self.best_matches()]
        aligned = [self.aligned_shares(0), self.aligned_shares(1)]
        overlap = self.overlap.tolist()
        return {"heads": self.heads, "overlap": overlap, "best": best, "aligned": aligned}


@dataclass(frozen=True)
class Comparison(Displayable):
    """What two models have in common, and what not. The figures are explained at the top."""

    task: str
    names: tuple[str, str]
    verdicts: tuple[Verdict, Verdict]
    counts: tuple[ParameterCount, ParameterCount]
    differ: int
    examples: list[dict[str, str]]  # some rows on which they differ: input, expected, a, b
    margins: tuple[Any, Any]  # the least of each row that was checked, [N]
    # rank correlation of margins, by answer token; NaN where one has no spread
    same_hard: list[float]
    runner_up: float
    logits: float
    attention: AttentionComparison | None
    swapped: PerturbationComparison | None
    interchange: tuple[list[Interchange], list[Interchange]]
    similarity: Similarity | None
    left_out: list[str]  # what could not be compared, and why

    def quantiles(self, side: int) -> dict[float, float]:
        return {q: float(np.quantile(self.margins[side], q)) for q in QUANTILES}

    def to_json(self) -> dict[str, Any]:
        own = {k: value for k, value in vars(self).items() if k not in ("counts", "margins")}
        margins = [{f"{q:g}": x for q, x in self.quantiles(side).items()} for side in (0, 1)]
        return dict(to_jsonable({**own, "parameters": self.counts, "margins": margins}))

    def __str__(self) -> str:
        a, b = self.names
        how = "every row" if self.verdicts[0].exhaustive else "rows"
        lines = [f"{a} and {b} on {self.task}, {how} of {self.verdicts[0].checked:,}", ""]
        quantiles = self.quantiles(0), self.quantiles(1)
        lines += _format_table([
            ("", a, b),
            ("parameters", *(f"{c.total:,}" for c in self.counts)),
            ("not zero", *(f"{c.nonzero:,}" for c in self.counts)),
            ("wrong", *(f"{v.wrong:,}" for v in self.verdicts)),
            ("worst margin", *(f"{q[0.0]:.4g}" for q in quantiles)),
            ("median margin", *(f"{q[0.5]:.4g}" for q in quantiles)),
        ])  # fmt: skip
        lines += ["", f"Outputs differ on {self.differ:,} rows."]
        for e in self.examples[:5]:
            lines.append(f"  {e['input']} {a}: {e['a']}, {b}: {e['b']}, right: {e['expected']}")
        hard, second = (
            ", ".join(map(_format_correlation, self.same_hard)),
            _format_share(self.runner_up),
        )
        lines += [f"Rank correlation of margins by answer token: {hard}.",
                  f"The same second choice for {second} of answer tokens; "
                  f"correlation of logits {_format_correlation(self.logits)}."]  # fmt: skip
        if self.attention:
            lines += ["", "Attention of answer rows"]
            for side, name in enumerate(self.names):
                for head, s in self.attention.aligned_shares(side).items():
                    share = f"{format_percent(s)} on {ROLE_SUM_LABELS['aligned']}"
                    lines.append(f"  {name}, {head}: {share}")
            for x, y, s in self.attention.best_matches():
                lines.append(f"  {x} of {a} is most like {y} of {b}: {format_percent(s)} in common")
        if self.similarity:
            lines += ["", "What flows where an answer token is due: linear CKA (debiased)"]
            same = self.similarity.matching_names
            for x, y, s in self.similarity.best:
                here = f"{_format_correlation(same[x])} with that of {b}; " * (x in same)
                lines.append(f"  {x} of {a}: {here}most like {y}, {s:.2f}")
        if self.swapped:
            lines += self._swap_lines("question", self.swapped.question)
            lines += self._swap_lines("written answer", self.swapped.written)
        for name, tests in zip(self.names, self.interchange, strict=True):
            lines += ["", f"What the heads of {name} carry"] * bool(tests)
            lines += ["  " + line for test in tests for line in str(test).split("\n")]
        return "\n".join([*lines, *(f"Not compared: {why}" for why in self.left_out)])

    def _swap_lines(self, where: str, f: PredictionAgreement | None) -> list[str]:
        if f is None:
            return []
        same = f"both say the same {f.agree:.1%} of the time"
        lines = ["", f"With one token of the {where} swapped, {same}"]
        for name, kept, told in zip(self.names, f.unmoved, f.foretold, strict=True):
            other = f"the other says {_format_share(told)} of them"
            lines.append(f"  {name}: {1 - kept:.1%} of its tokens change; {other}")
        return lines


def compare(
    a: Model, b: Model, task: Task, rows: Rows | None = None, *, names: Sequence[str] = (),
    seed: int = 0, progress: ProgressCallback | None = None,
) -> Comparison:  # fmt: skip
    """Compare two models over rows [B,…]; by default the whole domain up to about a million
    rows, otherwise a sample.

    Args:
        a: One model.
        b: The other.
        task: The task to compare on; `resolve.common_task(a, b)` finds one.
        rows: Rows of the task to use.
        names: Names of the two models.
        seed: Seed of the sample.
        progress: Called as rows are run.
    """
    if names and len(names) != 2:
        raise GlassformerError(f"names — expected two, one for each model, got {len(names)}")
    called = _model_names(a, b, names)
    for model, name in zip((a, b), called, strict=True):
        if (own := model.vocabulary) != task.vocabulary:
            raise GlassformerError(f"{name} — has {own}; {task.ref} has {task.vocabulary}")
    check_domain_size(task)
    exhaustive, rng = rows is None and task.size <= MAX_EXHAUSTIVE_ROWS, np.random.default_rng(seed)
    if exhaustive:
        rows = task.rows(0, task.size)
    elif rows is None:
        rows = np.concatenate([task.edges(), task.sample(task.default_sample_size, rng)])
    looked_at = len(rows)
    rows = rows[task.defined(rows)]
    if not len(rows):
        raise GlassformerError(f"{task.ref} — expected at least one row to compare on, got none")
    found = _token_margins(a, b, task, rows, progress)  # [N,n] each
    least = [np.where(np.isnan(g), -np.inf, g).min(1) for g in found]
    how = {"exhaustive": exhaustive, "looked_at": looked_at, "seed": None if exhaustive else seed}
    verdicts = [_verdict(m, task, rows, x, how) for m, x in zip((a, b), least, strict=True)]
    apart = _differing_rows(a, b, task, rows, least)
    sample = rows
    if len(rows) > DETAIL_SAMPLE_ROWS:
        sample = np.random.default_rng(seed).choice(rows, DETAIL_SAMPLE_ROWS, replace=False)
    left_out: list[str] = []
    attention = _or_left_out(left_out, "attention", lambda: _compare_attention(a, b, task, sample))
    swapped = _or_left_out(left_out, "swapped tokens", lambda: perturb(a, b, task, seed=seed))
    pairs: dict[int, Any] = {}  # drawn once for both: of long numbers that takes most of the time
    carried = _or_left_out(
        left_out,
        "interchange",
        lambda: (
            _interchange_heads(a, task, seed, pairs),
            _interchange_heads(b, task, seed, pairs),
        ),
    )
    tokens, answer = task.batch(sample)
    alike = _or_left_out(
        left_out, "similarity", lambda: similarity(a, b, tokens[:, :-1], answer[:, 1:])
    )
    causal = a.config.mask == b.config.mask == "causal"
    runner_up, logits = _logit_agreement(a, b, task, sample) if causal else (np.nan, np.nan)
    return Comparison(
        task.ref,
        called,
        (verdicts[0], verdicts[1]),
        (count(a), count(b)),
        len(apart),
        _examples(a, b, task, rows[apart[:10]]),
        (least[0], least[1]),
        _margin_rank_correlations(*found),
        runner_up,
        logits,
        attention,
        swapped,
        carried or ([], []),
        alike,
        left_out,
    )


def _or_left_out(left_out: list[str], name: str, section: Callable[[], T]) -> T | None:
    """What there is to see; or None, and a line on why there is nothing."""
    try:
        return section()
    except GlassformerError as e:
        left_out.append(f"{name}: {e}")
        return None


def _model_names(a: Model, b: Model, names: Sequence[str]) -> tuple[str, str]:
    made = (a.provenance, b.provenance)
    one, two = names or (ascii_name(m.get("ref") or m.get("maker", "")) for m in made)
    one, two = ("trained" if name == "trainer" else name for name in (one, two))
    if not (one and two) or one == two:
        return f"{one or 'model'} (A)", f"{two or 'model'} (B)"
    return one, two


# ── what they say ──────────────────────────────────────────────────────────────────────────────
def _token_margins(
    a: Model, b: Model, task: Task, rows: Rows, progress: ProgressCallback | None
) -> list[Any]:
    """The margins of both models' answer tokens, [N,n] each, aligned at the end."""
    quick = [with_fast_backend(m, task, rows) for m in (a, b)]
    models = [(m, np.float32 if m.dtype == "float32" else float) for m in quick]
    step, found = min(chunk_size(m, task) for m in quick), list[Any]()
    for start in range(0, len(rows), step):
        tokens, answer = task.batch(rows[start : start + step])
        found.append([token_margins(m, tokens, answer).astype(kind) for m, kind in models])
        if progress:
            progress(Progress(min(start + step, len(rows)), len(rows)))
    width = max(g.shape[1] for pair in found for g in pair)

    def wide(g: Array) -> Array:
        return np.pad(g, ((0, 0), (width - g.shape[1], 0)), constant_values=np.inf)

    return [np.concatenate([wide(g) for g in side]) for side in zip(*found, strict=True)]


def _verdict(
    model: Model, task: Task, rows: Rows, row_margins: Any, how: dict[str, Any]
) -> Verdict:
    bad = rows[~(row_margins > 0)]
    shown = verify(model, task, rows=bad[:10]).counterexamples if len(bad) else []
    return Verdict(
        model=digest(model), task=task.ref, dtype=model.dtype, domain=task.size, checked=len(rows),
        wrong=len(bad), worst_margin=float(row_margins.min()), counterexamples=shown, **how,
    )  # fmt: skip


def _differing_rows(a: Model, b: Model, task: Task, rows: Rows, row_margins: list[Any]) -> Any:
    """Indices of rows on which the decoded answers differ. Where both are right they do not."""
    wrong = [~(x > 0) for x in row_margins]
    both = np.nonzero(wrong[0] & wrong[1])[0]
    apart = np.nonzero(wrong[0] ^ wrong[1])[0].tolist()
    for start in range(0, len(both), 4096):
        part = both[start : start + 4096]
        both_say = [_decoded_answers(m, task, rows[part]) for m in (a, b)]
        apart += [i for i, x, y in zip(part.tolist(), *both_say, strict=True) if x != y]
    return np.array(sorted(apart), dtype=np.int64)


def _decoded_answers(model: Model, task: Task, rows: Rows) -> list[str]:
    """What the model answers, as text."""
    tokens, answer = task.batch(rows)
    each = zip(greedy_outputs(model, tokens, answer), answer, strict=True)
    return [task.answer(row[asked].tolist()) for row, asked in each]


def _examples(a: Model, b: Model, task: Task, rows: Rows) -> list[dict[str, str]]:
    if not len(rows):
        return []
    each = zip(
        *task.batch(rows),
        _decoded_answers(a, task, rows),
        _decoded_answers(b, task, rows),
        strict=True,
    )
    return [
        {"input": task.vocabulary.decode(t[: int(asked.argmax())]),
         "expected": task.answer(t[asked].tolist()), "a": x, "b": y} for t, asked, x, y in each
    ]  # fmt: skip


def _margin_rank_correlations(a: Any, b: Any) -> list[float]:
    """Rank correlation of two models' margins [N,n], by answer token."""
    found = []
    for x, y in zip(a.T, b.T, strict=True):
        there = np.isfinite(x) & np.isfinite(y)
        found.append(_correlation(_ranks(x[there]), _ranks(y[there])))
    return found


def _ranks(x: Array) -> Any:
    """Ranks, the mean one for equals; what differs by rounding alone is equal."""
    scale = np.abs(x).max(initial=0.0) or 1.0
    _, inverse, n = np.unique(np.round(x / scale, 6), return_inverse=True, return_counts=True)
    return (np.cumsum(n) - (n - 1) / 2)[inverse]


def _correlation(x: Array, y: Any) -> float:
    if len(x) < 2 or x.std() == 0 or y.std() == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def _logit_agreement(a: Model, b: Model, task: Task, rows: Rows) -> tuple[float, float]:
    tokens, answer = task.batch(rows)
    first = int(answer.any(0).argmax())
    both = [m.numpy()(tokens[:, :-1], last=tokens.shape[1] - first) for m in (a, b)]
    same, correlations = [], []
    for j in range(tokens.shape[1] - first):
        asked = answer[:, first + j]
        can = np.unique(tokens[asked, first + j])
        if len(can) < 3:
            continue
        x, y = (logits[asked, j][:, can].astype(float) for logits in both)  # B, candidates
        same += (x.argsort(-1)[:, -2] == y.argsort(-1)[:, -2]).tolist()
        correlations += [_correlation(p, q) for p, q in zip(x, y, strict=True)]
    known = [c for c in correlations if not np.isnan(c)]
    means = [float(np.mean(x)) if x else float("nan") for x in (same, known)]
    return means[0], means[1]


# ── what goes on inside ────────────────────────────────────────────────────────────────────────
def _compare_attention(a: Model, b: Model, task: Task, rows: Rows) -> AttentionComparison:
    task.boundary()  # or positions cannot be compared
    tokens, answer = task.batch(rows)
    asks = answer[0, 1:]
    both = [attention_patterns(m, tokens[:, :-1]) for m in (a, b)]  # L B H T S
    if not all(map(len, both)):
        raise GlassformerError("a model without layers has no attention")
    flat = [np.concatenate(p.swapaxes(1, 2))[..., asks, :] for p in both]  # LH B n S
    overlap = np.array([[np.minimum(p, q).sum(-1).mean() for q in flat[1]] for p in flat[0]])
    aligned = [alignment(m, task, rows) if task.roles() else None for m in (a, b)]
    words = [task.vocabulary[int(t)] for t in tokens[0, :-1]]
    heads, shown = (
        (components.head_names(a), components.head_names(b)),
        (both[0][:, 0], both[1][:, 0]),
    )
    return AttentionComparison(heads, overlap, words, shown, (aligned[0], aligned[1]))


def _interchange_heads(
    model: Model, task: Task, seed: int, pairs: dict[int, Any]
) -> list[Interchange]:
    heads = components.head_names(model)
    if len(heads) > MAX_INTERCHANGE_HEADS:
        hint = "interchange() takes one at a time"
        raise GlassformerError(f"{len(heads)} heads, more than {MAX_INTERCHANGE_HEADS}; {hint}")
    whole = [
        components.attention_name(i)
        for i in range(model.config.n_layers)
        if model.config.n_heads > 1
    ]
    return interchange_each(model, task, heads + whole, seed=seed, pairs=pairs)


def _format_share(share: float) -> str:
    return "–" if np.isnan(share) else format_percent(share, 1)


def _format_correlation(x: float) -> str:
    return "–" if np.isnan(x) else f"{x:.2f}"


def _format_table(rows: list[tuple[str, ...]]) -> list[str]:
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([name.ljust(first), *(x.rjust(w) for x, w in zip(cells, others, strict=True))])
        for name, *cells in rows
    ]
