"""The certificate: on all texts a compiled model says what the interpreter says, rounding included.

checker.py has the induction, heads.py and neurons.py its two kinds of steps (counting_heads.py:
those that count; mlp_output_bounds.py: what neurons write), floats.py how floats round;
equivalence.py sees that the program which is compiled means what the one that was read does.
"""

from .checker import Certificate, Declaration, certify
from .equivalence import check_equivalent
from .floats import TooManyCases, Unproved

__all__ = ["Certificate", "Declaration", "TooManyCases", "Unproved", "certify", "check_equivalent"]
