"""Benchmarks take minutes, and no test measures time: here each is only loaded, so that a name that
has moved is seen, and what they share does what it says.
"""

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from glassformer.published_claims import over_seeds
from glassformer.training.recipes import find_recipe

HERE = Path(__file__).parents[1] / "benchmarks"
spec = importlib.util.spec_from_file_location("benchmark_runs", HERE / "runs.py")
runs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(runs)


def test_they_load():
    """In a process of their own: `tasks` and `page` are names of tests, too."""
    names = ", ".join(sorted(path.stem for path in HERE.glob("*.py")))
    code = f"import sys; sys.path.insert(0, {str(HERE)!r}); import {names}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-500:]


def test_a_run_is_known_by_what_its_recipe_sets():
    fast = find_recipe("fast")
    assert runs.fingerprint(fast) == runs.fingerprint(replace(fast))
    assert runs.fingerprint(fast) != runs.fingerprint(replace(fast, lr=0.007))
    assert "restart_after_steps" not in fast.non_default_fields(), (
        "a field that it leaves alone is no part of it"
    )


def test_what_is_there_is_not_run_again(tmp_path, capsys):
    path, done = tmp_path / "runs.jsonl", []

    def run(task, seed, chosen):
        done.append((task, seed, chosen.name))
        return {"task": task, "seed": seed}

    wanted = [("a", 0), ("a", 1)]
    runs.add(path, wanted, lambda task: find_recipe("fast"), run)
    path.write_bytes(path.read_bytes()[:-5])  # something ended it in the middle of a line
    runs.add(path, wanted, lambda task: find_recipe("fast"), run)
    runs.add(path, wanted, lambda task: find_recipe("book"), run)
    assert done == [("a", 0, "fast"), ("a", 1, "fast"), ("a", 1, "fast"), ("a", 0, "book"),
                    ("a", 1, "book")]  # fmt: skip
    assert [json.loads(line)["seed"] for line in capsys.readouterr().out.splitlines()]
    assert {row["recipe"] for row in runs.last(runs.read(path)).values()} == {
        runs.fingerprint(find_recipe("book"))
    }


def test_a_run_of_statements_has_the_fields_of_the_kept_ones():
    """With a recipe of a second instead of the group's."""
    code = f"""import sys; sys.path.insert(0, {str(HERE)!r})
import json, statements
from glassformer import load_task
from glassformer.training.recipes import choose_recipe
ref = "addition:order=ones"
short = choose_recipe("fast", load_task(ref)).override(
    {{"steps": 40, "train_rows": 500, "test_rows": 100}}
)
print(json.dumps(statements.run("adder")(ref, 0, short)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    row = json.loads(done.stdout)
    kept = over_seeds.read_runs("adder")[0].keys() - {"kernels", "recipe"}
    assert row["steps"] == 40 and row.keys() == kept
