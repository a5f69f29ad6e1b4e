"""The one exception that bad input raises."""

import reprlib
from typing import Any


class GlassformerError(Exception):
    """Something the caller gave is wrong: what was being done, what was expected, what was got."""


def shown(value: Any) -> str:
    """A value as a message shows it: whatever its size, in a few words."""
    return _short.repr(value)


_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60
_short.maxlevel = 2
