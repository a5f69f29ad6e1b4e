"""Reversing a sequence: one layer, one head, no MLP.

Let n be the length and count positions from 0, so that `=` stands at n. At position t, for t = n …
2n−1, the next token is the symbol at 2n−1−t: a reflection.

- Slots. `token`: the token's point on a ring. `position`: the place's point on a ring of 2n. Each
  is fixed under layer norm, so a row of both is, and layer norm does nothing.
- The head. A reflection of a circle is linear, like a rotation. The query is the position mirrored,
  so the score of position s is 3·cos of the angle from s to 2n−1−t, times the hardness that makes
  the best lead its neighbours by SCORE_LEAD; e^−SCORE_LEAD is far below rounding. What the head
  finds it writes on top of the token here, NORM_SCALE times. The stream then points to the right
  token but for an angle of 1/NORM_SCALE, and two tokens are 2π/14 apart (2π/40 with 36 symbols).
- The end. For t = 2n there is nothing to find. The position says `<EOS>`, NORM_SCALE times the
  head.
"""

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..craft import Head, Layout, hardness_for, mirror_matrix, ring
from ..registry import program
from ..tasks.reverse import Alphabet, Length, Reverse

SCORE_LEAD = 60.0
NORM_SCALE = 100.0


@program("reverse", float32=True)
def reverse(length: Length = 5, alphabet: Alphabet = 10) -> Model:
    """A sequence in reverse, by a head whose query is its mirrored position."""
    task, n = Reverse(length=length, alphabet=alphabet), length
    layout = Layout(token=3, position=3)
    token, position = layout["token"], layout["position"]
    V = len(task.vocabulary)
    config = Config(d_vocab=V, n_ctx=2 * n + 1, d_model=layout.size, d_head=3, tied=True)
    w = zeros(config)
    code = ring(V)
    w["embed.W_E"][:] = layout.row(token=code)
    w["pos_embed.W_pos"][:-1] = layout.row(position=ring(2 * n))
    w["pos_embed.W_pos"][-1] = layout.row(token=NORM_SCALE**2 * code[task.stop])
    head = Head(w, 0, 0)
    head.query[position] = hardness_for(2 * n, d_head=3, gap=SCORE_LEAD) * mirror_matrix(
        2 * n - 1, 2 * n
    )
    head.key[position] = np.eye(3)
    head.copy(token, token, NORM_SCALE)
    labels = Labels(layout.slots, {"0.0": "reads the mirrored position"})
    return Model(config, w, task.vocabulary, task.ref, labels)
