"""Figures of runs and models, and how things show themselves in a notebook.

`gf.show.attention(model, "127+458")` and its kin are one line each. Matplotlib is imported when a
figure is drawn.
"""

from .figures.curves import training_curves as training_curves
from .pictures import Picture as Picture
from .pictures import attention as attention
from .pictures import comparison as comparison
from .pictures import embeddings as embeddings
from .pictures import errors as errors
from .pictures import logits as logits
from .pictures import margin as margin
from .pictures import neurons as neurons
from .pictures import steps as steps
from .pictures import stream as stream
from .pictures import training as training
from .pictures import view as view
from .style import figure as figure
from .style import save as save
