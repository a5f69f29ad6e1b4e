"""Models that are right in a batch and wrong on a single row, as sums have another order."""

import numpy as np
import pytest

from glassformer import Config, Model, resolve
from glassformer.core.decoding import decode
from glassformer.proof import prove
from glassformer.verification import verify


def either_way():
    """Return a model whose logit of 0 is small in a batch and large alone, or None."""
    task = resolve.load_task("repeat-last:vocab=10,length=2,repeats=2")
    V, n, rng = len(task.vocabulary), 64, np.random.default_rng(0)
    E = np.concatenate([np.ones((V, n)), np.eye(V)], 1)
    for _ in range(3_000):
        w, order = np.ones(n), rng.permutation(n)
        w[order[:8]], w[order[8:16]] = 2.0**60, -(2.0**60)
        U = np.zeros((n + V, V))
        U[:n, 0] = w
        many, one = (
            (np.tile(E, (20, 1)) @ U)[:, 0],
            np.array([(E[v : v + 1] @ U)[0, 0] for v in range(V)]),
        )
        if one.min() > many.max() + 0.5 and many.min() >= 0:
            U[n:] = np.eye(V) * (one.min() + many.max()) / 2
            config = Config(V, 16, n + V, n_layers=0, norm="none", positions="none")
            model = Model(config, {"embed.W_E": E, "unembed.W_U": U}, task.vocabulary, task.ref)
            if decode(model, [3, 7], 2).tolist()[2:] != [7, 7]:
                return model, task
    return None


def test_a_model_that_is_right_in_a_batch_and_wrong_alone_is_wrong():
    result = either_way()
    if not result:
        pytest.skip("this machine's products do not depend on how many rows there are")
    verdict = verify(*result)
    assert verdict.wrong and not verdict.holds and verdict.parts["alone"]["wrong"] == verdict.wrong
    assert verdict.counterexamples[0]["got"] != verdict.counterexamples[0]["expected"]
    assert prove(*result).result == "refuted"


@pytest.mark.parametrize(
    "how", [{}, {"chunk": 1}, {"chunk": 1, "max_counterexamples": 0}, {"sample": 1}]
)
def test_rows_that_are_looked_at_again_are_counted_once(how, tmp_path):
    result = either_way()
    if not result:
        pytest.skip("this machine's products do not depend on how many rows there are")
    verdict = verify(*result, **how)
    counted = {name: part for name, part in verdict.parts.items() if name != "alone"}
    for count in ("looked_at", "checked"):
        assert getattr(verdict, count) == sum(part[count] for part in counted.values())
    assert verdict.exhaustive <= (verdict.looked_at == verdict.domain)
    assert 0 < verdict.wrong <= verdict.checked
    assert verdict.read(verdict.save(tmp_path / "v.json")) == verdict


def test_rows_that_are_right_alone_are_not_counted_twice():
    model = resolve.load("add-digit")
    verdict = verify(model, resolve.load_task(model))
    assert verdict.checked == 100 and "alone" not in verdict.parts


@pytest.mark.parametrize(("lead", "result"), [(2**-52, "unknown"), (2**-40, "proved")])
def test_a_lead_within_rounding_is_no_proof(lead, result):
    task = resolve.load_task("repeat-last:vocab=10,length=2,repeats=2")
    V = len(task.vocabulary)
    E, U = np.eye(V), np.ones((V, V)) + lead * np.eye(V)
    config = Config(V, 16, V, n_layers=0, norm="none", positions="none")
    model = Model(config, {"embed.W_E": E, "unembed.W_U": U}, task.vocabulary, task.ref)
    assert verify(model, task).holds
    proof = prove(model, task)
    assert proof.result == result
    assert ("another order" in proof.reason) is (result == "unknown")


def test_a_row_at_a_time_is_counted_once():
    model = resolve.load("add-digit")
    assert verify(model, resolve.load_task(model), chunk=1).checked == 100
