"""Tiny adders: their parametrizations are one map in NumPy and PyTorch, and the shipped ones
add.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from glassformer import load, load_task
from glassformer.core.checkpoint import load as read
from glassformer.core.checkpoint import save
from glassformer.core.model import forward
from glassformer.core.param_count import count
from glassformer.leaderboard.protocol import EDGE_CASES, random_pairs
from glassformer.parametrizations import build_parametrization
from glassformer.training.loop import Trainer
from glassformer.training.recipes import find_recipe
from glassformer.verification import verify
from helpers import largest_difference, raises

TASK = load_task("digit-addition")
MADE = {
    "arc-adder": ("tiny-arc", 34), "mirror-adder:form=free": ("tiny-mirror", 11),
    "mirror-adder": ("tiny-mirror", 7),
    "mirror-adder:form=bare": ("tiny-mirror", 6),
}  # fmt: skip
SHIPPED = {
    "adder-10-34p.safetensors": ("arc-adder", 34),
    "adder-10-7p.safetensors": ("mirror-adder", 7),
}


def small(ref, **fields):
    """A run of a few steps in float64."""
    settings = {
        "test_rows": 20,
        "batch": 12,
        "steps": 6,
        "evaluate_every": 3,
        "dtype": "float64",
    } | fields
    return Trainer(
        TASK,
        replace(find_recipe(MADE[ref][0]), **settings),
        [3],
        parametrization=build_parametrization(ref),
    )


@pytest.mark.parametrize("ref", MADE)
def test_one_map_in_numpy_and_in_pytorch(ref):
    run = small(ref)
    shapes = run.objective.shapes
    theta = {n: t[0] for n, t in run.theta.items()}
    ours = build_parametrization(ref).expand({n: t.numpy() for n, t in theta.items()}, shapes)
    theirs = build_parametrization(ref).expand(theta, shapes)
    assert ours.keys() == theirs.keys() == shapes.keys()
    for name, w in ours.items():
        assert w.shape == shapes[name] and largest_difference(w, theirs[name].numpy()) < 1e-14, name
    tokens, _ = TASK.batch(TASK.sample(12, np.random.default_rng(0)))
    logits = forward(run.config, ours, tokens), forward(run.config, theirs, torch.tensor(tokens))
    assert largest_difference(logits[0], logits[1].numpy()) < 1e-10


@pytest.mark.parametrize("ref", MADE)
def test_theta_is_what_is_counted_trained_and_kept(ref, tmp_path):
    run = small(ref)
    before = {n: t.clone() for n, t in run.theta.items()}
    *_, done = run.events()
    model = done.data["training"].model
    assert count(model).unique == MADE[ref][1] == sum(t.size for t in model.theta.values())
    for name, t in before.items():
        assert (t[0].numpy() != model.theta[name]).any(), f"{name} was not trained"
    back = read(
        save(model, tmp_path / "x.safetensors")
    )  # which makes the weights from theta again, and compares
    assert back.parametrization == ref and all(
        (back.theta[n] == t).all() for n, t in model.theta.items()
    )


@pytest.mark.parametrize("ref", MADE)
def test_scores_depend_on_the_distance_alone_and_columns_look_alike(ref):
    """Scores are independent of the tokens, and have a period of 19 positions."""
    patterns = []

    def tap(name, value):
        if name.endswith("hook_attn_scores"):
            patterns.append(value)
        return value

    model = small(ref).model(0).map(lambda w: w.numpy())
    tokens, _ = TASK.batch(TASK.sample(5, np.random.default_rng(0)))
    model(tokens[:, :-1], tap)
    scores = patterns[0][:, 0, -1]  # B S
    assert largest_difference(scores[:1].repeat(5, 0), scores) < 1e-12
    assert np.abs(scores[0, -20:-1] - scores[0, -39:-20]).max() < 1e-3 * np.abs(scores[0]).max()


def test_a_run_goes_on_from_the_numbers_of_its_kind():
    """--init-from with a model of the same parametrization starts from its theta."""
    *_, done = small("mirror-adder").events()
    first = done.data["training"].model
    first = replace(
        first, theta=dict(reversed(first.theta.items()))
    )  # a file's arrays come in any order
    r = replace(find_recipe("tiny-mirror"), dtype="float64")
    again = Trainer(
        TASK, r, [0], parametrization=build_parametrization("mirror-adder"), init_from=first
    )
    assert all((again.theta[n][0].numpy() == t).all() for n, t in first.theta.items())
    other = Trainer(TASK, r, [0], parametrization=build_parametrization("mirror-adder"))
    assert [*again.theta] == [*other.theta]  # the order decides how sums over all of theta round
    assert any((other.theta[n][0].numpy() != t).any() for n, t in first.theta.items())
    with raises("bad_argument", "init_from", "mirror-adder"):
        Trainer(
            TASK,
            find_recipe("tiny-mirror"),
            [0],
            parametrization=build_parametrization("mirror-adder:form=free"),
            init_from=first,
        )


def test_what_a_parametrization_cannot_make_is_refused():
    with raises("bad_argument", "mirror-adder", "mlp.W_in [3, 3]"):
        Trainer(
            TASK,
            find_recipe("tiny-arc"),
            [0],
            parametrization=build_parametrization("mirror-adder"),
        )
    with raises("bad_argument", "arc-adder", "blocks.0.attn.q_norm.w"):
        Trainer(
            TASK,
            find_recipe("tiny-mirror"),
            [0],
            parametrization=build_parametrization("arc-adder"),
        )
    with raises("bad_argument", "embed.W_E [14, 3]"):
        Trainer(
            load_task("addition:digits=2,order=ones"),
            find_recipe("tiny-mirror"),
            [0],
            parametrization=build_parametrization("mirror-adder"),
        )


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_adders_add(name):
    model = load(name)
    ref, unique = SHIPPED[name]
    assert (model.parametrization, model.task, count(model).unique) == (ref, TASK.ref, unique)
    verdict = verify(model, TASK, rows=np.array([*EDGE_CASES, *random_pairs(500)]))
    assert verdict.holds and verdict.checked == 510, str(verdict)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_adders_pass_the_whole_protocol_and_all_edges(name):
    rows = np.concatenate([np.array([*EDGE_CASES, *random_pairs()]), TASK.edges()])
    verdict = verify(load(name), TASK, rows=rows)
    assert verdict.holds and verdict.checked > 10_010, str(verdict)
