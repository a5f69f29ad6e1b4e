"""add-digit, in all variants and bases, over the whole domain."""

import numpy as np
import pytest

from glassformer.core.decoding import decode
from glassformer.core.hooks import record
from glassformer.core.param_count import count
from glassformer.resolve import load, load_task
from glassformer.verification import verify
from helpers import raises

VARIANTS = {"hinge": 56, "attention": 60, "table": 183, "book": 629}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_pair_of_digits(variant: str, dtype: str) -> None:
    model = load(f"add-digit:variant={variant},dtype={dtype}")
    verdict = verify(model, load_task(model))
    assert (verdict.wrong, verdict.checked, verdict.exhaustive) == (0, 100, True)
    assert verdict.worst_margin > 4e-5


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_base(variant: str) -> None:
    for base in range(2, 14 if variant == "book" else 17):
        model = load(f"add-digit:variant={variant},base={base}")
        for m in (model, model.astype("float32")):
            verdict = verify(m, load_task(model))
            assert (verdict.wrong, verdict.checked) == (0, base**2), f"{base} {m.dtype}: {verdict}"


def test_counts() -> None:
    counts = {variant: count(load(f"add-digit:variant={variant}")).total for variant in VARIANTS}
    assert counts == VARIANTS
    assert count(load("add-digit:variant=book")).nonzero == 379


def test_attention_has_one_layer_and_no_mlp() -> None:
    model = load("add-digit:variant=attention")
    assert model.config.n_layers == 1
    assert not [name for name in model.weights if "mlp" in name]


def test_attention_carries_by_looking_at_a() -> None:
    """Head 1 looks at the first digit if and only if there is a carry."""
    a, b = np.indices((10, 10)).reshape(2, -1)
    _, seen = record(load("add-digit:variant=attention"), np.stack([a, b], axis=1))
    pattern = seen["blocks.0.attn.hook_pattern"]  # B H T S
    np.testing.assert_allclose(pattern[:, 1, 1, 0], a + b >= 10, atol=1e-12)


@pytest.mark.parametrize("text", ["48", "4 8", "4+8", "4 + 8 ="])
def test_text(text: str) -> None:
    model = load("add-digit")
    task = load_task(model)
    prompt = task.prompt(text)
    assert task.answer(decode(model, prompt, task.steps(prompt))[2:]) == "2"


@pytest.mark.parametrize("text", ["4", "4 8 1", "4 x"])
def test_bad_text(text: str) -> None:
    with raises("bad_argument", text[-1]):
        load_task("add-digit").prompt(text)


def test_book_refuses_what_it_gets_wrong() -> None:
    with raises("bad_argument", "base=14", "variant=book", "13"):
        load("add-digit:base=14,variant=book")


def test_classes() -> None:
    task = load_task("add-digit:base=8")
    rows = task.rows(0, task.size)
    assert (task.classes(rows) == "carry").sum() == 28  # 7 + 6 + … + 1
