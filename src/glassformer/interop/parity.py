"""How near a library's logits come to ours: on which texts, and what rounding alone would do."""

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

MAX_EXAMPLE_ROWS = 1024  # of all examples
MAX_LOGITS = 2**24  # their logits, at most
SUMMATION_ORDERS = 3  # of the same sums, besides the one that a model has
TOLERANCE = 1e-4  # relative, of float32 logits


@dataclass(frozen=True)
class ParityBatch:
    """Texts to read, and the tokens that should come next where `asked`: nowhere without a task."""

    tokens: Any  # [B,T]
    targets: Any  # [B,T]
    answer_mask: Any  # bool [B,T]
    has_task: bool


def parity_batch(model: Model) -> ParityBatch:
    """A deterministic batch: rows of the model's task, edges first, or else random tokens."""
    c, rng = model.config, np.random.default_rng(0)
    task = matching_task(model)
    if task is not None:
        tokens, answer = task.batch(_sample_rows(task, 1, rng))
        most = int(np.clip(MAX_LOGITS // (tokens.shape[1] * c.d_vocab), 1, MAX_EXAMPLE_ROWS))
        rows = _sample_rows(task, most, rng)
        tokens, answer = task.batch(rows[task.defined(rows)])
        if len(tokens) and tokens.shape[1] - 1 <= c.n_ctx:
            return ParityBatch(tokens[:, :-1], tokens[:, 1:], answer[:, 1:], True)
    T = min(c.n_ctx, 64)
    tokens = rng.integers(
        0, c.d_vocab, (int(np.clip(MAX_LOGITS // (T * c.d_vocab), 1, MAX_EXAMPLE_ROWS)), T)
    )
    return ParityBatch(tokens, tokens, np.ones(tokens.shape, bool), False)


def _sample_rows(task: Task, n: int, rng: np.random.Generator) -> Any:
    """n rows: all if there are no more, else edges, evenly chosen, and as many at random."""
    if task.size <= n:
        return task.rows(0, task.size)
    edges = task.edges()
    edges = edges[np.unique(np.linspace(0, len(edges) - 1, min(len(edges), n // 2)).astype(int))]
    return np.concatenate([edges, task.sample(n - len(edges), rng)])


def matching_task(model: Model) -> Task | None:
    """The task that the model is for, if it names one that is here and speaks its tokens."""
    try:
        task: Task = embedded_task(model) or registry.build("task", model.task)
    except GlassformerError:
        return None
    return task if task.vocabulary == model.vocabulary else None


@dataclass(frozen=True)
class Agreement:
    """Our logits and theirs on one batch."""

    parity: float  # infinite if theirs are not finite where ours are
    parity_elsewhere: (
        float | None
    )  # the same where no token is asked for; None: there is no such place
    tokens: int
    differing_tokens: int
    lost_rows: list[int]  # rows that are right here and wrong there
    their_tokens: Any  # greedy tokens [B,T]

    def failure_reason(self, model: Model, batch: ParityBatch, tolerance: float) -> str:
        """In words: what is wrong, with an example; "" if nothing is."""
        if not self.lost_rows:
            if self.parity <= tolerance:
                return ""
            which = "all right answers are" if self.differing_tokens else "every greedy token is"
            off = f"logits differ by {self.parity:.1e} (relative), and {tolerance:g} is allowed"
            return f"{off}, though {which} the same; --tolerance allows more (tolerance=…)"
        i = self.lost_rows[0]
        asked, say = batch.answer_mask[i], model.vocabulary.decode
        read = say(batch.tokens[i, : int(asked.argmax()) + 1])
        got, wanted = say(self.their_tokens[i][asked]), say(batch.targets[i][asked])
        wrong = f"{len(self.lost_rows):,} of {len(batch.tokens):,} test inputs come out wrong"
        return f"{wrong}, such as {read!r}: {got!r} instead of {wanted!r}"


def compare_logits(batch: ParityBatch, ours: Any, theirs: Any) -> Agreement:
    """ours, theirs [B,T,V], compared where a token is asked for.

    Elsewhere a program may be undecided, and then rounding decides: two keys of equal scores, say.
    """
    size = logit_scale(ours)

    def off(where: Any) -> float:
        finite = np.isfinite(ours) & where[..., None]
        if not np.isfinite(theirs[finite]).all():
            return float("inf")
        return float(np.abs(ours - theirs, where=finite, out=np.zeros(ours.shape)).max()) / size

    a, b = ours.argmax(-1), theirs.argmax(-1)  # B T
    differs = (a != b) & batch.answer_mask
    right = ((a == batch.targets) | ~batch.answer_mask).all(1) & batch.has_task
    lost = [int(i) for i in np.nonzero(right & differs.any(1))[0]]
    parity, elsewhere = (
        off(batch.answer_mask),
        None if batch.answer_mask.all() else off(~batch.answer_mask),
    )
    return Agreement(parity, elsewhere, int(batch.answer_mask.sum()), int(differs.sum()), lost, b)


def logit_scale(x: Any) -> float:
    """What differences are relative to: the largest finite number, or 1."""
    return max(1.0, float(np.abs(x[np.isfinite(x)]).max(initial=0.0)))


def differing_activations(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], tolerance: float
) -> dict[str, float]:
    """Name -> relative difference of activations that differ by more, in the order they come in."""
    far = {}
    for name, a in theirs.items():
        a, b = np.broadcast_arrays(ours[name], a)
        finite = np.isfinite(a)
        gap = float(np.abs(a[finite] - b[finite]).max(initial=0.0)) / logit_scale(a)
        if not gap <= tolerance:
            far[name] = gap
    return far


# ── what rounding does ─────────────────────────────────────────────────────────────────────────
def float32_problem(
    model: Model, tolerance: float = TOLERANCE, agreements: Sequence[Agreement] = ()
) -> str:
    """Why float32 cannot carry the model's constants, found by trying; "" if it can."""
    model = model.numpy()
    for name, w in model.weights.items():
        with np.errstate(over="ignore"):
            if not np.isfinite(w.astype("float32")).all():
                largest = float(w.flat[np.abs(w).argmax()])
                return f"{name} has {largest:g}, and float32 ends at 3.4e38"
    agreements = agreements or reordered_agreements(model, "float32")
    worst = max(agreements, key=lambda found: (len(found.lost_rows), found.parity))
    # What is in float32 already loses nothing more; its answers count alone.
    return worst.failure_reason(
        model, parity_batch(model), tolerance if model.dtype == "float64" else np.inf
    )


def to_float32_if_safe(
    model: Model, tolerance: float = TOLERANCE, agreements: Sequence[Agreement] = ()
) -> tuple[Model, str]:
    """The model in float32, if that carries it; else in float64, and why."""
    why = float32_problem(model, tolerance, agreements)
    return model.astype("float64" if why else "float32"), why


def reordered_agreements(model: Model, dtype: str) -> list[Agreement]:
    """What becomes of the test batch in a float type.

    Libraries add up in other orders than we do, and a program may be right in one by luck. So
    several orders of its sums are tried, which would change nothing if numbers were exact; and
    PyTorch's kernels, if it is here.
    """
    batch, rng = parity_batch(model), np.random.default_rng(0)
    ours = model.logits(batch.tokens)
    tried = [
        m.astype(dtype)
        for m in (model, *(reorder_sums(model, rng) for _ in range(SUMMATION_ORDERS)))
    ]
    if importlib.util.find_spec("torch"):
        tried.append(model.torch(dtype))
    return [compare_logits(batch, ours, m.logits(batch.tokens)) for m in tried]
