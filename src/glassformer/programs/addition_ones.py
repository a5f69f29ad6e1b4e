"""Addition, ones first: the tokens and the order of the trained adder, in one small circuit.

    123+456=9750<EOS>

Every token stands in a *column*: the digits a_k, b_k and s_k in column k, `+` in column n and `=`
in column −1, both worth 0. The stream has two slots: the column as a point on a ring of n+2, and
the digit d as (d, −d). The token that was written last stands in column i−1, and the model must
write s_i. Two heads look at whole columns:

- *ahead*, column i: the mean of a_i and b_i (s_i is not there yet). For i = n it finds `+`, for the
  end `=`: 0.
- *here*, column i−1: the mean of a, b and s of that column. For i = 0 it finds `=` alone: 0.

With weights −10·2/2 and −3/2 they add −10(a_i+b_i)/2 − (a+b+s)/2 to the s that is in the stream
already; what is left there is −u/2 with u = 10(a_i+b_i) + (a+b−s). That holds all one has to know:
s is a+b plus the carry into column i−1, less 10 for the carry c_i out of it, so a+b−s is 10·c_i
less the carry in, and u = 10·t or 10·t − 1, where t = a_i+b_i+c_i, 0 … 19, is the whole column with
its carry. Three neurons turn −u/2 into t mod 10: one is always open and turns the sign round, two
make the step of −10 between u = 90 (t = 9) and u = 99 (t = 10). The result, s_i or s_i − 1/10, is
distinguished from the other digits by a parabola: the logit −(x−d)²/2, less its part that is the
same for all d.

The tied head reads the digit slot; the parabola's −d²/2 is the head's bias. `<EOS>` has no digit
but the ring's point n for embedding: its logit is highest once s_n has been written.

Layer norm: the ring is NORM_SCALE times as large as a digit, and the rows have mean 0, so that
layer norm divides them all by NORM_SCALE·√(3/5), up to (digit/NORM_SCALE)². So little changes when
everything is rounded to float32 that the margin stays.
"""

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..core.vocabulary import Vocabulary
from ..craft import Head, Layout, ring

NORM_SCALE = 1e4
ATTENTION_SCALE = 10.0  # scale of the parabola −ATTENTION_SCALE·(x−d)²/2 of logits
UNRELATED_SCORE = 100.0 * ATTENTION_SCALE  # exceeds any digit's logit, (9.5)²/2·ATTENTION_SCALE


def addition_ones_first(digits: int, dtype: str) -> Model:
    """Return a model of `123+456=9750<EOS>`: ones first, one layer of two heads, three neurons."""
    n, columns = digits, digits + 2
    vocabulary = Vocabulary([*"0123456789+=", "<PAD>", "<EOS>"])
    layout = Layout(column=3, digit=2)
    column, digit = layout["column"], layout["digit"]
    config = Config(
        14, 3 * n + 3, layout.size, n_heads=2, d_head=2, d_mlp=3, activation="relu", scale=1.0,
        tied=True,
    )  # fmt: skip
    w = zeros(config, "mlp.b_in", "ln_final.w", "unembed.b_U")
    norm = NORM_SCALE * np.sqrt(3 / layout.size)  # divisor of layer norm

    d = np.arange(10.0)
    points = ring(columns)  # points of the columns 0 … n, −1
    operand = np.arange(n)[::-1]
    where = np.concatenate([operand, [n], operand, [-1], np.arange(n + 1)])
    w["embed.W_E"][:10] = layout.row(digit=np.stack([d, -d], -1))
    w["pos_embed.W_pos"][:] = layout.row(column=NORM_SCALE * points[where])

    # A neighboring column scores 25 less. After layer norm the ring is √(5/3) times ring().
    hardness = 25 / ((layout.size / 3) * 3 * (1 - np.cos(2 * np.pi / columns)))
    ahead, here = Head(w, 0, 0), Head(w, 0, 1)
    ahead.attend_back(-1, column, columns, hardness)
    ahead.copy(digit, digit, -10.0 * norm)  # −10(a+b)/2 from the mean of two tokens
    here.attend_back(0, column, columns, hardness)
    here.copy(digit, digit, -1.5 * norm)  # −(a+b+s)/2 from the mean of three tokens

    # relu(u+1), relu(u−90), relu(u−99) from −u/2 add up to u/10 + 0.6, less 10 from u = 99 on.
    w["blocks.0.mlp.W_in"][digit.start] = -2 * norm
    w["blocks.0.mlp.b_in"][:] = 1, -90, -99
    w["blocks.0.mlp.W_out"][:, digit] = np.outer([0.6, -10 / 9, 10 / 9], [1, -1])

    # x is s + 0.6 or s + 0.5, so the parabola's middle is at s + 0.55.
    w["ln_final.w"][:] = ATTENTION_SCALE / 2 * norm  # x·d occurs twice, as (x, −x)·(d, −d)
    w["unembed.b_U"][:10] = -ATTENTION_SCALE * (d**2 / 2 + 0.55 * d)
    w["unembed.b_U"][10:13] = -UNRELATED_SCORE  # +, = and <PAD> are never an answer
    # <EOS>: 2·UNRELATED_SCORE at column n, −UNRELATED_SCORE in the columns beside it.
    rise = 3 * UNRELATED_SCORE / (1 - np.cos(2 * np.pi / columns))
    w["embed.W_E"][13, column] = points[n] * rise / (3 * ATTENTION_SCALE / 2 * NORM_SCALE)
    w["unembed.b_U"][13] = 2 * UNRELATED_SCORE - rise

    heads = {"0.0": "ahead: a and b of the column to write",
             "0.1": "here: a, b and s of the column just written"}  # fmt: skip
    neurons = {"0.0": "turns the sign: u + 1", "0.1": "u > 90: the digit wraps …",
               "0.2": "u > 99: … by 10"}  # fmt: skip
    labels = Labels(layout.slots, heads, neurons)
    return Model(config, w, vocabulary, f"addition:digits={n},order=ones", labels).astype(dtype)
