"""adder-prefix: most significant digit first, in one layer of two heads, all made of four numbers.

    045+078=0123                        the task addition, as for the program of that name

The carry is in the attention. With scores that rise by ln 10 from column to column, softmax
multiplies digits by powers of ten, and so adds up whole numbers: v = (a + b − what is written so
far)/10^k, whose floor is the digit to write. No carry is ever found or passed on; it is in the sum.
This is the adder of programs/addition_compact.py, where the derivation is, as a formula: its table
of positions, 160 of its 265 entries at 10 digits, is made from

    ref     M of the row that predicts the ones; column k has 10^k times as much, the unit of v
    top     |M| of an operand's top digit; column j has 10^−j times as much, which layer norm turns round to 10^j
    gap     by how much the score of the wrong side is lower, and that of the sink, +, is higher
    slope   ln 10: per column, of the digits written (twice, since their own M takes 10^j away)

A score s is s/top of M in the score slot, too little for layer norm to notice (at s/ref it would).

The weight of W_V is 1 here (a product with it does not round, which is its only purpose).

**Why not ALiBi.** Its bias is linear in the distance, and in one layer nothing else tells where a
digit stands: a_j and b_j, which must count alike, are n + 1 apart, so that in every head b_j has
exp((n+1)·slope) times the weight of a_j. Two layers can do it, see two_layers.py: the first finds
out which number a digit belongs to. A bias that is linear in the *column*, which takes a table of
positions, does it in one.

**Margin** ≈ 1, of logits of about 10^29: the sum is off by 0.001 of the ½ that is allowed. Not for
float32, see there.
"""  # noqa: E501

import math

import numpy as np

from ...core.model import Config, Labels, Model, Weights
from ...craft import Layout
from ...parametrizations.formula import Formula
from ...registry import parametrization, program
from ...tasks.addition import Addition, Digits
from .common import DIGITS, Terms, build_adder

LAYOUT = Layout(scale=2, digit=2, score=1)
SCALE, DIGIT, SCORE = LAYOUT.row(scale=[1, -1]), LAYOUT.row(digit=[1, -1]), LAYOUT.row(score=1)  # D


@parametrization("adder-prefix")
class Prefix(Formula):
    """For the program adder-prefix: an adder, most significant digit first, from four numbers."""

    numbers = ("ref", "top", "gap", "slope")
    constants = (2.0, 2.5)

    def __init__(self, digits: Digits = 10) -> None:
        self.digits = digits

    def terms(self, t: Weights) -> Terms:
        n, (ref, top, gap, slope) = self.digits, (t[name] for name in self.numbers)
        # norm: value of (M, −M, 0, 0, 0) after layer norm for M = 1
        loud, norm = 10.0**n, math.sqrt(2.5)
        column = np.full(3 * n + 2, -1)  # column of the digit that a row predicts, or −1
        column[[n, 2 * n + 1]], column[2 * n + 2 :] = n, np.arange(n)[::-1]
        place = np.zeros(3 * n + 2)  # 10^−j for an operand's digit, times 10^(n−1)
        place[:n] = place[n + 1 : 2 * n + 1] = 10.0 ** np.arange(n)
        power = np.where(column < 0, 0, 10.0 ** np.maximum(column, 0))
        written, plus = np.arange(3 * n + 2) > 2 * n + 1, np.arange(3 * n + 2) == n
        rise = power * written * (column - n + 1)
        add, take = np.eye(2)[:, :, None, None]  # [H,1,1] with a 1 in one head
        read = (SCALE / (2 * norm))[:, None]  # D K
        # Before W_O, a 1 in column j counts 10^j·2·norm over (2n+1)·top·10^(n−1), and over
        # ref·e^gap·10^(2n−1).
        added = loud * ref * top * (2 * n + 1) * 10.0 ** (n - 1) / (2 * norm)
        taken = -loud * ref * ref * math.e**gap * 10.0 ** (2 * n - 1) / (2 * norm)
        at = "blocks.0.attn."
        return {
            "embed.W_E": [(loud, np.outer([*(1 - DIGITS * (DIGITS + 1) / 2), 0, 0], SCALE)),
                          (loud, np.outer([*DIGITS, 0, 0], DIGIT))],
            "pos_embed.W_pos": [(-loud * top, np.outer(place, SCALE)),
                                (loud * ref, np.outer(power, SCALE)),
                                (loud * ref * gap / top, np.outer(power * plus, SCORE)),
                                (2 * loud * ref * slope / top, np.outer(rise, SCORE))],
            at + "W_Q": [(1, np.tile(read, (2, 1, 1)))],
            at + "W_K": [(top / norm, np.tile((SCORE - np.abs(DIGIT) / 2)[:, None], (2, 1, 1))),
                         (gap / 2, (take - add) * read)],
            at + "W_V": [(1, np.tile(DIGIT[:, None], (2, 1, 1)))],
            at + "W_O": [(added, add * DIGIT), (taken, take * DIGIT)],
            at + "b_O": [(loud * ref / 2, DIGIT)],
        }  # fmt: skip


@program("adder-prefix")
def adder_prefix(digits: Digits = 10) -> Model:
    """The sum, most significant digit first, in one layer: the carry is in the attention; from
    4 numbers.
    """
    n, task = digits, Addition(digits)
    config = Config(12, 3 * n + 2, LAYOUT.size, n_heads=2, d_head=1, eps=0.0, scale=1.0, tied=True)
    numbers = {"ref": 1e9, "top": 1e7 * 10.0**n, "gap": 39.0, "slope": math.log(10)}
    heads = {"0.0": "adds the operands", "0.1": "takes away the digits written"}
    return build_adder(Prefix(digits=n), numbers, config, task, Labels(LAYOUT.slots, heads))
