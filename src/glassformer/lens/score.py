"""How right is a model, with something done to it? Per answer token and per class of input."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..model import Model, Tap
from ..tasks.base import Task
from ..verification.checks import EXHAUSTIVE, chunk_size, gaps


@dataclass(frozen=True)
class Score:
    """What share of the answers is right."""

    checked: int
    wrong: int
    positions: list[float]  # accuracy of each token of the answer
    classes: dict[str, tuple[int, int]]  # class of input -> checked, wrong

    @property
    def accuracy(self) -> float:
        return 1 - self.wrong / max(self.checked, 1)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"accuracy": self.accuracy}

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
        part = task.rows(start, min(start + step, todo)) if rows is None else rows[start : start + step]
        part = part[task.defined(part)]
        if not len(part):
            continue
        gap = gaps(model, *task.batch(part), tap=tap)                          # B n
        there = gap != np.inf
        if gap.shape[1] > len(right):  # answers may start at several places: align them at the end
            right, asked = (np.concatenate([np.zeros(gap.shape[1] - len(x)), x]) for x in (right, asked))
        right[-gap.shape[1] :] += ((gap > 0) & there).sum(0)
        asked[-gap.shape[1] :] += there.sum(0)
        good = (gap > 0).all(1)
        checked, wrong = checked + len(part), wrong + int((~good).sum())
        names, index = np.unique(task.classes(part), return_inverse=True)
        for name, n, bad in zip(names, np.bincount(index), np.bincount(index, ~good), strict=True):
            before = classes.get(str(name), (0, 0))
            classes[str(name)] = (before[0] + int(n), before[1] + int(bad))
    return Score(checked, wrong, [float(r / max(a, 1)) for r, a in zip(right, asked, strict=True)], classes)
