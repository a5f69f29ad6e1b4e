"""Counts, against counting by hand."""

import numpy as np

from glassformer import Config, Model, Vocabulary
from glassformer.count import count
from glassformer.model import zeros
from helpers import random_model


def test_by_hand():
    config = Config(3, 4, 2, tied=True, eps=1e-9, scale=2.0)
    w = zeros(config, "ln_final.w")
    w["embed.W_E"][:] = [[1, -1], [5, 0], [5, 7]]
    w["ln_final.w"][:] = 1
    c = count(Model(config, w, Vocabulary("abc")))
    assert c.total == c.unique == 3 * 2 + 4 * 2 + 4 * 4 + 2
    assert c.nonzero == 5 + 2
    assert c.distinct == 5  # 0, 1, -1, 5, 7
    assert c.strict == 4  # 5, 7, eps, scale
    assert c.embedding == 14 and c.nonzero_embedding == 5 and c.non_embedding == 18
    assert c.booklet == c.total - 2
    assert c.arrays["pos_embed.W_pos"] == 8 and c.nonzero_arrays["pos_embed.W_pos"] == 0


def test_a_tied_head_counts_once():
    tied, untied = (count(random_model(tied=t)) for t in (True, False))
    assert untied.total - tied.total == 7 * 4 == untied.embedding - tied.embedding


def test_the_base_counts_where_it_is_used():
    fixed = {"extras": False, "n_layers": 0, "norm": "none", "tied": True, "d_model": 2}
    without = count(random_model(positions="none", **fixed))
    assert count(random_model(positions="sinusoidal", **fixed)).strict == without.strict + 1
    assert without.strict == len(np.unique(random_model(positions="none", **fixed).weights["embed.W_E"]))
