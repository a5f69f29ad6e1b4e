"""Sorting by bits: the next larger number, for large vocabularies (exercises 5.4 to 5.6).

Why it works. A list is followed by the delimiter, 0, and every answer is the smallest number of the
list above the token just read; at first that token is the delimiter, below all. Write numbers with
m bits, most significant first, as signs ±1. A number above q agrees with q in its first p bits, for
one p, and then has a 1 where q has a 0. Head p looks for the smallest of those; the larger p, the
closer to q is what it finds. Its scores:

    a number k      C·(q·k over the first p bits + k_p) − R(k)
    the delimiter   C·(p + 1 + q_p)

with R(k) the bits after p read as a number, which is below C = 2^(m−1−p). Where q_p is 0 (−1), a
number of the kind looked for has C(p+1) − R, at least 1 above the delimiter's C·p; all others have
at most C(p−1). Where q_p is 1, no number reaches the delimiter's C(p+2). Scores are whole numbers,
so the best leads by 1 or more, times HARDNESS. A head that finds nothing reads the delimiter: 0.

Head p writes 4^(p+1) times what it found: louder than all before it together (4 + … + 4^p <
4^(p+1)/3, and the token itself has 2), so the sign of every bit is that of the closest number
found, and with the embedding as head that number wins. When nothing is larger, the token repeats.

The mirror, −bits, gives every row mean 0 and one length: layer norm is then a constant factor, the
same for all tokens.

**Repeats** need two layers before this one. The first marks what comes after the delimiter. The
second lets a token look at its equals, c in the list and r among the answers: the mean of +1 for an
answer and −1 for the list is (r − c)/(r + c), below 0 until the token has been given often enough,
then 0. Then one more head, the loudest, looks for the token itself, and at the delimiter once that
mean is 0.
"""

from typing import Any

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..craft import Head, Layout
from ..tasks.sort import number_tokens

# e^-60 = 1e-26 is negligible even after scaling by 4^17, and scores stay exact in float32.
HARDNESS = 60.0
BIT_SCALE = 0.01  # small, so that writing a mean does not change a row's length


def as_bits(n: int, m: int) -> Any:
    """Return the numbers 0 … n−1 as rows of m bits ±1, most significant first, [n, m]."""
    return 2.0 * (np.arange(n)[:, None] >> np.arange(m)[::-1] & 1) - 1


def attend_next_larger(head: Head, p: int, bits: slice, end: slice, minus: slice) -> None:
    """Attend to the smallest number that agrees in p bits and then has 1 for 0, or the delimiter.

    `end` is 1 at the delimiter and 0 elsewhere; `minus` is −1 everywhere. The head uses p + 2
    dimensions.
    """
    m, hardness = bits.stop - bits.start, HARDNESS * np.sqrt(head.d_head)
    c, first, rest = 2.0 ** (m - 1 - p), bits.start, np.arange(bits.start + p + 1, bits.stop)
    _match_bits(head, p, first, end, c * hardness)
    head.query[first + p, p] = c * hardness
    head.key[end, p] = 1
    head.query[minus, p + 1] = -hardness
    head.key[first + p, p + 1] = c
    # Half of a bit's score; signs differ by 2.
    head.key[rest, p + 1] = -(2.0 ** (bits.stop - 2 - rest))
    head.key[end, p + 1] = c * (p + 2)  # p + 1, and 1 for the bit p of the delimiter, −1


def _match_bits(head: Head, n: int, first: int, end: slice, hardness: float) -> None:
    """Compare n bits in the first n dimensions of a head.

    The delimiter's bits, all −1, become 0, so that it never matches.
    """
    for i in range(n):
        head.query[first + i, i] = hardness
        head.key[first + i, i] = head.key[end, i] = 1


def write_bits(head: Head, source: slice, target: slice, end: slice, loudness: float) -> None:
    """Write the bits of the attended token; write 0 for the delimiter."""
    head.copy(source, target, loudness)
    head.value[end, : source.stop - source.start] = 1


def bitwise_sort(vocab: int, length: int, low: int, repeats: bool) -> Model:
    m = (vocab - 1).bit_length()
    extra = dict.fromkeys(("before", "after", "balance", "done", "undone"), 1) if repeats else {}
    at = Layout(bits=m, mirror=m, number=1, end=1, minus=1, **extra)
    config = Config(
        vocab, 2 * length + 1, at.size, n_layers=3 if repeats else 1, n_heads=m + repeats,
        d_head=m + 1 + repeats, positions="none", tied=True, eps=0.0,
    )  # fmt: skip
    w = zeros(config)
    bits, is_end = as_bits(vocab, m), (np.arange(vocab) == 0)[:, None]
    w["embed.W_E"] = at.row(bits=bits, mirror=-bits, number=~is_end, end=is_end, minus=-1)
    if repeats:
        w["embed.W_E"] += at.row(before=1, balance=-1)
    last, names = config.n_layers - 1, {}
    for p in range(m):
        head = Head(w, last, p)
        attend_next_larger(head, p, at["bits"], at["end"], at["minus"])
        write_bits(head, at["bits"], at["bits"], at["end"], 4.0 ** (p + 1))
        names[head.name] = f"reads the next above that first differs in bit {p}"
    if repeats:
        names |= _add_repeats(w, at, length)
    task = f"sort:vocab={vocab},length={length},repeats={str(repeats).lower()},low={low}"
    return Model(config, w, number_tokens(vocab, low), task, Labels(at.slots, names))


def _add_repeats(w: dict[str, Any], at: Layout, length: int) -> dict[str, str]:
    """Add the layers and the head that write a number as many times as it was read."""
    m, row = at["bits"].stop, w["embed.W_E"][0]
    norm = float(np.sqrt(np.mean(row * row)))  # divisor of layer norm, which the flags undo
    marker, counter, again = Head(w, 0, 0), Head(w, 1, 0), Head(w, 2, m)
    hardness = HARDNESS * np.sqrt(marker.d_head)

    marker.query[at["minus"], 0] = -hardness
    marker.key[at["end"], 0] = marker.value[at["end"], 0] = 1
    marker.output[0, at["after"]], marker.output[0, at["before"]] = norm, -norm

    counter.attend_by_content(at["bits"], at["bits"], hardness)
    counter.value[at["after"], 0], counter.value[at["before"], 0] = 1, -1
    counter.output[0, at["done"]], counter.output[0, at["undone"]] = BIT_SCALE, -BIT_SCALE

    # Equal numbers score m. The delimiter scores m + ½ if the mean is 0, else at most m − ½.
    _match_bits(again, m, 0, at["end"], hardness)
    again.query[at["minus"], m] = -hardness * (m + 0.5)
    again.query[at["done"], m] = hardness * 2 * length / BIT_SCALE
    again.key[at["end"], m] = 1
    write_bits(again, at["bits"], at["bits"], at["end"], 4.0 ** (m + 1))
    return {
        marker.name: "marks what comes after the delimiter",
        counter.name: "compares how often the token was read and said",
        again.name: "reads the token again, unless it was said often enough",
    }
