"""What a model has right for sure, as far as running it can say: for proofs, and the judge.

To be right on a batch is not to be right: a machine adds up many rows in another order than one,
and a model may make a whole answer of the last bit of a sum. So rows are run in two orders of the
same sums, and some of them one at a time.
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

ONE_BY_ONE_ROWS = 100  # rows each, run one at a time: edges, the smallest leads, some at random
MAX_ONE_BY_ONE_TOKENS = 1_500  # tokens that these may take in all
MAX_KEPT_FAILURES = 8  # rows that are wrong and kept
MAX_REMEMBERED_ROWS = 10_000  # rows that are known again
MAX_POSITION_TABLE_ENTRIES = 2**24  # numbers of a table of positions


class RobustMargins(NamedTuple):
    """What came of some rows that were run in two ways: [B] each."""

    margin: Any  # of the right token over the best other, the least over the answer
    second_margin: Any  # the same, the other way
    certain: Any  # bool: right both ways, by more than rounding could turn
    margin_in_ties: Any  # the lead as so many ties
    doubt: str  # why a row is not sure, the first that is right if there is one; "": all are sure

    @property
    def right_but_uncertain(self) -> Any:
        """Which are right, and not for sure."""
        return (self.margin > 0) & ~self.certain


class RobustEvaluator:
    """What a model has right for sure, as far as running it can say.

    Rows are run in two orders of the same sums (`look`), and some of them one at a time, as `run`
    does (`alone`): one row may be added up in another order than many. That is what this machine
    does, tried out; it is no bound.
    """

    def __init__(self, model: Model) -> None:
        self.model, self.rng = model, np.random.default_rng(int(digest(model)[:16], 16))
        self.reordered_model = reorder_sums(model, self.rng)

    def evaluate(self, tokens: Any, answer: Any) -> RobustMargins:
        """Examples, as `Task.batch` has them, in both orders."""
        ways = "in one order of the same sums", "in another"
        return self._compare(
            tokens, answer, margins_and_ties(self.reordered_model, tokens, answer), ways
        )

    def evaluate_one_by_one(self, tokens: Any, answer: Any) -> RobustMargins:
        """Examples with others, and one at a time."""
        found = Margins(np.full(answer.shape, np.inf), np.zeros(answer.shape))
        for i in range(len(tokens)):
            one = decoded_margins_and_ties(self.model, tokens[[i]], answer[[i]])
            for whole, part in zip(found, one, strict=True):
                whole[i, -part.shape[1] :] = part[0]
        found = Margins(*(x[:, -answer_span(answer) :] for x in found))
        return self._compare(tokens, answer, found, ("together with others", "alone"))

    def _compare(
        self, tokens: Any, answer: Any, other: Margins, ways: tuple[str, str]
    ) -> RobustMargins:
        one = margins_and_ties(self.model, tokens, answer)
        steady, lead = one.clear_in_both(other), one.margin.min(1)
        sure = steady.all(1)
        with np.errstate(invalid="ignore", divide="ignore"):  # where no answer is; ties of 0
            room = np.nan_to_num(one.margin / one.tie, nan=-np.inf).min(1)
        found = RobustMargins(lead, other.margin.min(1), sure, room, "")
        if sure.all():
            return found
        i = int((found.right_but_uncertain if found.right_but_uncertain.any() else ~sure).argmax())
        asked = self.model.vocabulary.decode(tokens[i, : int(answer[i].argmax())])
        why = _describe_doubt(one, other, (i, steady[i].argmin()), ways) if lead[i] > 0 else ""
        return found._replace(doubt=f"{asked} is {f'right by {why}' if why else 'wrong'}")


def _describe_doubt(
    one: Margins, other: Margins, at: tuple[Any, Any], ways: tuple[str, str]
) -> str:
    x, y = one.margin[at], other.margin[at]
    if y > 0 and not (x > one.tie[at] and y > other.tie[at]):
        return f"{x:.2g}, which another order of the same sums could turn"
    return f"{x:.2g} {ways[0]} and {f'by {y:.2g}' if y > 0 else 'wrong'} {ways[1]}"


class ClosestRows:
    """The rows that were nearest to a tie, and others that are worth running alone."""

    def __init__(self, task: Task) -> None:
        self.task, self.margin_in_ties = task, np.zeros(0)
        self.rows: Rows = np.zeros((0, len(task.radix)), task.row_type)

    def add(self, rows: Rows, room: Any) -> None:
        room, rows = np.concatenate([self.margin_in_ties, room]), np.concatenate([self.rows, rows])
        least = np.argsort(room, kind="stable")[:ONE_BY_ONE_ROWS]
        self.margin_in_ties, self.rows = room[least], rows[least]

    def select(self, rng: np.random.Generator) -> Rows:
        """The nearest, some edges and some at random, each once."""
        task, edges = self.task, self.task.edges()
        steps = int(task.batch(task.rows(0, 1))[1].sum(1).max())
        most = min(ONE_BY_ONE_ROWS, max(1, MAX_ONE_BY_ONE_TOKENS // (3 * steps)))
        spread = edges[:: max(1, -(-len(edges) // most))]
        rows = np.concatenate([self.rows[:most], spread, task.sample(most, rng)])
        return unique_rows(rows[task.defined(rows)])


@dataclass(frozen=True)
class ExhaustiveResult:
    """What came of running every row of a task."""

    checked: int
    wrong: int
    uncertain: int  # not right for sure; the wrong ones are among them
    margin: float  # the least lead, whichever way
    failures: list[tuple[int, ...]]  # some rows that are wrong
    doubt: str  # of a row that is right, and not for sure: why not; "" if there is none


def evaluate_domain(
    model: Model, task: Task, on_rows: Callable[[int, Rows, RobustMargins], object] | None = None
) -> ExhaustiveResult:
    """Runs every row in two orders of the same sums, and then some one at a time: which are right
    for sure? `each` is told what came of some rows when they were run, and how far it is.
    """
    trial, near, step = RobustEvaluator(model), ClosestRows(task), chunk_size(model, task)
    checked, margin, doubt = 0, np.inf, ""
    missed, unsure = DistinctCounter(), DistinctCounter()

    def count(rows: Rows, looked: RobustMargins, wrong: Any) -> None:
        nonlocal margin, doubt
        missed.add(rows[wrong])
        unsure.add(rows[~looked.certain])
        margin = min(margin, float(looked.margin.min()), float(looked.second_margin.min()))
        doubt = doubt or (looked.doubt if looked.right_but_uncertain.any() else "")

    for start in range(0, task.size, step):
        stop = min(start + step, task.size)
        rows = task.rows(start, stop)
        rows = rows[task.defined(rows)]
        if len(rows):
            looked = trial.evaluate(*task.batch(rows))
            near.add(rows, looked.margin_in_ties)
            checked += len(rows)
            count(rows, looked, ~(looked.margin > 0))
            if on_rows:
                on_rows(stop, rows, looked)
    if checked:
        rows = near.select(trial.rng)
        looked = trial.evaluate_one_by_one(*task.batch(rows))
        count(rows, looked, ~(looked.margin > 0) | ~(looked.second_margin > 0))
    wrong, open_ = (min(found.count, checked) for found in (missed, unsure))
    return ExhaustiveResult(checked, wrong, open_, margin, missed.first, doubt)


class DistinctCounter:
    """Rows that are counted once, though some come again. Of very many the last may count twice."""

    def __init__(self) -> None:
        self.count, self._known = 0, dict[tuple[int, ...], None]()

    def add(self, rows: Rows) -> None:
        again = 0
        for row in map(tuple, rows[:MAX_REMEMBERED_ROWS].tolist()):
            again += row in self._known
            if len(self._known) < MAX_REMEMBERED_ROWS:
                self._known[row] = None
        self.count += len(rows) - again

    @property
    def first(self) -> list[tuple[int, ...]]:
        return [*self._known][:MAX_KEPT_FAILURES]


def reorder_sums(model: Model, rng: np.random.Generator) -> Model:
    """The same model with its sums in another order: coordinates of the stream, neurons, heads and
    what is in a head change places, in all arrays alike.

    Sums over positions stay as they are. So do the heads of ALiBi, whose slopes go by their number,
    and queries and keys of rotary positions, whose angles go by theirs.
    """
    c, weights, xp = (
        model.config,
        dict(model.weights),
        backend.backend_for(model.weights["embed.W_E"]),
    )
    order = {"D": c.d_model, "H": c.n_heads, "K": c.d_head, "F": c.d_mlp}
    stays = {"alibi": {"H"}, "rotary": {"QK"}}.get(c.positions, set())
    if c.positions == "sinusoidal":  # waves go by the number of a coordinate: a table need not
        if c.n_ctx * c.d_model > MAX_POSITION_TABLE_ENTRIES:
            stays = {"D"}
        else:
            like = xp.spread(weights["embed.W_E"][:1], c.n_ctx)
            weights["pos_embed.W_pos"] = sinusoidal(c, Scope({}, None), like, 0)
            c = replace(c, positions="learned")
    turned = {axis: _random_order(n, rng) for axis, n in order.items() if axis not in stays}
    for name, letters in array_axes(c).items():
        asks = "QK" in stays and not name.endswith(("W_V", "b_V", "W_O"))
        for i, axis in enumerate(letters.rstrip("?")):
            if name in weights and axis in turned and not (axis == "K" and asks):
                weights[name] = xp.along(weights[name], turned[axis], i)
    return Model(c, weights, model.vocabulary)


def _random_order(n: int, rng: np.random.Generator) -> Any:
    """Another order of n things than the one they have."""
    order = rng.permutation(n)
    return order if (order != np.arange(n)).any() else order[::-1].copy()
