"""Which texts a page begins with, and which models read the same."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from ..compiler.task import task_name
from ..core.model import Model
from ..generate import prompt
from ..resolve import known_task
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from .examples import spelled

INPUTS = 8  # of a group, unless a person says which
DRAWN = 400  # rows among which inputs are looked for


@dataclass
class Group:
    """Models that read the same texts."""

    texts: list[str]
    members: list[int] = field(default_factory=list)


def groups(models: Sequence[Model], inputs: Sequence[str] = ()) -> list[Group]:
    """Who reads what: all read given inputs; else who cannot read another's gets its own."""
    if inputs:
        for model, text in product(models, inputs):
            if problem := refused(model, text):
                if len(models) == 1:
                    raise GlassformerError(problem)
                hint = "without inputs (--input) each model gets inputs of its own"
                raise GlassformerError(f"{name_of(model)}, {problem}; {hint}")
        return [Group(list(dict.fromkeys(inputs)), list(range(len(models))))]
    found: list[Group] = []
    for i, model in enumerate(models):
        home = next((g for g in found if not any(refused(model, text) for text in g.texts)), None)
        if home is None:
            found.append(home := Group(some_inputs(model)))
        home.members.append(i)
    return found


def name_of(model: Model) -> str:
    return task_name(model) or model.name


def refused(model: Model, text: str) -> str:
    """Why a model cannot read a text; "" if it can."""
    try:
        model.read(prompt(model, text))
    except GlassformerError as e:
        return str(e)
    return ""


def some_inputs(model: Model) -> list[str]:
    """A few inputs: those that people know, then one of each class of input, then any."""
    task = known_task(model)
    if not task:
        singles = [model.vocabulary[i] for i in range(min(len(model.vocabulary), INPUTS))]
        readable = [text for text in singles if not refused(model, text)][:3]
        if not readable:
            problem = "knows no task; say what it reads (inputs=…, --input …)"
            raise GlassformerError(f"{name_of(model)} — {problem}")
        return readable
    usual, drawn = ([text for text in texts if not refused(model, text)]
                    for texts in (task.known, _of_each_class(task)))  # fmt: skip
    # What a task is known by may be too long for the model: 0+0 is no beginning, any other is.
    first = [] if usual[:1] == [*task.known[:1]] else drawn[:1]
    texts = list(dict.fromkeys([*first, *usual, *drawn]))
    if not texts and not refused(model, ""):
        return [""]
    if not texts:
        problem = "no input of it fits the model; say what it reads (inputs=…, --input …)"
        raise GlassformerError(f"{task.ref} — {problem}")
    return texts[:INPUTS]


def _of_each_class(task: Task) -> list[str]:
    """Texts of rows, the classes of input taking turns."""
    rows = np.concatenate([task.sample(DRAWN, np.random.default_rng(0)), task.edges()[:DRAWN]])
    rows = rows[task.defined(rows)]
    names = list(map(str, task.classes(rows)))
    turn = [names[:i].count(name) for i, name in enumerate(names)]  # how many of its class before
    each = zip(*task.batch(rows[np.argsort(turn, kind="stable")[: 4 * INPUTS]]), strict=True)
    prompts = [tokens[: int(answer.argmax())].tolist() for tokens, answer in each]
    return [text for prompt in prompts if (text := spelled(task, prompt)) is not None]
