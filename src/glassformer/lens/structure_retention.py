"""Retention of a program's slot structure in another model, such as a further trained copy.

A slot of a hand-made or compiled model holds one of a few vectors, its *codes*. For each slot of
`before`, three shares of positions are measured over random rows up to the end of the answer:

- in place: the vector in this slot of `after` is nearest to the code in `before`. None if the
  widths differ.
- readable: a linear readout of the whole stream of `after` gives that code. It is fitted on one
  half of the distinct rows and evaluated on the other; the component after which to read is chosen
  on the first half alone.
- commonest: the code is the most frequent one, which guessing would reach.

Slots with one value, or with more than MAX_CODES, are skipped.
"""

from dataclasses import dataclass

import numpy as np

from ..core import components
from ..core.backend import Array
from ..core.hooks import record
from ..core.model import Model
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..utils.numfmt import format_percent
from ..utils.results import Result
from .stream import streams_by_component

MAX_CODES = 200
CODE_TOLERANCE = 1e-5  # relative to the slot's largest number; closer vectors count as one code
DEFAULT_ROWS = 400
RIDGE_PENALTY = 1e-6  # relative to the mean square of the stream's coordinates


@dataclass(frozen=True)
class SlotRetention(Result):
    """Retention of one slot of the first model."""

    slot: str
    values: int  # number of codes
    commonest: float
    in_place: float | None  # None if the widths of the models differ
    readable: float
    where: str  # component after which the linear readout is most accurate


@dataclass(frozen=True)
class StructureRetention(Result):
    """Retention of each slot of a model in another model."""

    rows: int
    slots: list[SlotRetention]

    def __str__(self) -> str:
        width = max([4, *(len(s.slot) for s in self.slots)])
        lines = [f"{'slot':<{width}}  values  commonest  in place  readable"]
        for s in self.slots:
            in_place = "–" if s.in_place is None else format_percent(s.in_place)
            shares = f"{format_percent(s.commonest):>9}  {in_place:>8}"
            readable = f"{format_percent(s.readable):>8} after {s.where}"
            lines.append(f"{s.slot:<{width}}  {s.values:>6}  {shares}  {readable}")
        return "\n".join(lines)


def measure_retention(
    before: Model, after: Model, task: Task, rows: int = DEFAULT_ROWS, seed: int = 0
) -> StructureRetention:
    """Measure the retention of the slots of `before` in `after`.

    Args:
        before: A model with named slots.
        after: The other model.
        task: The common task of both models.
        rows: Number of random rows.
        seed: Seed of the rows and of their split into halves.
    """
    for model in (before, after):
        task.require(model.vocabulary)
    if not before.labels.slots:
        raise GlassformerError("before: expected a model with named slots, got none")
    rng = np.random.default_rng(seed)
    sample = task.sample(rows, rng)
    sample = sample[task.defined(sample)]
    # Duplicate rows share one index, so all copies are in one half.
    numbers: dict[tuple[int, ...], int] = {}
    number = np.array([numbers.setdefault(tuple(r), len(numbers)) for r in sample.tolist()])
    if (n := len(numbers)) < 2:
        raise GlassformerError(f"rows: expected at least 2 different rows of {task.ref}, got {n}")
    tokens, answer = task.batch(sample)
    # positions up to the last answer token
    mask = np.cumsum(answer[:, ::-1], 1)[:, ::-1][:, 1:] > 0
    old = list(_streams_at(before, tokens[:, :-1], mask).values())[-1]
    new = _streams_at(after, tokens[:, :-1], mask)
    half = (rng.permutation(n)[number] < n // 2)[:, None].repeat(mask.shape[1], 1)[mask]
    slots = []
    for name, (start, stop) in components.slots_or_stream(before).items():
        codes, index = _distinct_codes(old[:, start:stop])
        if not 1 < len(codes) <= MAX_CODES:
            continue
        in_place = None
        if before.config.d_model == after.config.d_model:
            last = list(new.values())[-1][:, start:stop]
            in_place = float((_nearest_code(last, codes) == index).mean())
        where = max(new, key=lambda p: _linear_readout_accuracy(new[p], codes, index, half, half))
        readable = _linear_readout_accuracy(new[where], codes, index, half, ~half)
        commonest = float(np.bincount(index).max() / len(index))
        slots.append(SlotRetention(name, len(codes), commonest, in_place, readable, where))
    return StructureRetention(len(sample), slots)


def _streams_at(model: Model, tokens: Array, mask: Array) -> dict[str, Array]:
    """Return component -> stream after the component at the masked positions, [N,D]."""
    model = model.numpy()
    streams = streams_by_component(model, record(model, tokens)[1])
    return {p: np.broadcast_to(x, (*mask.shape, x.shape[-1]))[mask] for p, x in streams.items()}


def _distinct_codes(x: Array) -> tuple[Array, Array]:
    """Return the distinct vectors among [N,D], and the index of each vector's code."""
    grain = CODE_TOLERANCE * max(float(np.abs(x).max()), 1e-30)
    rounded = np.round(x / grain)
    _, first, index = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    return x[first], index.reshape(-1)


def _nearest_code(x: Array, codes: Array) -> Array:
    """Return the index of the nearest code of each vector, [N]."""
    x, codes = x.astype(np.float64), codes.astype(np.float64)
    return np.asarray(((codes**2).sum(1) - 2 * x @ codes.T).argmin(1))


def _linear_readout_accuracy(
    x: Array, codes: Array, index: Array, fitted: Array, evaluated: Array
) -> float:
    """Return the accuracy of a ridge regression that predicts the codes from the stream."""
    x = x.astype(np.float64)
    x = np.column_stack([x / np.abs(x).max(0, initial=1e-30), np.ones(len(x))])
    a, b = x[fitted], codes[index[fitted]].astype(np.float64)
    gram = a.T @ a
    gram += RIDGE_PENALTY * np.trace(gram) / len(gram) * np.eye(len(gram))
    prediction = x[evaluated] @ np.linalg.solve(gram, a.T @ b)
    return float((_nearest_code(prediction, codes) == index[evaluated]).mean())
