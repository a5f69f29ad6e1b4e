"""Save and resume an unfinished training run; run_file.py defines the file format."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..core.backend import Array
from ..core.checkpoint import digest, load, save
from ..parametrizations import Shapes
from ..registry import file_digest
from ..utils.errors import DAMAGED_FILE, GlassformerError
from . import run_file
from .events import RESTARTED, Event
from .full_domain_phase import FullDomainPhase

if TYPE_CHECKING:
    from .loop import Trainer


def run_identity(run: "Trainer") -> dict[str, Any]:
    """Return the settings that a resumed run must share with the saved one."""
    return {
        "task": run.task.ref,
        "recipe": run.recipe.to_json(),
        "seed": run.seeds[0],
        "parametrization": run.parametrization.ref,
        "start": digest(run.init_from) if run.init_from else "",
        "teacher": digest(run.teacher) if run.teacher else "",
        "source": file_digest(run.task.ref),
        "parametrization_source": file_digest(run.parametrization.ref),
    }


def save_run(run: "Trainer") -> Iterator[Event]:
    """Save the complete training state beside the model file."""
    if not run.out:
        return
    groups = {"theta": run.theta, "average": run.average, "optimizer": run.optimizer.state()}
    seed, phase = run.seeds[0], run.full_domain_phases.get(run.seeds[0])
    tensors = {f"{name}.{n}": t for name, group in groups.items() for n, t in group.items()}
    header = {
        "identity": run_identity(run), "step": run.step, "seconds": run.seconds,
        "smooth": float(run.smoothed_loss[0]).hex(), "decay_at": int(run.decay_at[0]),
        "watcher": run.milestone_trackers[0].state(), "history": run.history[seed],
        "events": [e.to_json() for e in run.milestones[seed]],
        "exact": phase.to_json() if phase else None,
    }  # fmt: skip
    path = run_file.state_path(run.out)
    run_file.save_state(path, tensors, header)
    yield Event("checkpoint", run.step, seed, {"path": str(path)})


def load_run(run: "Trainer") -> None:
    """Restore the saved state into a new run."""
    assert run.out
    path, seed = run_file.state_path(run.out), run.seeds[0]
    arrays, header = run_file.load_state(path)
    run_file.check_identity(path, header, run_identity(run))
    into = {f"theta.{n}": t for n, t in run.theta.items()}
    into |= {f"average.{n}": t for n, t in run.average.items()}
    optimizer = run.optimizer.state()
    expected = into | {f"optimizer.{n}": t for n, t in optimizer.items()}
    shapes = {n: tuple(t.shape) for n, t in expected.items()}
    if problem := next(_contradictions(run, arrays, header, shapes), ""):
        raise GlassformerError(f"{path} — {run_file.NOT_A_RUN}: {problem}", code=DAMAGED_FILE)
    tensors = {n: torch.tensor(a, device=run.device) for n, a in arrays.items()}
    for n, t in into.items():
        t.copy_(tensors[n])
    run.optimizer.load({n: tensors[f"optimizer.{n}"] for n in optimizer})
    run.step, run.seconds = int(header["step"]), float(header["seconds"])
    run.snapshot_good_state([0])
    run.smoothed_loss, run.decay_at = np.array([header["smooth"]]), np.array([header["decay_at"]])
    run.milestone_trackers[0].load(header["watcher"])
    run.history[seed] = header["history"]
    if header.get("exact"):
        run.full_domain_phases[seed] = FullDomainPhase.from_json(
            run.task, seed, header["exact"], run.recipe.near_tie_fraction
        )
    run.milestones[seed] = [Event(**e) for e in header["events"]]
    restarts = [e.step for e in run.milestones[seed] if e.kind == RESTARTED]
    run.start_steps[0] = run.milestone_trackers[0].start_step = max(restarts, default=0)


def _contradictions(
    run: "Trainer", arrays: dict[str, Array], header: dict[str, Any], shapes: Shapes
) -> Iterator[str]:
    """Yield the wrong shapes and dtypes and the impossible step counts of a saved run."""
    for n in sorted({*shapes, *arrays}):
        if n not in arrays or arrays[n].shape != shapes.get(n):
            yield f"{n} is {list(arrays[n].shape) if n in arrays else 'missing'}"
    for n, a in arrays.items():
        is_counter = n.startswith("optimizer.step.")  # AdamW counts steps in float32.
        if a.dtype != ("float32" if is_counter else run.recipe.dtype):
            yield f"{n} is in {a.dtype}"
        if not n.startswith("optimizer.") and not np.isfinite(a).all():
            yield f"{n} is not finite"
    step, last, phase = header["step"], run.recipe.steps, header.get("exact")
    phase_steps = run.recipe.full_domain_steps
    began, last = (phase["began"], last + phase_steps) if phase else (step, last)
    if step > last or max(header["decay_at"], header["watcher"]["since"], began) > step:
        yield f"step {step:,} of {last:,} does not fit"
    if step - began > phase_steps:
        yield f"{step - began:,} steps of a full-domain phase of {phase_steps:,}"
    if any(len(report["digits"]) != run.evaluator.answer_length for report in header["history"]):
        yield "its history has other answers"


def check_snapshots(run: "Trainer") -> None:
    """Raise an error if a snapshot folder contains snapshots of another run."""
    for folder in run.folders.values():
        for path in sorted(folder.glob("step-*.safetensors"))[:1]:
            saved, mine = load(path).provenance, run.model(0).provenance
            if any(saved.get(k) != mine[k] for k in ("seed", "recipe", "parametrization")):
                raise GlassformerError(f"{folder} — {run_file.OTHER_RUN_SNAPSHOTS}")


def save_snapshots(run: "Trainer", members: list[int]) -> None:
    """Save the current models of the given members if the run has snapshot folders."""
    for i in members if run.folders else ():
        model = run.model(i).map(lambda w: w.cpu().numpy())
        save(model, run.folders[run.seeds[i]] / f"step-{run.step:06d}.safetensors")
