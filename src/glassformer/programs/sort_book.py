"""The booklet's sort: points on a circle at halving distances (5.2), and exercise 5.1."""

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..craft import Floats, circle
from ..tasks.sort import number_tokens


def powerpoints(vocab: int, ratio: float, arc: float) -> Floats:
    """Return angles from 0 to `arc` whose distances shrink by `ratio`."""
    points = np.append(0.0, np.cumsum(ratio ** np.arange(vocab - 1)))
    return np.asarray(points * (arc / points[-1]))


def next_points(angles: Floats, aim: float, arc: float) -> Floats:
    """Return for each angle one that is nearest to the next larger, then to the one after it.

    It lies the share `aim` beyond the next. The last two angles have one larger angle and none.
    """
    return np.append(angles[1:-1] * (1 - aim) + angles[2:] * aim, [arc, 0.0])


def powerpoint_sort(
    vocab: int, length: int, low: int = 1, *, ratio: float = 0.5, aim: float = 0.25,
    arc: float = np.pi, block: int = 100,
) -> Model:  # fmt: skip
    """Return the construction with any constants, even if the model is then wrong.

    The defaults are the constants of Figures 5.4 and 5.5.
    """
    angles = powerpoints(vocab, ratio, arc)
    wanted = next_points(angles, aim, arc)
    config = Config(vocab, block, 6, d_head=6, tied=True, eps=0.0, activation="relu")
    w = zeros(config, "mlp", "mlp.b_out")
    w["embed.W_E"] = np.concatenate([circle(angles), circle(wanted)], axis=1)  # V D
    w["blocks.0.attn.W_Q"][0, 3:, :3] = np.eye(3) * 1e20
    w["blocks.0.attn.W_K"][0, :3, :3] = np.eye(3)
    w["blocks.0.attn.W_V"][0] = np.eye(6) * 1e20
    w["blocks.0.attn.W_O"][0] = np.eye(6)
    labels = Labels({"point": (0, 3), "next": (3, 6)}, {"0.0": "reads the next larger number"})
    task = f"sort:vocab={vocab},length={length},low={low}"
    return Model(config, w, number_tokens(vocab, low), task, labels)
