"""The library: the programs that RASP-like compilers are measured by, as sources of a few lines.

One file a program. It begins with a sentence and an example, and the line `canon:` says where the
program comes from; what could not be had is in REFUSALS, with the reason.
"""

import ast
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...utils.errors import GlassformerError, no_such
from ...utils.fileio import read_text

if TYPE_CHECKING:
    from ..ir import Program

HERE = Path(__file__).parent
LIBRARY, FILE = "lang/", ".glass"  # how the names of sources begin, or end
BYTES = 400_000  # of a file: UTF-8 has at most four for each character that a source may have


def sources() -> dict[str, Path]:
    """The sources by name."""
    return dict(sorted((path.stem, path) for path in HERE.glob("*.glass")))


def source_text(name: str) -> str:
    """The text of a source by its name without options: lang/sort, or the path of a .glass file."""
    known = sources()
    if name.startswith(LIBRARY) and not name.endswith(FILE):
        if (own := name.removeprefix(LIBRARY)) not in known:
            raise no_such("source of the library", name, [LIBRARY + n for n in known], 3)
        return known[own].read_text("utf-8")
    try:
        return read_text(name, BYTES)
    except GlassformerError as e:
        own = os.path.basename(name).removesuffix(FILE)
        hint = f"; {LIBRARY}{own} comes with the package" if own in known else ""
        raise GlassformerError(f"{e}{hint}") from None


def load(name: str, options: Mapping[str, Any] | None = None) -> "Program":
    """The program that a source of the library describes."""
    from ..frontend.parser import read

    known = sources()
    if name not in known:
        raise no_such("source of the library", name, known)
    return read(known[name].read_text("utf-8"), name, options)


def about(name: str) -> str:
    """What a source does, in a sentence with an example."""
    text = ast.get_docstring(ast.parse(sources()[name].read_text("utf-8"))) or ""
    return " ".join(text.split("canon:")[0].split())
