"""Import from and export to other libraries. Each export is checked with the other library."""

from .common import Bridge as Bridge
from .common import ExportResult as ExportResult
from .common import bridge_names as bridge_names
from .common import export_checked as export_checked
from .common import find_bridge as find_bridge
from .parity import float32_problem as float32_problem
