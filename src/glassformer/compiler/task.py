"""The task of a source: any text of its tokens, and what the interpreter writes after it."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import registry
from ..core.model import Model
from ..core.vocabulary import Vocabulary
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError, ascii_name
from . import library
from .embedded_source import BOS, PROVENANCE_KEY
from .library import LIBRARY_PREFIX, SOURCE_SUFFIX
from .literals import is_number

if TYPE_CHECKING:  # what reads and runs sources is imported when one is
    from .ir import Ints, Program

EMBEDDED_SOURCE_LABEL = "the source it carries"
MAX_BATCH_CELLS = (
    2**21
)  # entries of a table of all positions by all positions, for all texts at once


class SequenceTask(Task):
    """After any text of up to `length` tokens comes what the program writes.

    A row is the length of the text less 1, and its tokens, 0 where there are none. Examples are
    padded to one width: a text may be as long as the program allows, and one token more is written.
    """

    default_sample_size = 10_000

    def __init__(self, program: "Program", ref: str = "") -> None:
        self.program, self.ref = program, ref or program.name
        self.vocabulary = Vocabulary([BOS, *map(str, program.tokens)], sep=" ")
        self.radix = (program.length, *[len(program.tokens)] * program.length)
        self.example_inputs = tuple(program.examples)
        self.stop = None if program.end is None else self.vocabulary.index(str(program.end))

    def __reduce__(self) -> Any:
        """To another process goes the text; values are made of one another, however deep."""
        p = self.program
        if not p.source:
            return super().__reduce__()
        return cached_task, (p.source, p.name, dict(p.options), self.ref)

    # ── the domain ─────────────────────────────────────────────────────────────────────────────
    def defined(self, rows: Rows) -> Any:
        unused = np.arange(self.program.length) > rows[:, :1]
        return ~(unused & (rows[:, 1:] > 0)).any(1)

    @property
    def inputs(self) -> int:
        """Texts: most rows have tokens where none are used, and are none."""
        return sum(len(self.program.tokens) ** n for n in range(1, self.program.length + 1))

    def sample(self, n: int, rng: np.random.Generator) -> Rows:
        """Half of them any texts, every length as often; half in the manner of the examples: of
        their tokens (and all numbers, if there are numbers), with their last token last.
        """
        p, V = self.program, len(self.program.tokens)
        lengths = rng.integers(1, p.length + 1, n)
        tokens = rng.integers(0, V, (n, p.length))
        like = np.flatnonzero(rng.random(n) < 0.5)
        body, last = self._example_token_pools()
        if len(body) and len(like):
            most = p.length if p.end is None else (p.length + 1) // 2  # what is written needs room
            lengths[like] = rng.integers(1, most + 1, len(like))
            tokens[like] = body[rng.integers(0, len(body), (len(like), p.length))]
            tokens[like, lengths[like] - 1] = last[rng.integers(0, len(last), len(like))]
        return self._make_rows(lengths, tokens)

    def edges(self) -> Rows:
        """The examples; texts of one token again and again: short, as long as can be, and with the
        last token of an example last.
        """
        p, V = self.program, len(self.program.tokens)
        rows = [self.row(text) for text in self._example_texts()]
        same = np.repeat(np.arange(V)[:, None], p.length, 1)
        half = (p.length + 1) // 2
        out = [self._make_rows(np.full(V, n), same) for n in sorted({1, half, p.length})]
        for token in self._example_token_pools()[1].tolist():
            ended = same.copy()
            ended[:, half - 1] = token
            out.append(self._make_rows(np.full(V, half), ended))
        first = np.array(rows, np.int64).reshape(len(rows), 1 + p.length)
        return np.concatenate([first, *out])

    def classes(self, rows: Rows) -> Any:
        return np.array([f"{n} token{'s' * (n > 1)}" for n in (rows[:, 0] + 1).tolist()], object)

    def row(self, tokens: Sequence[int]) -> list[int]:
        """The row of a text, as numbers of the program's tokens."""
        return [len(tokens) - 1, *tokens, *[0] * (self.program.length - len(tokens))]

    def _make_rows(self, lengths: Any, tokens: Any) -> Rows:
        unused = np.arange(self.program.length) >= lengths[:, None]
        return np.concatenate([lengths[:, None] - 1, np.where(unused, 0, tokens)], 1)

    def _example_texts(self) -> list[list[int]]:
        """The texts of the author's examples; what cannot be read is passed over."""
        number = {str(t): i for i, t in enumerate(self.program.tokens)}
        split = [text.split() for text in self.program.examples]
        known = [words for words in split if words and all(w in number for w in words)]
        return [[number[w] for w in words] for words in known if len(words) <= self.program.length]

    def _example_token_pools(self) -> tuple["Ints", "Ints"]:
        """The tokens that examples are made of, and those that they end with."""
        tokens, texts = self.program.tokens, self._example_texts()
        body = {t for text in texts for t in text[:-1]}
        if any(is_number(tokens[t]) for t in body):
            body |= {i for i, t in enumerate(tokens) if is_number(t)}
        return np.array(sorted(body), int), np.array(sorted({t[-1] for t in texts}), int)

    # ── what is right ──────────────────────────────────────────────────────────────────────────
    def batch(self, rows: Rows) -> tuple[Any, Any]:
        rows, p = np.asarray(rows), self.program
        tokens = np.zeros((len(rows), p.length + 2), np.int64)
        answer = np.zeros(tokens.shape, bool)
        step = max(1, MAX_BATCH_CELLS // p.length**2)
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            self._fill_answers(part, tokens[start : start + step], answer[start : start + step])
        return tokens, answer

    def _fill_answers(self, rows: Any, tokens: Any, answer: Any) -> None:
        """Fills in some rows: <bos>, the text, and what the program says until it ends."""
        from .interpreter import emitted

        p, at = self.program, rows[:, 0] + 1
        used = np.arange(p.length) < at[:, None]
        tokens[:, 1 : p.length + 1] = np.where(used, rows[:, 1:] + 1, 0)
        going = np.arange(len(rows))  # rows that are not at their end
        while len(going):
            now = at[going]
            text = np.maximum(tokens[going, 1 : int(now.max()) + 1] - 1, 0)
            said = emitted(p, text)[np.arange(len(going)), now - 1] + 1
            tokens[going, now + 1], answer[going, now + 1] = said, True
            at[going] += 1
            if self.stop is None:
                return
            going = going[(said != self.stop) & (now < p.length)]

    # ── text in, text out ──────────────────────────────────────────────────────────────────────
    def prompt(self, text: str) -> list[int]:
        """<bos> first, whether it was typed or not."""
        words = self.vocabulary
        commas = any("," in str(t) for t in self.program.tokens)  # which else stand between tokens
        try:
            tokens = [words.index(w) for w in text.split()] if commas else words.encode(text)
        except GlassformerError as e:
            if len(text.split()) == 1 and all(c in words.tokens for c in text.strip()):
                said = f"tokens are parted by blanks: {' '.join(text.strip()[:40])}"
                raise GlassformerError(f"{e}; {said}") from None
            raise
        tokens = tokens[1:] if tokens[:1] == [0] else tokens
        most = self.program.length
        if 0 in tokens:
            raise GlassformerError(f"input — {BOS} stands at the beginning and nowhere else")
        if not 1 <= len(tokens) <= most:
            raise GlassformerError(
                f"input — {self.ref} reads texts of 1 to {most:,} tokens, got {len(tokens):,}"
            )
        return [0, *tokens]

    def interpret(self, text: str) -> tuple[dict[str, list[str]], str]:
        """What every value is at every position of a text, by name, and what is written then."""
        from .interpreter import run, trace

        tokens = [t - 1 for t in self.prompt(text)[1:]]
        out: dict[str, list[str]] = {"token": [str(self.program.tokens[t]) for t in tokens]}
        for value, members in trace(self.program, np.array([tokens])).items():
            # What a look brings, where it is not what was written, is nobody's name.
            if " there" not in value.name[-12:]:
                things = [value.domain[i] for i in members[0].tolist()]
                column, name = ["–" if d is None else str(d) for d in things], value.name
                while out.get(name, column) != column:
                    name += "′"
                out[name] = column
        said = self.answer([t + 1 for t in run(self.program, tokens)])
        return out, said

    def steps(self, prompt: Sequence[int]) -> int:
        return 1 if self.stop is None else max(1, self.room(prompt))

    def room(self, prompt: Sequence[int]) -> int:
        """As many as a text may have, and what is said after all of them."""
        return self.program.length + 2 - len(prompt)


# ── the program that a model carries ───────────────────────────────────────────────────────────
def embedded_task(model: Model) -> SequenceTask | None:
    """The task of a compiled model, made from the program that it carries, whatever has become of
    the file; None if it was not compiled.
    """
    if (entry := embedded_entry(model)) is None:
        return None
    return cached_task(entry["source"], entry["name"], entry["options"], entry["name"])


def embedded_entry(model: Model) -> dict[str, Any] | None:
    """What the compiler stored in a model, with its name as `source_name` shows it; None if it was
    not compiled.
    """
    if PROVENANCE_KEY not in model.provenance:
        return None
    from ..utils.typed_json import convert
    from .embedded_record import EmbeddedSource

    entry = model.provenance[PROVENANCE_KEY]
    convert(entry, EmbeddedSource, PROVENANCE_KEY)
    return {**entry, "name": source_name(model.task or entry["name"], entry)}


def task_name(model: Model) -> str:
    """How the task of a model is named to the user; "" if it has none."""
    entry = embedded_entry(model)
    return entry["name"] if entry else ascii_name(model.task)


def source_name(claimed: str, entry: Mapping[str, Any]) -> str:
    """How the source that a checkpoint carries is named to the user.

    The checkpoint chose the name that it claims. That name is used alone only if it resolves to the
    same text with the same options, so that `--task NAME` gives the same result.
    """
    with suppress(GlassformerError):
        name, options = registry.split_ref(claimed)
        same_options = options == registry.split_ref(registry.format_ref(name, entry["options"]))[1]
        is_source = name.startswith(LIBRARY_PREFIX) or name.endswith(SOURCE_SUFFIX)
        plain = is_source and same_options and ascii_name(claimed) == claimed
        plain = plain and not name.startswith(("//", "\\\\"))  # another machine's, on Windows
        if plain and library.source_text(name) == entry["source"]:
            return claimed
    return f"{EMBEDDED_SOURCE_LABEL} (calls itself {claimed[:100]!a})"


def same_program(a: Task, b: Task) -> bool:
    """Whether two tasks are of one source with the same options."""
    if not (
        isinstance(a, SequenceTask)
        and isinstance(b, SequenceTask)
        and a.is_exactly(SequenceTask)
        and b.is_exactly(SequenceTask)
    ):
        return False
    p, q = a.program, b.program
    return p is q or bool(p.source and (p.source, p.options) == (q.source, q.options))


def cached_task(source: str, name: str, options: Mapping[str, Any], ref: str) -> SequenceTask:
    """The task of a source. (Programs are kept: one question may ask for a task several times.)"""
    return SequenceTask(_cached_program(source, name, json.dumps(options, sort_keys=True)), ref)


@lru_cache(16)
def _cached_program(source: str, name: str, options: str) -> "Program":
    from .frontend.parser import read

    return read(source, name, json.loads(options))
