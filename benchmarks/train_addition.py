"""The book's adder: `fast` against the book's recipe written as a plain PyTorch loop.

Same model (17,760 parameters), same 50,000 training and 10,000 test pairs, one thread. The figure
is the processor time of training, evaluations excluded, until the first evaluation at 10,000 of
10,000; a failure counts as 150 epochs. Medians.

    python benchmarks/train_addition.py                 # everything: about half an hour
    python benchmarks/train_addition.py --peer 1 --ours 2
"""

import argparse
import json
import statistics
import time
from dataclasses import replace

from timing import medians  # isort: skip - it sets one thread

import numpy as np
import torch
from torch import nn

from glassformer import load_task
from glassformer.training.data import Data
from glassformer.training.loop import Trainer
from glassformer.training.recipes import recipe
from glassformer.verification import verify

EPOCHS, BATCH = 150, 512


class Block(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.ffn = nn.Sequential(nn.Linear(d, hidden), nn.GELU(), nn.Linear(hidden, d))

    def forward(self, x, mask):
        y = self.ln1(x)
        scores = self.q(y) @ self.k(y).transpose(-2, -1) / y.shape[-1] ** 0.5
        x = x + self.o(scores.masked_fill(mask, float("-inf")).softmax(-1) @ self.v(y))
        return x + self.ffn(self.ln2(x))


class Book(nn.Module):
    """A plain pre-LN decoder with a tied head, as a reader of the book would write it."""

    def __init__(self, vocabulary=14, d=32, hidden=64, layers=2, length=13):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, d), nn.Embedding(length, d)
        self.blocks = nn.ModuleList(Block(d, hidden) for _ in range(layers))
        self.ln = nn.LayerNorm(d)

    def forward(self, tokens):
        n = tokens.shape[1]
        mask = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
        x = self.tokens(tokens) + self.positions(torch.arange(n))
        for block in self.blocks:
            x = block(x, mask)
        return self.ln(x) @ self.tokens.weight.T


def peer(seed, train, test, answer):
    """Seconds and steps until all test answers are right, and the time of a step."""
    torch.manual_seed(seed)
    model = Book()
    assert sum(p.numel() for p in model.parameters()) == 17_760
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)
    per_epoch = -(-len(train) // BATCH)
    total, step, seconds = EPOCHS * per_epoch, 0, 0.0
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda t: (
            min(1.0, (t + 1) / 200) * (0.5 * (1 + np.cos(np.pi * max(0, t - 200) / (total - 200))))
        ),
    )
    for epoch in range(EPOCHS):
        began = time.process_time()
        for rows in torch.randperm(len(train)).split(BATCH):
            tokens = train[rows]
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
        seconds += time.process_time() - began
        with torch.no_grad():
            said = torch.cat([model(part[:, :-1]).argmax(-1) for part in test.split(2_000)])
        right = ((said == test[:, 1:]) | ~answer[:, 1:]).all(1).float().mean().item()
        if epoch % 10 == 9:
            print(json.dumps({"peer seed": seed, "epoch": epoch + 1, "right": right}), flush=True)
        if right == 1.0:
            return seconds, step, True, seconds / step
    return seconds, step, False, seconds / step


def ours(seed, all_pairs):
    """The same for `fast`; and how long until all 1,000,000 pairs are right, if asked for."""
    task = load_task("addition:order=ones")
    run = Trainer(task, replace(recipe("fast"), stable=0), [seed])
    run.clock = time.process_time
    first, hard = None, np.zeros((0, 2), np.int64)
    for event in run.events():
        if event.kind != "evaluation" or event.data["accuracy"] < 1.0:
            continue
        first = first or {"seconds": run.seconds, "steps": run.step}
        if not all_pairs:
            return first
        if len(hard) and verify(run.model(0), task, rows=hard).wrong:
            continue  # pairs that were wrong before still are
        verdict = verify(run.model(0), task, keep=1_000)
        print(
            json.dumps({"fast seed": seed, "step": run.step, "wrong of 1,000,000": verdict.wrong}),
            flush=True,
        )
        if not verdict.wrong:
            return first | {"all_seconds": run.seconds, "all_steps": run.step}
        hard = np.concatenate([hard, [c["row"] for c in verdict.counterexamples]])
    return first or {}


def gflops(seconds_per_step, batch, positions):
    """Multiply-adds of the matrices in a step (forward and backward), against a matrix product
    on this machine.
    """
    per_token = 2 * (4 * 32 * 32 + 2 * 32 * 64) + 32 * 14 + 2 * 2 * 32 * positions
    a = torch.rand(1024, 1024)
    product = medians(6, lambda: a @ a)[0]
    return 6 * per_token * batch * positions / seconds_per_step / 1e9, 2 * 1024**3 / product / 1e9


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--peer", type=int, default=5, help="seeds of the plain loop")
    options.add_argument("--ours", type=int, default=10, help="seeds of fast")
    options.add_argument(
        "--all-pairs", action="store_true", help="also until all 1,000,000 pairs are right"
    )
    options = options.parse_args()
    torch.set_num_threads(1)
    task = load_task("addition:order=ones")
    data = Data(task, recipe("book"))
    train, test = (
        torch.as_tensor(task.batch(rows)[0]) for rows in (data.train_rows, data.test_rows)
    )
    answer = torch.as_tensor(task.batch(data.test_rows)[1])

    mine = [ours(seed, options.all_pairs) for seed in range(options.ours)]
    theirs = [peer(seed, train, test, answer) for seed in range(options.peer)]
    step = statistics.median(t[3] for t in theirs)
    counted = [t[0] if t[2] else EPOCHS * 98 * t[3] for t in theirs]
    fast = [m["seconds"] for m in mine if m]
    reached, possible = gflops(step, BATCH, 12)
    result = {
        "fast_succeeded": f"{len(fast)} of {len(mine)}",
        "fast_steps": [m.get("steps") for m in mine],
        "fast_median_seconds": statistics.median(fast), "fast_seconds": [round(s, 2) for s in fast],
        "peer_succeeded": f"{sum(t[2] for t in theirs)} of {len(theirs)}",
        "peer_steps": [t[1] for t in theirs],
        "peer_median_seconds": statistics.median(counted), "peer_seconds": [round(s,
        1) for s in counted],
        "ratio": statistics.median(counted) / statistics.median(fast[: len(theirs)]),
        "peer_ms_per_step": step * 1e3, "peer_gflops": reached, "matrix_product_gflops": possible,
    }  # fmt: skip
    if options.all_pairs:
        done = [m["all_seconds"] for m in mine if "all_seconds" in m]
        result |= {
            "all_pairs_right": f"{len(done)} of {len(mine)}",
            "all_pairs_steps": [m.get("all_steps") for m in mine],
            "all_pairs_median_seconds": statistics.median(done) if done else None,
        }  # fmt: skip
    print(json.dumps(result))


if __name__ == "__main__":
    main()
