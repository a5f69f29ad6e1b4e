"""Parametrizations: maps from a few numbers (theta) to all weights. base.py has the base class."""

from .base import Dense as Dense
from .base import Parametrization as Parametrization
from .base import Shapes as Shapes
from .base import build_parametrization as build_parametrization
