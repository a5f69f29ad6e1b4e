"""Verification of a model by running it on a whole domain or on a random sample."""

from .counts import upper_bound as upper_bound
from .verdict import RecheckResult as RecheckResult
from .verdict import Verdict as Verdict
from .verifier import Progress as Progress
from .verifier import recheck as recheck
from .verifier import verify as verify
from .verifier import verify_events as verify_events
