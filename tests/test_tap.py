"""Hook names, and hooks that read or replace activations."""

import numpy as np
import pytest

from glassformer import hook, hook_names, record
from helpers import largest_difference, raises, random_model


@pytest.mark.parametrize(
    "choices", [{}, {"positions": "rotary", "qk_norm": True}, {"norm": "none"}, {"d_mlp": 0}]
)
def test_hook_names_are_what_a_tap_sees(choices):
    model = random_model(**choices)
    assert hook_names(model) == list(record(model, [0, 1, 2])[1])


def test_the_names_people_type():
    names = hook_names(random_model())
    for name in (
        "hook_embed",
        "hook_pos_embed",
        "blocks.0.hook_resid_pre",
        "blocks.0.hook_resid_mid",
        "blocks.1.hook_resid_post",
        "blocks.0.attn.hook_q",
        "blocks.0.attn.hook_z",
        "blocks.0.attn.hook_attn_scores",
        "blocks.0.attn.hook_pattern",
        "blocks.0.hook_attn_out",
        "blocks.0.mlp.hook_pre",
        "blocks.0.mlp.hook_post",
        "blocks.0.hook_mlp_out",
        "blocks.0.ln1.hook_normalized",
    ):
        assert name in names


def test_on_replaces():
    model = random_model()
    silent = hook(
        model, {"blocks.1.hook_mlp_out": lambda x: x * 0, "blocks.1.hook_attn_out": lambda x: x * 0}
    )
    _, cache = record(model, [0, 1, 2])
    assert largest_difference(model([0, 1, 2], hook=silent), model([0, 1, 2])) > 1e-3
    seen = {}
    model([0, 1, 2], hook=lambda n, v: seen.setdefault(n, silent(n, v)))
    assert np.array_equal(seen["blocks.1.hook_resid_post"], cache["blocks.0.hook_resid_post"])


def test_a_typo_never_silently_does_nothing():
    with raises("not_found", "blocks.0.hook_mlp_ot", "blocks.0.hook_mlp_out"):
        hook(random_model(), {"blocks.0.hook_mlp_ot": lambda x: x})
