"""The one exception that bad input raises, and the words that its messages share."""

import difflib
import math
import re
import reprlib
from collections.abc import Iterable
from typing import Any

LONG = 10**4_000  # whole numbers from here on are said in words: Python writes 4,300 digits
NEEDS_FIGURES = "needs Matplotlib, which is not installed: pip install 'glassformer[figures]'"
NEEDS_TORCH = "needs PyTorch, which is not installed: pip install 'glassformer[torch]'"


class GlassformerError(Exception):
    """Something the caller gave is wrong: what was being done, what was expected, what was got."""


class Several(GlassformerError):
    """All that is wrong at once, a line each."""


class Named(GlassformerError):
    """One whose message starts with the name of a program or task: nobody need put it there."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def shown(value: Any) -> str:
    """A value as a message shows it: whatever its size, in a few words on one line."""
    return re.sub(r"\s*\n\s*", " ", _short.repr(value))


def ascii_name(name: Any) -> str:
    """A name read from a file, in printable ASCII: `additi\\u043en` with a Cyrillic letter.

    Homoglyphs, zero-width and control characters would make it look like another name. Names that
    the user typed are shown as typed.
    """
    text = str(name)
    return text if text.isascii() and text.isprintable() else text.encode("unicode_escape").decode()


def did_you_mean(
    name: str, known: Iterable[str], most: int = 3, alike: float = 0.5, all: str = "there are"
) -> str:
    """The names that come near one that nothing has, or else all there are."""
    names = list(known)
    near = difflib.get_close_matches(name[:100], names, most, alike)
    return f"did you mean {' or '.join(near)}?" if near else f"{all} {', '.join(names) or 'none'}"


def no_such(
    what: str, name: str, known: Iterable[str], most: int = 2, alike: float = 0.5
) -> GlassformerError:
    """The error for a name that nothing has."""
    short = " ".join((name if len(name) <= 100 else name[:99] + "…").split())
    return GlassformerError(f"{short} — no such {what}; {did_you_mean(name, known, most, alike)}")


def in_words(n: int) -> str:
    """A whole number that is too long to be written."""
    return f"about {'-' * (n < 0)}10^{int(math.log10(abs(n)) + 1e-9)}"


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        return in_words(x) if abs(x) >= LONG else super().repr_int(x, level)


_short = _Short()
_short.maxstring = _short.maxother = _short.maxlong = 60
_short.maxlevel = 2
