"""The command prove: is a model right on all of its domain?"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Exit, Option

from .. import records, refs, schema
from ..errors import GlassformerError
from ..model import Model
from ..proof import Checked, Proof, check_certificate, prove, stand_by
from ..proof.compiled import is_compiled
from ..tasks.base import Task
from .common import Json, Ref, TaskName, app, check_json, json_file, out, print_json, say


@app.command("prove")
def prove_(
    ref: Ref,
    task: TaskName = "",
    method: Annotated[
        Literal["auto", "certificate", "enumeration"],
        Option(
            help="enumeration runs every row; certificate bounds all cases of a one-layer adder"
        ),
    ] = "auto",
    path: Annotated[Path | None, Option("--out", help="FILE.json: write the certificate")] = None,
    certificate: Annotated[Path | None, Option("--check",
        help="FILE.json: only check this certificate")] = None,
    second: Annotated[bool, Option("--second",
        help="ask the second checker too, which shares no code with the first")] = False,
    seed: Annotated[int, Option(min=0, help="of the search for a counterexample")] = 0,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Is it right on all of its domain? Proved, refuted with a counterexample, or unknown."""
    if second:
        method = "certificate" if method == "auto" else method
        if method == "enumeration":
            hint = "leave out --method enumeration, which has none"
            raise GlassformerError(f"--second — checks certificates; {hint}")
        from ..proof.second import available

        available()
    model = refs.load(ref)
    chosen = refs.load_task(task or model)
    if (certificate or second) and is_compiled(model, chosen):
        option = "--check" if certificate else "--second"
        raise GlassformerError(
            f"{option} — is for certificates of adders; a compiled model carries its own, which is "
            f"found anew each time: leave out {option}"
        )
    if certificate and path:
        what = "one or the other: checking writes no certificate"
        raise GlassformerError(f"--check and --out — {what}")
    result: Checked | Proof
    if certificate:
        found = schema.read_json(certificate, "not a certificate that prove --out wrote")
        result = _check(model, chosen, found, certificate, seed)
        told = _told(result)
    else:
        check_json(path, ref, task)
        result = prove(model, chosen, method=method, seed=seed)
        found, told = result.certificate, result.to_json()
        if path and found:
            records.write_atomically(path, json_file(found))
    again = None
    if second and found:
        from ..proof.second import check_again  # python-flint is an extra

        again = Checked(**asdict(check_again(model, chosen, found)))
    if as_json:
        print_json({"ref": ref, **told, **({"second": _told(again)} if again else {})})
    else:
        _say("the certificate", result) if isinstance(result, Checked) else _show(ref, result)
        _say("the second checker: it", again)
        if path and isinstance(result, Proof):
            ran = "every row was run; --method certificate makes one"
            if result.method == "compiled":
                ran = "the model carries it; export --to safetensors writes both"
            none = f"no certificate to write: {ran if result.holds else result.result}"
            say(f"wrote {path}" if found else none)
    raise Exit(0 if result.holds and (again is None or again.holds) else 1)


def _check(model: Model, task: Task, found: Any, file: Path, seed: int) -> Checked:
    try:
        checked = check_certificate(model, task, found)
    except GlassformerError as e:
        where = f"{file} — " if str(e).startswith("certificate") else ""
        raise GlassformerError(f"{where}{e}") from None
    if checked.holds:
        stand_by(model, task, seed)
    return checked


def _told(checked: Checked) -> dict[str, Any]:
    return asdict(checked) | {"margin": checked.margin if checked.holds else None}


def _say(who: str, checked: Checked | None) -> None:
    if checked and checked.holds:
        less = f"; {checked.reason}" if checked.reason else ""
        say(f"{who} holds: {checked.cases:,} cases, margin {checked.margin:.4g}{less}")
    elif checked:
        say(f"{who} does not hold: {checked.reason}")


def _show(ref: str, proof: Proof) -> None:
    out.print(f"{ref} on {proof.task}: ", end="")
    out.print(proof.result, style="bold", end="")
    if proof.holds:
        out.print(f", {proof.cases:,} cases, margin {proof.margin:.4g}", end="")
    say(f" in {proof.dtype}: {proof.reason}")
    if (shown := proof.counterexample) and shown["input"] not in proof.reason:
        say(f"  {shown['input']} → {shown['got']}, expected {shown['expected']}")
    say(f"model {proof.model}")
