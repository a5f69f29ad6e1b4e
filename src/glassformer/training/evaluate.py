"""How good a model is that is being trained: on the whole, a digit, and a class of input."""

import numpy as np

from ..core.backend import Array
from ..core.model import Model, Tap
from ..tasks.base import Rows, Task
from ..tasks.token_layout import answer_names
from ..verification.evaluation import right, row_gaps
from .data import Data
from .events import Report
from .recipe import Recipe
from .train_hooks import TAPS

FITTED = 2_000  # training rows that are asked, where these are a fixed set


class Measure:
    """Asks a model the test rows of a run. All that is found out once is found out here."""

    def __init__(self, task: Task, recipe: Recipe, data: Data) -> None:
        self.task, self.recipe, self.data = task, recipe, data
        kinds = task.classes(data.test_rows)
        self.classes, self.class_of = np.unique(kinds, return_inverse=True)
        self.named = len(answer_names(task))  # tokens of an answer, as far as a few rows tell
        self.longest = max(self.named, int(task.batch(data.test_rows)[1].sum(1).max()))

    def __call__(self, model: Model, seen: bool) -> Report:
        """`seen`: test rows are trained on. They say little then, and a few do."""
        tap, rows = TAPS[self.recipe.tap], self.data.test_rows
        first = self.recipe.first_rows or len(rows)
        rows = rows[: first if seen else None]
        lead = self._leads(model, rows[:first], tap())
        if first < len(rows) and (lead > 0).all(1).mean() >= self.recipe.success:
            lead = np.concatenate([lead, self._leads(model, rows[first:], tap())])
        good, asked = lead > 0, lead != np.inf  # answers may be of several lengths
        shares = (good & asked).sum(0) / np.maximum(asked.sum(0), 1)
        report: Report = {
            "accuracy": float(good.all(1).mean()), "tested": len(good),
            "digits": shares[: self.named].tolist(),
        }  # fmt: skip
        if self.data.train_rows is not None:  # else every row is new
            fitted = right(model, self.task, self.data.train_rows[:FITTED], tap())
            report["train_accuracy"] = float(fitted.all(1).mean())
        if len(self.classes) > 1:
            class_of = self.class_of[: len(good)]
            there = np.bincount(class_of, minlength=len(self.classes))
            share = np.bincount(class_of, good.all(1), len(self.classes)) / np.maximum(there, 1)
            pairs = zip(self.classes.tolist(), share.tolist(), there.tolist(), strict=True)
            report["classes"] = {name: s for name, s, n in pairs if n}
        return report

    def _leads(self, model: Model, rows: Rows, tap: Tap | None) -> Array:
        """Margins of all tokens that a test row's answer may have, [B, longest]."""
        lead = row_gaps(model, self.task, rows, tap)
        more = self.longest - lead.shape[1]
        return np.pad(lead, ((0, 0), (0, more)), constant_values=np.inf)
