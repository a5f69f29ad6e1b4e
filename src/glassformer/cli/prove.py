"""The command prove: decide whether a model is right on its whole domain."""

from pathlib import Path
from typing import Annotated, Any, cast

from typer import Exit, Option

from .. import api
from ..proof import Accuracy, Equality, Proof
from ..proof.accuracy import floor_percent
from ..utils.errors import GlassformerError
from ..utils.limits import format_count
from .common import app, out, print_json, print_text, progress_bar
from .options import Json, Ref, TaskOption

MAX_WRITTEN_COUNT = 10**1000  # larger counts are printed as approximations


@app.command("prove")
def prove_(
    ref: Ref,
    task: TaskOption = None,
    method: Annotated[str, Option(
        help="enumeration (run every row), certificate (bound all cases: docs/proof.md) or auto")
    ] = "auto",
    path: Annotated[Path | None, Option("--out", help="FILE.json for the certificate")] = None,
    certificate: Annotated[Path | None, Option("--check",
        help="FILE.json of a certificate: check it instead of searching for a proof")] = None,
    independent: Annotated[bool | None, Option("--independent-check/--no-independent-check",
        help="require or skip the second checker, which shares no code with the first; default: "
        "use it where it covers the model")] = None,
    accuracy: Annotated[bool, Option("--accuracy",
        help="prove a lower bound on the share of right inputs")] = False,
    min_accuracy: Annotated[float, Option("--min-accuracy", min=0, max=1,
        help="with --accuracy: share that must be proved for exit status 0")] = 0.0,
    other: Annotated[str | None, Option("--equal-to",
        help="a second model: decide whether both give equal answers to every input")] = None,
    seed: Annotated[int, Option(help="seed of the search for a counterexample, from 0")] = 0,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Decide whether a model is right on its whole domain: proved, refuted or unknown."""
    if min_accuracy and not accuracy:
        raise GlassformerError("--min-accuracy — requires --accuracy, which is missing")
    with progress_bar("proving") as bar:
        result = cast(Any, api.prove)(  # the overloads depend on the options
            ref, task, method=method, check=certificate, independent_check=independent,
            accuracy=accuracy, equal_to=other, seed=seed, out=path, progress=bar,
        )  # fmt: skip
    if as_json:
        print_json({"ref": ref, **({"other": other} if other else {}), **result.to_json()})
    elif isinstance(result, Accuracy):
        _show_accuracy(ref, result)
    elif isinstance(result, Equality):
        out.print(f"{ref} and {other} on {result.task}: ", end="", soft_wrap=True)
        out.print(result.result, style="bold", end="")
        print_text(f": {result.reason}")
    elif isinstance(result, Proof):
        _show_proof(ref, result)
        if path:
            missing = f"no certificate to write: {result.result}"
            print_text(f"wrote {path}" if result.certificate else missing)
    else:
        print_text(result)
    if isinstance(result, Accuracy):
        raise Exit(0 if result.right > 0 and result.share >= min_accuracy else 1)
    raise Exit(0 if result.holds else 1)


def _show_accuracy(ref: str, bound: Accuracy) -> None:
    out.print(f"{ref} on {bound.task}: ", end="", soft_wrap=True)
    out.print(f"at least {floor_percent(bound.share)}", style="bold", end="")
    enumerated = bound.method == "enumeration"
    closed = f"{bound.closed:,} of {bound.cases:,} cases close"
    method = "every input was run" if enumerated else closed
    print_text(f" of {format_count(bound.inputs)} inputs are right in {bound.dtype}: {method}")
    print_text(f"open: {_exact_count(bound.open)} inputs of {_exact_count(bound.inputs)}")
    if bound.doubt:
        print_text(f"  {bound.doubt}")
    if not enumerated:
        print_text(bound.sample_text)
        print_text(bound.independent)
        print_text(f"the bound holds {bound.scope}")
    for example in bound.worst:
        _show_example(example)
    print_text(f"model {bound.model}")


def _exact_count(n: int) -> str:
    """Return all digits of a count, or an approximation if there are too many digits."""
    return f"{n:,}" if n < MAX_WRITTEN_COUNT else format_count(n)


def _show_proof(ref: str, proof: Proof) -> None:
    out.print(f"{ref} on {proof.task}: ", end="", soft_wrap=True)
    out.print(proof.result, style="bold", end="")
    if proof.holds:
        cases = f"{proof.cases:,} case{'s' * (proof.cases != 1)}"
        out.print(f", {cases}, margin {proof.margin:.4g}", end="")
    print_text(f" in {proof.dtype}: {proof.reason}")
    if (example := proof.counterexample) and example["input"] not in proof.reason:
        _show_example(example)
    for checker in proof.checkers:
        print_text(f"  {checker}")
    print_text(f"model {proof.model}")


def _show_example(example: dict[str, Any]) -> None:
    print_text(f"  {example['input']} → {example['got']}, expected {example['expected']}")
