"""The elements of a domain: integers, fractions, strings, True, False, `nothing`, and tuples."""

from fractions import Fraction
from typing import Any

import numpy as np

from ..utils.errors import short_repr

Element = Any  # int, Fraction, str, bool, None or a tuple of these


def is_number(element: Element) -> bool:
    return isinstance(element, (int, Fraction, np.integer)) and not isinstance(element, bool)


def type_exact_key(element: Element) -> Any:
    """Return a key that distinguishes True from 1, which are equal in Python."""
    if isinstance(element, tuple):
        return tuple(map(type_exact_key, element))
    return type(element) is bool, element


def format_element(element: Element) -> str:
    """Format an element in the syntax of the source language."""
    if element is None:
        return "nothing"
    return str(element) if is_number(element) else short_repr(element)
