"""Tasks that copy: every position of a text holds one of the things given, or always one token.

Reversing is one, at any length. Which thing stands where the task says of itself (`Task.copies`),
and its examples agree. Things are free of each other, so a sum over positions is a sum over things,
each with its own choice (Lemma 42), however often it was copied.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..core.model import Model
from ..tasks.base import Task
from ..tasks.token_layout import TOKEN, Spot
from ..tasks.token_layout import checked_copy_layout as said_of
from ..utils.errors import GlassformerError
from .affine_arithmetic import SLACK, Reals
from .count_failures import count_any_not_positive
from .min_max import MAX_COUNTED_RATIO, InputCase, float_below
from .single_head import SingleHead, least_sum


@dataclass(frozen=True)
class CopyLayout:
    """What each position holds: (TOKEN, t) always, or (ROW, i), a thing of the rows."""

    spots: tuple[Spot, ...]
    answer_start: int  # position of the first token of the answer
    n_items: int
    n_item_tokens: int  # tokens 0 … kinds−1 are what a thing can be

    def tokens(self, position: int) -> range:
        kind, number = self.spots[position]
        return range(number, number + 1) if kind == TOKEN else range(self.n_item_tokens)


def copy_layout(task: Task) -> CopyLayout:
    """Where the things stand, as the task says; an error if it says no such thing."""
    said, kinds = said_of(task), set(task.radix)
    if len(kinds) != 1 or task.size != (k := kinds.pop()) ** len(task.radix):
        what = "a task the prover does not cover: it knows copies of things of one kind"
        raise GlassformerError(f"{task.ref} — {what}")
    return CopyLayout(said.spots, said.first, len(task.radix), k)


def copy_cases(model: Model, task: Task, count_errors: bool = True) -> Iterator[InputCase]:
    """All cases: a position that asks, the token there, the right one. An input is in one case of
    every position. Without `exact`, an open case is open as a whole.
    """
    at = copy_layout(task)
    T = len(at.spots) - 1
    if model.config.n_ctx < T:
        what = f"texts of {T} tokens; the model's block has {model.config.n_ctx}"
        raise GlassformerError(f"{task.ref} — {what}")
    possible = np.zeros((T, model.config.d_vocab), bool)
    for t in range(T):
        possible[t, at.tokens(t)] = True
    alone = SingleHead(model, T, possible)
    with np.errstate(all="ignore"):
        for row in range(at.answer_start - 1, T):
            for asks in at.tokens(row):
                terms = alone.terms(row, asks)
                for right in at.tokens(row + 1):
                    known = _fixed_items(at, row, asks, right)
                    if known is not None:
                        here, most = terms.lower_bounds(right), terms.max_weight_divisor
                        yield _case(at, row, here, most, right, known, task.size, count_errors)


def _fixed_items(at: CopyLayout, row: int, asks: int, right: int) -> dict[int, int] | None:
    """The things that a case fixes; None if they contradict each other."""
    known: dict[int, int] = {}
    for position, token in ((row, asks), (row + 1, right)):
        kind, number = at.spots[position]
        if kind != TOKEN and known.setdefault(number, token) != token:
            return None
    return known


def _case(
    at: CopyLayout, row: int, t: Reals, most: Reals, right: int, fixed: dict[int, int], size: int,
    count_errors: bool,
) -> InputCase:  # fmt: skip
    free = [i for i in range(at.n_items) if i not in fixed]
    table = np.zeros(
        (at.n_items, at.n_item_tokens, t.shape[2]), t.dtype
    )  # by thing: Σ of its copies' terms
    rest = np.zeros(t.shape[2], t.dtype)
    for p, (kind, number) in enumerate(at.spots[: row + 1]):
        if kind == TOKEN or number in fixed:
            rest += t[p, number if kind == TOKEN else fixed[number]]
        else:
            table[number] += t[p, : at.n_item_tokens]
    # what is added up before the least of it is taken rounds once a position
    lost = SLACK * (row + 1) * np.abs(t).max(1).sum(0)
    rest = rest - lost
    total = least_sum(table[free]) + rest
    total[right] = np.inf
    total = np.where(np.isnan(total), -np.inf, total)
    inputs, rivals = at.n_item_tokens ** len(free), np.flatnonzero(~(total > 0))
    wrong, rival = 0, int(total.argmin())
    if len(rivals):
        counted = count_errors and inputs > size // (len(t) ** 2 * MAX_COUNTED_RATIO)
        wrong = (
            count_any_not_positive(table[free][..., rivals], rest[rivals]) if counted else inputs
        )
    worst = dict(zip(free, table[free][..., rival].argmin(1).tolist(), strict=True)) | fixed
    row_of = tuple(worst[i] for i in range(at.n_items))
    return InputCase(inputs, min(wrong, inputs), float_below(total[rival] / most), row_of)


def is_covered(task: Task) -> bool:
    """Whether a task says of itself that its answers are copies."""
    return task.declares("copy_layout") and task.copy_layout() is not None
