"""Draw the twelve heads of docs/gallery.md: python docs/figures/twelve_heads.py

The model, three layers of four heads, is too large to come with the package. The attention of its
heads is stored with the claims about such models (published_claims), one line per run; this is the
first. Other seeds divide the work differently.
"""

import numpy as np
from current import put

from glassformer.plotting import style
from glassformer.plotting.figures import attention
from glassformer.published_claims.over_seeds import read_runs

PLACES = ("a", "+", "b", "=")

style.DPI = 100
shares = np.array(read_runs("report")[0]["attention"])  # L H, over a + b =
put(
    attention.attention_bars({"all 12,769 pairs": shares}, PLACES),
    "gallery/twelve-heads.png",
)
