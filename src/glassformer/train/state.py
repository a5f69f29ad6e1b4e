"""A run on disk, to go on after a kill: theta, optimiser state, averages, history, all in one safetensors file.

There is no generator state to save: what a step reads depends on the seed and the step alone.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import GlassformerError
from ..records import why, write_atomically

KEY = "glassformer-run"


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
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), "numpy") as f:
            found = f.metadata() or {}
            arrays = {n: f.get_tensor(n) for n in f.keys()}  # noqa: SIM118 - not a dict
        if found["sha256"] == _sha256(found[KEY], arrays):
            return arrays, json.loads(found[KEY])
    except FileNotFoundError:
        raise GlassformerError(f"{path} — no run to resume: it has ended, or was never begun") from None
    except (SafetensorError, KeyError, ValueError, OSError):
        pass
    raise GlassformerError(f"{path} — not the state of a run, or a damaged one") from None


def _sha256(text: str, arrays: dict[str, Any]) -> str:
    h = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        h.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        h.update(arrays[name].tobytes())
    return h.hexdigest()
