"""Evaluation during training: accuracy overall, by answer token and by class of input."""

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

MAX_FITTED_ROWS = 2_000  # maximum number of fixed training rows to evaluate


class Evaluator:
    """Evaluator of models on the test rows of a run."""

    def __init__(self, task: Task, recipe: Recipe, data: TrainingData) -> None:
        self.task, self.recipe, self.data = task, recipe, data
        classes = task.classes(data.test_rows)
        self.classes, self.class_of = np.unique(classes, return_inverse=True)
        self.answer_length = len(answer_names(task))  # maximum over a few rows
        longest = int(task.batch(data.test_rows)[1].sum(1).max())
        self.longest_answer = max(self.answer_length, longest)

    def __call__(self, model: Model, trained_on: bool) -> EvaluationData:
        """Evaluate a model on the test rows.

        If `trained_on` is set, the test rows are also training rows and only a few are evaluated.
        """
        hook, rows = TRAIN_HOOKS[self.recipe.train_hook], self.data.test_rows
        screen = self.recipe.eval_screen_rows or len(rows)
        rows = rows[: screen if trained_on else None]
        margins = self._margins(model, rows[:screen], hook())
        if screen < len(rows) and (margins > 0).all(1).mean() >= self.recipe.target_accuracy:
            margins = np.concatenate([margins, self._margins(model, rows[screen:], hook())])
        good, exists = margins > 0, margins != np.inf  # Margins are inf past the end of an answer.
        shares = (good & exists).sum(0) / np.maximum(exists.sum(0), 1)
        report: EvaluationData = {
            "accuracy": float(good.all(1).mean()), "tested": len(good),
            "digits": shares[: self.answer_length].tolist(),
        }  # fmt: skip
        if self.data.train_rows is not None:
            fitted_rows = self.data.train_rows[:MAX_FITTED_ROWS]
            fitted = correct_tokens(model, self.task, fitted_rows, hook())
            report["train_accuracy"] = float(fitted.all(1).mean())
        if len(self.classes) > 1:
            class_of = self.class_of[: len(good)]
            counts = np.bincount(class_of, minlength=len(self.classes))
            share = np.bincount(class_of, good.all(1), len(self.classes)) / np.maximum(counts, 1)
            pairs = zip(self.classes.tolist(), share.tolist(), counts.tolist(), strict=True)
            report["classes"] = {name: s for name, s, n in pairs if n}
        return report

    def _margins(self, model: Model, rows: Rows, hook: Hook | None) -> Array:
        """Return the margins of the answer tokens, [B, longest]; inf after the answer's end."""
        margins = margins_by_answer_token(model, self.task, rows, hook)
        missing = self.longest_answer - margins.shape[1]
        return np.pad(margins, ((0, 0), (0, missing)), constant_values=np.inf)
