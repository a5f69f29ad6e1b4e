"""Checks a model against a task, row by row.

For a causal model within its block, greedy decoding is right on an input if and only if the teacher-forced
argmax is right at every answer position, so one forward pass an input is enough; any other model decodes.
The margin of an answer token is its logit minus the best other; a margin of 0 or less is wrong, and so is
a logit that is not finite.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from .. import arrays
from ..checkpoint import digest
from ..decode import decode, stream
from ..errors import GlassformerError
from ..model import Model, Tap, forward
from ..tasks.base import Task

EXHAUSTIVE = 1_100_000  # domains up to this size are counted through


@dataclass(frozen=True)
class Progress:
    """How far a check has come."""

    done: int
    todo: int
    wrong: int


@dataclass(frozen=True)
class Verdict:
    """What a check found."""

    model: str  # SHA-256 of the weights
    task: str
    dtype: str
    domain: int  # rows in the domain
    exhaustive: bool  # every row of the domain was looked at
    looked_at: int
    checked: int  # of these, rows on which the task is defined
    wrong: int
    worst_margin: float  # over all answer tokens of all rows
    counterexamples: list[dict[str, Any]] = field(default_factory=list)
    seed: int | None = None

    @property
    def holds(self) -> bool:
        return self.checked > 0 and self.wrong == 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"holds": self.holds}

    def __str__(self) -> str:
        how = "all" if self.exhaustive else "sampled"
        return f"{self.wrong:,} wrong of {self.checked:,} ({how}), worst margin {self.worst_margin:.3g}"


def verify(model: Model, task: Task, **options: Any) -> Verdict:
    """Checks a model and returns the verdict. Options as in `check`."""
    for event in check(model, task, **options):
        if isinstance(event, Verdict):
            return event
    raise AssertionError("check ends with a verdict")


def check(
    model: Model, task: Task, *, rows: Any = None, sample: int | None = None, seed: int = 0, keep: int = 10,
    chunk: int = 0, tap: Tap | None = None,
) -> Iterator[Progress | Verdict]:  # fmt: skip
    """Yields Progress, and a Verdict last. `rows`: just these. `sample`: so many at random, and the edges.
    `tap`: on the model with this done to it.

    Without either: the whole domain up to about a million rows, beyond it a sample as large as the task
    finds worth checking, and the edges.
    """
    if task.vocabulary != model.vocabulary:
        raise GlassformerError(f"{task.ref} — has {task.vocabulary}; the model's vocabulary has {model.vocabulary}")
    exhaustive = rows is None and sample is None and task.size <= EXHAUSTIVE
    if rows is None and not exhaustive:
        drawn = task.sample(sample or task.worth_checking, np.random.default_rng(seed))
        rows = np.concatenate([task.edges(), drawn])
    todo = task.size if rows is None else len(rows)
    step = chunk or chunk_size(model, task)
    checked = wrong = done = 0
    worst = np.inf
    bad: list[tuple[Any, float]] = []
    while done < todo:
        upto = min(done + step, todo)
        part = task.rows(done, upto) if rows is None else rows[done:upto]
        part = part[task.defined(part)]
        if len(part):
            margin = margins(model, *task.batch(part), tap=tap)
            failed = np.nonzero(~(margin > 0))[0]
            wrong += len(failed)
            checked += len(part)
            worst = min(worst, float(np.where(np.isnan(margin), -np.inf, margin).min()))
            bad += [(part[i], float(margin[i])) for i in failed[: max(0, keep - len(bad))]]
        done = upto
        yield Progress(done, todo, wrong)
    yield Verdict(
        model=digest(model), task=task.ref, dtype=model.dtype, domain=task.size, exhaustive=exhaustive,
        looked_at=todo, checked=checked, wrong=wrong, worst_margin=worst,
        counterexamples=[_describe(model, task, row, margin) for row, margin in bad],
        seed=None if exhaustive else seed,
    )  # fmt: skip


def margins(model: Model, tokens: Any, answer: Any, tap: Tap | None = None) -> Any:
    """The smallest margin over each row's answer tokens, [B]; NaN where a logit is not finite."""
    return gaps(model, tokens, answer, tap).min(-1)


def gaps(model: Model, tokens: Any, answer: Any, tap: Tap | None = None) -> Any:
    """The margin of every answer token, [B,n] for the last n positions of tokens; inf where no answer is.

    NaN where a logit is not finite. For a model that decodes, what follows its first wrong token is as wrong.
    """
    if tokens.shape[1] - 1 > model.config.n_ctx:
        raise GlassformerError(
            f"an example of {tokens.shape[1] - 1} tokens — longer than the block of {model.config.n_ctx}"
        )
    n = tokens.shape[1] - int(answer.any(0).argmax())  # from the first answer position on
    if model.config.mask != "causal":
        return _decoded_gaps(model, tokens, answer, tap)[:, -n:]
    return _gaps(_forward(model, tokens[:, :-1], n, tap), tokens[:, -n:], answer[:, -n:])


def _gaps(logits: Any, wanted: Any, asked: Any) -> Any:
    """logits [B,T,V], wanted [B,T], asked [B,T] -> [B,T]."""
    at = wanted[..., None]
    right = np.take_along_axis(logits, at, -1)[..., 0]
    others = logits if logits.flags.writeable else logits.copy()
    np.put_along_axis(others, at, -np.inf, -1)
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, and NaN is wrong
        gap = right - arrays.largest(others)
        gap = np.where(np.isfinite(right) & ~np.isnan(gap), gap, np.nan)
    return np.where(asked, gap, np.inf)


def _decoded_gaps(model: Model, tokens: Any, answer: Any, tap: Tap | None) -> Any:
    """The same for a model whose past depends on what is to come: each row is decoded and compared. [B,T]"""
    out = np.full(tokens.shape, np.inf)
    first = answer.argmax(1)
    for start in np.unique(first):  # rows of one prompt length together
        group = np.nonzero(first == start)[0]
        steps = int(answer[group].sum(1).max())
        failed = np.full(len(group), np.inf)  # the margin of the first wrong token
        for t, step in enumerate(stream(model, tokens[group, :start], steps, tap=tap), start):
            gap = _gaps(step.logits[:, None], tokens[group, t][:, None], answer[group, t][:, None])[:, 0]
            failed = np.where((failed == np.inf) & ~(gap > 0), gap, failed)
            out[group, t] = np.where((failed == np.inf) | ~answer[group, t], gap, failed)
    return out


def _forward(model: Model, tokens: Any, last: int, tap: Tap | None) -> Any:
    if isinstance(model.weights["embed.W_E"], np.ndarray):
        with np.errstate(all="ignore"):  # what is not finite is counted as wrong
            return forward(model.config, model.weights, tokens, tap, last=last)
    import torch

    with torch.no_grad():
        device = model.weights["embed.W_E"].device
        read = torch.as_tensor(tokens, device=device)
        return arrays.numpy(forward(model.config, model.weights, read, tap, last=last))


def _describe(model: Model, task: Task, row: Any, margin: float) -> dict[str, Any]:
    """A counterexample in words: what the model really says when it decodes."""
    tokens, answer = (a[0] for a in task.batch(row[None]))
    prompt = tokens[: int(answer.argmax())]
    expected = tokens[answer]
    try:
        got = decode(model, prompt, len(expected), stop=task.stop)[len(prompt) :]
        said = task.vocabulary.decode(got)
    except GlassformerError as e:
        said = str(e)
    return {
        "row": [int(x) for x in row], "input": task.vocabulary.decode(prompt),
        "expected": task.vocabulary.decode(expected), "got": said, "margin": margin,
    }  # fmt: skip


def chunk_size(model: Model, task: Task) -> int:
    """So many rows at a time that activations stay within a few megabytes."""
    tokens, answer = task.batch(task.rows(0, 1))
    c, T = model.config, tokens.shape[1]
    asked = int(answer.sum(1).max())
    rows = T if c.n_layers > 1 else asked  # the last block computes what is asked alone
    widest = max(T * c.d_model, rows * c.d_mlp, c.n_heads * rows * T, asked * c.d_vocab, T * c.n_heads * c.d_head)
    return int(np.clip(2**20 // max(widest, 1), 1, 2**14))
