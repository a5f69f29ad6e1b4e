"""Snapshots of a training run, ordered by step, from `train … --snapshots FOLDER`.

path = Trajectory.from_folder("snapshots")
path.measure(lambda model: np.linalg.norm(model.weights["embed.W_E"]))  # [n]
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.checkpoint import load
from ..core.model import Model
from ..utils.errors import GlassformerError, value_error
from ..utils.results import Displayable

SNAPSHOT_NAME = re.compile(r"step-(\d+)\.safetensors")
Measure = Callable[[Model], Any]  # returns a number, or an array of equal shape for every model


@dataclass(frozen=True)
class Trajectory(Displayable):
    """Snapshots of one run, ordered by step. A file is read when its model is used."""

    steps: list[int]
    paths: list[Path]

    @classmethod
    def from_folder(cls, folder: str | Path) -> "Trajectory":
        """Create a trajectory from the snapshots in a folder, ignoring other files."""
        folder = Path(folder)
        if not folder.is_dir():
            problem = "expected a folder of snapshots. `train … --snapshots` writes one."
            raise GlassformerError(f"{folder}: {problem}", code="not_found")
        files = list(folder.iterdir())
        matches = ((SNAPSHOT_NAME.fullmatch(p.name), p) for p in files)
        snapshots = sorted((int(m[1]), p) for m, p in matches if m)
        if not snapshots:
            seeds = sorted(p.name for p in files if p.is_dir() and p.name.startswith("seed"))
            hint = f" Read one of its folders: {', '.join(seeds)}." if seeds else ""
            problem = f"expected files like step-000200.safetensors, got none.{hint}"
            raise GlassformerError(f"{folder}: {problem}", code="not_found")
        return cls([step for step, _ in snapshots], [path for _, path in snapshots])

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, i: int) -> Model:
        return load(self.paths[i])

    def __iter__(self) -> Iterator[Model]:
        """Yield the models in order. Raise an error if a snapshot is from another run."""
        first: Model | None = None
        for path in self.paths:
            model = load(path)
            first = first or model
            if fields := _differences(first, model):
                expected = f"a snapshot of the run of {self.paths[0].name}"
                got = f"other {' and '.join(fields)}"
                raise GlassformerError(f"{path}: expected {expected}, got {got}")
            yield model

    def at_step(self, step: int) -> Model:
        """Return the model saved at a step."""
        if step not in self.steps:
            nearest = min(self.steps, key=lambda s: abs(s - step))
            raise value_error("step:", f"one with a snapshot, such as {nearest}", step, "not_found")
        return self[self.steps.index(step)]

    def every_nth(self, n: int) -> "Trajectory":
        """Return a trajectory of every n-th snapshot from the first on, and the last snapshot."""
        kept = sorted({*range(0, len(self), max(n, 1)), len(self) - 1})
        return Trajectory([self.steps[i] for i in kept], [self.paths[i] for i in kept])

    def measure(self, measures: Measure | Mapping[str, Measure]) -> Any:
        """Apply a function to each model: [n, …]. Several named functions give a dict of arrays."""
        if not isinstance(measures, Mapping):
            return self.measure({"measure": measures})["measure"]
        values: dict[str, list[Any]] = {name: [] for name in measures}
        for step, model in zip(self.steps, self, strict=True):
            for name, function in measures.items():
                value = np.asarray(function(model), dtype=float)
                values[name].append(value)
                if value.shape != (first := values[name][0].shape):
                    where = f"measure {name}: step {step}:"
                    raise value_error(where, f"shape {list(first)}", list(value.shape))
        return {name: np.stack(arrays) for name, arrays in values.items()}


def _differences(a: Model, b: Model) -> list[str]:
    """Return the properties that differ between two models but are constant within a run."""
    own = [x for x in ("config", "vocabulary", "task") if getattr(a, x) != getattr(b, x)]
    return own + [x for x in ("recipe", "seed") if a.provenance.get(x) != b.provenance.get(x)]
