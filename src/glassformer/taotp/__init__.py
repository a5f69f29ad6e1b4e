"""The booklet's text language (chapter 8): a transformer program as a text of numbers.

    >>> from glassformer import taotp
    >>> model = taotp.parse('tokens: "ab"  block_size: 4  tok_emb: [[1 -1] [-1 1]]')
    >>> print(model.vocabulary.decode(model([0, 1]).argmax(-1)))
    ab

The booklet's dicts are programs as they stand. Beyond them: keys without quotes, comments, commas
as you like, defaults for whatever is left out, `eye(3) * 1e6`, `sparse(…)`, `ring(8)` and
`shift(-1 8)`, variables, blocks, and names for tokens, slots, heads and neurons: enough to write a
head that looks back by hand. `write` says any Model in it. docs/taotp.md is the reference.
"""

import codecs
from pathlib import Path

from ..core.model import Model
from ..utils.errors import GlassformerError
from ..utils.fileio import os_error_text, read_bytes
from .build import ModelBuilder
from .syntax import TextParser
from .values import MAX_TEXT
from .write import write

__all__ = ["examples", "parse", "read", "write"]

EXAMPLES = Path(__file__).parents[1] / "programs" / "text"


def parse(text: str, name: str = "program.taotp") -> Model:
    """The Model that a text describes; `name` stands before the line number in errors."""
    parser = TextParser(text, name)
    return ModelBuilder(parser.source, parser.program()).model()


def read(path: str | Path) -> Model:
    """The Model in a file. A bare name may be one of the programs of the package."""
    file = Path(path)
    try:
        if not file.exists() and file.name == str(path) and (EXAMPLES / file.name).is_file():
            file = EXAMPLES / file.name
        data = read_bytes(file)
    except (GlassformerError, OSError, ValueError) as error:
        said = os_error_text(error).removeprefix(f"{path} — cannot be read: ")
        others = f"{', '.join(examples())} come with the package"
        raise GlassformerError(f"{path} — cannot be read: {said}; {others}") from None
    if len(data) > 4 * MAX_TEXT:  # UTF-8 has at most four bytes a character
        raise GlassformerError(f"{path} — a program has at most {MAX_TEXT:,} characters")
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        what = f"expected UTF-8 text, got the byte 0x{byte:02x}"
        raise GlassformerError(f"{path}:{line} — {what}") from None
    return parse(text, str(path))


def examples() -> list[str]:
    """The text programs that come with the package; `read` takes their names."""
    return sorted(file.name for file in EXAMPLES.glob("*.taotp"))
