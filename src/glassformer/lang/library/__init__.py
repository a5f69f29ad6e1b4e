"""The library: the programs that RASP-like compilers are measured by, as sources of a few lines.

One file a program. It begins with a sentence and an example, and the line `canon:` says where the
program comes from; what could not be had is in REFUSALS, with the reason.
"""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import no_such

if TYPE_CHECKING:
    from ..values import Program

HERE = Path(__file__).parent


def sources() -> dict[str, Path]:
    """The sources by name."""
    return dict(sorted((path.stem, path) for path in HERE.glob("*.glass")))


def load(name: str, options: Mapping[str, Any] | None = None) -> "Program":
    """The program that a source of the library describes."""
    from ..source import read

    known = sources()
    if name not in known:
        raise no_such("source of the library", name, known)
    return read(known[name].read_text("utf-8"), name, options)


def about(name: str) -> str:
    """What a source does, in a sentence with an example."""
    text = ast.get_docstring(ast.parse(sources()[name].read_text("utf-8"))) or ""
    return " ".join(text.split("canon:")[0].split())
