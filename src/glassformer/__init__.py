"""Glassformer: transformers you can see through.

    >>> import glassformer as gf
    >>> model = gf.load("addition:digits=3")
    >>> gf.run(model, "123+456").output
    '0579'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import registry

if TYPE_CHECKING:
    from .checkpoint import save as save
    from .counting import count as count
    from .decoding import decode as decode
    from .errors import GlassformerError as GlassformerError
    from .lens.explain import explain as explain
    from .model import Config as Config
    from .model import Labels as Labels
    from .model import Model as Model
    from .model import forward as forward
    from .refs import load as load
    from .refs import load_task as load_task
    from .runs import run as run
    from .tap import hook_names as hook_names
    from .tap import on as on
    from .tap import record as record
    from .verification import verify as verify
    from .vocabulary import Vocabulary as Vocabulary

__version__ = "0.1.0"

# The front door: what has which name, and the room it comes from when it is first asked for.
FACE = {
    "save": "checkpoint", "count": "counting", "decode": "decoding", "GlassformerError": "errors",
    "explain": "lens.explain", "Config": "model", "Labels": "model", "Model": "model", "forward": "model",
    "load": "refs", "load_task": "refs", "run": "runs", "hook_names": "tap", "on": "tap", "record": "tap",
    "verify": "verification", "Vocabulary": "vocabulary",
}  # fmt: skip
__all__ = [*FACE]

registry.ROOMS |= {
    "task": (f"{__name__}.tasks",),
    "program": (f"{__name__}.programs", f"{__name__}.programs.adders"),
    "blueprint": (f"{__name__}.blueprints", f"{__name__}.programs.adders"),
    "bridge": (f"{__name__}.bridges", f"{__name__}.adderboard"),
}


def __getattr__(name: str) -> Any:
    if name not in FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{FACE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *FACE])
