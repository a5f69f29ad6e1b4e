"""Text in, text out: run a model on what a person typed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .decoding import decode
from .errors import GlassformerError, shown
from .finding import Finding
from .lang.compiler import KEY
from .limits import UNASKED
from .model import Model
from .refs import known_task


@dataclass(frozen=True)
class Run(Finding):
    """One input and what came of it."""

    input: str
    output: str
    tokens: list[int]  # prompt and answer
    prompt: list[int] = field(repr=False)
    stopped: str = field(default="", repr=False)  # why no more was said, where there was more


def prompt(model: Model, text: str) -> list[int]:
    """The tokens that a text gives to the model, as its task says or else its vocabulary."""
    question, start = read(model, text)
    return question + start


def read(model: Model, text: str) -> tuple[list[int], list[int]]:
    """The tokens of a text: the question, and how the answer begins if it goes on."""
    if not isinstance(text, str):
        raise GlassformerError(f"input — expected a text, got {shown(text)}")
    task = known_task(model)
    question, start = task.read(text) if task else (model.vocabulary.encode(text), [])
    if not question:
        raise GlassformerError("input — expected at least one token")
    if task and start and (task.stop in start or len(start) >= task.steps(question)):
        what = f"{model.vocabulary.decode(start)[:40]!r} is a whole answer"
        raise GlassformerError(f"input {text[:60]!r} — {what}, nothing comes after it")
    return question, start


def in_one_text(model: Model, words: Sequence[str]) -> bool:
    """Whether words are the tokens of one text, as it is written with blanks: 5 3 1."""
    vocabulary, task = model.vocabulary, known_task(model)
    if not (vocabulary.sep.isspace() or (task and task.blanks)):
        return False
    try:
        return all(vocabulary.encode(w) and not re.search(r"[\s,]", w) for w in words)
    except GlassformerError:
        return False


def run(
    model: Model, text: str = "", *, steps: int | None = None, temperature: float = 0.0,
    top_k: int | None = None, rng: np.random.Generator | None = None,
) -> Run:  # fmt: skip
    """Decodes what a model says after a text.

    >>> run(load("addition:digits=3"), "123+456").output
    '0579'
    """
    question, start = read(model, text)
    tokens, task = question + start, known_task(model)
    most = task.room(tokens) if task else None
    if steps is None:
        room = min(max(1, model.config.n_ctx - len(tokens) + 1), UNASKED)
        steps = task.steps(question) - len(start) if task else room
    far = most is not None and steps > most
    steps = steps if most is None else min(steps, most)
    stop = task.stop if task else None
    said = decode(model, tokens, steps, stop=stop, temperature=temperature, top_k=top_k, rng=rng)
    out = [int(t) for t in said]
    in_words = task.answer if task else model.vocabulary.decode
    added = out[len(tokens) :]
    ended = stop is not None and stop in added
    stopped = ""
    if most is not None and len(added) == most and not ended and (far or stop is not None):
        cut = "the answer is cut off: " if stop is not None else ""
        why = "proved" if KEY in model.provenance else "known of what is right"
        stopped = f"{cut}stopped after {len(out) - 2:,} tokens, beyond which nothing is {why}"
    return Run(text, in_words(added), out, tokens, stopped)
