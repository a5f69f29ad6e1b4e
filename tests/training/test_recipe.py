"""Recipes: fields that can be set, printed and refused."""

from dataclasses import fields, replace

import pytest

from glassformer import fit, load
from glassformer.training import Recipe
from glassformer.training.recipe import recipe_option
from helpers import raises


def test_fields_are_set_from_texts():
    r = Recipe().override(
        {"lr": "0.5", "steps": "1_000", "tied": "false", "optimizer": "muon", "beta2": "0"}
    )
    assert (r.lr, r.steps, r.tied, r.optimizer, r.beta2) == (0.5, 1000, False, "muon", 0.0)
    assert Recipe(**r.to_json()) == r
    assert str(replace(Recipe(), lr=0.5, data="split")) == "data=split lr=0.5"
    assert type(Recipe(lr=1).lr) is float


@pytest.mark.parametrize("fields,mentions", [
    ({"steps": -1}, ("steps", -1)),
    ({"evaluate_every": 0}, ("evaluate_every", 0)),
    ({"lr": float("nan")}, ("lr", "nan")),
    ({"lr": float("inf")}, ("lr", "finite")),
    ({"lr": "fast"}, ("lr", "fast")),
    ({"beta1": 1.0}, ("beta1", 1.0)),
    ({"data": "new"}, ("data", "'new'", "fresh")),
    ({"optional_params": "norms wings"}, ("optional_params", "wings", "norms")),
    ({"batch": 0}, ("batch=0", "data=fresh")),
    ({"test_rows": 0}, ("test_rows=0", "data=split")),
    ({"curriculum": "3@0", "data": "split"}, ("curriculum", "data=fresh")),
    ({"curriculum": "3"}, ("curriculum", "'3'")),
    ({"curriculum": "0@0"}, ("curriculum", "'0@0'")),
])  # fmt: skip
def test_bad_values(fields, mentions):
    with raises("bad_argument", "recipe odd", *mentions):
        Recipe(name="odd", **fields)


@pytest.mark.parametrize("name,near", [("zzz", "n_layers"), ("warmpu", "warmup")])
def test_unknown_fields(name, near):
    with raises("not_found", name, near):
        Recipe().override({name: "9"})


def test_optional_arrays():
    def names(**fields):
        r = Recipe(n_layers=1, **fields)
        return set(r.weight_shapes(r.config(14, 13)))

    assert len(names()) == 16 and "blocks.0.ln1.w" in names() and "unembed.W_U" not in names()
    assert "ln_final.w" not in names(norm_first=False) and "blocks.0.ln2.w" in names(
        norm_first=False
    )
    assert not any(".ln" in n or n.startswith("ln") for n in names(norm="none"))
    assert not any("mlp" in n or "ln2" in n for n in names(d_mlp=0))
    assert {"unembed.W_U", "unembed.b_U", "blocks.0.mlp.W_gate"} <= names(
        tied=False, optional_params="head gate"
    )
    assert Recipe(extra_positions=1).config(14, 13).n_ctx == 13


def test_every_field_has_a_help_text():
    names = [f.name for f in fields(Recipe)]
    assert names == [*Recipe().to_json()], "files have a recipe's fields in this order"
    assert len(names) == 59 and all(f.metadata["help"] for f in fields(Recipe))


def test_the_recipe_in_an_old_file_is_read():
    """A checkpoint of an earlier version."""
    recorded = load("adder-10-7p.safetensors").provenance["recipe"]
    now = Recipe(**recorded)
    assert {n: v for n, v in now.to_json().items() if n in recorded} == recorded
    added = {*Recipe().to_json()} - {*recorded}  # since then: as they are if nobody sets them
    assert all(getattr(now, name) == getattr(Recipe(), name) for name in added)


def test_an_old_name_of_a_field_leads_to_the_new_one(tmp_path):
    with raises("not_found", "stable", "stop_after_successes"):
        recipe_option("stable")
    (tmp_path / "both.toml").write_text("stable = 3\nstop_after_successes = 5\n")
    with raises("bad_argument", "stable", "stop_after_successes"):
        fit("addition:digits=1", str(tmp_path / "both.toml"))
