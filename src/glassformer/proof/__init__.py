"""Proofs that a model is right on its whole domain, even for 10^20 inputs and more.

docs/proof.md lists the lemmas. They are in affine_arithmetic.py (rounding, sums, products),
nonlinear_bounds.py (norms and activations), qkv_bounds.py (queries, keys, values), carry_dp.py
(sums over all pairs of numbers), softmax_bounds.py (the bound on a softmax) and bounds.py
(margins). prover.py searches for certificates and counterexamples.py for counterexamples;
checker.py relies on neither of them. independent/ is a second checker without shared code.

Tasks other than addition (other_tasks.py) have separate lemmas: single_head.py,
count_failures.py, min_max.py, copy_tasks.py, hard_attention.py, ordering_tasks.py,
modular_addition.py. accuracy.py bounds how many inputs are right, equivalence.py compares two
models.
"""

from .accuracy import Accuracy as Accuracy
from .accuracy import bound_accuracy as bound_accuracy
from .checker import CertificateResult as CertificateResult
from .checker import check_certificate as check_certificate
from .equivalence import Equality as Equality
from .equivalence import prove_equal as prove_equal
from .prover import Proof as Proof
from .prover import prove as prove
from .prover import sanity_check_by_running as sanity_check_by_running
from .requests import CertificateCheck as CertificateCheck
