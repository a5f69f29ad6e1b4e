"""The certificate: on all texts a compiled model says what the interpreter says, rounding included.

checker.py has the induction, heads.py and neurons.py its two kinds of steps (tallies.py: those that
count; written.py: what neurons write), floats.py how floats round; same.py sees that the program
which is compiled means what the one that was read does.
"""

from .checker import Certificate, Declaration, certify
from .floats import TooMany, Unproved
from .same import same

__all__ = ["Certificate", "Declaration", "TooMany", "Unproved", "certify", "same"]
