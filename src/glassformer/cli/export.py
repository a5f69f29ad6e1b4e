"""The command export: a model to a file, or to a format of another library, with a parity line."""

from pathlib import Path
from typing import Annotated

from typer import Option

from .. import api
from ..interop import ExportResult
from .common import Json, Ref, app, out, print_json, print_text


@app.command("export")
def export_(
    ref: Ref,
    to: Annotated[str,
        Option(help="safetensors, taotp, gpt2, torch, transformer-lens, onnx, adderboard")],
    path: Annotated[Path, Option("--out", help="the file or folder to write")],
    tolerance: Annotated[float, Option(
        help="how far logits may be off, relative to the largest")] = 1e-4,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Write a model to a file: a checkpoint, text to read and change by hand, or what other
    libraries read.

    gpt2 is a folder for transformers, torch a Python file. For other libraries, the library itself
    reads back what was written and must find the same: the largest difference is said. What cannot
    be carried is refused, with the reason.
    """
    done = api.export(ref, to, path, tolerance)
    if as_json:
        return print_json({"ref": ref, "out": str(path), **done.to_json()})
    print_text(f"wrote {path}")
    if isinstance(done, ExportResult):
        for note in (f"{done.dtype}: {done.why}", *done.notes):
            out.print(f"  {note}", style="dim", soft_wrap=True)
        print_text(done)
