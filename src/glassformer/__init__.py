"""Glassformer: transformers you can see through.

>>> import glassformer as gf
>>> model = gf.load("addition:digits=3")
>>> gf.run(model, "123+456").output
'0579'
"""

from __future__ import annotations

from importlib import import_module

# Nothing else is imported here, not even `typing`: a signal that arrives before the command line
# has its handlers shows a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from . import show as show
    from .doors import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted({*_names()} - {"list", "compile", "open"})  # which would hide Python's own
    if name in _names():
        return globals().setdefault(name, getattr(import_module(f"{__name__}.doors"), name))
    if name[0] != "_" and name in _modules():
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _names() -> Iterable[str]:
    from .doors import AS_THEY_ARE, OPENED

    return AS_THEY_ARE.keys() | OPENED.keys()


def _modules() -> set[str]:
    from pkgutil import iter_modules

    return {module.name for module in iter_modules(__path__)}  # noqa: F405


def __dir__() -> Iterable[str]:
    return sorted({*_names(), "show", *(name for name in globals() if name.startswith("__"))})
