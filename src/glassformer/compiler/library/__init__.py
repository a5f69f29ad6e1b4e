"""The library: the programs that RASP-like compilers are measured by, as sources of a few lines.

One file a program. It begins with a sentence and an example, and the line `canon:` says where the
program comes from; what could not be had is in REFUSALS, with the reason.
"""

import ast
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...utils.errors import GlassformerError, unknown_name_error
from ...utils.fileio import read_text

if TYPE_CHECKING:
    from ..ir import Program

LIBRARY_DIR = Path(__file__).parent
LIBRARY_PREFIX, SOURCE_SUFFIX = "lang/", ".glass"  # how the names of sources begin, or end
MAX_SOURCE_BYTES = (
    400_000  # of a file: UTF-8 has at most four for each character that a source may have
)


def source_paths() -> dict[str, Path]:
    """The sources by name."""
    return dict(sorted((path.stem, path) for path in LIBRARY_DIR.glob("*.glass")))


def source_text(name: str) -> str:
    """The text of a source by its name without options: lang/sort, or the path of a .glass file."""
    known = source_paths()
    if name.startswith(LIBRARY_PREFIX) and not name.endswith(SOURCE_SUFFIX):
        if (own := name.removeprefix(LIBRARY_PREFIX)) not in known:
            raise unknown_name_error(
                "source of the library", name, [LIBRARY_PREFIX + n for n in known], 3
            )
        return known[own].read_text("utf-8")
    try:
        return read_text(name, MAX_SOURCE_BYTES)
    except GlassformerError as e:
        own = os.path.basename(name).removesuffix(SOURCE_SUFFIX)
        hint = f"; {LIBRARY_PREFIX}{own} comes with the package" if own in known else ""
        raise GlassformerError(f"{e}{hint}") from None


def load(name: str, options: Mapping[str, Any] | None = None) -> "Program":
    """The program that a source of the library describes."""
    from ..frontend.parser import read

    known = source_paths()
    if name not in known:
        raise unknown_name_error("source of the library", name, known)
    return read(known[name].read_text("utf-8"), name, options)


def describe(name: str) -> str:
    """What a source does, in a sentence with an example."""
    text = ast.get_docstring(ast.parse(source_paths()[name].read_text("utf-8"))) or ""
    return " ".join(text.split("canon:")[0].split())
