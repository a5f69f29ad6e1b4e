"""coupled-adder: a trained adder whose positions say the column of a digit, so that length is free.

    0 rev(a) 0…0 rev(b) 0 rev(a+b)      the task digit-addition, ones first, of any number of digits

*Coupled* positions (as in Position Coupling and Abacus) number what stands in one column alike:
a_i, b_i and the token after which s_i is to be written all have the number i. Here a number i is a
point of a circle, (cos wi, sin wi), in two slots of the stream for keys and in two
others for those who ask. The zero before a number and the one after it go on counting; other zeros,
and what is written, have no such point, and are not attended to.

A score is then (S/w²)·cos w(c − i − shift): it depends only on the distance of a column from
the requested one. It is the same function of c − i whatever the length of the numbers,
up to terms of w², so what is learned from ten digits can be said of a hundred: theta has no number
of a position or a length in it. That ends where the circle does: columns that are PERIOD apart are
one and the same, and the zero above numbers of PERIOD − 1 digits looks like one below.

Trained are the width of the look (S, `sharp`), its place (`shift`), what attention writes (`out`),
the arc on which the digits lie (`size`, `step`), and an MLP of ReLU units on the three slots of it.
The form was chosen by hand: no norm, one head, the arc, positions on a circle.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ...core import backend
from ...core.backend import Array
from ...core.checkpoint import load
from ...core.model import Labels, Model
from ...parametrizations import Shapes, build_parametrization
from ...registry import Between, parametrization, program, ref_head
from ...tasks.digit_addition import DigitAddition
from ...utils.errors import GlassformerError
from .tiny import DIGITS, MIDDLE, W_IN, W_OUT, _Adder

PERIOD = 1_024  # number of columns around the circle
W_POS = "pos_embed.W_pos"
Small = Annotated[float, Between(0.0001, 100)]


@parametrization("coupled-adder")
class CoupledAdder(_Adder):
    """Digits on an arc, positions by column on a circle, ReLU units; no norm, one head of 2.

    d_model is 7. Its theta holds for numbers of any length.
    """

    constants = (MIDDLE, float(PERIOD))
    logarithms = ("size", "step", "sharp")

    def __init__(
        self, size: Small = 12.0, step: Small = 0.1, sharp: Small = 8.0, out: Small = 6.0,
        up: Small = 4.0, down: Small = 0.5,
    ) -> None:  # fmt: skip
        """Set the initial arc size, arc step and sharpness of attention.

        `out`, `up` and `down` are standard deviations of the outputs of attention and MLP.
        """
        self.size, self.step, self.sharp = size, step, sharp
        self.out, self.up, self.down = out, up, down

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        units = tuple(shapes.get(W_IN, (0, 0)))[-1]
        at = "blocks.0.attn.W_"
        must = {"embed.W_E": (DIGITS, 7), W_POS: (shapes.get(W_POS, (0,))[0], 7),
                **{at + x: (1, 7, 2) for x in "QKV"}, at + "O": (1, 2, 7),
                W_IN: (7, units), W_OUT: (units, 7)}  # fmt: skip
        if shapes != must or _digits_of_length(must[W_POS][0]) < 3:
            wanted = "one layer, d_model 7, one head of 2, learned positions, ReLU units, no norms"
            what = f"expected numbers of 3 digits or more, {wanted}, a tied head and no extras"
            raise GlassformerError(f"coupled-adder — {what}")
        ones: dict[str, tuple[int, ...]] = dict.fromkeys(("size", "step", "sharp", "shift"), (1,))
        return ones | {"out": (2,), "mlp.up": (3, units), "mlp.down": (units, 2)}

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        xp, like = backend.backend_for(theta["size"]), theta["size"]

        def given(rows: Any) -> Array:
            return xp.as_dtype_of(like, np.asarray(rows, dtype=np.float64))

        w = 2 * math.pi / PERIOD
        size, angle = xp.exp(theta["size"]), xp.exp(theta["step"]) * given(range(DIGITS))
        angle = (angle - xp.exp(theta["step"]) * MIDDLE)[:, None]  # V 1
        first, second, third, ask0, ask1, key0, key1 = np.eye(7)
        arc = xp.cos(angle) * given([first]) + xp.sin(angle) * given([second]) + given([third])
        turn, strength = w * theta["shift"], xp.exp(theta["sharp"]) / w**2
        # The key is turned forward by `shift`: the query of column i matches column i + shift best.
        K = np.eye(2)
        straight, across = (given(np.outer(key0, K[0]) + np.outer(key1, K[1])),
                            given(np.outer(key0, K[1]) - np.outer(key1, K[0])))  # fmt: skip
        arcs = given(np.eye(7)[:2])
        keys = xp.cos(turn) * straight - xp.sin(turn) * across  # D K
        up = given(np.eye(7)[:, :3]) @ theta["mlp.up"] / size  # D F
        return {
            "embed.W_E": size * arc,
            W_POS: given(position_table(shapes[W_POS][0])),
            "blocks.0.attn.W_Q": given(np.outer(ask0, K[0]) + np.outer(ask1, K[1]))[None],
            "blocks.0.attn.W_K": (strength * math.sqrt(2) * keys)[None],  # √2: softmax has 1/√2
            "blocks.0.attn.W_V": given(np.outer(second, K[0]))[None],
            "blocks.0.attn.W_O": (given(K[0])[:, None] * (theta["out"] @ arcs))[None],
            W_IN: up,
            W_OUT: size * theta["mlp.down"] @ arcs,
        }  # fmt: skip


LongerDigits = Annotated[int, Between(3, 2_000)]
TRAINED = Path(__file__).parents[2] / "trained"  # folder of the models in the package


@program("adder-coupled")
def adder_coupled(digits: LongerDigits = 100, model: str = "adder-coupled.safetensors") -> Model:
    """Extend a trained adder to numbers of another length: expand its theta for that length.

    Nothing is trained and no number is set: only the table of positions differs from the file.
    """
    here = Path(model)
    trained = load(here if here.exists() or here.name != model else TRAINED / model)
    if ref_head(trained.parametrization) != "coupled-adder":
        got = trained.parametrization or "none"
        raise GlassformerError(f"{model} — expected a coupled-adder, got the parametrization {got}")
    return extended_to(trained, digits)


def extended_to(trained: Model, digits: int) -> Model:
    """Return a trained coupled adder extended to numbers of `digits` digits."""
    task = DigitAddition(digits)
    config = replace(trained.config, n_ctx=4 * digits + 1)
    shapes = {n: tuple(w.shape) for n, w in trained.weights.items()}
    shapes[W_POS] = (config.n_ctx, shapes[W_POS][1])
    weights = build_parametrization(trained.parametrization).expand(trained.theta, shapes)
    made = {**trained.provenance, "trained on": trained.task}
    slots = {"arc": (0, 3), "asks": (3, 5), "column": (5, 7)}
    heads = {"0.0": "columns: this one by about 10, the one below by 1"}
    return replace(
        trained, config=config, weights=weights, task=task.ref, labels=Labels(slots, heads),
        provenance={k: v for k, v in made.items() if k not in ("maker", "ref")},
    )  # fmt: skip


def _digits_of_length(length: int) -> int:
    """Return the number of digits n of an example of 4n + 1 tokens; 0 for other lengths."""
    return (length - 1) // 4 if length % 4 == 1 else 0


def position_table(length: int) -> Any:
    """Return the position table [T,7] with queries of column i and keys of column c."""
    n, w = _digits_of_length(length), 2 * math.pi / PERIOD
    table = np.zeros((length, 7))
    asks = np.arange(n + 1)  # query columns of positions 3n … 4n
    table[3 * n :, 3:5] = np.stack([np.cos(w * asks), np.sin(w * asks)], 1)
    column = np.arange(-1, n + 1)  # with a zero at each end; a is at 1 … n, b at 2n … 3n−1
    for first in (0, 2 * n - 1):
        table[first : first + n + 2, 5:7] = np.stack([np.cos(w * column), np.sin(w * column)], 1)
    return table
