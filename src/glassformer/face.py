"""The front desk: what people type, as what functions take.

Every function at the front door (see doors.py) takes a ref, a path or a Model where its `model` (or
`a` and `b`) stands, a ref or a Task for `task` (left out: the model's own), a text or tokens for
`tokens`, a name or a Recipe for `recipe`. What does not fit is refused here, in a line that names
the function: too few arguments, an unknown keyword, a value of another type than the function's own
annotations say, rows that are not of the task. The functions themselves stand in the rooms and know
nothing of it.
"""

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from . import parts, refs, registry
from .calls import bound, check_types, fits, text_of
from .errors import NEEDS_TORCH, GlassformerError, did_you_mean, shown
from .limits import ROWS, SEED, within
from .model import Config, Model, Tap, check_last, keeping_shapes, read_tokens
from .model import forward as plain_forward
from .records import check_writable
from .runs import prompt
from .shapes import check
from .tap import hook_names
from .tasks import mistakes
from .tasks.base import Task

if TYPE_CHECKING:
    from .training import Event, Training
    from .training.ablated import Ablations

R = TypeVar("R")
# Parameters of functions in all rooms.
MODELS, OPTIONAL = ("model", "a", "b"), ("start", "teacher")
RANGES = {"seed": (0, SEED), "n": (1, ROWS)}
TOKENS = ("tokens", "clean", "corrupted", "prompt")
# Of two that sound alike, each names the other when it cannot read what it was given.
ALIKE = dict.fromkeys(
    ("ablate", "ablations"),
    "gf.ablate silences a part of a model; gf.ablations (the command ablate) trains with one thing "
    "taken away",
)


def typed(given: R) -> R:
    """What was given: if it is FILE.py:NAME, that file is run."""
    if isinstance(given, str) and (registry.FILE.match(given) or registry.NAMELESS.match(given)):
        from . import own

        own.typed(given)
    return given


# ── what was meant ─────────────────────────────────────────────────────────────────────────────
def model_of(given: Any) -> Model:
    """A Model, that of a Compiled or a Training, or what a ref or a path names."""
    if isinstance(made := getattr(given, "model", given), Model):
        return made
    if isinstance(given, (str, PathLike)):
        return refs.load(typed(given))
    raise GlassformerError(f"model — expected a ref, a path or a Model, got {shown(given)}")


def task_of(given: Any, models: Sequence[Model]) -> Task:
    """A Task, what a ref names, or what the models are for."""
    if isinstance(given, type) and issubclass(given, Task):
        given = given()
    if isinstance(given, Task):
        return given
    if isinstance(given, str):
        return refs.load_task(typed(given))
    if given is None and len(models) == 2:
        from .lens.compare import common_task

        common_task(*models)
        return refs.load_task(models[0])
    if given is None and models:
        return refs.load_task(models[0])
    raise GlassformerError(f"task — expected a ref or a Task, got {shown(given)}")


def tokens_of(given: Any, model: Model) -> Any:
    """Tokens, or those that a text gives to the model."""
    return model.read(prompt(model, given) if isinstance(given, str) else given)


def recipe_of(given: Any, task: Task) -> Any:
    """A Recipe, the one of a name or a file, or the one that suits the task."""
    from .training.recipe import Recipe
    from .training.recipes import choose_recipe

    if isinstance(given, Recipe):
        return given
    if isinstance(given, str):
        return choose_recipe(typed(given), task)
    raise GlassformerError(f"recipe — expected a name or a Recipe, got {shown(given)}")


def is_part(model: Model, text: str) -> bool:
    """Whether a text is meant as the name of a part, be it there or not: no task is called so."""
    if parts.split(text)[1] or parts.split(text)[0] in ("slot", "dims"):
        return True
    try:
        return bool(parts.find(model, text))
    except GlassformerError:
        return False


# ── the desk ───────────────────────────────────────────────────────────────────────────────────
def opened(
    f: Callable[..., R], options: Callable[..., Any] | None = None, settings: Iterable[str] = (),
    *, as_typed: bool = False,
) -> Callable[..., R]:  # fmt: skip
    """The function, taking what people type: of a user's call, a type checker sees the result.

    `options`: whose keywords its **options are. `settings`: fields of the recipe, which may be
    among them too. `as_typed`: it reads what people type by itself (see errands).
    """
    by_name = inspect.Parameter.KEYWORD_ONLY
    public = f.__name__.removesuffix("_")
    own, hints = inspect.signature(f), typing.get_type_hints(f)
    parameters = [*own.parameters.values()]
    if options:
        hints |= typing.get_type_hints(options)
        there = inspect.signature(options).parameters.values()
        parameters[-1:] = [p for p in there if p.kind is by_name]  # instead of **options
    if "ref" in own.parameters or "name" in [*own.parameters][:1]:
        for known in ("ref", "name"):  # refs.py and registry.py say themselves what they expect
            hints.pop(known, None)
    signature = own.replace(parameters=parameters)
    fields = [inspect.Parameter(name, by_name, default=None) for name in settings]
    takes = own.replace(parameters=[*parameters, *fields])

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = (bound if as_typed else _read)(public, takes, args, kwargs)
            set_ = {name: given.pop(name) for name in settings if name in given}
            if "recipe" in takes.parameters:
                start = given.get("start") or getattr(given.get("blueprint"), "base", None)
                recipe = recipe_of(given.get("recipe", ""), given["task"])
                given["recipe"] = recipe.override(set_, start)
        except GlassformerError as e:
            raise GlassformerError(f"{e}; {ALIKE[public]}") if public in ALIKE else e from None
        check_types(public, hints, given)
        for name, value in given.items():
            if isinstance(value, np.ndarray) and not fits(object(), hints.get(name, Any)):
                given[name] = value.tolist()  # a list was expected
        for name, (least, most) in RANGES.items():
            if name in given:
                within(f"{public} — {name}", given[name], least, most)
        try:
            with np.errstate(all="ignore"):  # what is not finite, the rooms see to
                return f(**given)
        except np.linalg.LinAlgError as e:
            raise GlassformerError(f"{public} — numbers not finite, or too large ({e})") from None

    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__module__ = __package__
    call.__name__ = call.__qualname__ = public  # where pickle finds it again
    return call


def _read(
    name: str, takes: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call as what the function takes."""
    leaves_out = {"task", "what"} <= takes.parameters.keys() and len(args) > 1
    if leaves_out and not isinstance(args[1], Task | None):
        model, rest, second = model_of(args[0]), dict(kwargs), args[1]
        alone = len(args) == 2 and "what" not in kwargs
        if alone or not isinstance(second, str) or is_part(model, second):
            # gf.ablate(model, "head 0.0"): the task is left out
            args, kwargs = (model, rest.pop("task", None), *args[1:]), rest
    may_lack = {"task" if set(MODELS) & takes.parameters.keys() else "recipe"}
    given = bound(name, takes, args, kwargs, may_lack)
    for each, value in given.items():
        if isinstance(value, np.generic):
            given[each] = value.item()  # a number of NumPy's may be of few bits
    for each in MODELS:
        if each in given:
            given[each] = model_of(given[each])
    models = [given[each] for each in MODELS if each in given]
    if given.get("equals") is not None:
        given["equals"] = model_of(given["equals"])
    if isinstance(given.get("verdict"), (str, PathLike)):
        given["verdict"] = _verdict(given["verdict"])
    if getattr(given.get("verdict"), "task", None) and given.get("task") is None:
        given["task"] = refs.verdict_task(models[0], given["verdict"].task)  # runs no file
    for each in OPTIONAL if "recipe" in takes.parameters else ():
        if given.get(each) is not None:
            if isinstance(given[each], (str, PathLike)) and isinstance(
                given.get("out"), str | Path
            ):
                check_writable(given["out"], given[each])  # not over what is read
            given[each] = model_of(given[each]).numpy()
    if "task" in takes.parameters:
        if given.get("task") is None and takes.parameters["task"].default is None:
            given["task"] = refs.known_task(models[0])  # it can do without
        else:
            given["task"] = task_of(given.get("task"), models)
        if given["task"]:
            mistakes.check(given["task"])
            for model in models:
                given["task"].require(model.vocabulary)
    for each in TOKENS if models else ():
        if each in given and (given[each] is not None or each != "prompt"):
            given[each] = tokens_of(given[each], models[0])
    if given.get("rows") is not None and "task" in given:
        given["rows"] = given["task"].readable(given["rows"])
    if isinstance(given.get("blueprint"), str):
        given["blueprint"] = registry.build("blueprint", typed(given["blueprint"]))
    if "ref" in given:
        typed(given["ref"])
    for each in ("path", "out", "journal", "snapshots"):
        if isinstance(given.get(each), PathLike):
            given[each] = Path(text_of(given[each], each, "a path"))
    if given.get("tap") is not None:
        given["tap"] = keeping_shapes(given["tap"])
    return given


def _verdict(path: Any) -> Any:
    from .verification import Verdict

    return Verdict.read(text_of(path, "verdict", "a path"))


# ── what no room has ───────────────────────────────────────────────────────────────────────────
def forward(
    c: Config, weights: Mapping[str, Any], tokens: Any, tap: Tap | None = None, start: int = 0,
    last: int | None = None,
) -> Any:  # fmt: skip
    """tokens [B,T] -> logits [B,T,V], as model.py's `forward`, of arguments that are looked at."""
    tokens = read_tokens(c, tokens, start)
    if tokens.ndim != 2:
        raise GlassformerError(f"tokens — expected shape [B,T], got {list(tokens.shape)}")
    check_last(last, tokens)
    return plain_forward(c, check(c, weights), tokens, tap, start, last)


def fit(*args: Any, **kwargs: Any) -> "Training":
    """Trains one model: fit(task, recipe, seed=0, steps=…, out=…), with any field of the recipe
    and any option of training.loop.Trainer. Without a recipe: the one that suits the task. Needs
    PyTorch.
    """
    return _loop("fit")(*args, **kwargs)  # type: ignore[no-any-return]


def train(*args: Any, **kwargs: Any) -> Iterator["Event"]:
    """Trains as one goes through what it gives, event by event: for event in train(task, recipe,
    seeds=(0,), out=…). No step is taken before; `fit` does all of it and gives back the model.
    """
    return _loop("train")(*args, **kwargs)  # type: ignore[no-any-return]


def ablations(*args: Any, **kwargs: Any) -> "Ablations":
    """Trains a recipe with one thing taken away at a time, the command ablate: ablations(task,
    recipe, seeds=(0, 1, 2), only=…, out=…), with any field of the recipe. Needs PyTorch. To silence
    a part of a finished model: ablate.
    """
    return _loop("ablations")(*args, **kwargs)  # type: ignore[no-any-return]


def _loop(name: str) -> Callable[..., Any]:
    try:
        from .training import ablated, fitting, loop
    except ModuleNotFoundError:
        raise GlassformerError(f"{name} — {NEEDS_TORCH}") from None
    from .training.recipe import FIELDS

    if name == "ablations":
        return opened(ablated.ablations, settings=FIELDS)
    return opened(getattr(fitting, name), loop.Trainer.__init__, FIELDS)


def list_(what: str = "programs", ref: str = "") -> Any:
    """All names of programs, tasks, blueprints, bridges, recipes and their fields, views, trained,
    claims, lang, levels, or of a model's hooks: gf.list("hooks", "addition"). With a name after
    recipes, lang or levels just that one: a Recipe, the text of a source, a Level.
    """
    from .lang import named
    from .lens.inspect import VIEWS
    from .published import ledger
    from .puzzles import level, levels
    from .training.recipe import FIELDS
    from .training.recipes import RECIPES, recipe

    kinds: dict[str, Callable[[], Iterable[str]]] = {
        **{f"{kind}s": functools.partial(registry.entries, kind) for kind in registry.REGISTRY},
        "recipes": lambda: [*RECIPES, "suited"], "views": lambda: VIEWS, "claims": ledger,
        "trained": refs.trained, "lang": named.names, "levels": levels, "fields": lambda: FIELDS,
        "hooks": lambda: hook_names(model_of(ref)),
    }  # fmt: skip
    if what not in kinds:
        hint = did_you_mean(what, kinds, 1, 0.6, "expected one of")
        raise GlassformerError(f"list {shown(what)} — no such list; {hint}")
    one: dict[str, Callable[[], Any]] = {
        "recipes": lambda: recipe(ref), "levels": lambda: level(ref),
        "lang": lambda: named.find(named.LIBRARY + ref.removeprefix(named.LIBRARY)).text,
    }  # fmt: skip
    if ref != "" and what in one:
        ref = text_of(ref, f"list {what}", "a name")
        return one[what]()
    if what != "hooks" and ref != "":
        raise GlassformerError(f"list {what} — takes nothing after it, got {shown(ref)}")
    if what == "hooks" and ref == "":
        raise GlassformerError("list hooks — expected a model after it: addition, …")
    ordered = what in ("hooks", "levels", "fields")
    return list(kinds[what]()) if ordered else sorted(kinds[what]())
