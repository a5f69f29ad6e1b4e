"""The command adderboard: AdderBoard's test of a model or a submission, and the table of adders."""

from collections.abc import Mapping
from typing import Annotated, Any

from typer import Argument, Exit, Option

from .. import api
from ..leaderboard.protocol import MIN_ACCURACY, BoardVerdict, describe_counts
from ..leaderboard.table import AdderEntry, AdderTable
from ..utils.progress import Progress
from .common import app, err, make_table, out, print_json, print_text, progress_bar
from .options import Dtype, Json, MaxCounterexamples, TaskOption

COLUMNS = (
    "adder", "counts", "strict", "bits: numbers", "form", "all", "of all 10^20 sums", "made",
)  # fmt: skip


@app.command("adderboard")
def adderboard_(
    ref: Annotated[str | None, Argument(
        help="a model, or FILE.py of a submission; default: print the table of our adders")] = None,
    table: Annotated[bool, Option("--table",
        help="print the table of our adders with this one added; no code is executed")] = False,
    task: TaskOption = None,
    dtype: Dtype = "",
    max_counterexamples: MaxCounterexamples = 10,
    trust: Annotated[bool, Option("--trust",
        help="execute the code of a submission file, in a sandbox")] = False,
    no_sandbox: Annotated[bool, Option("--no-sandbox",
        help="with --trust: execute without a sandbox, with all rights of your user")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Run AdderBoard's test on a model: ten edge cases and 10,000 fixed pairs of ten digits.

    Exit status 0 if it qualifies and all edge cases are right, else 1. Without a model, or with
    --table, print for each adder: parameter counts, bits, and whether it is proved.
    """
    with progress_bar("proving" if table or ref is None else "adding") as bar:

        def show(p: Progress) -> None:
            """Print a stage (how a file will be executed) in full, and other progress as a bar."""
            err.print(p.stage, soft_wrap=True) if p.stage else bar(p)

        result = api.adderboard(
            ref, table=table, task=task, dtype=dtype, max_counterexamples=max_counterexamples,
            trust=trust, sandbox=not no_sandbox, progress=show,
        )  # fmt: skip
    if as_json:
        print_json({"ref": ref or "", **result.to_json()})
    elif isinstance(result, AdderTable):
        _show_table(result.entries)
    else:
        _show_verdict(ref or "", result)
    raise Exit(0 if isinstance(result, AdderTable) or result.holds else 1)


def _show_table(entries: list[AdderEntry]) -> None:
    out.print(make_table(COLUMNS, [_table_row(e) for e in entries]))
    for e in entries:
        if e.made == "trained":
            print_text(f"{e.name}: seeds {e.seeds}")
        if not e.known.startswith("proved"):
            print_text(f"{e.name}: {e.reason}")
    print_text(
        "counts: numbers that the weights are made from, the leaderboard's rule; strict: with the "
        "constants of the form, without 0 and ±1; form: formula and config"
    )


def _table_row(e: AdderEntry) -> tuple[str, ...]:
    counts = ["?" if x is None else f"{x:,}" for x in (e.counts, e.strict, e.numbers)]
    return (e.name, *counts, f"{e.form:,}", f"{e.bits:,}", e.known, f"{e.made}, {e.order}")


def _show_verdict(ref: str, v: BoardVerdict) -> None:
    where = f" on {v.task}, {v.dtype}" if v.task else ""
    out.print(f"{ref}{where}: ", end="", soft_wrap=True)
    out.print("qualifies" if v.qualifies else "does not qualify", style="bold", end="")
    need = f"{100 * MIN_ACCURACY:g} % needed"
    print_text(f", {v.percent} right ({need}); {v.edges} edge cases, {v.pairs} pairs")
    for c in v.counterexamples:
        print_text(f"  {c['a']}+{c['b']} → {c['got']}, expected {c['expected']}")
    if v.counts:
        out.print(make_table(("parameters", "count", "meaning"), describe_counts(v.counts)))
    if v.submission:
        _show_submission(v.submission)
    if v.qualifies and not v.holds:
        out.print("Some edge cases are wrong, so the exit status is 1.")


def _show_submission(s: Mapping[str, Any]) -> None:
    metadata = {str(k): str(x) for k, x in s.get("metadata", {}).items()}
    params = metadata.pop("params", "?")
    print_text(f"  claimed by the submission, not checked: {params} parameters")
    for name, text in metadata.items():
        print_text(f"    {name}: {text}")
    if "parameters" in s:
        sizes = f"{s['parameters']:,} numbers in parameters and {s.get('buffers', 0):,} in buffers"
        print_text(f"  counted by the submission's own process: {sizes}")
    print_text(
        "  executed in a sandbox without a network; all its processes have ended"
        if s["sandbox"]
        else "  executed without a sandbox: processes that it started may still run"
    )
    print_text("  read its text to see whether a transformer does the addition")
