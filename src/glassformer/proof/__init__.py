"""Proofs: is a model right on a domain of 10^20 rows? See docs/proof.md.

layout.py, forms.py, tables.py, columns.py, bounds.py and checker.py are what a proof rests on. proof.py searches for
certificates and refute.py for counterexamples, and nothing they say is believed unchecked. second.py and balls.py are
a second checker, which shares no code with all these.
"""

from .checker import Checked as Checked
from .checker import check_certificate as check_certificate
from .search import Proof as Proof
from .search import prove as prove
from .search import stand_by as stand_by
