"""The command prove: is a model right on all of its domain?"""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from .. import records, refs
from ..verify.prove import Proof, check_certificate, prove, stand_by
from .common import Json, Ref, app, out, print_json


@app.command("prove")
def prove_(
    ref: Ref,
    task: Annotated[str, typer.Option(help="what is right; by default the model's own task")] = "",
    method: Annotated[
        Literal["auto", "certificate", "enumeration"],
        typer.Option(help="enumeration runs every row; certificate bounds all cases of a one-layer adder"),
    ] = "auto",
    path: Annotated[Path | None, typer.Option("--out", help="FILE.json: write the certificate")] = None,
    certificate: Annotated[Path | None, typer.Option("--check", help="FILE.json: only check this certificate")] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the search for a counterexample")] = 0,
    as_json: Json = False,
) -> None:
    """Is it right on all of its domain? Proved, refuted with a counterexample, or unknown."""
    model = refs.load(ref)
    chosen = refs.load_task(task or model)
    if certificate:
        found = records.read_json(certificate, "not a certificate that prove --out wrote")
        checked = check_certificate(model, chosen, found)
        if checked.holds:
            stand_by(model, chosen, seed)
        if as_json:
            print_json({"ref": ref, "holds": checked.holds, "cases": checked.cases, "reason": checked.reason,
                        "margin": checked.margin if checked.holds else None})  # fmt: skip
        elif checked.holds:
            out.print(f"the certificate holds: {checked.cases:,} cases, margin {checked.margin:.4g}")
        else:
            out.print(f"the certificate does not hold: {checked.reason}", soft_wrap=True)
        raise typer.Exit(0 if checked.holds else 1)
    records.check_writable(path)
    proof = prove(model, chosen, method=method, seed=seed)
    if path and proof.certificate:
        records.write_atomically(path, (json.dumps(proof.certificate, indent=1) + "\n").encode())
    if as_json:
        print_json({"ref": ref, **proof.to_json()})
    else:
        _show(ref, proof)
        if path:
            out.print(f"wrote {path}" if proof.certificate else "no certificate to write", soft_wrap=True)
    raise typer.Exit(0 if proof.holds else 1)


def _show(ref: str, proof: Proof) -> None:
    out.print(f"{ref} on {proof.task}: ", end="")
    out.print(proof.result, style="bold", end="")
    if proof.holds:
        out.print(f", {proof.cases:,} cases, margin {proof.margin:.4g}", end="")
    out.print(f" in {proof.dtype}: {proof.reason}", soft_wrap=True)
    out.print(f"model {proof.model}", soft_wrap=True)

