"""The tasks `sort` (one token per number) and `sort-digits` (one token per digit)."""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from ..core.vocabulary import Vocabulary
from ..registry import Between, task
from ..utils.errors import GlassformerError
from .base import Rows, Task

Length = Annotated[int, Between(1, 1000)]
Low = Annotated[int, Between(-1_000_000, 1)]
Digits = Annotated[int, Between(2, 4)]
Base = Annotated[int, Between(2, 10)]


def number_tokens(vocab: int, low: int = 1) -> Vocabulary:
    """Return a vocabulary of the delimiter and the vocab−1 numbers low, low+1, …"""
    if low == 1:
        return Vocabulary.numbers(vocab)
    return Vocabulary([";", *map(str, range(low, low + vocab - 1))], sep=" ")


@task("sort")
class Sort(Task):
    """Up to `length` numbers from `low` on, in ascending order; `exact`: no shorter lists. Small
    enough to train by default: the program sort is of sort:vocab=1001,length=64.
    """

    default_sample_size = 10_000  # Long lists are slow.

    def __init__(
        self, vocab: Annotated[int, Between(2, 65_536)] = 11, length: Length = 6,
        exact: bool = False, repeats: bool = False, low: Low = 1,
    ) -> None:  # fmt: skip
        if exact and not repeats and length > vocab - 1:
            most = f"at most {vocab - 1} without repeats=true"
            raise GlassformerError(f"length must be {most}, got {length}")
        self.vocabulary = number_tokens(vocab, low)
        self.numbers, self.repeats = vocab - 1, repeats
        self.length = length if repeats else min(length, vocab - 1)
        self.shortest = self.length if exact else 1
        self.radix = (vocab,) * self.length

    # ── the domain ─────────────────────────────────────────────────────────────────────────────
    def _choices(self, k: int) -> list[int]:
        """Return the number of possible values of each place of a list of k numbers."""
        return [self.numbers - (0 if self.repeats else i) for i in range(k)]

    @property
    def size(self) -> int:
        return sum(math.prod(self._choices(k)) for k in range(self.shortest, self.length + 1))

    def rows(self, start: int, stop: int) -> Rows:
        """Return lists, longest first, then in lexical order."""
        parts = []
        for k in range(self.length, self.shortest - 1, -1):
            n = math.prod(self._choices(k))
            if start < n and stop > 0:
                parts.append(self._lists(k, max(start, 0), min(stop, n)))
            start, stop = start - n, stop - n
        return np.concatenate(parts) if parts else np.zeros((0, self.length), np.int64)

    def _lists(self, k: int, start: int, stop: int) -> Rows:
        index = np.arange(start, stop, dtype=np.int64)
        out = np.zeros((stop - start, self.length), np.int64)
        for i, n in reversed(list(enumerate(self._choices(k)))):
            index, out[:, i] = np.divmod(index, n)
            if not self.repeats:  # Shift numbers past the number used by place i.
                out[:, i + 1 : k] += out[:, i + 1 : k] >= out[:, i, None]
        out[:, :k] += 1
        return out

    def sample(self, n: int, rng: np.random.Generator) -> Rows:
        """Draw lists: all lengths are equally likely, and so are all lists of one length."""
        lengths = rng.integers(self.shortest, self.length + 1, n)
        if self.repeats:
            rows = rng.integers(1, self.numbers + 1, (n, self.length))
        else:
            lists = [rng.choice(self.numbers, self.length, replace=False) for _ in range(n)]
            rows = np.stack(lists) + 1
        return np.where(np.arange(self.length) < lengths[:, None], rows, 0)

    def subsets(self, orders: int, rng: np.random.Generator) -> Rows:
        """Return every set of up to `length` numbers, each set in `orders` random orders."""
        if self.numbers > 16:
            raise GlassformerError(f"subsets — expected at most 16 numbers, got {self.numbers}")
        rows = []
        for subset in range(1, 2**self.numbers):
            members = 1 + np.flatnonzero(subset >> np.arange(self.numbers) & 1)
            if self.shortest <= len(members) <= self.length:
                lists = rng.permuted(np.tile(members, (orders, 1)), axis=1)
                rows.append(np.pad(lists, ((0, 0), (0, self.length - len(members)))))
        return np.concatenate(rows)

    def edges(self) -> Rows:
        """Return ascending and descending runs at both ends and evenly spread, and repeats."""
        k = min(self.length, self.numbers)
        run, spread = np.arange(1, k + 1), np.linspace(1, self.numbers, k).astype(np.int64)
        up = [run, run + self.numbers - k, spread]
        lists = [either for x in up for either in (x, x[::-1])]
        if self.repeats:
            whole = np.arange(self.length)
            lists += [whole * 0 + 1, whole * 0 + self.numbers, 1 + whole % k]
            lists += [1 + (whole > 0) * (self.numbers - 1)]
        full = [np.pad(x, (0, self.length - len(x))) for x in lists if len(x) >= self.shortest]
        return np.array(full).reshape(-1, self.length)

    def classes(self, rows: Rows) -> Any:
        return np.array([f"{n} numbers" for n in (rows > 0).sum(axis=1)])

    def at_difficulty(self, rows: Rows, level: int) -> Rows:
        """Return lists cut to at most `level` numbers."""
        if level < self.shortest:
            raise GlassformerError(f"{self.ref} — has no lists of {level}, because of exact=true")
        return np.where(np.arange(self.length) < level, rows, 0)

    def entropy_floor(self) -> float:
        """Return the loss floor: the entropy of `sample` without the first token read."""
        lengths = range(self.shortest, self.length + 1)
        lists = np.mean([np.log(self._choices(k)).sum() for k in lengths])
        singles, _ = self.batch(np.arange(1, self.numbers + 1)[:, None])
        first = np.bincount(singles[:, 0]) / self.numbers
        first_entropy = -(first[first > 0] * np.log(first[first > 0])).sum()
        tokens = np.mean([self.batch(np.ones((1, k), np.int64))[0].shape[1] for k in lengths])
        return float((math.log(len(lengths)) + lists - first_entropy) / (tokens - 1))

    # ── tokens and text ────────────────────────────────────────────────────────────────────────
    def batch(self, rows: Rows) -> tuple[Any, Any]:
        lengths = (rows > 0).sum(axis=1)
        longest = int(lengths.max())
        tokens = np.zeros((len(rows), 2 * longest + 1), np.int64)
        answer = np.zeros(tokens.shape, dtype=bool)
        for k in np.unique(lengths):
            those = lengths == k
            tokens[those, :k] = rows[those, :k]
            tokens[those, k + 1 : 2 * k + 1] = np.sort(rows[those, :k], axis=1)
            answer[those, k + 1 : 2 * k + 1] = True
        return tokens, answer

    def prompt(self, text: str) -> list[int]:
        """Encode a list with or without the final delimiter."""
        return [*self.check(self.vocabulary.encode(text), text), 0]

    def read(self, text: str) -> tuple[list[int], list[int]]:
        """Return the tokens of a typed list and of a typed start of the sorted list.

        Only a start of the sorted list may follow the delimiter. Otherwise a 0 between the numbers
        is an error instead of the end of the list.
        """
        words = text.replace(",", " ").split()
        end = next((i for i, w in enumerate(words) if {*w} == {*self.vocabulary[0]}), len(words))
        question, start = self.prompt(" ".join(words[:end])), words[end + 1 :]
        right = sorted(words[:end], key=int)
        if [w.lstrip("0") for w in start] != [w.lstrip("0") for w in right[: len(start)]]:
            return self.prompt(text), []  # This raises an error.
        answer = self.prompt(" ".join(right))[: self.steps(question)]
        return question, answer[: len(answer) // end * len(start)]

    def check(self, numbers: list[int], text: str) -> list[int]:
        """Raise an error if a list, given without the delimiter, is outside the domain."""
        numbers = numbers[:-1] if numbers[-1:] == [0] else numbers
        end, what = self.vocabulary[0], f"{self.ref.partition(':')[0]} of {text[:40]!r}"
        if 0 in numbers:
            raise GlassformerError(f"{what} — {end} may be only at the end of a list")
        if not self.repeats and len(set(numbers)) < len(numbers):
            wanted = "expected different numbers. Set repeats=true to sort others"
            raise GlassformerError(f"{what} — {wanted}")
        if not self.shortest <= (n := len(numbers)) <= self.length:
            wanted = f"expected {self.shortest} to {self.length} numbers"
            raise GlassformerError(f"{what} — {wanted}, got {n}")
        return numbers

    def steps(self, prompt: Sequence[int]) -> int:
        return len(prompt) - 1


@task("sort-digits")
class SortDigits(Sort):
    """Numbers of several digits, a token per digit, in ascending order; 0 ends the list."""

    space_separated = True

    def __init__(
        self, digits: Digits = 2, base: Base = 10, length: Length = 8, exact: bool = False
    ) -> None:
        super().__init__(vocab=base**digits, length=length, exact=exact)
        self.vocabulary = Vocabulary("0123456789"[:base])
        self.digits, self.base = digits, base

    def batch(self, rows: Rows) -> tuple[Any, Any]:
        numbers, answer = super().batch(rows)
        return self.spell(numbers), np.repeat(answer, self.digits, axis=1)

    def spell(self, numbers: Any) -> Any:
        """Return the digits [B, T·digits] of numbers [B,T], most significant first."""
        places = self.base ** np.arange(self.digits)[::-1]
        return (numbers[..., None] // places % self.base).reshape(len(numbers), -1)

    def prompt(self, text: str) -> list[int]:
        """Encode numbers separated by white space or commas, with or without leading zeros."""
        numbers = []
        for word in text.replace(",", " ").split():
            digits = self.vocabulary.encode(word)
            if len(digits) > self.digits:
                wanted = f"expected at most {self.digits} digits"
                raise GlassformerError(f"{word} — {wanted}, got {len(digits)}")
            numbers.append(int(word, self.base))
        return [int(d) for d in self.spell(np.array([[*self.check(numbers, text), 0]]))[0]]

    def steps(self, prompt: Sequence[int]) -> int:
        return len(prompt) - self.digits

    def answer(self, tokens: Sequence[int]) -> str:
        text = self.vocabulary.decode(tokens)
        return " ".join(text[i : i + self.digits] for i in range(0, len(text), self.digits))
