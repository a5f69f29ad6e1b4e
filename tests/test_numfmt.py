"""Nothing that is shown hangs on a last bit."""

import numpy as np
import pytest

from cases import CASES
from glassformer import load
from glassformer.core import backend
from glassformer.generate import prompt_tokens
from glassformer.lens.explain import explain
from glassformer.utils.numfmt import (
    format_number,
    format_percent,
    stable_argmax,
    stable_argsort,
    zero_negligible,
)


def test_dust_is_0():
    assert zero_negligible([1.0, -3e-33, 2e-12, 0.0]).tolist() == [1.0, 0.0, 2e-12, 0.0]
    assert zero_negligible(np.array([1, 1e-6, 1e-3], np.float32)).tolist() == [
        1.0,
        0.0,
        np.float32(1e-3),
    ]
    assert zero_negligible([[1.0, 1e-20], [1e-14, 1e-20]], axis=0).tolist() == [
        [1.0, 1e-20],
        [0.0, 1e-20],
    ]
    assert zero_negligible([1e-30, 1e-31]).tolist() == [
        1e-30,
        1e-31,
    ]  # small, and next to nothing larger
    assert zero_negligible([np.inf, 1.0, 1e-20]).tolist() == [np.inf, 1.0, 0.0]
    assert zero_negligible([]).tolist() == []


@pytest.mark.parametrize("last", [0.0, 1e-16, -1e-16])
def test_ties_go_by_number(last):
    assert stable_argsort([1.0, 3.0 + 3 * last, 3.0, 2.0]).tolist() == [1, 2, 3, 0]
    assert stable_argmax([[1.0, 3.0 + 3 * last, 3.0], [0.0, -np.inf, 0.5]]).tolist() == [1, 2]
    # As near as the numbers of `min` with a million of them
    assert stable_argsort([3.0, 3.0 + 1e-11]).tolist() == [1, 0]
    assert stable_argsort([]).tolist() == []


@pytest.mark.parametrize("last", [0.0, 1e-16, -1e-16])
def test_a_half_is_written_one_way(last):
    assert format_number(0.3125 + last, 3) == "0.312"
    assert format_percent(0.125 + last) == "12%" and format_percent(0.0625 + last, 1) == "6.2%"
    assert format_number(-0.0) == "0" and format_percent(-1e-16) == "0%"


@pytest.fixture
def other_sums(monkeypatch):
    """All sums are taken from the other end, as another processor might."""

    def affine(self, x, W, b, theirs=backend.NumpyNamespace.affine):
        summed = (slice(None, None, -1),) * (x.ndim - 2)
        return theirs(self, x[(..., *summed)], W[summed], b)

    def swap():
        ours, back = backend.NumpyNamespace, (..., slice(None, None, -1))
        scores, attend, mean = ours.scores, ours.attend, ours.mean
        monkeypatch.setattr(ours, "affine", affine)
        monkeypatch.setattr(ours, "scores", lambda self, q, k: scores(self, q[back], k[back]))
        monkeypatch.setattr(
            ours, "attend", lambda self, pattern, v: attend(self, pattern[back], v[:, ::-1])
        )
        monkeypatch.setattr(ours, "mean", lambda self, x: mean(self, x[back]))

    return swap


# In float32 four digits of a margin may be more than there are.
SHOWN = sorted({(ref, text) for ref, text, _ in CASES if "float32" not in ref})


@pytest.mark.parametrize("ref,text", SHOWN)
@pytest.mark.some(4)
def test_an_explanation_is_the_same_however_it_is_summed(ref, text, other_sums):
    model = load(ref)
    tokens = prompt_tokens(model, text)
    before = str(explain(model, tokens))
    other_sums()
    assert str(explain(model, tokens)) == before
