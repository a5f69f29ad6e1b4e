"""Compare a library's logits with the model's logits, relative to the effect of rounding."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import registry
from ..compiler.task import embedded_task
from ..core.model import Model
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..verification.robust_eval import reorder_sums

MAX_EXAMPLE_ROWS = 1024
MAX_LOGITS = 2**24
SUMMATION_ORDERS = 3  # number of reordered models, besides the model itself
TOLERANCE = 1e-4  # relative tolerance of float32 logits


@dataclass(frozen=True)
class ParityBatch:
    """Input tokens, and the right next tokens at answer positions."""

    tokens: Any  # [B,T]
    targets: Any  # [B,T] right next tokens
    answer_mask: Any  # bool [B,T]
    has_task: bool


def parity_batch(model: Model) -> ParityBatch:
    """Return a deterministic batch of task rows, edge cases first, or of random tokens."""
    c, rng = model.config, np.random.default_rng(0)
    task = matching_task(model)
    if task is not None:
        tokens, answer = task.batch(_sample_rows(task, 1, rng))
        max_rows = int(np.clip(MAX_LOGITS // (tokens.shape[1] * c.d_vocab), 1, MAX_EXAMPLE_ROWS))
        rows = _sample_rows(task, max_rows, rng)
        tokens, answer = task.batch(rows[task.defined(rows)])
        if len(tokens) and tokens.shape[1] - 1 <= c.n_ctx:
            return ParityBatch(tokens[:, :-1], tokens[:, 1:], answer[:, 1:], True)
    T = min(c.n_ctx, 64)
    n_rows = int(np.clip(MAX_LOGITS // (T * c.d_vocab), 1, MAX_EXAMPLE_ROWS))
    tokens = rng.integers(0, c.d_vocab, (n_rows, T))
    return ParityBatch(tokens, tokens, np.ones(tokens.shape, bool), False)


def _sample_rows(task: Task, n: int, rng: np.random.Generator) -> Any:
    """Return all rows of a small domain, or n edge cases, evenly spaced and random rows."""
    if task.size <= n:
        return task.rows(0, task.size)
    edges = task.edges()
    edges = edges[np.unique(np.linspace(0, len(edges) - 1, min(len(edges), n // 2)).astype(int))]
    return np.concatenate([edges, task.sample(n - len(edges), rng)])


def matching_task(model: Model) -> Task | None:
    """Return the model's task, or None if it is unknown or its vocabulary differs."""
    try:
        task: Task = embedded_task(model) or registry.build("task", model.task)
    except GlassformerError:
        return None
    return task if task.vocabulary == model.vocabulary else None


@dataclass(frozen=True)
class Agreement:
    """Result of the comparison of two models' logits on one batch."""

    parity: float  # infinite if only the library's logits are not finite
    parity_elsewhere: float | None  # parity at other positions; None if there are none
    tokens: int
    differing_tokens: int
    lost_rows: list[int]  # rows that the model gets right and the library gets wrong
    their_tokens: Any  # [B,T] the library's greedy tokens

    def failure_reason(self, model: Model, batch: ParityBatch, tolerance: float) -> str:
        """Describe a disagreement with an example, or return "" if it is within the tolerance."""
        if not self.lost_rows:
            if self.parity <= tolerance:
                return ""
            off = f"logits differ by {self.parity:.1e} (relative), more than {tolerance:g}"
            return f"{off}, with equal answers; increase the tolerance (--tolerance, tolerance=)"
        i = self.lost_rows[0]
        mask, decode = batch.answer_mask[i], model.vocabulary.decode
        read = decode(batch.tokens[i, : int(mask.argmax()) + 1])
        got, right = decode(self.their_tokens[i][mask]), decode(batch.targets[i][mask])
        wrong = f"{len(self.lost_rows):,} of {len(batch.tokens):,} test inputs are wrong"
        return f"{wrong}: {read!r} gives {got!r} instead of {right!r}"


def compare_logits(batch: ParityBatch, ours: Any, theirs: Any) -> Agreement:
    """Compare the logits [B,T,V] of two models at answer positions.

    Other positions are reported separately, because a program may have ties there (such as two keys
    with equal scores) that rounding breaks.
    """
    answer, scale = batch.answer_mask, logit_scale(ours)

    def parity(mask: Any) -> float:
        finite = np.isfinite(ours) & mask[..., None]
        if not np.isfinite(theirs[finite]).all():
            return float("inf")
        return float(np.abs(ours - theirs, where=finite, out=np.zeros(ours.shape)).max()) / scale

    a, b = ours.argmax(-1), theirs.argmax(-1)  # B T
    differs = (a != b) & answer
    right = ((a == batch.targets) | ~answer).all(1) & batch.has_task
    lost_rows = np.flatnonzero(right & differs.any(1)).tolist()
    elsewhere = None if answer.all() else parity(~answer)
    return Agreement(parity(answer), elsewhere, int(answer.sum()), int(differs.sum()), lost_rows, b)


def logit_scale(x: Any) -> float:
    """Return the scale of relative differences: the largest finite |x|, and at least 1."""
    return max(1.0, float(np.abs(x[np.isfinite(x)]).max(initial=0.0)))


def differing_activations(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], tolerance: float
) -> dict[str, float]:
    """Return {name: relative difference} for activations that differ by more than `tolerance`."""
    differences = {}
    for name, a in theirs.items():
        a, b = np.broadcast_arrays(ours[name], a)
        finite = np.isfinite(a)
        gap = float(np.abs(a[finite] - b[finite]).max(initial=0.0)) / logit_scale(a)
        if not gap <= tolerance:
            differences[name] = gap
    return differences


# ── rounding ───────────────────────────────────────────────────────────────────────────────────
def float32_problem(
    model: Model, tolerance: float = TOLERANCE, agreements: Sequence[Agreement] = ()
) -> str:
    """Describe how float32 weights change the model's answers or logits, or return ""."""
    model = model.numpy()
    for name, w in model.weights.items():
        with np.errstate(over="ignore"):
            if not np.isfinite(w.astype("float32")).all():
                largest = float(w.flat[np.abs(w).argmax()])
                return f"{name} has {largest:g}, more than the maximum of float32, 3.4e38"
    agreements = agreements or reordered_agreements(model, "float32")
    worst = max(agreements, key=lambda a: (len(a.lost_rows), a.parity))
    # A float32 model loses no further precision, so only its answers are checked.
    tolerance = tolerance if model.dtype == "float64" else np.inf
    return worst.failure_reason(model, parity_batch(model), tolerance)


def to_float32_if_safe(
    model: Model, tolerance: float = TOLERANCE, agreements: Sequence[Agreement] = ()
) -> tuple[Model, str]:
    """Return the model in float32 if that is precise enough, else in float64 with the reason."""
    reason = float32_problem(model, tolerance, agreements)
    return model.astype("float64" if reason else "float32"), reason


def reordered_agreements(model: Model, dtype: str) -> list[Agreement]:
    """Compare the model with copies in `dtype` that sum in different orders.

    Libraries use different orders of summation, and a program may be right in one order by chance.
    If PyTorch is installed, its kernels are included.
    """
    batch, rng = parity_batch(model), np.random.default_rng(0)
    ours = model.logits(batch.tokens)
    reordered = [reorder_sums(model, rng) for _ in range(SUMMATION_ORDERS)]
    models = [m.astype(dtype) for m in (model, *reordered)]
    if importlib.util.find_spec("torch"):
        models.append(model.torch(dtype))
    return [compare_logits(batch, ours, m.logits(batch.tokens)) for m in models]
