"""`sort-digits`: sorting numbers spelled with several digits, a token a digit (exercise 5.7).

    12 07 35 00  →  07 12 35        the number 0 ends the list, as in `sort`

Why it works. **Layer 0 reads numbers.** Beside the ring of positions there is a second one that
holds, at every position, where the last complete number ended; head i looks from there at its digit
i. So every position holds the bits of the last number that was complete there, all digits in a row;
written so, digit by digit, bits keep the order of numbers. One neuron fires where they are all 0:
the delimiter. The first positions, within the first number, have read none and are marked void.

**Layer 1 is `sort_bits`**, on those bits: head (p, i) finds the next larger number that first
differs in bit p. It answers only where digit i is to be said, which the position decides; elsewhere
the delimiter gets more than any number can. It then says the bits of digit i, 4^(p+1) times as loud
as a digit is. Within an answer the last complete number is the one before it, so that the search is
the same until the last digit has been said.

All rows have mean 0 and, in each layer, one length: flags come in pairs of which one is 1, and
`minus` balances.
"""

from typing import Annotated, Any

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..core.vocabulary import Vocabulary
from ..craft import Head, Layout, hardness_for, ring, shift_matrix
from ..registry import Between, program
from ..tasks.sort import Base, Digits
from ..utils.errors import GlassformerError
from .sort_bits import HARDNESS, as_bits, attend_next_larger, write_bits


def _float32(options: dict[str, Any]) -> str:
    """Return the reason why float32 fails: the delimiter's value −1 + 1 has an error of 1e-7.

    The last head multiplies the error by 4^m.
    """
    bits = (options["base"] - 1).bit_length() * options["digits"]
    why = f"numbers of {bits} bits leave too much of the delimiter (at most 8 do not)"
    return why if bits > 8 else ""


@program("sort-digits", float32=_float32)
def sort_digits(
    digits: Digits = 2, base: Base = 10, length: Annotated[int, Between(1, 100)] = 8
) -> Model:
    """A list of numbers of several digits each, then the list sorted; the number 0 ends the
    list.
    """
    width = (base - 1).bit_length()  # bits per digit
    m = width * digits
    if m > 12:
        raise GlassformerError(f"digits and base — at most 12 bits were expected, got {m}")
    length = min(length, base**digits - 1)
    at = Layout(
        digit=width, mirror=width, number=m, number_mirror=m, position=3, ended=3, place=digits,
        void=1, read=1, end=1, listed=1, minus=1, balance=1,
    )  # fmt: skip
    config = Config(
        base, digits * (2 * length + 1), at.size, n_layers=2, n_heads=m * digits, d_head=m + 1,
        d_mlp=1, tied=True, eps=0.0, activation="relu",
    )  # fmt: skip
    w = zeros(config)
    bits = as_bits(base, width)
    w["embed.W_E"] = at.row(digit=bits, mirror=-bits, listed=1, minus=-1, balance=-2)
    w["pos_embed.W_pos"] = _positions(at, config.n_ctx, digits)
    names = _read_numbers(w, at, config.n_ctx, digits) | _find_next(w, at, digits)
    task = f"sort-digits:digits={digits},base={base},length={length}"
    labels = Labels(at.slots, names, {"0.0": "the number is 0"})
    return Model(config, w, Vocabulary("0123456789"[:base]), task, labels)


def _positions(at: Layout, n: int, digits: int) -> Any:
    """Return position rows.

    They encode the position, the end of the last number, the next digit and whether a number was
    read.
    """
    t = np.arange(n)
    ended = (t + 1) // digits * digits - 1
    circle = ring(n, points_per_turn=2 * n)  # Half a circle has no shorter way around.
    void, place = (ended < 0)[:, None], np.eye(digits)[(t + 1) % digits]
    last = circle[np.maximum(ended, 0)]
    return at.row(position=circle, ended=last, place=place, void=void, read=~void)


def _read_numbers(w: dict[str, Any], at: Layout, n: int, digits: int) -> dict[str, str]:
    m, width = at["number"].stop - at["number"].start, at["digit"].stop
    row = w["embed.W_E"][0] + w["pos_embed.W_pos"][0]
    square = np.mean(row**2)
    # Divisors of the layer norms.
    before, after = np.sqrt(square), np.sqrt(square + 2 * m / at.size)
    hardness, names = hardness_for(2 * n, m + 1), {}
    for i in range(digits):
        head = Head(w, 0, i)
        head.query[at["ended"], :3] = shift_matrix(i - digits + 1, 2 * n) * hardness
        head.key[at["position"], :3] = np.eye(3)
        for slot, sign in (("number", 1), ("number_mirror", -1)):
            start = at[slot].start + i * width
            head.value[at["digit"], :width] = np.eye(width)
            head.output[:width, start : start + width] = sign * np.eye(width) * before
        names[head.name] = f"reads digit {i} of the last number"
    # −Σ bits is m if all bits are 0, else at most m − 2. The neuron gets 1, or at most −1.
    w["blocks.0.mlp.W_in"][at["number"], 0] = -1
    w["blocks.0.mlp.W_in"][at["minus"], 0] = m - 1
    w["blocks.0.mlp.W_out"][0, at["end"]], w["blocks.0.mlp.W_out"][0, at["listed"]] = after, -after
    return names


def _find_next(w: dict[str, Any], at: Layout, digits: int) -> dict[str, str]:
    m, width = at["number"].stop - at["number"].start, at["digit"].stop
    names = {}
    for i in range(digits):
        for p in range(m):
            head = Head(w, 1, i * m + p)
            attend_next_larger(head, p, at["number"], at["end"], at["minus"])
            much = 2.0 ** (m - 1 - p) * 2 * (m + 2)  # exceeds the range of all scores
            elsewhere = [at["place"].start + j for j in range(digits) if j != i]
            head.query[elsewhere, p] = much * HARDNESS * np.sqrt(head.d_head)
            head.key[at["void"], p + 1] = -much
            start = at["number"].start + i * width
            write_bits(head, slice(start, start + width), at["digit"], at["end"], 4.0 ** (p + 1))
            names[head.name] = f"reads digit {i} of the next above that first differs in bit {p}"
    return names
