"""Proofs of copy tasks, in which every position holds an item of the input or a fixed token.

Reversing is such a task, at any length. The task declares the item at each position
(`Task.copy_layout`), and its examples must agree. Items are independent, so a sum over positions is
a sum over items with independent values (Lemma 42), even if an item is copied several times.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..core.model import Model
from ..tasks.base import Task
from ..tasks.token_layout import TOKEN, Spot, checked_copy_layout
from ..utils.errors import GlassformerError
from .affine_arithmetic import SLACK, Reals
from .count_failures import count_any_not_positive
from .layout import possible_tokens
from .min_max import MAX_COUNTED_RATIO, InputCase, float_below
from .qkv_bounds import check_context_length
from .single_head import SingleHead, least_sum


@dataclass(frozen=True)
class CopyLayout:
    """Content of each position: (TOKEN, t) for a fixed token t, (ROW, i) for item i."""

    spots: tuple[Spot, ...]
    answer_start: int  # position of the first token of the answer
    n_items: int
    n_item_tokens: int  # an item is a token from 0 to n_item_tokens − 1

    def tokens(self, position: int) -> range:
        kind, number = self.spots[position]
        return range(number, number + 1) if kind == TOKEN else range(self.n_item_tokens)


def copy_layout(task: Task) -> CopyLayout:
    """Return the copy layout that a task declares; raise an error if it declares none."""
    layout, kinds = checked_copy_layout(task), set(task.radix)
    if len(kinds) != 1 or task.size != (k := kinds.pop()) ** len(task.radix):
        raise GlassformerError(
            f"{task.ref}: expected items with equal numbers of values, got radix {task.radix}",
            code="unsupported",
        )
    return CopyLayout(layout.spots, layout.first, len(task.radix), k)


def copy_cases(model: Model, task: Task, count_errors: bool = True) -> Iterator[InputCase]:
    """Yield all cases of a copy task: a query position, its token and the right next token.

    An input is in one case of every position. Without `count_errors`, all inputs of an open case
    count as open.
    """
    layout = copy_layout(task)
    T = len(layout.spots) - 1
    check_context_length(model, task, T)
    head = SingleHead(model, T, possible_tokens(layout, model.config.d_vocab)[:-1])
    with np.errstate(all="ignore"):
        for row in range(layout.answer_start - 1, T):
            for token in layout.tokens(row):
                terms = head.terms(row, token)
                for right in layout.tokens(row + 1):
                    fixed = _fixed_items(layout, row, token, right)
                    if fixed is not None:
                        bounds, scale = terms.lower_bounds(right), terms.max_weight_divisor
                        yield _case(
                            layout, row, bounds, scale, right, fixed, task.size, count_errors
                        )


def _fixed_items(layout: CopyLayout, row: int, token: int, right: int) -> dict[int, int] | None:
    """Return the items that a case fixes; None if they contradict each other."""
    fixed: dict[int, int] = {}
    for position, value in ((row, token), (row + 1, right)):
        kind, number = layout.spots[position]
        if kind != TOKEN and fixed.setdefault(number, value) != value:
            return None
    return fixed


def _case(
    layout: CopyLayout,
    row: int,
    t: Reals,
    scale: Reals,
    right: int,
    fixed: dict[int, int],
    size: int,
    count_errors: bool,
) -> InputCase:
    free = [i for i in range(layout.n_items) if i not in fixed]
    # sum of the terms of all copies of an item, by item
    table = np.zeros((layout.n_items, layout.n_item_tokens, t.shape[2]), t.dtype)
    rest = np.zeros(t.shape[2], t.dtype)
    for p, (kind, number) in enumerate(layout.spots[: row + 1]):
        if kind == TOKEN or number in fixed:
            rest += t[p, number if kind == TOKEN else fixed[number]]
        else:
            table[number] += t[p, : layout.n_item_tokens]
    # sums are rounded once per position before the minimum is taken
    rest = rest - SLACK * (row + 1) * np.abs(t).max(1).sum(0)
    total = least_sum(table[free]) + rest
    total[right] = np.inf
    total = np.where(np.isnan(total), -np.inf, total)
    inputs, rivals = layout.n_item_tokens ** len(free), np.flatnonzero(~(total > 0))
    wrong, rival = inputs if len(rivals) else 0, int(total.argmin())
    if wrong and count_errors and inputs > size // (len(t) ** 2 * MAX_COUNTED_RATIO):
        wrong = count_any_not_positive(table[free][..., rivals], rest[rivals])
    choice = table[free][..., rival].argmin(1).tolist()
    worst = dict(zip(free, choice, strict=True)) | fixed
    worst_row = tuple(worst[i] for i in range(layout.n_items))
    return InputCase(inputs, min(wrong, inputs), float_below(total[rival] / scale), worst_row)


def is_covered(task: Task) -> bool:
    """Return whether a task declares a copy layout."""
    return task.declares("copy_layout") and task.copy_layout() is not None
