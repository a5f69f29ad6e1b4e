"""Train the models that statements of the sources are about, and measure each; one line per run.

The claims read these lines and print in how many runs a statement holds, with an interval:
`glassformer claims report-4`. Finished runs are not repeated, so the script can be stopped at any
time and started again. It adds to src/glassformer/published_claims/runs/GROUP.jsonl.

    python benchmarks/statements.py adder --seeds 20     # half a minute of processor time a run
    python benchmarks/statements.py report --seeds 20    # two minutes a run
"""

import argparse
import time
from pathlib import Path

import timing  # noqa: F401  # isort: skip - it sets one thread

import runs  # isort: skip

import torch

import glassformer as gf
from glassformer.published_claims import over_seeds
from glassformer.training.api import fit
from glassformer.training.recipes import choose_recipe

FOLDER = Path(gf.__file__).parent / "published_claims" / "runs"


def run(group):
    """Return a function that trains a run of a group and returns its row."""

    def train_and_measure(ref, seed, recipe):
        task, began = gf.load_task(ref), time.process_time()
        training = fit(task, recipe, seed)
        trained = time.process_time()
        row = {
            "task": ref, "seed": seed, "steps": training.steps, "accuracy": training.accuracy,
            "seconds": round(trained - began, 1),
        }  # fmt: skip
        row |= over_seeds.measure_history(training.history)
        return row | over_seeds.MEASURES[group](training.model, task)

    return train_and_measure


def main():
    options = argparse.ArgumentParser()
    options.add_argument("group", choices=over_seeds.GROUPS)
    options.add_argument("--seeds", type=int, default=over_seeds.MIN_RUNS)
    options.add_argument("--runs", type=Path, help="FILE.jsonl instead of the file of the package")
    options = options.parse_args()
    torch.set_num_threads(1)
    ref, recipe, settings = over_seeds.GROUPS[options.group]
    recipe = choose_recipe(recipe, gf.load_task(ref)).override(settings)
    path = options.runs or FOLDER / f"{options.group}.jsonl"
    wanted = [(ref, seed) for seed in range(options.seeds)]
    runs.add(path, wanted, lambda ref: recipe, run(options.group))


if __name__ == "__main__":
    main()
