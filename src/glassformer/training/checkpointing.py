"""Saving and resuming a run while it trains; run_file.py has the format of the file."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..core.checkpoint import digest, load, save
from ..registry import source_of
from ..utils.errors import GlassformerError
from .events import ANEW, Event
from .full_domain_phase import Exact
from .run_file import (
    OTHERS,
    check_fits,
    check_identity,
    load_state,
    save_state,
    snapshot_path,
    state_path,
)

if TYPE_CHECKING:
    from .loop import Trainer


def identity(run: "Trainer") -> dict[str, Any]:
    """What must be the same for a run to go on."""
    return {
        "task": run.task.ref, "recipe": run.recipe.to_json(), "seed": run.seeds[0],
        "blueprint": run.blueprint.ref, "start": digest(run.start) if run.start else "",
        "teacher": digest(run.teacher) if run.teacher else "",
        "source": source_of(run.task.ref), "blueprint_source": source_of(run.blueprint.ref),
    }  # fmt: skip


def save_run(run: "Trainer") -> Iterator[Event]:
    """All that the next step depends on, beside where the model goes."""
    if not run.out:
        return
    groups = {"theta": run.theta, "average": run.average, "optimizer": run.optimizer.state()}
    seed, phase = run.seeds[0], run.exact.get(run.seeds[0])
    tensors = {f"{name}.{n}": t for name, group in groups.items() for n, t in group.items()}
    header = {
        "identity": identity(run), "step": run.step, "seconds": run.seconds,
        "smooth": float(run.smooth[0]).hex(), "decay_at": int(run.decay_at[0]),
        "watcher": run.watchers[0].state(), "history": run.history[seed],
        "events": [e.to_json() for e in run.turning_points[seed]],
        "exact": phase.to_json() if phase else None,
    }  # fmt: skip
    path = state_path(run.out)
    save_state(path, tensors, header)
    yield Event("checkpoint", run.step, seed, {"path": str(path)})


def load_run(run: "Trainer") -> None:
    """Brings a run that has just been made to where the saved one was."""
    assert run.out
    path, seed = state_path(run.out), run.seeds[0]
    arrays, header = load_state(path)
    check_identity(path, header, identity(run))
    into = {f"theta.{n}": t for n, t in run.theta.items()}
    into |= {f"average.{n}": t for n, t in run.average.items()}
    optimizer = run.optimizer.state()
    kept = into | {f"optimizer.{n}": t for n, t in optimizer.items()}
    shapes = {n: tuple(t.shape) for n, t in kept.items()}
    check_fits(
        path, arrays, header, shapes=shapes, steps=run.recipe.steps, exact=run.recipe.exact,
        digits=run.measure.named, dtype=run.recipe.dtype,
    )  # fmt: skip
    tensors = {n: torch.tensor(a, device=run.device) for n, a in arrays.items()}
    for n, t in into.items():
        t.copy_(tensors[n])
    run.optimizer.load({n: tensors[f"optimizer.{n}"] for n in optimizer})
    run.step, run.seconds = int(header["step"]), float(header["seconds"])
    run.mark_good([0])
    run.smooth, run.decay_at = np.array([header["smooth"]]), np.array([header["decay_at"]])
    run.watchers[0].load(header["watcher"])
    run.history[seed] = header["history"]
    if header.get("exact"):
        run.exact[seed] = Exact.from_json(run.task, seed, header["exact"], run.recipe.alike)
    run.turning_points[seed] = [Event(**e) for e in header["events"]]
    anew = [e.step for e in run.turning_points[seed] if e.kind == ANEW]
    run.begun[0] = run.watchers[0].begun = max(anew, default=0)


def check_snapshots(run: "Trainer") -> None:
    """Refuses to go on with a folder that has the models of another run."""
    for folder in run.folders.values():
        for path in sorted(folder.glob("step-*.safetensors"))[:1]:
            theirs, mine = load(path).provenance, run.model(0).provenance
            if any(theirs.get(k) != mine[k] for k in ("seed", "recipe", "blueprint")):
                raise GlassformerError(f"{folder} — {OTHERS}")


def save_snapshots(run: "Trainer", members: list[int]) -> None:
    """The models of these members as they are now, where a folder was named for them."""
    for i in members if run.folders else ():
        model = run.model(i).map(lambda w: w.cpu().numpy())
        save(model, snapshot_path(run.folders[run.seeds[i]], run.step))
