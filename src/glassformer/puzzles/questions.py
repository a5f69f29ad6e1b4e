"""The task of a level, with all questions, shortest first, and their answers."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..core.vocabulary import Vocabulary
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError
from .reference_answers import REFERENCE_ANSWERS

MAX_QUESTIONS = 400_000  # maximum number of questions of a level


class PuzzleTask(Task):
    """A task whose rows are indices of questions. Shorter examples are padded on the right."""

    def __init__(self, name: str, truth: str, tokens: Sequence[str], length: int) -> None:
        self.ref = name
        counting = list(tokens) == [str(i) for i in range(len(tokens))]
        words = Vocabulary.numbers(len(tokens)) if counting else Vocabulary(tokens, sep=" ")
        self.vocabulary = words
        number = {t: i for i, t in enumerate(self.vocabulary.tokens)}
        right, domain = REFERENCE_ANSWERS[truth]
        self.questions: list[tuple[list[int], list[int]]] = []
        for text in domain(tokens, length):
            answer = right(text)
            if answer is not None:
                self.questions.append(([number[t] for t in text], [number[t] for t in answer]))
        if not 0 < len(self.questions) <= MAX_QUESTIONS:
            got = f"{len(self.questions):,} questions"
            raise GlassformerError(f"{name} — expected 1 to {MAX_QUESTIONS:,} questions, got {got}")
        self.radix = (len(self.questions),)
        self.width = max(len(question) + len(answer) for question, answer in self.questions)

    def batch(self, rows: Rows) -> tuple[Any, Any]:
        tokens = np.zeros((len(rows), self.width), np.int64)
        answer = np.zeros(tokens.shape, bool)
        for i, row in enumerate(np.asarray(rows)[:, 0].tolist()):
            question, right = self.questions[row]
            tokens[i, : len(question) + len(right)] = [*question, *right]
            answer[i, len(question) : len(question) + len(right)] = True
        return tokens, answer


@lru_cache(8)
def cached_puzzle_task(name: str, truth: str, tokens: tuple[str, ...], length: int) -> PuzzleTask:
    """Return a PuzzleTask from a cache, because levels are often judged several times."""
    return PuzzleTask(name, truth, tokens, length)
