"""The largest of K numbers by trained models of one head: proved, sampled and true accuracy.

The recipe is `max-of-k`, that of Compact Proofs (arXiv 2406.11779): 64 numbers, one layer, one
head, no MLP, no norm. Seeds are trained as one ensemble, or read from --models DIR. For each: at
least how many of all 64^K lists are right (whatever the order of sums in float32), how many of a
sample are, and with --brute (K = 4) how many of all, run by sums of tables. Times are processor
time. What is trained and measured is kept in DIR, so that a run that was stopped goes on.
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
    """Models of a folder, one a seed; trained as one ensemble where they are not there yet."""
    from glassformer.training.api import fit_many
    from glassformer.training.recipes import find_recipe

    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"seed-{seed:03d}.safetensors" for seed in range(seeds)]
    if missing := [seed for seed, file in enumerate(files) if not file.exists()]:
        began = time.process_time()
        for found in fit_many(task, find_recipe("max-of-k"), missing):
            save(found.model.numpy(), files[found.seed])
        trained_in = {"trained": len(missing), "seconds": time.process_time() - began}
        print(json.dumps(trained_in), flush=True)
    return [load(str(file)) for file in files]


def brute(model, n):
    """The share of all lists that are right, from tables of what each token adds to each logit."""
    w = {name: np.asarray(x, np.float64) for name, x in model.weights.items()}
    E, P, at = w["embed.W_E"], w["pos_embed.W_pos"], "blocks.0.attn."
    Q, K, V, out = (w[f"{at}W_{x}"][0] for x in "QKVO")
    V_size, stream = len(E), E[None] + P[:n, None]  # n V D
    asks = stream[-1]
    score = np.einsum("qd,nkd->qnk", asks @ Q, stream @ K) * Q.shape[1] ** -0.5
    value, own = stream @ V @ out @ w["unembed.W_U"], asks @ w["unembed.W_U"]
    right, numbers = 0, np.arange(V_size)
    for q in range(V_size):
        weight = np.exp(score[q] - score[q].max())
        terms = (weight[..., None] * (value + own[q])).astype(np.float32)  # n V V
        both = terms[1][:, None] + terms[2][None] + terms[3, q]
        largest = np.maximum.outer(numbers, numbers)
        for first in range(V_size):
            said = (both + terms[0, first]).argmax(-1)
            right += int((said == np.maximum(largest, max(q, first))).sum())
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
    least = min(r["proved"] for r in rows)
    print(json.dumps({"k": options.k, "seeds": len(rows), "median": middle, "least": least}))


if __name__ == "__main__":
    main()
