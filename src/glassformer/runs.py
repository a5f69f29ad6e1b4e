"""Text in, text out: run a model on what a person typed."""

from dataclasses import dataclass, field

import numpy as np

from .decoding import decode
from .errors import GlassformerError, shown
from .finding import Finding
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


def prompt(model: Model, text: str) -> list[int]:
    """The tokens that a text gives to the model, as its task says or else its vocabulary."""
    if not isinstance(text, str):
        raise GlassformerError(f"input — expected a text, got {shown(text)}")
    task = known_task(model)
    tokens = task.prompt(text) if task else model.vocabulary.encode(text)
    if not tokens:
        raise GlassformerError("input — expected at least one token")
    return tokens


def run(
    model: Model, text: str = "", *, steps: int | None = None, temperature: float = 0.0,
    top_k: int | None = None, rng: np.random.Generator | None = None,
) -> Run:  # fmt: skip
    """Decodes what a model says after a text.

    >>> run(load("addition:digits=3"), "123+456").output
    '0579'
    """
    tokens = prompt(model, text)
    task = known_task(model)
    if steps is None:
        room = min(max(1, model.config.n_ctx - len(tokens) + 1), UNASKED)
        steps = task.steps(tokens) if task else room
    stop = task.stop if task else None
    said = decode(model, tokens, steps, stop=stop, temperature=temperature, top_k=top_k, rng=rng)
    out = [int(t) for t in said]
    in_words = task.answer if task else model.vocabulary.decode
    return Run(text, in_words(out[len(tokens) :]), out, tokens)
