"""The library of sources: programs from the literature on RASP-like compilers.

Each file starts with a one-sentence description and an example. Its line `canon:` gives the origin
of the program. REFUSALS lists the programs that cannot be expressed, with the reason.
"""

import ast
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...registry import LIBRARY_PREFIX, SOURCE_SUFFIX
from ...utils.errors import GlassformerError, unknown_name_error
from ...utils.fileio import read_text

if TYPE_CHECKING:
    from ..ir import Program

LIBRARY_DIR = Path(__file__).parent
MAX_SOURCE_BYTES = 400_000  # UTF-8 takes at most 4 bytes for each of 100,000 characters


def source_paths() -> dict[str, Path]:
    """Return the files of the library, by name."""
    return dict(sorted((path.stem, path) for path in LIBRARY_DIR.glob("*.glass")))


def source_text(name: str) -> str:
    """Read a source by its name without options: lang/sort, or the path of a .glass file."""
    paths = source_paths()
    if name.startswith(LIBRARY_PREFIX) and not name.endswith(SOURCE_SUFFIX):
        if (stem := name.removeprefix(LIBRARY_PREFIX)) not in paths:
            known = [LIBRARY_PREFIX + n for n in paths]
            raise unknown_name_error("source of the library", name, known, 3)
        return paths[stem].read_text("utf-8")
    try:
        return read_text(name, MAX_SOURCE_BYTES)
    except GlassformerError as e:
        stem = os.path.basename(name).removesuffix(SOURCE_SUFFIX)
        hint = f"; {LIBRARY_PREFIX}{stem} comes with the package" if stem in paths else ""
        raise GlassformerError(f"{e}{hint}") from None


def load(name: str, options: Mapping[str, Any] | None = None) -> "Program":
    """Read the program of a source in the library."""
    from ..frontend.parser import read

    paths = source_paths()
    if name not in paths:
        raise unknown_name_error("source of the library", name, paths)
    return read(paths[name].read_text("utf-8"), name, options)


def describe(name: str) -> str:
    """Return the first sentence of a source, with its example."""
    text = ast.get_docstring(ast.parse(source_paths()[name].read_text("utf-8"))) or ""
    return " ".join(text.split("canon:")[0].split())
