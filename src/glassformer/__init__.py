"""Glassformer: transformers you can see through.

>>> import glassformer as gf
>>> model = gf.load("addition:digits=3")
>>> gf.run(model, "123+456").output
'0579'
"""

from __future__ import annotations

from importlib import import_module

# Nothing else is imported here, not even `typing`, because a signal that arrives before the command
# line has installed its handlers shows a traceback. Type checkers and editors read the plain
# imports, but Jedi skips a block under the constant False; at run time a name is imported when it
# is first used.
TYPE_CHECKING = bool(0)
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from . import plotting as show
    from .api import ablate as ablate
    from .api import ablation_study as ablation_study
    from .api import adderboard as adderboard
    from .api import attribute as attribute
    from .api import check_puzzle as check_puzzle
    from .api import check_task as check_task
    from .api import claims as claims
    from .api import compare as compare
    from .api import compile_ as compile
    from .api import count as count
    from .api import decode as decode
    from .api import explain as explain
    from .api import export as export
    from .api import fit as fit
    from .api import forward as forward
    from .api import ground_truth as ground_truth
    from .api import hook as hook
    from .api import hook_names as hook_names
    from .api import inspect as inspect
    from .api import interchange as interchange
    from .api import list_ as list
    from .api import load as load
    from .api import load_task as load_task
    from .api import obfuscate as obfuscate
    from .api import parametrization as parametrization
    from .api import patch as patch
    from .api import program as program
    from .api import prove as prove
    from .api import recheck as recheck
    from .api import record as record
    from .api import report as report
    from .api import run as run
    from .api import save as save
    from .api import sizes as sizes
    from .api import studio as studio
    from .api import sweep as sweep
    from .api import task as task
    from .api import tour as tour
    from .api import train as train
    from .api import verify as verify
    from .api import view as view
    from .core.model import Config as Config
    from .core.model import Labels as Labels
    from .core.model import Model as Model
    from .core.vocabulary import Vocabulary as Vocabulary
    from .tasks import Task as Task
    from .training import Recipe as Recipe
    from .training import Training as Training
    from .utils.errors import GlassformerError as GlassformerError
    from .verification import Verdict as Verdict

    __all__ = [
        "Config",
        "GlassformerError",
        "Labels",
        "Model",
        "Recipe",
        "Task",
        "Training",
        "Verdict",
        "Vocabulary",
        "ablate",
        "ablation_study",
        "adderboard",
        "attribute",
        "check_puzzle",
        "check_task",
        "claims",
        "compare",
        "compile",
        "count",
        "decode",
        "explain",
        "export",
        "fit",
        "forward",
        "ground_truth",
        "hook",
        "hook_names",
        "inspect",
        "interchange",
        "list",
        "load",
        "load_task",
        "obfuscate",
        "parametrization",
        "patch",
        "program",
        "prove",
        "recheck",
        "record",
        "report",
        "run",
        "save",
        "show",
        "sizes",
        "studio",
        "sweep",
        "task",
        "tour",
        "train",
        "verify",
        "view",
    ]

__version__ = "0.1.0"

_FUNCTIONS = [
    "ablate", "ablation_study", "adderboard", "attribute", "parametrization", "check_puzzle",
    "check_task", "claims", "compare", "compile", "count", "decode", "explain", "export", "fit",
    "forward", "ground_truth", "hook", "hook_names", "inspect", "interchange", "list", "load",
    "load_task", "obfuscate", "patch", "program", "prove", "recheck", "record", "report", "run",
    "save", "sizes", "studio", "sweep", "task", "tour", "train", "verify", "view",
]  # fmt: skip
_CLASSES = {
    "GlassformerError": "utils.errors", "Config": "core.model", "Labels": "core.model",
    "Model": "core.model", "Vocabulary": "core.vocabulary", "Task": "tasks", "Recipe": "training",
    "Training": "training", "Verdict": "verification",
}  # fmt: skip
_BUILTINS = {"list", "compile"}  # `import *` does not override these built-in names


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted({*_FUNCTIONS, *_CLASSES} - _BUILTINS)
    if name in _FUNCTIONS:
        api = import_module(f"{__name__}.api")
        return globals().setdefault(name, getattr(api, name + "_" * (name in _BUILTINS)))
    if name in _CLASSES:
        module = import_module(f"{__name__}.{_CLASSES[name]}")
        return globals().setdefault(name, getattr(module, name))
    if name == "show":
        return globals().setdefault(name, import_module(f"{__name__}.plotting"))
    if name[0] != "_" and name in _modules():
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _modules() -> set[str]:
    from pkgutil import iter_modules

    return {module.name for module in iter_modules(__path__)}


def __dir__() -> Iterable[str]:
    return sorted({*_FUNCTIONS, *_CLASSES, "show", *(n for n in globals() if n.startswith("__"))})
