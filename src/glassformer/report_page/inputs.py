"""The initial inputs of a page, shared by models that read the same strings."""

from collections.abc import Sequence
from itertools import product

import numpy as np

from ..compiler.task import task_name
from ..core.model import Model
from ..generate import prompt_tokens
from ..resolve import task_if_known
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from .examples import order_by_turns, typeable_text

MAX_INPUTS = 8  # default number of inputs per group
SAMPLED_ROWS = 400  # number of candidates for inputs


def inputs_by_model(models: Sequence[Model], inputs: Sequence[str] = ()) -> list[list[str]]:
    """Return the inputs of each model: `inputs`, or those of an earlier model that it can read."""
    if inputs:
        for model, text in product(models, inputs):
            if problem := read_error(model, text):
                if len(models) == 1:
                    raise GlassformerError(problem)
                hint = "omit inputs (--input) to give each model its own"
                raise GlassformerError(f"{model_name(model)}: {problem}. {hint}")
        return [list(dict.fromkeys(inputs))] * len(models)
    result: list[list[str]] = []
    for model in models:
        shared = filter(None, result)  # a model may have no inputs
        readable = (texts for texts in shared if not any(read_error(model, t) for t in texts))
        result.append(next(readable, []) or initial_inputs(model))
    return result


def model_name(model: Model) -> str:
    return task_name(model) or model.name


def read_error(model: Model, text: str) -> str:
    """Return the error message if a model cannot read an input string, else ""."""
    try:
        model.to_tokens(prompt_tokens(model, text))
    except GlassformerError as e:
        return str(e)
    return ""


def initial_inputs(model: Model) -> list[str]:
    """Return a few inputs: the task's declared examples, then inputs of every class."""
    task = task_if_known(model)
    if not task:
        singles = [model.vocabulary[i] for i in range(min(len(model.vocabulary), MAX_INPUTS))]
        readable = [text for text in singles if not read_error(model, text)][:3]
        if not readable:
            raise GlassformerError(f"{model_name(model)}: no task known. Pass inputs (--input)")
        return readable
    usual, drawn = ([text for text in texts if not read_error(model, text)]
                    for texts in (task.example_inputs, _texts_by_class(task)))  # fmt: skip
    # If the task's first example is too long for the model, start with a sampled input.
    first = [] if usual[:1] == [*task.example_inputs[:1]] else drawn[:1]
    texts = list(dict.fromkeys([*first, *usual, *drawn]))
    if not texts and not read_error(model, ""):
        return [""]
    if not texts:
        raise GlassformerError(f"{task.ref}: no input fits the model. Pass inputs (--input)")
    return texts[:MAX_INPUTS]


def _texts_by_class(task: Task) -> list[str]:
    """Return strings of sampled rows and edge cases, with alternating input classes."""
    sampled = task.sample(SAMPLED_ROWS, np.random.default_rng(0))
    rows = np.concatenate([sampled, task.edges()[:SAMPLED_ROWS]])
    rows = rows[task.defined(rows)]
    tokens, mask = task.batch(rows[order_by_turns(task, rows)[: 4 * MAX_INPUTS]])
    prompts = [row[: int(m.argmax())].tolist() for row, m in zip(tokens, mask, strict=True)]
    return [text for prompt in prompts if (text := typeable_text(task, prompt)) is not None]
