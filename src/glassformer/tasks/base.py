"""The base of all tasks. An example is a row of integers of the task's radix."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.vocabulary import Vocabulary
from ..utils.errors import GlassformerError, short_repr
from ..utils.limits import as_integers, format_count
from ..utils.results import Displayable
from .bigint_rows import random_below, row_type
from .token_layout import TOKEN, TokenLayout, mark_answer
from .validation import (
    ARGUMENTS,
    RESULT_CHECKS,
    check_attributes,
    task_error,
    with_checked_arguments,
    with_checked_result,
)

Rows = Any  # integers [B, len(radix)]
BOUNDARY_SAMPLE_ROWS = 200  # examples looked at, where a task does not say its format


class Task(Displayable):
    """What is right: a domain of rows, and the tokens and answer of each.

    Exhaustive is counting up: rows(0, size). A subclass sets `vocabulary` and `radix` and says what
    a `batch` of rows looks like; it overrides the rest where its domain is not a plain box.
    """

    vocabulary: Vocabulary
    radix: tuple[int, ...]
    stop: int | None = None  # the token that ends an answer
    question_end: str = ""  # what ends a question, where `prompt` takes no more than a question
    space_separated: bool = (
        False  # stand between the things of a text, though not between its tokens
    )
    ref: str = ""  # set by the registry
    example_inputs: tuple[str, ...] = ()  # inputs that the sources discuss
    # p, and + or -, where the one token of the answer is a ± b modulo p
    modular: tuple[int, str] | None = None
    # Explanations of what a part carries, which `foretold` tells apart.
    explanations: tuple[str, ...] = ("stays", "source")
    # Rows of a sample, where the domain is too large to count through.
    default_sample_size: int = 100_000

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ARGUMENTS.keys() & vars(cls).keys():
            setattr(cls, name, with_checked_arguments(name, vars(cls)[name]))
        for name in RESULT_CHECKS.keys() & vars(cls).keys():
            setattr(cls, name, with_checked_result(name, vars(cls)[name]))

    def __repr__(self) -> str:
        name = self.ref or type(self).__name__
        try:
            check_attributes(self)
        except GlassformerError as e:
            return f"<Task {e}>"
        return f"<Task {name}: {format_count(self.inputs)} inputs, {self.vocabulary}>"

    def batch(self, rows: Rows) -> tuple[Any, Any]:
        """Tokens [B,T] of whole examples, and True [B,T] where the answer is.

        Examples of several lengths are padded on the right, with the mask False there.
        """
        raise task_error(self, "batch: a task says what its rows look like, and this one does not")

    @property
    def size(self) -> int:
        """How many rows the domain has."""
        return math.prod(self.radix)

    @property
    def row_type(self) -> Any:
        """The type of an array of rows: int64, or object where numbers are beyond that."""
        return row_type(self.radix)

    @property
    def inputs(self) -> int:
        """How many inputs these are, where some rows are none."""
        return self.size

    def rows(self, start: int, stop: int) -> Rows:
        """Rows start … stop-1 of the domain, counting up; the last digit runs fastest."""
        if not 0 <= start <= stop <= self.size:
            raise task_error(self, f"rows: expected a range within 0 to {format_count(self.size)}")
        # of Python's own numbers nobody counts far
        long, columns = self.row_type.hasobject, []
        index: Any = np.array([*range(start, stop)], object) if long else np.arange(start, stop)
        for n in reversed(self.radix):
            rest = index // n  # objects have no divmod
            columns.append(index - rest * n)
            index = rest
        return np.stack(columns[::-1], axis=1) if columns else np.zeros((stop - start, 0), np.int64)

    def sample(self, n: int, rng: np.random.Generator) -> Rows:
        """n rows drawn uniformly, with replacement."""
        columns = [random_below(r, n, rng) for r in self.radix]
        return np.stack(columns, axis=1) if columns else np.zeros((n, 0), np.int64)

    @property
    def samples_uniformly(self) -> bool:
        """Whether `sample` draws all rows with equal probability."""
        return type(self).sample is Task.sample

    def defined(self, rows: Rows) -> Any:
        """Which rows have a right answer: bool [B]."""
        return np.ones(len(rows), dtype=bool)

    def edges(self) -> Rows:
        """Rows that are always worth a look."""
        return np.zeros((0, len(self.radix)), self.row_type)

    def classes(self, rows: Rows) -> Any:
        """The class of input that each row belongs to, as texts [B]."""
        return np.full(len(rows), "")

    def at_difficulty(self, rows: Rows, level: int) -> Rows:
        """The rows made easier, for a curriculum: up to a level of the task (digits, length)."""
        raise GlassformerError(f"{self.ref} — has no levels for a curriculum")

    def entropy_floor(self) -> float | None:
        """The least mean loss on all positions, inputs being random; None if nobody knows."""
        return None

    # ── where things stand ─────────────────────────────────────────────────────────────────────
    def layout(self) -> TokenLayout | None:
        """What each position holds, in terms of `values`; None where texts have no fixed places.
        With digits of a, b and s alone, it says that s is a + b.
        """
        return None

    def copy_layout(self) -> TokenLayout | None:
        """What each position holds, of a task whose answers copy: (ROW, i), number i of the row as
        a token, or a token that is always there. None for all others.
        """
        return None

    def declares(self, name: str) -> bool:
        """Whether its `format` or `copies` was said of the texts that it writes. Who derives from
        a task and writes others has not said it of them.
        """
        for said in (vars(self), *map(vars, type(self).__mro__)):
            if name in said or said.keys() & {"batch", "defined"}:
                return name in said
        return False

    def is_exactly(self, *kinds: type["Task"]) -> bool:
        """Whether it is one of these kinds as they are, so that what was proved of them holds of
        it: who derives from one, or gives it a method of its own, may write other texts.
        """
        own = (name for name in vars(self) if callable(getattr(type(self), name, None)))
        if not all(isinstance(kind, type) for kind in kinds):
            raise GlassformerError(f"is_just — expected classes of tasks, got {short_repr(kinds)}")
        return type(self) in kinds and next(own, None) is None

    def values(self, rows: Rows) -> dict[str, Any]:
        """The numbers that the format speaks of, by name, [B] each; by default tokens."""
        form, (tokens, _) = self.layout(), self.batch(rows)
        spots = form.spots if form else ()
        return {name: tokens[:, t] for t, (name, _) in enumerate(spots) if name != TOKEN}

    def boundary(self) -> int:
        """Where the answer starts in texts as drawn; an error if that is at several places."""
        if (form := self.layout()) and form.padded:
            return form.first
        tokens, answer = self.batch(self.sample_or_all(BOUNDARY_SAMPLE_ROWS))
        first = int(answer[0].argmax())
        if not (answer == (np.arange(tokens.shape[1]) >= first)).all():
            why = "its examples are of several lengths: their positions cannot be compared"
            raise GlassformerError(f"{self.ref} — {why}")
        return first

    def roles(self) -> dict[str, Any]:
        """Which positions hold what the next token needs: name -> bool [T-1, T-1], a row for who
        asks in the answer, a column for who is asked. {} where no fixed map exists.
        """
        return {}

    def counterfactual_answers(self, rows: Rows, i: int) -> dict[str, Any]:
        """Token i of the answer, [B], under each explanation of what one run gave to another.

        rows [2,B,*]: what the model reads, and where the part that is put in comes from. `stays`:
        nothing that matters was carried; `source`: the answer itself.
        """
        both = map(self.batch, rows)
        said = [tokens[np.arange(len(tokens)), a.argmax(1) + i] for tokens, a in both]
        return dict(zip(("stays", "source"), said, strict=True))

    def sample_or_all(self, n: int, seed: int = 0) -> Rows:
        """All rows that have an answer, or of more than n those among n drawn at random."""
        few = self.size <= n
        rows = self.rows(0, self.size) if few else self.sample(n, np.random.default_rng(seed))
        return rows[self.defined(rows)]

    def validate_rows(self, rows: Rows) -> Rows:
        """Rows as an array; an error if they are none of the domain."""
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
        """An error if these are not the task's tokens."""
        if self.vocabulary != vocabulary:
            other = f"the model's vocabulary has {vocabulary}"
            raise GlassformerError(f"{self.ref} — has {self.vocabulary}; {other}")

    # ── text in, text out ──────────────────────────────────────────────────────────────────────
    def prompt(self, text: str) -> list[int]:
        """The tokens to give to a model for what a person typed."""
        return self.vocabulary.encode(text)

    def read(self, text: str) -> tuple[list[int], list[int]]:
        """What a person typed: the tokens of the question, and those with which the answer begins
        if the text goes on: `127+458=5` asks what comes after the 5.
        """
        question, mark, start = (
            text.partition(self.question_end) if self.question_end else (text, "", "")
        )
        return self.prompt(question + mark), self.vocabulary.encode(start.strip())

    def steps(self, prompt: Sequence[int]) -> int:
        """How many tokens to decode, at most, after a prompt."""
        return int(self.batch(self.rows(0, 1))[1].sum(1).max())

    def max_new_tokens(self, prompt: Sequence[int]) -> int | None:
        """How many tokens may follow a prompt before nothing is known of what is right."""
        return None

    def answer(self, tokens: Sequence[int]) -> str:
        """The text of the tokens that a model produced."""
        out = list(tokens)
        if self.stop is not None and self.stop in out:
            out = out[: out.index(self.stop)]
        return self.vocabulary.decode(out)


for _name in ARGUMENTS:
    setattr(Task, _name, with_checked_arguments(_name, vars(Task)[_name]))


class TwoNumbers(Task):
    """Two numbers a and b and their `result` s, digit by digit in the layout of `format`."""

    def result(self, rows: Rows) -> Any:
        """Return the number s of each row, [B]: a + b by default."""
        return rows.sum(1)

    def values(self, rows: Rows) -> dict[str, Any]:
        return {"a": rows[:, 0], "b": rows[:, 1], "s": self.result(rows)}

    def batch(self, rows: Rows) -> tuple[Any, Any]:
        form = self.layout()
        assert form
        tokens = np.empty((len(rows), len(form.spots)), np.int64)
        for t, column in enumerate(form.columns(self.values(rows))):
            tokens[:, t] = column
        return mark_answer(tokens, len(form.spots) - form.first)
