"""The command recheck: is a saved verdict true? The same rows again."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from .. import api, coerce
from ..verification.recheck_verdict import short_value
from .common import Json, Ref, app, out, print_json
from .verify import VerdictFile, Workers, process_count, resumable, show_verdict


@app.command("recheck")
def recheck_(
    ref: Ref,
    verdict: Annotated[Path, Argument(help="FILE.json that verify --out wrote")],
    task: Annotated[
        str | None, Option(help="task to check on; default: the task in the verdict")
    ] = None,
    workers: Workers = None,
    path: VerdictFile = None,
    as_json: Json = False,
) -> None:
    """Check a saved verdict: the same rows again.

    Exit status 1 if anything differs from what it says, or if the model is wrong.
    """
    coerce.as_output(path, ".json", ref, verdict, task)
    model, saved = coerce.as_model(ref), coerce.as_verdict(verdict)
    goal = coerce.verdict_task(task, saved, model)
    with resumable(path) as progress:
        found = api.recheck(
            model, verdict, goal, out=path, workers=process_count(workers), progress=progress
        )
    if as_json:
        print_json({"ref": ref, **found.to_json(), "recheck": str(verdict)})
    else:
        show_verdict(ref, goal, found.rerun, path)
        for d in found.differences:
            was, now = short_value(d["saved"]), short_value(d["found"])
            out.print(f"  {d['what']}: {verdict} says {was}, found {now}")
        out.print(f"{verdict} is {'NOT ' * (not found.confirmed)}confirmed", style="bold")
    raise Exit(0 if found.holds else 1)
