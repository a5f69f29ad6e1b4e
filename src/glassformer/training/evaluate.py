"""How good a model is that is being trained: on the whole, a digit, and a class of input."""

import numpy as np

from ..core.backend import Array
from ..core.model import Hook, Model
from ..tasks.base import Rows, Task
from ..tasks.token_layout import answer_names
from ..verification.evaluation import correct_tokens, margins_by_answer_token
from .data import TrainingData
from .events import EvaluationData
from .recipe import Recipe
from .train_hooks import TRAIN_HOOKS

MAX_FITTED_ROWS = 2_000  # training rows that are asked, where these are a fixed set


class Evaluator:
    """Asks a model the test rows of a run. All that is found out once is found out here."""

    def __init__(self, task: Task, recipe: Recipe, data: TrainingData) -> None:
        self.task, self.recipe, self.data = task, recipe, data
        kinds = task.classes(data.test_rows)
        self.classes, self.class_of = np.unique(kinds, return_inverse=True)
        self.answer_length = len(
            answer_names(task)
        )  # tokens of an answer, as far as a few rows tell
        self.longest_answer = max(
            self.answer_length, int(task.batch(data.test_rows)[1].sum(1).max())
        )

    def __call__(self, model: Model, seen: bool) -> EvaluationData:
        """`seen`: test rows are trained on. They say little then, and a few do."""
        tap, rows = TRAIN_HOOKS[self.recipe.train_hook], self.data.test_rows
        first = self.recipe.eval_screen_rows or len(rows)
        rows = rows[: first if seen else None]
        lead = self._margins(model, rows[:first], tap())
        if first < len(rows) and (lead > 0).all(1).mean() >= self.recipe.target_accuracy:
            lead = np.concatenate([lead, self._margins(model, rows[first:], tap())])
        good, asked = lead > 0, lead != np.inf  # answers may be of several lengths
        shares = (good & asked).sum(0) / np.maximum(asked.sum(0), 1)
        report: EvaluationData = {
            "accuracy": float(good.all(1).mean()), "tested": len(good),
            "digits": shares[: self.answer_length].tolist(),
        }  # fmt: skip
        if self.data.train_rows is not None:  # else every row is new
            fitted = correct_tokens(model, self.task, self.data.train_rows[:MAX_FITTED_ROWS], tap())
            report["train_accuracy"] = float(fitted.all(1).mean())
        if len(self.classes) > 1:
            class_of = self.class_of[: len(good)]
            there = np.bincount(class_of, minlength=len(self.classes))
            share = np.bincount(class_of, good.all(1), len(self.classes)) / np.maximum(there, 1)
            pairs = zip(self.classes.tolist(), share.tolist(), there.tolist(), strict=True)
            report["classes"] = {name: s for name, s, n in pairs if n}
        return report

    def _margins(self, model: Model, rows: Rows, tap: Hook | None) -> Array:
        """Margins of all tokens that a test row's answer may have, [B, longest]."""
        lead = margins_by_answer_token(model, self.task, rows, tap)
        more = self.longest_answer - lead.shape[1]
        return np.pad(lead, ((0, 0), (0, more)), constant_values=np.inf)
