"""The task of a source: continue any sequence of its tokens with the interpreter's output."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import registry
from ..core.model import PROVENANCE_KEY, Model
from ..core.vocabulary import Vocabulary
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError, ascii_name
from . import library
from .embedded_source import BOS
from .literals import is_number

if TYPE_CHECKING:  # the interpreter is imported on first use
    from .ir import Ints, Program

EMBEDDED_SOURCE_LABEL = "the embedded source"
MAX_BATCH_CELLS = 2**21  # attention pattern entries of all sequences interpreted at once


class SequenceTask(Task):
    """The program's output after any input sequence of up to `length` tokens.

    A row is the length of the sequence - 1 and its tokens, padded with 0. A batch has length + 2
    columns, for <bos>, the longest sequence and one more token.
    """

    default_sample_size = 10_000

    def __init__(self, program: "Program", ref: str = "") -> None:
        self.program, self.ref = program, ref or program.name
        self.vocabulary = Vocabulary([BOS, *map(str, program.tokens)], sep=" ")
        self.radix = (program.length, *[len(program.tokens)] * program.length)
        self.example_inputs = tuple(program.examples)
        self.stop = None if program.end is None else self.vocabulary.index(str(program.end))

    def __reduce__(self) -> Any:
        """Pickle the text of the source, because the graph of values may be too deep for pickle."""
        p = self.program
        if not p.source:
            return super().__reduce__()
        return cached_task, (p.source, p.name, dict(p.options), self.ref)

    # ── the domain ─────────────────────────────────────────────────────────────────────────────
    def defined(self, rows: Rows) -> Any:
        padding = np.arange(self.program.length) > rows[:, :1]
        return ~(padding & (rows[:, 1:] > 0)).any(1)

    @property
    def inputs(self) -> int:
        """The number of input sequences. Most rows are undefined, with tokens in the padding."""
        return sum(len(self.program.tokens) ** n for n in range(1, self.program.length + 1))

    def sample(self, n: int, rng: np.random.Generator) -> Rows:
        """Draw n rows: about half of them uniform, the rest resembling the examples.

        Uniform rows have all lengths with equal probability. The others use the tokens of the
        examples (plus all numbers, if the examples contain numbers), and end with the last token of
        an example.
        """
        p, V = self.program, len(self.program.tokens)
        lengths = rng.integers(1, p.length + 1, n)
        tokens = rng.integers(0, V, (n, p.length))
        like_examples = np.flatnonzero(rng.random(n) < 0.5)
        body, last = self._example_token_pools()
        if len(body) and (m := len(like_examples)):
            longest = p.length if p.end is None else (p.length + 1) // 2  # room for the output
            lengths[like_examples] = rng.integers(1, longest + 1, m)
            tokens[like_examples] = body[rng.integers(0, len(body), (m, p.length))]
            ends = lengths[like_examples] - 1
            tokens[like_examples, ends] = last[rng.integers(0, len(last), m)]
        return self._make_rows(lengths, tokens)

    def edges(self) -> Rows:
        """Return the examples, and rows of one repeated token in three lengths.

        Rows of half length also occur with the last token of an example at the end.
        """
        p, V = self.program, len(self.program.tokens)
        examples = [self.row(text) for text in self._example_texts()]
        repeated = np.repeat(np.arange(V)[:, None], p.length, 1)
        half = (p.length + 1) // 2
        parts = [self._make_rows(np.full(V, n), repeated) for n in sorted({1, half, p.length})]
        for token in self._example_token_pools()[1].tolist():
            ended = repeated.copy()
            ended[:, half - 1] = token
            parts.append(self._make_rows(np.full(V, half), ended))
        return np.concatenate([np.array(examples, np.int64).reshape(-1, 1 + p.length), *parts])

    def classes(self, rows: Rows) -> Any:
        return np.array([f"{n} token{'s' * (n > 1)}" for n in (rows[:, 0] + 1).tolist()], object)

    def row(self, tokens: Sequence[int]) -> list[int]:
        """Return the row of an input sequence, given the indices of its tokens in the program."""
        return [len(tokens) - 1, *tokens, *[0] * (self.program.length - len(tokens))]

    def _make_rows(self, lengths: Any, tokens: Any) -> Rows:
        padding = np.arange(self.program.length) >= lengths[:, None]
        return np.concatenate([lengths[:, None] - 1, np.where(padding, 0, tokens)], 1)

    def _example_texts(self) -> list[list[int]]:
        """Return the token indices of the source's valid examples."""
        number = {str(t): i for i, t in enumerate(self.program.tokens)}
        texts = (text.split() for text in self.program.examples)
        return [
            [number[w] for w in words]
            for words in texts
            if 1 <= len(words) <= self.program.length and all(w in number for w in words)
        ]

    def _example_token_pools(self) -> tuple["Ints", "Ints"]:
        """Return the tokens before the last position of the examples, and the last tokens."""
        tokens, texts = self.program.tokens, self._example_texts()
        body = {t for text in texts for t in text[:-1]}
        if any(is_number(tokens[t]) for t in body):
            body |= {i for i, t in enumerate(tokens) if is_number(t)}
        return np.array(sorted(body), int), np.array(sorted({t[-1] for t in texts}), int)

    # ── the answers ────────────────────────────────────────────────────────────────────────────
    def batch(self, rows: Rows) -> tuple[Any, Any]:
        rows, p = np.asarray(rows), self.program
        tokens = np.zeros((len(rows), p.length + 2), np.int64)
        answer = np.zeros(tokens.shape, bool)
        step = max(1, MAX_BATCH_CELLS // p.length**2)
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            self._fill_answers(rows[part], tokens[part], answer[part])
        return tokens, answer

    def _fill_answers(self, rows: Any, tokens: Any, answer: Any) -> None:
        """Write <bos>, the input and the program's output into `tokens`, and mark the output."""
        from .interpreter import emitted

        p, at = self.program, rows[:, 0] + 1
        used = np.arange(p.length) < at[:, None]
        tokens[:, 1 : p.length + 1] = np.where(used, rows[:, 1:] + 1, 0)
        active = np.arange(len(rows))
        while len(active):
            last = at[active]
            text = np.maximum(tokens[active, 1 : int(last.max()) + 1] - 1, 0)
            output = emitted(p, text)[np.arange(len(active)), last - 1] + 1
            tokens[active, last + 1], answer[active, last + 1] = output, True
            at[active] += 1
            if self.stop is None:
                return
            active = active[(output != self.stop) & (last < p.length)]

    # ── text in, text out ──────────────────────────────────────────────────────────────────────
    def prompt(self, text: str) -> list[int]:
        """Encode an input string after <bos>, which the string may include."""
        words = self.vocabulary
        has_commas = any(
            "," in str(t) for t in self.program.tokens
        )  # if not, commas are separators
        try:
            tokens = [words.index(w) for w in text.split()] if has_commas else words.encode(text)
        except GlassformerError as e:
            if len(text.split()) == 1 and all(c in words.tokens for c in text.strip()):
                hint = f"separate tokens by spaces: {' '.join(text.strip()[:40])}"
                raise GlassformerError(f"{e}; {hint}") from None
            raise
        tokens = tokens[1:] if tokens[:1] == [0] else tokens
        longest = self.program.length
        if 0 in tokens:
            raise GlassformerError(f"input — expected {BOS} only as the first token")
        if not 1 <= len(tokens) <= longest:
            raise GlassformerError(
                f"input — {self.ref} expects 1 to {longest:,} tokens, got {len(tokens):,}"
            )
        return [0, *tokens]

    def interpret(self, text: str) -> tuple[dict[str, list[str]], str]:
        """Return the elements of every value at each position, by value name, and the output."""
        from .interpreter import run, trace

        tokens = [t - 1 for t in self.prompt(text)[1:]]
        columns: dict[str, list[str]] = {"token": [str(self.program.tokens[t]) for t in tokens]}
        for value, indices in trace(self.program, np.array([tokens])).items():
            if " there" in value.name[-12:]:  # an intermediate value of map_value
                continue
            elements = [value.domain[i] for i in indices[0].tolist()]
            column, name = ["–" if d is None else str(d) for d in elements], value.name
            while columns.get(name, column) != column:
                name += "′"
            columns[name] = column
        return columns, self.answer([t + 1 for t in run(self.program, tokens)])

    def steps(self, prompt: Sequence[int]) -> int:
        return 1 if self.stop is None else max(1, self.max_new_tokens(prompt))

    def max_new_tokens(self, prompt: Sequence[int]) -> int:
        """Return the number of tokens up to the maximum length, plus one."""
        return self.program.length + 2 - len(prompt)


# ── the source embedded in a model ─────────────────────────────────────────────────────────────
def embedded_task(model: Model) -> SequenceTask | None:
    """Return the task of a compiled model from its embedded source, or None for other models."""
    if (entry := embedded_entry(model)) is None:
        return None
    return cached_task(entry["source"], entry["name"], entry["options"], entry["name"])


def embedded_entry(model: Model) -> dict[str, Any] | None:
    """Return the compiler's provenance entry of a model, or None if it was not compiled.

    The name in the entry is replaced by the result of `source_name`.
    """
    if PROVENANCE_KEY not in model.provenance:
        return None
    from ..utils.typed_json import convert
    from .embedded_record import EmbeddedSource

    entry = model.provenance[PROVENANCE_KEY]
    convert(entry, EmbeddedSource, PROVENANCE_KEY)
    return {**entry, "name": source_name(model.task or entry["name"], entry)}


def task_name(model: Model) -> str:
    """Return the display name of a model's task, or "" if it has none."""
    entry = embedded_entry(model)
    return entry["name"] if entry else ascii_name(model.task)


def source_name(claimed: str, entry: Mapping[str, Any]) -> str:
    """Return the display name of an embedded source.

    The checkpoint claims a name. It is shown unchanged only if it resolves to the same source with
    the same options, so that `--task NAME` gives the same result.
    """
    with suppress(GlassformerError):
        name, options = registry.split_ref(claimed)
        same_options = options == registry.split_ref(registry.format_ref(name, entry["options"]))[1]
        is_safe = registry.is_source_name(name) and same_options and ascii_name(claimed) == claimed
        is_remote = name.startswith(("//", "\\\\"))  # a network path on Windows
        if is_safe and not is_remote and library.source_text(name) == entry["source"]:
            return claimed
    return f"{EMBEDDED_SOURCE_LABEL} (named {claimed[:100]!a})"


def same_program(a: Task, b: Task) -> bool:
    """Return whether two tasks have the same source and options."""
    if not all(isinstance(t, SequenceTask) and t.is_exactly(SequenceTask) for t in (a, b)):
        return False
    assert isinstance(a, SequenceTask) and isinstance(b, SequenceTask)
    p, q = a.program, b.program
    return p is q or bool(p.source and (p.source, p.options) == (q.source, q.options))


def cached_task(source: str, name: str, options: Mapping[str, Any], ref: str) -> SequenceTask:
    """Return the task of a source. Programs are cached, because a call may need one repeatedly."""
    return SequenceTask(_cached_program(source, name, json.dumps(options, sort_keys=True)), ref)


@lru_cache(16)
def _cached_program(source: str, name: str, options: str) -> "Program":
    from .frontend.parser import read

    return read(source, name, json.loads(options))
