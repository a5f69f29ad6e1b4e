"""The models of a training run, step by step, as `train … --snapshots FOLDER` writes them.

    path = Trajectory.read("snapshots")
    path.steps                                                                # [0, 200, 400, …]
    path.follow(lambda model: np.linalg.norm(model.weights["embed.W_E"]))     # [n]

Files are read one at a time, when they are needed.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.checkpoint import load
from ..core.model import Model
from ..utils.errors import GlassformerError
from ..utils.results import Displayable

SNAPSHOT_NAME = re.compile(r"step-(\d+)\.safetensors")
Measure = Callable[[Model], Any]  # a number, or an array of the same shape for every model


@dataclass(frozen=True)
class Trajectory(Displayable):
    """Snapshots of one run, in the order of their steps."""

    steps: list[int]
    paths: list[Path]

    @classmethod
    def from_folder(cls, folder: str | Path) -> "Trajectory":
        """The snapshots in a folder; other files are left alone."""
        folder = Path(folder)
        if not folder.is_dir():
            expected = "expected a folder of snapshots, which train … --snapshots writes"
            raise GlassformerError(f"{folder} — {expected}")
        files = list(folder.iterdir())
        found = sorted(
            (int(m.group(1)), p) for p in files if (m := SNAPSHOT_NAME.fullmatch(p.name))
        )
        if not found:
            within = sorted(p.name for p in files if p.is_dir() and p.name.startswith("seed"))
            hint = f"; it has folders {', '.join(within)}" if within else ""
            expected = f"expected files like step-000200.safetensors{hint}"
            raise GlassformerError(f"{folder} — no snapshots here: {expected}")
        return cls([step for step, _ in found], [path for _, path in found])

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, i: int) -> Model:
        return load(self.paths[i])

    def __iter__(self) -> Iterator[Model]:
        """The models, one after the other. That they are of one run is seen on the way."""
        first: Model | None = None
        for path in self.paths:
            model = load(path)
            first = first or model
            if differ := _differences(first, model):
                other = f"is of another run than {self.paths[0].name}"
                raise GlassformerError(f"{path} — {other}: its {' and '.join(differ)} differs")
            yield model

    def at_step(self, step: int) -> Model:
        """The model of a step."""
        if step not in self.steps:
            near = min(self.steps, key=lambda s: abs(s - step))
            hint = f"the nearest is of step {near}"
            raise GlassformerError(f"step {step} — no snapshot of it; {hint}")
        return self[self.steps.index(step)]

    def every_nth(self, n: int) -> "Trajectory":
        """Each n-th snapshot from the first on, and the last: for measures that take long."""
        keep = sorted({*range(0, len(self), max(n, 1)), len(self) - 1})
        return Trajectory([self.steps[i] for i in keep], [self.paths[i] for i in keep])

    def measure(self, measures: Measure | Mapping[str, Measure]) -> Any:
        """What a measure says of each model, [n, …]; of several by name, a dict of these."""
        if not isinstance(measures, Mapping):
            return self.measure({"given": measures})["given"]
        values: dict[str, list[Any]] = {name: [] for name in measures}
        for step, model in zip(self.steps, self, strict=True):
            for name, measure in measures.items():
                value = np.asarray(measure(model), dtype=float)
                if values[name] and value.shape != values[name][0].shape:
                    before, now = list(values[name][0].shape), list(value.shape)
                    got = f"got {before} before, {now} at step {step}"
                    what = f"expected one shape for all models, {got}"
                    raise GlassformerError(f"measure {name} — {what}")
                values[name].append(value)
        return {name: np.stack(found) for name, found in values.items()}


def _differences(a: Model, b: Model) -> list[str]:
    """In what two models show that they are not of one run."""
    pairs = {
        "config": (a.config, b.config), "vocabulary": (a.vocabulary, b.vocabulary),
        "task": (a.task, b.task),
        "recipe": (a.provenance.get("recipe"), b.provenance.get("recipe")),
        "seed": (a.provenance.get("seed"), b.provenance.get("seed")),
    }  # fmt: skip
    return [name for name, (x, y) in pairs.items() if x != y]
