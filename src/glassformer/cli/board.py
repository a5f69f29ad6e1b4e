"""The command board: the leaderboard's own test, of a model or of someone's submission file."""

from collections.abc import Mapping
from typing import Annotated, Any

from typer import Argument, Exit, Option

from .. import api
from ..adderboard.protocol import MIN_ACCURACY, BoardVerdict, describe_counts
from ..adderboard.table import AdderEntry, AdderTable
from ..utils.progress import Progress
from .common import (
    Json,
    TaskOption,
    app,
    err,
    make_table,
    out,
    print_json,
    print_text,
    progress_bar,
)
from .verify import Dtype, MaxCounterexamples


@app.command("board")
def board_(
    ref: Annotated[str | None, Argument(
        help="a model, or FILE.py of a submission; without one, print the honest board")] = None,
    table: Annotated[bool, Option("--table",
        help="the honest board of our adders, with this one among them; no code is run")] = False,
    task: TaskOption = None,
    dtype: Dtype = "",
    keep: MaxCounterexamples = 10,
    trust: Annotated[bool, Option("--trust",
        help="run the code of a submission file, in a sandbox")] = False,
    no_sandbox: Annotated[bool, Option("--no-sandbox",
        help="with --trust: run without a sandbox, with all rights of your user"
    )] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """The AdderBoard's test: ten edge cases and 10,000 pairs of ten digits, always the same.

    Exit status 0 if it qualifies with all edge cases right, else 1. Without a model (or with
    --table): what the leaderboard counts of our adders, what a strict reader does, bits, proofs.
    """
    with progress_bar("proving" if table or ref is None else "adding") as bar:

        def show(p: Progress) -> None:
            """How a file is run is printed in full, before it runs; the rest is a bar."""
            err.print(p.stage, soft_wrap=True) if p.stage else bar(p)

        found = api.board(
            ref, table=table, task=task, dtype=dtype, keep=keep, trust=trust,
            sandbox=not no_sandbox, progress=show,
        )  # fmt: skip
    if as_json:
        print_json({"ref": ref or "", **found.to_json()})
    else:
        _table(found.entries) if isinstance(found, AdderTable) else _show(ref or "", found)
    raise Exit(0 if isinstance(found, AdderTable) or found.holds else 1)


def _table(found: list[AdderEntry]) -> None:
    out.print(make_table(
        ("adder", "counts", "strict", "bits: numbers", "form", "all", "of all 10^20 sums", "made"),
        [_line(e) for e in found],
    ))  # fmt: skip
    for e in found:
        if e.made == "trained":
            print_text(f"{e.name}: seeds {e.seeds}")
        if not e.known.startswith("proved"):
            print_text(f"{e.name}: {e.reason}")
    print_text(
        "counts: numbers that the weights are made from, the leaderboard's rule; strict: with the "
        "constants of the form, without 0 and ±1; form: formula and config"
    )


def _line(e: AdderEntry) -> tuple[str, ...]:
    told = ["?" if x is None else f"{x:,}" for x in (e.counts, e.strict, e.numbers)]
    return (e.name, *told, f"{e.form:,}", f"{e.bits:,}", e.known, f"{e.made}, {e.order}")


def _show(ref: str, v: BoardVerdict) -> None:
    how = f" on {v.task}, {v.dtype}" if v.task else ""
    out.print(f"{ref}{how}: ", end="", soft_wrap=True)
    out.print("qualifies" if v.qualifies else "does not qualify", style="bold", end="")
    need = f"{100 * MIN_ACCURACY:g} % needed"
    print_text(f", {v.percent} right ({need}); {v.edges} edge cases, {v.pairs} pairs")
    for c in v.counterexamples:
        print_text(f"  {c['a']}+{c['b']} → {c['got']}, expected {c['expected']}")
    if v.counts:
        out.print(make_table(("parameters", "", "means"), describe_counts(v.counts)))
    if v.submission:
        _show_submission(v.submission)
    if v.qualifies and not v.holds:
        out.print("not all edge cases are right: status 1")


def _show_submission(s: Mapping[str, Any]) -> None:
    says = {str(k): str(x) for k, x in s.get("metadata", {}).items()}
    print_text(f"  as it says of itself (not checked): {says.pop('params', '?')} parameters")
    for name, text in says.items():
        print_text(f"    {name}: {text}")
    if "parameters" in s:
        held = f"{s['parameters']:,} numbers in parameters and {s.get('buffers', 0):,} in buffers"
        print_text(f"  as it says when its module is counted in its own process: {held}")
    print_text(
        "  it ran in a sandbox without a network, and all its processes have ended"
        if s["sandbox"]
        else "  it ran without a sandbox: processes that it started may still run"
    )
    print_text("  whether a transformer did the adding is for you to see in its text")
