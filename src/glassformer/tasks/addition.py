"""The task addition: two numbers of up to 12 digits, in each of three formats.

    045+078=0123            order=most, padding=zero: the booklet's. 12 tokens, a fixed length, no end token
    045+078=3210<EOS>       order=ones: the book's, with the answer's ones first. 14 tokens (<PAD> is never used)
    <bos>45+78=123<eos>     padding=none: operands and answer as people write them (the booklet's exercise 6.20)

A row is the two numbers (a, b).
"""  # noqa: E501

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np

from ..core.vocabulary import Vocabulary
from ..registry import Between, task
from ..utils.errors import GlassformerError
from .base import Rows, TwoNumbers
from .bigint_rows import digits_of, row_type, unique_rows
from .token_layout import TOKEN, TokenLayout, digit_slots

PLUS, EQUALS = 10, 11
BOS, EOS = 12, 13  # tokens after "=" in formats that have them
EXTRA_TOKENS = {
    ("most", "zero"): (), ("ones", "zero"): ("<PAD>", "<EOS>"),
    ("most", "none"): ("<bos>", "<eos>"),
}  # fmt: skip
# Maximum number of digits for edge cases with carries between all pairs of columns.
MAX_PATTERN_DIGITS = 12
Digits = Annotated[int, Between(1, 12)]


@task("addition")
class Addition(TwoNumbers):
    """The sum of two whole numbers."""

    question_end = "="
    example_inputs = ("123+456", "999+1", "0+0", "999+999", "500+500", "111+222")

    def __init__(
        self, digits: Digits = 3, order: Literal["most", "ones"] = "most",
        padding: Literal["zero", "none"] = "zero",
    ) -> None:  # fmt: skip
        if (order, padding) not in EXTRA_TOKENS:
            raise GlassformerError("addition — order=ones goes with padding=zero only")
        self.digits, self.order, self.padding = digits, order, padding
        self.vocabulary = Vocabulary([*"0123456789+=", *EXTRA_TOKENS[order, padding]])
        self.radix = (10**digits, 10**digits)
        self.stop = EOS if len(self.vocabulary) > EOS else None
        if order == "ones":
            self.explanations = ("stays", "column", "carry", "both")

    def batch(self, rows: Rows) -> tuple[Any, Any]:
        padded = super().batch(rows)
        return _without_leading_zeros(*padded) if self.padding == "none" else padded

    def edges(self) -> Rows:
        """Return carry cascades of every length at every place, and special numbers."""
        return _edges(self.digits).copy()

    def classes(self, rows: Rows) -> Any:
        """Return the number of carries and the longest cascade: "carries=3 cascade=3" for 999+1."""
        n = self.digits
        a, b = (digits_of(x, n)[:, ::-1] for x in rows.T)
        # run: number of columns that the incoming carry has passed.
        run = longest = carries = np.zeros(len(rows), np.int64)
        for column in (a + b).T:
            run = np.where(column >= 10, 1, np.where((column == 9) & (run > 0), run + 1, 0))
            longest, carries = np.maximum(longest, run), carries + (run > 0)
        codes, which = np.unique(carries * (n + 1) + longest, return_inverse=True)
        names = [f"carries={c} cascade={k}" for c, k in (divmod(x, n + 1) for x in codes.tolist())]
        return np.array(names, str)[which.ravel()]

    def at_difficulty(self, rows: Rows, level: int) -> Rows:
        """Return the rows with numbers reduced to at most `level` digits."""
        return rows % 10 ** min(level, self.digits)

    def entropy_floor(self) -> float:
        """Return the loss floor: all digits are random except the first token read."""
        n, N = self.digits, 10**self.digits
        if self.padding == "zero":
            return (2 * n - 1) * math.log(10) / (2 * n + 1 + self.steps(()))
        places = 10 ** np.arange(1, n + 1, dtype=float)
        # Expected number of digits: 1, and one for each power of ten that the number reaches.
        operand = 1 + (1 - places / N).sum()
        total = 1 + (1 - places * (places + 1) / 2 / N**2).sum()
        return float(2 * n * math.log(10) / (2 * operand + total + 3))

    def layout(self) -> TokenLayout:
        return _layout(self.digits, self.order, self.padding)

    def roles(self) -> dict[str, Any]:
        """Return the positions of the inputs of each answer digit.

        Roles a and b are the digits of the two numbers in the same column. The role carry has the
        positions that determine the carry into the column. If the ones come first, these are the
        two digits of the column below and the digit just written; otherwise all digits below.
        """
        form = self.layout()
        if not form.padded:
            return {}  # The positions of columns vary between sums.
        size, a, b = len(form.spots) - 1, form.digit_positions("a"), form.digit_positions("b")
        roles = {name: np.zeros((size, size), dtype=bool) for name in ("a", "b", "carry")}
        for row in form.query_positions:
            name, column = form.spots[row + 1]
            if name != "s":
                continue
            ones_first = self.order == "ones"
            below = range(max(column - 1, 0), column) if ones_first else range(column)
            for role, places in (("a", a), ("b", b)):
                roles[role][row, places[column : column + 1]] = True
                roles["carry"][row, [places[c] for c in below]] = True
            if ones_first and column:
                roles["carry"][row, row] = True
        return roles

    def counterfactual_answers(self, rows: Rows, i: int) -> dict[str, Any]:
        """Return answer digit i under each hypothesis on a patched activation.

        With the ones first, let u be the column sum a_i + b_i and c the carry into the column; u'
        and c' are those values in the source row.

            stays    (u + c) mod 10        the activation contains nothing relevant
            column   (u' + c) mod 10       it contains the column's digits, but not the carry
            carry    (u + c') mod 10       it contains the carry, but not the column's digits
            both     (u' + c') mod 10      it contains both, so the answer is the source's digit

        The ones digit has no carry (only stays and column); the last digit has no column (only
        stays and carry).
        """
        if self.order != "ones" or i > self.digits:  # The end token has no column.
            return super().counterfactual_answers(rows, i)
        u = (rows // 10**i % 10).sum(-1)
        c = (rows.sum(-1) // 10**i - u) % 10
        answers = {"stays": (u[0] + c[0]) % 10}
        if i < self.digits:
            answers["column"] = (u[1] + c[0]) % 10
        if i > 0:
            answers["carry"] = (u[0] + c[1]) % 10
        if 0 < i < self.digits:
            answers["both"] = (u[1] + c[1]) % 10
        return answers

    # ── typed inputs and answers ────────────────────────────────────────────────────────────────
    def prompt(self, text: str) -> list[int]:
        """Encode a sum such as `45+78`, padded with zeros as the format requires."""
        a, b = self.typed_numbers(text.strip().removeprefix("<bos>"), "+", self.digits)
        form = self.layout()
        width = self.digits if form.padded else 1
        digits = {"a": a.lstrip("0").zfill(width)[::-1], "b": b.lstrip("0").zfill(width)[::-1]}
        return [
            place if name == TOKEN else int(digits[name][place])
            for name, place in form.spots[: form.first]
            if name == TOKEN or place < len(digits[name])
        ]

    def steps(self, prompt: Sequence[int]) -> int:
        return self.digits + 1 + (self.stop is not None)


@lru_cache(maxsize=16)  # every input string is read by the layout
def _layout(n: int, order: str, padding: str) -> TokenLayout:
    turn = -1 if order == "ones" else 1
    a, b, total = digit_slots("a", n), digit_slots("b", n), digit_slots("s", n + 1)[::turn]
    before = [(TOKEN, BOS)] if padding == "none" else []
    after = [(TOKEN, EOS)] if EXTRA_TOKENS[order, padding] else []
    spots = (*before, *a, (TOKEN, PLUS), *b, (TOKEN, EQUALS), *total, *after)
    return TokenLayout(spots, len(before) + 2 * n + 2, padded=padding == "zero")


@lru_cache(maxsize=16)  # verify, prove and compare use it.
def _edges(n: int) -> Rows:
    kind = row_type((10**n,))
    power, column = np.array([10**k for k in range(n)], kind), np.arange(n)
    first, last = _columns(n)[np.array(np.triu_indices(len(_columns(n))))]  # columns of a carry
    starts, runs = (column == first[:, None]), (column > first[:, None]) & (column <= last[:, None])
    edges = [_patterns(n)]
    # Digit sums 10 and 18 start a carry. Sums 9 and 8 give nearly equal columns without a carry.
    start_pairs = [(d, 10 - d) for d in range(1, 10)] + [(9, 9), (9, 0), (4, 5), (4, 4)]
    run_pairs = [(d, 9 - d) for d in range(10)]
    if n > MAX_PATTERN_DIGITS:
        start_pairs, run_pairs = start_pairs[::4] + start_pairs[-4:], run_pairs[::3]
    for start, run, rest in itertools.product(start_pairs, run_pairs, [(0, 0), (4, 4), (9, 9)]):
        a, b = (
            np.where(starts, start[i], np.where(runs, run[i], rest[i])).astype(kind) @ power
            for i in (0, 1)
        )
        edges.append(np.stack([a, b], axis=1))
    return unique_rows(np.concatenate(edges))


def _columns(n: int) -> Any:
    """Return the columns where test carries start or end; for long numbers only some of them."""
    some = {0, 1, 9, 10, n // 2, n - 2, n - 1}
    return np.array(sorted(some) if n > MAX_PATTERN_DIGITS else range(n))


def _without_leading_zeros(tokens: Any, answer: Any) -> tuple[Any, Any]:
    """Shift the tokens of each row left over its leading zeros and fill the end with 0."""
    keep = tokens > 0
    # Keep all digits after a kept digit, and the ones digit even if it is 0.
    for t in range(1, tokens.shape[1]):
        keep[:, t] |= keep[:, t - 1] & (tokens[:, t - 1] < 10)
        keep[:, t - 1] |= tokens[:, t] >= 10
    target = np.arange(tokens.shape[1]) < keep.sum(1, keepdims=True)  # positions of kept tokens
    out, mask = np.zeros_like(tokens), np.zeros_like(answer)
    out[target], mask[target] = tokens[keep], answer[keep]
    return out, mask


def _patterns(n: int) -> Rows:
    """Return pairs of zeros, nines, repeated digits, adjacent numbers and powers of ten ± 1."""
    ones, most = (10**n - 1) // 9, 10**n - 1
    kind = row_type((10**n,))
    repeated = np.array([(d * ones, e * ones) for d in range(10) for e in range(10)], kind)
    powers = [10 ** int(k) for k in _columns(n)]
    near = sorted({x for p in powers for x in (p - 1, p, p + 1, 5 * p, most - p)} | {most})
    named = [(123, 456), (45, 78), (500, 500), (111, 222)]
    pairs = np.array([*itertools.product(near, near), *named], kind)
    rows = np.concatenate([repeated, repeated + np.array((0, 1), kind), pairs])
    return rows[((rows >= 0) & (rows <= most)).all(1)]
