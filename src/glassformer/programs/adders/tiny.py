"""Tiny adders as parametrizations: transformers for `digit-addition` made of a few trained numbers.

The forms were found on paper, and the seeds of those that are shipped were
chosen. What is fixed here is made of 0, ±1, the digits' own numbers and their middle, 4½; all else
is theta. Common to both:

- Digits lie on an arc: digit d is (cos x, sin x, 1) with x = step·(d − 4½). The head is the
  embedding, so the answer is the digit whose angle is nearest. The third axis is the constant that
  a bias would be.
- Queries and keys read the constant alone, so a score depends on the distance between two tokens
  and on nothing else: A·cos(w·distance − turn), with w the second frequency of the rotary
  positions. With a period of 19, the two digits of a column (10 and 29 tokens back, in this format)
  weigh the same, in every column.
- Values read the second axis, which is nearly linear in the digit.

Norms would hide the scale of the stream, and any rotation of it can be undone: writing the
embedding as above takes nothing away but the numbers that such symmetries waste.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np

from ...core import backend
from ...core.backend import Array
from ...parametrizations import Parametrization, Shapes
from ...registry import Between, parametrization
from ...utils.errors import GlassformerError

DIGITS, MIDDLE = 10, 4.5  # number of digits and the mean digit
W_IN, W_GATE, W_OUT = (f"blocks.0.mlp.{name}" for name in ("W_in", "W_gate", "W_out"))
FINAL_GAIN = "ln_final.w"
HEAD = {
    "embed.W_E": (DIGITS, 3), "blocks.0.attn.W_Q": (1, 3, 4), "blocks.0.attn.W_K": (1, 3, 4),
    "blocks.0.attn.W_V": (1, 3, 4), "blocks.0.attn.W_O": (1, 4, 3),
}  # fmt: skip
QK_GAINS = {"blocks.0.attn.q_norm.w": (4,), "blocks.0.attn.k_norm.w": (4,)}
Small = Annotated[float, Between(0.0001, 100)]


class _Adder(Parametrization):
    """Base class of the two tiny adders, with the array axes and the head."""

    random_init = True
    constants: tuple[float, ...] = (MIDDLE,)
    logarithms: tuple[str, ...] = ()  # positive options; theta stores their logarithms

    def init_theta(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """Draw a random theta. Only the shapes of the weights are used."""
        theta = self.theta_shapes({name: tuple(w.shape) for name, w in weights.items()})
        return {name: self.draw(name, shape, rng) for name, shape in theta.items()}

    def draw(self, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        if name in self.logarithms:
            return np.full(shape, np.log(getattr(self, name)))
        if widest := {"turn": np.pi, "shift": 0.5}.get(name):
            return rng.uniform(-widest, widest, shape)
        return rng.normal(size=shape) * getattr(self, name.replace("mlp.", ""), 1.0)

    def head(
        self, step: Array, turn: Array, size: Array, gain: Array, out: Array
    ) -> dict[str, Array]:
        """Return the arrays of the embedding and the head.

        `size` scales the embedding, `gain` scales q and k, and `out` [D] is the output.
        """
        xp = backend.backend_for(step)
        angle = (step * xp.as_dtype_of(step, np.arange(DIGITS) - MIDDLE))[:, None]  # V 1
        first, second, third = (xp.as_dtype_of(step, axis)[:, None] for axis in np.eye(3))  # D 1
        # Shape K: the pair that turns with the second frequency.
        slot, other = (xp.as_dtype_of(step, np.eye(4)[i]) for i in (1, 3))
        key = xp.cos(turn) * slot + xp.sin(turn) * other
        arc = xp.cos(angle) * first.T + xp.sin(angle) * second.T + third.T  # V D
        return {
            "embed.W_E": size * arc,
            "blocks.0.attn.W_Q": (third * slot * gain)[None],  # H D K
            "blocks.0.attn.W_K": (third * key * gain)[None],
            "blocks.0.attn.W_V": (second * slot)[None],
            "blocks.0.attn.W_O": (slot[:, None] * out)[None],  # H K D
        }


@parametrization("arc-adder")
class ArcAdder(_Adder):
    """Digits on an arc, a head that depends on distance, any MLP; RMSNorm, d_model 3, QK-norm."""

    def __init__(
        self, step: Small = 0.1, gain: Small = 4.0, sharp: Small = 5.0, out: Small = 6.0,
        down: Small = 2.0,
    ) -> None:  # fmt: skip
        """Set the initial arc step, gain of q and k, and log of the last norm's gain.

        `out` and `down` are standard deviations of the outputs of attention and MLP.
        """
        self.step, self.gain, self.sharp, self.out, self.down = step, gain, sharp, out, down

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        must = HEAD | QK_GAINS | {FINAL_GAIN: (3,), W_IN: (3, shapes.get(W_IN, (0, 0))[1])}
        wanted = "RMSNorm, QK-norm and the extras qk and final"
        _check("arc-adder", shapes, must, {W_GATE, W_OUT}, wanted)
        mlp = {"mlp.up": W_IN, "mlp.gate": W_GATE, "mlp.down": W_OUT}
        ones: dict[str, tuple[int, ...]] = dict.fromkeys(("step", "turn", "gain", "sharp"), (1,))
        return ones | {"out": (3,)} | {n: shapes[w] for n, w in mlp.items() if w in shapes}

    def draw(self, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        if name == "step":
            return self.step * rng.uniform(0.7, 1.3, shape)
        if name in ("gain", "sharp"):
            return np.full(shape, getattr(self, name))
        return super().draw(name, shape, rng)

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        step = theta["step"]
        xp = backend.backend_for(step)
        one = xp.as_dtype_of(step, np.ones(1))
        weights = self.head(step, theta["turn"], one, one, theta["out"])
        weights |= dict.fromkeys(QK_GAINS, theta["gain"] * xp.as_dtype_of(step, np.ones(4)))
        weights |= {W_IN: theta["mlp.up"], W_OUT: theta["mlp.down"]}
        weights[FINAL_GAIN] = xp.exp(theta["sharp"]) * xp.as_dtype_of(step, np.ones(3))
        return weights | ({W_GATE: theta["mlp.gate"]} if W_GATE in shapes else {})


@parametrization("mirror-adder")
class MirrorAdder(_Adder):
    """No norms and two ReLU units on the second axis: 11 numbers, 7 if the units mirror each other
    (odd), or 6 (bare).

    The head writes −10 times what it sees to the second axis, beside the digit written last: there
    stands m ∝ −(a_i + b_i + carry − 9.45 − 0.1·carry below), which is 0 where the sum of a column
    passes from 9 to 10. The MLP adds an odd function of m that is flat near 0 and steep beyond:
    down·(relu(m + bend) − relu(bend − m)). Bare: queries and keys have no gain of their own, so the
    size of the embedding makes attention sharp, too.
    """

    logarithms = ("size", "step", "gain")

    def __init__(
        self, form: Literal["bare", "odd", "free"] = "odd", size: Small = 12.0, step: Small = 0.1,
        gain: Small = 5.0, out: Small = 8.0, down: Small = 1.0,
    ) -> None:  # fmt: skip
        """Set the initial embedding size, arc step, and gain of q and k.

        `out` and `down` are standard deviations of the outputs of attention and MLP.
        """
        self.form, self.size, self.step = form, size, step
        self.gain, self.out, self.down = gain, out, down

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        must = HEAD | {W_IN: (3, 2), W_OUT: (2, 3)}
        _check("mirror-adder", shapes, must, set(), "no norms, two ReLU units and no extras")
        names = ["size", "step", "turn", *["gain"] * (self.form != "bare"), "out"]
        ones: dict[str, tuple[int, ...]] = dict.fromkeys(names, (1,))
        if self.form == "free":
            return ones | {"up": (2, 2), "down": (2, 1)}
        return ones | {"bend": (1,), "down": (1,)}

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        xp = backend.backend_for(theta["size"])

        def like(*rows: Any) -> Array:
            return xp.as_dtype_of(theta["size"], np.array(rows, dtype=np.float64))

        size, step = xp.exp(theta["size"]), xp.exp(theta["step"])
        gain = like(1) if self.form == "bare" else xp.exp(theta["gain"]) / size
        weights = self.head(step, theta["turn"], size, gain, theta["out"] * like(0, 1, 0))
        if self.form != "free":
            bend = theta["bend"] * like([0, 0], [0, 0], [1, 1])
            weights[W_IN] = like([0, 0], [1, -1], [0, 0]) + bend  # D F
            weights[W_OUT] = theta["down"] * like([0, 1, 0], [0, -1, 0])  # F D
        else:
            weights[W_IN] = like([0, 0], [1, 0], [0, 1]) @ theta["up"]
            weights[W_OUT] = theta["down"] * like(0, 1, 0)
        return weights


def _check(name: str, shapes: Shapes, must: Shapes, may: set[str], wanted: str) -> None:
    """Raise an error if arrays are not of this parametrization or have other shapes."""
    wrong = [n for n in must if tuple(shapes.get(n, ())) != must[n]]
    wrong += sorted(set(shapes) - set(must) - may)
    if wrong:
        got = f"{wrong[0]} {list(shapes[wrong[0]])}" if wrong[0] in shapes else f"no {wrong[0]}"
        raise GlassformerError(
            f"{name} — expected 10 tokens, one layer, d_model 3, one head of 4, rotary positions, "
            f"a tied head, {wanted}, got {got}"
        )
