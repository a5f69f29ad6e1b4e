"""Generation from strings: run a model on an input string and decode its output."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .core.decoding import decode
from .core.model import PROVENANCE_KEY, Model
from .core.vocabulary import BEGIN, END, Vocabulary
from .resolve import task_if_known
from .tasks.base import Task
from .utils.errors import GlassformerError, ascii_name, short_repr
from .utils.limits import DEFAULT_NEW_TOKENS
from .utils.results import Result, to_jsonable


@dataclass(frozen=True)
class Generation(Result):
    """An input, the model's output, and their tokens."""

    input: str
    output: str
    tokens: list[int]  # prompt and answer
    prompt: list[int] = field(repr=False)
    # reason why decoding stopped before the end of the answer
    stopped: str = field(default="", repr=False)
    trace: list[dict[str, Any]] = field(default_factory=list, repr=False)  # one entry per step
    # name of a value of the source -> its value at each position
    meaning: dict[str, list[str]] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        optional = {"trace": self.trace, "meaning": self.meaning}
        return super().to_json() | {n: to_jsonable(value) for n, value in optional.items() if value}


def prompt_tokens(model: Model, text: str) -> list[int]:
    """Tokenize an input string by the model's task, or by its vocabulary without one."""
    question, start = read_prompt(model, text)
    return question + start


def read_prompt(model: Model, text: str) -> tuple[list[int], list[int]]:
    """Return the tokens of the question and of the beginning of the answer in an input string."""
    if not isinstance(text, str):
        raise GlassformerError(f"input — expected a text, got {short_repr(text)}")
    task = task_if_known(model)
    question, start = read_text(model.vocabulary, task, text)
    if not question:
        raise GlassformerError("input — expected at least one token")
    if task and start and (task.stop in start or len(start) >= task.steps(question)):
        answer = model.vocabulary.decode(start)[:40]
        raise GlassformerError(
            f"input {text[:60]!r} — expected part of an answer, got all of it: {answer!r}"
        )
    return question, start


def read_text(vocabulary: Vocabulary, task: Task | None, text: str) -> tuple[list[int], list[int]]:
    """Return the tokens of the question and of the beginning of the answer in an input string.

    An input that the task refuses may also be a list of tokens, such as `0 4 + 0 2 =`. Without a
    task, an empty input is <bos>.
    """

    def read(text: str) -> tuple[list[int], list[int]]:
        return task.read(text) if task else (vocabulary.encode(text), [])

    try:
        question, start = read(text)
    except GlassformerError as error:
        sep = " " if task and task.space_separated else vocabulary.sep
        with suppress(GlassformerError):
            if (joined := vocabulary.join_words(text, sep)) is not None:
                return read(joined)
        raise error
    begin = vocabulary.number_of(BEGIN)
    return ([begin] if not question and not task and begin is not None else question), start


def is_one_input(model: Model, words: Sequence[str]) -> bool:
    """Return whether several words are one input, as in `run sort 5 3 1` and `run add-digit 7 8`.

    They are if tokens are separated by spaces and each word is one, or if the task accepts none of
    the words alone, but all together.
    """
    vocabulary, task = model.vocabulary, task_if_known(model)
    if not (vocabulary.sep.isspace() or (task and task.space_separated)):
        accepted = [_is_accepted(vocabulary, task, text) for text in (*words, " ".join(words))]
        return task is not None and accepted == [False] * len(words) + [True]
    try:
        return all(vocabulary.encode(w) and not re.search(r"[\s,]", w) for w in words)
    except GlassformerError:
        return False


def _is_accepted(vocabulary: Vocabulary, task: Task | None, text: str) -> bool:
    with suppress(GlassformerError):
        return bool(read_text(vocabulary, task, text)[0])
    return False


def run(
    model: Model,
    text: str = "",
    *,
    steps: int | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    rng: np.random.Generator | None = None,
    trace: bool = False,
    interpret: bool = False,
) -> Generation:
    """Implement `api.run`.

    >>> run(load("addition:digits=3"), "123+456").output
    '0579'
    """
    question, start = read_prompt(model, text)
    tokens, task = question + start, task_if_known(model)
    max_steps = task.max_new_tokens(tokens) if task else None
    unknown_end = steps is None and task is None and bool(model.task)
    if steps is None:
        max_tokens = min(max(1, model.config.n_ctx - len(tokens) + 1), DEFAULT_NEW_TOKENS)
        steps = task.steps(question) - len(start) if task else max_tokens
    too_many = max_steps is not None and steps > max_steps
    steps = steps if max_steps is None else min(steps, max_steps)
    stop = task.stop if task else model.vocabulary.number_of(END)
    decoded = decode(model, tokens, steps, stop=stop, temperature=temperature, top_k=top_k, rng=rng)
    output = [int(t) for t in decoded]
    added = output[len(tokens) :]
    stopped = ""
    if max_steps == len(added) and (too_many or stop is not None) and stop not in added:
        cut = "the answer is cut off: " if stop is not None else ""
        limit = "proof" if PROVENANCE_KEY in model.provenance else "task"
        stopped = f"{cut}stopped after {len(output) - 2:,} tokens, the limit of the {limit}"
    elif unknown_end and len(added) > 1:  # the task is defined in a file that the user did not pass
        stopped = f"the answer's end is unknown: pass its task, --task {ascii_name(model.task)}"
    text_tokens = added[:-1] if not task and added[-1:] == [stop] else added
    output_text = (task.answer if task else model.vocabulary.decode)(text_tokens)
    generation = Generation(text, output_text, output, tokens, stopped)
    return replace(
        generation,
        trace=explain_steps(model, generation) if trace else [],
        meaning=interpret_source(task, text, "the model")[0] if interpret else {},
    )


def explain_steps(model: Model, generation: Generation) -> list[dict[str, Any]]:
    """Explain each decoded token by its top tokens, its margin, and the attention of each head."""
    from .lens.explain import explain

    rows: list[dict[str, Any]] = []
    for i in range(len(generation.prompt), len(generation.tokens)):
        explanation = explain(model, generation.tokens[:i][-model.config.n_ctx :])
        rows.append({
            "step": len(rows) + 1, "reads": model.vocabulary.decode(generation.tokens[:i]),
            "top": explanation.top[:3], "margin": explanation.margin,
            "heads": [{"name": h.name, "read": h.read}
                      for layer in explanation.layers for h in layer.heads],
        })  # fmt: skip
    return rows


def interpret_source(task: Task | None, text: str, label: str) -> tuple[dict[str, list[str]], str]:
    """Run the interpreter of a source on an input string.

    Returns value name -> the value at each position, and the output.
    """
    from .compiler.task import SequenceTask

    if not isinstance(task, SequenceTask):
        expected = "expected a compiled model, a .glass file or lang/NAME, which have a source"
        raise GlassformerError(f"{label} — {expected}")
    return task.interpret(text)
