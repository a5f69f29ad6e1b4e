"""Train every task with its default options and recipe, as `glassformer train TASK` does.

Writes one line of JSON per run: accuracy on held-out rows before the full-domain phase, wrong rows
of the whole domain (or of a sample) at the end, steps, and processor time including evaluations.
Finished runs are not repeated, so the script can be stopped at any time and started again.

    python benchmarks/tasks.py runs.jsonl               # small tasks first, seed by seed
    python benchmarks/tasks.py runs.jsonl --only 'sort max addition:order=ones' --seeds 2
    python benchmarks/tasks.py others.jsonl --only modular-addition --recipe grok-fast --seeds 20
    python benchmarks/tasks.py runs.jsonl --table docs/trained.md    # write the table of these runs

benchmarks/trained.jsonl has the runs of docs/trained.md.
"""

import argparse
import statistics
import time
from pathlib import Path

import timing  # noqa: F401  # isort: skip - it sets one thread

import runs  # isort: skip

import glassformer as gf
from glassformer import load_task
from glassformer.training.full_domain_phase import ALL_ROWS, SAMPLED_ROWS, DomainCheck
from glassformer.training.loop import Trainer
from glassformer.training.recipes import choose_recipe
from glassformer.utils.numfmt import format_percent_down
from glassformer.verification.evaluation import MAX_EXHAUSTIVE_ROWS, score

BEGIN, END = "<!-- table: benchmarks/tasks.py -->", "<!-- end of the table -->"


def run(ref, seed, recipe):
    """Train once and return the result as a row."""
    task, began = load_task(ref), time.process_time()
    trainer = Trainer(task, recipe, [seed])
    trainer.clock = time.process_time
    overlap = trainer.data.overlap()
    for event in trainer.events():
        if event.kind == "done":
            training = event.data["training"]
    took, check = time.process_time() - began, training.domain_check
    # Without a full-domain phase the run has not checked all rows.
    if not trainer.recipe.full_domain_steps and task.size <= MAX_EXHAUSTIVE_ROWS:
        result = score(training.model.torch(), task)
        check = DomainCheck(result.wrong, result.checked)
    return {
        "task": ref, "seed": seed, "status": training.status,
        "held_out": training.accuracy, "overlap": overlap, "tested": tested(training),
        "wrong": check.wrong if check else None, "checked": check.checked if check else None,
        "looked_at": check.coverage if check else None, "test_right_at": training.full_domain_start,
        "steps": training.steps, "seconds": training.seconds,
        "seconds_in_all": took,
    }  # fmt: skip


def table(done, seeds):
    """Return a table with a row per task: its worst seed, and medians over seeds."""
    head = "| task | seeds | held-out rows right | wrong, whole domain | steps | processor time |"
    lines = [head, "|---|---|---|---|---|---|"]
    for ref in dict.fromkeys(task for task, seed, _ in done if seed < seeds):
        rows = [r for (task, seed, _), r in done.items() if task == ref and seed < seeds]
        lines.append("| " + " | ".join(cells(ref, rows)) + " |")
    return lines


def cells(ref, rows):
    good = [r for r in rows if r["wrong"] == 0]
    if rows[0]["overlap"]:
        held = "none held out"
    else:
        worst = min(rows, key=lambda r: r["held_out"])
        held = f"{format_percent_down(worst['held_out'], decimals=2)} of {worst['tested']:,}"
    short = sum(r["wrong"] is None for r in rows)
    parts = [checked(good[0]) + f" ({len(good)} seeds)" * (len(good) < len(rows))] if good else []
    parts += [checked(r) for r in rows if r["wrong"]]
    parts += [f"not checked: test not right ({short} seeds)"] if short else []
    wrong = "; ".join(parts)
    steps = [r["steps"] for r in rows]
    span = f"{statistics.median(steps):,.0f}" + (
        f" ({min(steps):,}–{max(steps):,})" if len(rows) > 1 else ""
    )
    seconds = statistics.median(r["seconds_in_all"] for r in rows)
    seeds = " + ".join(str(len(some)) for some in runs.by_kernels(rows))
    return [f"`{ref}`", seeds, held, wrong, span, f"{seconds:.1f} s"]


def tested(training):
    """Return the number of test rows of the last evaluation before the full-domain phase."""
    began = training.full_domain_start
    return [r["tested"] for r in training.history if began is None or r["step"] <= began][-1]


def checked(row):
    """Describe the result of a run's last check: wrong, checked, and which rows."""
    some = {ALL_ROWS: "", SAMPLED_ROWS: " drawn"}.get(row["looked_at"], f" ({row['looked_at']})")
    return f"{row['wrong']:,} of {row['checked']:,}{some}"


def write(path, lines, begin=BEGIN, end=END):
    """Write the table between its two marks."""
    text = path.read_text()
    before, _, rest = text.partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise SystemExit(f"{path} — expected the lines {begin} and {end} in it")
    path.write_text("\n".join([before + begin, *lines, end + after]))


def main():
    options = argparse.ArgumentParser()
    options.add_argument(
        "runs", type=Path, help="FILE.jsonl with finished runs, to which new ones are added"
    )
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--only", default="", help="tasks, separated by spaces")
    options.add_argument(
        "--recipe", default="", help="recipe for all tasks, instead of their default recipes"
    )
    options.add_argument(
        "--table", type=Path, help="FILE.md whose table is written, without new runs"
    )
    options = options.parse_args()
    if options.table:
        return write(options.table, table(runs.last(runs.read(options.runs)), options.seeds))
    every = sorted(gf.list("tasks"), key=lambda ref: load_task(ref).size)
    refs = options.only.split() or every
    wanted = [(ref, seed) for seed in range(options.seeds) for ref in refs]
    runs.add(options.runs, wanted, lambda ref: choose_recipe(options.recipe, load_task(ref)), run)


if __name__ == "__main__":
    main()
