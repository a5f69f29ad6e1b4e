"""The tasks of the booklet's chapter 2: print a fixed message, and repeat the last token."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np

from ..core.vocabulary import Vocabulary
from ..registry import Between, task
from ..utils.errors import GlassformerError
from .base import Rows, Task
from .token_layout import ROW, TokenLayout, list_layout, mark_answer

MAX_MESSAGE_TOKENS = 4_000  # maximum message length n; a check needs n² logits
Vocab = Annotated[int, Between(2, 100_000)]
Length = Annotated[int, Between(1, 500)]


@task("hello-world")
class Message(Task):
    """A fixed message after <bos>, then <eos>.

    The vocabulary of tokenizer=message is <bos>, the characters of the message and <eos>, that of
    tokenizer=ascii 256 characters, with '\\0' at both ends. `tokens` is the only example.
    """

    def __init__(
        self, message: str = "Hello World!", tokenizer: Literal["message", "ascii"] = "message"
    ) -> None:
        if (n := len(message)) > MAX_MESSAGE_TOKENS:
            wanted = f"expected at most {MAX_MESSAGE_TOKENS:,} characters"
            raise GlassformerError(f"message — {wanted}, got {n:,}")
        if tokenizer == "message":
            begin, end = "<bos>", "<eos>"
            self.vocabulary = Vocabulary([begin, *dict.fromkeys(message), end])
        else:
            begin = end = "\0"
            self.vocabulary = Vocabulary(map(chr, range(256)))
            if bad := [c for c in message if not 0 < ord(c) < 256]:
                must = f"characters must be from 1 to 255, got {bad[0]!r}. Use tokenizer=message"
                raise GlassformerError(f"hello-world:tokenizer=ascii — {must}")
        self.radix = ()
        self.tokens = np.array([self.vocabulary.index(c) for c in (begin, *message, end)])
        self.stop = int(self.tokens[-1])

    def batch(self, rows: Rows) -> tuple[Any, Any]:
        return mark_answer(self.tokens[None].repeat(len(rows), 0), len(self.tokens) - 1)

    def layout(self) -> TokenLayout:
        ends = {"before": self.tokens[:1], "after": self.tokens[1:]}
        return list_layout(0, 0, len(self.vocabulary), **ends)

    def prompt(self, text: str) -> list[int]:
        """Encode an empty string or the beginning of the message."""
        return [int(self.tokens[0]), *(self.vocabulary.index(c) for c in text)]

    def steps(self, prompt: Sequence[int]) -> int:
        return max(len(self.tokens) - len(prompt), 1)


@task("repeat-last")
class RepeatLast(Task):
    """Some numbers, then the last of them repeated."""

    def __init__(self, vocab: Vocab = 10, length: Length = 3, repeats: Length = 5) -> None:
        self.vocabulary = Vocabulary.numbers(vocab)
        self.radix = (vocab,) * length
        self.repeats = repeats

    def batch(self, rows: Rows) -> tuple[Any, Any]:
        tokens = np.concatenate([rows, rows[:, -1:].repeat(self.repeats, 1)], axis=1)  # B T
        return mark_answer(tokens, self.repeats)

    def layout(self) -> TokenLayout:
        return list_layout(len(self.radix), self.repeats, len(self.vocabulary))

    def copy_layout(self) -> TokenLayout:
        row = [(ROW, i) for i in range(len(self.radix))]
        return TokenLayout((*row, *row[-1:] * self.repeats), len(row))

    def edges(self) -> Rows:
        last = np.linspace(0, self.radix[0] - 1, num=5, dtype=int)[:, None]
        return last.repeat(len(self.radix), 1)
