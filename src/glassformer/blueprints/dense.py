"""Every weight is its own number."""

from ..registry import blueprint
from .base import Blueprint


@blueprint("dense")
class Dense(Blueprint):
    """Every weight is its own number."""
