"""Where a run's models are kept, if all are: a file for the start and for each evaluation."""

from collections.abc import Sequence
from pathlib import Path

from ..errors import GlassformerError
from ..records import why


def snapshot_path(folder: Path, step: int) -> Path:
    """Where the model of a step is kept."""
    return folder / f"step-{step:06d}.safetensors"


def snapshot_folders(folder: str | Path, seeds: Sequence[int], resume: bool) -> dict[int, Path]:
    """A folder for each seed. Those of a new run must have no snapshots yet."""
    folder = Path(folder)
    found = {seed: folder / f"seed{seed}" if len(seeds) > 1 else folder for seed in seeds}
    for path in found.values():
        try:
            path.mkdir(parents=True, exist_ok=True)
            old = not resume and any(path.glob("step-*.safetensors"))
        except (OSError, ValueError) as e:
            raise GlassformerError(f"{path} — cannot be a folder for snapshots: {why(e)}") from None
        if old:
            raise GlassformerError(
                f"{path} — has snapshots of another run: expected an empty folder or a new one"
            )
    return found
