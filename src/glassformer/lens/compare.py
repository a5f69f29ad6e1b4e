"""Compare two models of one task, usually a trained model and a hand-made model.

Both models are verified on the same rows: the whole domain up to about a million rows, otherwise a
sample. Attention, logits, token swaps and interchange use a smaller sample. The fields of the
result:

- differ: number of rows with different decoded answers.
- margins: quantiles of each model's row margins (the smallest over the row's answer tokens), and
  the rank correlation of both models' margins by answer token. Logits have no common scale, so
  only ranks compare.
- runner_up: share of answer tokens with the same second choice in both, among the tokens that
  can be right there. logits: mean correlation of the logits of those tokens, if there are three.
- overlap: Σ min(p, q) of two heads' attention, averaged over answer rows: 1 for equal patterns.
- swapped: predictions after one token of the input is swapped (interventions/perturb.py).
- interchange: information carried by each head (interventions/patch.py).
- similarity: debiased linear CKA of the activations that predict answer tokens (cka.py).
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
from ..utils.errors import GlassformerError, ascii_name, value_error
from ..utils.limits import check_int_range
from ..utils.numfmt import format_percent, stable_argmax
from ..utils.progress import ProgressCallback
from ..utils.results import Displayable, to_jsonable
from ..verification.evaluation import (
    MAX_EXHAUSTIVE_ROWS,
    greedy_outputs,
    margins_by_answer_token,
)
from ..verification.verifier import Verdict, check_domain_size, verify
from .attention import ROLE_SUM_LABELS, Alignment, alignment, attention_patterns
from .cka import Similarity, similarity
from .interventions.ablate import with_fast_backend
from .interventions.patch import Interchange, interchange_each
from .interventions.perturb import PerturbationComparison, PredictionAgreement, perturb

T = TypeVar("T")
QUANTILES = (0.0, 0.01, 0.25, 0.5, 0.75, 1.0)
DETAIL_SAMPLE_ROWS = 500  # rows for attention, logits and similarity
MAX_INTERCHANGE_HEADS = 16  # maximum number of heads per model; each needs one run
DECODED_ROWS = 4_096  # rows per decoding batch


@dataclass(frozen=True)
class AttentionComparison(Displayable):
    """Attention of two models on the same inputs: overlap of heads, and patterns of one input."""

    heads: tuple[list[str], list[str]]
    overlap: Array  # [heads of a, heads of b]
    str_tokens: list[str]  # tokens of one input
    patterns: tuple[Any, Any]  # attention on that input, [L,H,T,S] each
    alignment: tuple[Alignment | None, Alignment | None]

    def best_matches(self) -> list[tuple[str, str, float]]:
        """For each head of a, return the head of b with the largest overlap, and the overlap."""
        pairs = zip(self.heads[0], stable_argmax(self.overlap), self.overlap.max(1), strict=True)
        return [(name, self.heads[1][j], float(share)) for name, j, share in pairs]

    def aligned_shares(self, side: int) -> dict[str, float]:
        """Return the share of attention on the token's operands for each head of one model."""
        if (alignment := self.alignment[side]) is None:
            return {}
        shares = alignment.mean_share("aligned").ravel().tolist()
        return dict(zip(self.heads[side], shares, strict=True))

    def to_json(self) -> dict[str, Any]:
        best = [{"head": x, "like": y, "overlap": share} for x, y, share in self.best_matches()]
        aligned = [self.aligned_shares(0), self.aligned_shares(1)]
        overlap = self.overlap.tolist()
        return {"heads": self.heads, "overlap": overlap, "best": best, "aligned": aligned}


@dataclass(frozen=True)
class Comparison(Displayable):
    """The differences between two models; the module docstring explains the fields."""

    task: str
    names: tuple[str, str]
    verdicts: tuple[Verdict, Verdict]
    counts: tuple[ParameterCount, ParameterCount]
    differ: int
    examples: list[dict[str, str]]  # rows that differ: input, expected, a, b
    margins: tuple[Any, Any]  # margin of each checked row, [N]
    same_hard: list[float]  # rank correlation of margins by answer token; NaN for equal margins
    runner_up: float
    logits: float
    attention: AttentionComparison | None
    swapped: PerturbationComparison | None
    interchange: tuple[list[Interchange], list[Interchange]]
    similarity: Similarity | None
    left_out: list[str]  # sections that do not apply, and the reason

    def quantiles(self, side: int) -> dict[float, float]:
        margins = self.margins[check_int_range("quantiles — side", side, 0, 1)]
        return {q: float(np.quantile(margins, q)) for q in QUANTILES}

    def summary(self) -> list[tuple[Any, ...]]:
        """Return rows of a table: a name, and the numbers of both models."""
        quantiles = self.quantiles(0), self.quantiles(1)
        return [
            ("parameters", *(c.total for c in self.counts)),
            ("nonzero", *(c.nonzero for c in self.counts)),
            ("wrong", *(v.wrong for v in self.verdicts)),
            ("worst margin", *(q[0.0] for q in quantiles)),
            ("median margin", *(q[0.5] for q in quantiles)),
        ]

    def to_json(self) -> dict[str, Any]:
        own = {k: value for k, value in vars(self).items() if k not in ("counts", "margins")}
        margins = [{f"{q:g}": x for q, x in self.quantiles(side).items()} for side in (0, 1)]
        return dict(to_jsonable({**own, "parameters": self.counts, "margins": margins}))

    def __str__(self) -> str:
        a, b = self.names
        how = "every row" if self.verdicts[0].exhaustive else "a sample"
        lines = [f"{a} and {b} on {self.task}, {how} of {self.verdicts[0].checked:,} rows", ""]
        lines += _format_table([("", a, b), *self.summary()])
        lines += ["", f"Outputs differ on {self.differ:,} rows."]
        for e in self.examples[:5]:
            lines.append(f"  {e['input']} {a}: {e['a']}, {b}: {e['b']}, right: {e['expected']}")
        hard = ", ".join(map(_format_correlation, self.same_hard))
        lines += [
            f"Rank correlation of margins by answer token: {hard}.",
            f"Same second choice for {_format_share(self.runner_up)} of answer tokens; "
            f"correlation of logits {_format_correlation(self.logits)}.",
        ]
        if self.attention:
            lines += ["", "Attention of the rows that predict answer tokens"]
            for side, name in enumerate(self.names):
                for head, s in self.attention.aligned_shares(side).items():
                    share = f"{format_percent(s)} on {ROLE_SUM_LABELS['aligned']}"
                    lines.append(f"  {name}, {head}: {share}")
            for x, y, s in self.attention.best_matches():
                lines.append(f"  {x} of {a} is closest to {y} of {b}: overlap {format_percent(s)}")
        if self.similarity:
            lines += ["", "Activations that predict answer tokens: linear CKA (debiased)"]
            own = self.similarity.matching_names
            for x, y, s in self.similarity.best:
                match = f"{_format_correlation(own[x])} with the same of {b}; " if x in own else ""
                lines.append(f"  {x} of {a}: {match}closest {y}, {s:.2f}")
        if self.swapped:
            lines += self._swap_lines("question", self.swapped.question)
            lines += self._swap_lines("written answer", self.swapped.written)
        for name, tests in zip(self.names, self.interchange, strict=True):
            lines += ["", f"Interchange: information carried by the heads of {name}"] * bool(tests)
            lines += ["  " + line for test in tests for line in str(test).split("\n")]
        return "\n".join([*lines, *(f"Not compared: {reason}" for reason in self.left_out)])

    def _swap_lines(self, place: str, agreement: PredictionAgreement | None) -> list[str]:
        if agreement is None:
            return []
        agree = f"both predict the same token {agreement.agree:.1%} of the time"
        lines = ["", f"With one token of the {place} swapped, {agree}"]
        shares = zip(self.names, agreement.unmoved, agreement.predicted, strict=True)
        for name, unmoved, predicted in shares:
            other = f"the other model predicts {_format_share(predicted)} of the changed ones"
            lines.append(f"  {name}: {1 - unmoved:.1%} of its predictions change; {other}")
        return lines


def compare(
    a: Model, b: Model, task: Task, rows: Rows | None = None, *, names: Sequence[str] = (),
    seed: int = 0, progress: ProgressCallback | None = None,
) -> Comparison:  # fmt: skip
    """Compare two models of one task. `gf.compare` documents the arguments.

    Rows default to the whole domain up to about a million rows, otherwise to a sample.

    Raises:
        GlassformerError: A model's vocabulary differs from the task's, or there are no rows.
    """
    if names and len(names) != 2:
        raise value_error("names:", "two, one for each model", names)
    model_names = _model_names(a, b, names)
    for model, name in zip((a, b), model_names, strict=True):
        if model.vocabulary != task.vocabulary:
            raise value_error(f"{name}:", f"{task.vocabulary} of {task.ref}", model.vocabulary)
    check_domain_size(task)
    exhaustive, rng = rows is None and task.size <= MAX_EXHAUSTIVE_ROWS, np.random.default_rng(seed)
    if exhaustive:
        rows = task.rows(0, task.size)
    elif rows is None:
        rows = np.concatenate([task.edges(), task.sample(task.default_sample_size, rng)])
    looked_at = len(rows)
    rows = rows[task.defined(rows)]
    if not len(rows):
        raise GlassformerError(f"{task.ref}: expected at least one row to compare on, got none")
    fast = (with_fast_backend(m, task, rows) for m in (a, b))
    margins = [margins_by_answer_token(m, task, rows, progress=progress) for m in fast]  # N n
    row_margins = [np.where(np.isnan(g), -np.inf, g).min(1) for g in margins]
    how = {"exhaustive": exhaustive, "looked_at": looked_at, "seed": None if exhaustive else seed}
    verdicts = [_verdict(m, task, rows, x, how) for m, x in zip((a, b), row_margins, strict=True)]
    differing = _differing_rows(a, b, task, rows, row_margins)
    sample = rows
    if len(rows) > DETAIL_SAMPLE_ROWS:
        sample = np.random.default_rng(seed).choice(rows, DETAIL_SAMPLE_ROWS, replace=False)
    tokens, answer = task.batch(sample)
    pairs: dict[int, Any] = {}  # shared by both models: drawing pairs takes most of the time
    left_out: list[str] = []

    def try_section(name: str, section: Callable[[], T]) -> T | None:
        try:
            return section()
        except GlassformerError as e:
            left_out.append(f"{name}: {e}")
            return None

    attention = try_section("attention", lambda: _compare_attention(a, b, task, sample))
    swapped = try_section("swapped tokens", lambda: perturb(a, b, task, seed=seed))
    carried = try_section("interchange", lambda: (
        _interchange_heads(a, task, seed, pairs), _interchange_heads(b, task, seed, pairs),
    ))  # fmt: skip
    cka = try_section("similarity", lambda: similarity(a, b, tokens[:, :-1], answer[:, 1:]))
    causal = a.config.mask == b.config.mask == "causal"
    runner_up, logits = _logit_agreement(a, b, tokens, answer) if causal else (np.nan, np.nan)
    return Comparison(
        task=task.ref, names=model_names, verdicts=(verdicts[0], verdicts[1]),
        counts=(count(a), count(b)), differ=len(differing),
        examples=_examples(a, b, task, rows[differing[:10]]),
        margins=(row_margins[0], row_margins[1]),
        same_hard=_margin_rank_correlations(*margins), runner_up=runner_up, logits=logits,
        attention=attention, swapped=swapped, interchange=carried or ([], []), similarity=cka,
        left_out=left_out,
    )  # fmt: skip


def _model_names(a: Model, b: Model, names: Sequence[str]) -> tuple[str, str]:
    provenance = (a.provenance, b.provenance)
    one, two = names or (ascii_name(m.get("ref") or m.get("maker", "")) for m in provenance)
    one, two = ("trained" if name == "trainer" else name for name in (one, two))
    if not (one and two) or one == two:
        return f"{one or 'model'} (A)", f"{two or 'model'} (B)"
    return one, two


# ── answers and margins ────────────────────────────────────────────────────────────────────────
def _verdict(
    model: Model, task: Task, rows: Rows, row_margins: Any, how: dict[str, Any]
) -> Verdict:
    wrong = rows[~(row_margins > 0)]
    counterexamples = verify(model, task, rows=wrong[:10]).counterexamples if len(wrong) else []
    return Verdict(
        model=digest(model), task=task.ref, dtype=model.dtype, domain=task.size, checked=len(rows),
        wrong=len(wrong), worst_margin=float(row_margins.min()), counterexamples=counterexamples,
        **how,
    )  # fmt: skip


def _differing_rows(a: Model, b: Model, task: Task, rows: Rows, row_margins: list[Any]) -> Any:
    """Return the indices of rows with different decoded answers."""
    wrong = [~(x > 0) for x in row_margins]
    both = np.nonzero(wrong[0] & wrong[1])[0]  # only these rows need decoding
    differing = np.nonzero(wrong[0] ^ wrong[1])[0].tolist()
    for start in range(0, len(both), DECODED_ROWS):
        chunk = both[start : start + DECODED_ROWS]
        answers = [_decoded_answers(m, task, rows[chunk]) for m in (a, b)]
        differing += [i for i, x, y in zip(chunk.tolist(), *answers, strict=True) if x != y]
    return np.array(sorted(differing), dtype=np.int64)


def _decoded_answers(model: Model, task: Task, rows: Rows) -> list[str]:
    tokens, answer = task.batch(rows)
    outputs = zip(greedy_outputs(model, tokens, answer), answer, strict=True)
    return [task.answer(row[mask].tolist()) for row, mask in outputs]


def _examples(a: Model, b: Model, task: Task, rows: Rows) -> list[dict[str, str]]:
    if not len(rows):
        return []
    answers = [_decoded_answers(m, task, rows) for m in (a, b)]
    return [
        {"input": task.vocabulary.decode(t[: int(mask.argmax())]),
         "expected": task.answer(t[mask].tolist()), "a": x, "b": y}
        for t, mask, x, y in zip(*task.batch(rows), *answers, strict=True)
    ]  # fmt: skip


def _margin_rank_correlations(a: Any, b: Any) -> list[float]:
    """Return the rank correlation of two models' margins [N,n] for each answer token."""
    correlations = []
    for x, y in zip(a.T, b.T, strict=True):
        finite = np.isfinite(x) & np.isfinite(y)
        correlations.append(_correlation(_ranks(x[finite]), _ranks(y[finite])))
    return correlations


def _ranks(x: Array) -> Any:
    """Return the ranks of values. Ties, including ties up to rounding, get their mean rank."""
    scale = np.abs(x).max(initial=0.0) or 1.0
    _, inverse, n = np.unique(np.round(x / scale, 6), return_inverse=True, return_counts=True)
    return (np.cumsum(n) - (n - 1) / 2)[inverse]


def _correlation(x: Array, y: Any) -> float:
    if len(x) < 2 or x.std() == 0 or y.std() == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def _logit_agreement(a: Model, b: Model, tokens: Array, answer: Array) -> tuple[float, float]:
    """Return the share of equal second choices, and the mean correlation of the logits."""
    first = int(answer.any(0).argmax())
    both = [m.numpy()(tokens[:, :-1], last=tokens.shape[1] - first) for m in (a, b)]
    same, correlations = [], []
    for j in range(tokens.shape[1] - first):
        mask = answer[:, first + j]
        candidates = np.unique(tokens[mask, first + j])
        if len(candidates) < 3:
            continue
        x, y = (logits[mask, j][:, candidates].astype(float) for logits in both)
        same += (x.argsort(-1)[:, -2] == y.argsort(-1)[:, -2]).tolist()
        correlations += [_correlation(p, q) for p, q in zip(x, y, strict=True)]
    defined = [c for c in correlations if not np.isnan(c)]
    agreement, correlation = (float(np.mean(x)) if x else float("nan") for x in (same, defined))
    return agreement, correlation


# ── activations ────────────────────────────────────────────────────────────────────────────────
def _compare_attention(a: Model, b: Model, task: Task, rows: Rows) -> AttentionComparison:
    task.boundary()  # raises if answers start at different positions
    tokens, answer = task.batch(rows)
    both = [attention_patterns(m, tokens[:, :-1]) for m in (a, b)]  # L B H T S
    if not all(map(len, both)):
        raise GlassformerError("attention: expected models with layers, got one without")
    flat = [np.concatenate(p.swapaxes(1, 2))[..., answer[0, 1:], :] for p in both]  # LH B n S
    overlap = np.array([[np.minimum(p, q).sum(-1).mean() for q in flat[1]] for p in flat[0]])
    aligned = [alignment(m, task, rows) if task.roles() else None for m in (a, b)]
    return AttentionComparison(
        heads=(components.head_names(a), components.head_names(b)), overlap=overlap,
        str_tokens=[task.vocabulary[int(t)] for t in tokens[0, :-1]],
        patterns=(both[0][:, 0], both[1][:, 0]), alignment=(aligned[0], aligned[1]),
    )  # fmt: skip


def _interchange_heads(
    model: Model, task: Task, seed: int, pairs: dict[int, Any]
) -> list[Interchange]:
    names = components.head_names(model)
    if len(names) > MAX_INTERCHANGE_HEADS:
        limit = f"expected at most {MAX_INTERCHANGE_HEADS} heads, got {len(names)}"
        raise GlassformerError(f"{limit}. Call interchange() with one head at a time.")
    if model.config.n_heads > 1:
        names += [components.attention_name(i) for i in range(model.config.n_layers)]
    return interchange_each(model, task, names, seed=seed, pairs=pairs)


def _format_share(share: float) -> str:
    return "–" if np.isnan(share) else format_percent(share, 1)


def _format_correlation(x: float) -> str:
    return "–" if np.isnan(x) else f"{x:.2f}"


def _format_table(rows: list[tuple[Any, ...]]) -> list[str]:
    kinds = {int: "{:,}", float: "{:.4g}", str: "{}"}
    texts = [[kinds[type(x)].format(x) for x in row] for row in rows]
    first, *others = [max(map(len, column)) for column in zip(*texts, strict=True)]
    padded = [[x.rjust(w) for x, w in zip(cells, others, strict=True)] for _, *cells in texts]
    return ["  ".join([row[0].ljust(first), *x]) for row, x in zip(texts, padded, strict=True)]
