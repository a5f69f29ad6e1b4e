"""Coercion of arguments, such as a ref to a Model or an input string to tokens.

Only refs passed here by the user execute a file (FILE.py:NAME). Refs read from checkpoints,
verdicts or sweep specs never execute code.
"""

import builtins
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args

import numpy as np

from . import registry, resolve
from .core.model import Model
from .generate import prompt_tokens, read_text
from .registry import is_source_ref as is_source_ref
from .tasks import validation
from .tasks.base import Task
from .utils.argcheck import as_text, bind_arguments, check_types, matches_annotation
from .utils.errors import (
    GlassformerError,
    did_you_mean,
    missing_extra,
    short_repr,
    value_error,
)
from .utils.fileio import check_ending, check_writable
from .utils.limits import MAX_ROWS, MAX_SEED, attribute, check_int_range, check_memory

if TYPE_CHECKING:
    from .compiler import Compiled
    from .parametrizations.base import Parametrization
    from .training import Recipe, Training
    from .verification import Verdict

R = TypeVar("R")
T = TypeVar("T")
# A ref, a path, a Model, or a result with a model: a Compiled, a Training, an ObfuscatedModel.
ModelLike: TypeAlias = "Model | Compiled | Training | str | PathLike[str]"
TaskLike: TypeAlias = "Task | type[Task] | str"
Tokens: TypeAlias = "str | Sequence[int] | Sequence[Sequence[int]] | np.ndarray[Any, Any]"
Rows: TypeAlias = "Sequence[Sequence[int]] | np.ndarray[Any, Any]"
RecipeLike: TypeAlias = "Recipe | str"
FILE_SUFFIXES = (
    ".safetensors", ".pt", ".pth", ".json", ".jsonl", ".csv", ".toml", ".txt", ".html", ".png",
    ".svg", ".pdf", ".py",
)  # fmt: skip
PARAMETER_RANGES = {
    "seed": (0, MAX_SEED),
    "n": (1, MAX_ROWS),
}  # annotations of the parameters of all public functions


# ── one argument ───────────────────────────────────────────────────────────────────────────────
def load_user_ref(value: T) -> T:
    """If the value is FILE.py:NAME, execute that file. Return the value."""
    if isinstance(value, str) and (
        registry.FILE_REF.match(value) or registry.FILE_WITHOUT_NAME.match(value)
    ):
        from . import user_modules

        user_modules.load_user_files(value)
    return value


def as_model(value: Any, task: str | None = None) -> Model:
    """Return a Model from a Model, an object with a `model`, a ref or a path.

    `task` replaces the model's task.
    """
    if isinstance(value, (str, PathLike)):
        model = resolve.load(load_user_ref(value))
    else:
        model = value if isinstance(value, Model) else attribute(value, "model")
    if not isinstance(model, Model):
        raise GlassformerError(
            f"model — expected a ref, a path or a Model, got {short_repr(value)}"
        )
    return model if task is None else resolve.with_task(model, load_user_ref(task))


def as_task(value: Any, *models: Model) -> Task:
    """Return a Task from a Task, a Task class, a ref, or the common task of the models.

    Raises an error if the vocabulary of a model differs from the task's.
    """
    if isinstance(value, type) and issubclass(value, Task):
        value = value()
    if isinstance(value, str):
        value = resolve.load_task(load_user_ref(value))
    elif value is None and models:
        value = (resolve.common_task if len(models) == 2 else resolve.model_task)(*models)
    if not isinstance(value, Task):
        raise GlassformerError(f"task — expected a ref or a Task, got {short_repr(value)}")
    validation.check_attributes(value)
    for model in models:
        value.require(model.vocabulary)
    return value


def as_source_task(value: str) -> Task:
    """Return the task of a source without compiling it, or the task of the model at a ref."""
    return resolve.load_task(value if is_source_ref(value) else as_model(value))


def as_task_if_known(value: Any, model: Model) -> Task | None:
    """Return as_task(value, model), or None if no task is passed and the model has none."""
    return resolve.task_if_known(model) if value is None else as_task(value, model)


def as_tokens(value: Any, model: Model, task: Task | None = None) -> Any:
    """Return tokens. Input strings are tokenized by `task` or by the model's task."""
    if isinstance(value, str):
        if task:
            question, start = read_text(model.vocabulary, task, value)
            value = [*question, *start]
        else:
            value = prompt_tokens(model, value)
    return model.to_tokens(value)


def as_inputs(value: Any, model: Model, task: Task | None = None) -> list[Any]:
    """Return the tokens of each input of a list; a string is a list of one input."""
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, (list, tuple, np.ndarray)):
        raise value_error("inputs:", "a list of inputs, as in ['5+8', '7+9']", value)
    return [as_tokens(text, model, task) for text in value]


def as_rows(value: Any, task: Task | None) -> Any:
    """Return rows after a check by the task."""
    return value if value is None or task is None else task.validate_rows(value)


def as_sample(
    task: Task | None, rows: Any, sample: int | None, seed: int, max_rows: int = MAX_ROWS
) -> Any:
    """Return the rows, or `sample` random rows if they fit in memory."""
    if sample is None:
        return as_rows(rows, task)
    check_int_range("sample", sample, 1, max_rows)
    if rows is not None or task is None:
        reason = "rows are passed" if rows is not None else "the model has no task; pass task=…"
        raise GlassformerError(f"sample — expected no sample: {reason}")
    tokens = task.batch(task.rows(0, 1))[0].shape[1]
    check_memory(f"{sample:,} rows of {task.ref}", 8 * sample * (len(task.radix) + tokens))
    return task.sample(sample, np.random.default_rng(seed))


def as_generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(check_int_range("seed", seed, *PARAMETER_RANGES["seed"]))


def as_recipe(value: Any, task: Task) -> "Recipe":
    """Return a Recipe from a Recipe, a name, a file, or "" for the task's default."""
    from .training.recipe import Recipe
    from .training.recipes import choose_recipe

    if isinstance(value, Recipe):
        return value
    if isinstance(value, str):
        return choose_recipe(load_user_ref(value), task)
    raise GlassformerError(f"recipe — expected a name, a file or a Recipe, got {short_repr(value)}")


def as_parametrization(value: Any) -> "Parametrization | None":
    from .parametrizations.base import Parametrization

    parametrization = (
        registry.build("parametrization", load_user_ref(value)) if isinstance(value, str) else value
    )
    if not isinstance(parametrization, Parametrization | None):
        raise GlassformerError(
            f"parametrization — expected a ref or a Parametrization, got {short_repr(value)}"
        )
    return parametrization


def as_verdict(value: Any) -> "Verdict":
    from .verification import Verdict

    if isinstance(value, (str, PathLike)):
        return Verdict.read(as_text(value, "verdict", "a path"))
    if not isinstance(value, Verdict):
        raise GlassformerError(f"verdict — expected a Verdict or a path, got {short_repr(value)}")
    return value


def verdict_task(value: Any, verdict: "Verdict", model: Model) -> Task:
    """Return a Task from the value, or from the ref in a verdict, which never executes a file."""
    return as_task(resolve.verdict_task(model, verdict.task) if value is None else value, model)


def as_path(value: Any, name: str) -> Path:
    if not (text := as_text(value, name, "a path")):
        raise GlassformerError(f"{name} — expected a path, got ''")
    return Path(text)


def as_output(value: Any, suffix: str, *inputs: Any, name: str = "out") -> Path | None:
    """Return the path of an output file; `name` is the argument, for errors.

    Raises an error if its suffix is wrong, its folder is not writable, or it is an input file.
    """
    if value is None:
        return None
    path = as_path(value, name)
    check_ending(path, suffix, name)
    check_writable(path, *input_paths(inputs))
    return path


def input_paths(values: Iterable[Any]) -> list[str]:
    """Return the values that may be file paths: strings and path objects."""
    return [
        as_text(value, "path", "a path") for value in values if isinstance(value, (str, PathLike))
    ]


def as_folder(value: Any, name: str = "out") -> Path:
    """Return the path of an output folder. Raise an error for a path with the suffix of a file."""
    path = as_path(value, name)
    if path.suffix in FILE_SUFFIXES and not path.is_dir():
        raise GlassformerError(f"{name}: expected a folder, got {path}")
    return path


# ── calls ───────────────────────────────────────────────────────────────────────────────
def checked_call(f: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
    """Bind arguments, check them against the annotations of a public function, and call it.

    An invalid call raises a GlassformerError of one line, with a suggestion for misspelled
    keywords.
    """
    name = f.__name__.rstrip("_")
    signature, hints = _checked_signature(f)
    arguments = bind_arguments(name, signature, args, kwargs)
    if unknown := arguments.keys() - signature.parameters.keys():
        named = [n for n, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD]
        _check_fields(name, unknown, named)
    for key, value in arguments.items():
        if attribute(value, "__class__") is None:  # isinstance() would raise, too
            raise GlassformerError(f"{name} — {key}: cannot read {short_repr(value)}")
        if isinstance(value, np.generic):
            arguments[key] = value.item()  # NumPy integers may overflow, Python integers do not
        elif isinstance(value, str):
            arguments[key] = str.__str__(value)  # an enum's own str() is another text
    check_types(name, hints, arguments)
    for key, value in arguments.items():
        if isinstance(value, np.ndarray) and not matches_annotation(object(), hints.get(key, Any)):
            arguments[key] = value.tolist()  # the parameter expects a list
    for key, (low, high) in PARAMETER_RANGES.items():
        if key in arguments:
            check_int_range(f"{name} — {key}", arguments[key], low, high)
    try:
        with np.errstate(all="ignore"):  # results report non-finite values
            return f(**arguments)
    except np.linalg.LinAlgError as e:
        raise GlassformerError(
            f"{name} — expected finite numbers in the float range ({e})"
        ) from None
    except ModuleNotFoundError as e:
        if error := missing_extra(name, e):
            raise error from None
        raise


@cache
def _checked_signature(f: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    """Return the signature of a function and the annotations to check.

    Coerced types and types imported only for type checkers are not checked.
    """
    signature = inspect.signature(f)
    parameters = list(signature.parameters.values())
    hints = typing.get_type_hints(f, localns=_AnnotationNames(f.__globals__))
    for name in ("ref", "name"):  # checked by resolve.py and registry/
        if parameters and parameters[0].name == name:
            hints.pop(name)
    checked = (n for n in signature.parameters if n in hints and Any not in get_args(hints[n]))
    return signature, {n: hints[n] for n in checked}


def _check_fields(name: str, keywords: Iterable[str], parameters: Iterable[str]) -> None:
    """Raise an error for keywords that are neither parameters nor recipe fields."""
    from .training.recipe import RECIPE_FIELDS, recipe_option

    for word in (word for word in keywords if word not in RECIPE_FIELDS):
        if get_close_matches(word, parameters, 1, 0.75):
            hint = did_you_mean(word, parameters)
            raise GlassformerError(f"{name} — unexpected keyword {word!r}; {hint}")
        recipe_option(word)


class _AnnotationNames(dict[str, Any]):
    """Namespace for evaluating annotations. Names imported only for type checkers become Any."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        coerced = ("ModelLike", "TaskLike", "Tokens", "Rows", "RecipeLike")
        fields = {"Unpack": builtins.list}  # recipe fields are checked by the recipe
        super().__init__({**vars(builtins), **known, **dict.fromkeys(coerced, Any), **fields})

    def __missing__(self, name: str) -> Any:
        return Any
