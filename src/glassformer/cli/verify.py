"""The command verify: is it right? Counted, sampled, searched; saved, gone on with and checked again."""

import shlex
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from .. import limits, refs
from ..checkpoint import digest
from ..errors import GlassformerError
from ..model import Model
from ..records import alone, check_writable, remove
from ..tasks.base import Task
from ..verification import Progress, Verdict, check
from .common import Interrupted, Json, Ref, app, err, out, print_json
from .protocol import run_protocol

ROUNDS = 8  # of search, where only a sample can be looked at
SHOWN = 5  # classes


@app.command("verify")
def verify_(
    ref: Ref,
    task: Annotated[str, typer.Option(help="what is right; by default the model's own task")] = "",
    sample: Annotated[
        int | None, typer.Option(min=1, max=limits.SAMPLE, help="check so many at random, and the edge cases")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=limits.SEED, help="of sampling; default 0")] = None,
    every: Annotated[bool, typer.Option("--all", help="every input, however many there are")] = False,
    dtype: Annotated[str, typer.Option(help="float64, float32 or bfloat16; default: the model's own")] = "",
    keep: Annotated[
        int | None, typer.Option(min=0, max=limits.KEEP, help="so many counterexamples; default 10")
    ] = None,
    search: Annotated[
        int | None,
        typer.Option(min=0, max=limits.SEARCH, help=f"rounds of search near a sample's worst; default {ROUNDS}"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=limits.PROCESSES, help="processes; default: as many as cores")
    ] = None,
    path: Annotated[Path | None, typer.Option("--out", help="save the verdict; if interrupted, go on later")] = None,
    recheck: Annotated[Path | None, typer.Option(help="check a saved verdict: the same rows again")] = None,
    protocol: Annotated[str, typer.Option(help="adderboard: the leaderboard's 10,010 sums instead")] = "",
    trust: Annotated[bool, typer.Option("--trust", help="run the code of a submission file, with limits")] = False,
    as_json: Json = False,
) -> None:
    """Is it right? The whole domain up to about a million inputs, sampled and searched beyond."""
    if protocol:
        unused = {
            "--sample": sample, "--seed": seed, "--all": every or None, "--search": search, "--workers": workers,
            "--out": path, "--recheck": recheck,
        }  # fmt: skip
        run_protocol(
            protocol, ref, task=task, dtype=dtype, keep=10 if keep is None else keep, trust=trust, unused=unused,
            as_json=as_json,
        )  # fmt: skip
    if trust:
        raise GlassformerError("--trust — goes with --protocol and a submission file")
    model = refs.load(ref)
    given = {"--sample": sample, "--seed": seed, "--all": every or None, "--dtype": dtype or None, "--keep": keep}
    given["--search"] = search
    saved = None
    if recheck:
        if twice := [name for name, value in given.items() if value is not None]:
            raise GlassformerError(f"--recheck — looks at what the verdict says; leave out {', '.join(twice)}")
        saved = Verdict.read(recheck)
        chosen = _same_model_and_task(saved, recheck, ref, model, task)
        options = saved.again
    else:
        if every and sample:
            raise GlassformerError("--all and --sample — one or the other")
        chosen = refs.load_task(task or model)
        options = {"sample": sample, "exhaustive": every, "dtype": dtype}
        options |= {"seed": seed or 0, "keep": 10 if keep is None else keep}
        options["search"] = ROUNDS if search is None else search
    options["workers"] = workers or limits.cores()
    check_writable(path, ref, recheck)
    journal = path and path.with_name(path.name + ".journal")
    with alone(path):
        verdict = _watch(check(model, chosen, journal=journal, **options), journal)
        if path and journal:
            verdict.save(path)
            remove(journal)
    differences = saved.differences(verdict) if saved else []
    if as_json:
        again = {"recheck": str(recheck), "confirmed": not differences, "differences": differences} if saved else {}
        print_json({"ref": ref, **verdict.to_json(), **again})
    else:
        _print(ref, chosen, verdict)
        for d in differences:
            out.print(f"  {d['what']}: {recheck} says {_brief(d['saved'])}, found {_brief(d['found'])}")
        if saved:
            out.print(f"{recheck} is " + ("NOT confirmed" if differences else "confirmed"), style="bold")
    raise typer.Exit(0 if verdict.holds and not differences else 1)


def _same_model_and_task(saved: Verdict, path: Path, ref: str, model: Model, task: str) -> Task:
    if saved.model != digest(model):
        raise GlassformerError(
            f"{path} — is about another model: {saved.model[:12]}…, but {ref} is {digest(model)[:12]}…"
        )
    chosen = refs.load_task(task or saved.task)
    if chosen.ref != saved.task:
        raise GlassformerError(f"{path} — is about the task {saved.task}, not {chosen.ref}")
    return chosen


def _watch(events: Generator[Any, None, None], journal: Path | None) -> Verdict:
    """Consumes a check; shows a bar on a terminal. Ctrl-C leaves a journal, and a word on how to go on."""
    begun = journal and journal.exists()
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    last = Progress(0, 1, 0)
    try:
        with Bar(*columns, TextColumn("{task.fields[rate]}"), console=err, transient=True,
                 disable=not sys.stderr.isatty()) as bar:  # fmt: skip
            line = bar.add_task("checking", total=None, rate="")
            for event in events:
                if begun:  # and it could be read
                    err.print(f"going on from {journal}", soft_wrap=True)
                    begun = False
                if isinstance(event, Verdict):
                    return event
                last, speed = event, bar.tasks[0].speed
                said = f"checking, {event.wrong:,} wrong"
                bar.update(line, total=event.todo, completed=event.done, description=said,
                           rate=f"{speed:,.0f} inputs/s" if speed else "")  # fmt: skip
    except KeyboardInterrupt:
        events.close()  # which saves
        far = f"interrupted at {last.done / max(last.todo, 1):.1%}"
        if not journal:
            raise Interrupted(f"{far} — nothing was saved; with --out FILE it could go on") from None
        raise Interrupted(f"{far} — to go on: {shlex.join(['glassformer', *sys.argv[1:]])}") from None
    raise AssertionError("a check ends with a verdict")


# ── printing ───────────────────────────────────────────────────────────────────────────────────
def _print(ref: str, task: Task, v: Verdict) -> None:
    looked = [f"a sample (seed {v.seed})"]
    looked += ["the edge cases"] * ("edges" in v.parts) + ["a search"] * ("search" in v.parts)
    how = "every input" if v.exhaustive else " and ".join(filter(None, [", ".join(looked[:-1]), looked[-1]]))
    void = v.looked_at - v.checked
    how += f" ({void:,} more have no defined answer)" if void else ""
    out.print(f"{ref} on {task.ref}: ", end="")
    out.print(f"{v.wrong:,} wrong of {v.checked:,}", style="bold", end="")
    out.print(f", {how} of {limits.many(v.domain)}; worst margin {v.worst_margin:.4g} in {v.dtype}")
    parts = (("sample", "at random"), ("edges", "edge cases"), ("search", "search"), ("alone", "decoded one at a time"))
    for name, words in parts:
        if name in v.parts and (name == "alone" or not v.exhaustive):
            bound = ""
            if name == "sample" and v.error_bound is not None and v.confidence is not None:
                whom = "all inputs" if type(task).sample is Task.sample else "inputs so drawn"
                bound = f"; at most {100 * v.error_bound:.2g} % of {whom} are, with {100 * v.confidence:g} % confidence"
            out.print(f"  {words}: {v.parts[name]['wrong']:,} wrong of {v.parts[name]['checked']:,}{bound}")
    for c in v.counterexamples:
        out.print(f"  {c['input']} → {c['got']}, expected {c['expected']} (margin {c['margin']:.3g})")
    failing = [(c["worst_margin"], name, c) for name, c in v.classes.items() if c["wrong"]]
    if len(v.classes) > 1 and failing:
        out.print(f"  by class of input, {len(failing)} of {len(v.classes)} with failures:")
        for margin, name, c in sorted(failing, key=lambda f: -f[2]["wrong"] / f[2]["checked"])[:SHOWN]:
            out.print(f"    {name}: {c['wrong']:,} wrong of {c['checked']:,} (margin {margin:.3g})")


def _brief(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:59] + "…"
