"""Is it right? Counted over the whole domain, or sampled with a stated confidence."""

from .again import Rechecked as Rechecked
from .again import recheck as recheck
from .checks import Progress as Progress
from .checks import Verdict as Verdict
from .checks import check as check
from .checks import verify as verify
from .confidence import upper_bound as upper_bound
