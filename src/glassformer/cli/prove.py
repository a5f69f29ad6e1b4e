"""The command prove: is a model right on all of its domain?"""

from pathlib import Path
from typing import Annotated, Any, cast

from typer import Exit, Option

from .. import api
from ..proof import Accuracy, Equality, Proof
from ..proof.accuracy import floor_percent
from ..utils.errors import GlassformerError
from ..utils.limits import format_count
from .common import Json, Ref, TaskOption, app, out, print_json, print_text, progress_bar

MAX_WRITTEN_COUNT = 10**1000  # a count that is written out


@app.command("prove")
def prove_(
    ref: Ref,
    task: TaskOption = None,
    method: Annotated[str, Option(help="auto; enumeration, which runs every row; or certificate, "
        "which bounds all cases: docs/proof.md")] = "auto",
    path: Annotated[Path | None, Option("--out", help="FILE.json: write the certificate")] = None,
    certificate: Annotated[Path | None, Option("--check",
        help="FILE.json: only check this certificate")] = None,
    independent: Annotated[bool | None, Option("--independent-check/--no-independent-check",
        help="require, or leave out, the second checker, which shares no code with the first; "
        "by default it is used where it covers the model")] = None,
    accuracy: Annotated[bool, Option("--accuracy",
        help="prove a lower bound on the share of right inputs")] = False,
    at_least: Annotated[float, Option("--at-least", min=0, max=1,
        help="with --accuracy: the share that must be proved for status 0")] = 0.0,
    equals: Annotated[str | None, Option("--equals",
        help="a second model: do both give equal answers to every input?")] = None,
    seed: Annotated[int, Option(help="seed of the search for a counterexample, from 0")] = 0,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Is it right on all of its domain? Proved, refuted with a counterexample, or unknown."""
    if at_least and not accuracy:
        raise GlassformerError("--at-least — goes with --accuracy, which is missing")
    with progress_bar("proving") as bar:
        found = cast(Any, api.prove)(  # the return type depends on the options
            ref, task, method=method, check=certificate, independent=independent,
            accuracy=accuracy, equals=equals, seed=seed, out=path, progress=bar,
        )  # fmt: skip
    if as_json:
        print_json({"ref": ref, **({"other": equals} if equals else {}), **found.to_json()})
    else:
        _show(ref, equals, found)
    if path and not as_json and isinstance(found, Proof):
        print_text(
            f"wrote {path}" if found.certificate else f"no certificate to write: {found.result}"
        )
    enough = not isinstance(found, Accuracy) or (found.right > 0 and found.share >= at_least)
    raise Exit(0 if enough and getattr(found, "holds", True) else 1)


# ── printing ───────────────────────────────────────────────────────────────────────────────────
def _show(ref: str, other: str | None, found: Any) -> None:
    if isinstance(found, Accuracy):
        _show_accuracy(ref, found)
    elif isinstance(found, Equality):
        out.print(f"{ref} and {other} on {found.task}: ", end="", soft_wrap=True)
        out.print(found.result, style="bold", end="")
        print_text(f": {found.reason}")
    elif isinstance(found, Proof):
        _show_proof(ref, found)
    else:
        print_text(found)


def _show_accuracy(ref: str, bound: Accuracy) -> None:
    out.print(f"{ref} on {bound.task}: ", end="", soft_wrap=True)
    out.print(f"at least {floor_percent(bound.share)}", style="bold", end="")
    how = "every input was run" if bound.method == "enumeration" else (
        f"{bound.closed:,} of {bound.cases:,} cases close"
    )  # fmt: skip
    print_text(f" of {format_count(bound.inputs)} inputs are right in {bound.dtype}: {how}")
    print_text(f"open: {_format_inputs(bound.open)} inputs of {_format_inputs(bound.inputs)}")
    if bound.doubt:
        print_text(f"  {bound.doubt}")
    if bound.method != "enumeration":
        print_text(bound.sample_text)
        print_text(bound.independent)
        print_text(f"the bound holds {bound.scope}")
    for shown in bound.worst:
        print_text(f"  {shown['input']} → {shown['got']}, expected {shown['expected']}")
    print_text(f"model {bound.model}")


def _format_inputs(n: int) -> str:
    """A count, to the last digit as long as anybody would read it."""
    return f"{n:,}" if n < MAX_WRITTEN_COUNT else format_count(n)


def _show_proof(ref: str, proof: Proof) -> None:
    out.print(f"{ref} on {proof.task}: ", end="", soft_wrap=True)
    out.print(proof.result, style="bold", end="")
    if proof.holds:
        out.print(
            f", {proof.cases:,} case{'s' * (proof.cases != 1)}, margin {proof.margin:.4g}", end=""
        )
    print_text(f" in {proof.dtype}: {proof.reason}")
    if (shown := proof.counterexample) and shown["input"] not in proof.reason:
        print_text(f"  {shown['input']} → {shown['got']}, expected {shown['expected']}")
    for checker in proof.checkers:
        print_text(f"  {checker}")
    print_text(f"model {proof.model}")
