"""Bridges to and from other people's tools, each with a parity measured by the real library."""

from .common import Bridge as Bridge
from .common import Exported as Exported
from .common import export as export
from .common import find as find
from .common import names as names
from .parity import float32_reason as float32_reason
