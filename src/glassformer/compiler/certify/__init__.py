"""The certificate: a proof that a compiled model emits the interpreter's output on all inputs."""

from .checker import Certificate, Declaration, certify
from .equivalence import check_equivalent
from .floats import TooManyCases, Unproved

__all__ = ["Certificate", "Declaration", "TooManyCases", "Unproved", "certify", "check_equivalent"]
