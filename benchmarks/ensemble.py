"""Train 16 seeds of a tiny ten-digit adder at once, against a plain PyTorch loop one by one.

Both sides do the same work per seed and step: draw a batch of 32 new pairs, run the forward pass
with queries only at the answer, compute its loss, clip the gradient to norm 1, update by AdamW.
Reported: the time per seed and step as a share of the plain loop's, without and with torch.compile,
and the compile time. The ensemble saves the overhead of small operations, so the share grows with
the batch (--batch 128). Times are medians of processor time, which other processes disturb less.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace

from timing import seconds  # isort: skip - it sets one thread

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from glassformer import load_task
from glassformer.core.param_count import count
from glassformer.training import Recipe
from glassformer.training.loop import Trainer

TASK = load_task("addition:digits=10,order=ones")
RECIPE = Recipe(
    n_layers=1,
    n_heads=1,
    d_model=6,
    d_mlp=12,
    tied=True,
    optional_params="norms mlp",
    activation="gelu",
    data="fresh",
    test_rows=1_000,
    batch=32,
    loss="answer",
    optimizer="adamw",
    lr=0.01,
    beta2=0.98,
    weight_decay=0.01,
    clip=1.0,
    steps=10**6,
    evaluate_every=10**6,
)


class Peer(nn.Module):
    """A transformer of the same shape, written as a plain PyTorch module."""

    def __init__(self, d=6, f=12, vocab=14, block=33):
        super().__init__()
        self.embed, self.position = nn.Embedding(vocab, d), nn.Embedding(block, d)
        self.ln1, self.ln2, self.ln_final = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(d, f), nn.Linear(f, d)
        self.register_buffer("places", torch.arange(block))
        self.register_buffer("mask", torch.ones(block, block).tril() == 0)

    def forward(self, tokens, last):
        x = self.embed(tokens) + self.position(self.places)
        y = self.ln1(x)
        q, k, v = self.q(y[:, -last:]), self.k(y), self.v(y)
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(self.mask[-last:], -torch.inf)
        x = x[:, -last:] + self.o(scores.softmax(-1) @ v)
        x = x + self.down(F.gelu(self.up(self.ln2(x))))
        return self.ln_final(x) @ self.embed.weight.T


def one_by_one(steps, batch=RECIPE.batch):
    """Yield the seconds of each step of a plain loop."""
    torch.manual_seed(0)
    model, rng = Peer(), np.random.default_rng(0)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=RECIPE.lr, betas=(0.9, 0.98), weight_decay=0.01
    )
    for _ in range(steps):
        start = time.process_time()
        tokens, answer = TASK.batch(TASK.sample(batch, rng))
        last = int(answer[0].sum())
        tokens = torch.from_numpy(tokens)
        loss = F.cross_entropy(
            model(tokens[:, :-1], last).flatten(0, 1), tokens[:, -last:].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield time.process_time() - start


def at_once(run, steps):
    """Yield the seconds of each step of the ensemble."""
    for _ in range(steps):
        yield seconds(run._step)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--batch", type=int, default=RECIPE.batch)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    recipe = replace(RECIPE, batch=options.batch)
    torch.set_num_threads(1)
    runs = {"ensemble": Trainer(TASK, recipe, range(options.seeds))}
    parameters = count(runs["ensemble"].model(0)).total
    report = {"parameters": parameters, "seeds": options.seeds, "batch": options.batch}
    assert report["parameters"] == sum(p.numel() for p in Peer().parameters())
    if not options.no_compile:
        runs["compiled"] = Trainer(TASK, recipe, range(options.seeds), compile=True)
        start = time.perf_counter()
        runs["compiled"]._step()
        report["compile_seconds"] = time.perf_counter() - start
    sides = {"plain": one_by_one(10**9, options.batch)} | {
        name: at_once(run, 10**9) for name, run in runs.items()
    }
    times = {name: [] for name in sides}
    for _ in range(options.steps // 20):  # alternating, so that other load affects all sides
        for name, side in sides.items():
            times[name] += [next(side) for _ in range(25)][
                5:
            ]  # without the first ones, whose caches are cold
    for name in sides:
        share = options.seeds if name in runs else 1
        report[f"{name}_us_per_seed_and_step"] = statistics.median(times[name]) / share * 1e6
    for name in runs:
        report[f"{name}_ratio"] = (
            report[f"{name}_us_per_seed_and_step"] / report["plain_us_per_seed_and_step"]
        )
    print(json.dumps(report))


if __name__ == "__main__":
    main()
