"""Training of models with PyTorch, which is imported when a run starts."""

from typing import TYPE_CHECKING, Any

from .events import Event as Event
from .recipe import Recipe as Recipe
from .result import Training as Training

if TYPE_CHECKING:
    from .api import fit as fit
    from .api import fit_many as fit_many
    from .api import train as train


def __getattr__(name: str) -> Any:
    if name not in ("fit", "fit_many", "train"):
        raise AttributeError(name)
    from . import api

    return getattr(api, name)
