"""Matplotlib figures, public as `gf.show`. Matplotlib is imported when a figure is drawn."""

from .api import Picture as Picture
from .api import attention as attention
from .api import comparison as comparison
from .api import embeddings as embeddings
from .api import errors as errors
from .api import heads as heads
from .api import logits as logits
from .api import margin as margin
from .api import matrix as matrix
from .api import neurons as neurons
from .api import steps as steps
from .api import stream as stream
from .api import training as training
from .api import view as view
from .figures.curves import training_curves as training_curves
from .style import figure as figure
from .style import save as save
