"""Repeating the last token forever: exercises 2.1 and 2.2."""

from typing import Any, Literal

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..craft import Floats, Layout, ring
from ..registry import program
from ..tasks.message import RepeatLast, Vocab
from ..utils.errors import GlassformerError

BLOCK_ROWS = 1_000  # The model has no positions. Longer decoding slides.
MAX_SPARSE_VOCAB = 4_000  # The embedding has vocab²/2 entries.
MAX_FLOAT32_VOCAB = 5_000  # On the ring, logits of neighbors differ by 59/vocab²; rounding is 2e-7.


def sign_codes(n: int) -> Floats:
    """Return n distinct rows with a single ±1 each, [n, max(3, n/2)]."""
    code = np.zeros((n, max(3, (n + 1) // 2)))
    i = np.arange(n)
    code[i, i // 2] = 1 - 2 * (i % 2)
    return code


def _float32(options: dict[str, Any]) -> str:
    if options["variant"] == "ring" and options["vocab"] > MAX_FLOAT32_VOCAB:
        return f"beyond a vocabulary of {MAX_FLOAT32_VOCAB:,} the points of the ring are too close"
    return ""


@program("repeat-last", float32=_float32)
def repeat_last(vocab: Vocab = 10, variant: Literal["ring", "sparse"] = "ring") -> Model:
    """The last token again and again, without layers."""
    if variant == "sparse" and vocab > MAX_SPARSE_VOCAB:
        raise GlassformerError(
            f"sparse — vocab must be at most {MAX_SPARSE_VOCAB:,}, got {vocab:,}"
        )
    code = ring(vocab) if variant == "ring" else sign_codes(vocab)
    task = RepeatLast(vocab=vocab)
    config = Config(vocab, BLOCK_ROWS, code.shape[1], n_layers=0, positions="none", tied=True)
    w = zeros(config)
    w["embed.W_E"][:] = code
    return Model(config, w, task.vocabulary, task.ref, Labels(Layout(token=code.shape[1]).slots))
