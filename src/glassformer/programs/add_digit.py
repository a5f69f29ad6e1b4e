"""The program add-digit: the sum of two digits modulo the base, four ways (sections 6.1–6.6).

Digits are numbers here, so that a sum is a weighted mean and attention can make it. All but the
book's variant live in a stream of three dimensions: two free coordinates, x (the number) and h (the
height), lifted into the plane of zero mean. There layer norm is one thing only: (x, h) ↦ √3·(x,
h)/√(x² + h²). If h is much larger than x, it divides by h.

The tied head reads such a stream as a parabola. Let digit d be embedded as (d, −r·d²/2h), plus any
height they all share. Its logit for a stream (r·t, h) is then r·(d·t − d²/2) up to what all digits
share: largest for the d nearest to t, whatever the last layer norm did, as long as t is less than ½
from the right digit.
"""

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..core.model import Config, Labels, Model, zeros
from ..craft import Floats, Head, Layout, layer_norm, lift, polyline, spikes
from ..registry import program
from ..tasks.add_digit import AddDigit, Base
from ..utils.errors import GlassformerError


@program("add-digit", float32=True)
def add_digit(
    base: Base = 10, variant: Literal["hinge", "attention", "table", "book"] = "hinge"
) -> Model:
    """The last digit of the sum of two digits: `4 8` gives `2`.

    `hinge`: attention adds, two neurons take the base off a sum that carries. 56 parameters.
    `attention`: one layer and no MLP, which section 6.1 says is not enough. 60 parameters. `table`:
    attention adds, an MLP of n−1 neurons looks up the n sums (exercises 6.4 and 6.8). 183
    parameters. `book`: the booklet's Figure 6.2, a spike of three neurons per sum. 629 parameters.
    Up to base 13.
    """
    return {"hinge": _hinge, "attention": _attention, "table": _table, "book": _book}[variant](base)


def _hinge(base: int) -> Model:
    """Attention makes (gain·s + b, height), s = a + b; the MLP takes gain·base off if s ≥ base.

    The head is not aimed: it reads the mean of both tokens, (a + b)/2 over the height, and writes
    the sum `gain` times as large as the digit b that is still there. So t = s + b/gain is too large
    by at most 1/6. Neuron 0 fires from t = base − ¾ on, neuron 1 from where neuron 0 is at 1, t =
    base − ¼. No sum lies between, so their difference is exactly 0 or 1; the head rounds the rest.
    """
    gain, height = 6.0 * base, 10.0 * base**2
    config = _config(base, d_head=1, d_mlp=2, positions="none")
    weights = zeros(config, "mlp.b_in")
    d = np.arange(base)
    weights["embed.W_E"][:] = embed_in_plane(d, height - gain * d**2 / (2 * height))
    head = Head(weights, 0, 0)
    head.value[:, 0] = embed_in_plane(1, 0)
    head.output[0] = embed_in_plane(2 * gain * height / np.sqrt(3), 0)
    step_down(weights, gain * (base - 3 / 4), gain / 2, height, by=base * gain)
    neurons = {"0.0": "carry: on", "0.1": "carry: no more than 1"}
    return _model(config, weights, base, _PLANE, {"0.0": "mean of both: the sum"}, neurons)


def _attention(base: int) -> Model:
    """Addition mod base without an MLP: the carry is a contest of digits for a head's attention.

    With u = d − (base−1)/2 for a digit, position 0 shifts it far to the left, x_a = u_a − far − ½,
    and position 1 to the right, x_b = u_b + far. Layer norm leaves less height to the longer one,
    height/√(x² + height²). Head 1 looks, hardened, at the greater height: at a if far + ½ − u_a <
    far + u_b, that is if u_a + u_b > ½, that is if there is a carry. What it sees there is −far or
    far, give or take a digit, and it writes base/(2·far) times that: −base/2 or base/2. Head 0
    looks at position 0 and brings x_a; x_b is there already. All in all, and the shifts are gone,
    u_a + u_b − ½ ± base/2: the answer, counted from the middle as the digits are. Errors: a digit
    is at most base/2, so head 1 is off by at most (base/2)²/far = 1/12; and with height = 10·far
    layer norm shrinks u_a by 1 %. That is 0.16 at most of the ½ that the tied head allows.

    Section 6.1 assumes that a head adds a value that depends on one token. But its weight
    depends on all tokens: the softmax weights also carry information.
    """
    far = 3.0 * base**2
    height = 10 * far
    config = _config(base, n_heads=2, d_head=1)
    weights = zeros(config)
    u = np.arange(base) - (base - 1) / 2
    weights["embed.W_E"][:] = embed_in_plane(u, -(u**2) / (2 * height))
    weights["pos_embed.W_pos"][:] = embed_in_plane([-far - 0.5, far], height)
    x, h = lift(2)
    norm = np.hypot(far, height) / np.sqrt(3)  # divisor of layer norm
    reads_a, carry = Head(weights, 0, 0), Head(weights, 0, 1)
    reads_a.query[:, 0], reads_a.key[:, 0] = 1e3 * h, -x
    reads_a.value[:, 0], reads_a.output[0] = x, norm * x
    # The winner leads by at least 60·3/2.
    carry.query[:, 0], carry.key[:, 0] = 60 * height**2 / far * h, h
    carry.value[:, 0], carry.output[0] = x, norm * base / (2 * far) * x
    heads = {"0.0": "brings a", "0.1": "carry: the shorter wins"}
    return _model(config, weights, base, _PLANE, heads, {})


def _table(base: int) -> Model:
    """Figure 6.2 in three dimensions, with a table of n−1 neurons for the n = 2·base−1 sums.

    Digits are (u, √(3 − u²)), u = (d − (base−1)/2)/100: fixed under layer norm. The head's mean of
    both, times 10⁴, drowns the digit that is there. Pairs with one sum have almost, not quite, one
    height, and so land within 10⁻³ of a step from each other: the table, a polyline, hardly
    notices. It writes the answer, again so loudly that the rest is noise.
    """
    config = _config(base, d_head=2, d_mlp=2 * base - 2, positions="none")
    weights = zeros(config, "mlp.b_in", "mlp.b_out")
    u = (np.arange(base) - (base - 1) / 2) / 100
    rows = weights["embed.W_E"][:] = embed_in_plane(u, np.sqrt(3 - u**2))
    head = Head(weights, 0, 0)
    head.value[:], head.output[:] = lift(2).T, 1e4 * lift(2)
    sums = np.arange(2 * base - 1)
    mean = (sums - base + 1) / 200  # also fixed under layer norm, at the height √(3 − mean²)
    lookup = polyline(mean, rows[sums % base] * 1e8)
    lookup._replace(W_in=embed_in_plane(1, 0)[:, None] * lookup.W_in).write(weights, 0)
    return _model(config, weights, base, _PLANE, {"0.0": "mean of both: the sum"}, bend_names(sums))


def _book(base: int) -> Model:
    """Figure 6.2. Slots: value (d/100), one (always 1), rest (fixes the row under layer norm).

    The head brings the sum, and 1, both 10⁴ times as large as the stream. Layer norm makes of the
    sum a number that grows with it; for each there is a spike that writes the digit's row, 10¹⁰
    times as large as the stream.
    """
    if base > 13:
        raise GlassformerError(f"variant=book is right up to base 13 (sums are close), got {base}")
    layout = Layout(value=1, one=1, rest=2)
    sums = np.arange(2 * base - 1)
    config = _config(base, d_model=4, d_head=4, d_mlp=3 * len(sums))
    weights = zeros(config, "mlp.b_in", "mlp.b_out")
    rows = weights["embed.W_E"][:] = with_constant_norm(np.arange(base) / 100)
    number = layout.span("value", "one")
    Head(weights, 0, 0).copy(
        number, number, np.diag([200e4, 1e4])
    )  # 2 undoes the mean, 100 the unit
    seen = layer_norm(layout.row(value=sums[:, None] * 1e4, one=1e4))[:, 0]
    spikes(seen, rows[sums % base] * 1e10).in_stream(layout["value"], slice(0, 4), 4).write(
        weights, 0
    )
    names = spike_names(map("sum {}".format, sums))
    return _model(config, weights, base, layout.slots, {"0.0": "the sum, and 1"}, names)


# ── for this family of programs ────────────────────────────────────────────────────────────────
def embed_in_plane(x: npt.ArrayLike, h: npt.ArrayLike) -> Floats:
    """Return stream vectors [..., 3] with the two coordinates x and h."""
    x, h = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(h, dtype=float))
    out: Floats = np.stack([x, h], axis=-1) @ lift(2)
    return out


def step_down(w: dict[str, Floats], start: float, width: float, height: float, by: float) -> None:
    """Set two neurons that lower x, at this height, by `by` from `start` to `start` + `width`."""
    x = embed_in_plane(1, -start / height)[:, None]
    w["blocks.0.mlp.W_in"][:] = x * height / np.sqrt(3) / width
    w["blocks.0.mlp.b_in"][1] = -1
    w["blocks.0.mlp.W_out"][:] = np.outer([-1, 1], embed_in_plane(by, 0))


def with_constant_norm(x: npt.ArrayLike) -> Floats:
    """Return numbers x [n] as rows (x, 1, a, −x−a−1), [n, 4].

    The number a is chosen so that the sum of squares of a row is 4.
    """
    x = np.asarray(x, dtype=float)
    a = (-x - 1 + np.sqrt(-3 * x**2 - 2 * x + 5)) / 2
    out: Floats = np.stack([x, np.ones_like(x), a, -x - a - 1], axis=-1)
    return out


def spike_names(points: Iterable[str]) -> dict[str, str]:
    """Return the names of the neurons of craft.spikes, three per point."""
    parts = ("middle", "left arm", "right arm")
    names = [f"{point}: {part}" for point in points for part in parts]
    return {f"0.{i}": name for i, name in enumerate(names)}


def bend_names(sums: Any) -> dict[str, str]:
    """Return the names of the neurons of craft.table, whose polyline bends from the middle out."""
    middle = len(sums) // 2
    names = [f"from sum {s} up" for s in sums[middle:-1]]
    names += [f"from sum {s} down" for s in sums[1 : middle + 1][::-1]]
    return {f"0.{i}": name for i, name in enumerate(names)}


_PLANE = {"number and height": (0, 3)}


def _config(base: int, d_model: int = 3, **options: Any) -> Config:
    return Config(base, 2, d_model, eps=0.0, activation="relu", tied=True, **options)


def _model(config: Config, weights: Any, base: int, slots: Any, heads: Any, neurons: Any) -> Model:
    task = AddDigit(base)
    return Model(config, weights, task.vocabulary, task.ref, Labels(slots, heads, neurons))
