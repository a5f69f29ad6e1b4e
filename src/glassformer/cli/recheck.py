"""The command recheck: is a saved verdict true? The same rows again."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from .. import api, coerce, resolve
from ..verification.recheck_verdict import brief
from .common import Json, Ref, app, check_json, out, print_json, typed
from .verify import VerdictFile, Workers, saving, show


@app.command("recheck")
def recheck_(
    ref: Ref,
    verdict: Annotated[Path, Argument(help="FILE.json that verify --out wrote")],
    task: Annotated[
        str, Option(callback=typed, help="what is right: the task that the verdict names")
    ] = "",
    workers: Workers = None,
    path: VerdictFile = None,
    as_json: Json = False,
) -> None:
    """Check a saved verdict: the same rows again.

    Exit status 1 if anything differs from what it says, or if the model is wrong.
    """
    check_json(path, ref, verdict, task)
    model = coerce.as_model(ref)
    with saving(path, workers) as run:
        found = api.recheck(model, verdict, task or None, **run)
        if path:
            found.found.save(path)
    if as_json:
        print_json({"ref": ref, **found.to_json(), "recheck": str(verdict)})
    else:
        show(ref, resolve.verdict_task(model, found.found.task), found.found)
        for d in found.differences:
            was, now = brief(d["saved"]), brief(d["found"])
            out.print(f"  {d['what']}: {verdict} says {was}, found {now}")
        out.print(f"{verdict} is {'NOT ' * (not found.confirmed)}confirmed", style="bold")
    raise Exit(0 if found.holds else 1)
