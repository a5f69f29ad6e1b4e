"""adder-36: two layers, d = 5, ALiBi and a gate; the carry is in the attention. Of seven numbers.

    <bos>045+078=0123                   most significant digit first: digit-addition:order=most,marks=true

Named after the adder of 36 parameters that it re-derives (two layers, five slots, slopes of ln 10,
gated ReLU, float64). That one is right on the leaderboard's 10,010 pairs and yet wrong, see
guard=row below; this one keeps the plan, and its sums are exact up to rounding.

**The plan.** The digit of column k is ⌊v⌋, v = (a + b − what is written so far)/10^k. So one must
add up digits, each times 10 to its column j. Layer 0 tells every digit its place, a gate
multiplies, layer 1 adds up, the head takes the floor.

**Slots**: digit (d), first (1 at <bos>), mark (1 at <bos>, *plus* at +, *equals* at =), count,
place.

**Layer 0, head 0** has slope σ0 and no query but a bias: a key D back has weight λ0^−D, λ0 = exp
σ0. A softmax divides by the sum of these, which would depend on the position; but if <bos> has the
weight 1/(1 − 1/λ0), by a key of its own, it stands for an endless past: 1 + λ0^−1 + λ0^−2 + … is
the same everywhere, Z0 = 1/(1 − 1/λ0). Values are the marks. So in `count` there is, D tokens after
a mark, ω·λ0^−D: ω_a = 1 after <bos>, ω_b after +, ω_s after =, where ω_b and ω_s can be what we
like by a choice of plus and equals (each mark sees the earlier ones too, n+1 further back: ω_b =
plus/Z0 + λ0^−(n+1), ω_s = equals/Z0 + ω_b·λ0^−(n+1)). The only neuron, gated, writes place =
relu(digit)·count.

**Layer 1, head 1** has slope σ1, <bos> again stands for the past, and it adds up the places: a
digit D' back counts λ1^−D'. Together a digit of column j has the weight λ0^j·λ1^−j up to a factor
of its number's; with σ0 − σ1 = ln 10 that is 10^j. (The usual slopes of two heads are as 16 to 1,
so σ0 = 16/15·ln 10: config.slope.) The three numbers count alike, the answer negatively, if ω_b =
λ1^−(n+1) and ω_s = −ω_b·λ0·λ1^−(n+2). Then

    the sum in `place`  = κ·λ1^k·(a + b − written)     κ = ω_b·λ0^−n·λ1^−(n+1)
    `count` of the row  = −10·κ·λ0^k                   the unit that v is measured in: their quotient is −v/10

*guard*, the value of + in its slot place, adds half a unit of the ones, so that v is never near a
whole number. The row's own place is there too, unasked for; *gain*, 10^(n+5), makes it negligible.

**The head** gives digit d the logit place·d + curve·count·(d(d+1)/2 − 1). From d−1 to d it rises by
as much as 10·v exceeds 10·d: the largest is ⌊v⌋. Marks have the logit 0, which is less than that of
digit 0, −curve·count.

**Rounding.** Scores are below 40·σ0 ≈ 100, so weights are right to about 10^−15, and the sum is off
by at most 10^−5 of a unit in all that was tried, where ½ is allowed. In float32 it is 10^−6 of the
sum: enough for four digits, not for six. The smallest margin at 10 digits is 3,700 of some 10^16.

**guard=row** is the same with a guard that is a fixed part of the row's own unit, 2·10^−5, put into
the head. It must be more than the error in the row of the ones, 10^−5, but then it is far too much
in the others: v is taken for the next whole number if it is within 2·10^−5 of it. Random pairs
hardly ever are (about 2 of 10,000), but 5193798811+1806201129 is, 60 short of 7000000000, which is
the answer that this and the public adder give. A sample does not find what a proof does.
"""  # noqa: E501

import math
from typing import Any, Literal

import numpy as np

from ...core.model import Config, Labels, Model, Weights
from ...parametrizations.formula import Formula
from ...registry import parametrization, program
from ...tasks.addition import Digits
from ...tasks.digit_addition import DigitAddition
from .common import DIGITS, Terms, build_adder

SLOTS = ("digit", "first", "mark", "count", "place")
DIGIT, FIRST, MARK, COUNT, PLACE = np.eye(5)
SCORE_DECAY = math.log(10) / 15  # σ1; σ0 is 16 times as large
MAX_FLOAT32_DIGITS = 4
SLOPE = 256 * SCORE_DECAY  # config value; two heads use 2^−4 and 2^−8 of it


@parametrization("adder-36")
class TwoLayers(Formula):
    """For the program adder-36: a two-layer adder from seven numbers."""

    numbers = ("past0", "past1", "plus", "equals", "guard", "gain", "curve")
    constants = (2.0,)

    def __init__(self, guard: Literal["ones", "row"] = "ones") -> None:
        self.guard = guard

    def terms(self, t: Weights) -> Terms:
        token, digits = np.eye(13), np.array([*DIGITS, 0, 0, 0])
        parabola = [*(DIGITS * (DIGITS + 1) / 2 - 1), 0, 0, 0]
        of_ones = self.guard == "ones"
        at_plus, in_head = (t["guard"], 0) if of_ones else (0, -t["guard"] * t["curve"])
        return {
            "embed.W_E": [(1, np.outer(digits, DIGIT) + np.outer(token[12], FIRST + MARK)),
                          (t["plus"], np.outer(token[10], MARK)),
                          (t["equals"], np.outer(token[11], MARK)),
                          (at_plus, np.outer(token[10], PLACE))],
            **_head(0, t["past0"], MARK, (1, COUNT)),
            "blocks.0.mlp.W_in": [(1, DIGIT[:, None])],
            "blocks.0.mlp.W_gate": [(1, COUNT[:, None])],
            "blocks.0.mlp.W_out": [(1, PLACE[None])],
            **_head(1, t["past1"], PLACE, (t["gain"], PLACE)),
            "unembed.W_U": [(1, np.outer(PLACE, digits)), (in_head, np.outer(COUNT, digits)),
                            (t["curve"], np.outer(COUNT, parabola))],
        }  # fmt: skip


def _head(layer: int, past: Any, reads: Any, writes: tuple[Any, Any]) -> Terms:
    """Return the terms of a layer's active head: the first in layer 0, the second in layer 1."""
    at, own = f"blocks.{layer}.attn.", np.eye(2)[layer][:, None, None]  # H 1 1
    return {
        at + "W_Q": [(1, np.zeros((2, 5, 1)))], at + "b_Q": [(1, own[..., 0])],
        at + "W_K": [(past, own * FIRST[:, None])], at + "W_V": [(1, own * reads[:, None])],
        at + "W_O": [(writes[0], own * writes[1])],
    }  # fmt: skip


TOO_LONG_MESSAGE = f"sums of more than {MAX_FLOAT32_DIGITS} digits need float64"


@program(
    "adder-36", float32=lambda options: TOO_LONG_MESSAGE * (options["digits"] > MAX_FLOAT32_DIGITS)
)
def adder_36(digits: Digits = 10, guard: Literal["ones", "row"] = "ones") -> Model:
    """The sum, most significant digit first, in two ALiBi layers: places by a gate, their sum
    by attention.
    """
    n = digits
    task = DigitAddition(n, order="most", marks=True)
    config = Config(
        13, 3 * n + 3, d_model=5, n_layers=2, n_heads=2, d_head=1, d_mlp=1, norm="none",
        activation="relu", positions="alibi", slope=SLOPE, scale=1.0,
    )  # fmt: skip
    past = [-math.log1p(-math.exp(-f)) for f in (16 * SCORE_DECAY, SCORE_DECAY)]  # ln Z0, ln Z1
    b = math.exp(-(n + 1) * SCORE_DECAY)  # ω_b
    s = -b * math.exp((16 - n - 2) * SCORE_DECAY)  # ω_s
    earlier = math.exp(-(n + 1) * 16 * SCORE_DECAY)  # weight of a mark at the next one
    curve = 10.0 ** (n + 5)
    numbers = {
        "past0": past[0], "past1": past[1], "gain": 10 * curve * math.exp(past[1]), "curve": curve,
        "plus": (b - earlier) * math.exp(past[0]), "equals": (s - b * earlier) * math.exp(past[0]),
        "guard": b * math.exp((n - 16 * n) * SCORE_DECAY) / 2 if guard == "ones" else 2e-5,
    }  # fmt: skip
    heads = {
        "0.0": "place: how far the last mark is behind", "0.1": "not used",
        "1.0": "not used", "1.1": "adds up the places: a + b − written",
    }  # fmt: skip
    slots = {name: (i, i + 1) for i, name in enumerate(SLOTS)}
    labels = Labels(slots, heads, {"0.0": "digit times place"})
    return build_adder(TwoLayers(guard=guard), numbers, config, task, labels)
