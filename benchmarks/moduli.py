"""`grok-fast` on a dozen primes, sums, differences and products: wrong pairs of all, and steps.

Writes one line of JSON per run, as tasks.py does; runs that are in the file are not repeated.

    python benchmarks/moduli.py runs.jsonl              # some minutes
    python benchmarks/moduli.py runs.jsonl --table docs/trained.md

benchmarks/moduli.jsonl has the runs of docs/trained.md.
"""

import argparse
import statistics
from pathlib import Path

import timing  # noqa: F401  # isort: skip - it sets one thread

import runs  # isort: skip
import tasks  # isort: skip

from glassformer.training.recipes import find_recipe

PRIMES = (11, 13, 17, 23, 31, 41, 59, 83, 113, 151, 199, 257)
OPERATIONS = {"+": "a + b", "-": "a − b", "*": "a · b"}
BEGIN, END = "<!-- table: benchmarks/moduli.py -->", "<!-- end of the moduli -->"


def ref_of(p, operation):
    return f"modular-addition:p={p},operation={operation}"


def table(done):
    """Return a table: a row per prime, a column per operation, with wrong pairs and steps."""
    columns = list(OPERATIONS.values())
    lines = ["| " + " | ".join(["p", *columns]) + " |", "|---" * (1 + len(columns)) + "|"]
    for p in PRIMES:
        cells = [cell([r for r in done if r["task"] == ref_of(p, op)]) for op in OPERATIONS]
        lines.append(f"| {p} | " + " | ".join(cells) + " |")
    return lines


def cell(rows):
    """Summarize the runs of one task: wrong answers of each run, if any, and median steps."""
    if not rows:
        return "not run"
    steps = [
        f"{statistics.median(r['steps'] for r in some):,.0f}" for some in runs.by_kernels(rows)
    ]
    after = f"{' and '.join(steps)} steps"
    if not any(r["wrong"] for r in rows):
        return f"0 wrong, {after}"
    wrong = ", ".join(f"{r['wrong']:,}" for r in rows)
    return f"**{wrong}** of {rows[0]['checked']:,} wrong, {after}"


def main():
    options = argparse.ArgumentParser()
    options.add_argument(
        "runs", type=Path, help="FILE.jsonl with finished runs, to which new ones are added"
    )
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument(
        "--table", type=Path, help="FILE.md whose table is written, without new runs"
    )
    options = options.parse_args()
    if options.table:
        done = runs.last(runs.read(options.runs)).values()
        done = [row for row in done if row["seed"] < options.seeds]
        return tasks.write(options.table, table(done), BEGIN, END)
    refs = [ref_of(p, operation) for p in PRIMES for operation in OPERATIONS]
    wanted = [(ref, seed) for seed in range(options.seeds) for ref in refs]
    runs.add(options.runs, wanted, lambda ref: find_recipe("grok-fast"), tasks.run)


if __name__ == "__main__":
    main()
