"""Every task with its default options and the recipe that suits it, as `glassformer train TASK`.

A line of JSON for each run: held-out rows right before the whole domain was trained on, wrong rows
of the whole domain (or of a sample) at the end, steps, processor time of all (evaluations too).
Runs that the file has are not done again, so it can be stopped at any time and go on.

    python benchmarks/tasks.py runs.jsonl               # small tasks first, seed by seed
    python benchmarks/tasks.py runs.jsonl --only 'sort max addition:order=ones' --seeds 2
    python benchmarks/tasks.py others.jsonl --only modular-addition --recipe grok-fast --seeds 20
    python benchmarks/tasks.py runs.jsonl --table docs/trained.md    # what there is, as a table

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
    """One training as a line of the table."""
    task, began = load_task(ref), time.process_time()
    trainer = Trainer(task, recipe, [seed])
    trainer.clock = time.process_time
    overlap = trainer.data.overlap()
    for event in trainer.events():
        if event.kind == "done":
            training = event.data["training"]
    took, look = time.process_time() - began, training.domain_check
    if (
        not trainer.recipe.full_domain_steps and task.size <= MAX_EXHAUSTIVE_ROWS
    ):  # the run has not checked all rows
        found = score(training.model.torch(), task)
        look = DomainCheck(found.wrong, found.checked)
    return {
        "task": ref, "seed": seed, "status": training.status,
        "held_out": training.accuracy, "overlap": overlap, "tested": tested(training),
        "wrong": look.wrong if look else None, "checked": look.checked if look else None,
        "looked_at": look.coverage if look else None, "test_right_at": training.full_domain_start,
        "steps": training.steps, "seconds": training.seconds,
        "seconds_in_all": took,
    }  # fmt: skip


def table(done, seeds):
    """A line for each task: the worst of its seeds, and medians."""
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
    parts = [looked(good[0]) + f" ({len(good)} seeds)" * (len(good) < len(rows))] if good else []
    parts += [looked(r) for r in rows if r["wrong"]]
    parts += [f"not looked at: test not right ({short} seeds)"] if short else []
    wrong = "; ".join(parts)
    steps = [r["steps"] for r in rows]
    span = f"{statistics.median(steps):,.0f}" + (
        f" ({min(steps):,}–{max(steps):,})" if len(rows) > 1 else ""
    )
    seconds = statistics.median(r["seconds_in_all"] for r in rows)
    seeds = " + ".join(str(len(some)) for some in runs.by_kernels(rows))
    return [f"`{ref}`", seeds, held, wrong, span, f"{seconds:.1f} s"]


def tested(training):
    """How many test rows the figure of a run is of: those before its last phase."""
    began = training.full_domain_start
    return [r["tested"] for r in training.history if began is None or r["step"] <= began][-1]


def looked(row):
    """Describe the result of a run's last check: wrong, checked, and which rows."""
    some = {ALL_ROWS: "", SAMPLED_ROWS: " drawn"}.get(row["looked_at"], f" ({row['looked_at']})")
    return f"{row['wrong']:,} of {row['checked']:,}{some}"


def write(path, lines, begin=BEGIN, end=END):
    """Puts the table between its two marks."""
    text = path.read_text()
    before, _, rest = text.partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise SystemExit(f"{path} — expected the lines {begin} and {end} in it")
    path.write_text("\n".join([before + begin, *lines, end + after]))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("runs", type=Path, help="FILE.jsonl: what was run, and where more goes")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--only", default="", help="tasks, with blanks between")
    options.add_argument("--recipe", default="", help="for all of them, and not the one they get")
    options.add_argument("--table", type=Path, help="FILE.md: no run, only the table")
    options = options.parse_args()
    if options.table:
        return write(options.table, table(runs.last(runs.read(options.runs)), options.seeds))
    every = sorted(gf.list("tasks"), key=lambda ref: load_task(ref).size)
    refs = options.only.split() or every
    wanted = [(ref, seed) for seed in range(options.seeds) for ref in refs]
    runs.add(options.runs, wanted, lambda ref: choose_recipe(options.recipe, load_task(ref)), run)


if __name__ == "__main__":
    main()
