"""Draw the twelve heads of docs/gallery.md: python docs/figures/twelve_heads.py

The model, three layers of four heads, is too large to come with the package. The attention
of its heads is stored with the claims about it (published_claims), with the command that trained
it.
"""

import numpy as np
from current import put

from glassformer.plotting import style
from glassformer.plotting.figures import attention
from glassformer.published_claims.modular import head_records

PLACES = ("a", "+", "b", "=")

style.DPI = 100
shares = np.array(
    [[head["looks_at"].get(place, 0.0) for place in PLACES] for head in head_records()]
)
put(
    attention.attention_bars({"all 12,769 pairs": shares.reshape(3, 4, len(PLACES))}, PLACES),
    "gallery/twelve-heads.png",
)
