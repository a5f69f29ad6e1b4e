"""What is left of a model's structure in another: of a program after training, in a pupil of it.

    print(survival(program, trained, task))

A slot of a hand-made or compiled model holds one of a few values, each as a vector of its own, the
*code*. For each slot of `before`, over every position of some rows up to the end of the answer:

- in place: the share of positions at which the same slot of `after` is nearest to the code of the
  value that `before` has there. Of two models of different shapes there is none.
- readable: the same share for a linear reading of the whole stream of `after`, fitted on one half
  of the rows, no row of which is in the other, and counted on that one. Where in the model it is
  read is decided within the first half: where it is best there. What has left its slot and is still
  known somewhere is readable and no longer in place.
- commonest: the share of the value that is most common, which is what guessing gets.

A slot that holds one value only, or so many that they are no codes, is left out.
"""

from dataclasses import dataclass

import numpy as np

from ..core import components
from ..core.backend import Array
from ..core.hooks import ActivationCache
from ..core.model import Model
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..utils.numfmt import format_percent
from ..utils.results import Result
from .stream import streams_by_component

MAX_CODES = 200  # values of a slot that are no longer codes
CODE_TOLERANCE = (
    1e-5  # of a slot's largest number: what rounds to the same multiple of it is one code
)
DEFAULT_ROWS = 400
RIDGE_PENALTY = 1e-6  # of the mean square of a stream's coordinates: keeps a linear reading finite


@dataclass(frozen=True)
class SlotRetention(Result):
    """One slot of the first model."""

    slot: str
    values: int  # how many codes it has
    commonest: float
    in_place: float | None  # None: the other has no such slot
    readable: float
    where: str  # the part of the other after which it is best read


@dataclass(frozen=True)
class StructureRetention(Result):
    """Which slots of a model survive in another."""

    rows: int
    slots: list[SlotRetention]

    def __str__(self) -> str:
        wide = max([4, *(len(s.slot) for s in self.slots)])
        lines = [f"{'slot':<{wide}}  values  commonest  in place  readable"]
        for s in self.slots:
            here = "–" if s.in_place is None else format_percent(s.in_place)
            shares = f"{format_percent(s.commonest):>9}  {here:>8}  {format_percent(s.readable):>8}"
            lines.append(f"{s.slot:<{wide}}  {s.values:>6}  {shares} after {s.where}")
        return "\n".join(lines)


def measure_retention(
    before: Model, after: Model, task: Task, rows: int = DEFAULT_ROWS, seed: int = 0
) -> StructureRetention:
    """Which slots of `before` are still there in `after`, over so many random rows of the task."""
    for model in (before, after):
        task.require(model.vocabulary)
    if not before.labels.slots:
        raise GlassformerError("survival — the first model has no slots with names")
    rng = np.random.default_rng(seed)
    drawn = task.sample(rows, rng)
    drawn = drawn[task.defined(drawn)]
    # a row that is drawn again has its number again, and so is in one half only
    numbers: dict[tuple[int, ...], int] = {}
    number = np.array([numbers.setdefault(tuple(r), len(numbers)) for r in drawn.tolist()])
    if (n := len(numbers)) < 2:
        got = f"gave {n} different rows, expected at least 2"
        raise GlassformerError(f"survival — {task.ref} {got}")
    tokens, answer = task.batch(drawn)
    # up to where the last token of the answer is said
    seen = np.cumsum(answer[:, ::-1], 1)[:, ::-1][:, 1:] > 0
    old = list(_streams_at(before, tokens[:, :-1], seen).values())[-1]
    new = _streams_at(after, tokens[:, :-1], seen)
    half = (rng.permutation(n)[number] < n // 2)[:, None].repeat(seen.shape[1], 1)[seen]
    found = []
    for name, (start, stop) in components.slots_or_stream(before).items():
        codes, which = _distinct_codes(old[:, start:stop])
        if not 1 < len(codes) <= MAX_CODES:
            continue
        same = before.config.d_model == after.config.d_model
        last = list(new.values())[-1][:, start:stop]
        held = float((_nearest_code(last, codes) == which).mean()) if same else None
        best = {
            part: _linear_readout_accuracy(x, codes, which, half, half) for part, x in new.items()
        }
        where = max(best, key=lambda part: best[part])
        read = _linear_readout_accuracy(new[where], codes, which, half, ~half)
        commonest = float(np.bincount(which).max() / len(which))
        found.append(SlotRetention(name, len(codes), commonest, held, read, where))
    return StructureRetention(len(drawn), found)


def _streams_at(model: Model, tokens: Array, mask: Array) -> dict[str, Array]:
    """Part of the model -> the stream after it, at the positions that are looked at: [N,D]."""
    cache, model = ActivationCache(), model.numpy()
    model(tokens, hook=cache)
    streams = streams_by_component(model, cache)
    return {p: np.broadcast_to(x, (*mask.shape, x.shape[-1]))[mask] for p, x in streams.items()}


def _distinct_codes(x: Array) -> tuple[Array, Array]:
    """The different vectors among [N,D], and which of them each is."""
    grain = CODE_TOLERANCE * max(float(np.abs(x).max()), 1e-30)
    _, first, which = np.unique(np.round(x / grain), axis=0, return_index=True,
                                return_inverse=True)  # fmt: skip
    return x[first], which.reshape(-1)


def _nearest_code(x: Array, codes: Array) -> Array:
    """Which code is nearest to each vector, [N]."""
    x, codes = x.astype(np.float64), codes.astype(np.float64)
    return np.asarray(((codes**2).sum(1) - 2 * x @ codes.T).argmin(1))


def _linear_readout_accuracy(
    x: Array, codes: Array, which: Array, fit: Array, count: Array
) -> float:
    """The share that a linear map of the stream gets right at some positions, fitted at others."""
    x = x.astype(np.float64)
    x = np.column_stack([x / np.abs(x).max(0, initial=1e-30), np.ones(len(x))])  # as much each
    a, b = x[fit], codes[which[fit]].astype(np.float64)
    gram = a.T @ a
    gram += RIDGE_PENALTY * np.trace(gram) / len(gram) * np.eye(len(gram))
    read = x[count] @ np.linalg.solve(gram, a.T @ b)
    return float((_nearest_code(read, codes) == which[count]).mean())
