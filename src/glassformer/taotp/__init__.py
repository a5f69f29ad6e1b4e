"""The text language of the booklet "The Art of Transformer Programming", chapter 8.

    >>> from glassformer import taotp
    >>> model = taotp.parse('tokens: "ab"  block_size: 4  tok_emb: [[1 -1] [-1 1]]')
    >>> print(model.vocabulary.decode(model([0, 1]).argmax(-1)))
    ab

A program lists the numbers of a transformer. The booklet's dicts are programs. Extensions: keys
without quotes, comments, optional commas, defaults for missing entries, `eye(3) * 1e6`,
`sparse(…)`, `ring(8)`, `shift(-1 8)`, variables, blocks, and names for tokens, slots, heads and
neurons. `write` converts any Model to this language; docs/taotp.md is the reference.

The booklet's names are here, too (`taotp.pos_enc_3d`): see booklet.py and docs/booklet-names.md.
"""

import codecs
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.model import Model
from ..utils.errors import GlassformerError, value_error
from ..utils.fileio import os_error_text, read_bytes
from .booklet_names import NAMES
from .build import ModelBuilder
from .params import from_params, to_params
from .syntax import TextParser
from .values import BAD_SOURCE, MAX_TEXT
from .write import write

if TYPE_CHECKING:
    from .booklet import *  # noqa: F403
else:

    def __getattr__(name):
        """Return a name of the booklet. The module is imported at the first use of one."""
        if name not in NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(".booklet", __name__), name)


__all__ = ["examples", "from_params", "parse", "read", "to_params", "write"]

EXAMPLES = Path(__file__).parents[1] / "programs" / "text"


def parse(text: str, name: str = "program.taotp") -> Model:
    """Return the Model that a program in the text language defines.

    Args:
        text: Source of the program.
        name: Name of the program in error messages, before line and column.

    Raises:
        GlassformerError: With code `bad_source` and one line for each error.
    """
    if not isinstance(text, str):
        raise value_error(name, "a text; from_params(…) reads a dict", text, code=BAD_SOURCE)
    parser = TextParser(text, name)
    return ModelBuilder(parser.source, parser.program()).model()


def read(path: str | Path) -> Model:
    """Return the Model in a file, or in an example of the package with that name.

    Args:
        path: Path of the file, or name of an example.

    Raises:
        GlassformerError: If the file cannot be read, or its program has errors.
    """
    file = Path(path)
    try:
        if not file.exists() and file.name == str(path) and (EXAMPLES / file.name).is_file():
            file = EXAMPLES / file.name
        data = read_bytes(file)
    except (GlassformerError, OSError, ValueError) as error:
        reason = os_error_text(error).removeprefix(f"{path} — cannot be read: ")
        hint = f"{', '.join(examples())} come with the package"
        raise GlassformerError(f"{path} — cannot be read: {reason}; {hint}") from None
    if len(data) > 4 * MAX_TEXT:  # UTF-8 takes at most 4 bytes for a character
        expected = f"expected at most {MAX_TEXT:,} characters"
        raise GlassformerError(f"{path} — {expected}, got more", code=BAD_SOURCE)
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        message = f"{path}:{line} — expected UTF-8 text, got the byte 0x{byte:02x}"
        raise GlassformerError(message, code=BAD_SOURCE) from None
    return parse(text, str(path))


def examples() -> list[str]:
    """Return the file names of the example programs in the package, for `read`."""
    return sorted(file.name for file in EXAMPLES.glob("*.taotp"))
