"""Bridges: models to and from other people's tools, each with a parity line measured by the real library."""

from .common import BRIDGES as BRIDGES
from .common import Bridge as Bridge
from .common import Exported as Exported
from .common import bridge as bridge
from .common import export as export
from .common import float32_reason as float32_reason
from .common import test_batch as test_batch
