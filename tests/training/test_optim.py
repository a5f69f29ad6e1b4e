"""Our optimisers against PyTorch's own, and the steps of one member against those of many."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from glassformer.core.model import forward
from glassformer.training.loop import Trainer
from glassformer.training.optim import Optimizer, newton_schulz
from training.small import TASK, recipe

SHAPES = {
    "blocks.0.mlp.W_in": (4, 9),
    "blocks.0.mlp.W_out": (9, 4),
    "blocks.1.mlp.W_in": (4, 4),  # square: which way it lies, its shape does not say
    "blocks.0.attn.b_Q": (2, 2),
    "embed.W_E": (5, 4),
}


def gradients(step, members=1):
    rng = torch.Generator().manual_seed(step)
    return {
        n: torch.randn((members, *s), generator=rng, dtype=torch.float64) for n, s in SHAPES.items()
    }


def test_a_run_is_a_plain_loop_with_adamw():
    r = recipe(
        warmup=5,
        schedule="cosine",
        steps=30,
        weight_decay=0.1,
        clip=0.5,
        n_layers=2,
        evaluate_every=1000,
    )
    run = Trainer(TASK, r, [3])
    weights = {n: w.clone().requires_grad_() for n, w in run.model(0).weights.items()}
    adamw = torch.optim.AdamW(weights.values(), lr=r.lr, betas=(r.beta1, r.beta2), weight_decay=0.1)
    losses = []
    for step in range(r.steps):
        rate = min(1, (step + 1) / 5) * 0.5 * (1 + np.cos(np.pi * max(0, step - 5) / 25))
        adamw.param_groups[0]["lr"] = r.lr * rate
        tokens, answer = (torch.as_tensor(a[0]) for a in run.data.tokens_for_step([3], step))
        logits = forward(run.config, weights, tokens[:, :-1])
        loss = cross_entropy(logits[answer[:, 1:]], tokens[:, 1:][answer[:, 1:]])
        adamw.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 0.5)
        adamw.step()
        losses.append(loss.item())
        assert abs(run._step()[0] - losses[-1]) < 1e-12
    ours = run.model(0).weights
    assert max(float((weights[n].detach() - ours[n]).abs().max()) for n in weights) < 1e-12
    assert losses[-1] < losses[0]


def test_muon_is_pytorchs(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)  # theirs, in our precision
    r = recipe(optimizer="muon", muon_lr=0.02, momentum=0.9, weight_decay=0.1, clip=0.0)
    theta = gradients(0)
    theirs = {
        n: theta[n][0].mT.clone().requires_grad_()
        for n in SHAPES
        if ".W_" in n and n.startswith("blocks")
    }
    muon = torch.optim.Muon(theirs.values(), lr=0.02, momentum=0.9, weight_decay=0.1)
    ours = Optimizer(theta, r)
    for step in range(1, 20):
        g = gradients(step)
        for n, w in theirs.items():
            w.grad = g[n][0].mT.clone()
        muon.step()
        ours.step(g, np.ones(1))
    assert sorted(theirs) == sorted(
        n for names in ours.groups for n in names
    )  # a bias a head is no matrix
    assert max(float((theta[n][0].mT - w.detach()).abs().max()) for n, w in theirs.items()) < 1e-12


def test_newton_schulz_makes_singular_values_about_one():
    x = torch.randn(3, 2, 6, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = torch.linalg.svdvals(newton_schulz(x))
    assert values.min() > 0.5 and values.max() < 1.3


def test_members_of_different_rates_step_as_if_alone():
    for kind in ("adamw", "muon"):
        r = recipe(optimizer=kind, clip=1.0, grokfast=2.0, weight_decay=0.1)
        rates = np.array([1.0, 0.25, 0.0])
        together = gradients(0, 3)
        alone = [{n: t[i : i + 1].clone() for n, t in together.items()} for i in range(3)]
        optimizers = [Optimizer(theta, r) for theta in (together, *alone)]
        for step in range(1, 12):
            strided = {
                n: g.mT.contiguous().mT for n, g in gradients(step, 3).items()
            }  # as vmap may give them
            optimizers[0].step(strided, rates)
            for i in range(3):
                optimizers[1 + i].step(
                    {n: g[i : i + 1] for n, g in gradients(step, 3).items()}, rates[i : i + 1]
                )
        for i, theta in enumerate(alone):
            assert max(float((together[n][i] - theta[n][0]).abs().max()) for n in theta) < 1e-13
        assert all(
            torch.equal(alone[2][n][0], gradients(0, 3)[n][2]) for n in SHAPES
        )  # a rate of 0 changes nothing
        assert not torch.equal(alone[1]["embed.W_E"][0], gradients(0, 3)["embed.W_E"][1])


def test_clipping_is_a_members_own():
    r = recipe(
        optimizer="adamw",
        clip=1.0,
        beta1=0.0,
        beta2=0.0,
        weight_decay=0.0,
        grokfast=1.0,
        grokfast_decay=0.5,
    )
    optimizer = Optimizer(gradients(0, 2), r)
    g = {
        n: t * torch.tensor([1e-3, 1e3]).view(-1, *[1] * (t.ndim - 1))
        for n, t in gradients(1, 2).items()
    }
    small = {n: t[0].clone() for n, t in g.items()}
    optimizer.step(g, np.ones(2))
    norms = torch.cat([t.flatten(1) for t in optimizer.slow_gradients.values()], 1).norm(dim=1)
    assert abs(float(norms[1]) - 0.5) < 1e-6  # clipped to 1; half of it went into the slow average
    assert all(torch.allclose(optimizer.slow_gradients[n][0], 0.5 * small[n]) for n in SHAPES)
    mean = optimizer.mean
    assert all(torch.allclose(mean[n][0], 1.5 * small[n]) for n in SHAPES)  # amplified once
    assert all(torch.allclose(g[n][0], small[n]) for n in SHAPES)  # what was given is as it was


@pytest.mark.parametrize("members", [1, 2])
def test_gradients_that_share_memory_are_clipped_once(members):
    """Of p + q autograd gives both the same array, and of a sum one number for all of it."""
    theta, r = gradients(0, members), recipe(clip=0.5, grokfast=1.0, grokfast_decay=0.0)
    optimizer, one = Optimizer(theta, r), torch.ones(members, 1, 1, dtype=torch.float64)
    both = gradients(1, members)["embed.W_E"]
    g = {n: one.expand(members, *s) if len(s) == 2 else both[:, :2, :2] for n, s in SHAPES.items()}
    g["blocks.1.mlp.W_in"] = both[:, :4]
    g["embed.W_E"] = torch.cat([both[:, :4], both[:, :1]], 1)
    g["blocks.0.attn.b_Q"] = g["blocks.1.mlp.W_in"][:, :2, :2]
    optimizer.step(g, np.ones(members))
    norms = torch.cat([t.flatten(1) for t in optimizer.slow_gradients.values()], 1).norm(dim=1)
    assert torch.allclose(norms, torch.full_like(norms, 0.5), atol=1e-5)


def test_one_matrix_alone_is_made_orthogonal_too():
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.allclose(newton_schulz(x), newton_schulz(x[None])[0])
