"""The largest of K numbers by trained models of one head: proved, sampled and true accuracy.

The recipe is `max-of-k`, that of Compact Proofs (arXiv 2406.11779): 64 numbers, one layer, one
head, no MLP, no norm. Seeds are trained as one ensemble, or read from --models DIR. For each seed:
a proved lower bound on the share of all 64^K lists that are right (for every order of summation in
float32), the share of a sample and, with --brute (K = 4), the share of all lists, counted by sums
of tables. Times are processor time. Models and results stay in DIR; a stopped run continues.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

from timing import seconds  # noqa: F401  isort: skip - it sets one thread

import numpy as np

from glassformer import load, load_task
from glassformer.core.checkpoint import save
from glassformer.proof import bound_accuracy


def trained(task, seeds, folder):
    """Return the models of a folder, one per seed; train the missing ones as one ensemble."""
    from glassformer.training.api import fit_many
    from glassformer.training.recipes import find_recipe

    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"seed-{seed:03d}.safetensors" for seed in range(seeds)]
    if missing := [seed for seed, file in enumerate(files) if not file.exists()]:
        began = time.process_time()
        for training in fit_many(task, find_recipe("max-of-k"), missing):
            save(training.model.numpy(), files[training.seed])
        trained_in = {"trained": len(missing), "seconds": time.process_time() - began}
        print(json.dumps(trained_in), flush=True)
    return [load(str(file)) for file in files]


def brute(model, n):
    """Return the share of all lists that are right, from tables of each token's logit terms."""
    w = {name: np.asarray(x, np.float64) for name, x in model.weights.items()}
    E, P, at = w["embed.W_E"], w["pos_embed.W_pos"], "blocks.0.attn."
    Q, K, V, out = (w[f"{at}W_{x}"][0] for x in "QKVO")
    V_size, stream = len(E), E[None] + P[:n, None]  # n V D
    query = stream[-1]
    score = np.einsum("qd,nkd->qnk", query @ Q, stream @ K) * Q.shape[1] ** -0.5
    value, own = stream @ V @ out @ w["unembed.W_U"], query @ w["unembed.W_U"]
    right, numbers = 0, np.arange(V_size)
    for q in range(V_size):
        weight = np.exp(score[q] - score[q].max())
        terms = (weight[..., None] * (value + own[q])).astype(np.float32)  # n V V
        both = terms[1][:, None] + terms[2][None] + terms[3, q]
        largest = np.maximum.outer(numbers, numbers)
        for first in range(V_size):
            answers = (both + terms[0, first]).argmax(-1)
            right += int((answers == np.maximum(largest, max(q, first))).sum())
    return right / V_size**n


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=151)
    parser.add_argument("--models", type=Path, default=Path("runs/max-of-k"))
    parser.add_argument("--brute", action="store_true")
    options = parser.parse_args()
    task, folder = load_task(f"max:vocab=64,length={options.k}"), options.models / f"k{options.k}"
    models, kept = trained(task, options.seeds, folder), folder / "measured.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    rows = [row for row in rows if row["seed"] < options.seeds]
    for seed, model in enumerate(models):
        if seed in {row["seed"] for row in rows}:
            continue
        began = time.process_time()
        bound = bound_accuracy(model, task)
        row = {"seed": seed, "proved": bound.share, "sampled": bound.sampled, "open": bound.open}
        row["seconds"] = time.process_time() - began
        if options.brute and options.k == 4:
            row["true"] = brute(model, options.k)
            row["points"] = 100 * (row["true"] - row["proved"])
        rows.append(row)
        with kept.open("a") as file:
            print(json.dumps(row), file=file)
        print(json.dumps(row), flush=True)
    names = set.intersection(*map(set, rows)) - {"seed"}  # some may have been run without --brute
    middle = {name: statistics.median(row[name] for row in rows) for name in sorted(names)}
    worst = min(r["proved"] for r in rows)
    print(json.dumps({"k": options.k, "seeds": len(rows), "median": middle, "least": worst}))


if __name__ == "__main__":
    main()
