"""repeat-last: the last token again and again."""

import numpy as np
import pytest

from glassformer import decode, load, load_task, run
from glassformer.core.param_count import count
from glassformer.programs.repeat_last import repeat_last, sign_codes
from glassformer.tasks.message import RepeatLast
from glassformer.verification import verify
from helpers import raises


@pytest.mark.parametrize("variant", ["ring", "sparse"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("vocab", [2, 3, 4, 5, 6, 10, 31])
@pytest.mark.some(5)
def test_every_input(vocab, variant, dtype):
    verdict = verify(
        repeat_last(vocab=vocab, variant=variant, dtype=dtype), RepeatLast(vocab=vocab, length=2)
    )
    assert (verdict.checked, verdict.wrong) == (vocab**2, 0)


def test_for_ever():
    model = load("repeat-last")
    assert (decode(model, [3, 1, 7], 2_500)[3:] == 7).all()  # far past the block
    assert run(model, "3 1 7").output == "7 7 7 7 7"


@pytest.mark.parametrize(
    "ref,length", [("repeat-last:vocab=5000,dtype=float32", 1), ("repeat-last:vocab=3000", 1)]
)
def test_every_token_of_a_large_vocabulary(ref, length):
    model = load(ref)
    verdict = verify(model, RepeatLast(vocab=len(model.vocabulary), length=length, repeats=1))
    assert verdict.exhaustive and verdict.wrong == 0


def test_the_largest_vocabulary():
    model = repeat_last(vocab=100_000)
    verdict = verify(model, RepeatLast(vocab=100_000, length=1, repeats=1), sample=100)
    assert verdict.wrong == 0 and verdict.worst_margin == pytest.approx(59.2e-10, rel=0.01)


def test_limits():
    with raises("bad_argument", "float32", "5,000"):
        load("repeat-last:vocab=5001,dtype=float32")
    with raises("bad_argument", "4,000", "4,001"):
        load("repeat-last:vocab=4001,variant=sparse")
    with raises("bad_argument", "100,000"):
        load("repeat-last:vocab=1")


def test_signs_are_all_different():
    for n in (1, 2, 5, 6, 40):
        code = sign_codes(n)
        assert len(np.unique(code, axis=0)) == n == np.count_nonzero(code)


def test_counts_and_task():
    c = count(load("repeat-last"))
    assert (c.total, c.embedding) == (30, 30)
    assert load_task(load("repeat-last:vocab=12")).ref == "repeat-last:vocab=12"
