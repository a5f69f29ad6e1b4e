"""Runs in a file, one line of JSON each; finished ones are not repeated.

A run has a task, a seed, a recipe and the kernels of PyTorch, which differ in rounding. To choose
other kernels than the machine's best:

    ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 OPENBLAS_CORETYPE=Haswell python benchmarks/tasks.py …
"""

import hashlib
import json

from glassformer.utils import migrate


def kernels():
    """Return the kernels of this process."""
    import torch

    return torch.backends.cpu.get_cpu_capability()


def fingerprint(recipe):
    """Return a hash of the fields that differ from their defaults.

    It hashes the fields' first names, so that renamed and new fields keep old hashes valid.
    """
    fields = json.dumps(migrate.recipe_before(recipe.non_default_fields()), sort_keys=True)
    return hashlib.sha256(fields.encode()).hexdigest()[:8]


def key(row):
    return row["task"], row["seed"], row["kernels"]


def last(rows):
    """Return key -> the last row with that key."""
    return {key(row): row for row in rows}


def read(path):
    """Return the rows of the file, without a line that was cut off."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def append(path, row):
    """Append a row, on a new line even if the last one was cut off."""
    before = path.read_bytes() if path.exists() else b""
    cut = b"\n" if before and not before.endswith(b"\n") else b""
    with path.open("ab") as file:
        file.write(cut + json.dumps(row).encode() + b"\n")


def by_kernels(rows):
    """Return a list of rows for each set of kernels."""
    names = sorted({row["kernels"] for row in rows}, reverse=True)  # AVX512, AVX2
    return [[row for row in rows if row["kernels"] == name] for name in names]


def add(path, wanted, recipe_of, run):
    """Run the pairs (task, seed) of `wanted` that the file lacks for today's recipe; print each."""
    done, mine = {(*key(row), row["recipe"]) for row in read(path)}, kernels()
    for task, seed in wanted:
        recipe = recipe_of(task)
        now = {"kernels": mine, "recipe": fingerprint(recipe)}
        if (task, seed, *now.values()) not in done:
            row = run(task, seed, recipe) | now
            append(path, row)
            print(json.dumps(row), flush=True)
