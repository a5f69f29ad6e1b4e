"""Training snapshots with their accuracies, and the training curve, as data for the page."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType

from ..core.model import Model
from ..lens.logits import cross_entropy
from ..lens.trajectory import Trajectory
from ..resolve import task_if_known
from ..tasks.base import Task
from ..utils.errors import DAMAGED_FILE, GlassformerError
from ..utils.fileio import read_text
from ..utils.numfmt import format_number
from ..utils.typed_json import convert
from ..verification.evaluation import score
from .payload import encode_weights

MAX_CURVE_POINTS = 400
MAX_SNAPSHOTS = 60
MAX_SNAPSHOT_BYTES = 6_000_000  # total size of all weights in float32
EVALUATION_ROWS = 1_000  # number of inputs per snapshot


class CurvePoint(Struct):
    """The fields of a training evaluation that the curve uses."""

    step: Annotated[int, Meta(ge=0, le=10**12)]
    loss: float
    accuracy: float
    train_accuracy: float | UnsetType = UNSET


def read_snapshots(
    model: Model, folder: str | Path, curve: Mapping[str, Any] | None = None
) -> list[Any]:
    """Return {step, loss, accuracy, places, weights} of the snapshots in a folder, in float32.

    If there are too many snapshots, an evenly spaced subset is returned. `curve`, from
    `read_history`, overrides loss and accuracy and adds the training accuracy (`trained`).
    """
    trajectory = Trajectory.from_folder(folder)
    size = sum(4 * w.size for w in model.numpy().weights.values())
    limit = max(2, min(MAX_SNAPSHOTS, MAX_SNAPSHOT_BYTES // max(size, 1)))
    trajectory = trajectory.every_nth(-(-len(trajectory) // limit))
    task = task_if_known(model)
    rows = None if task is None else task.sample_or_all(EVALUATION_ROWS)
    entries = []
    for step, snapshot in zip(trajectory.steps, trajectory, strict=True):
        if snapshot.config != model.config or snapshot.vocabulary != model.vocabulary:
            raise GlassformerError(f"{folder}: expected snapshots of the page's model")
        one = snapshot.numpy().astype("float32")  # NumPy is slow in float16
        entry: dict[str, Any] = {"step": step, "weights": encode_weights(one)}
        if task is not None:
            entry |= evaluate_snapshot(one, task, rows)
        entries.append(entry | _curve_at(curve, step))
    return entries


def evaluate_snapshot(model: Model, task: Task, rows: Any) -> dict[str, Any]:
    """Return the loss, the accuracy, and the accuracy of each answer token."""
    result, (tokens, answer) = score(model, task, rows), task.batch(rows)
    with np.errstate(all="ignore"):
        losses = cross_entropy(model.logits(tokens[:, :-1]).astype(float), tokens[:, 1:])  # B T
    loss = losses[answer[:, 1:]].mean()
    return {"loss": round_for_json(loss), "accuracy": round_for_json(result.accuracy),
            "places": [round_for_json(x) for x in result.positions]}  # fmt: skip


def _curve_at(curve: Mapping[str, Any] | None, step: int) -> dict[str, Any]:
    if not curve or step not in curve["steps"]:
        return {}
    i, names = curve["steps"].index(step), ("loss", "accuracy", "trained")
    return {name: curve[name][i] for name in names if curve[name] is not None}


def read_history(path: Path) -> dict[str, Any]:
    """Return the training curve of the first seed in a JSON Lines file of evaluations."""
    text = read_text(path)
    try:
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        rows = [x for x in lines if isinstance(x, dict) and "loss" in x]
        rows = [x for x in rows if x.get("kind", "evaluation") == "evaluation"]
        rows = [x for x in rows if x.get("seed") == rows[0].get("seed")]
        rows = rows[:: -(-len(rows) // MAX_CURVE_POINTS)] if rows else []
        names = CurvePoint.__struct_fields__
        points = convert([{n: x[n] for n in names if n in x} for x in rows], list[CurvePoint])
    except (ValueError, RecursionError, GlassformerError):
        expected = "one JSON object a line with step, loss and accuracy (train --history X.jsonl)"
        raise GlassformerError(f"{path}: expected {expected}", code=DAMAGED_FILE) from None
    if not rows:
        raise GlassformerError(f"{path}: expected at least one evaluation", code=DAMAGED_FILE)
    curve: dict[str, Any] = {
        "steps": [x.step for x in points], "loss": [round_for_json(x.loss) for x in points],
        "accuracy": [round_for_json(x.accuracy) for x in points], "trained": None,
    }  # fmt: skip
    trained = [round_for_json(x.train_accuracy) for x in points if x.train_accuracy is not UNSET]
    return curve | {"trained": trained if len(trained) == len(points) else None}


def round_for_json(x: Any) -> Any:
    """Round a number to four digits. Return None for NaN and infinities."""
    return float(format_number(x)) if np.isfinite(x) else None
