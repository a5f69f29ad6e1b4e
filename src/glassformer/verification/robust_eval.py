"""Robust evaluation of rows in two orders of summation, for proofs and the judge.

A model that is right on a batch may be wrong on a single row: sums may then have another order, and
a margin may depend on their last bits. So some rows are also run one at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..core import backend
from ..core.checkpoint import digest
from ..core.model import Model, Scope, sinusoidal
from ..core.weight_shapes import array_axes
from ..tasks.base import Rows, Task
from ..tasks.bigint_rows import unique_rows
from .evaluation import Margins, answer_span, chunk_size, decoded_margins_and_ties, margins_and_ties

ONE_BY_ONE_ROWS = 100  # limit each of closest rows, edge cases and random rows
MAX_ONE_BY_ONE_TOKENS = 1_500  # answer tokens of all these rows
MAX_KEPT_FAILURES = 8
MAX_REMEMBERED_ROWS = 10_000  # rows remembered to count repeated rows once
MAX_POSITION_TABLE_ENTRIES = 2**24


class RobustMargins(NamedTuple):
    """Margins of rows that were run twice, each [B]."""

    margin: Any  # smallest margin of the answer tokens
    second_margin: Any  # smallest margin in the second run
    certain: Any  # bool: right in both runs, by more than rounding
    margin_in_ties: Any  # margin divided by the size of a tie
    doubt: str  # description of an uncertain row, preferably a right one; "" without one

    @property
    def right_but_uncertain(self) -> Any:
        """Mask of rows that are right in the first run, but uncertain."""
        return (self.margin > 0) & ~self.certain


class RobustEvaluator:
    """Runs rows in two orders of summation, or in a batch and alone. The result is not a bound."""

    def __init__(self, model: Model) -> None:
        self.model, self.rng = model, np.random.default_rng(int(digest(model)[:16], 16))
        self.reordered_model = reorder_sums(model, self.rng)

    def evaluate(self, tokens: Any, answer: Any) -> RobustMargins:
        """Run examples of `Task.batch` in both orders of summation."""
        second = margins_and_ties(self.reordered_model, tokens, answer)
        runs = ("in one order of the same sums", "in another")
        return self._compare(tokens, answer, second, runs)

    def evaluate_one_by_one(self, tokens: Any, answer: Any) -> RobustMargins:
        """Run examples in a batch and one at a time."""
        margins = Margins(np.full(answer.shape, np.inf), np.zeros(answer.shape))
        for i in range(len(tokens)):
            row = decoded_margins_and_ties(self.model, tokens[[i]], answer[[i]])
            for whole, part in zip(margins, row, strict=True):
                whole[i, -part.shape[1] :] = part[0]
        margins = Margins(*(x[:, -answer_span(answer) :] for x in margins))
        return self._compare(tokens, answer, margins, ("in a batch", "alone"))

    def _compare(
        self, tokens: Any, answer: Any, second: Margins, runs: tuple[str, str]
    ) -> RobustMargins:
        first = margins_and_ties(self.model, tokens, answer)
        clear, margin = first.clear_in_both(second), first.margin.min(1)
        certain = clear.all(1)
        with np.errstate(invalid="ignore", divide="ignore"):  # infinite margins, and ties of 0
            in_ties = np.nan_to_num(first.margin / first.tie, nan=-np.inf).min(1)
        result = RobustMargins(margin, second.margin.min(1), certain, in_ties, "")
        if certain.all():
            return result
        right = result.right_but_uncertain
        i = int((right if right.any() else ~certain).argmax())
        prompt = self.model.vocabulary.decode(tokens[i, : int(answer[i].argmax())])
        at = i, clear[i].argmin()
        x, y = first.margin[at], second.margin[at]
        doubt = f"right by {x:.2g} {runs[0]} and {f'by {y:.2g}' if y > 0 else 'wrong'} {runs[1]}"
        if y > 0 and not (x > first.tie[at] and y > second.tie[at]):
            doubt = f"right by {x:.2g}, which another order of the same sums could turn"
        return result._replace(doubt=f"{prompt} is {doubt if margin[i] > 0 else 'wrong'}")


class ClosestRows:
    """Collects the rows with the smallest margins, to run them one at a time."""

    def __init__(self, task: Task) -> None:
        self.task, self.margin_in_ties = task, np.zeros(0)
        self.rows: Rows = np.zeros((0, len(task.radix)), task.row_type)

    def add(self, rows: Rows, margin_in_ties: Any) -> None:
        margins = np.concatenate([self.margin_in_ties, margin_in_ties])
        rows = np.concatenate([self.rows, rows])
        closest = np.argsort(margins, kind="stable")[:ONE_BY_ONE_ROWS]
        self.margin_in_ties, self.rows = margins[closest], rows[closest]

    def select(self, rng: np.random.Generator) -> Rows:
        """Return the closest rows, some edge cases and some random rows, without repeats."""
        task, edges = self.task, self.task.edges()
        steps = int(task.batch(task.rows(0, 1))[1].sum(1).max())
        n = min(ONE_BY_ONE_ROWS, max(1, MAX_ONE_BY_ONE_TOKENS // (3 * steps)))
        spread = edges[:: max(1, -(-len(edges) // n))]
        rows = np.concatenate([self.rows[:n], spread, task.sample(n, rng)])
        return unique_rows(rows[task.defined(rows)])


@dataclass(frozen=True)
class ExhaustiveResult:
    """Result of running every row of a task."""

    checked: int
    wrong: int
    uncertain: int  # rows that are wrong or uncertain
    margin: float  # smallest margin of all runs
    failures: list[tuple[int, ...]]  # the first wrong rows
    doubt: str  # description of a row that is right but uncertain, or ""


def evaluate_domain(
    model: Model, task: Task, on_rows: Callable[[int, Rows, RobustMargins], object] | None = None
) -> ExhaustiveResult:
    """Run every row in two orders of summation, then some rows one at a time.

    `on_rows` is called with the number of rows done, the rows and their margins.
    """
    evaluator, closest, step = RobustEvaluator(model), ClosestRows(task), chunk_size(model, task)
    checked, margin, doubt = 0, np.inf, ""
    failures, uncertain = DistinctCounter(), DistinctCounter()

    def count(rows: Rows, margins: RobustMargins, wrong: Any) -> None:
        nonlocal margin, doubt
        failures.add(rows[wrong])
        uncertain.add(rows[~margins.certain])
        margin = min(margin, float(margins.margin.min()), float(margins.second_margin.min()))
        doubt = doubt or margins.doubt * bool(margins.right_but_uncertain.any())

    for start in range(0, task.size, step):
        rows = task.rows(start, stop := min(start + step, task.size))
        if len(rows := rows[task.defined(rows)]):
            margins = evaluator.evaluate(*task.batch(rows))
            closest.add(rows, margins.margin_in_ties)
            checked += len(rows)
            count(rows, margins, ~(margins.margin > 0))
            if on_rows:
                on_rows(stop, rows, margins)
    if checked:
        rows = closest.select(evaluator.rng)
        margins = evaluator.evaluate_one_by_one(*task.batch(rows))
        count(rows, margins, ~(margins.margin > 0) | ~(margins.second_margin > 0))
    n_wrong, n_uncertain = (min(counter.count, checked) for counter in (failures, uncertain))
    return ExhaustiveResult(checked, n_wrong, n_uncertain, margin, failures.first, doubt)


class DistinctCounter:
    """Counts distinct rows. Beyond MAX_REMEMBERED_ROWS, repeated rows may count twice."""

    def __init__(self) -> None:
        self.count, self._known = 0, dict[tuple[int, ...], None]()

    def add(self, rows: Rows) -> None:
        self.count += len(rows)
        for row in map(tuple, rows[:MAX_REMEMBERED_ROWS].tolist()):
            self.count -= row in self._known
            if len(self._known) < MAX_REMEMBERED_ROWS:
                self._known[row] = None

    @property
    def first(self) -> list[tuple[int, ...]]:
        return [*self._known][:MAX_KEPT_FAILURES]


def reorder_sums(model: Model, rng: np.random.Generator) -> Model:
    """Return an equivalent model with permuted dimensions, neurons and heads.

    The permutations reorder its sums. Sums over positions keep their order. So do the heads of
    ALiBi and rotary queries and keys, since slopes and angles depend on the index.
    """
    c, weights = model.config, dict(model.weights)
    xp = backend.backend_for(weights["embed.W_E"])
    sizes = {"D": c.d_model, "H": c.n_heads, "K": c.d_head, "F": c.d_mlp}
    fixed = {"alibi": {"H"}, "rotary": {"QK"}}.get(c.positions, set())
    if c.positions == "sinusoidal":  # depends on the dimension's index, so a table is used
        if c.n_ctx * c.d_model > MAX_POSITION_TABLE_ENTRIES:
            fixed = {"D"}
        else:
            like = xp.broadcast_positions(weights["embed.W_E"][:1], c.n_ctx)
            weights["pos_embed.W_pos"] = sinusoidal(c, Scope({}, None), like, 0)
            c = replace(c, positions="learned")
    orders = {axis: _random_order(n, rng) for axis, n in sizes.items() if axis not in fixed}
    for name, axes in array_axes(c).items():
        rotated = "QK" in fixed and not name.endswith(("W_V", "b_V", "W_O"))
        for i, axis in enumerate(axes.rstrip("?")):
            if name in weights and axis in orders and not (axis == "K" and rotated):
                weights[name] = xp.permute_axis(weights[name], orders[axis], i)
    return Model(c, weights, model.vocabulary)


def _random_order(n: int, rng: np.random.Generator) -> Any:
    """Return a random permutation other than the identity."""
    order = rng.permutation(n)
    return order if (order != np.arange(n)).any() else order[::-1].copy()
