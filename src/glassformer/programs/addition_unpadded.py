"""Addition as people write it, without padding (exercise 6.20): one model does 4+8=12 and 84+88=172.

    <bos>84+88=172<eos>

Numbers of any length up to n stand at no fixed place, so the model first finds out where things are. Powers
of ten come from softmax: a score of j·ln 10 is a weight of 10^j. Such weights are wanted as they are, not
as shares of their sum; `<bos>`, worth 0, therefore takes a weight of 10^(2n+6), beside which the others do
not count, and the heads' output is multiplied by that. All powers below are relative to it. p is a token's
position.

*Layer 0, marks.* Head 0.0 looks at `+`, or at `<bos>` before it: every token learns where `+` is and that
it is behind it. Head 0.1 does the same for `=`.

*Layer 1, the sum, at `=`.* The digits of a weigh 10^(p₊−1−p) and those of b, behind `+`, 10^(p₌−1−p):
powers of their own places. So head 1.0 brings a+b. (Other tokens look at `<bos>` only.) The `=` token adds
½. The MLP counts for which m = 1 … n the sum is 10^m or more, one step of two neurons each: `length` is the
number of digits less 1. The steps are sums of numbers as large as the sum, and their rounding is multiplied
by the sum again in layer 2. That sets the limit: 6 digits, where `next` is off by 0.02 of the ½ allowed,
and 2 in float32.

*Layer 2, the next digit.* Seen from position p, head 2.0 gives `=` the weight 10^(p−p₌−length), and the sum
there becomes a number whose integer part ends in the digit to write: 172½ → 1.725, 17.25, 172.5. It gives
the digit written at position q the weight 10^(p−q) and takes it off ten times: 1.725, 7.25, 2.5 is what is
left in the slot `next`. Head 2.1 brings p₌ + length, where the answer ends.

*The head.* next·d − d(d+1)/2 is a parabola in d, highest at ⌊next⌋: see `multiplication`. `next` is never
nearer to an integer than ½·10^−n (that is what the ½ is for), so that is the margin, here multiplied by
2·10^n. `<eos>` has the logit 100·(p − end − ½): negative until the last digit is written, and then larger
than that of any digit.

*Layer norm* divides by NORM, nearly, wherever it is, since two coordinates, +loud and −loud, drown the
rest. It also subtracts the mean; the slot `zero` is never written and shows it, and everything is read less
`zero`. Values are read with weights ±1, so that what is worth 0 is exactly that, however large its weight.
"""

from typing import Any

import numpy as np

from ..craft import Layout
from ..errors import GlassformerError
from ..model import Config, Labels, Model, zeros
from ..vocabulary import Vocabulary

MOST = 6  # digits
NORM = 2.0**40
LN10 = float(np.log(10))


def unpadded(digits: int) -> Model:
    """`<bos>84+88=172<eos>`: numbers of 1 to so many digits, without leading zeros."""
    n = digits
    if not 1 <= n <= MOST:
        raise GlassformerError(f"padding=none — digits must be a whole number from 1 to {MOST}, got {n}")
    layout = Layout(
        plus=1, minus=1, zero=1, digit=1, is_plus=1, is_equals=1, is_bos=1, position=1, plus_at=1, after_plus=1,
        after_equals=1, sum=1, length=1, next=1, end=1,
    )  # fmt: skip
    config = Config(
        d_vocab=14, n_ctx=3 * n + 4, d_model=layout.size, n_layers=3, n_heads=2, d_head=3, d_mlp=2 * n,
        activation="relu", scale=1.0,
    )  # fmt: skip
    w = {name: a for name, a in zeros(config, "mlp.b_in").items() if ".mlp." not in name or "blocks.1." in name}
    at = {name: where.start for name, where in layout.items()}
    sink, far = (2 * n + 6) * LN10, (4 * n + 10) * LN10  # scores: of <bos>; of what is out of reach
    unit = 10.0**-n  # the sum is kept in units of 10^n, so that no slot is large

    def read(**scales: float) -> Any:
        """Weights [D] that read slots of the normed stream."""
        return layout.row(**scales, zero=-sum(scales.values()))

    def head(layer: int, index: int, query: list[Any], key: list[Any], value: list[Any], **output: list[float]) -> None:
        """One column per product that makes up the score; one per value that is brought, with its weight by slot."""
        attn = f"blocks.{layer}.attn."
        w[attn + "W_Q"][index, :, : len(query)] = np.transpose(query)
        w[attn + "W_K"][index, :, : len(key)] = np.transpose(key) * NORM
        w[attn + "W_V"][index, :, : len(value)] = np.transpose(value)
        for slot, scales in output.items():
            w[attn + "W_O"][index, : len(scales), at[slot]] = np.multiply(scales, NORM)

    # ── tokens and positions ──────────────────────────────────────────────────────────────────
    vocabulary = Vocabulary([*"0123456789+=", "<bos>", "<eos>"])
    d = np.arange(10.0)
    E, P = w["embed.W_E"], w["pos_embed.W_pos"]
    E[:10, at["digit"]] = d
    for token, slot in (("+", "is_plus"), ("=", "is_equals"), ("<bos>", "is_bos")):
        E[vocabulary.index(token), at[slot]] = 1
    E[vocabulary.index("="), at["sum"]] = unit / 2
    P[:, at["plus"]] = np.sqrt(layout.size / 2) * NORM
    P[:, at["minus"]] = -P[:, at["plus"]]
    P[:, at["position"]] = np.arange(config.n_ctx)

    # ── layer 0: marks ────────────────────────────────────────────────────────────────────────
    one = read(plus=np.sqrt(2 / layout.size))  # 1 after layer norm
    head(0, 0, [one], [read(is_plus=2 * far, is_bos=far)], [read(position=1), read(is_plus=1)],
         plus_at=[1], after_plus=[0, 1])  # fmt: skip
    head(0, 1, [one], [read(is_equals=2 * far, is_bos=far)], [read(is_equals=1)], after_equals=[1])

    # ── layer 1: the sum, and its length ──────────────────────────────────────────────────────
    head(1, 0,
         [one, NORM * read(position=LN10, plus_at=-LN10), far * one + NORM * read(plus_at=-LN10, is_equals=-far)],
         [read(position=-LN10, is_bos=sink + LN10), read(after_plus=1), read(is_bos=1)],
         [read(digit=1)], sum=[unit * np.exp(sink)])  # fmt: skip
    power = 10.0 ** np.arange(1, n + 1)
    w["blocks.1.mlp.W_in"][:] = read(sum=NORM / unit)[:, None]
    w["blocks.1.mlp.b_in"][:] = np.append(0.25 - power, -0.25 - power)
    w["blocks.1.mlp.W_out"][:, at["length"]] = np.repeat([2, -2], n)

    # ── layer 2: the next digit, and where the answer ends ────────────────────────────────────
    head(2, 0, [one, NORM * read(position=-LN10)],
         [read(position=-LN10, length=-LN10, after_equals=far, is_bos=sink + far), read(is_bos=1)],
         [read(sum=1), read(digit=1)], next=[np.exp(sink) / unit, -10 * np.exp(sink)])  # fmt: skip
    head(2, 1, [one], [read(is_equals=far)], [read(position=1, length=1)], end=[1])

    # ── the parabola; the 1 keeps the digits above the other tokens, whose logits are 0 ───────
    U = w["unembed.W_U"]
    U[:, :10] = np.outer(NORM * read(next=1), d) + np.outer(one, 1 - d * (d + 1) / 2)
    U[:, vocabulary.index("<eos>")] = 100 * (NORM * read(position=1, end=-1) - one / 2)
    U *= 2 / unit

    labels = Labels(
        slots=layout.slots,
        heads={
            "0.0": "where + is", "0.1": "whether = was", "1.0": "the sum, at =", "1.1": "idle",
            "2.0": "the sum shifted, less the digits written", "2.1": "where the answer ends",
        },
        neurons={f"1.{i}": f"the sum is {10**(i % n + 1)} or more, {'+-'[i // n]}" for i in range(2 * n)},
    )  # fmt: skip
    return Model(config, w, vocabulary, f"addition:digits={n},padding=none", labels)
