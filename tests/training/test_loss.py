"""The loss and its gradient against numbers computed by hand, from the definitions."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from glassformer.core.model import Config
from glassformer.training import loss
from training.small import recipe

LN2, LN5 = math.log(2), math.log(5)
# Each row of logits is the logarithm of its softmax: the probabilities are these, of 3 tokens.
FIRST, SECOND = (0.5, 0.25, 0.25), (0.2, 0.4, 0.4)
TOKENS = np.array([[[1, 0, 0]]])  # the right token is 0 both times
ANSWER = np.array([[[False, True, True]]])


def gradients(monkeypatch, probabilities, tokens=TOKENS, answer=ANSWER, **fields):
    """Losses, worst and gradient of the logits [N,B,last,V], which are theta itself."""
    theta = {"logits": torch.tensor(probabilities, dtype=torch.float64).log()}
    as_they_are = SimpleNamespace(expand=lambda theta, shapes: theta)
    monkeypatch.setattr(loss, "forward", lambda c, w, tokens, tap, last: w["logits"])
    config = Config(d_vocab=3, n_ctx=tokens.shape[-1], d_model=4)
    objective = loss.Objective(config, {}, as_they_are, recipe(**fields))
    result, losses, worst = objective.gradients(theta, tokens, answer)
    return losses.numpy(), worst.numpy(), result["logits"].numpy()


# of a token of probability p, -log p times its weight, and that weight times softmax - one-hot
@pytest.mark.parametrize("focal,first,second", [
    (0.0, 1.0, 1.0), (1.0, 0.5, 0.8), (2.0, 0.25, 0.64), (3.0, 0.125, 0.512),
])  # fmt: skip
@pytest.mark.parametrize("members", [1, 2])
def test_focal_loss_weighs_a_token_by_what_is_not_right(monkeypatch, focal, first, second, members):
    """(1 - p)^focal is a weight: no gradient flows through it."""
    each = [[[FIRST, SECOND]]] * members
    tokens, answer = np.repeat(TOKENS, members, 0), np.repeat(ANSWER, members, 0)
    losses, worst, got = gradients(monkeypatch, each, tokens, answer, focal=focal)
    assert losses == pytest.approx([(first * LN2 + second * LN5) / 2] * members, rel=1e-12)
    assert worst == pytest.approx(np.full((members, 1), LN5), rel=1e-12)  # not weighed
    want = [first / 2 * np.array([-0.5, 0.25, 0.25]), second / 2 * np.array([-0.8, 0.4, 0.4])]
    assert got == pytest.approx(np.array([[want]] * members), rel=1e-12)


def test_every_answer_token_counts_the_same_and_nothing_else(monkeypatch):
    """Two rows, with one and two answer tokens: a third each. What is not asked has no gradient,
    and is no row's worst.
    """
    tokens, answer = np.array([[[1, 0, 0], [1, 0, 0]]]), np.array([[[0, 1, 0], [0, 1, 1]]], bool)
    rows = [[[FIRST, SECOND], [FIRST, SECOND]]]
    losses, worst, got = gradients(monkeypatch, rows, tokens, answer)
    assert losses == pytest.approx([(2 * LN2 + LN5) / 3], rel=1e-12)
    assert worst == pytest.approx(np.array([[LN2, LN5]]), rel=1e-12)
    assert not got[0, 0, 1].any() and got[0, 1, 1, 0] == pytest.approx(-0.8 / 3, rel=1e-12)


def test_loss_all_counts_what_is_before_the_answer_too(monkeypatch):
    """Up to the end of the answer; the row's worst is still of the answer alone."""
    answer = np.array([[[0, 0, 1]]], bool)
    losses, worst, _ = gradients(monkeypatch, [[[SECOND, FIRST]]], answer=answer, loss="all")
    assert losses == pytest.approx([(LN2 + LN5) / 2], rel=1e-12)
    assert worst == pytest.approx(np.array([[LN2]]), rel=1e-12)
    losses, worst, _ = gradients(monkeypatch, [[[FIRST]]], answer=answer)
    assert losses == pytest.approx([LN2], rel=1e-12)
