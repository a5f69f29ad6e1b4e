"""Which texts a page begins with, and which models read the same."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from ..compiler.task import task_name
from ..core.model import Model
from ..generate import prompt_tokens
from ..resolve import task_if_known
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from .examples import typeable_text

MAX_INPUTS = 8  # of a group, unless a person says which
SAMPLED_ROWS = 400  # rows among which inputs are looked for


@dataclass
class InputGroup:
    """Models that read the same texts."""

    texts: list[str]
    members: list[int] = field(default_factory=list)


def group_models(models: Sequence[Model], inputs: Sequence[str] = ()) -> list[InputGroup]:
    """Who reads what: all read given inputs; else who cannot read another's gets its own."""
    if inputs:
        for model, text in product(models, inputs):
            if problem := read_error(model, text):
                if len(models) == 1:
                    raise GlassformerError(problem)
                hint = "without inputs (--input) each model gets inputs of its own"
                raise GlassformerError(f"{model_name(model)}, {problem}; {hint}")
        return [InputGroup(list(dict.fromkeys(inputs)), list(range(len(models))))]
    found: list[InputGroup] = []
    for i, model in enumerate(models):
        home = next(
            (g for g in found if not any(read_error(model, text) for text in g.texts)), None
        )
        if home is None:
            found.append(home := InputGroup(initial_inputs(model)))
        home.members.append(i)
    return found


def model_name(model: Model) -> str:
    return task_name(model) or model.name


def read_error(model: Model, text: str) -> str:
    """Why a model cannot read a text; "" if it can."""
    try:
        model.to_tokens(prompt_tokens(model, text))
    except GlassformerError as e:
        return str(e)
    return ""


def initial_inputs(model: Model) -> list[str]:
    """A few inputs: those that people know, then one of each class of input, then any."""
    task = task_if_known(model)
    if not task:
        singles = [model.vocabulary[i] for i in range(min(len(model.vocabulary), MAX_INPUTS))]
        readable = [text for text in singles if not read_error(model, text)][:3]
        if not readable:
            problem = "knows no task; say what it reads (inputs=…, --input …)"
            raise GlassformerError(f"{model_name(model)} — {problem}")
        return readable
    usual, drawn = ([text for text in texts if not read_error(model, text)]
                    for texts in (task.example_inputs, _texts_by_class(task)))  # fmt: skip
    # What a task is known by may be too long for the model: 0+0 is no beginning, any other is.
    first = [] if usual[:1] == [*task.example_inputs[:1]] else drawn[:1]
    texts = list(dict.fromkeys([*first, *usual, *drawn]))
    if not texts and not read_error(model, ""):
        return [""]
    if not texts:
        problem = "no input of it fits the model; say what it reads (inputs=…, --input …)"
        raise GlassformerError(f"{task.ref} — {problem}")
    return texts[:MAX_INPUTS]


def _texts_by_class(task: Task) -> list[str]:
    """Texts of rows, the classes of input taking turns."""
    rows = np.concatenate(
        [task.sample(SAMPLED_ROWS, np.random.default_rng(0)), task.edges()[:SAMPLED_ROWS]]
    )
    rows = rows[task.defined(rows)]
    names = list(map(str, task.classes(rows)))
    turn = [names[:i].count(name) for i, name in enumerate(names)]  # how many of its class before
    each = zip(*task.batch(rows[np.argsort(turn, kind="stable")[: 4 * MAX_INPUTS]]), strict=True)
    prompts = [tokens[: int(answer.argmax())].tolist() for tokens, answer in each]
    return [text for prompt in prompts if (text := typeable_text(task, prompt)) is not None]
