"""The command recheck: is a saved verdict true? The same rows again."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from .. import refs
from ..checkpoint import digest
from ..errors import GlassformerError
from ..model import Model
from ..tasks.base import Task
from ..verification import Verdict
from .common import Json, Ref, app, check_json, out, print_json, typed
from .verify import VerdictFile, Workers, check_and_save, show


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
    model = refs.load(ref)
    saved = Verdict.read(verdict)
    chosen = _same_model_and_task(saved, verdict, ref, model, task)
    check_json(path, ref, verdict, task)
    found = check_and_save(model, chosen, path, workers, **saved.again)
    differences = saved.differences(found)
    if as_json:
        again = {"recheck": str(verdict), "confirmed": not differences, "differences": differences}
        print_json({"ref": ref, **found.to_json(), **again})
    else:
        show(ref, chosen, found)
        for d in differences:
            was, now = _brief(d["saved"]), _brief(d["found"])
            out.print(f"  {d['what']}: {verdict} says {was}, found {now}")
        out.print(f"{verdict} is {'NOT ' * bool(differences)}confirmed", style="bold")
    raise Exit(0 if found.holds and not differences else 1)


def _same_model_and_task(saved: Verdict, path: Path, ref: str, model: Model, task: str) -> Task:
    if saved.model != (this := digest(model)):
        other = f"{saved.model[:12]}…, but {ref} is {this[:12]}…"
        raise GlassformerError(f"{path} — is about another model: {other}")
    chosen = refs.load_task(task or saved.task)
    if chosen.ref != saved.task:
        raise GlassformerError(f"{path} — is about the task {saved.task}, not {chosen.ref}")
    return chosen


def _brief(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:59] + "…"
