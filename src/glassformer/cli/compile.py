"""The command compile: a source made into a model that is proved to do what it says."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from .. import api, coerce
from ..core import checkpoint
from ..utils.errors import GlassformerError
from .common import Json, app, out, print_json, print_text

if TYPE_CHECKING:
    from ..compiler import Compiled


@app.command("compile")
def compile_(
    source: Annotated[str, Argument(help="a .glass file or lang/NAME, with options (:vocab=20)")],
    dtype: Annotated[str, Option(help="float64 or float32: what it is proved in")] = "",
    target: Annotated[str, Option(help="gpt2: a model that GPT-2 can be as it stands")] = "",
    path: Annotated[
        Path | None, Option("--out", help="FILE.safetensors: save the model, with its program")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a source into a model, and prove that it does what the source says, for every text."""
    if not coerce.is_source_ref(source):
        raise GlassformerError(
            f"{source} — expected a file that ends in .glass, or lang/NAME (glassformer list lang)"
        )
    made = api.compile_(source, dtype=dtype, target=target, out=path)
    told = _summary(made)
    if as_json:
        return print_json({**told, **({"out": str(path)} if path else {})})
    out.print(f"{told['ref']}: ", end="")
    out.print("proved", style="bold", end="")
    print_text(f" in {told['dtype']} for every text of up to {told['length']:,} tokens")
    print_text(f"  {made.shape}")
    print_text(
        "  the right token leads by {margin:.4g}; {cases:,} cases; tightest at {tightest}, with "
        "{left:.0%} of its room left".format(**told)
    )
    if path:
        print_text(f"wrote {path}")


def _summary(made: "Compiled") -> dict[str, Any]:
    c, found = made.model.config, made.certificate
    return {
        "ref": made.model.provenance["ref"], "dtype": found.dtype, "length": made.program.length,
        "layers": c.n_layers, "heads": c.n_heads, "head_width": c.d_head, "width": c.d_model,
        "neurons": c.d_mlp, "parameters": api.count(made).total, "margin": found.margin,
        "tightest": found.tightest, "left": found.slack.get(found.tightest, 1.0),
        "cases": found.cases, "model": checkpoint.digest(made.model),
    }  # fmt: skip
