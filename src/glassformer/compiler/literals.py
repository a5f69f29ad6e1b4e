"""What a value can be: whole numbers, fractions, texts, True, False, `nothing`, tuples of these."""

from fractions import Fraction
from typing import Any

import numpy as np

from ..utils.errors import short_repr

Element = Any  # int, Fraction, str, bool, None or a tuple of these


def is_number(thing: Element) -> bool:
    return isinstance(thing, (int, Fraction, np.integer)) and not isinstance(thing, bool)


def type_exact_key(thing: Element) -> Any:
    """A key that tells True from 1, which Python holds to be equal."""
    return (
        tuple(map(type_exact_key, thing))
        if isinstance(thing, tuple)
        else (type(thing) is bool, thing)
    )


def format_element(thing: Element) -> str:
    """A thing as a message shows it, in the language's own words."""
    return "nothing" if thing is None else str(thing) if is_number(thing) else short_repr(thing)
