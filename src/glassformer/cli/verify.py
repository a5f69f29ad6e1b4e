"""The command verify: is it right? Counted, sampled, searched; saved, and gone on with."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Exit, Option

from .. import api, coerce
from ..utils import limits
from ..utils.progress import Progress, ProgressCallback
from .common import (
    Cluster,
    Interrupted,
    Json,
    Ref,
    Seed,
    TaskOption,
    app,
    err,
    join_words,
    out,
    print_json,
    print_text,
    progress_bar,
)

if TYPE_CHECKING:
    from ..tasks.base import Task
    from ..verification import Verdict

MAX_SHOWN_CLASSES = 5  # classes
PART_LABELS = {
    "sample": "at random", "edges": "edge cases", "search": "search",
    "alone": "decoded one at a time",
}  # fmt: skip

Dtype = Annotated[str, Option(help="float64, float32 or bfloat16; default: the model's own")]
MaxCounterexamples = Annotated[int, Option(help="maximum number of counterexamples")]
Workers = Annotated[int | None, Option(help="processes; default: as many as cores")]
VerdictFile = Annotated[Path | None, Option(
    "--out", help="FILE.json: save the verdict; run again to continue if stopped")]  # fmt: skip


@app.command("verify")
def verify_(
    ref: Ref,
    task: TaskOption = None,
    sample: Annotated[int | None, Option(
        help="number of random inputs to check besides the edge cases")] = None,
    seed: Seed = 0,
    every: Annotated[bool, Option("--all", help="every input, however many there are")] = False,
    dtype: Dtype = "",
    keep: MaxCounterexamples = 10,
    search: Annotated[int, Option(
        help="rounds of search near the worst rows of a sample")] = 8,
    workers: Workers = None,
    cluster: Cluster = "",
    path: VerdictFile = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Is it right? The whole domain up to about a million inputs, sampled and searched beyond."""
    coerce.as_output(path, ".json", ref, task)
    model = coerce.as_model(ref)
    chosen = coerce.as_task(task, model)
    with resumable(path) as progress:
        verdict = api.verify(
            model, chosen, sample=sample, seed=seed, exhaustive=every, dtype=dtype, keep=keep,
            search=search, out=path, workers=process_count(workers, cluster), cluster=cluster,
            progress=progress,
        )  # fmt: skip
    print_json({"ref": ref, **verdict.to_json()}) if as_json else show_verdict(
        ref, chosen, verdict, path
    )
    raise Exit(0 if verdict.holds else 1)


def process_count(workers: int | None, cluster: str = "") -> int:
    """Return the number of local processes: one per core by default, 1 with a cluster."""
    return (1 if cluster else limits.cores()) if workers is None else workers


@contextmanager
def resumable(path: Path | None) -> Iterator[ProgressCallback]:
    """Yield a callback for a bar; after Ctrl-C, print how to continue."""
    journal = path and path.with_name(path.name + ".journal")
    resumed, last = bool(journal and journal.exists()), Progress()
    with progress_bar("checking") as bar:

        def show_progress(p: Progress) -> None:
            nonlocal resumed, last
            if resumed:  # and it could be read
                err.print(f"going on from {journal}", soft_wrap=True)
            resumed, last = False, p
            bar(p)

        try:
            yield show_progress
        except KeyboardInterrupt:
            far = f"interrupted at {last.done / max(last.total, 1):.1%}"
            again = shlex.join(["glassformer", *sys.argv[1:]])
            lost = "nothing was saved; with --out FILE it could go on"
            raise Interrupted(f"{far} — {f'to go on: {again}' if journal else lost}") from None


# ── printing ───────────────────────────────────────────────────────────────────────────────────
def show_verdict(ref: str, task: "Task", v: "Verdict", path: Path | None = None) -> None:
    looked = [f"a sample (seed {v.seed})"]
    looked += ["the edge cases"] * ("edges" in v.parts) + ["a search"] * ("search" in v.parts)
    how = "every input" if v.exhaustive else join_words(looked, "and")
    void, inputs = v.looked_at - v.checked, task.inputs
    if void and inputs == task.size:  # else what has no answer was no input
        how += f" ({void:,} more have no defined answer)"
    out.print(f"{ref} on {task.ref}: ", end="", soft_wrap=True)
    out.print(f"{v.wrong:,} wrong of {v.checked:,}", style="bold", end="")
    out.print(
        f", {how} of {limits.format_count(inputs)}; worst margin {v.worst_margin:.4g} in {v.dtype}"
    )
    for name, words in PART_LABELS.items():
        if name in v.parts and (name == "alone" or not v.exhaustive):
            bound = ""
            if name == "sample" and v.error_bound is not None and v.confidence is not None:
                whom = "all inputs" if task.samples_uniformly else "inputs so drawn"
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
        for name, c in worst_first[:MAX_SHOWN_CLASSES]:
            out.print(f"    {name}: {_wrong(c)} (margin {c['worst_margin']:.3g})")
    if path:
        print_text(f"wrote {path}")


def _wrong(part: Mapping[str, Any]) -> str:
    return f"{part['wrong']:,} wrong of {part['checked']:,}"
