"""Runs in a file, a line of JSON each: what is there is not done again.

A run is of a task, a seed, a recipe and the kernels that PyTorch took, which round in other ways.
Others than the machine's best:

    ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 OPENBLAS_CORETYPE=Haswell python benchmarks/tasks.py …
"""

import hashlib
import json


def kernels():
    """Those of this process."""
    import torch

    return torch.backends.cpu.get_cpu_capability()


def fingerprint(recipe):
    """A few letters that are others if any field of a recipe is. Those at their defaults do not
    count: a new one leaves the runs of before as they are.
    """
    fields = json.dumps(recipe.changed(), sort_keys=True)
    return hashlib.sha256(fields.encode()).hexdigest()[:8]


def key(row):
    return row["task"], row["seed"], row["kernels"]


def last(rows):
    """Of several runs of the same key the last: the key, and the row."""
    return {key(row): row for row in rows}


def read(path):
    """The rows of the file. A line that was cut off when something ended it is none."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def append(path, row):
    """Adds a row, on a line of its own even if the last one was cut off."""
    had = path.read_bytes() if path.exists() else b""
    cut = b"\n" if had and not had.endswith(b"\n") else b""
    with path.open("ab") as file:
        file.write(cut + json.dumps(row).encode() + b"\n")


def by_kernels(rows):
    """The rows of some kernels, those of others, …: a list each."""
    names = sorted({row["kernels"] for row in rows}, reverse=True)  # AVX512, AVX2
    return [[row for row in rows if row["kernels"] == name] for name in names]


def add(path, wanted, recipe_of, run):
    """Runs what of `wanted`, pairs of a task and a seed, the file has not with the recipe that they
    have today, and prints each.
    """
    done, mine = {(*key(row), row["recipe"]) for row in read(path)}, kernels()
    for task, seed in wanted:
        recipe = recipe_of(task)
        now = {"kernels": mine, "recipe": fingerprint(recipe)}
        if (task, seed, *now.values()) not in done:
            row = run(task, seed, recipe) | now
            append(path, row)
            print(json.dumps(row), flush=True)
