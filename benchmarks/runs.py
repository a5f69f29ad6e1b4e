"""Runs in a file, a line of JSON each: what is there is not done again."""

import json


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


def add(path, wanted, run):
    """Runs what of `wanted`, pairs of a task and a seed, the file has not, and prints each."""
    done = {(row["task"], row["seed"]) for row in read(path)}
    for task, seed in wanted:
        if (task, seed) not in done:
            row = run(task, seed)
            append(path, row)
            print(json.dumps(row), flush=True)
