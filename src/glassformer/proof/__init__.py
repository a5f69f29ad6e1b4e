"""Proofs: is a model right on a domain of 10^20 rows? See docs/proof.md.

A proof rests on the lemmas that docs/proof.md lists, in forms.py (rounding, sums, products),
curves.py (norms and activations), tables.py (queries, keys, values), columns.py (sums over all
pairs of numbers), softmax.py (the bound on a softmax) and bounds.py (leads); and on layout.py and
checker.py. search.py looks for certificates and refute.py for counterexamples, and nothing they say
is believed unchecked. independent/ is a second checker with no code of these.

Beyond addition (beyond.py) each task has lemmas of its own: alone.py, census.py, extremes.py,
copies.py, hull.py, orders.py, residues.py. accuracy.py bounds how many inputs are right, equal.py
says whether two models are the same.
"""

from .accuracy import Accuracy as Accuracy
from .accuracy import bound_accuracy as bound_accuracy
from .checker import Checked as Checked
from .checker import check_certificate as check_certificate
from .equal import Equality as Equality
from .equal import prove_equal as prove_equal
from .requests import Certified as Certified
from .search import Proof as Proof
from .search import prove as prove
from .search import stand_by as stand_by
