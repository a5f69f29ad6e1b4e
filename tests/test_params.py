"""Dicts of arrays as models: `gf.load(params)`, in the form of the booklet, and back."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import glassformer as gf
from glassformer import taotp
from helpers import largest_difference, raises, random_model


def as_lists(value: Any) -> Any:
    """Return a dict with lists for arrays."""
    if isinstance(value, dict):
        return {key: as_lists(x) for key, x in value.items()}
    if isinstance(value, list):
        return [as_lists(x) for x in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.fixture
def params() -> dict[str, Any]:
    return taotp.build_min_transformer(20, 8)


BOOKLET = [
    "hello-world", "lookup:variant=book", "search:variant=book", "min:vocab=9,variant=book",
    "sort:variant=book", "add-digit:variant=book", "add-mod:digits=1,variant=book",
    "addition:digits=1,variant=book", "lookup:variant=hash", "max.taotp", "figure-8.3.taotp",
]  # fmt: skip


@pytest.mark.parametrize("ref", BOOKLET)
def test_programs_of_the_booklet_are_dicts(ref):
    model = gf.load(ref)
    params = taotp.to_params(model)
    allowed = {"tok_emb", "pos_emb", "out_emb", "layers", "lnf", "eps"}
    assert params.keys() <= allowed and ("eps" in params) == (model.config.eps > 1e-9)
    for form in (params, as_lists(params), json.loads(json.dumps(as_lists(params)))):
        again = gf.load(form)
        assert (again.config.tied, again.dtype) == (model.config.tied, "float64")
        for name, w in model.weights.items():
            np.testing.assert_array_equal(w, again.weights[name], err_msg=name)
    assert gf.count(again).total == sum(w.size for w in again.weights.values())


CHOICES = [
    {}, {"norm": "rms", "positions": "rotary"}, {"qk_norm": True}, {"norm_first": False},
    {"activation": "silu", "gated": True}, {"tied": True, "scale": 0.5, "mask": "none"},
]  # fmt: skip


@pytest.mark.parametrize("choices", CHOICES, ids=str)
@pytest.mark.parametrize("extras", [True, False])
def test_every_model_is_a_dict(choices, extras):
    model = random_model(extras=extras, **choices)
    again = gf.load(as_lists(taotp.to_params(model)))
    assert largest_difference(model([1, 6, 2, 0]), again([1, 6, 2, 0])) < 1e-12
    assert asdict(replace(again.config, eps=model.config.eps)) == asdict(model.config)


def test_a_dict_is_a_copy(params):
    model = gf.load(params)
    before = params["tok_emb"].copy()
    params["tok_emb"][:] = 7
    assert np.array_equal(model.W_E, before) and not model.weights["embed.W_E"].flags.writeable
    taotp.to_params(model)["tok_emb"][:] = 7
    assert np.array_equal(model.W_E, before)


def test_equal_embeddings_are_tied_and_counted_once(params):
    assert gf.load(params).config.tied
    assert gf.count(gf.load(params)).total == 6 * 20 - 36 + 39  # 20 tokens, 8 positions
    assert gf.load({k: v for k, v in params.items() if k != "out_emb"}).config.tied
    other = gf.load(params | {"out_emb": 2 * params["tok_emb"]})
    assert not other.config.tied and gf.count(other).total == 123 + 60
    np.testing.assert_array_equal(other.weights["unembed.W_U"], 2 * params["tok_emb"].T)


def test_all_keys_of_the_text_language(params):
    model = gf.load(params | {"task": "min:vocab=20,length=3", "dtype": "float32"})
    assert model.dtype == "float32" and gf.run(model, "7 8 3").output == "3"
    assert gf.verify(model).wrong == 0
    named = gf.load({
        "slots": {"token": 3, "place": 3}, "tokens": ["a", "b"], "sep": " ", "norm": "none",
        "tok_emb": {"token": np.eye(2, 3)}, "out_emb": {"token": [[0, 1, 0], [1, 0, 0]]},
        "block_size": 4, "norm_first": True, "labels": {"slots": {"first": [0, 1]}},
    })  # fmt: skip
    assert gf.run(named, "a", steps=1).output == "b"
    assert named.labels.slots == {"token": (0, 3), "place": (3, 6), "first": (0, 1)}


def test_kinds_of_numbers(params):
    torch = pytest.importorskip("torch")
    want = gf.load(params)
    forms = {
        "tuples": tuple(map(tuple, params["tok_emb"].tolist())),
        "float32": params["tok_emb"].astype(np.float32).astype(float),
        "rows": list(params["tok_emb"]),
        "scalars": [[np.float64(x) for x in row] for row in params["tok_emb"]],
        "tensor": torch.tensor(params["tok_emb"], requires_grad=True),
    }
    for name, table in forms.items():
        loose = 1e-6 if name == "float32" else 0
        model = gf.load(params | {"tok_emb": table, "out_emb": table})
        assert model.config.tied
        np.testing.assert_allclose(model.W_E, want.W_E, atol=loose)
    big = gf.load({"tok_emb": [[10**30, 1]], "pos_emb": [[0, 0]]})
    assert big.W_E[0, 0] == 1e30
    assert isinstance(gf.load(MappingProxyType(params)), gf.Model)


class Trap(Mapping):  # type: ignore[type-arg]
    """A dict that contains itself."""

    def __getitem__(self, key):
        return self

    def __iter__(self):
        return iter(["tok_emb"])

    def __len__(self):
        return 1


LAYER = {"Q": np.zeros((2, 3, 4)), "K": np.zeros((2, 3, 5))}
WRONG = [
    ({}, "tok_emb"),
    ({"tok_emb": [[1, 2], [3]]}, "tok_emb"),
    ({"tok_emb": "__import__('os').getcwd()"}, "tok_emb"),
    ({"tok_emb": [["1", "2"]]}, "tok_emb"),
    ({"tok_emb": np.ones((2, 3), dtype=bool)}, "tok_emb"),
    ({"tok_emb": [[1, np.nan, 2]]}, "tok_emb"),
    ({"tok_emb": [[1, np.inf, 2]]}, "inf"),
    ({"tok_emb": np.ones((2, 3)) * 1j}, "tok_emb"),
    ({"tok_emb": object()}, "tok_emb"),
    ({"tok_emb": print}, "print"),
    ({"tok_emb": Trap()}, "tok_emb.tok_emb"),
    ({"tok_emb": {"token": [[1]]}}, "slots"),
    ({"out_emb": np.zeros((2, 3))}, "out_emb"),
    ({"pos_emb": np.zeros((8, 2))}, "pos_emb"),
    ({"pos_emb": None}, "pos_emb"),
    ({"layers": [LAYER]}, "layers[0].K"),
    ({"layers": [{}, {"Q": np.zeros((3, 3, 3, 3))}]}, "layers[1].Q"),
    ({"layers": {"Q": 1}}, "layers"),
    ({"layers": [3]}, "layers[0]"),
    ({"layers": [{"ln1": {"gamma": "x"}}]}, "layers[0].ln1.gamma"),
    ({"layers": [{"q": np.eye(3)}]}, "'q'"),
    ({"lnf": 3}, "lnf"),
    ({"vocabulary": 3}, "vocabulary"),
    ({3: 4}, "3"),
    ({"block_size": 9}, "block_size"),
    ({"tokens": ["a"]}, "tokens"),
    ({"norm": "batch"}, "norm"),
    ({"dtype": "float8"}, "float8"),
]


@pytest.mark.parametrize("change,mention", WRONG)
def test_a_wrong_dict_is_an_error_that_names_the_entry(params, change, mention):
    with raises("bad_argument", "params", mention):
        gf.load(params | change if change else {})


def test_all_wrong_sizes_are_in_one_error(params):
    wrong = {"pos_emb": np.zeros((8, 2)), "out_emb": np.zeros((5, 3)), "lmf": {}}
    with raises("bad_argument", "pos_emb", "out_emb", "lmf", "lnf") as caught:
        gf.load(params | wrong)
    assert str(caught.value).count("\n") == 2


def test_a_list_that_contains_itself():
    loop: list[Any] = []
    loop.append(loop)
    with raises("bad_argument", "tok_emb"):
        gf.load({"tok_emb": loop})


def test_large_sizes_need_no_memory(params):
    del params["pos_emb"]
    with raises("bad_argument", "4,000,000"):
        gf.load(params | {"block_size": 10**9})


def test_the_text_language_takes_texts(params):
    with raises("bad_source", "from_params"):
        taotp.parse(params)
