"""Training: from random weights to the same answers. Needs PyTorch, which is imported when
training starts.
"""

from typing import TYPE_CHECKING, Any

from .events import Event as Event
from .recipe import Recipe as Recipe
from .result import Training as Training

if TYPE_CHECKING:
    from .loop import fit as fit
    from .loop import fit_many as fit_many
    from .loop import train as train

LOOP = ("fit", "fit_many", "train")


def __getattr__(name: str) -> Any:
    if name in LOOP:
        from . import loop

        return getattr(loop, name)
    raise AttributeError(name)
