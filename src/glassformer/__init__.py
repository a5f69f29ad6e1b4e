"""Glassformer: transformers you can see through.

>>> import glassformer as gf
>>> model = gf.load("addition:digits=3")
>>> gf.run(model, "123+456").output
'0579'
"""

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from . import finding, registry

if TYPE_CHECKING:
    from . import show as show
    from .doors import *  # noqa: F403

__version__ = "0.1.0"

registry.ROOMS |= {
    "task": (f"{__name__}.tasks",),
    "program": (f"{__name__}.programs", f"{__name__}.programs.adders"),
    "blueprint": (f"{__name__}.blueprints", f"{__name__}.programs.adders"),
    "bridge": (f"{__name__}.bridges", f"{__name__}.adderboard"),
}

finding.PAINTER[:] = [f"{__name__}.show.html"]

_ROOMS = {module.name for module in iter_modules(__path__)}  # noqa: F405


def __getattr__(name: str) -> Any:
    if name in _ROOMS and name[0] != "_":  # never called as a thing is
        return import_module(f"{__name__}.{name}")
    if name == "__all__":
        return sorted({*_names()} - {"list", "compile", "open"})  # which would hide Python's own
    if name not in _names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(f"{__name__}.doors"), name))


def _names() -> Iterable[str]:
    from .doors import AS_THEY_ARE, OPENED

    return AS_THEY_ARE.keys() | OPENED.keys()


def __dir__() -> Iterable[str]:
    return sorted({*_names(), "show", *(name for name in globals() if name.startswith("__"))})
