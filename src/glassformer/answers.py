"""Is it right, and by how much? Training, verification, the lens and the board ask here.

For a causal model within its block, greedy decoding is right on an input if and only if the
teacher-forced argmax is right at every answer position, so one forward pass an input is enough; any
other model decodes. (But for rounding: of many rows at once a machine may add up in another order.
`check` decodes some rows one at a time too, and proofs want what is right for sure: `Trial`.) The
margin of an answer token is its logit minus the best other; a margin of 0 or less is wrong, and so
is a logit that is not finite.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from . import arrays, dust
from .checkpoint import digest
from .decoding import Step, stream
from .errors import GlassformerError
from .finding import Finding
from .model import Model, Place, Tap, sinusoidal
from .shapes import axes
from .tasks.base import Rows, Task
from .tasks.digits import distinct

DTYPES = ("float64", "float32", "bfloat16")
EXHAUSTIVE = 1_100_000  # domains up to this size are counted through
APART = 4  # a lead counts that is more than so many times what two orders of its sums differ by
ALONE = 100  # rows each, run one at a time: edges, the smallest leads, some at random
STEPS = 1_500  # tokens that these may take in all
MISSES = 8  # rows that are wrong and kept
KNOWN = 10_000  # rows that are known again
TABLE = 2**24  # numbers of a table of positions


# ── margins ────────────────────────────────────────────────────────────────────────────────────
def margins(model: Model, tokens: Any, answer: Any, tap: Tap | None = None) -> Any:
    """The smallest margin over each row's answer tokens, [B]; NaN where a logit is not finite."""
    return gaps(model, tokens, answer, tap).min(-1)


def gaps(model: Model, tokens: Any, answer: Any, tap: Tap | None = None) -> Any:
    """The margin of every answer token, [B,n] for the last n positions; inf where no answer is.

    NaN where a logit is not finite. For a model that decodes, what follows its first wrong token is
    as wrong.
    """
    causal = model.config.mask == "causal"
    return (forced_gaps if causal else decoded_gaps)(model, tokens, answer, tap)


def forced_gaps(model: Model, tokens: Any, answer: Any, tap: Tap | None = None) -> Any:
    """The same with the right tokens given at every position."""
    _check_length(model, tokens)
    n = _asked(answer)
    return _gaps(model.logits(tokens[:, :-1], tap, n), tokens[:, -n:], answer[:, -n:])


def decoded_gaps(model: Model, tokens: Any, answer: Any, tap: Tap | None = None) -> Any:
    """The same for a model whose past depends on what is to come: each row is decoded."""
    return decoded_leads(model, tokens, answer, tap).gap


class Leads(NamedTuple):
    """The margin of every answer token, and what is a tie there: [B,n] each, as `gaps` has it."""

    gap: Any
    tie: Any

    def steady(self, other: "Leads") -> Any:
        """Where a token leads in two orders of the same sums, by more than a tie in both and by
        more than APART times what they differ by: bool [B,n].
        """
        with np.errstate(invalid="ignore"):  # inf - inf, where no answer is
            apart = np.where(self.gap == other.gap, 0, np.abs(self.gap - other.gap))
        clear = (self.gap > self.tie) & (other.gap > other.tie)
        return clear & (np.minimum(self.gap, other.gap) > APART * apart)


def leads(model: Model, tokens: Any, answer: Any) -> Leads:
    """As `gaps`, with what is a tie in the model's own float type."""
    if model.config.mask != "causal":
        return decoded_leads(model, tokens, answer)
    _check_length(model, tokens)
    n = _asked(answer)
    logits = model.logits(tokens[:, :-1], None, n)
    tie = _ties(model, logits)
    return Leads(_gaps(logits, tokens[:, -n:], answer[:, -n:]), tie)


def decoded_leads(model: Model, tokens: Any, answer: Any, tap: Tap | None = None) -> Leads:
    """The same, decoded."""
    _check_length(model, tokens)
    out, ties = np.full(tokens.shape, np.inf), np.zeros(tokens.shape)
    failed = np.full(len(tokens), np.inf)  # the margin of the first wrong token
    for rows, t, step in decoded(model, tokens, answer, tap):
        ties[rows, t] = _ties(model, step.logits)
        gap = _gaps(step.logits[:, None], tokens[rows, t][:, None], answer[rows, t][:, None])[:, 0]
        failed[rows] = np.where((failed[rows] == np.inf) & ~(gap > 0), gap, failed[rows])
        out[rows, t] = np.where((failed[rows] == np.inf) | ~answer[rows, t], gap, failed[rows])
    n = _asked(answer)
    return Leads(out[:, -n:], ties[:, -n:])


def _ties(model: Model, logits: Any) -> Any:
    return dust.tie_of(arrays.largest(np.abs(logits)), model.dtype)


def _check_length(model: Model, tokens: Any) -> None:
    if (n := tokens.shape[1] - 1) > (block := model.config.n_ctx):
        way_out = "a task of shorter texts, or a model with a larger block, was expected"
        what = f"an example of {n} tokens — longer than the block of {block}"
        raise GlassformerError(f"{what}: {way_out}")


def _asked(answer: Any) -> int:
    """How many positions there are from the first answer token of any row on."""
    return int(answer.shape[1] - answer.any(0).argmax())


def _gaps(logits: Any, wanted: Any, asked: Any) -> Any:
    """logits [B,T,V], wanted [B,T], asked [B,T] -> [B,T]."""
    at = wanted[..., None]
    with np.errstate(all="ignore"):
        # What is not finite makes a sum so; only then is every number looked at.
        finite = True if np.isfinite(logits.sum()) else np.isfinite(logits).all(-1)
        right = np.take_along_axis(logits, at, -1)[..., 0]
        others = logits if logits.flags.writeable else logits.copy()
        np.put_along_axis(others, at, -np.inf, -1)
        gap = np.where(finite, right - arrays.largest(others), np.nan)
    return np.where(asked, gap, np.inf)


# ── what a model says ──────────────────────────────────────────────────────────────────────────
def decoded(
    model: Model, tokens: Any, answer: Any, tap: Tap | None = None, steps: int = 0
) -> Iterator[tuple[Any, int, Step]]:
    """Decodes all rows, those of one prompt length together: rows, the position written, the step.

    `steps`: so many tokens of each; by default as many as the right answer has.
    """
    first = answer.argmax(1)
    for start in np.unique(first):
        rows = np.flatnonzero(first == start)
        n = steps or int(answer[rows].sum(1).max())
        for t, step in enumerate(stream(model, tokens[rows, :start], n, tap=tap), int(start)):
            yield rows, t, step


def said(model: Model, tokens: Any, answer: Any, tap: Tap | None = None) -> Any:
    """The tokens [B,T], and where the answer is what the model says when it reads its own words."""
    out = tokens.copy()
    for rows, t, step in decoded(model, tokens, answer, tap):
        out[rows, t] = step.chosen
    return out


# ── how much of it is right ────────────────────────────────────────────────────────────────────
def right(
    model: Model, task: Task, rows: Any, tap: Tap | None = None, forced: bool | None = None,
    chunk: int = 512,
) -> Any:  # fmt: skip
    """Which answer tokens are right, bool [B, longest answer]; beyond the end of an answer, True.

    `forced`: the right tokens are given and the next one is asked for; else the model reads what it
    said. For a causal model both are right on the same rows, so the first (which is cheaper) is the
    default; the others are decoded.
    """
    measure = {None: gaps, True: forced_gaps, False: decoded_gaps}[forced]
    out = []
    for start in range(0, len(rows), chunk):
        tokens, answer = task.batch(rows[start : start + chunk])
        out.append(_by_token(measure(model, tokens, answer, tap), answer) > 0)
    width = max((part.shape[1] for part in out), default=0)
    padded = [np.pad(p, ((0, 0), (0, width - p.shape[1])), constant_values=True) for p in out]
    return np.concatenate([np.zeros((0, width), bool), *padded])


def right_tokens(logits: Any, wanted: Any) -> Any:
    """The same of logits that were computed already: [...,V], wanted [...] -> bool [...]."""
    return _gaps(np.array(logits), wanted, True) > 0


def _by_token(gap: Any, answer: Any) -> Any:
    """Margins as `gaps` gives them, the first token of each answer first: [B, longest answer]."""
    order = np.argsort(~answer[:, -gap.shape[1] :], axis=1, kind="stable")
    return np.take_along_axis(gap, order[:, : int(answer.sum(1).max())], 1)


@dataclass(frozen=True)
class Score(Finding):
    """What share of the answers is right."""

    also = ("accuracy",)
    checked: int
    wrong: int
    positions: list[float]  # accuracy of each token of the answer
    classes: dict[str, tuple[int, int]]  # class of input -> checked, wrong

    @property
    def accuracy(self) -> float:
        return 1 - self.wrong / self.checked if self.checked else math.nan

    def __str__(self) -> str:
        return f"{self.accuracy:.2%} of {self.checked:,} right"


def score(model: Model, task: Task, rows: Any = None, tap: Tap | None = None) -> Score:
    """Checks rows [B, …], or the whole domain up to about a million rows and a sample beyond.

    >>> score(load("reverse"), load_task("reverse"), tap=ablation(…)).accuracy
    """
    if rows is None and task.size > EXHAUSTIVE:
        rows = task.sample(task.worth_checking, np.random.default_rng(0))
    todo, step = task.size if rows is None else len(rows), chunk_size(model, task)
    right, asked, classes = np.zeros(0), np.zeros(0), dict[str, tuple[int, int]]()
    checked = wrong = 0
    for start in range(0, todo, step):
        stop = min(start + step, todo)
        part = task.rows(start, stop) if rows is None else rows[start:stop]
        part = part[task.defined(part)]
        if not len(part):
            continue
        tokens, answer = task.batch(part)
        gap = _by_token(gaps(model, tokens, answer, tap), answer)  # B n
        there, more = gap != np.inf, max(gap.shape[1] - len(right), 0)
        right, asked = (np.pad(x, (0, more)) for x in (right, asked))
        right[: gap.shape[1]] += ((gap > 0) & there).sum(0)
        asked[: gap.shape[1]] += there.sum(0)
        good = (gap > 0).all(1)
        checked, wrong = checked + len(part), wrong + int((~good).sum())
        names, index = np.unique(task.classes(part), return_inverse=True)
        for name, n, bad in zip(names, np.bincount(index), np.bincount(index, ~good), strict=True):
            before = classes.get(str(name), (0, 0))
            classes[str(name)] = (before[0] + int(n), before[1] + int(bad))
    positions = (right / np.maximum(asked, 1)).tolist()
    return Score(checked, wrong, positions, classes)


# ── right for sure ─────────────────────────────────────────────────────────────────────────────
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
        found = Leads(*(x[:, -_asked(answer) :] for x in found))
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
    c, weights, xp = model.config, dict(model.weights), arrays.of(model.weights["embed.W_E"])
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


# ── so many at a time, in which float type ─────────────────────────────────────────────────────
def whole_domain(task: Task, size: int) -> Iterator[Any]:
    """All rows of a task for which it has an answer, about so many at a time."""
    for start in range(0, task.size, size):
        rows = task.rows(start, min(start + size, task.size))
        rows = rows[task.defined(rows)]
        if len(rows):
            yield rows


def chunk_size(model: Model, task: Task) -> int:
    """So many rows at a time that activations stay within a few megabytes."""
    return int(np.clip(2**20 // widest(model, task), 1, 2**14))


def widest(model: Model, task: Task) -> int:
    """Numbers of the largest activation of one row."""
    tokens, answer = task.batch(task.rows(0, 1))
    c, T = model.config, tokens.shape[1]
    asked = int(answer.sum(1).max())
    rows = T if c.n_layers > 1 else asked  # the last block computes what is asked alone
    heads = c.n_heads * max(rows * T, T * c.d_head)
    return int(max(1, T * c.d_model, rows * c.d_mlp, heads, asked * c.d_vocab))


def cast(model: Model, dtype: str) -> Model:
    """The model in another float type, or "" for its own. Only PyTorch computes in bfloat16."""
    if not dtype or dtype == model.dtype:
        return model
    if dtype not in DTYPES:
        raise GlassformerError(f"dtype {dtype} — expected one of {', '.join(DTYPES)}")
    on_torch = dtype == "bfloat16" or not model.is_numpy
    return model.torch(dtype) if on_torch else model.astype(dtype)
