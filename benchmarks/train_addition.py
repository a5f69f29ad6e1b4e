"""Compare `glassformer train addition:order=ones` with the book's recipe as a plain PyTorch loop.

The loop has the book's model, two layers of one head, 17,760 parameters. `ours` is what the command
chooses, one layer of four heads, 9,344 parameters; `same` is the command with the book's model. One
thread. Times are processor time, evaluations and domain checks included on all sides: until the
first evaluation at 10,000 of 10,000 test pairs, and until all 1,000,000 sums are right. The loop is
evaluated after every epoch, and checks the domain as we do, in parts of doubling size, up to the
first part with a wrong sum. A loop that does not get there counts with all of its time. Medians
over seeds.

    python benchmarks/train_addition.py runs.jsonl      # an hour; goes on where it was stopped
    python benchmarks/train_addition.py runs.jsonl --until right    # the loop ends with the test
    python benchmarks/train_addition.py runs.jsonl --seeds 1 --epochs 10
    ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 python benchmarks/train_addition.py others.jsonl
"""

import argparse
import json
import statistics
import time
from functools import partial
from pathlib import Path

from timing import medians  # isort: skip - it sets one thread

import runs  # isort: skip

import numpy as np
import torch
from torch import nn

import glassformer as gf
from glassformer import load_task
from glassformer.training.data import TrainingData
from glassformer.training.loop import Trainer
from glassformer.training.recipes import choose_recipe, find_recipe

EPOCHS, BATCH = 150, 512
OURS = {"ours": {}, "same": {"n_layers": 2, "n_heads": 1}}  # the default; the book's model


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


def peer(seed, task, data, epochs, until):
    """Train a plain PyTorch loop until the test rows, then all sums, are right; return the cost."""
    torch.manual_seed(seed)
    model, rng = Book(), np.random.default_rng(seed)
    assert sum(p.numel() for p in model.parameters()) == 17_760
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)
    train = torch.as_tensor(task.batch(data.train_rows)[0])
    per_epoch = -(-len(train) // BATCH)
    total, steps_took = EPOCHS * per_epoch, 0.0
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda t: (
            min(1.0, (t + 1) / 200) * (0.5 * (1 + np.cos(np.pi * max(0, t - 200) / (total - 200))))
        ),
    )
    began, result = time.process_time(), {"right": False, "exact": False}
    for epoch in range(epochs):
        before = time.process_time()
        for rows in torch.randperm(len(train)).split(BATCH):
            tokens = train[rows]
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        steps_took += time.process_time() - before
        tested, steps = all_right(model, task, data.test_rows), (epoch + 1) * per_epoch
        if not result["right"]:  # before the domain check
            seconds = time.process_time() - began
            result |= {"right": tested, "steps": steps, "seconds": seconds}
        if until == "exact":
            result["exact"] = tested and all(all_right(model, task, p) for p in parts(task, rng))
        result |= {"exact_steps": steps, "exact_seconds": time.process_time() - began}
        if result[until]:
            break
    return result | {"ms_per_step": 1e3 * steps_took / result["exact_steps"]}


def all_right(model, task, rows):
    """Return whether the loop's model answers all rows correctly, a thousand at a time."""
    for some in np.array_split(rows, -(-len(rows) // 1_000)):
        tokens, answer = map(torch.as_tensor, task.batch(some))
        with torch.no_grad():
            predicted = model(tokens[:, :-1]).argmax(-1)
        if ((predicted != tokens[:, 1:]) & answer[:, 1:]).any():
            return False
    return True


def parts(task, rng):
    """Yield the domain in random order, in parts of doubling size."""
    blocks, size = rng.permutation(task.size // 1_000), 4
    while len(blocks):
        few, blocks = np.split(blocks, [size])
        yield np.concatenate([task.rows(1_000 * b, 1_000 * (b + 1)) for b in few.tolist()])
        size *= 2


def ours(chosen, seed):
    """Measure `glassformer train addition:order=ones` with a recipe, as `peer` does the loop."""
    task, began = load_task("addition:order=ones"), time.process_time()
    run, right = Trainer(task, chosen, [seed]), {}
    evaluate = run.evaluator

    def timed(model, in_full_domain_phase):
        """Evaluate, and record when all test rows were first right, before the domain check."""
        report = evaluate(model, in_full_domain_phase)
        if report["accuracy"] == 1.0 and not (in_full_domain_phase or right):
            right.update(steps=run.step, seconds=time.process_time())
        return report

    run.evaluator = timed
    [training] = [event.data["training"] for event in run.events() if event.kind == "done"]
    end, check = {"steps": run.step, "seconds": time.process_time()}, training.domain_check
    first = right or end
    return {
        "parameters": gf.count(training.model).total,
        "right": bool(right), "steps": first["steps"], "seconds": first["seconds"] - began,
        "exact": bool(check and check.is_exhaustive and not check.wrong),
        "exact_steps": end["steps"], "exact_seconds": end["seconds"] - began,
    }  # fmt: skip


def gflops(seconds_per_step, batch, positions):
    """Return GFLOP/s of a training step's matrix products, and of one large product here."""
    per_token = 2 * (4 * 32 * 32 + 2 * 32 * 64) + 32 * 14 + 2 * 2 * 32 * positions
    a = torch.rand(1024, 1024)
    product = medians(6, lambda: a @ a)[0]
    return 6 * per_token * batch * positions / seconds_per_step / 1e9, 2 * 1024**3 / product / 1e9


def main():
    options = argparse.ArgumentParser()
    options.add_argument(
        "runs", type=Path, help="FILE.jsonl with finished runs, to which new ones are added"
    )
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument(
        "--epochs", type=int, default=EPOCHS, help="maximum number of epochs of the loop"
    )
    options.add_argument(
        "--until", choices=("right", "exact"), default="exact", help="when the loop ends"
    )
    options = options.parse_args()
    torch.set_num_threads(1)
    task = load_task("addition:order=ones")
    data = TrainingData(task, find_recipe("book"))
    kernels = {"kernels": runs.kernels()}
    loop = {"epochs": options.epochs, "until": options.until}
    named = {"loop": {"who": "loop", **loop} | kernels}
    train = {"loop": lambda seed: peer(seed, task, data, **loop)}
    for who, settings in OURS.items():
        chosen = choose_recipe("", task).override(settings)
        named[who] = {"who": who, "recipe": runs.fingerprint(chosen)} | kernels
        train[who] = partial(ours, chosen)
    done = {key(row): row for row in runs.read(options.runs)}
    wanted = []
    # alternating, so that other load affects both sides
    for seed, who in [(seed, who) for seed in range(options.seeds) for who in train]:
        wanted.append(key(named[who] | {"seed": seed}))
        if wanted[-1] not in done:
            done[wanted[-1]] = row = named[who] | train[who](seed) | {"seed": seed}
            runs.append(options.runs, row)
            print(json.dumps(row), flush=True)
    print(json.dumps(summary([done[k] for k in wanted], options.until)))


def key(row):
    """Return the fields that identify a run: its options, recipe and kernels."""
    names = ("who", "seed", "epochs", "until", "recipe", "kernels")
    return tuple(row.get(name) for name in names)


def summary(rows, until):
    """Return medians over seeds, and their ratios."""
    by = {who: [r for r in rows if r["who"] == who] for who in (*OURS, "loop")}
    out = {"kernels": torch.backends.cpu.get_cpu_capability(), "seeds": len(by["loop"])}
    for what, seconds in (("right", "seconds"), ("exact", "exact_seconds")):
        for who, mine in by.items():
            out[f"{who}_{what}"] = f"{sum(r[what] for r in mine)} of {len(mine)}"
            out[f"{who}_{what}_seconds"] = statistics.median(r[seconds] for r in mine)
        for who in OURS if until in (what, "exact") else ():
            ratio = out[f"loop_{what}_seconds"] / out[f"{who}_{what}_seconds"]
            out[f"{who}_{what}_ratio"] = ratio
    step = statistics.median(r["ms_per_step"] for r in by["loop"])
    reached, possible = gflops(step / 1e3, BATCH, 12)
    return out | {
        "loop_ms_per_step": step, "loop_gflops": reached, "matrix_product_gflops": possible,
    }  # fmt: skip


if __name__ == "__main__":
    main()
