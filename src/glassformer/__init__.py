"""Glassformer: transformers you can see through.

>>> import glassformer as gf
>>> model = gf.load("addition:digits=3")
>>> gf.run(model, "123+456").output
'0579'
"""

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import registry

if TYPE_CHECKING:
    from .bridges import export as export
    from .checkpoint import save as save
    from .counting import count as count
    from .decoding import decode as decode
    from .errors import GlassformerError as GlassformerError
    from .face import names as list  # noqa: F401
    from .face import report as report
    from .lens.compare import compare as compare
    from .lens.explain import explain as explain
    from .lens.inspect import inspect as inspect
    from .lens.inspect import view as view
    from .lens.interventions.ablate import ablate as ablate
    from .lens.interventions.patch import interchange as interchange
    from .lens.interventions.patch import patch as patch
    from .model import Config as Config
    from .model import Labels as Labels
    from .model import Model as Model
    from .model import forward as forward
    from .proof import prove as prove
    from .refs import load as load
    from .refs import load_task as load_task
    from .registry import blueprint as blueprint
    from .registry import program as program
    from .registry import task as task
    from .runs import run as run
    from .tap import hook_names as hook_names
    from .tap import on as on
    from .tap import record as record
    from .tasks import Task as Task
    from .training import Recipe as Recipe
    from .training import Training as Training
    from .training import fit as fit
    from .training import train as train
    from .verification import Verdict as Verdict
    from .verification import verify as verify
    from .vocabulary import Vocabulary as Vocabulary

__version__ = "0.1.0"

# The front door: what has which name, and the room it comes from when it is first asked for. What
# takes a model, a task or tokens takes a ref, a path or a text for it: see face.py.
OPEN = {
    "run": "runs", "decode": "decoding", "explain": "lens.explain",
    "record": "tap", "on": "tap", "hook_names": "tap",
    "count": "counting", "verify": "verification", "prove": "proof",
    "train": "training", "fit": "training",
    "inspect": "lens.inspect", "compare": "lens.compare", "ablate": "lens.interventions.ablate",
    "patch": "lens.interventions.patch", "interchange": "lens.interventions.patch",
    "export": "bridges", "save": "checkpoint",
}  # fmt: skip
FACE = OPEN | {
    "load": "refs", "load_task": "refs", "list": "face", "report": "face",
    "Model": "model", "Config": "model", "Labels": "model", "forward": "model",
    "Vocabulary": "vocabulary", "Task": "tasks", "Recipe": "training", "Training": "training",
    "Verdict": "verification", "GlassformerError": "errors",
    "program": "registry", "task": "registry", "blueprint": "registry", "view": "lens.inspect",
}  # fmt: skip
__all__ = [*(FACE.keys() - {"list"})]

registry.ROOMS |= {
    "task": (f"{__name__}.tasks",),
    "program": (f"{__name__}.programs", f"{__name__}.programs.adders"),
    "blueprint": (f"{__name__}.blueprints", f"{__name__}.programs.adders"),
    "bridge": (f"{__name__}.bridges", f"{__name__}.adderboard"),
}


def __getattr__(name: str) -> Any:
    if name not in FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{FACE[name]}"), "names" if name == "list" else name)
    if name in OPEN:
        found = import_module(f"{__name__}.face").opened(found)
    return globals().setdefault(name, found)


def __dir__() -> Iterable[str]:
    return sorted({*globals(), *FACE})
