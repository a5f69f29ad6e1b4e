"""Multiplication: two layers of two heads, no MLP. Scores are products, so attention can multiply.

    12*34=0408

*Layer 0 reads the numbers.* A score of k·ln 10 weighs the digit of place k by 10^k: the mean that
head 0.0 takes over the digits of a is A = a/1…1 (n ones), and head 0.1 gets B from b. `=` is worth
0 and scores higher still for head 0.0: so A is found at `*`, where `=` cannot be seen yet, and is 0
from `=` on.

*Layer 1 multiplies and subtracts.* Head 1.0 sees two tokens: `*` with the score x = ε·A·B (A is the
key's, B is the query's) and `=` with the score 0. They have the signs +1 and −1, so the head brings
the difference of their weights, tanh(x/2) = x/2 − x³/24 + …: a line as long as x is small. Rounding
is a share 1e-16/x of the product, the bend one of x²/12, or x²/48 for the straight line that fits
best; EPSILON is where both are least. Head 1.1 reads the digits that are already written, weighed
by their places as in layer 0. In its mean `*`, worth 0, stands in for the places still to come,
with their weight 1…1 (the slot `others` has its logarithm), so that the mean is always one over 2n
places. What is left in the slot `left` is the product less what is written, and ½, which the
position table put there.

*The head divides.* The next digit is ⌊left/10^m⌋ where m is the place to write. As d grows, left·d
− 10^m·d(d+1)/2 rises as long as d·10^m < left: such a parabola is highest at the right digit, and
10^m is in the position table. `left` is an integer and a half, so the best logit leads by ½ at
least, in units of 1; the errors above take 0.01 of it for 4 digits, 0.2 for 2 digits in float32.

*Layer norm* only divides by NORM_SCALE: see craft/layout.py.
"""

from typing import Any, Literal

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..core.vocabulary import Vocabulary
from ..craft import FixedNormLayout, Floats, Layout
from ..registry import program
from ..tasks.multiplication import Digits
from ..utils.errors import GlassformerError

NORM_SCALE = 2.0**27
# A score of −UNRELATED_SCORE leaves a weight of e^−64; it is also the unit of scores in the stream
UNRELATED_SCORE = 64.0
EPSILON = {"float64": 3e-5, "float32": 0.02}  # maximum x by dtype
ATTENTION_SCALE = 2.0  # The unit of logits is 1/ATTENTION_SCALE.


@program("multiplication")
def multiplication(digits: Digits = 2, dtype: Literal["float64", "float32"] = "float64") -> Model:
    """The product of two numbers, zero-padded: 12*34=0408."""
    n = digits
    if dtype == "float32" and n > 2:
        raise GlassformerError(f"not right in float32: expected digits up to 2, got {n}")
    layout = FixedNormLayout(
        NORM_SCALE,
        digit=1,
        a_score=1,
        b_score=1,
        product_score=1,
        written_score=1,
        sign=1,
        others=1,
        place=1,
        a=1,
        b=1,
        left=1,
    )
    config = Config(12, 4 * n + 1, layout.size, n_layers=2, n_heads=2, d_head=2, scale=1.0)
    # unit: numbers have units of the first place.
    w, d, unit = zeros(config), np.arange(10.0), 10.0 ** (1 - 2 * n)
    read, one = layout.read, layout.read_one
    w["embed.W_E"][:10, layout["digit"]] = d[:, None]
    w["pos_embed.W_pos"][:] = layout.norm_row() + _positions(layout, n)
    layout.write_head(w, 0, 0, [one], [read(a_score=UNRELATED_SCORE)], [read(digit=1)], a=[1])
    layout.write_head(w, 0, 1, [one], [read(b_score=UNRELATED_SCORE)], [read(digit=1)], b=[1])
    query, scores = (
        [one, NORM_SCALE * read(others=1)],
        [read(written_score=UNRELATED_SCORE), read(sign=1)],
    )
    layout.write_head(w, 1, 1, query, scores, [read(digit=1)], left=[-_repunit(2 * n) * unit])
    epsilon = EPSILON[dtype] / 81  # A and B are at most 9.
    straight = 1 + EPSILON[dtype] ** 2 / 16  # x/2 times this is the best linear fit of tanh(x/2).
    product = 2 / epsilon * straight * _repunit(n) ** 2 * unit
    scores = [read(product_score=UNRELATED_SCORE), read(a=1)]
    layout.write_head(
        w, 1, 0, [one, NORM_SCALE * read(b=epsilon)], scores, [read(sign=1)], left=[product]
    )

    # The 1 raises the parabola of the digits above * and =, whose logits are 0.
    parabola = np.outer(read(left=1), d) + np.outer(read(place=1), 1 - d * (d + 1) / 2)
    w["unembed.W_U"][:, :10] = ATTENTION_SCALE * NORM_SCALE / unit * parabola
    names = {"0.0": "a, at *", "0.1": "b", "1.0": "a times b", "1.1": "the digits already written"}
    task, labels = f"multiplication:digits={n}", Labels(layout.slots, names)
    return Model(config, w, Vocabulary("0123456789*="), task, labels).astype(dtype)


def _positions(layout: Layout, n: int) -> Floats:
    """Return the position rows [4n+1, D]: place scores, signs of * and =, and initial terms."""
    P = np.zeros((4 * n + 1, layout.size))
    at = {name: where.start for name, where in layout.items()}
    times, equals = n, 2 * n + 1
    ln10 = (
        np.log(10) / UNRELATED_SCORE * np.arange(2 * n)[::-1]
    )  # score of each place, first to last
    P[:, at["a_score"] : at["written_score"] + 1] = -1
    P[:n, at["a_score"]], P[equals, at["a_score"]] = ln10[n:], 1
    P[n + 1 : equals, at["b_score"]] = ln10[n:]
    P[[times, equals], at["product_score"]] = 0
    P[equals + 1 :, at["written_score"]], P[times, at["written_score"]] = ln10[:-1], 0
    P[[times, equals], at["sign"]] = 1, -1
    i = np.arange(2 * n)  # A digit of place 2n−1−i follows the i-th token from =.
    P[equals:, at["others"]] = np.log(_repunit(2 * n - i))
    P[equals:, at["place"]] = 10.0**-i
    P[equals:, at["left"]] = 10.0 ** (1 - 2 * n) / 2
    return P


def _repunit(n: Any) -> Any:
    """Return the number 1…1 of n ones."""
    return (10.0**n - 1) / 9
