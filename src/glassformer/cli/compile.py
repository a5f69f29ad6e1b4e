"""The command compile: compile a source to a model and prove that they agree."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from .. import api, coerce
from ..core import checkpoint
from ..utils.errors import GlassformerError
from .common import app, out, print_json, print_text
from .options import Json

if TYPE_CHECKING:
    from ..compiler import Compiled


@app.command("compile")
def compile_(
    source: Annotated[str, Argument(help="a .glass file or lang/NAME, with options (:vocab=20)")],
    dtype: Annotated[str, Option(help="float type of the model and the proof: float64, float32")
    ] = "",
    target: Annotated[str, Option(help="gpt2: a model that GPT-2 can hold unchanged")] = "",
    path: Annotated[Path | None, Option("--out",
        help="FILE.safetensors for the model and its source")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compile a source to a model, and prove that both give the same output for every text."""
    if not coerce.is_source_ref(source):
        raise GlassformerError(
            f"{source} — expected a file that ends in .glass, or lang/NAME (glassformer list lang)"
        )
    compiled = api.compile_(source, dtype=dtype, target=target, out=path)
    summary = _summary(compiled)
    if as_json:
        return print_json({**summary, **({"out": str(path)} if path else {})})
    out.print(f"{summary['ref']}: ", end="")
    out.print("proved", style="bold", end="")
    print_text(f" in {summary['dtype']} for every text of up to {summary['length']:,} tokens")
    print_text(f"  {compiled.shape}")
    print_text(
        "  the right token leads by at least {margin:.4g}; {cases:,} cases; the tightest bound is "
        "{tightest}, with {left:.0%} slack left".format(**summary)
    )
    if path:
        print_text(f"wrote {path}")


def _summary(compiled: "Compiled") -> dict[str, Any]:
    c, certificate = compiled.model.config, compiled.certificate
    tightest = certificate.tightest
    return {
        "ref": compiled.model.provenance["ref"], "dtype": certificate.dtype,
        "length": compiled.program.length, "layers": c.n_layers, "heads": c.n_heads,
        "head_width": c.d_head, "width": c.d_model, "neurons": c.d_mlp,
        "parameters": api.count(compiled).total, "margin": certificate.margin,
        "tightest": tightest, "left": certificate.slack.get(tightest, 1.0),
        "cases": certificate.cases, "model": checkpoint.digest(compiled.model),
    }  # fmt: skip
