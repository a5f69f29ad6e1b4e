"""adder-hinge: ones first, in one layer of one head and three neurons, all made of eight numbers.

    0 rev(a) 0…0 rev(b) 0 rev(a+b)      the task digit-addition: n digits each, n−1 zeros between (two, for n < 3)

**The stream** has two slots. A digit d is (c − d²/2c, −d): *lift* and *digit*. The head is tied.

**Attention** finds columns by distance alone: q and k are biases, the same for every token. Where
s_i is to be written, a_i and b_i are 3n−1 and n behind, which differ by 2n−1; so a rotary angle of
period 2n−1 (the second pair of a head of size 4, base ((2n−1)/2π)²) sees them alike, and likewise
a_{i−1} and b_{i−1}, one further. The score of distance n+e is A·cos w(e − δ), w = 2π/(2n−1), with
its top between e = 0 and e = 1, a little nearer to 0, so that weights are as 10 to 1: A·(cos wδ −
cos w(1−δ)) = ln 10. The next, e = −1 and e = 2, are 2A·sin w·sin wδ and more below: for n = 10, A =
100, all others together have 0.02 % of the attention. Beyond the numbers there are zeros to be
found, worth 0, so the shares are the same in every column: 10/22, 10/22, 1/22, 1/22. With κ = 22
attention adds 10(a_i + b_i) + a_{i−1} + b_{i−1} to the digit slot. The token that is read last is
s_{i−1}, so −s_{i−1} is there already, and b_O adds 1. In a column, a + b + carry in is s plus 10
times the carry out; what is left is

    u = 10·t + 1 − (carry into column i−1),  t = a_i + b_i + carry, 0 … 19:   10·t or 10·t + 1

**The neurons** make −(t mod 10) of it. The first is always open and turns the sign round: u −
flip·relu(u) with flip = 1.1 is −u/10. (It is what a tied head costs: −s has the right sign for the
output and the wrong one for u.) The others are the two hinges of a step by steep·(high − low) = 10
between u = 91 (t = 9) and u = 100 (t = 10).

**The head** gives digit d the logit lift·(c − d²/2c) − z·d, with lift ≈ c and z ≈ −s in the digit
slot: c² + s²/2 − (d − s)²/2, a parabola with its top at s. Its neighbours are ½ lower: the margin
is ½ less what z is off, 0.1 for u = 10·t + 1 and the rest for lift ≠ c (at most 9·81/2c²) and the
attention's remainder.

With norm=rms the same under RMS norm without weights, as on the leaderboard: it divides a row by
its length, which is c up to (d/c)⁴/8 before attention and up to (u/c)²/2 after it, so c is 10,000
then and √2/c is made good after every norm. Logits are then ≈ √2·c, and a margin of √2/2c is out of
float32's reach.
"""  # noqa: E501

import math
from typing import Any, Literal

import numpy as np

from ...core.model import Model, Weights
from ...parametrizations.formula import Formula
from ...registry import parametrization, program
from ...tasks.digit_addition import DigitAddition, DigitCount
from .common import Terms, adder_labels, build_adder, column_adder, one_layer


@parametrization("adder-hinge")
class Hinge(Formula):
    """For the program adder-hinge: a one-layer adder from eight numbers."""

    numbers = ("c", "x", "y", "kappa", "flip", "steep", "low", "high")
    constants = (2.0,)

    def __init__(self, norm: Literal["none", "rms"] = "none") -> None:
        self.norm = norm

    def terms(self, t: Weights) -> Terms:
        # size: divisor of the norm
        c, size = t["c"], t["c"] / math.sqrt(2) if self.norm == "rms" else 1
        digit = np.eye(2)[1]
        return {
            **column_adder(c, t["x"], t["y"], t["kappa"] * size),
            "blocks.0.mlp.b_in": [(t["low"] / size, [0, -1, 0]), (t["high"] / size, [0, 0, -1])],
            "blocks.0.mlp.W_out": [(t["flip"] * size, np.outer([-1, 0, 0], digit)),
                                   (t["steep"] * size, np.outer([0, 1, -1], digit))],
        }  # fmt: skip


MAX_FLOAT32_DIGITS = 400  # The margin is 0.35 here, 0.06 at 1,000 digits and 0 at 1,600.


def _check_float32(options: dict[str, Any]) -> str:
    if options["norm"] == "rms":
        return "under norm=rms logits are ≈ 14,142 and margins ≈ 0.00005"
    why = f"the scores of numbers of more than {MAX_FLOAT32_DIGITS} digits need float64"
    return why if options["digits"] > MAX_FLOAT32_DIGITS else ""


@program("adder-hinge", float32=_check_float32)
def adder_hinge(digits: DigitCount = 10, norm: Literal["none", "rms"] = "none") -> Model:
    """The sum, ones first (to be read backwards): a rotary head finds the column, two hinges take
    10 away; 8 numbers make the weights.
    """
    task = DigitAddition(digits)
    x, y = query_vector(task)
    numbers = {"c": 1e4 if norm == "rms" else 100.0, "x": x, "y": y, "kappa": 22.0,
               "flip": 1.1, "steep": 2.0, "low": 93.0, "high": 98.0}  # fmt: skip
    return build_adder(
        Hinge(norm=norm), numbers, one_layer(task, norm=norm), task, adder_labels(task)
    )


def query_vector(task: DigitAddition) -> tuple[float, float]:
    """Return (x, y) of a query that weighs the written column 10 times as much as the one below."""
    w = 2 * math.pi / task.period
    strength = max(100.0, 11 / w**2)  # A keeps other columns about equally weak for every n.
    # w(n + δ)
    top = w * (task.digits + 0.5) - math.asin(math.log(10) / (2 * strength * math.sin(w / 2)))
    return round(strength * math.cos(top), 2), round(-strength * math.sin(top), 2)
