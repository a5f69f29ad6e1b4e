"""Vocabularies, which convert text to token numbers and back."""

import itertools
import operator
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from ..utils.argcheck import validate_init
from ..utils.errors import GlassformerError, short_repr
from ..utils.limits import check_int_range

MAX_TOKENS, MAX_FIRST_NUMBER = 2**31 - 1, 10**15
MAX_TOKEN_CHARS = 1_000  # characters of a token read from a file
MAX_LISTED_TOKENS = 10_000_000
BEGIN, END = "<bos>", "<eos>"  # tokens before and after a text of a model without a task


@validate_init(check_kinds=False)
class Vocabulary:
    """List of token strings in order, and the separator between tokens in a text.

    >>> v = Vocabulary("0123456789+=")
    >>> v.encode("4+8=")
    [4, 10, 8, 11]
    >>> Vocabulary.numbers(20).encode("6 2 12")
    [6, 2, 12]
    """

    def __init__(self, tokens: Iterable[str], sep: str = "") -> None:
        is_list = isinstance(tokens, Iterable) and getattr(tokens, "ndim", 1) != 0  # no 0-d array
        texts = tokens if is_list else (tokens,)
        self.tokens: Sequence[str] = tuple(
            map(_check_text, itertools.islice(texts, MAX_LISTED_TOKENS + 1))
        )
        self.sep = _check_text(sep)
        if len(self.tokens) > MAX_LISTED_TOKENS:
            expected = f"at most {MAX_LISTED_TOKENS:,} texts"
            raise GlassformerError(f"vocabulary — expected {expected}, got more")
        if len(set(self.tokens)) != len(self.tokens) or "" in self.tokens:
            counts = Counter(self.tokens)
            got = next(t for t in self.tokens if not t or counts[t] > 1)
            expected = "different tokens that are not empty"
            raise GlassformerError(f"vocabulary — expected {expected}, got {_short(got)}")

    @classmethod
    def numbers(cls, n: int, first: int = 0) -> "Vocabulary":
        """Return the vocabulary of n consecutive numbers from `first`, in constant memory."""
        check_int_range("vocabulary — numbers", n, 1, MAX_TOKENS)
        check_int_range("vocabulary — first", first, -MAX_FIRST_NUMBER, MAX_FIRST_NUMBER)
        v = cls((), sep=" ")
        v.tokens = NumberTokens(n, first)
        return v

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, i: int) -> str:
        return self.tokens[i]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((len(self), self.sep))

    def __repr__(self) -> str:
        start = self.sep.join(self.tokens[i] for i in range(min(len(self), 20)))
        more = " …" if len(self) > 20 or len(start) > 200 else ""
        return f"{len(self)} tokens: {start[:200]}{more}"

    def index(self, token: str) -> int:
        """Return the number of a token string; raise an error if it is unknown."""
        if not isinstance(token, str):
            raise GlassformerError(f"token — expected a text, got {short_repr(token)}")
        if isinstance(self.tokens, NumberTokens):
            return self.tokens.index(token)
        if token not in self._number_of_token:
            raise GlassformerError(f"token {_short(token)} — not in the vocabulary ({self})")
        return self._number_of_token[token]

    def encode(self, text: str) -> list[int]:
        """Return the token numbers of a text; raise an error at an unknown token."""
        if not isinstance(text, str):
            raise GlassformerError(f"input — expected a text, got {short_repr(text)}")
        if self.sep.isspace():  # accept commas and any whitespace
            return [self.index(word) for word in re.split(r"[\s,]+", text.strip()) if word]
        if self.sep:
            return [self.index(word) for word in text.split(self.sep) if word]
        tokens, start = [], 0
        while start < len(text):
            match = self._token_pattern.match(text, start)
            if not match:
                where = f"at character {start + 1} of {_short(text)}"
                problem = f"not in the vocabulary ({self})"
                raise GlassformerError(f"token {text[start]!r} {where} — {problem}")
            tokens.append(self._number_of_token[match.group()])
            start = match.end()
        return tokens

    def number_of(self, token: str) -> int | None:
        """Return the number of a token string, or None if it is not in the vocabulary."""
        try:
            return self.index(token)
        except GlassformerError:
            return None

    def join_words(self, text: str, sep: str) -> str | None:
        """Return a text with `sep` between its tokens, which spaces and commas separate.

        The text may be a list in brackets, with or without quotes: [1, '+', 2]. Returns None if a
        word is not a token.
        """
        in_brackets = re.fullmatch(r"\s*\[(.*)\]\s*", text, re.DOTALL)
        words = [
            word for word in re.split(r"[\s,]+", in_brackets[1] if in_brackets else text) if word
        ]
        words = [word.strip("'\"") for word in words] if in_brackets else words
        return None if None in map(self.number_of, words) else sep.join(words)

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of a sequence of token numbers."""
        words, size = [], len(self)
        try:
            for n in map(operator.index, tokens):
                if not 0 <= n < size:
                    expected = f"expected a number from 0 to {size - 1}"
                    raise GlassformerError(f"token {short_repr(n)} — {expected}")
                words.append(self.tokens[n])
        except TypeError:
            expected = f"expected whole numbers, got {short_repr(tokens)}"
            raise GlassformerError(f"tokens — {expected}") from None
        return self.sep.join(words)

    def to_json(self) -> dict[str, Any]:
        if isinstance(self.tokens, NumberTokens):
            return {"numbers": len(self.tokens), "first": self.tokens.first}
        return {"tokens": list(self.tokens), "sep": self.sep}

    @classmethod
    def from_json(cls, data: Any) -> "Vocabulary":
        """Return the vocabulary from the output of `to_json`; raise an error for other data."""
        if isinstance(data, dict) and data.keys() == {"numbers", "first"}:
            return cls.numbers(data["numbers"], data["first"])
        if not isinstance(data, dict) or data.keys() != {"tokens", "sep"}:
            expected = "expected an object of tokens and sep, or of numbers and first"
            raise GlassformerError(f"vocabulary — {expected}, got {short_repr(data)}")
        if not isinstance(data["tokens"], list) or not data["tokens"]:
            got = short_repr(data["tokens"])
            raise GlassformerError(f"vocabulary — expected tokens, got {got}")
        vocabulary = cls(data["tokens"], data["sep"])
        if max(map(len, (*vocabulary.tokens, vocabulary.sep))) > MAX_TOKEN_CHARS:
            expected = f"texts of at most {MAX_TOKEN_CHARS:,} characters"
            raise GlassformerError(f"vocabulary — expected {expected}")
        return vocabulary

    @cached_property
    def _number_of_token(self) -> dict[str, int]:
        return {t: i for i, t in enumerate(self.tokens)}

    @cached_property
    def _token_pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.tokens, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)), re.DOTALL)


class NumberTokens(Sequence[str]):
    """Sequence of the strings of n consecutive numbers, in constant memory."""

    def __init__(self, n: int, first: int) -> None:
        self.n, self.first = n, first

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: Any) -> Any:
        if not 0 <= i < self.n:
            raise IndexError(i)
        return str(self.first + i)

    def index(self, token: Any, start: int = 0, stop: int | None = None) -> int:
        last = self.first + self.n - 1
        if not re.fullmatch(r"-?[0-9]{1,18}", token) or not self.first <= int(token) <= last:
            expected = f"expected a whole number from {self.first} to {last}"
            raise GlassformerError(f"token {_short(token)} — {expected}")
        return int(token) - self.first


def _check_text(token: Any) -> str:
    if not isinstance(token, str):
        raise GlassformerError(f"vocabulary — expected texts, got {short_repr(token)}")
    return token


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
