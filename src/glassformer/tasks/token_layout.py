"""Token layout: the content of each position of a task's examples.

For a task with a `layout`, proofs, interchange and figures need no further code. `checked_layout`
compares the layout with examples of the task.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..utils.errors import MAX_PRINTED_INT, GlassformerError
from .bigint_rows import digits_of

if TYPE_CHECKING:
    from .base import Task

# ("a", 2) is digit 2 of the number a, where digit 0 is the ones; (TOKEN, 11) is the fixed token 11.
Spot = tuple[str, int]
TOKEN = "token"
ROW = "row"  # In a copy layout, ("row", 2) is number 2 of the row, as a token.
LAYOUT_SAMPLE_ROWS = 2_000  # number of random examples to compare, besides edge cases
MAX_ENUMERATED_ROWS = 20_000  # Domains up to this size are compared in full.
MAX_ANSWERS = 100_000  # number of rows to find the longest answer, without a layout
UNPADDED_EXAMPLES = 64  # number of examples to compare without leading zeros


@dataclass(frozen=True)
class TokenLayout:
    """The content of each position of an example, including the answer."""

    spots: tuple[Spot, ...]
    first: int  # position of the first token of the answer
    base: int = 10  # base of the digits; digit d is token d
    padded: bool = True  # False if leading zeros are omitted, so that tokens move left

    @property
    def query_positions(self) -> range:
        """Return the positions that predict an answer token."""
        return range(self.first - 1, len(self.spots) - 1)

    @property
    def ones_first(self) -> bool:
        """Return whether the answer is a number written with its ones digit first."""
        name, digit = self.spots[self.first]
        return name != TOKEN and digit == 0 and (name, 1) in self.spots[self.first :]

    @cached_property
    def _n_digits(self) -> dict[str, int]:
        """The number of digits of each number, by name."""
        return {name: 1 + digit for name, digit in sorted(self.spots)}

    def digit_positions(self, name: str) -> list[int]:
        """Return the positions of a number's digits, ones first."""
        position = {digit: t for t, (owner, digit) in enumerate(self.spots) if owner == name}
        return [position[digit] for digit in sorted(position)]

    def digits(self, name: str) -> int:
        return len(self.digit_positions(name))

    def tokens(self, numbers: Mapping[str, int], upto: int | None = None) -> list[int]:
        """Return the tokens of an example such as {"a": 45, "b": 78}, or of its first spots."""
        out = []
        for name, digit in self.spots[:upto]:
            if name == TOKEN:
                out.append(digit)
            elif self.padded or digit == 0 or numbers[name] >= self.base**digit:
                out.append(numbers[name] // self.base**digit % self.base)
        return out

    def columns(self, numbers: Mapping[str, Any]) -> list[Any]:
        """Return the zero-padded content of each position: a token, or an array of tokens [B]."""
        digits = {}
        if self.base == 10:  # Convert all digits at once, because numbers may be long.
            digits = {name: digits_of(np.asarray(x), self._n_digits[name]).T[::-1]
                      for name, x in numbers.items() if name in self._n_digits}  # fmt: skip
        return [
            number if name == TOKEN else digits[name][number] if digits
            else numbers[name] // self.base**number % self.base
            for name, number in self.spots
        ]  # fmt: skip

    def answer(self, tokens: Sequence[int], stop: int | None) -> int | None:
        """Return the number that the answer tokens spell, or None if a token is not a digit."""
        digits = [int(t) for t in tokens]
        if stop is not None:
            digits = digits[: digits.index(stop)] if stop in digits else []
        if not digits or max(digits) >= self.base:
            return None
        ones_first = digits if self.spots[self.first][1] == 0 else digits[::-1]
        return int(sum(d * self.base**i for i, d in enumerate(ones_first)))

    def to_json(self) -> list[str]:
        return [f"={number}" if name == TOKEN else f"{name}{number}" for name, number in self.spots]


def mark_answer(tokens: Any, n: int = 1) -> tuple[Any, Any]:
    """Return tokens [B,T] with a mask of the last n tokens of each row, as Task.batch does."""
    answer = np.zeros(tokens.shape, dtype=bool)
    answer[:, tokens.shape[1] - n :] = True
    return tokens, answer


def digit_slots(name: str, n: int) -> list[Spot]:
    """Return the spots of the n digits of a number, most significant first."""
    return [(name, digit) for digit in reversed(range(n))]


def list_layout(
    n: int, answers: int, base: int, before: Any = (), between: Any = (), after: Any = ()
) -> TokenLayout:
    """Return the layout of n one-token items x1 … xn, answers y1 … and fixed tokens."""
    x, y = ([(f"{name}{i}", 0) for i in range(1, k + 1)] for name, k in (("x", n), ("y", answers)))
    fixed = [[(TOKEN, int(t)) for t in part] for part in (before, between, after)]
    spots = (*fixed[0], *x, *fixed[1], *y, *fixed[2])
    return TokenLayout(spots, len(before) + n + len(between), base)


def answer_names(task: "Task") -> list[str]:
    """Return the names of the answer tokens: y1, y2, … (y if there is one), or the fixed token."""
    form, fixed = task.layout(), dict[int, str]()
    if form is None or not form.padded:
        n = int(task.batch(task.sample_or_all(MAX_ANSWERS))[1].sum(1).max())
    else:
        answer = form.spots[form.first :]
        n = len(answer)
        fixed = {i: task.vocabulary[t] for i, (name, t) in enumerate(answer) if name == TOKEN}
    return [fixed.get(i, "y" if n == 1 else f"y{i + 1}") for i in range(n)]


def checked_layout(task: "Task") -> TokenLayout:
    """Return the task's layout. Raise an error if it is missing or contradicts examples."""
    layout = task.layout()
    if layout is None:
        raise GlassformerError(f"{task.ref} — has no token layout", code="unsupported")
    rng = np.random.default_rng(0)
    rows = _examples(task, rng)
    if not layout.padded:  # Compare numbers of all lengths.
        max_digit = max(digit for name, digit in layout.spots if name != TOKEN)
        lengths = rng.integers(1, max_digit + 1, (UNPADDED_EXAMPLES, rows.shape[1]))
        rows = rows[-UNPADDED_EXAMPLES:] % layout.base**lengths
    rows = rows[task.defined(rows)]
    (tokens, answer), numbers = task.batch(rows), task.values(rows)
    if not layout.padded:
        mismatch = _text_mismatch(layout, tokens, answer, numbers)
    else:
        mismatch = _answer_mismatch(layout, tokens, answer)
        mismatch = mismatch or _first_mismatch(layout, tokens, layout.columns(numbers))
    if mismatch:
        raise GlassformerError(f"{task.ref} — its layout defines {mismatch}; its examples differ")
    return layout


def checked_copy_layout(task: "Task") -> TokenLayout:
    """Return the task's copy layout. Raise an error if it is missing or contradicts examples."""
    layout = task.copy_layout() if task.declares("copy_layout") else None
    if layout is None:
        raise GlassformerError(f"{task.ref} — has no copy layout", code="unsupported")
    sizes = {ROW: len(task.radix), TOKEN: len(task.vocabulary)}
    if not isinstance(layout, TokenLayout) or not 0 < layout.first < len(layout.spots) or any(
        not 0 <= number < sizes.get(name, 0) for name, number in layout.spots
    ):  # fmt: skip
        must = "its copy_layout must be a TokenLayout of (ROW, index) and (TOKEN, token) spots"
        raise GlassformerError(f"{task.ref} — {must}")
    rows = _examples(task, np.random.default_rng(0))
    mismatch = "" if task.defined(rows).all() else "an answer for every row"
    tokens, answer = task.batch(rows)
    columns = (number if name == TOKEN else rows[:, number] for name, number in layout.spots)
    mismatch = mismatch or _answer_mismatch(layout, tokens, answer)
    if mismatch := mismatch or _first_mismatch(layout, tokens, columns):
        raise GlassformerError(f"{task.ref} — its copies define {mismatch}; its examples differ")
    return layout


def _examples(task: "Task", rng: np.random.Generator) -> Any:
    """Return all rows of a small domain, or the edge cases and a sample."""
    few = task.size <= MAX_ENUMERATED_ROWS
    drawn = task.rows(0, task.size) if few else task.sample(LAYOUT_SAMPLE_ROWS, rng)
    return np.concatenate([task.edges(), drawn])


# These functions describe the first difference of a layout from examples, or return "".
def _first_mismatch(layout: TokenLayout, tokens: Any, columns: Iterable[Any]) -> str:
    for t, column in enumerate(columns):
        if not (tokens[:, t] == column).all():
            return f"{layout.to_json()[t]} at position {t}"
    return ""


def _answer_mismatch(layout: TokenLayout, tokens: Any, answer: Any) -> str:
    size = len(layout.spots)
    if tokens.shape[1] == size and (answer == (np.arange(size) >= layout.first)).all():
        return ""
    return f"the answer at positions {layout.first} to {size - 1}"


def _text_mismatch(
    layout: TokenLayout, tokens: Any, answer: Any, numbers: Mapping[str, Any]
) -> str:
    for i, values in enumerate(zip(*numbers.values(), strict=True)):
        text = layout.tokens({name: int(x) for name, x in zip(numbers, values, strict=True)})
        ending = tokens[i, answer[i]].tolist()
        if tokens[i, : len(text)].tolist() != text or text[-len(ending) :] != ending:
            return str(text)
    return ""


def sum_layout(task: "Task") -> TokenLayout:
    """Return the layout of a task that adds two n-digit numbers; raise an error for others."""
    is_pair = len(task.radix) == 2 and max(task.radix) < MAX_PRINTED_INT
    n = len(str(task.radix[0])) - 1 if is_pair else 0
    if not n or task.radix != (10**n, 10**n):
        raise GlassformerError(f"{task.ref} — expected a task that adds two numbers of some digits")
    if list(task.vocabulary.tokens[:10]) != list("0123456789"):
        raise GlassformerError(f"{task.ref} — expected tokens 0 to 9 first, got {task.vocabulary}")
    rows = np.concatenate([task.edges(), task.sample(LAYOUT_SAMPLE_ROWS, np.random.default_rng(0))])
    numbers, layout = task.values(rows), task.layout()
    adds = list(numbers) == ["a", "b", "s"] and (numbers["a"] + numbers["b"] == numbers["s"]).all()
    if not adds or layout is None or [layout.digits(name) for name in "abs"] != [n, n, n + 1]:
        raise GlassformerError(f"{task.ref} — its answer is not the sum of two numbers by digits")
    if not task.declares("layout"):
        hint = "it overrides batch or defined, so it must override layout too"
        raise GlassformerError(f"{task.ref} — {hint}")
    same = np.stack([numbers["a"], numbers["b"]], 1) == rows
    if not same.all() or not task.defined(rows).all():
        raise GlassformerError(f"{task.ref} — its rows are not its two numbers")
    return checked_layout(task)
