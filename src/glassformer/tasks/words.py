"""Words of a text file, from which `lookup` makes a table of n-grams and `search` a vocabulary.

The built-in text `moby-dick` is chapters 1 to 3 of Herman Melville's *Moby-Dick; or, The Whale*
(1851), which is in the public domain.
"""

import re
from pathlib import Path

from ..utils.errors import GlassformerError
from ..utils.fileio import read_bytes

TEXTS = Path(__file__).parent / "texts"
BUILT_IN = {path.stem: path for path in sorted(TEXTS.glob("*.txt"))}
MAX_TEXT_BYTES, MAX_WORD_CHARS, MAX_WORDS = 4_000_000, 40, 10_000
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation.

    >>> split_words("Call me Ishmael—whale-ship’s boy.")
    ['call', 'me', 'ishmael', "whale-ship's", 'boy']
    """
    return [word.lower().replace("’", "'") for word in WORD.findall(text)]


def read_words(name: str) -> list[str]:
    """Return the words of a built-in text or of a `.txt` file."""
    path = BUILT_IN.get(name, Path(name))
    if path.suffix != ".txt":
        raise GlassformerError(f"text={name} — expected {', '.join(BUILT_IN)} or a .txt file")
    try:
        words = split_words(read_bytes(path, MAX_TEXT_BYTES).decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise GlassformerError(f"{name} — expected a text in UTF-8") from None
    if not 2 <= (n := len(set(words))) <= MAX_WORDS:
        raise GlassformerError(f"{name} — expected 2 to {MAX_WORDS:,} different words, got {n:,}")
    if longest := next((word for word in words if len(word) > MAX_WORD_CHARS), ""):
        expected = f"words of at most {MAX_WORD_CHARS} characters"
        raise GlassformerError(f"{name} — expected {expected}, got {longest[:40]!r}…")
    return words
