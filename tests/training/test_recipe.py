"""Recipes: fields that can be set, printed and refused."""

from dataclasses import fields, replace

import pytest

from glassformer import GlassformerError, load
from glassformer.training import Recipe
from glassformer.utils.results import Displayable


def test_fields_are_set_from_texts():
    r = Recipe().override(
        {"lr": "0.5", "steps": "1_000", "tied": "false", "optimizer": "muon", "beta2": "0"}
    )
    assert (r.lr, r.steps, r.tied, r.optimizer, r.beta2) == (0.5, 1000, False, "muon", 0.0)
    assert Recipe(**r.to_json()) == r
    assert str(replace(Recipe(), lr=0.5, data="split")) == "data=split lr=0.5"
    assert type(Recipe(lr=1).lr) is float


@pytest.mark.parametrize("fields,message", [
    ({"steps": -1}, "steps must be a whole number from 1, got -1"),
    ({"evaluate_every": 0}, "evaluate_every must be a whole number from 1"),
    ({"lr": float("nan")}, "lr must be a finite number from 0, got nan"),
    ({"lr": "fast"}, "lr must be a number"),
    ({"beta1": 1.0}, "beta1 must be at most 0.999999, got 1.0"),
    ({"data": "new"}, "data must be one of fresh, split, draw, all, got 'new'"),
    ({"extras": "norms wings"}, "extras: expected words of .*, got wings"),
    ({"batch": 0}, "batch=0 .* does not go with data=fresh"),
    ({"test_rows": 0}, "test_rows=0 .* goes with data=split only"),
    ({"curriculum": "3@0", "data": "split"}, "a curriculum goes with data=fresh only"),
    ({"curriculum": "3"}, "curriculum: expected level@step words"),
    ({"curriculum": "0@0"}, "curriculum: expected level@step words"),
])  # fmt: skip
def test_what_is_refused(fields, message):
    with pytest.raises(GlassformerError, match="recipe odd — " + message):
        Recipe(name="odd", **fields)


def test_unknown_fields():
    with pytest.raises(
        GlassformerError, match="zzz — no such field of a recipe; there are name, n_layers"
    ):
        Recipe().override({"zzz": "9"})
    with pytest.raises(
        GlassformerError, match=r"warmpu — no such field of a recipe; did you mean warmup\?"
    ):
        Recipe().override({"warmpu": "9"})


def test_arrays_that_the_extras_ask_for():
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
        tied=False, extras="head gate"
    )
    assert Recipe(extra_positions=1).config(14, 13).n_ctx == 13


def test_every_field_stands_in_one_section_and_says_what_it_is():
    sections = [s for s in Recipe.__mro__[::-1] if s not in (object, Displayable, Recipe)]
    names = [f.name for s in sections for f in fields(s) if f.name in s.__annotations__]
    order = [
        "Section",
        "Architecture",
        "Examples",
        "Loss",
        "Optimization",
        "Schedule",
        "Averages",
        "Course",
    ]
    assert [s.__name__ for s in sections] == order, "files have a recipe's fields in this order"
    assert names == [f.name for f in fields(Recipe)] == [*Recipe().to_json()]
    assert len(set(names)) == len(names) == 59 and all(f.metadata["help"] for f in fields(Recipe))


def test_the_recipe_in_an_old_file_is_read():
    """A checkpoint that was made before recipes had sections."""
    recorded = load("adder-10-7p.safetensors").provenance["recipe"]
    now = Recipe(**recorded)
    assert {n: v for n, v in now.to_json().items() if n in recorded} == recorded
    added = {*Recipe().to_json()} - {*recorded}  # since then: as they are if nobody sets them
    assert all(getattr(now, name) == getattr(Recipe(), name) for name in added)
