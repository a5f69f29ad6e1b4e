"""The command verify: is it right? Counted, sampled, searched; saved, and gone on with."""

import shlex
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Annotated, Any

from rich.progress import Progress as Bar
from rich.progress import TextColumn
from typer import Exit, Option

from .. import resolve
from ..core.model import Model
from ..tasks.base import Task
from ..utils import limits
from ..utils.errors import GlassformerError
from ..utils.fileio import alone, remove
from ..verification import Progress, Verdict, check
from .common import (
    Cluster,
    Interrupted,
    Json,
    Ref,
    Seed,
    TaskName,
    app,
    check_json,
    listed,
    out,
    print_json,
    progress,
)

SHOWN = 5  # classes
PARTS = {
    "sample": "at random", "edges": "edge cases", "search": "search",
    "alone": "decoded one at a time",
}  # fmt: skip

Dtype = Annotated[str, Option(help="float64, float32 or bfloat16; default: the model's own")]
Keep = Annotated[int, Option(min=0, max=limits.KEEP, help="so many counterexamples")]
Workers = Annotated[int | None, Option(
    min=1, max=limits.PROCESSES, help="processes; default: as many as cores")]  # fmt: skip
VerdictFile = Annotated[Path | None, Option(
    "--out", help="save the verdict; if interrupted, go on later")]  # fmt: skip


@app.command("verify")
def verify_(
    ref: Ref,
    task: TaskName = "",
    sample: Annotated[int | None, Option(min=1, max=limits.SAMPLE,
        help="check so many at random, and the edge cases")] = None,
    seed: Seed = 0,
    every: Annotated[bool, Option("--all", help="every input, however many there are")] = False,
    dtype: Dtype = "",
    keep: Keep = 10,
    search: Annotated[int, Option(min=0, max=limits.SEARCH,
        help="rounds of search near a sample's worst")] = 8,
    workers: Workers = None,
    cluster: Cluster = "",
    path: VerdictFile = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Is it right? The whole domain up to about a million inputs, sampled and searched beyond."""
    model = resolve.load(ref)
    if every and sample:
        raise GlassformerError("--all and --sample — one or the other")
    chosen = resolve.load_task(task or model)
    check_json(path, ref, task)
    verdict = check_and_save(
        model, chosen, path, workers, sample=sample, seed=seed, exhaustive=every, dtype=dtype,
        keep=keep, search=search, cluster=cluster,
    )  # fmt: skip
    print_json({"ref": ref, **verdict.to_json()}) if as_json else show(ref, chosen, verdict)
    raise Exit(0 if verdict.holds else 1)


def check_and_save(
    model: Model, task: Task, path: Path | None, workers: int | None, **options: Any
) -> Verdict:
    """Checks with these options of `check`, and saves the verdict; Ctrl-C leaves a journal."""
    journal = path and path.with_name(path.name + ".journal")
    with alone(path):
        here = workers or (1 if options.get("cluster") else limits.cores())
        events = check(model, task, journal=journal, workers=here, **options)
        verdict = _watch(events, journal)
        if path and journal:
            verdict.save(path)
            remove(journal)
    return verdict


def _watch(events: Generator[Progress | Verdict, None, None], journal: Path | None) -> Verdict:
    """Consumes a check, with a bar on a terminal. Ctrl-C leaves a journal and says how to go on."""
    begun = journal and journal.exists()
    last = Progress(0, 1, 0)
    try:
        with progress(*Bar.get_default_columns(), TextColumn("{task.fields[rate]}")) as bar:
            line = bar.add_task("checking", total=None, rate="")
            for event in events:
                if begun:  # and it could be read
                    bar.console.print(f"going on from {journal}", soft_wrap=True)
                    begun = False
                if isinstance(event, Verdict):
                    return event
                last, speed = event, bar.tasks[0].speed
                bar.update(
                    line, total=event.todo, completed=event.done,
                    description=f"checking, {event.wrong:,} wrong",
                    rate=f"{speed:,.0f} inputs/s" if speed else "",
                )  # fmt: skip
    except KeyboardInterrupt:
        events.close()  # which saves
        far = f"interrupted at {last.done / max(last.todo, 1):.1%}"
        again = shlex.join(["glassformer", *sys.argv[1:]])
        lost = "nothing was saved; with --out FILE it could go on"
        raise Interrupted(f"{far} — {f'to go on: {again}' if journal else lost}") from None
    raise AssertionError("a check ends with a verdict")


# ── printing ───────────────────────────────────────────────────────────────────────────────────
def show(ref: str, task: Task, v: Verdict) -> None:
    looked = [f"a sample (seed {v.seed})"]
    looked += ["the edge cases"] * ("edges" in v.parts) + ["a search"] * ("search" in v.parts)
    how = "every input" if v.exhaustive else listed(looked, "and")
    void, inputs = v.looked_at - v.checked, task.inputs
    if void and inputs == task.size:  # else what has no answer was no input
        how += f" ({void:,} more have no defined answer)"
    out.print(f"{ref} on {task.ref}: ", end="", soft_wrap=True)
    out.print(f"{v.wrong:,} wrong of {v.checked:,}", style="bold", end="")
    out.print(f", {how} of {limits.many(inputs)}; worst margin {v.worst_margin:.4g} in {v.dtype}")
    for name, words in PARTS.items():
        if name in v.parts and (name == "alone" or not v.exhaustive):
            bound = ""
            if name == "sample" and v.error_bound is not None and v.confidence is not None:
                whom = "all inputs" if type(task).sample is Task.sample else "inputs so drawn"
                bound = f"; at most {100 * v.error_bound:.2g} % of {whom} are"
                bound += f", with {100 * v.confidence:g} % confidence"
            out.print(f"  {words}: {_wrong(v.parts[name])}{bound}")
    for c in v.counterexamples:
        said = f"{c['input']} → {c['got']}, expected {c['expected']}"
        out.print(f"  {said} (margin {c['margin']:.3g})")
    failing = {name: c for name, c in v.classes.items() if c["wrong"]}
    if len(v.classes) > 1 and failing:
        out.print(f"  by class of input, {len(failing)} of {len(v.classes)} with failures:")
        worst_first = sorted(failing.items(), key=lambda f: -f[1]["wrong"] / f[1]["checked"])
        for name, c in worst_first[:SHOWN]:
            out.print(f"    {name}: {_wrong(c)} (margin {c['worst_margin']:.3g})")


def _wrong(part: Mapping[str, Any]) -> str:
    return f"{part['wrong']:,} wrong of {part['checked']:,}"
