"""`min` and `max`: the smallest or largest number so far; three numbers a token (chapter 5)."""

from typing import Annotated, Any, Literal

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..core.vocabulary import Vocabulary
from ..craft import Floats, circle, ring
from ..registry import Between, program
from ..tasks.extremes import Numbers
from ..utils.errors import GlassformerError

Block = Annotated[int, Between(0, 3_000_000)]
Variant = Literal["wide", "book"]
BOOK_LIMIT = 1_200  # maximum vocabulary of variant=book
FLOAT32_LIMITS = {"wide": 2_000, "book": 1_000}


def _float32(options: dict[str, Any]) -> str:
    limit = FLOAT32_LIMITS[options["variant"]]
    why = f"neighbours round to one logit beyond {limit:,} numbers"
    return why if options["vocab"] > limit else ""


@program("min", float32=_float32)
def minimum(vocab: Numbers = 1000, block: Block = 0, variant: Variant = "wide") -> Model:
    """The smallest number read so far; `block` 0: as many as there are numbers."""
    return extreme("min", vocab, block, variant)


@program("max", float32=_float32)
def maximum(vocab: Numbers = 1000, block: Block = 0, variant: Variant = "wide") -> Model:
    """The largest number read so far; `block` 0: as many as there are numbers."""
    return extreme("max", vocab, block, variant)


def extreme(name: str, vocab: int, block: int, variant: str) -> Model:
    if variant == "wide":
        return wide_extreme(name, vocab, block)
    if vocab > BOOK_LIMIT:
        most = f"{BOOK_LIMIT:,} if variant=book"
        raise GlassformerError(f"vocab must be at most {most}, got {vocab:,}")
    return book_extreme(name, vocab, block)


def wide_extreme(name: str, vocab: int, block: int = 0) -> Model:
    points = circle(np.pi * np.linspace(0.1, 0.9, vocab))  # V D
    config = Config(vocab, block or vocab, 3, d_head=3, positions="none", tied=True, eps=0.0)
    return _finish(name, config, zeros(config), points, hard=1e12, loud=1e10)


def book_extreme(name: str, vocab: int, block: int = 0) -> Model:
    """Return the booklet's construction for any vocabulary size.

    It has zero positions and an empty MLP with zero bias.
    """
    config = Config(vocab, block or vocab, 3, d_head=3, tied=True, eps=0.0, activation="relu")
    points = ring(vocab + 1, points_per_turn=2 * vocab + 2)[1:]  # V D
    w = zeros(config, "mlp", "mlp.b_out")
    return _finish(name, config, w, points, hard=1e8, loud=1e6)


def _finish(
    name: str, config: Config, w: dict[str, Floats], points: Floats, hard: float, loud: float
) -> Model:
    up, right = ring(1, phase=np.pi / 2)[0], ring(1)[0]
    w["embed.W_E"] = points
    w["blocks.0.attn.W_Q"][0, :, 0] = up * hard
    w["blocks.0.attn.W_K"][0, :, 0] = right if name == "min" else -right
    w["blocks.0.attn.W_V"][0] = np.eye(3)
    w["blocks.0.attn.W_O"][0] = np.eye(3) * loud
    which = "smallest" if name == "min" else "largest"
    labels = Labels({"number": (0, 3)}, {"0.0": f"reads the {which} number"})
    task = f"{name}:vocab={config.d_vocab},length={min(5, config.n_ctx)}"
    return Model(config, w, Vocabulary.numbers(config.d_vocab), task, labels)
