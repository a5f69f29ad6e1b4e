"""Addition, most significant digit first, by two heads: 160 parameters for 3 digits, 265 for 10.

    045+078=0123

The digit to write in column k is ⌊v⌋, where v = (a + b − what is written so far) / 10^k lies
between 0 and 10. Attention computes v, the tied head takes the floor, and layer norm does all
multiplications by powers of ten.

**The stream** has five coordinates in three slots. Each is read by a difference, so the mean that
layer norm takes away, and the rounding of that mean, never matter:

    scale  (M + y, −M − y)   M from the position, y from the digit
    digit  (d, −d)           0 for + and =
    score  m                 read against the mean of the digit slot

|M| exceeds all else by orders of magnitude, so layer norm is a division by |M|·√(2/5), and leaves
of a row the *side* ±1 (the sign of M, negative for operands), the *value* d/|M| and the *score*
m/|M|.

**The rows.** The row that predicts column k (`=` or a digit just written) has M = REF·10^k. That is
the unit that v is measured in: nothing has to be divided by 10^k. An operand's digit of column j
has |M| ∝ 10^−j, so its value is its place value d·10^j, and all operands are attended to alike. The
digit written in column j stands in the row of column j−1, M ∝ 10^(j−1), so its value is
d·10^−(j−1); weights ∝ 100^j, that is, scores of 2·ln10·j, make d·10^j of that.

**The heads.** The query is the side of the row, 1, so a key is a score in itself. Head 0 adds
½·ln2·GAP to operands and takes it from the other side, head 1 the reverse, so that each sees the
wrong side 2^−GAP times as strongly. In head 0 the 2n operands and the `+` share the attention
equally. In head 1 `+` is a sink: it outweighs the top digit of the answer by 2^GAP, so that the
denominator of softmax is the same however many digits there are, up to 2^−GAP. The value of `+`
must be exactly 0: the weight in W_V is a power of two, since a product with it does not round. Head
0 writes REF·(a + b) into the digit slot, head 1 takes away REF·(what is written), and b_O adds
REF/2.

**The floor.** The slots now hold M = REF·10^k and X = REF·10^k·(v + ½·10^−k). Digit d has y_d = 1 −
d(d+1)/2, so that the tied head gives it a logit ∝ M·y_d + X·d. From d−1 to d it rises by X − M·d,
which is positive as long as d < X/M: the largest is at ⌊X/M⌋ = ⌊v⌋, since 10^k·v is a whole number,
and the ½ keeps X/M half a unit of 10^−k away from every step. `+` and `=` have the logit 0, which
is less: the right digit's is at least that of 0, and y_0 = 1.

**The error** of X/M, in units of 10^−k, where ½ is allowed, is at most about: 500/REF by what the
row's own token adds to M and X; 800/LIFT by what y does to an operand's value; 10^4·n²/REF by what
it does to a written digit's value and score; 10^n·2^−GAP·(1 + REF/LIFT) by the wrong side and the
sink. The rest is rounding: a few times GAP·u (the scores are about GAP, and u is 2^−53 or 2^−24),
relative to numbers up to 2·10^n. The largest seen, with the five coordinates in any order: 0.001
for 10 digits, 0.03 for 12; in float32, with constants of its own, 0.03 for 3.

The whole embedding is multiplied by 10^n, which changes the logits only: the margin is about 1.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..craft import Layout
from ..tasks.addition import Addition
from ..utils.errors import GlassformerError


@dataclass(frozen=True)
class Constants:
    """Constants that make neglected terms negligible.

    Larger constants exceed float32's range or precision.
    """

    ref: float  # REF, M of the row that predicts the ones
    lift: float  # LIFT; |M| of an operand's top digit is LIFT·10^n
    gap: int  # GAP, in powers of two


CONSTANTS = {"float64": Constants(1e9, 1e7, 56), "float32": Constants(2e6, 1e6, 20)}
ROUNDING_UNIT = 2**-7  # a score of 1 is m = 1/ROUNDING_UNIT in the row of the answer's top digit
MAX_FLOAT32_DIGITS = 3


def compact_addition(digits: int, dtype: str) -> Model:
    """Return a model of `045+078=0123` with one layer of two heads of size 1."""
    n, c = digits, CONSTANTS[dtype]
    if dtype == "float32" and n > MAX_FLOAT32_DIGITS:
        raise GlassformerError(
            f"digits must be at most {MAX_FLOAT32_DIGITS} with dtype=float32, got {n}"
        )
    task = Addition(n)
    layout = Layout(scale=2, digit=2, score=1)
    scale, digit = layout.row(scale=[1, -1]), layout.row(digit=[1, -1])  # D
    score = layout.row(digit=-0.5, score=1)  # D
    config = Config(12, 3 * n + 2, layout.size, n_heads=2, d_head=1, eps=0.0, tied=True)
    w = zeros(config, "attn.b_O")
    W_E, W_pos = w["embed.W_E"], w["pos_embed.W_pos"]
    W_Q, W_K, W_V, W_O = (w[f"blocks.0.attn.W_{x}"] for x in "QKVO")

    d = np.arange(10.0)
    W_E[:10] = np.outer(1 - d * (d + 1) / 2, scale) + np.outer(d, digit)

    gap = c.gap * math.log(2)
    top = c.lift * 10.0**n
    score_unit = ROUNDING_UNIT * c.ref * 10.0 ** (n - 1)  # M/m of a row whose score is 1
    place = np.arange(n)[::-1]  # places of an operand's digits
    for first in (0, n + 1):
        W_pos[first : first + n] = np.outer(-top * 10.0 ** (n - 1 - place), scale)
    # Maps a position to the k of its M and its score: first + and =, then the written digits.
    rows = {n: (n, gap), 2 * n + 1: (n, 0.0)}
    rows |= {3 * n + 1 - k: (k, 2 * math.log(10) * (k - n + 1)) for k in range(n)}
    for position, (k, s) in rows.items():
        W_pos[position] = c.ref * 10.0**k * (scale + s / score_unit * layout.row(score=1))

    # Layer norm leaves ±√(5/2)·(1, −1) of (M, −M), and of the rest, over M, √(5/2) times as much.
    W_Q[:, :, 0] = scale / math.sqrt(10)
    W_K[:, :, 0] = score_unit * math.sqrt(2 / 5) * score
    W_K[:, :, 0] += np.outer([-gap / 2, gap / 2], scale / math.sqrt(10))
    # A value is approximately the digit's place value.
    power = 2.0 ** round(math.log2(top * 10.0 ** (n - 1)))
    W_V[:, :, 0] = power * digit
    value = power * math.sqrt(10)  # value of d/M = 1 after W_V
    # A 1 in column j counts, before W_O, 10^j times value / ((2n+1)·top·10^(n−1)) and value /
    # (REF·2^GAP·10^(2n−1)).
    W_O[0, 0] = c.ref * (2 * n + 1) * top * 10.0 ** (n - 1) / value * digit
    W_O[1, 0] = -(c.ref**2) * 2.0**c.gap * 10.0 ** (2 * n - 1) / value * digit
    w["blocks.0.attn.b_O"][:] = c.ref / 2 * digit

    for name in ("embed.W_E", "pos_embed.W_pos", "blocks.0.attn.W_O", "blocks.0.attn.b_O"):
        w[name] *= 10.0**n
    heads = {"0.0": "adds the operands", "0.1": "takes away the digits written"}
    return Model(config, w, task.vocabulary, task.ref, Labels(layout.slots, heads)).astype(dtype)
