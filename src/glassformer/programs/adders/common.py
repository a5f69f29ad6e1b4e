"""Parts of all adders: a model from a few numbers, and the head that finds a column."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core.model import Config, Labels, Model
from ...core.weight_shapes import array_shapes
from ...parametrizations.formula import Formula
from ...tasks.addition import Addition
from ...tasks.digit_addition import DigitAddition

Terms = dict[str, list[tuple[Any, Any]]]
DIGITS = np.arange(10.0)


def build_adder(
    formula: Formula, numbers: Mapping[str, float], config: Config, task: Addition, labels: Labels
) -> Model:
    """Build the model that a formula defines for the given numbers."""
    theta = {name: np.array([numbers[name]], dtype=float) for name in formula.numbers}
    w, ref = formula.expand(theta, array_shapes(config)), formula.ref
    return Model(config, w, task.vocabulary, task.ref, labels, parametrization=ref, theta=theta)


def one_layer(task: DigitAddition, **choices: Any) -> Config:
    """Return the config of a one-layer adder, whose angle has the period of the distance a to b."""
    n_ctx, base = 3 * task.digits + 2 + len(task.between), (task.period / (2 * math.pi)) ** 2
    return Config(
        10, n_ctx, d_model=2, n_heads=1, d_head=4, d_mlp=3, activation="relu", eps=0.0,
        positions="rotary", base=base, scale=1.0, tied=True, **choices,
    )  # fmt: skip


def column_adder(c: Any, x: Any, y: Any, value: Any) -> Terms:
    """Return the terms of the embedding and the head of a column adder.

    Digits d are embedded as (c − d²/2c, −d). Attention depends only on distance: q is (x, y) in the
    second rotary pair, k is (1, 0). The head adds `value` times the mean of the second slot to that
    slot, and b_O adds 1; the neurons read the sum.
    """
    at = "blocks.0.attn."
    K, D = np.eye(4), np.eye(2)
    return {
        "embed.W_E": [(c, np.outer(DIGITS**0, D[0])), (-1 / (2 * c), np.outer(DIGITS**2, D[0])),
                      (-1, np.outer(DIGITS, D[1]))],
        at + "W_Q": [(1, np.zeros((1, 2, 4)))], at + "b_Q": [(x, K[None, 1]), (y, K[None, 3])],
        at + "W_K": [(1, np.zeros((1, 2, 4)))], at + "b_K": [(1, K[None, 1])],
        at + "W_V": [(1, np.outer(D[1], K[0])[None])],
        at + "W_O": [(value, -np.outer(K[0], D[1])[None])], at + "b_O": [(1, D[1])],
        "blocks.0.mlp.W_in": [(1, np.outer(D[1], [1, 1, 1]))],
    }  # fmt: skip


def adder_labels(task: DigitAddition) -> Labels:
    """Return the names of the slots, the head and the neurons of a one-layer adder."""
    n, slots = task.digits, {"lift": (0, 1), "digit": (1, 2)}
    heads = {"0.0": f"columns: {n} and {n + task.period} back by 10, one further by 1"}
    neurons = {"0.0": "turns the sign", "0.1": "t ≥ 10: the digit wraps …", "0.2": "… by 10"}
    return Labels(slots, heads, neurons)
