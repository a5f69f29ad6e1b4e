"""Margins and scores of a model on a task.

The margin of an answer token is its logit minus the largest other logit. The token is wrong if its
margin is 0 or less or if a logit is not finite. For a causal model within its context, greedy
decoding is right if and only if the teacher-forced argmax is right at every answer position, so one
forward pass per input is enough; other models decode. Rounding may differ between batch sizes:
`verify` also decodes some rows one at a time, and proofs use robust_eval.py.
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
from ..utils.progress import Progress, ProgressCallback
from ..utils.results import Result

DTYPES = ("float64", "float32", "bfloat16")
MAX_EXHAUSTIVE_ROWS = 1_100_000  # larger domains are sampled
MIN_MARGIN_RATIO = 4  # margin over its change between two summation orders


# ── margins ────────────────────────────────────────────────────────────────────────────────────
def row_margins(model: Model, tokens: Any, answer: Any, hook: Hook | None = None) -> Any:
    """Return each row's smallest answer margin [B]; NaN if a logit is not finite."""
    return token_margins(model, tokens, answer, hook).min(-1)


def token_margins(model: Model, tokens: Any, answer: Any, hook: Hook | None = None) -> Any:
    """Return the margins [B,n] at the last n positions: inf outside the answer, NaN if not finite.

    Models that are not causal decode their answers; tokens after a wrong token get its margin.
    """
    causal = model.config.mask == "causal"
    return (teacher_forced_margins if causal else decoded_margins)(model, tokens, answer, hook)


def teacher_forced_margins(model: Model, tokens: Any, answer: Any, hook: Hook | None = None) -> Any:
    """Return the token margins [B,n] of a forward pass with the right tokens as input."""
    _check_length(model, tokens)
    n = answer_span(answer)
    return _margins_of_logits(model.logits(tokens[:, :-1], hook, n), tokens[:, -n:], answer[:, -n:])


def decoded_margins(model: Model, tokens: Any, answer: Any, hook: Hook | None = None) -> Any:
    """Return the token margins [B,n] of greedy decoding."""
    return decoded_margins_and_ties(model, tokens, answer, hook).margin


class Margins(NamedTuple):
    """Margins of answer tokens, and the largest margins that count as a tie, each [B,n]."""

    margin: Any
    tie: Any

    def clear_in_both(self, other: "Margins") -> Any:
        """Return a mask of tokens whose margins exceed a tie and MIN_MARGIN_RATIO differences."""
        one, two = self.margin, other.margin
        with np.errstate(invalid="ignore"):  # inf - inf outside the answer
            difference = np.where(one == two, 0, np.abs(one - two))
        above_tie = (one > self.tie) & (two > other.tie)
        return above_tie & (np.minimum(one, two) > MIN_MARGIN_RATIO * difference)


def margins_and_ties(model: Model, tokens: Any, answer: Any) -> Margins:
    """Return the token margins and the tie sizes in the model's float type."""
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
    """Return the token margins of greedy decoding and the tie sizes."""
    _check_length(model, tokens)
    pieces = (answer[:, 1:] & ~answer[:, :-1]).sum(1)
    if model.config.mask != "causal" and (pieces > 1).any():  # decoding stops after the first
        expected = "expected the answer tokens in one piece, got several; use a causal model"
        raise GlassformerError(f"mask=none — {expected}")
    margins, ties = np.full(tokens.shape, np.inf), np.zeros(tokens.shape)
    failed = np.full(len(tokens), np.inf)  # margin of the first wrong token
    for rows, t, step in decode_answers(model, tokens, answer, hook):
        ties[rows, t] = _tie_sizes(model, step.logits)
        margin = _margins_of_logits(step.logits, tokens[rows, t], answer[rows, t])
        failed[rows] = np.where((failed[rows] == np.inf) & ~(margin > 0), margin, failed[rows])
        right = (failed[rows] == np.inf) | ~answer[rows, t]
        margins[rows, t] = np.where(right, margin, failed[rows])
    n = answer_span(answer)
    return Margins(margins[:, -n:], ties[:, -n:])


def _tie_sizes(model: Model, logits: Any) -> Any:
    return numfmt.tie_tolerance_at(backend.max_last_axis(np.abs(logits)), model.dtype)


def _check_length(model: Model, tokens: Any) -> None:
    if (n := tokens.shape[1] - 1) > (block := model.config.n_ctx):
        expected = f"expected at most {block} tokens (n_ctx)"
        raise GlassformerError(f"tokens — {expected}, got {n}; use a task with shorter inputs")


def answer_span(answer: Any) -> int:
    """Return the number of positions from the first answer token of any row to the end."""
    return int(answer.shape[1] - answer.any(0).argmax())


def _margins_of_logits(logits: Any, wanted: Any, answer: Any) -> Any:
    """Return the margins of the wanted tokens [...] in logits [...,V]; inf outside the answer."""
    index = wanted[..., None]
    with np.errstate(all="ignore"):
        # If the sum is finite, all logits are; otherwise each logit is checked.
        finite = True if np.isfinite(logits.sum()) else np.isfinite(logits).all(-1)
        right = np.take_along_axis(logits, index, -1)[..., 0]
        others = logits if logits.flags.writeable else logits.copy()
        np.put_along_axis(others, index, -np.inf, -1)
        margin = np.where(finite, right - backend.max_last_axis(others), np.nan)
    return np.where(answer, margin, np.inf)


# ── decoding ───────────────────────────────────────────────────────────────────────────────────
def decode_answers(
    model: Model, tokens: Any, answer: Any, hook: Hook | None = None, steps: int = 0
) -> Iterator[tuple[Any, int, DecodingStep]]:
    """Decode all rows in batches of equal prompt length; yield row indices, position and step.

    `steps` is the number of tokens to decode; 0 decodes the length of the right answer.
    """
    first = answer.argmax(1)
    for start in np.unique(first):
        rows = np.flatnonzero(first == start)
        n = steps or int(answer[rows].sum(1).max())
        steps_of_rows = decode_steps(model, tokens[rows, :start], n, hook=hook)
        for t, step in enumerate(steps_of_rows, int(start)):
            yield rows, t, step


def greedy_outputs(model: Model, tokens: Any, answer: Any, hook: Hook | None = None) -> Any:
    """Return the tokens [B,T], with the answers replaced by the model's greedy outputs."""
    out = tokens.copy()
    for rows, t, step in decode_answers(model, tokens, answer, hook):
        out[rows, t] = step.chosen
    return out


# ── scores ─────────────────────────────────────────────────────────────────────────────────────
def correct_tokens(
    model: Model, task: Task, rows: Any, hook: Hook | None = None, **options: Any
) -> Any:
    """Return a mask of the right answer tokens [B, longest answer]; True after an answer's end."""
    return margins_by_answer_token(model, task, rows, hook, **options) > 0


def margins_by_answer_token(
    model: Model, task: Task, rows: Any, hook: Hook | None = None,
    teacher_forced: bool | None = None, chunk: int = 0, progress: ProgressCallback | None = None,
) -> Any:  # fmt: skip
    """Return margins [B, longest answer], aligned at the first answer token; inf after the end.

    With `teacher_forced` the input contains the right tokens, otherwise the model decodes. None
    means teacher forcing for causal models, for which both methods are right on the same rows.
    `chunk` is the number of rows in one forward pass and defaults to `chunk_size`.
    """
    methods = {None: token_margins, True: teacher_forced_margins, False: decoded_margins}
    margins, chunk = [], chunk or chunk_size(model, task)
    for start in range(0, len(rows), chunk):
        tokens, answer = task.batch(rows[start : start + chunk])
        margins.append(_align_answers(methods[teacher_forced](model, tokens, answer, hook), answer))
        if progress:
            progress(Progress(min(start + chunk, len(rows)), len(rows)))
    width = max((m.shape[1] for m in margins), default=0)
    padded = [np.pad(m, ((0, 0), (0, width - m.shape[1])), constant_values=np.inf) for m in margins]
    return np.concatenate([np.zeros((0, width)), *padded])


def correct_logits(logits: Any, wanted: Any) -> Any:
    """Return a mask of logits [...,V] whose unique argmax is the wanted token."""
    return _margins_of_logits(np.array(logits), wanted, True) > 0


def _align_answers(margins: Any, answer: Any) -> Any:
    """Align token margins [B,n] at the first token of each answer, [B, longest answer]."""
    order = np.argsort(~answer[:, -margins.shape[1] :], axis=1, kind="stable")
    return np.take_along_axis(margins, order[:, : int(answer.sum(1).max())], 1)


@dataclass(frozen=True)
class Score(Result):
    """Accuracy of a model on rows, in total, by answer token and by class of inputs."""

    extra_json_fields = ("accuracy",)
    checked: int
    wrong: int
    positions: list[float]  # accuracy of each token of the answer
    classes: dict[str, tuple[int, int]]  # class of inputs -> checked, wrong

    @property
    def accuracy(self) -> float:
        return 1 - self.wrong / self.checked if self.checked else math.nan

    def __str__(self) -> str:
        return f"{self.accuracy:.2%} of {self.checked:,} right"


def score(model: Model, task: Task, rows: Any = None, hook: Hook | None = None) -> Score:
    """Return the score of a model on rows [B,*].

    `rows` defaults to the whole domain, or to a sample of domains of more than a million rows.

    >>> score(load("reverse"), load_task("reverse"), hook=ablation_hook(…)).accuracy
    """
    if rows is None and task.size > MAX_EXHAUSTIVE_ROWS:
        rows = task.sample(task.default_sample_size, np.random.default_rng(0))
    right, total, classes = np.zeros(0), np.zeros(0), dict[str, tuple[int, int]]()
    for chunk in domain_chunks(task, chunk_size(model, task), rows):
        tokens, answer = task.batch(chunk)
        margins = _align_answers(token_margins(model, tokens, answer, hook), answer)  # B n
        n = margins.shape[1]
        right, total = (np.pad(x, (0, max(n - len(right), 0))) for x in (right, total))
        is_answer = margins != np.inf
        right[:n] += ((margins > 0) & is_answer).sum(0)
        total[:n] += is_answer.sum(0)
        names, index = np.unique(task.classes(chunk), return_inverse=True)
        failed = np.bincount(index, ~(margins > 0).all(1))
        for name, checked, wrong in zip(map(str, names), np.bincount(index), failed, strict=True):
            before = classes.get(name, (0, 0))
            classes[name] = (before[0] + int(checked), before[1] + int(wrong))
    checked, wrong = (sum(counts[i] for counts in classes.values()) for i in (0, 1))
    return Score(checked, wrong, (right / np.maximum(total, 1)).tolist(), classes)


# ── chunks and float types ─────────────────────────────────────────────────────────────────────
def domain_chunks(task: Task, size: int, rows: Any = None) -> Iterator[Any]:
    """Yield the defined rows of a task, or of `rows`, in chunks of at most `size`."""
    n = task.size if rows is None else len(rows)
    for start in range(0, n, size):
        stop = min(start + size, n)
        chunk = task.rows(start, stop) if rows is None else rows[start:stop]
        if len(chunk := chunk[task.defined(chunk)]):
            yield chunk


def chunk_size(model: Model, task: Task) -> int:
    """Return the number of rows whose activations take a few megabytes."""
    return int(np.clip(2**20 // peak_activation_size(model, task), 1, 2**14))


def peak_activation_size(model: Model, task: Task) -> int:
    """Return the size of the largest activation of one row, in array entries."""
    tokens, answer = task.batch(task.rows(0, 1))
    c, T = model.config, tokens.shape[1]
    n = int(answer.sum(1).max())
    queries = T if c.n_layers > 1 else n  # the last block computes only answer positions
    heads = c.n_heads * max(queries * T, T * c.d_head)
    return int(max(1, T * c.d_model, queries * c.d_mlp, heads, n * c.d_vocab))


def in_dtype(model: Model, dtype: str) -> Model:
    """Return the model in another float type; "" keeps its own, bfloat16 needs PyTorch."""
    if not dtype or dtype == model.dtype:
        return model
    if dtype not in DTYPES:
        raise GlassformerError(f"dtype — expected one of {', '.join(DTYPES)}, got {dtype}")
    on_torch = dtype == "bfloat16" or not model.is_numpy
    return model.torch(dtype) if on_torch else model.astype(dtype)
