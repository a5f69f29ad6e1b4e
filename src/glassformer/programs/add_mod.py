"""The program add-mod: one digit of the sum of two numbers (section 6.7 and its exercises).

At `=` attention makes the whole sum as one number, and an MLP makes the digit from it. The
booklet's MLP has a spike for each of the 2·10ⁿ−1 sums. None is needed: the tied head rounds by
itself, so only "modulo 10" is left to do.
"""

from collections.abc import Callable
from itertools import product
from typing import Any, Literal

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..craft import Floats, Head, Layout, Neurons, layer_norm, polyline, ring, spikes
from ..registry import program
from ..tasks.add_mod import PLACES, AddMod, Digits, Place
from ..utils.errors import GlassformerError
from .add_digit import bend_names, embed_in_plane, spike_names, step_down, with_constant_norm


def _float32(options: dict[str, Any]) -> str:
    if options["variant"] in ("book", "printed") and options["digits"] > 1:
        right = "variant=table and variant=hinge are right"
        return f"layer norm leaves the sums too close together; {right}"
    if options["variant"] == "hinge" and options["place"] == "thousands" and options["digits"] > 3:
        return "eight digits are too many to weigh by place value; place=hundreds is right"
    return ""


@program("add-mod", float32=_float32)
def add_mod(
    digits: Digits = 2, place: Place = "ones",
    variant: Literal["hinge", "table", "book", "printed"] = "hinge",
) -> Model:  # fmt: skip
    """One digit of the sum of two numbers: `12+33=` gives `5`, with place=tens `4`.

    `hinge`: the heights of positions weigh the digits, two neurons take 10 off. 68 + 6·digits
    parameters. `table`: Figure 6.3 after exercises 6.4 (a table of n−1 neurons), 6.11 (one head a
    place), 6.14 (none to clean up) and 6.16 (the sum divided by 10ⁿ). 473 / 3,271 / 30,369
    parameters for 1 / 2 / 3 digits. `book`: the booklet's Figure 6.3, with rows of `+` and `=` that
    differ from that of 0. 1,226 / 9,508 / 90,690 parameters for 1 / 2 / 3 digits. `printed`: the
    figure as printed, where they are equal. Its 0 ties with `+` and `=`, which `verify` counts as
    wrong.
    """
    if variant == "hinge":
        return _hinge(digits, place)
    if digits > 3:
        most = f"digits must be at most 3, got {digits}"
        raise GlassformerError(f"variant={variant} has neurons for every sum: {most}")
    if variant != "table":
        return figure_6_3(digits, place, printed=variant == "printed")
    return figure_6_3(digits, place, unit=10.0**digits, neurons=polyline, shared=True, tidy=False)


def _hinge(digits: int, place: Place) -> Model:
    """Two coordinates, a number x and a height h, as in add-digit; layer norm divides by h.

    The digit d of an operand is x = d − m, at the height 500·10^i if it is i places below the
    requested one. The head is not aimed: the mean of what it reads has every digit at its place
    value. Higher places, 10⁸ times as high, are not heard; `+` and `=` have x = 0. After it `=`
    holds (v, 500), v = Σ 10^−i·(a_i + b_i − 2m). With d − m for the digits, the tied head rounds v
    + m (see add-digit); we want it to cut, so Σ 10^−i·2m − m should be ½·(1 − step), step =
    10^−column being the least difference of two v: that is m. So the sum is never nearer than
    ½·step to where the head's choice turns. "Modulo 10" is done by two neurons: one fires from just
    below 10 on, the other from where the first is at 1. Their difference is exactly 0 or 1, and
    they take off ten times that.

    Layer norm is linear here because h − d²/2h, which the head needs, is also what keeps x² + h²
    the same for all d.
    """
    task = AddMod(digits, place)
    column = PLACES.index(place)
    height, step = 500.0, 10.0**-column
    # Distance of each digit's place below the requested one.
    below = column - np.arange(digits - 1, -1, -1.0)
    weigh = np.sum(10 ** -below[below >= 0])
    m = (1 - step) / 2 / (2 * weigh - 1)
    config = Config(12, 2 * digits + 2, 3, d_head=1, d_mlp=2, eps=0.0, activation="relu", tied=True)
    weights = zeros(config, "mlp.b_in")
    x = np.arange(10) - m
    weights["embed.W_E"][:10] = embed_in_plane(x, -(x**2) / (2 * height))
    weights["embed.W_E"][10:] = embed_in_plane(
        0, -1
    )  # + and = are below every digit and are never the answer.
    heights = height * 10 ** np.where(below < 0, 8, below)
    weights["pos_embed.W_pos"][:] = embed_in_plane(0, np.concatenate([heights, [height + 1]] * 2))
    head = Head(weights, 0, 0)
    head.value[:, 0] = embed_in_plane(1, 0)
    head.output[0] = embed_in_plane(config.n_ctx * height / np.sqrt(3), 0)
    ten = 10 - 2 * m * weigh
    step_down(weights, ten - step * 3 / 4, step / 2, height, by=10)
    neurons = {"0.0": "10 or more: on", "0.1": "10 or more: no more than 1"}
    labels = Labels({"number and height": (0, 3)}, {"0.0": "mean of all: the sum"}, neurons)
    return Model(config, weights, task.vocabulary, task.ref, labels)


def figure_6_3(
    digits: int, place: Place = "ones", *, unit: float = 1.0, shared: bool = False,
    neurons: Callable[..., Neurons] = spikes, tidy: bool = True, printed: bool = False,
) -> Model:  # fmt: skip
    """Return the model of the booklet's Figure 6.3, with the changes of its exercises.

    Stream: value (d/100 of the token, then the sum), one (always 1), rest (makes token rows fixed
    under layer norm), position (a ring). A head per digit looks back to it from `=` and
    adds its digit·10^k to the value; the last head clears the rest. Then layer norm makes a number
    of the sum that depends on nothing else, and the MLP has that number for every sum, and writes
    the digit so loudly that the rest of the stream is noise.

    `unit`: the sum is divided by it (6.16): at 1,000 and more, one beside it is as good as 0, and
    layer norm makes sums alike. `neurons`: craft.table (6.4). `shared`: both digits of a place
    stand at the same point of the ring, so that one head reads their mean (6.11). `tidy=False`: no
    clearing (6.14): `=` is always the same token, so what it leaves in `rest` is a constant, and
    the MLP may as well know it. `printed`: the rows of `+` and `=` are that of 0, see `token_rows`.
    """
    layout = Layout(value=1, one=1, rest=2, position=3)
    task, column = AddMod(digits, place), PLACES.index(place)
    sums = np.arange(2 * 10**digits - 1)
    n_ctx, reads = 2 * digits + 2, digits * (1 if shared else 2)
    config = Config(
        12, n_ctx, d_model=7, n_heads=reads + tidy, d_head=3, eps=0.0, activation="relu", tied=True,
        d_mlp=3 * len(sums) if neurons is spikes else len(sums) - 1,
    )  # fmt: skip
    weights = zeros(config, "mlp.b_in", "mlp.b_out")
    tokens = token_rows(printed)
    weights["embed.W_E"][:, :4] = tokens
    around = digits + 1 if shared else n_ctx  # The sign follows the digits.
    points = np.arange(n_ctx) % around
    weights["pos_embed.W_pos"][:, layout["position"]] = ring(around)[points]
    heads = {}
    for i, (back, k) in enumerate(product([1] if shared else [1, digits + 2], range(digits))):
        head = Head(weights, 0, i)
        head.attend_back(back + k, layout["position"], around, hardness=1e6)
        head.copy(layout["value"], layout["value"], 100 * 10**k / unit * (2 if shared else 1))
        heads[head.name] = f"{10**k}s of " + ("both" if shared else "b" if back == 1 else "a")
    rest = tokens[-1, 2:]
    if tidy:
        head = Head(weights, 0, reads)
        head.attend_to_self(layout["position"], hardness=1e6)
        head.erase(layout["rest"])
        heads[head.name] = "clears the rest"
        rest = 0 * rest
    own = ring(around)[points[-1]]
    seen = layout.row(value=sums[:, None] / unit, one=1, rest=rest, position=own)
    digit = tokens[sums // 10**column % 10] * 1e10
    neurons(layer_norm(seen)[:, 0], digit).in_stream(layout["value"], slice(0, 4), 7).write(
        weights, 0
    )
    names = spike_names(map("sum {}".format, sums)) if neurons is spikes else bend_names(sums)
    return Model(config, weights, task.vocabulary, task.ref, Labels(layout.slots, heads, names))


def token_rows(printed: bool = False) -> Floats:
    """Return the rows of the ten digits, + and = in Figures 6.3 and 6.4, [12, 4].

    The booklet gives + and = the row of 0. As the unembedding has the same rows, the logits of 0, +
    and = are equal whenever 0 is the answer, and it is right only because np.argmax returns the
    lowest index. By default + and = get two coordinates of that row exchanged: their value is still
    0 and their norm the same, and no logits are equal.
    """
    digits = with_constant_norm(np.arange(10) / 100)
    signs = digits[[0, 0]]
    return np.concatenate([digits, signs if printed else signs[:, [0, 1, 3, 2]]])


def min_separation(model: Model) -> float:
    """Return the minimum distance between two sums at the input of a booklet MLP of spikes."""
    return float(1 / model.weights["blocks.0.mlp.W_in"].max())
