"""The command disguise: a copy of a model that hides how it works, and the key to it."""

from pathlib import Path
from typing import Annotated

from typer import Option

from .. import api
from ..utils import limits
from ..utils.errors import GlassformerError
from ..utils.fileio import check_writable
from .common import Json, Ref, app, check_json, out, print_json, say


@app.command("disguise")
def disguise_(
    ref: Ref,
    path: Annotated[Path, Option("--out", help="FILE.safetensors: the copy")],
    key_path: Annotated[Path, Option("--key", help="FILE.json: how to undo it, for who scores")],
    seed: Annotated[int, Option(min=0, max=limits.SEED, help="of basis, order and noise")] = 0,
    noise: Annotated[float, Option(min=0, max=limits.NOISE,
        help="on every weight, as a share of its array's RMS")] = 0.0,
    rotate: Annotated[bool, Option(help="write the stream in a random orthogonal basis")] = True,
    shuffle: Annotated[bool,
        Option(help="permute heads and neurons; coordinates too, if not rotated")] = True,
    as_json: Json = False,
) -> None:  # fmt: skip
    """A copy that computes the same, without names and in another basis, and the key to it."""
    limits.finite("--noise", noise)
    model = api.load(ref)
    if path.suffix != ".safetensors":
        raise GlassformerError(f"--out {path} — a model's file ends in .safetensors")
    check_writable(path, ref)
    if path.resolve() == key_path.resolve():
        raise GlassformerError(f"--key {key_path} — expected another file than --out")
    check_json(key_path, ref)
    made = api.disguise(model, seed, rotate=rotate, shuffle=shuffle, noise=noise)
    made.save(path, key_path)
    key = made.key
    report = {
        "ref": ref, "out": str(path), "key": str(key_path), "seed": seed, "noise": noise,
        "checked": key.checked, "changed": key.changed, "difference": key.difference,
        "changes": key.changes,
    }  # fmt: skip
    if as_json:
        return print_json(report)
    say(f"wrote {path} and {key_path}")
    out.print(f"{key.changed:,} of {key.checked:,} answer tokens differ from the original's")
    out.print(f"logits differ by at most {key.difference:.1e} of the largest")
    for change in key.changes:
        out.print(f"  {change}")
