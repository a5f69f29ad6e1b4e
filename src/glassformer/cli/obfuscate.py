"""The command obfuscate: a copy of a model without names and in another basis, and its key."""

from pathlib import Path
from typing import Annotated

from typer import Option

from .. import api
from .common import app, out, print_json, print_text
from .options import Json, Ref


@app.command("obfuscate")
def obfuscate_(
    ref: Ref,
    path: Annotated[Path, Option("--out", help="FILE.safetensors for the copy")],
    key_path: Annotated[Path, Option("--key", help="FILE.json for the key that undoes it")],
    seed: Annotated[int, Option(help="seed of the basis, the order and the noise, from 0")] = 0,
    noise: Annotated[float, Option(
        help="noise on every weight, relative to the RMS of its array")] = 0.0,
    rotate: Annotated[bool, Option(help="write the stream in a random orthogonal basis")] = True,
    shuffle: Annotated[bool, Option(
        help="permute heads and neurons; without --rotate, also the stream")] = True,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Write a copy that computes the same without names and in another basis, and its key."""
    key = api.obfuscate(
        ref, seed, rotate=rotate, shuffle=shuffle, noise=noise, out=path, key=key_path
    ).key
    if as_json:
        return print_json({
            "ref": ref, "out": str(path), "key": str(key_path), "seed": seed, "noise": noise,
            "checked": key.checked, "changed": key.changed, "difference": key.difference,
            "changes": key.changes,
        })  # fmt: skip
    print_text(f"wrote {path} and {key_path}")
    out.print(f"{key.changed:,} of {key.checked:,} answer tokens differ from the original's")
    out.print(f"logits differ by at most {key.difference:.1e} of the largest")
    for change in key.changes:
        out.print(f"  {change}")
