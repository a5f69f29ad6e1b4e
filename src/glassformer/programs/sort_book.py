"""The booklet's sort: points on a circle that halve their distances (5.2), and a sister (ex. 5.1).

Why it works. Number i stands at p_i, with p_(i+1) = p_i + rⁱ (r = ½), stretched onto an arc of the
√3-circle. Then from a place q_i just after p_(i+1), the nearest of all points is p_(i+1), then
p_(i+2), …, and p_i and those before it are farther than all of these. So a token that holds p_i and
q_i (q is not linear in p, hence stored) finds the next larger number by looking at the p nearest to
its q: one head, 6 dimensions. The head writes both so loudly that the token's own vanish.

Margins shrink by 4 with every number: cosines of angles δ apart differ by δ²/2, and at 28 tokens
that is the last bit of float64. The booklet's arc is the half circle; there the last scores at 28
tokens may tie, and whether the right token wins depends on how sums happen to round. Nothing
forbids more of the circle: seen the short way round, p_0 stays farther from q_i than all larger
numbers up to a full turn. `book` takes 1.9π and has 30 units of rounding to spare at 28; at 30 it
is wrong. In float32 the loudness, 1e20, overflows when layer norm squares it.

`aim` says where q_i is, as a share of the way from p_(i+1) to p_(i+2); below ½ all is well, the
booklet has ¼. A larger ratio r loses precision more slowly. All later points lie within
r^(i+1)/(1−r) after p_(i+1), and must be nearer to q_i than p_i is: r/(1−r) < 1 + 2·aim·r. With aim
→ ½ that is r² + r < 1: the limit is the golden ratio, 0.618. `golden` has r = 0.6 and aim = 0.45.
"""

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..craft import Floats, circle
from ..tasks.sort import number_tokens


def powerpoints(vocab: int, ratio: float, arc: float) -> Floats:
    """Angles from 0 to `arc` whose distances shrink by `ratio`."""
    points = np.append(0.0, np.cumsum(ratio ** np.arange(vocab - 1)))
    return np.asarray(points * (arc / points[-1]))


def powerpoint_sort(
    vocab: int, length: int, low: int = 1, *, ratio: float = 0.5, aim: float = 0.25,
    arc: float = np.pi,
) -> Model:  # fmt: skip
    """The construction with any constants, right or not; by default, of Figures 5.4 and 5.5."""
    angles = powerpoints(vocab, ratio, arc)
    # The last: one larger, none
    wanted = np.append(angles[1:-1] * (1 - aim) + angles[2:] * aim, [arc, 0.0])
    config = Config(vocab, 100, 6, d_head=6, tied=True, eps=0.0, activation="relu")
    w = zeros(config, "mlp", "mlp.b_out")
    w["embed.W_E"] = np.concatenate([circle(angles), circle(wanted)], axis=1)  # V D
    w["blocks.0.attn.W_Q"][0, 3:, :3] = np.eye(3) * 1e20
    w["blocks.0.attn.W_K"][0, :3, :3] = np.eye(3)
    w["blocks.0.attn.W_V"][0] = np.eye(6) * 1e20
    w["blocks.0.attn.W_O"][0] = np.eye(6)
    labels = Labels({"point": (0, 3), "next": (3, 6)}, {"0.0": "reads the next larger number"})
    task = f"sort:vocab={vocab},length={length},low={low}"
    return Model(config, w, number_tokens(vocab, low), task, labels)
