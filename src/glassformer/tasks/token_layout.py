"""Where things stand: what each position of a task's texts holds.

A task that says its `format` gets proofs, interchange and figures without a line of code elsewhere.
Nobody takes its word for it: `format_of` compares it with examples that the task itself makes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..utils.errors import MAX_PRINTED_INT, GlassformerError
from .bigint_rows import digits_of

if TYPE_CHECKING:
    from .base import Task

# ("a", 2): digit 2 of the number a, digit 0 being the ones; (TOKEN, 11): always token 11
Spot = tuple[str, int]
TOKEN = "token"
ROW = "row"  # ("row", 2), in what `copies` says: number 2 of the row, as a token
LAYOUT_SAMPLE_ROWS = 2_000  # random examples that a format must agree with; all edge cases too
MAX_ENUMERATED_ROWS = 20_000  # rows of a domain: up to so many, each must agree
MAX_ANSWERS = 100_000  # rows that are looked at for the longest answer, where no format says it
SHORT_TEXT = 64  # of these, where numbers are written without zeros before them


@dataclass(frozen=True)
class TokenLayout:
    """What stands at each position of an example, the answer included."""

    spots: tuple[Spot, ...]
    first: int  # position of the first token of the answer
    base: int = 10  # of the digits; digit d is token d
    # all digits are written; else zeros before a number are left out, and what follows moves up
    padded: bool = True

    @property
    def query_positions(self) -> range:
        """The positions whose next token is part of the answer."""
        return range(self.first - 1, len(self.spots) - 1)

    @property
    def ones_first(self) -> bool:
        """Whether the answer is a number that begins with its ones."""
        name, digit = self.spots[self.first]
        return name != TOKEN and digit == 0 and (name, 1) in self.spots[self.first :]

    def digit_positions(self, name: str) -> list[int]:
        """The positions of a number's digits, the ones first."""
        found = {digit: t for t, (what, digit) in enumerate(self.spots) if what == name}
        return [found[digit] for digit in sorted(found)]

    def digits(self, name: str) -> int:
        return len(self.digit_positions(name))

    def tokens(self, numbers: Mapping[str, int], upto: int | None = None) -> list[int]:
        """Some numbers as text, or its start: `format.tokens({"a": 45, "b": 78}, format.first)`."""
        out = []
        for name, digit in self.spots[:upto]:
            if name == TOKEN:
                out.append(digit)
            elif self.padded or digit == 0 or numbers[name] >= self.base**digit:
                out.append(numbers[name] // self.base**digit % self.base)
        return out

    def columns(self, numbers: Mapping[str, Any]) -> list[Any]:
        """Return each position's content, zero-padded: one token, or an array of them, [B]."""
        digits = {}
        if self.base == 10:  # all at once: numbers may be long
            longest = {name: 1 + digit for name, digit in sorted(self.spots)}
            digits = {name: digits_of(np.asarray(x), longest[name]).T[::-1]
                      for name, x in numbers.items() if name in longest}  # fmt: skip
        return [
            number if name == TOKEN else digits[name][number] if digits
            else numbers[name] // self.base**number % self.base
            for name, number in self.spots
        ]  # fmt: skip

    def answer(self, tokens: Sequence[int], stop: int | None) -> int | None:
        """The number that the tokens of an answer say; None if it is none."""
        said = [int(t) for t in tokens]
        if stop is not None:
            said = said[: said.index(stop)] if stop in said else []
        if not said or max(said) >= self.base:
            return None
        ones_first = said if self.spots[self.first][1] == 0 else said[::-1]
        return int(sum(d * self.base**i for i, d in enumerate(ones_first)))

    def to_json(self) -> list[str]:
        return [f"={number}" if name == TOKEN else f"{name}{number}" for name, number in self.spots]


def mark_answer(tokens: Any, n: int = 1) -> tuple[Any, Any]:
    """Tokens [B,T], and where the answer is, the last n of each row: what Task.batch gives."""
    answer = np.zeros(tokens.shape, dtype=bool)
    answer[:, tokens.shape[1] - n :] = True
    return tokens, answer


def digit_slots(name: str, n: int) -> list[Spot]:
    """The n digits of a number, the most significant first."""
    return [(name, digit) for digit in reversed(range(n))]


def list_layout(
    n: int, answers: int, base: int, before: Any = (), between: Any = (), after: Any = ()
) -> TokenLayout:
    """A list of n things, x1 … xn, a token each, then the answer, y1 …; with tokens fixed in it."""
    x, y = ([(f"{name}{i}", 0) for i in range(1, k + 1)] for name, k in (("x", n), ("y", answers)))
    spots = [[(TOKEN, int(t)) for t in part] for part in (before, between, after)]
    return TokenLayout(
        (*spots[0], *x, *spots[1], *y, *spots[2]), len(before) + n + len(between), base
    )


def answer_names(task: "Task") -> list[str]:
    """Return names of the answer tokens: y1, y2, … (y, if only one); a fixed token's own text."""
    form, fixed = task.layout(), dict[int, str]()
    if form is None or not form.padded:
        n = int(task.batch(task.sample_or_all(MAX_ANSWERS))[1].sum(1).max())
    else:
        said = form.spots[form.first :]
        n = len(said)
        fixed = {i: task.vocabulary[t] for i, (name, t) in enumerate(said) if name == TOKEN}
    return [fixed.get(i, "y" if n == 1 else f"y{i + 1}") for i in range(n)]


def checked_layout(task: "Task") -> TokenLayout:
    """The task's format; an error if it has none, or if its own examples say otherwise."""
    found = task.layout()
    if found is None:
        raise GlassformerError(f"{task.ref} — its texts have no fixed places")
    rng = np.random.default_rng(0)
    rows = _examples(task, rng)
    if not found.padded:  # numbers of all lengths
        most = max(digit for name, digit in found.spots if name != TOKEN)
        rows = rows[-SHORT_TEXT:] % found.base ** rng.integers(
            1, most + 1, (SHORT_TEXT, rows.shape[1])
        )
    rows = rows[task.defined(rows)]
    compare = _column_mismatch if found.padded else _text_mismatch
    if why := compare(found, *task.batch(rows), task.values(rows)):
        raise GlassformerError(f"{task.ref} — its format says {why}, and its examples do not")
    return found


def checked_copy_layout(task: "Task") -> TokenLayout:
    """Return the task's `copies`; an error if it has none, or if its examples disagree."""
    found = task.copy_layout() if task.declares("copy_layout") else None
    if found is None:
        raise GlassformerError(f"{task.ref} — does not say of itself that its answers are copies")
    known = {ROW: len(task.radix), TOKEN: len(task.vocabulary)}
    if not isinstance(found, TokenLayout) or not 0 < found.first < len(found.spots) or any(
        not 0 <= number < known.get(name, 0) for name, number in found.spots
    ):  # fmt: skip
        must = "its copies must be a Format, every spot (ROW, a number of the row) or (TOKEN, one)"
        raise GlassformerError(f"{task.ref} — {must}")
    rows = _examples(task, np.random.default_rng(0))
    why = "" if task.defined(rows).all() else "that every row has an answer"
    tokens, answer = task.batch(rows)
    columns = (number if name == TOKEN else rows[:, number] for name, number in found.spots)
    if (
        why := why
        or _answer_mismatch(found, tokens, answer)
        or _first_mismatch(found, tokens, columns)
    ):
        raise GlassformerError(f"{task.ref} — its copies say {why}, and its examples do not")
    return found


def _examples(task: "Task", rng: np.random.Generator) -> Any:
    """All rows of a small domain; else the edge cases and some at random."""
    few = task.size <= MAX_ENUMERATED_ROWS
    drawn = task.rows(0, task.size) if few else task.sample(LAYOUT_SAMPLE_ROWS, rng)
    return np.concatenate([task.edges(), drawn])


def _column_mismatch(
    found: TokenLayout, tokens: Any, answer: Any, numbers: Mapping[str, Any]
) -> str:
    """What the format says and the examples, all of one length, do not; "" if nothing."""
    return _answer_mismatch(found, tokens, answer) or _first_mismatch(
        found, tokens, found.columns(numbers)
    )


def _first_mismatch(found: TokenLayout, tokens: Any, columns: Iterable[Any]) -> str:
    """Describe the first spot whose token differs in the examples; "" if all agree."""
    for t, column in enumerate(columns):
        if not (tokens[:, t] == column).all():
            return f"that {found.to_json()[t]} is at position {t}"
    return ""


def _answer_mismatch(found: TokenLayout, tokens: Any, answer: Any) -> str:
    """Where it says that the answer is, if examples have it elsewhere."""
    size = len(found.spots)
    if tokens.shape[1] == size and (answer == (np.arange(size) >= found.first)).all():
        return ""
    return f"that the answer is at positions {found.first} to {size - 1}"


def _text_mismatch(found: TokenLayout, tokens: Any, answer: Any, numbers: Mapping[str, Any]) -> str:
    """The same of examples of several lengths, one by one."""
    for i, values in enumerate(zip(*numbers.values(), strict=True)):
        text = found.tokens({name: int(x) for name, x in zip(numbers, values, strict=True)})
        said = tokens[i, answer[i]].tolist()
        if tokens[i, : len(text)].tolist() != text or text[-len(said) :] != said:
            return str(text)
    return ""


def sum_layout(task: "Task") -> TokenLayout:
    """The format of a task that adds two numbers a and b of n digits; else an error says why."""
    n = (
        len(str(task.radix[0])) - 1
        if len(task.radix) == 2 and max(task.radix) < MAX_PRINTED_INT
        else 0
    )
    if not n or task.radix != (10**n, 10**n):
        raise GlassformerError(f"{task.ref} — expected a task that adds two numbers of some digits")
    if list(task.vocabulary.tokens[:10]) != list("0123456789"):
        raise GlassformerError(f"{task.ref} — expected tokens 0 to 9 first, got {task.vocabulary}")
    rows = np.concatenate([task.edges(), task.sample(LAYOUT_SAMPLE_ROWS, np.random.default_rng(0))])
    numbers, found = task.values(rows), task.layout()
    adds = list(numbers) == ["a", "b", "s"] and (numbers["a"] + numbers["b"] == numbers["s"]).all()
    if not adds or found is None or [found.digits(name) for name in "abs"] != [n, n, n + 1]:
        raise GlassformerError(f"{task.ref} — its answer is not the sum of two numbers by digits")
    if not task.declares("layout"):
        what = "its format was not said of the texts that it writes, but of those it derives from"
        raise GlassformerError(f"{task.ref} — {what}")
    same = np.stack([numbers["a"], numbers["b"]], 1) == rows
    if not same.all() or not task.defined(rows).all():
        raise GlassformerError(f"{task.ref} — its rows are not its two numbers")
    return checked_layout(task)
