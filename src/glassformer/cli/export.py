"""The command export: write a model in a format of Glassformer or of another library."""

from typing import Annotated

from typer import Option

from .. import api
from ..interop import ExportResult
from .common import app, out, print_json, print_text
from .options import Json, Ref


@app.command("export")
def export_(
    ref: Ref,
    to: Annotated[str,
        Option(help="format: safetensors, taotp, gpt2, torch, transformer-lens, onnx, adderboard")],
    path: Annotated[str, Option("--out", help="file or folder to write")],
    tolerance: Annotated[float, Option(
        help="largest difference of logits, relative to the largest logit")] = 1e-4,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Write a model as a checkpoint, as editable text, or in a format of another library.

    gpt2 is a folder for transformers, torch a Python file. Other libraries read back what was
    written and must agree; the largest difference is printed. A model that the format cannot
    represent is refused, with the reason.
    """
    exported = api.export(ref, to, path, tolerance)
    if as_json:
        return print_json({"ref": ref, "out": path, **exported.to_json()})
    print_text(f"wrote {path}")
    if isinstance(exported, ExportResult):
        for note in (f"{exported.dtype}: {exported.why}", *exported.notes):
            out.print(f"  {note}", style="dim", soft_wrap=True)
        print_text(exported)
