"""A task tried out before anybody trains on it: does what it says of itself agree?"""

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

SAMPLE_ROWS = 2_000  # looked at, where the domain has more
MAX_SHOWN_EXAMPLES = 5  # examples


@dataclass(frozen=True)
class Examination(Result):
    """What is in order with a task, and what is not."""

    task: str
    size: int  # rows, of which some may be no inputs
    examples: list[dict[str, str]]
    classes: dict[str, float]  # class of input -> its share
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
        lines += ["", *(f"ok       {what}" for what in self.good)]
        return "\n".join([*lines, *(f"problem  {what}" for what in self.problems)])


def examine(task: Task) -> Examination:
    """Tries a task: all its rows or some, its edges and its classes, alone and together."""
    validation.check_attributes(task)
    rows = task.sample_or_all(SAMPLE_ROWS)
    if not len(rows):
        raise validation.task_error(task, "none of its rows has a right answer (see `defined`)")
    good: list[str] = []
    problems: list[str] = []
    for what, look in CHECKS.items():
        try:
            found = next(look(task, rows), "")
        except GlassformerError as e:
            found = str(e).removeprefix(f"{task.ref} — ")
        except Exception as e:  # the task's own code
            found = f"{type(e).__name__}: {e}"
        (problems if found else good).append(f"{what}: {found}" if found else what)
    names, counts = np.unique(_classes(task, rows), return_counts=True)
    shares = {str(n): float(k / len(rows)) for n, k in zip(names, counts, strict=True)}
    shown_ = rows[np.linspace(0, len(rows) - 1, min(MAX_SHOWN_EXAMPLES, len(rows))).astype(int)]
    return Examination(
        task.ref or type(task).__name__, task.size, [_texts(task, row) for row in shown_],
        shares, good, problems, task.inputs,
    )  # fmt: skip


def _texts(task: Task, row: Any) -> dict[str, str]:
    tokens, answer = (a[0] for a in task.batch(row[None]))
    words = task.vocabulary
    return {
        "input": words.decode(tokens[: answer.argmax()]),
        "answer": words.decode(tokens[answer]),
    }


def _classes(task: Task, rows: Any) -> Any:
    try:
        return np.asarray(task.classes(rows)).astype(str)
    except Exception:  # told among the problems
        return np.full(len(rows), "")


# ── what is looked at: each yields what is wrong, if anything is ──────────────────────────────
Check = Callable[[Task, Any], Iterator[str]]


def _in_domain(task: Task, rows: Any) -> Iterator[str]:
    rng = np.random.default_rng(0)
    for name, some in ("edges", task.edges()), ("sample", task.sample(100, rng)):
        if len(some):
            try:
                task.validate_rows(some)
            except GlassformerError as e:
                yield f"its {name} has a row that is none: {str(e).partition(' — ')[2]}"


def _same_alone(task: Task, rows: Any) -> Iterator[str]:
    tokens, answer = task.batch(rows[:20])
    for i, row in enumerate(rows[:20]):
        one, asked = (a[0] for a in task.batch(row[None]))
        n = len(one)
        if not (one == tokens[i, :n]).all() or not (asked == answer[i, :n]).all():
            yield f"row {row.tolist()} is another example alone than with others"


def _answer_marked(task: Task, rows: Any) -> Iterator[str]:
    _, answer = task.batch(rows)
    first, last = answer.argmax(1), answer.shape[1] - answer[:, ::-1].argmax(1)
    gaps = answer.sum(1) != last - first
    if gaps.any():
        yield f"the answer of row {rows[gaps][0].tolist()} has a gap in it"


def _one_answer(task: Task, rows: Any) -> Iterator[str]:
    seen: dict[bytes, tuple[list[int], list[int]]] = {}
    tokens, answer = task.batch(rows)
    for row, t, a in zip(rows.tolist(), tokens, answer, strict=True):
        said = t[a].tolist()
        before, as_row = seen.setdefault(t[: a.argmax()].tobytes(), (said, row))
        if said != before:
            yield f"rows {as_row} and {row} ask the same and have different answers"


def _read_back(task: Task, rows: Any) -> Iterator[str]:
    if type(task).prompt is not Task.prompt:
        return  # people type something else than the tokens
    for row in rows[:20]:
        tokens, answer = (a[0] for a in task.batch(row[None]))
        wanted = tokens[: answer.argmax()].tolist()
        text = task.vocabulary.decode(wanted)
        if list(task.prompt(text)) != wanted:
            yield f"{short_repr(text)}, typed, gives other tokens than its row has"


def _answer_ends(task: Task, rows: Any) -> Iterator[str]:
    tokens, answer = task.batch(rows[:200])
    for row, t, a in zip(rows.tolist(), tokens, answer, strict=False):
        steps, n = task.steps(t[: a.argmax()].tolist()), int(a.sum())
        if steps < n:
            yield f"`steps` says {steps} tokens, and the answer of row {row} has {n}"
        if steps > n and (task.stop is None or t[a][-1] != task.stop):
            yield f"the answer of row {row} has {n} of {steps} tokens, and no `stop` at its end"


def _classes_match(task: Task, rows: Any) -> Iterator[str]:
    said = np.asarray(task.classes(rows))
    if said.shape != (len(rows),):
        yield f"`classes` must give a text for each row, got shape {list(said.shape)}"


def _layout_matches(task: Task, rows: Any) -> Iterator[str]:
    if task.layout() is not None:
        checked_layout(task)
    if task.declares("copy_layout") and task.copy_layout() is not None:
        checked_copy_layout(task)
    yield from ()


CHECKS: dict[str, Check] = {
    "rows, edges and samples are in the domain": _in_domain,
    "a row is the same example alone and with others": _same_alone,
    "each answer stands in one piece": _answer_marked,
    "no question has two answers": _one_answer,
    "questions can be typed": _read_back,
    "answers end": _answer_ends,
    "every row has a class": _classes_match,
    "its format is what its examples are": _layout_matches,
}
