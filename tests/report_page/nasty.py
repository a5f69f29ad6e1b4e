"""A model with markup in all its texts."""

from dataclasses import replace

from glassformer import Model, Vocabulary
from glassformer.core.model import Labels
from helpers import random_model

NASTY = ["<script>hacked=1</script>", "</script><script>hacked=1</script>",
    "<img src=x onerror=hacked=1>", "<b>",
         "&lt;", "{{data}}", '" onmouseover="hacked=1', "%{x}", "\n", " ", "\u2028",
         "\u202e"]  # fmt: skip


def nasty_model() -> Model:
    """Return a model with markup in tokens, labels and provenance."""
    model = random_model(d_vocab=len(NASTY), n_heads=2)
    names = dict(zip(("0.0", "0.1", "1.0", "1.1"), NASTY, strict=False))
    return replace(model, vocabulary=Vocabulary(NASTY, sep="|"), labels=Labels({NASTY[0]: (0, 2)},
    names),
                   provenance={"maker": NASTY[1], "by": NASTY[2]})  # fmt: skip
