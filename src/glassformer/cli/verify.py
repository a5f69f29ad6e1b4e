"""The command verify: run a model on its whole domain or on a sample; or recheck a verdict."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Context, Exit, Option

from .. import api, coerce
from ..utils import limits
from ..utils.errors import GlassformerError
from ..utils.progress import Progress, ProgressCallback
from ..verification.verdict import short_value
from .common import Interrupted, app, err, join_words, out, print_json, print_text, progress_bar
from .options import Cluster, Dtype, Json, MaxCounterexamples, Ref, Seed, TaskOption

if TYPE_CHECKING:
    from ..tasks.base import Task
    from ..verification import Verdict

MAX_SHOWN_CLASSES = 5
PART_LABELS = {
    "sample": "at random", "edges": "edge cases", "search": "search",
    "alone": "decoded one at a time",
}  # fmt: skip
SAMPLING = ("sample", "seed", "every", "dtype", "max_counterexamples", "search", "cluster")


@app.command("verify")
def verify_(
    context: Context,
    ref: Ref,
    task: TaskOption = None,
    sample: Annotated[int | None, Option(
        help="number of random inputs to check besides the edge cases")] = None,
    seed: Seed = 0,
    every: Annotated[bool, Option("--all", help="check every input of a large domain")] = False,
    dtype: Dtype = "",
    max_counterexamples: MaxCounterexamples = 10,
    search: Annotated[int, Option(
        help="rounds of search for failures near the worst rows of a sample")] = 8,
    recheck: Annotated[Path | None, Option("--recheck",
        help="FILE.json of a saved verdict: run the same rows again and compare")] = None,
    workers: Annotated[int | None, Option(
        help="number of processes; default: one per core")] = None,
    cluster: Cluster = "",
    path: Annotated[Path | None, Option("--out",
        help="FILE.json for the verdict; an interrupted command resumes from FILE.json.journal")
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Run a model on its whole domain (up to about a million inputs), or on a sample.

    A sample comes with the edge cases and a search for failures near its worst rows. Exit status 1
    if an answer is wrong, or if a rechecked verdict differs.
    """
    coerce.as_output(path, ".json", ref, task, recheck)
    model = coerce.as_model(ref)
    processes = (1 if cluster else limits.cores()) if workers is None else workers
    if recheck:
        _refuse_sampling_options(context)
        verdict = coerce.as_verdict(recheck)
        goal = coerce.verdict_task(task, verdict, model)
        with _resumable(path) as progress:
            rechecked = api.recheck(
                model, recheck, goal, out=path, workers=processes, progress=progress
            )
        if as_json:
            print_json({"ref": ref, **rechecked.to_json(), "recheck": str(recheck)})
        else:
            _show_verdict(ref, goal, rechecked.rerun, path)
            for d in rechecked.differences:
                saved, now = short_value(d["saved"]), short_value(d["found"])
                out.print(f"  {d['what']}: {saved} in {recheck}, now {now}")
            out.print(f"{recheck} is {'NOT ' * (not rechecked.confirmed)}confirmed", style="bold")
        raise Exit(0 if rechecked.holds else 1)
    goal = coerce.as_task(task, model)
    with _resumable(path) as progress:
        verdict = api.verify(
            model, goal, sample=sample, seed=seed, exhaustive=every, dtype=dtype,
            max_counterexamples=max_counterexamples, search=search, out=path, workers=processes,
            cluster=cluster, progress=progress,
        )  # fmt: skip
    if as_json:
        print_json({"ref": ref, **verdict.to_json()})
    else:
        _show_verdict(ref, goal, verdict, path)
    raise Exit(0 if verdict.holds else 1)


def _refuse_sampling_options(context: Context) -> None:
    options = {p.name: p.opts[0] for p in context.command.params if p.name in SAMPLING}
    typed = [
        option
        for name, option in options.items()
        if str(context.get_parameter_source(name)).endswith("COMMANDLINE")
    ]
    if typed:
        reason = "the saved verdict sets the rows and the float type"
        raise GlassformerError(f"verify --recheck — {reason}; leave out {join_words(typed, 'and')}")


@contextmanager
def _resumable(path: Path | None) -> Iterator[ProgressCallback]:
    """Yield a progress callback that shows a bar. After Ctrl-C, print the command to resume."""
    journal = path and path.with_name(path.name + ".journal")
    resumed, last = bool(journal and journal.exists()), Progress()
    with progress_bar("checking") as bar:

        def show_progress(p: Progress) -> None:
            nonlocal resumed, last
            if resumed:  # known only after the journal has been read
                err.print(f"resuming from {journal}", soft_wrap=True)
            resumed, last = False, p
            bar(p)

        try:
            yield show_progress
        except KeyboardInterrupt:
            share = f"interrupted at {last.done / max(last.total, 1):.1%}"
            command = shlex.join(["glassformer", *sys.argv[1:]])
            hint = f"to resume: {command}" if journal else "with --out FILE it can be resumed"
            raise Interrupted(f"{share} — {hint}") from None


def _show_verdict(ref: str, task: "Task", v: "Verdict", path: Path | None) -> None:
    sampled = [f"a sample (seed {v.seed})"]
    sampled += ["the edge cases"] * ("edges" in v.parts) + ["a search"] * ("search" in v.parts)
    rows = "every input" if v.exhaustive else join_words(sampled, "and")
    undefined, inputs = v.looked_at - v.checked, task.inputs
    if undefined and inputs == task.size:  # otherwise rows without an answer do not count as inputs
        rows += f" ({undefined:,} more have no defined answer)"
    out.print(f"{ref} on {task.ref}: ", end="", soft_wrap=True)
    out.print(f"{v.wrong:,} wrong of {v.checked:,}", style="bold", end="")
    margin = f"worst margin {v.worst_margin:.4g} in {v.dtype}"
    out.print(f", {rows} of {limits.format_count(inputs)}; {margin}")
    for name, label in PART_LABELS.items():
        if name in v.parts and (name == "alone" or not v.exhaustive):
            bound = ""
            if name == "sample" and v.error_bound is not None and v.confidence is not None:
                population = "all inputs" if task.samples_uniformly else "inputs so drawn"
                bound = f"; at most {100 * v.error_bound:.2g} % of {population} are"
                bound += f", with {100 * v.confidence:g} % confidence"
            out.print(f"  {label}: {_wrong(v.parts[name])}{bound}")
    for c in v.counterexamples:
        text = f"{c['input']} → {c['got']}, expected {c['expected']}"
        out.print(f"  {text} (margin {c['margin']:.3g})")
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
