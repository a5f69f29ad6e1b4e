"""Text in, text out: run a model on what a person typed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .compiler.embedded_source import PROVENANCE_KEY
from .compiler.task import SequenceTask
from .core.decoding import decode
from .core.model import Model
from .resolve import task_if_known
from .tasks.base import Task
from .utils.errors import GlassformerError, ascii_name, short_repr
from .utils.limits import DEFAULT_NEW_TOKENS
from .utils.results import Result, to_jsonable


@dataclass(frozen=True)
class Generation(Result):
    """One input and what came of it."""

    input: str
    output: str
    tokens: list[int]  # prompt and answer
    prompt: list[int] = field(repr=False)
    stopped: str = field(default="", repr=False)  # why no more was said, where there was more
    # if asked for: why each token was said; of a source, what each value is at each position
    trace: list[dict[str, Any]] = field(default_factory=list, repr=False)
    meaning: dict[str, list[str]] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        asked = {"trace": self.trace, "meaning": self.meaning}
        return super().to_json() | {
            name: to_jsonable(found) for name, found in asked.items() if found
        }


def prompt_tokens(model: Model, text: str) -> list[int]:
    """The tokens that a text gives to the model, as its task says or else its vocabulary."""
    question, start = read_prompt(model, text)
    return question + start


def read_prompt(model: Model, text: str) -> tuple[list[int], list[int]]:
    """The tokens of a text: the question, and how the answer begins if it goes on."""
    if not isinstance(text, str):
        raise GlassformerError(f"input — expected a text, got {short_repr(text)}")
    task = task_if_known(model)
    question, start = task.read(text) if task else (model.vocabulary.encode(text), [])
    if not question:
        raise GlassformerError("input — expected at least one token")
    if task and start and (task.stop in start or len(start) >= task.steps(question)):
        what = f"{model.vocabulary.decode(start)[:40]!r} is a whole answer"
        raise GlassformerError(f"input {text[:60]!r} — {what}, nothing comes after it")
    return question, start


def is_single_token_list(model: Model, words: Sequence[str]) -> bool:
    """Whether words are the tokens of one text, as it is written with blanks: 5 3 1."""
    vocabulary, task = model.vocabulary, task_if_known(model)
    if not (vocabulary.sep.isspace() or (task and task.space_separated)):
        return False
    try:
        return all(vocabulary.encode(w) and not re.search(r"[\s,]", w) for w in words)
    except GlassformerError:
        return False


def run(
    model: Model, text: str = "", *, steps: int | None = None, temperature: float = 0.0,
    top_k: int | None = None, rng: np.random.Generator | None = None, trace: bool = False,
    interpret: bool = False,
) -> Generation:  # fmt: skip
    """Decodes what a model says after a text.

    >>> run(load("addition:digits=3"), "123+456").output
    '0579'

    `trace`: also why each token was said, its `trace`. `meaning`: of what was compiled, also what
    each value of the source is, by the interpreter, its `meaning`.
    """
    question, start = read_prompt(model, text)
    tokens, task = question + start, task_if_known(model)
    most = task.max_new_tokens(tokens) if task else None
    endless = steps is None and task is None and bool(model.task)
    if steps is None:
        room = min(max(1, model.config.n_ctx - len(tokens) + 1), DEFAULT_NEW_TOKENS)
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
        why = "proved" if PROVENANCE_KEY in model.provenance else "known of what is right"
        stopped = f"{cut}stopped after {len(out) - 2:,} tokens, beyond which nothing is {why}"
    elif endless and len(added) > 1:  # of the task of a file that nobody typed
        stopped = (
            f"where the answer ends says its task alone, {ascii_name(model.task)}: name it (--task)"
        )
    found = Generation(text, in_words(added), out, tokens, stopped)
    steps_ = explain_steps(model, found) if trace else []
    values = interpret_source(task, text, "the model")[0] if interpret else {}
    return replace(found, trace=steps_, meaning=values)


def explain_steps(model: Model, generation: Generation) -> list[dict[str, Any]]:
    """Why each token of an answer was said: its top tokens, the margin, what each head read."""
    from .lens.explain import explain

    rows, n = [], len(generation.prompt)
    for i in range(len(generation.tokens) - n):
        story = explain(model, generation.tokens[: n + i][-model.config.n_ctx :])
        heads = [{"name": h.name, "read": h.read} for layer in story.layers for h in layer.heads]
        reads = model.vocabulary.decode(generation.tokens[: n + i])
        row = {"step": i + 1, "reads": reads, "top": story.top[:3], "margin": story.margin}
        rows.append(row | {"heads": heads})
    return rows


def interpret_source(task: Task | None, text: str, label: str) -> tuple[dict[str, list[str]], str]:
    """Every value of a source at every position of a text, as the interpreter has it, and what it
    says then.
    """
    if not isinstance(task, SequenceTask):
        kinds = "only .glass, lang/… and what was compiled have a meaning"
        raise GlassformerError(f"{label} — has no source: {kinds}")
    return task.interpret(text)
