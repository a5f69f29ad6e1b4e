"""The sequence language: a few lines say what comes next, and are compiled into a transformer that
is proved to do it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .driver import Compiled, compile, recheck
    from .frontend.parser import read
    from .interpreter import emitted, run, trace
    from .ir import Program

__all__ = ["Compiled", "Program", "compile", "emitted", "read", "recheck", "run", "trace"]
_MODULES = {
    "Compiled": "driver", "compile": "driver", "recheck": "driver", "emitted": "interpreter",
    "run": "interpreter", "trace": "interpreter", "read": "frontend.parser", "Program": "ir",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Imported when first used: who looks for the name of a source needs no compiler."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(f".{_MODULES[name]}", __name__), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
