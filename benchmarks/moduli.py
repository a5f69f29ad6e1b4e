"""`grok-fast` on a dozen primes, sums, differences and products: wrong pairs of all, and steps.

A line of JSON for each run, as of tasks.py; runs that the file has are not done again.

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


def named(p, operation):
    return f"modular-addition:p={p},operation={operation}"


def table(done):
    """A line for each prime: of each operation the wrong pairs of its runs, and their steps."""
    columns = list(OPERATIONS.values())
    lines = ["| " + " | ".join(["p", *columns]) + " |", "|---" * (1 + len(columns)) + "|"]
    for p in PRIMES:
        cells = [cell([r for r in done if r["task"] == named(p, op)]) for op in OPERATIONS]
        lines.append(f"| {p} | " + " | ".join(cells) + " |")
    return lines


def cell(rows):
    """Summarize the runs of one task: wrong answers of each run, if any has some, and steps."""
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
    options.add_argument("runs", type=Path, help="FILE.jsonl: what was run, and where more goes")
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--table", type=Path, help="FILE.md: no run, only the table")
    options = options.parse_args()
    if options.table:
        done = runs.last(runs.read(options.runs)).values()
        done = [row for row in done if row["seed"] < options.seeds]
        return tasks.write(options.table, table(done), BEGIN, END)
    refs = [named(p, operation) for p in PRIMES for operation in OPERATIONS]
    wanted = [(ref, seed) for seed in range(options.seeds) for ref in refs]
    runs.add(options.runs, wanted, lambda ref: find_recipe("grok-fast"), tasks.run)


if __name__ == "__main__":
    main()
