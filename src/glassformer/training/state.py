"""A run on disk, to go on after a kill: theta, optimiser state, averages, history, all in one safetensors file.

There is no generator state to save: what a step reads depends on the seed and the step alone.
"""

import hashlib
import json
import os.path
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import schema
from ..errors import GlassformerError
from ..limits import REF, SEED, memory
from ..records import parse_json, read_bytes, why, write_atomically
from ..stored import parse
from .recipe import STEPS

KEY = "glassformer-run"
STEP = schema.whole(0, STEPS)
EVENT = schema.record({
    "kind": schema.text(100), "step": STEP, "member": schema.whole(0, SEED), "data": schema.mapping(schema.finite, 10),
})  # fmt: skip
EVENTS: dict[str, dict[str, schema.Check]] = {  # turning points, and what each says of itself
    "digit learned": {"digit": schema.whole(0, 10**6), "accuracy": schema.finite},
    "fitted": {"accuracy": schema.finite}, "generalised": {"accuracy": schema.finite}, "grokking": {"fitted_at": STEP},
    "stable": {"since": STEP, "accuracy": schema.finite},
}  # fmt: skip


def _event(value: Any, where: str) -> None:
    """A turning point as `in_words` reads it."""
    EVENT(value, where)
    kind, data = value["kind"], value["data"]
    if kind == "memorising":  # seen by the one or by the other
        names = ("loss", "floor") if "floor" in data else ("train_accuracy", "accuracy")
        schema.record(dict.fromkeys(names, schema.finite))(data, f"{where}.data")
    elif kind in EVENTS:
        schema.record(EVENTS[kind])(data, f"{where}.data")
    else:
        schema.refuse(f"{where}.kind", f"memorising or one of {', '.join(EVENTS)}", kind)


HEADER = schema.record({
    "identity": schema.record({
        "task": schema.text(REF), "recipe": schema.mapping(schema.small(REF), 200), "seed": schema.whole(0, SEED),
        "blueprint": schema.text(REF), "start": schema.text(64), "teacher": schema.text(64),
    }),
    "step": STEP, "seconds": schema.finite, "smooth": schema.text(40), "decay_at": schema.whole(-1, STEPS),
    "watcher": schema.record({"seen": schema.mapping(STEP, 10_000), "in_a_row": STEP, "since": STEP}),
    "history": schema.listing(schema.record(
        {"step": STEP, "loss": schema.number, "accuracy": schema.finite, "seconds": schema.finite,
         "digits": schema.listing(schema.finite, 10_000)},
        {"train_accuracy": schema.finite, "classes": schema.mapping(schema.finite, 1_000_000)},
    ), 10_000_000),
    "events": schema.listing(_event, 100_000),
})  # fmt: skip


def state_path(out: str | Path) -> Path:
    """Where the state of a run is kept whose model goes to `out`."""
    out = Path(out)
    return out.with_name(out.name.removesuffix(".safetensors") + ".run.safetensors")


def snapshot_path(folder: Path, step: int) -> Path:
    """Where the model of a step is kept, of a run that keeps them all."""
    return folder / f"step-{step:06d}.safetensors"


def snapshot_folders(folder: str | Path, seeds: Sequence[int], resume: bool) -> dict[int, Path]:
    """A folder for each seed, made if it is not there. Those of a new run must have no snapshots yet."""
    folder = Path(folder)
    found = {seed: folder / f"seed{seed}" if len(seeds) > 1 else folder for seed in seeds}
    for path in found.values():
        try:
            path.mkdir(parents=True, exist_ok=True)
            old = not resume and any(path.glob("step-*.safetensors"))
        except (OSError, ValueError) as e:
            raise GlassformerError(f"{path} — cannot be a folder for snapshots: {why(e)}") from None
        if old:
            raise GlassformerError(f"{path} — has snapshots of another run: expected an empty folder or a new one")
    return found


def save_state(path: Path, tensors: dict[str, torch.Tensor], header: dict[str, Any]) -> None:
    from safetensors.numpy import save

    arrays = {n: np.require(t.detach().cpu().numpy(), requirements="C") for n, t in tensors.items()}
    text = json.dumps(header)
    write_atomically(path, save(arrays, {KEY: text, "sha256": _sha256(text, arrays)}))


def load_state(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays by name, and the header; anything that is not exactly what was saved is an error."""
    if not os.path.lexists(path):
        raise GlassformerError(f"{path} — no run to resume: it has ended, or was never begun")
    bad = "not the state of a run, or a damaged one"
    try:
        arrays, found = parse(path, read_bytes(path, memory()))
        good = KEY in found and found.get("sha256") == _sha256(found[KEY], arrays)
    except GlassformerError as e:
        raise GlassformerError(f"{path} — {bad} ({str(e).removeprefix(f'{path} — ')})") from None
    if not good:
        raise GlassformerError(f"{path} — {bad}: its SHA-256 does not match")
    header: dict[str, Any] = parse_json(found[KEY], path, bad, finite=False)  # a loss may be infinite
    try:
        HEADER(header, "")
        header["smooth"] = float.fromhex(header["smooth"])
    except (GlassformerError, ValueError, OverflowError) as e:
        raise GlassformerError(f"{path} — {bad}: {e}") from None
    return arrays, header


def _sha256(text: str, arrays: dict[str, Any]) -> str:
    h = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        h.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        h.update(arrays[name].tobytes())
    return h.hexdigest()
