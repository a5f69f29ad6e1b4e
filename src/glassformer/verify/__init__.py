"""Is it right? Counted over the whole domain where that can be enumerated, sampled with a stated confidence beyond."""

from .check import Progress as Progress
from .check import Verdict as Verdict
from .check import check as check
from .check import verify as verify
from .confidence import upper_bound as upper_bound
