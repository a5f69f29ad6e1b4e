"""Compare `grok-fast` with `grok`, the usual one-layer recipe, on addition modulo 113.

A run succeeds with `grok-fast` once all held-out pairs are right in `stop_after_successes`
evaluations in a row, with `grok` once 99.9 % of them are right in 10. `grok` is too slow to run
here: its steps come from the histories in published_claims/runs/, its time is these steps times the
measured time of a step. Also: how many frequencies hold 90 % of the embedding's power.

    python benchmarks/train_modular.py --seeds 10
"""

import argparse
import json
import statistics

from timing import medians  # isort: skip - it sets one thread

import numpy as np
import torch

from glassformer import load_task
from glassformer.published_claims.book import read_history
from glassformer.training.api import fit
from glassformer.training.loop import Trainer
from glassformer.training.recipes import find_recipe

GROK = ("grok-0", "grok-1", "grok-2")


def stable_from(evaluations, success=0.999, in_a_row=10):
    """Return the first step of `in_a_row` successful evaluations, or None."""
    run = []
    for e in evaluations:
        run = [*run, e["step"]] if e["accuracy"] >= success else []
        if len(run) == in_a_row:
            return run[0]
    return None


def frequencies(model, share=0.9):
    """Return how many of the 56 frequencies hold a share of the power of the number embeddings."""
    power = (np.abs(np.fft.rfft(model.weights["embed.W_E"][:113], axis=0)) ** 2).sum(1)[1:]
    return int((np.cumsum(np.sort(power)[::-1]) < share * power.sum()).sum()) + 1


def step_seconds(name, steps=10):
    return medians(
        steps, Trainer(load_task("modular-addition"), find_recipe(name), [0])._step, warm=2
    )[0]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seeds", type=int, default=10)
    seeds = range(options.parse_args().seeds)
    torch.set_num_threads(1)
    task = load_task("modular-addition")
    fast = []
    for seed in seeds:
        chosen = find_recipe("grok-fast")
        training = fit(task, chosen, seed)
        since = stable_from(training.history, chosen.target_accuracy, chosen.stop_after_successes)
        good = since is not None and training.accuracy == 1.0
        fast.append(
            {
                "seed": seed,
                "steps": since if good else None,
                "frequencies": frequencies(training.model),
            }
        )
        print(json.dumps(fast[-1] | {"accuracy": training.accuracy}), flush=True)
    slow = []
    for name in GROK:
        try:
            slow.append(stable_from(read_history(name)))
        except FileNotFoundError:
            print(json.dumps({"missing": name}))
    mine, theirs = step_seconds("grok-fast"), step_seconds("grok")
    steps = [f["steps"] for f in fast if f["steps"]]
    result = {
        "grok_fast_succeeded": f"{len(steps)} of {len(fast)}",
        "grok_fast_steps": statistics.median(steps),
        "most_frequencies": max(f["frequencies"] for f in fast), "grok_fast_ms": mine * 1e3,
        "grok_ms": theirs * 1e3,
    }  # fmt: skip
    if slow:
        ratio = statistics.median(slow) / statistics.median(steps)
        result |= {"grok_steps": slow, "steps_ratio": ratio, "time_ratio": ratio * theirs / mine}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
