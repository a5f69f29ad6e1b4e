"""Decimal addition as in the booklet (section 6.8, Figure 6.4): analog sums, a spike for each."""

from collections.abc import Sequence
from itertools import product

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..craft import Floats, Head, Layout, layer_norm, ring, spikes
from ..tasks.addition import Addition
from ..utils.errors import GlassformerError
from .add_digit import spike_names
from .add_mod import token_rows

LAYOUT = Layout(value=1, one=1, rest=2, position=3)


def book_addition(digits: int, printed: bool = False) -> Model:
    """Return the model of the booklet's Figure 6.4, with its tokens as printed or made different.

    It is right on every pair in float64, and in float32 for 1 and 2 digits: with 3 digits the codes
    of the sums are 3.5·10⁻⁷ apart, below float32 resolution. As printed it is right if of equal
    logits the one of the lowest token counts, see `token_rows`.
    """
    if digits > 3:
        most = f"digits must be at most 3, got {digits}"
        variant = "printed" if printed else "book"
        raise GlassformerError(f"variant={variant} has neurons for every sum: {most}")
    return figure_6_4(digits, printed=printed)


def figure_6_4(
    digits: int, unit: float = 1 / 100, mix: Sequence[float] = (1, 0, 0), printed: bool = False
) -> Model:
    """Return Figure 6.4. A 1 in the sum counts `unit`; `mix` weighs the position (6.18, 6.19).

    Stream: value (d/100 of the token, then the code), one (always 1), rest (makes token rows fixed
    under layer norm), position (a ring over the whole block). A head per digit of the operands
    looks at its position from everywhere, by a query made of `one`, and adds unit·10^k·digit to the
    value. The last head looks at its own position: it takes the token's value and rest away, and
    adds mix·position. So the value is a code of the sum and of which digit is due: the position's
    row has length √3 wherever it is, so what layer norm makes of the code depends on the code only.
    The MLP has a spike for each of the (digits+1)·(2·10ⁿ−1) codes and writes its digit 10¹⁰ times
    as large as the stream. The margin is the margin of two digits' rows: values differ by 1/100.
    """
    task, n_ctx, reads = Addition(digits), 3 * digits + 2, 2 * digits
    sums = np.arange(2 * 10**digits - 1)
    config = Config(
        12, n_ctx, d_model=7, n_heads=reads + 1, d_head=3, eps=0.0, activation="relu", tied=True,
        d_mlp=3 * (digits + 1) * len(sums),
    )  # fmt: skip
    weights = zeros(config, "mlp.b_in", "mlp.b_out")
    tokens = token_rows(printed)
    weights["embed.W_E"][:, :4] = tokens
    weights["pos_embed.W_pos"][:, LAYOUT["position"]] = ring(n_ctx)
    heads = {}
    for i, (start, k) in enumerate(product([0, digits + 1], range(digits))):
        head, place = Head(weights, 0, i), start + digits - 1 - k
        head.attend_to_position(
            place, LAYOUT["position"], n_ctx, hardness=1e6, constant_dim=LAYOUT["one"].start
        )
        head.copy(LAYOUT["value"], LAYOUT["value"], 100 * unit * 10**k)
        heads[head.name] = f"{10**k}s of {'b' if start else 'a'}"
    own = Head(weights, 0, reads)
    own.attend_to_self(LAYOUT["position"], hardness=1e6)
    own.erase(LAYOUT["rest"])
    own.value[LAYOUT["value"], 2], own.value[LAYOUT["position"], 2] = -1, mix
    own.output[2, LAYOUT["value"]] = 1
    heads[own.name] = "which digit is due; clears the rest"
    due = np.arange(digits, -1, -1)  # places of the answer's digits in order of writing
    digit = sums[:, None] // 10**due % 10  # S n+1
    lookup = spikes(mlp_inputs(digits, unit, mix), tokens[digit.ravel()] * 1e10)
    lookup.in_stream(LAYOUT["value"], slice(0, 4), config.d_model).write(weights, 0)
    names = spike_names(f"sum {s}, {10**k}s" for s, k in product(sums, due))
    return Model(config, weights, task.vocabulary, task.ref, Labels(LAYOUT.slots, heads, names))


def mlp_inputs(digits: int, unit: float = 1 / 100, mix: Sequence[float] = (1, 0, 0)) -> Floats:
    """Return the MLP's input in the value slot for every sum and each answer digit."""
    sums, positions = np.arange(2 * 10**digits - 1), ring(3 * digits + 2)[-digits - 1 :]
    codes = unit * sums[:, None] + positions @ np.asarray(mix, dtype=float)  # S n+1
    return layer_norm(LAYOUT.row(value=codes.reshape(-1, 1), one=1, position=positions[0]))[:, 0]
