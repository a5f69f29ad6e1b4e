"""The front desk: what people type, as what functions take.

Every function at the top of the package takes a ref, a path or a Model where its `model` (or `a`
and `b`) stands, a ref or a Task for `task` (left out: the model's own), a text or tokens for
`tokens`, a name or a Recipe for `recipe`. The functions themselves stand in the rooms and know
nothing of it.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from . import refs, registry
from .errors import GlassformerError, shown
from .model import Model
from .runs import prompt
from .tasks.base import Task

F = TypeVar("F", bound=Callable[..., Any])
# Parameters of functions in all rooms.
MODELS, OPTIONAL = {"model", "a", "b"}, {"start", "teacher"}
TOKENS = {"tokens", "clean", "corrupted"}


def model_of(given: Any) -> Model:
    """A Model, or what a ref or a path names."""
    if isinstance(given, Model):
        return given
    if isinstance(given, (str, PathLike)):
        return refs.load(str(given))
    raise GlassformerError(f"model — expected a ref, a path or a Model, got {shown(given)}")


def task_of(given: Any, models: Sequence[Model]) -> Task:
    """A Task, what a ref names, or what the models are for."""
    if isinstance(given, Task):
        return given
    if isinstance(given, str):
        return refs.load_task(given)
    if given is None and len(models) == 2:
        from .lens.compare import common_task

        return refs.load_task(common_task(*models))
    if given is None and models:
        return refs.load_task(models[0])
    raise GlassformerError(f"task — expected a ref or a Task, got {shown(given)}")


def tokens_of(given: Any, model: Model) -> Any:
    """Tokens, or those that a text gives to the model."""
    return model.read(prompt(model, given) if isinstance(given, str) else given)


def recipe_of(given: Any) -> Any:
    """A Recipe, or the one of a name."""
    from .training.recipe import Recipe
    from .training.recipes import recipe

    if isinstance(given, Recipe):
        return given
    if isinstance(given, str):
        return recipe(given)
    raise GlassformerError(f"recipe — expected a name or a Recipe, got {shown(given)}")


def opened(f: F) -> F:
    """The function, taking what people type."""
    signature = inspect.signature(f)

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind_partial(*args, **kwargs).arguments
        rest = [n for n, p in signature.parameters.items() if p.kind is p.VAR_KEYWORD]
        given = bound | {n: v for name in rest for n, v in bound.pop(name, {}).items()}
        for name in MODELS & given.keys():
            given[name] = model_of(given[name])
        for name in OPTIONAL & given.keys():
            given[name] = None if given[name] is None else model_of(given[name])
        models = [given[name] for name in ("model", "a", "b") if name in given]
        if "task" in signature.parameters:
            given["task"] = task_of(given.get("task"), models)
        for name in TOKENS & given.keys() if models else ():
            given[name] = tokens_of(given[name], models[0])
        if isinstance(given.get("blueprint"), str):
            given["blueprint"] = registry.build("blueprint", given["blueprint"])
        if "recipe" in given:
            given["recipe"] = recipe_of(given["recipe"])
        return f(**given)

    return call  # type: ignore[return-value]


def report(models: Any, path: str | PathLike[str], inputs: Any = (), rows: int = 200) -> Path:
    """One page of one or several models, in a file that needs no network."""
    from .page import report as page

    several = list(models) if isinstance(models, (list, tuple)) else [models]
    named = [
        (str(m.provenance.get("ref", "model")) if isinstance(m, Model) else str(m), model_of(m))
        for m in several
    ]
    return page.write(page.report(named, list(inputs), rows=rows), Path(path))


def names(what: str = "programs") -> list[str]:
    """The names of all programs, tasks, blueprints, bridges, recipes, views, trained models or
    claims.
    """
    from .claims import ledger
    from .lens.inspect import VIEWS
    from .training.recipes import RECIPES

    kinds: dict[str, Callable[[], Iterable[str]]] = {
        f"{kind}s": functools.partial(registry.entries, kind) for kind in registry.REGISTRY
    }
    kinds |= {"recipes": lambda: RECIPES, "views": lambda: VIEWS, "claims": ledger}
    kinds |= {"trained": refs.trained}
    if not isinstance(what, str) or what not in kinds:
        raise GlassformerError(f"list — expected one of {', '.join(kinds)}, got {shown(what)}")
    return sorted(kinds[what]())
