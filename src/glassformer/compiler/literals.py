"""What a value can be: whole numbers, fractions, texts, True, False, `nothing`, tuples of these."""

from fractions import Fraction
from typing import Any

import numpy as np

from ..utils.errors import shown

Thing = Any  # int, Fraction, str, bool, None or a tuple of these


def is_number(thing: Thing) -> bool:
    return isinstance(thing, (int, Fraction, np.integer)) and not isinstance(thing, bool)


def exact(thing: Thing) -> Any:
    """A key that tells True from 1, which Python holds to be equal."""
    return tuple(map(exact, thing)) if isinstance(thing, tuple) else (type(thing) is bool, thing)


def spelled(thing: Thing) -> str:
    """A thing as a message shows it, in the language's own words."""
    return "nothing" if thing is None else str(thing) if is_number(thing) else shown(thing)
