"""The command export: a model to a file, or to a format of another library, with a parity line."""

import os
from pathlib import Path
from typing import Annotated

from typer import Option

from .. import bridges, checkpoint, limits, refs, taotp
from ..errors import GlassformerError
from ..records import check_writable, write_atomically
from .common import Json, Ref, app, out, print_json, say


@app.command("export")
def export_(
    ref: Ref,
    to: Annotated[str,
        Option(help="safetensors, taotp, gpt2, torch, transformer-lens, onnx, adderboard")],
    path: Annotated[Path, Option("--out", help="the file or folder to write")],
    tolerance: Annotated[float, Option(min=0,
        help="how far logits may be off, relative to the largest")] = 1e-4,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Write a model to a file: a checkpoint, text to read and change by hand, or what other
    libraries read.

    gpt2 is a folder for transformers, torch a Python file. For other libraries, the library itself
    reads back what was written and must find the same: the largest difference is said. What cannot
    be carried is refused, with the reason.
    """
    limits.finite("--tolerance", tolerance)
    # a folder is replaced if it is one of ours
    check_writable(None if os.path.isdir(path) else path, ref)
    if to in bridges.names():
        return _cross(ref, to, path, tolerance, as_json)
    if to not in ("safetensors", "taotp"):
        hint = f"or a bridge: {', '.join(bridges.names())}"
        raise GlassformerError(f"--to {to} — expected safetensors or taotp; {hint}")
    model = refs.load(ref)
    if to == "safetensors":
        checkpoint.save(model, path)
    else:
        write_atomically(path, taotp.write(model).encode(errors="backslashreplace"))
    if as_json:
        return print_json({"ref": ref, "out": str(path), "bytes": path.stat().st_size})
    out.print(f"wrote {path}")


def _cross(ref: str, to: str, path: Path, tolerance: float, as_json: bool) -> None:
    done = bridges.export(refs.load(ref), to, path, tolerance)
    if as_json:
        return print_json({"ref": ref, "out": str(path), **done.to_json()})
    say(f"wrote {path}")
    for note in (f"{done.dtype}: {done.why}", *done.notes):
        out.print(f"  {note}", style="dim", soft_wrap=True)
    say(done)
