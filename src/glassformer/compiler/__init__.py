"""The compiler: translate a short source into a transformer with a proof of its correctness."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .driver import Compiled, compile, recheck
    from .frontend.parser import read
    from .interpreter import emitted, run, trace
    from .ir import Program

__all__ = ["Compiled", "Program", "compile", "emitted", "read", "recheck", "run", "trace"]
_MODULES = {
    "Compiled": "driver", "Program": "ir", "compile": "driver", "emitted": "interpreter",
    "read": "frontend.parser", "recheck": "driver", "run": "interpreter", "trace": "interpreter",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import on first use, because finding a source by name needs no compiler."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(f".{_MODULES[name]}", __name__), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
