"""Explanations name what a slot holds by where it came from, and do not name what is left of it."""

import tracemalloc

import numpy as np
import pytest

from glassformer import Config, Model, Vocabulary, explain, load
from glassformer.core.hooks import record
from glassformer.core.model import Labels, zeros
from glassformer.craft import Head, Layout, ring
from glassformer.lens.slot_origins import erased_slots, slot_origins
from helpers import random_model

BOOK = "search:prefix=3,vocab=10,block=20,variant=book"
TEXT = "1 2 3 4 5 6 1 2 3"


def meanings(slots: list) -> dict[str, str]:
    return {s.name: "erased" if s.erased else s.means for s in slots}


def test_a_slot_is_named_by_the_slot_that_a_head_copied() -> None:
    """Token 6 of 10 and position 12 of 20 are the same point of the ring."""
    np.testing.assert_allclose(ring(10)[6], ring(20)[12], atol=1e-14)
    first, second = explain(load(BOOK), TEXT).layers
    code = "the code of '{}'".format
    assert meanings(first.slots) == {
        "token": code(3), "back1": code(2), "back2": code(1), "position": code(6),
    }  # fmt: skip
    assert meanings(second.slots) == {
        "token": code(4), "back1": "erased", "back2": "erased", "position": "erased",
    }  # fmt: skip
    assert "(erased)" in str(explain(load(BOOK), TEXT))


@pytest.mark.parametrize("seed", range(20))
def test_every_slot_of_search_on_random_texts(seed: int) -> None:
    """Against the definition: slot back<j> holds the token j back, the last slot prefix back."""
    tokens = np.random.default_rng(seed).integers(0, 10, 12)
    slots = meanings(explain(load(BOOK), tokens).layers[0].slots)
    assert list(slots.values()) == [f"the code of '{t}'" for t in tokens[[-1, -2, -3, -4]]]


def copier(slot: str, back: int = 1) -> Model:
    """A model whose head copies a slot of the place before into `copy`; 4 tokens and places."""
    layout = Layout(token=3, place=3, copy=3)
    config = Config(4, 4, layout.size, d_head=3, norm="none", tied=True)
    w = {name: a for name, a in zeros(config).items() if ".b_" not in name and ".mlp" not in name}
    w["embed.W_E"][:, layout["token"]] = ring(4)
    w["pos_embed.W_pos"][:, layout["place"]] = ring(4)
    head = Head(w, 0, 0)
    head.attend_back(back, layout["place"], 4, hardness=1e3)
    head.copy(layout[slot], layout["copy"])
    labels = Labels(layout.slots)
    return Model(config, w, Vocabulary.numbers(4), labels=labels)


@pytest.mark.parametrize(("slot", "means"), [("token", "the code of '2'"), ("place", "position 2")])
def test_tokens_and_places_with_equal_codes_are_told_apart(slot: str, means: str) -> None:
    """At place 2 stands token 2: the same three numbers; the head's weights tell."""
    shown = meanings(explain(copier(slot), [0, 1, 2, 3]).layers[0].slots)
    assert shown == {"token": "the code of '3'", "place": "position 3", "copy": means}


def test_origins_and_residues_of_every_position() -> None:
    model = copier("token")
    cache, spans = record(model, np.array([[3, 1, 2]]))[1], list(model.labels.slots.values())
    origins = slot_origins(model, cache, spans)
    assert origins["embed"].tolist() == [[0, 1, 2]] * 3
    assert origins["attention 0"].tolist() == [[0, 1, 0]] * 3
    assert not any(erased.any() for _, erased in erased_slots(model, cache, spans))


def test_a_wide_stream_takes_no_matrix_of_its_width_by_head() -> None:
    model = random_model(d_model=512, n_heads=8, n_layers=1, d_head=4)
    cache = record(model, np.array([[3, 1, 2]]))[1]
    tracemalloc.start()
    origins = slot_origins(model, cache, [(0, 512)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not origins["attention 0"].any() and peak < 8 * 512 * 512
