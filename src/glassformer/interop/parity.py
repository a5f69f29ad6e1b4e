"""How near a library's logits come to ours: on which texts, and what rounding alone would do."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import registry
from ..compiler.task import carried
from ..core.model import Model
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..verification.robust_eval import reordered

ROWS = 1024  # of all examples
NUMBERS = 2**24  # their logits, at most
ORDERS = 3  # of the same sums, besides the one that a model has
TOLERANCE = 1e-4  # relative, of float32 logits


@dataclass(frozen=True)
class Examples:
    """Texts to read, and the tokens that should come next where `asked`: nowhere without a task."""

    tokens: Any  # [B,T]
    wanted: Any  # [B,T]
    asked: Any  # bool [B,T]
    known: bool


def examples(model: Model) -> Examples:
    """A deterministic batch: rows of the model's task, edges first, or else random tokens."""
    c, rng = model.config, np.random.default_rng(0)
    task = task_of(model)
    if task is not None:
        tokens, answer = task.batch(_rows(task, 1, rng))
        most = int(np.clip(NUMBERS // (tokens.shape[1] * c.d_vocab), 1, ROWS))
        rows = _rows(task, most, rng)
        tokens, answer = task.batch(rows[task.defined(rows)])
        if len(tokens) and tokens.shape[1] - 1 <= c.n_ctx:
            return Examples(tokens[:, :-1], tokens[:, 1:], answer[:, 1:], True)
    T = min(c.n_ctx, 64)
    tokens = rng.integers(0, c.d_vocab, (int(np.clip(NUMBERS // (T * c.d_vocab), 1, ROWS)), T))
    return Examples(tokens, tokens, np.ones(tokens.shape, bool), False)


def _rows(task: Task, n: int, rng: np.random.Generator) -> Any:
    """n rows: all if there are no more, else edges, evenly chosen, and as many at random."""
    if task.size <= n:
        return task.rows(0, task.size)
    edges = task.edges()
    edges = edges[np.unique(np.linspace(0, len(edges) - 1, min(len(edges), n // 2)).astype(int))]
    return np.concatenate([edges, task.sample(n - len(edges), rng)])


def task_of(model: Model) -> Task | None:
    """The task that the model is for, if it names one that is here and speaks its tokens."""
    try:
        task: Task = carried(model) or registry.build("task", model.task)
    except GlassformerError:
        return None
    return task if task.vocabulary == model.vocabulary else None


@dataclass(frozen=True)
class Agreement:
    """Our logits and theirs on one batch."""

    parity: float  # infinite if theirs are not finite where ours are
    elsewhere: float | None  # the same where no token is asked for; None: there is no such place
    tokens: int
    differ: int
    lost: list[int]  # rows that are right here and wrong there
    theirs: Any  # greedy tokens [B,T]

    def why(self, model: Model, batch: Examples, tolerance: float) -> str:
        """In words: what is wrong, with an example; "" if nothing is."""
        if not self.lost:
            if self.parity <= tolerance:
                return ""
            which = "all right answers are" if self.differ else "every greedy token is"
            off = f"logits differ by {self.parity:.1e} (relative), and {tolerance:g} is allowed"
            return f"{off}, though {which} the same; --tolerance allows more (tolerance=…)"
        i = self.lost[0]
        asked, say = batch.asked[i], model.vocabulary.decode
        read = say(batch.tokens[i, : int(asked.argmax()) + 1])
        got, wanted = say(self.theirs[i][asked]), say(batch.wanted[i][asked])
        wrong = f"{len(self.lost):,} of {len(batch.tokens):,} test inputs come out wrong"
        return f"{wrong}, such as {read!r}: {got!r} instead of {wanted!r}"


def agreement(batch: Examples, ours: Any, theirs: Any) -> Agreement:
    """ours, theirs [B,T,V], compared where a token is asked for.

    Elsewhere a program may be undecided, and then rounding decides: two keys of equal scores, say.
    """
    size = largest(ours)

    def off(where: Any) -> float:
        finite = np.isfinite(ours) & where[..., None]
        if not np.isfinite(theirs[finite]).all():
            return float("inf")
        return float(np.abs(ours - theirs, where=finite, out=np.zeros(ours.shape)).max()) / size

    a, b = ours.argmax(-1), theirs.argmax(-1)  # B T
    differs = (a != b) & batch.asked
    right = ((a == batch.wanted) | ~batch.asked).all(1) & batch.known
    lost = [int(i) for i in np.nonzero(right & differs.any(1))[0]]
    parity, elsewhere = off(batch.asked), None if batch.asked.all() else off(~batch.asked)
    return Agreement(parity, elsewhere, int(batch.asked.sum()), int(differs.sum()), lost, b)


def largest(x: Any) -> float:
    """What differences are relative to: the largest finite number, or 1."""
    return max(1.0, float(np.abs(x[np.isfinite(x)]).max(initial=0.0)))


def moved(ours: Mapping[str, Any], theirs: Mapping[str, Any], tolerance: float) -> dict[str, float]:
    """Name -> relative difference of activations that differ by more, in the order they come in."""
    far = {}
    for name, a in theirs.items():
        a, b = np.broadcast_arrays(ours[name], a)
        finite = np.isfinite(a)
        gap = float(np.abs(a[finite] - b[finite]).max(initial=0.0)) / largest(a)
        if not gap <= tolerance:
            far[name] = gap
    return far


# ── what rounding does ─────────────────────────────────────────────────────────────────────────
def float32_reason(
    model: Model, tolerance: float = TOLERANCE, tried: Sequence[Agreement] = ()
) -> str:
    """Why float32 cannot carry the model's constants, found by trying; "" if it can."""
    model = model.numpy()
    for name, w in model.weights.items():
        with np.errstate(over="ignore"):
            if not np.isfinite(w.astype("float32")).all():
                largest = float(w.flat[np.abs(w).argmax()])
                return f"{name} has {largest:g}, and float32 ends at 3.4e38"
    tried = tried or in_other_orders(model, "float32")
    worst = max(tried, key=lambda found: (len(found.lost), found.parity))
    # What is in float32 already loses nothing more; its answers count alone.
    return worst.why(model, examples(model), tolerance if model.dtype == "float64" else np.inf)


def carried_by(
    model: Model, tolerance: float = TOLERANCE, tried: Sequence[Agreement] = ()
) -> tuple[Model, str]:
    """The model in float32, if that carries it; else in float64, and why."""
    why = float32_reason(model, tolerance, tried)
    return model.astype("float64" if why else "float32"), why


def in_other_orders(model: Model, dtype: str) -> list[Agreement]:
    """What becomes of the test batch in a float type.

    Libraries add up in other orders than we do, and a program may be right in one by luck. So
    several orders of its sums are tried, which would change nothing if numbers were exact; and
    PyTorch's kernels, if it is here.
    """
    batch, rng = examples(model), np.random.default_rng(0)
    ours = model.logits(batch.tokens)
    tried = [m.astype(dtype) for m in (model, *(reordered(model, rng) for _ in range(ORDERS)))]
    if importlib.util.find_spec("torch"):
        tried.append(model.torch(dtype))
    return [agreement(batch, ours, m.logits(batch.tokens)) for m in tried]
