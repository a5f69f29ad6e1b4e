"""The certificate: a compiled model emits what the interpreter does, on all texts."""

from .checker import Certificate, Declaration, certify
from .equivalence import check_equivalent
from .floats import TooManyCases, Unproved

__all__ = ["Certificate", "Declaration", "TooManyCases", "Unproved", "certify", "check_equivalent"]
