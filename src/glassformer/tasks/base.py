"""The base class of tasks. An input of a task is a row of integers in the task's mixed radix."""

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.vocabulary import Vocabulary
from ..utils.errors import GlassformerError, short_repr, shorten
from ..utils.limits import as_integers, format_count
from ..utils.results import Displayable
from . import validation
from .bigint_rows import random_below, row_type
from .token_layout import TOKEN, TokenLayout, mark_answer
from .validation import task_error

Rows = Any  # integers [B, len(radix)]
BOUNDARY_SAMPLE_ROWS = 200  # sample size to find where answers start, without a layout


class Task(Displayable):
    """A domain of rows, with the tokens and the right answer of each row.

    Rows are numbered in mixed radix: rows(0, size) is the whole domain. A subclass sets
    `vocabulary` and `radix` and defines `batch`. It overrides further methods if its domain does
    not contain every combination of the radix.
    """

    vocabulary: Vocabulary
    radix: tuple[int, ...]
    stop: int | None = None  # token that ends an answer
    question_end: str = ""  # end of a question, if `prompt` accepts only questions
    space_separated: bool = False  # Whether spaces separate items, but not an item's tokens.
    ref: str = ""  # The registry sets it.
    example_inputs: tuple[str, ...] = ()  # inputs that the publications discuss
    # (p, "+" or "-") if the answer is one token, a ± b modulo p.
    modular: tuple[int, str] | None = None
    # Hypotheses on the content of an activation that `counterfactual_answers` distinguishes.
    explanations: tuple[str, ...] = ("stays", "source")
    # Sample size if the domain is too large to enumerate.
    default_sample_size: int = 100_000

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in validation.ARGUMENTS.keys() & vars(cls).keys():
            setattr(cls, name, validation.with_checked_arguments(name, vars(cls)[name]))
        for name in validation.RESULT_CHECKS.keys() & vars(cls).keys():
            setattr(cls, name, validation.with_checked_result(name, vars(cls)[name]))

    def __repr__(self) -> str:
        name = self.ref or type(self).__name__
        try:
            validation.check_attributes(self)
        except GlassformerError as e:
            return f"<Task {e}>"
        return f"<Task {name}: {format_count(self.inputs)} inputs, {self.vocabulary}>"

    def batch(self, rows: Rows) -> tuple[Any, Any]:
        """Return tokens [B,T] of whole examples and a mask [B,T] of the answer tokens.

        Examples of different lengths are padded on the right, where the mask is False.
        """
        raise task_error(self, "batch is not defined; a task must override it")

    @property
    def size(self) -> int:
        """Return the number of rows of the domain."""
        return math.prod(self.radix)

    @property
    def row_type(self) -> Any:
        """Return the dtype of row arrays: int64, or object for larger numbers."""
        return row_type(self.radix)

    @property
    def inputs(self) -> int:
        """Return the number of rows that have an answer."""
        return self.size

    def rows(self, start: int, stop: int) -> Rows:
        """Return rows start … stop-1 of the domain; the last number changes fastest."""
        if not 0 <= start <= stop <= self.size:
            raise task_error(self, f"rows: expected a range within 0 to {format_count(self.size)}")
        long, columns = self.row_type.hasobject, []
        index: Any = np.array([*range(start, stop)], object) if long else np.arange(start, stop)
        for n in reversed(self.radix):
            quotient = index // n  # Object arrays do not support divmod.
            columns.append(index - quotient * n)
            index = quotient
        return np.stack(columns[::-1], axis=1) if columns else np.zeros((stop - start, 0), np.int64)

    def sample(self, n: int, rng: np.random.Generator) -> Rows:
        """Return n rows, drawn uniformly with replacement."""
        columns = [random_below(r, n, rng) for r in self.radix]
        return np.stack(columns, axis=1) if columns else np.zeros((n, 0), np.int64)

    @property
    def samples_uniformly(self) -> bool:
        """Return whether `sample` draws all rows with equal probability."""
        return type(self).sample is Task.sample

    def defined(self, rows: Rows) -> Any:
        """Return a bool mask [B] of the rows that have an answer."""
        return np.ones(len(rows), dtype=bool)

    def edges(self) -> Rows:
        """Return the edge cases, rows that every check includes."""
        return np.zeros((0, len(self.radix)), self.row_type)

    def classes(self, rows: Rows) -> Any:
        """Return the class names of the rows, [B]."""
        return np.full(len(rows), "")

    def at_difficulty(self, rows: Rows, level: int) -> Rows:
        """Return the rows simplified to `level` digits or items, for a curriculum."""
        raise GlassformerError(f"{self.ref} — defines no difficulty levels", code="unsupported")

    def entropy_floor(self) -> float | None:
        """Return the minimum mean loss over all positions of random inputs, or None if unknown."""
        return None

    # ── token layout ───────────────────────────────────────────────────────────────────────────
    def layout(self) -> TokenLayout | None:
        """Return the content of each position in terms of `values`, or None if positions vary.

        A layout with only digits of a, b and s declares that s = a + b.
        """
        return None

    def copy_layout(self) -> TokenLayout | None:
        """Return the content of each position if answers are copies; None for other tasks.

        A spot is (ROW, i), number i of the row as a token, or (TOKEN, t), a fixed token.
        """
        return None

    def declares(self, name: str) -> bool:
        """Return whether `layout` or `copy_layout` was declared for the current `batch`.

        A subclass that overrides `batch` or `defined` must declare the layout again.
        """
        for namespace in (vars(self), *map(vars, type(self).__mro__)):
            if name in namespace or namespace.keys() & {"batch", "defined"}:
                return name in namespace
        return False

    def is_exactly(self, *kinds: type["Task"]) -> bool:
        """Return whether the task is an unmodified instance of one of `kinds`.

        Proofs require this, because subclasses and patched instances may write other tokens.
        """
        patched = (name for name in vars(self) if callable(getattr(type(self), name, None)))
        if not all(isinstance(kind, type) for kind in kinds):
            raise GlassformerError(f"is_exactly — expected task classes, got {short_repr(kinds)}")
        return type(self) in kinds and next(patched, None) is None

    def values(self, rows: Rows) -> dict[str, Any]:
        """Return the numbers of the layout by name, [B] each. Defaults to the tokens."""
        form, (tokens, _) = self.layout(), self.batch(rows)
        spots = form.spots if form else ()
        return {name: tokens[:, t] for t, (name, _) in enumerate(spots) if name != TOKEN}

    def boundary(self) -> int:
        """Return the position where answers start. Raise an error if it varies."""
        if (form := self.layout()) and form.padded:
            return form.first
        tokens, answer = self.batch(self.sample_or_all(BOUNDARY_SAMPLE_ROWS))
        first = int(answer[0].argmax())
        if not (answer == (np.arange(tokens.shape[1]) >= first)).all():
            reason = "answers start at different positions, so positions cannot be compared"
            raise GlassformerError(f"{self.ref} — {reason}", code="unsupported")
        return first

    def roles(self) -> dict[str, Any]:
        """Return a bool mask [T-1, T-1] for each role of the inputs of the next token.

        The mask's rows are query positions in the answer, its columns key positions. The result is
        {} if the positions vary.
        """
        return {}

    def counterfactual_answers(self, rows: Rows, i: int) -> dict[str, Any]:
        """Return answer token i, [B], under each hypothesis on a patched activation.

        rows [2,B,*] are the rows that the model reads and the rows that the activation comes from.
        With `stays`, the activation contains nothing relevant; with `source`, it contains the
        answer.
        """
        both = map(self.batch, rows)
        answers = [tokens[np.arange(len(tokens)), a.argmax(1) + i] for tokens, a in both]
        return dict(zip(("stays", "source"), answers, strict=True))

    def sample_or_all(self, n: int, seed: int = 0) -> Rows:
        """Return the rows that have an answer, of all rows or, if these are more than n, of n."""
        few = self.size <= n
        rows = self.rows(0, self.size) if few else self.sample(n, np.random.default_rng(seed))
        return rows[self.defined(rows)]

    def validate_rows(self, rows: Rows) -> Rows:
        """Return rows as an array. Raise an error if a row is outside the domain."""
        rows, columns = as_integers("rows", rows, large=self.row_type.hasobject), len(self.radix)
        if rows.ndim != 2 or rows.shape[1] != columns or not len(rows):
            must = f"must have shape [B,{columns}], B from 1"
            raise GlassformerError(f"{self.ref} — rows {must}, got {list(rows.shape)}")
        for i, n in enumerate(self.radix):
            column = rows[:, i]
            if not 0 <= int(column.min()) <= int(column.max()) < n:
                outside = next(int(x) for x in column if not 0 <= x < n)
                must = f"must be from 0 to {short_repr(n - 1)}, got {short_repr(outside)}"
                raise GlassformerError(f"{self.ref} — number {i + 1} of a row {must}")
        return rows

    def require(self, vocabulary: Vocabulary) -> None:
        """Raise an error if the vocabulary differs from the task's."""
        if self.vocabulary != vocabulary:
            other = f"the model's vocabulary has {vocabulary}"
            raise GlassformerError(f"{self.ref} — has {self.vocabulary}; {other}")

    # ── typed inputs and answers ────────────────────────────────────────────────────────────────
    def prompt(self, text: str) -> list[int]:
        """Return the prompt tokens of a typed input."""
        return self.vocabulary.encode(text)

    def read(self, text: str) -> tuple[list[int], list[int]]:
        """Return the tokens of a typed question and of a typed start of the answer: 127+458=5."""
        if not self.question_end:
            return self.prompt(text), []
        question, mark, start = text.partition(self.question_end)
        return self.prompt(question + mark), self.vocabulary.encode(start.strip())

    def steps(self, prompt: Sequence[int]) -> int:
        """Return the maximum number of tokens to decode for a prompt."""
        return int(self.batch(self.rows(0, 1))[1].sum(1).max())

    def max_new_tokens(self, prompt: Sequence[int]) -> int | None:
        """Return the number of tokens after a prompt that have an answer; None if unlimited."""
        return None

    def answer(self, tokens: Sequence[int]) -> str:
        """Return generated tokens as a string, up to the stop token."""
        out = list(tokens)
        if self.stop is not None and self.stop in out:
            out = out[: out.index(self.stop)]
        return self.vocabulary.decode(out)


for _name in validation.ARGUMENTS:
    setattr(Task, _name, validation.with_checked_arguments(_name, vars(Task)[_name]))


class TwoNumbers(Task):
    """Base class of tasks with two numbers a and b and their `result` s, laid out by `layout`."""

    def result(self, rows: Rows) -> Any:
        """Return the number s of each row, [B]. Defaults to a + b."""
        return rows[:, 0] + rows[:, 1]  # faster than a sum over the axis

    def values(self, rows: Rows) -> dict[str, Any]:
        return {"a": rows[:, 0], "b": rows[:, 1], "s": self.result(rows)}

    def batch(self, rows: Rows) -> tuple[Any, Any]:
        form = self.layout()
        assert form
        tokens = np.empty((len(rows), len(form.spots)), np.int64)
        for t, column in enumerate(form.columns(self.values(rows))):
            tokens[:, t] = column
        return mark_answer(tokens, len(form.spots) - form.first)

    def typed_numbers(self, text: str, sign: str, digits: int) -> tuple[str, str]:
        """Return the two numbers of a typed question such as '4+8='."""
        number = rf"\s*([0-9]{{1,{digits}}})\s*"
        if not (match := re.fullmatch(rf"{number}{re.escape(sign)}{number}=?\s*", text)):
            wanted = f"two whole numbers of at most {digits} digit{'s' * (digits > 1)}"
            example = f"and a {sign} between them, such as 4{sign}8"
            raise GlassformerError(f"input {shorten(text, 60)!r} — expected {wanted} {example}")
        return match[1], match[2]
