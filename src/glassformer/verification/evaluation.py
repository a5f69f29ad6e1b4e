"""Is it right, and by how much? Training, verification, the lens and the board ask here.

For a causal model within its block, greedy decoding is right on an input if and only if the
teacher-forced argmax is right at every answer position, so one forward pass an input is enough; any
other model decodes. (But for rounding: of many rows at once a machine may add up in another order.
`check` decodes some rows one at a time too, and proofs want what is right for sure:
robust_eval.py.) The margin of an answer token is its logit minus the best other; a margin of 0 or
less is wrong, and so is a logit that is not finite.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core import backend
from ..core.decoding import DecodingStep, decode_steps
from ..core.model import Hook, Model
from ..tasks.base import Task
from ..utils import numfmt
from ..utils.errors import GlassformerError
from ..utils.results import Result

DTYPES = ("float64", "float32", "bfloat16")
MAX_EXHAUSTIVE_ROWS = 1_100_000  # domains up to this size are counted through
MIN_MARGIN_RATIO = (
    4  # a lead counts that is more than so many times what two orders of its sums differ by
)


# ── margins ────────────────────────────────────────────────────────────────────────────────────
def row_margins(model: Model, tokens: Any, answer: Any, hook: Hook | None = None) -> Any:
    """The smallest margin over each row's answer tokens, [B]; NaN where a logit is not finite."""
    return token_margins(model, tokens, answer, hook).min(-1)


def token_margins(model: Model, tokens: Any, answer: Any, hook: Hook | None = None) -> Any:
    """The margin of every answer token, [B,n] for the last n positions; inf where no answer is.

    NaN where a logit is not finite. For a model that decodes, what follows its first wrong token is
    as wrong.
    """
    causal = model.config.mask == "causal"
    return (teacher_forced_margins if causal else decoded_margins)(model, tokens, answer, hook)


def teacher_forced_margins(model: Model, tokens: Any, answer: Any, hook: Hook | None = None) -> Any:
    """The same with the right tokens given at every position."""
    _check_length(model, tokens)
    n = answer_span(answer)
    return _margins_of_logits(model.logits(tokens[:, :-1], hook, n), tokens[:, -n:], answer[:, -n:])


def decoded_margins(model: Model, tokens: Any, answer: Any, hook: Hook | None = None) -> Any:
    """The same for a model whose past depends on what is to come: each row is decoded."""
    return decoded_margins_and_ties(model, tokens, answer, hook).margin


class Margins(NamedTuple):
    """The margin of every answer token, and what is a tie there: [B,n] each, as `gaps` has it."""

    margin: Any
    tie: Any

    def clear_in_both(self, other: "Margins") -> Any:
        """Where a token leads in two orders of the same sums, by more than a tie in both and by
        more than APART times what they differ by: bool [B,n].
        """
        with np.errstate(invalid="ignore"):  # inf - inf, where no answer is
            apart = np.where(self.margin == other.margin, 0, np.abs(self.margin - other.margin))
        clear = (self.margin > self.tie) & (other.margin > other.tie)
        return clear & (np.minimum(self.margin, other.margin) > MIN_MARGIN_RATIO * apart)


def margins_and_ties(model: Model, tokens: Any, answer: Any) -> Margins:
    """As `gaps`, with what is a tie in the model's own float type."""
    if model.config.mask != "causal":
        return decoded_margins_and_ties(model, tokens, answer)
    _check_length(model, tokens)
    n = answer_span(answer)
    logits = model.logits(tokens[:, :-1], None, n)
    tie = _tie_sizes(model, logits)
    return Margins(_margins_of_logits(logits, tokens[:, -n:], answer[:, -n:]), tie)


def decoded_margins_and_ties(
    model: Model, tokens: Any, answer: Any, hook: Hook | None = None
) -> Margins:
    """The same, decoded."""
    _check_length(model, tokens)
    pieces = (answer[:, 1:] & ~answer[:, :-1]).sum(1)
    if model.config.mask != "causal" and (pieces > 1).any():  # what follows a gap is never said
        what = "expected an answer in one piece, got several: the rest is not its to say"
        raise GlassformerError(f"a model that decodes — {what}")
    out, ties = np.full(tokens.shape, np.inf), np.zeros(tokens.shape)
    failed = np.full(len(tokens), np.inf)  # the margin of the first wrong token
    for rows, t, step in decode_answers(model, tokens, answer, hook):
        ties[rows, t] = _tie_sizes(model, step.logits)
        gap = _margins_of_logits(
            step.logits[:, None], tokens[rows, t][:, None], answer[rows, t][:, None]
        )[:, 0]
        failed[rows] = np.where((failed[rows] == np.inf) & ~(gap > 0), gap, failed[rows])
        out[rows, t] = np.where((failed[rows] == np.inf) | ~answer[rows, t], gap, failed[rows])
    n = answer_span(answer)
    return Margins(out[:, -n:], ties[:, -n:])


def _tie_sizes(model: Model, logits: Any) -> Any:
    return numfmt.tie_tolerance_at(backend.max_last_axis(np.abs(logits)), model.dtype)


def _check_length(model: Model, tokens: Any) -> None:
    if (n := tokens.shape[1] - 1) > (block := model.config.n_ctx):
        way_out = "a task of shorter texts, or a model with a larger block, was expected"
        what = f"an example of {n} tokens — longer than the block of {block}"
        raise GlassformerError(f"{what}: {way_out}")


def answer_span(answer: Any) -> int:
    """How many positions there are from the first answer token of any row on."""
    return int(answer.shape[1] - answer.any(0).argmax())


def _margins_of_logits(logits: Any, wanted: Any, asked: Any) -> Any:
    """logits [B,T,V], wanted [B,T], asked [B,T] -> [B,T]."""
    at = wanted[..., None]
    with np.errstate(all="ignore"):
        # What is not finite makes a sum so; only then is every number looked at.
        finite = True if np.isfinite(logits.sum()) else np.isfinite(logits).all(-1)
        right = np.take_along_axis(logits, at, -1)[..., 0]
        others = logits if logits.flags.writeable else logits.copy()
        np.put_along_axis(others, at, -np.inf, -1)
        gap = np.where(finite, right - backend.max_last_axis(others), np.nan)
    return np.where(asked, gap, np.inf)


# ── what a model says ──────────────────────────────────────────────────────────────────────────
def decode_answers(
    model: Model, tokens: Any, answer: Any, hook: Hook | None = None, steps: int = 0
) -> Iterator[tuple[Any, int, DecodingStep]]:
    """Decodes all rows, those of one prompt length together: rows, the position written, the step.

    `steps`: so many tokens of each; by default as many as the right answer has.
    """
    first = answer.argmax(1)
    for start in np.unique(first):
        rows = np.flatnonzero(first == start)
        n = steps or int(answer[rows].sum(1).max())
        for t, step in enumerate(
            decode_steps(model, tokens[rows, :start], n, hook=hook), int(start)
        ):
            yield rows, t, step


def greedy_outputs(model: Model, tokens: Any, answer: Any, hook: Hook | None = None) -> Any:
    """The tokens [B,T], and where the answer is what the model says when it reads its own words."""
    out = tokens.copy()
    for rows, t, step in decode_answers(model, tokens, answer, hook):
        out[rows, t] = step.chosen
    return out


# ── how much of it is right ────────────────────────────────────────────────────────────────────
def correct_tokens(
    model: Model,
    task: Task,
    rows: Any,
    hook: Hook | None = None,
    teacher_forced: bool | None = None,
) -> Any:
    """Which answer tokens are right, bool [B, longest answer]; beyond the end of an answer, True.

    `forced`: the right tokens are given and the next one is asked for; else the model reads what it
    said. For a causal model both are right on the same rows, so the first (which is cheaper) is the
    default; the others are decoded.
    """
    return margins_by_answer_token(model, task, rows, hook, teacher_forced) > 0


def margins_by_answer_token(
    model: Model,
    task: Task,
    rows: Any,
    hook: Hook | None = None,
    teacher_forced: bool | None = None,
    chunk: int = 0,
) -> Any:
    """The same as margins, the first token of each answer first; beyond its end, inf. `chunk`: so
    many rows at a time; 0: as many as fit into a few megabytes.
    """
    measure = {None: token_margins, True: teacher_forced_margins, False: decoded_margins}[
        teacher_forced
    ]
    out, chunk = [], chunk or chunk_size(model, task)
    for start in range(0, len(rows), chunk):
        tokens, answer = task.batch(rows[start : start + chunk])
        out.append(_align_answers(measure(model, tokens, answer, hook), answer))
    width = max((part.shape[1] for part in out), default=0)
    padded = [np.pad(p, ((0, 0), (0, width - p.shape[1])), constant_values=np.inf) for p in out]
    return np.concatenate([np.zeros((0, width)), *padded])


def correct_logits(logits: Any, wanted: Any) -> Any:
    """The same of logits that were computed already: [...,V], wanted [...] -> bool [...]."""
    return _margins_of_logits(np.array(logits), wanted, True) > 0


def _align_answers(gap: Any, answer: Any) -> Any:
    """Margins as `gaps` gives them, the first token of each answer first: [B, longest answer]."""
    order = np.argsort(~answer[:, -gap.shape[1] :], axis=1, kind="stable")
    return np.take_along_axis(gap, order[:, : int(answer.sum(1).max())], 1)


@dataclass(frozen=True)
class Score(Result):
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


def score(model: Model, task: Task, rows: Any = None, hook: Hook | None = None) -> Score:
    """Checks rows [B, …], or the whole domain up to about a million rows and a sample beyond.

    >>> score(load("reverse"), load_task("reverse"), tap=ablation(…)).accuracy
    """
    if rows is None and task.size > MAX_EXHAUSTIVE_ROWS:
        rows = task.sample(task.default_sample_size, np.random.default_rng(0))
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
        gap = _align_answers(token_margins(model, tokens, answer, hook), answer)  # B n
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


# ── so many at a time, in which float type ─────────────────────────────────────────────────────
def domain_chunks(task: Task, size: int) -> Iterator[Any]:
    """All rows of a task for which it has an answer, about so many at a time."""
    for start in range(0, task.size, size):
        rows = task.rows(start, min(start + size, task.size))
        rows = rows[task.defined(rows)]
        if len(rows):
            yield rows


def chunk_size(model: Model, task: Task) -> int:
    """So many rows at a time that activations stay within a few megabytes."""
    return int(np.clip(2**20 // peak_activation_size(model, task), 1, 2**14))


def peak_activation_size(model: Model, task: Task) -> int:
    """Numbers of the largest activation of one row."""
    tokens, answer = task.batch(task.rows(0, 1))
    c, T = model.config, tokens.shape[1]
    asked = int(answer.sum(1).max())
    rows = T if c.n_layers > 1 else asked  # the last block computes what is asked alone
    heads = c.n_heads * max(rows * T, T * c.d_head)
    return int(max(1, T * c.d_model, rows * c.d_mlp, heads, asked * c.d_vocab))


def in_dtype(model: Model, dtype: str) -> Model:
    """The model in another float type, or "" for its own. Only PyTorch computes in bfloat16."""
    if not dtype or dtype == model.dtype:
        return model
    if dtype not in DTYPES:
        raise GlassformerError(f"dtype {dtype} — expected one of {', '.join(DTYPES)}")
    on_torch = dtype == "bfloat16" or not model.is_numpy
    return model.torch(dtype) if on_torch else model.astype(dtype)
