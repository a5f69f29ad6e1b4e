"""Maps from a few numbers (theta) to all the weights. base.py says what a parametrization is."""

from .base import Dense as Dense
from .base import Parametrization as Parametrization
from .base import Shapes as Shapes
from .base import build_parametrization as build_parametrization
