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
from ..core.model import Model, Place, sinusoidal
from ..core.weight_shapes import axes
from ..tasks.base import Rows, Task
from ..tasks.bigint_rows import distinct
from .evaluation import Leads, asked_positions, chunk_size, decoded_leads, leads

ALONE = 100  # rows each, run one at a time: edges, the smallest leads, some at random
STEPS = 1_500  # tokens that these may take in all
MISSES = 8  # rows that are wrong and kept
KNOWN = 10_000  # rows that are known again
TABLE = 2**24  # numbers of a table of positions


class Looked(NamedTuple):
    """What came of some rows that were run in two ways: [B] each."""

    lead: Any  # of the right token over the best other, the least over the answer
    again: Any  # the same, the other way
    sure: Any  # bool: right both ways, by more than rounding could turn
    room: Any  # the lead as so many ties
    doubt: str  # why a row is not sure, the first that is right if there is one; "": all are sure

    @property
    def doubtful(self) -> Any:
        """Which are right, and not for sure."""
        return (self.lead > 0) & ~self.sure


class Trial:
    """What a model has right for sure, as far as running it can say.

    Rows are run in two orders of the same sums (`look`), and some of them one at a time, as `run`
    does (`alone`): one row may be added up in another order than many. That is what this machine
    does, tried out; it is no bound.
    """

    def __init__(self, model: Model) -> None:
        self.model, self.rng = model, np.random.default_rng(int(digest(model)[:16], 16))
        self.other = reordered(model, self.rng)

    def look(self, tokens: Any, answer: Any) -> Looked:
        """Examples, as `Task.batch` has them, in both orders."""
        ways = "in one order of the same sums", "in another"
        return self._compared(tokens, answer, leads(self.other, tokens, answer), ways)

    def alone(self, tokens: Any, answer: Any) -> Looked:
        """Examples with others, and one at a time."""
        found = Leads(np.full(answer.shape, np.inf), np.zeros(answer.shape))
        for i in range(len(tokens)):
            one = decoded_leads(self.model, tokens[[i]], answer[[i]])
            for whole, part in zip(found, one, strict=True):
                whole[i, -part.shape[1] :] = part[0]
        found = Leads(*(x[:, -asked_positions(answer) :] for x in found))
        return self._compared(tokens, answer, found, ("together with others", "alone"))

    def _compared(self, tokens: Any, answer: Any, other: Leads, ways: tuple[str, str]) -> Looked:
        one = leads(self.model, tokens, answer)
        steady, lead = one.steady(other), one.gap.min(1)
        sure = steady.all(1)
        with np.errstate(invalid="ignore", divide="ignore"):  # where no answer is; ties of 0
            room = np.nan_to_num(one.gap / one.tie, nan=-np.inf).min(1)
        found = Looked(lead, other.gap.min(1), sure, room, "")
        if sure.all():
            return found
        i = int((found.doubtful if found.doubtful.any() else ~sure).argmax())
        asked = self.model.vocabulary.decode(tokens[i, : int(answer[i].argmax())])
        why = _doubt(one, other, (i, steady[i].argmin()), ways) if lead[i] > 0 else ""
        return found._replace(doubt=f"{asked} is {f'right by {why}' if why else 'wrong'}")


def _doubt(one: Leads, other: Leads, at: tuple[Any, Any], ways: tuple[str, str]) -> str:
    x, y = one.gap[at], other.gap[at]
    if y > 0 and not (x > one.tie[at] and y > other.tie[at]):
        return f"{x:.2g}, which another order of the same sums could turn"
    return f"{x:.2g} {ways[0]} and {f'by {y:.2g}' if y > 0 else 'wrong'} {ways[1]}"


class Near:
    """The rows that were nearest to a tie, and others that are worth running alone."""

    def __init__(self, task: Task) -> None:
        self.task, self.room = task, np.zeros(0)
        self.rows: Rows = np.zeros((0, len(task.radix)), task.row_type)

    def see(self, rows: Rows, room: Any) -> None:
        room, rows = np.concatenate([self.room, room]), np.concatenate([self.rows, rows])
        least = np.argsort(room, kind="stable")[:ALONE]
        self.room, self.rows = room[least], rows[least]

    def picked(self, rng: np.random.Generator) -> Rows:
        """The nearest, some edges and some at random, each once."""
        task, edges = self.task, self.task.edges()
        steps = int(task.batch(task.rows(0, 1))[1].sum(1).max())
        most = min(ALONE, max(1, STEPS // (3 * steps)))
        spread = edges[:: max(1, -(-len(edges) // most))]
        rows = np.concatenate([self.rows[:most], spread, task.sample(most, rng)])
        return distinct(rows[task.defined(rows)])


@dataclass(frozen=True)
class Ran:
    """What came of running every row of a task."""

    checked: int
    wrong: int
    open: int  # not right for sure; the wrong ones are among them
    margin: float  # the least lead, whichever way
    misses: list[tuple[int, ...]]  # some rows that are wrong
    doubt: str  # of a row that is right, and not for sure: why not; "" if there is none


def run_all(
    model: Model, task: Task, each: Callable[[int, Rows, Looked], object] | None = None
) -> Ran:
    """Runs every row in two orders of the same sums, and then some one at a time: which are right
    for sure? `each` is told what came of some rows when they were run, and how far it is.
    """
    trial, near, step = Trial(model), Near(task), chunk_size(model, task)
    checked, margin, doubt = 0, np.inf, ""
    missed, unsure = Counted(), Counted()

    def count(rows: Rows, looked: Looked, wrong: Any) -> None:
        nonlocal margin, doubt
        missed.add(rows[wrong])
        unsure.add(rows[~looked.sure])
        margin = min(margin, float(looked.lead.min()), float(looked.again.min()))
        doubt = doubt or (looked.doubt if looked.doubtful.any() else "")

    for start in range(0, task.size, step):
        stop = min(start + step, task.size)
        rows = task.rows(start, stop)
        rows = rows[task.defined(rows)]
        if len(rows):
            looked = trial.look(*task.batch(rows))
            near.see(rows, looked.room)
            checked += len(rows)
            count(rows, looked, ~(looked.lead > 0))
            if each:
                each(stop, rows, looked)
    if checked:
        rows = near.picked(trial.rng)
        looked = trial.alone(*task.batch(rows))
        count(rows, looked, ~(looked.lead > 0) | ~(looked.again > 0))
    wrong, open_ = (min(found.count, checked) for found in (missed, unsure))
    return Ran(checked, wrong, open_, margin, missed.first, doubt)


class Counted:
    """Rows that are counted once, though some come again. Of very many the last may count twice."""

    def __init__(self) -> None:
        self.count, self._known = 0, dict[tuple[int, ...], None]()

    def add(self, rows: Rows) -> None:
        again = 0
        for row in map(tuple, rows[:KNOWN].tolist()):
            again += row in self._known
            if len(self._known) < KNOWN:
                self._known[row] = None
        self.count += len(rows) - again

    @property
    def first(self) -> list[tuple[int, ...]]:
        return [*self._known][:MISSES]


def reordered(model: Model, rng: np.random.Generator) -> Model:
    """The same model with its sums in another order: coordinates of the stream, neurons, heads and
    what is in a head change places, in all arrays alike.

    Sums over positions stay as they are. So do the heads of ALiBi, whose slopes go by their number,
    and queries and keys of rotary positions, whose angles go by theirs.
    """
    c, weights, xp = model.config, dict(model.weights), backend.of(model.weights["embed.W_E"])
    order = {"D": c.d_model, "H": c.n_heads, "K": c.d_head, "F": c.d_mlp}
    stays = {"alibi": {"H"}, "rotary": {"QK"}}.get(c.positions, set())
    if c.positions == "sinusoidal":  # waves go by the number of a coordinate: a table need not
        if c.n_ctx * c.d_model > TABLE:
            stays = {"D"}
        else:
            like = xp.spread(weights["embed.W_E"][:1], c.n_ctx)
            weights["pos_embed.W_pos"] = sinusoidal(c, Place({}, None), like, 0)
            c = replace(c, positions="learned")
    turned = {axis: _shuffled(n, rng) for axis, n in order.items() if axis not in stays}
    for name, letters in axes(c).items():
        asks = "QK" in stays and not name.endswith(("W_V", "b_V", "W_O"))
        for i, axis in enumerate(letters.rstrip("?")):
            if name in weights and axis in turned and not (axis == "K" and asks):
                weights[name] = xp.along(weights[name], turned[axis], i)
    return Model(c, weights, model.vocabulary)


def _shuffled(n: int, rng: np.random.Generator) -> Any:
    """Another order of n things than the one they have."""
    order = rng.permutation(n)
    return order if (order != np.arange(n)).any() else order[::-1].copy()
