"""Addition without padding (exercise 6.20): one model for 4+8=12 and 84+88=172."""

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..core.vocabulary import Vocabulary
from ..craft import FixedNormLayout, Floats
from ..utils.errors import GlassformerError

MAX_DIGITS = 6
NORM_SCALE = 2.0**40
LN10 = float(np.log(10))
VOCABULARY = Vocabulary([*"0123456789+=", "<bos>", "<eos>"])


def unpadded_addition(digits: int) -> Model:
    """Return a model of `<bos>84+88=172<eos>`: numbers of 1 to `digits` digits without padding."""
    n = digits
    if not 1 <= n <= MAX_DIGITS:
        raise GlassformerError(f"padding=none — digits must be from 1 to {MAX_DIGITS}, got {n}")
    layout = FixedNormLayout(
        NORM_SCALE, digit=1, is_plus=1, is_equals=1, is_bos=1, position=1, plus_at=1, after_plus=1,
        after_equals=1, sum=1, length=1, next=1, end=1,
    )  # fmt: skip
    config = Config(
        14, 3 * n + 4, layout.size, n_layers=3, n_heads=2, d_head=3, d_mlp=2 * n,
        activation="relu", scale=1.0,
    )  # fmt: skip
    w = zeros(config, "mlp.b_in")
    for name in [name for name in w if ".mlp." in name and "blocks.1." not in name]:
        del w[name]
    unit = 10.0**-n  # The sum has units of 10^n, so that no slot is large.
    w["embed.W_E"][:10] = layout.row(digit=np.arange(10.0)[:, None])
    w["embed.W_E"][VOCABULARY.index("+")] = layout.row(is_plus=1)
    w["embed.W_E"][VOCABULARY.index("=")] = layout.row(is_equals=1, sum=unit / 2)
    w["embed.W_E"][VOCABULARY.index("<bos>")] = layout.row(is_bos=1)
    w["pos_embed.W_pos"][:] = layout.norm_row() + layout.row(
        position=np.arange(config.n_ctx)[:, None]
    )
    _heads(w, layout, n, unit)
    power = 10.0 ** np.arange(1, n + 1)
    w["blocks.1.mlp.W_in"][:] = layout.read(sum=NORM_SCALE / unit)[:, None]
    w["blocks.1.mlp.b_in"][:] = np.append(0.25 - power, -0.25 - power)
    w["blocks.1.mlp.W_out"][:, layout["length"]] = np.repeat([2, -2], n)[:, None]
    w["unembed.W_U"][:] = _answers(layout) * (2 / unit)
    heads = {
        "0.0": "where + is", "0.1": "whether = was", "1.0": "the sum, at =", "1.1": "idle",
        "2.0": "the sum shifted, less the digits written", "2.1": "where the answer ends",
    }  # fmt: skip
    steps = [f"the sum is {10**k} or more, {sign}" for sign in "+-" for k in range(1, n + 1)]
    labels = Labels(layout.slots, heads, {f"1.{i}": step for i, step in enumerate(steps)})
    return Model(config, w, VOCABULARY, f"addition:digits={n},padding=none", labels)


def _heads(w: dict[str, Floats], layout: FixedNormLayout, n: int, unit: float) -> None:
    """Set the heads: marks in layer 0, sum in layer 1, next digit and end in layer 2."""
    sink, far = (2 * n + 6) * LN10, (4 * n + 10) * LN10  # score of <bos>; score to exclude tokens
    read, one = layout.read, layout.read_one
    key, values = [read(is_plus=2 * far, is_bos=far)], [read(position=1), read(is_plus=1)]
    layout.write_head(w, 0, 0, [one], key, values, plus_at=[1], after_plus=[0, 1])
    key = [read(is_equals=2 * far, is_bos=far)]
    layout.write_head(w, 0, 1, [one], key, [read(is_equals=1)], after_equals=[1])
    from_plus = NORM_SCALE * read(position=LN10, plus_at=-LN10)
    query = [one, from_plus, far * one + NORM_SCALE * read(plus_at=-LN10, is_equals=-far)]
    key = [read(position=-LN10, is_bos=sink + LN10), read(after_plus=1), read(is_bos=1)]
    layout.write_head(w, 1, 0, query, key, [read(digit=1)], sum=[unit * np.exp(sink)])
    query, values = [one, NORM_SCALE * read(position=-LN10)], [read(sum=1), read(digit=1)]
    equals = read(position=-LN10, length=-LN10, after_equals=far, is_bos=sink + far)
    shift = [np.exp(sink) / unit, -10 * np.exp(sink)]
    layout.write_head(w, 2, 0, query, [equals, read(is_bos=1)], values, next=shift)
    layout.write_head(w, 2, 1, [one], [read(is_equals=far)], [read(position=1, length=1)], end=[1])


def _answers(layout: FixedNormLayout) -> Floats:
    """Return the unembedding [D,V].

    It is a parabola for digits, raised by 1 above the logit 0 of the other tokens, and <eos>.
    """
    d, U = np.arange(10.0), np.zeros((layout.size, len(VOCABULARY)))
    U[:, :10] = np.outer(NORM_SCALE * layout.read(next=1), d) + np.outer(
        layout.read_one, 1 - d * (d + 1) / 2
    )
    past_end = NORM_SCALE * layout.read(position=1, end=-1) - layout.read_one / 2
    U[:, VOCABULARY.index("<eos>")] = 100 * past_end
    return U
