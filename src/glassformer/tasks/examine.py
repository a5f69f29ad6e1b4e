"""Checks of a new task before training: whether its methods are consistent with each other."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..utils.errors import GlassformerError, short_repr
from ..utils.limits import format_count
from ..utils.results import Result
from . import validation
from .base import Task
from .token_layout import checked_copy_layout, checked_layout

SAMPLE_ROWS = 2_000  # sample size for larger domains
MAX_SHOWN_EXAMPLES = 5


@dataclass(frozen=True)
class Examination(Result):
    """The result of `gf.check_task`: the checks that passed and the problems found."""

    task: str
    size: int  # number of rows, including rows without an answer
    examples: list[dict[str, str]]
    classes: dict[str, float]  # maps an input class to its share of rows
    good: list[str]
    problems: list[str]
    inputs: int

    @property
    def holds(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        lines = [f"{self.task}: {format_count(self.inputs)} inputs", ""]
        lines += [f"  {e['input']}  ->  {e['answer']}" for e in self.examples]
        if len(self.classes) > 1:
            shares = sorted(self.classes.items(), key=lambda item: -item[1])
            lines += ["", *(f"  {share:7.2%}  {name}" for name, share in shares)]
        lines += ["", *(f"ok       {check}" for check in self.good)]
        return "\n".join([*lines, *(f"problem  {problem}" for problem in self.problems)])


def examine(task: Task) -> Examination:
    """Check a task on its edge cases and on all its rows or a sample."""
    validation.check_attributes(task)
    rows = task.sample_or_all(SAMPLE_ROWS)
    if not len(rows):
        raise validation.task_error(task, "none of its rows has a right answer (see `defined`)")
    good: list[str] = []
    problems: list[str] = []
    for label, check in CHECKS.items():
        try:
            problem = next(check(task, rows), "")
        except GlassformerError as e:
            problem = str(e).removeprefix(f"{task.ref} — ")
        except Exception as e:  # The task's code may raise any exception.
            problem = f"{type(e).__name__}: {e}"
        (problems if problem else good).append(f"{label}: {problem}" if problem else label)
    names, counts = np.unique(_classes(task, rows), return_counts=True)
    shares = {str(n): float(k / len(rows)) for n, k in zip(names, counts, strict=True)}
    examples = rows[np.linspace(0, len(rows) - 1, min(MAX_SHOWN_EXAMPLES, len(rows))).astype(int)]
    return Examination(
        task.ref or type(task).__name__, task.size, [_texts(task, row) for row in examples],
        shares, good, problems, task.inputs,
    )  # fmt: skip


def _texts(task: Task, row: Any) -> dict[str, str]:
    tokens, answer = (a[0] for a in task.batch(row[None]))
    decode = task.vocabulary.decode
    return {"input": decode(tokens[: answer.argmax()]), "answer": decode(tokens[answer])}


def _classes(task: Task, rows: Any) -> Any:
    try:
        return np.asarray(task.classes(rows)).astype(str)
    except Exception:  # The check of classes reports the error.
        return np.full(len(rows), "")


# ── checks: each yields the problems it finds ──────────────────────────────────────────────────
Check = Callable[[Task, Any], Iterator[str]]


def _in_domain(task: Task, rows: Any) -> Iterator[str]:
    rng = np.random.default_rng(0)
    for name, sample in ("edges", task.edges()), ("sample", task.sample(100, rng)):
        if len(sample):
            try:
                task.validate_rows(sample)
            except GlassformerError as e:
                yield f"its {name} has a row outside the domain: {str(e).partition(' — ')[2]}"


def _same_alone(task: Task, rows: Any) -> Iterator[str]:
    tokens, answer = task.batch(rows[:20])
    for i, row in enumerate(rows[:20]):
        one, mask = (a[0] for a in task.batch(row[None]))
        n = len(one)
        if not (one == tokens[i, :n]).all() or not (mask == answer[i, :n]).all():
            yield f"row {row.tolist()} gives another example alone than in a batch"


def _answer_marked(task: Task, rows: Any) -> Iterator[str]:
    _, answer = task.batch(rows)
    first, last = answer.argmax(1), answer.shape[1] - answer[:, ::-1].argmax(1)
    gaps = answer.sum(1) != last - first
    if gaps.any():
        yield f"the answer of row {rows[gaps][0].tolist()} is not contiguous"


def _one_answer(task: Task, rows: Any) -> Iterator[str]:
    first_seen: dict[bytes, tuple[list[int], list[int]]] = {}
    tokens, answer = task.batch(rows)
    for row, t, a in zip(rows.tolist(), tokens, answer, strict=True):
        own = t[a].tolist()
        other, other_row = first_seen.setdefault(t[: a.argmax()].tobytes(), (own, row))
        if own != other:
            yield f"rows {other_row} and {row} have the same question and different answers"


def _read_back(task: Task, rows: Any) -> Iterator[str]:
    if type(task).prompt is not Task.prompt:
        return  # Typed inputs differ from decoded tokens.
    for row in rows[:20]:
        tokens, answer = (a[0] for a in task.batch(row[None]))
        wanted = tokens[: answer.argmax()].tolist()
        text = task.vocabulary.decode(wanted)
        if list(task.prompt(text)) != wanted:
            yield f"prompt({short_repr(text)}) gives other tokens than its row has"


def _answer_ends(task: Task, rows: Any) -> Iterator[str]:
    tokens, answer = task.batch(rows[:200])
    for row, t, a in zip(rows.tolist(), tokens, answer, strict=False):
        steps, n = task.steps(t[: a.argmax()].tolist()), int(a.sum())
        if steps < n:
            yield f"steps() returns {steps}; the answer of row {row} has {n} tokens"
        if steps > n and (task.stop is None or t[a][-1] != task.stop):
            yield f"the answer of row {row} has {n} of {steps} tokens and does not end in `stop`"


def _classes_match(task: Task, rows: Any) -> Iterator[str]:
    classes = np.asarray(task.classes(rows))
    if classes.shape != (len(rows),):
        yield f"classes() must return one text per row, got shape {list(classes.shape)}"


def _layout_matches(task: Task, rows: Any) -> Iterator[str]:
    if task.layout() is not None:
        checked_layout(task)
    if task.declares("copy_layout") and task.copy_layout() is not None:
        checked_copy_layout(task)
    yield from ()


CHECKS: dict[str, Check] = {
    "rows, edges and samples are in the domain": _in_domain,
    "a row gives the same example alone and in a batch": _same_alone,
    "each answer is contiguous": _answer_marked,
    "no question has two answers": _one_answer,
    "questions can be typed": _read_back,
    "answers end": _answer_ends,
    "each row has a class": _classes_match,
    "its layout agrees with its examples": _layout_matches,
}
