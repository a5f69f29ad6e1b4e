"""A training to scrub: models of a run, step by step, with how right each was; and its curve."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType

from ..core.model import Model
from ..lens.trajectory import Trajectory
from ..resolve import task_if_known
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..utils.fileio import read_text
from ..utils.numfmt import format_number
from ..utils.typed_json import convert
from ..verification.evaluation import score
from .payload import encode_weights

MAX_CURVE_POINTS = 400  # points of a training curve, at most
MAX_SNAPSHOTS = 60  # snapshots in a page
MAX_SNAPSHOT_BYTES = 6_000_000  # of all their weights, as float32
EVALUATION_ROWS = 1_000  # inputs that each is measured on


class CurvePoint(Struct):
    """Fields of an evaluation in a training history that the curve needs."""

    step: Annotated[int, Meta(ge=0, le=10**12)]
    loss: float
    accuracy: float
    train_accuracy: float | UnsetType = UNSET


def read_snapshots(
    model: Model, folder: str | Path, curve: Mapping[str, Any] | None = None
) -> list[Any]:
    """The models in a folder as `train … --snapshots` writes it, each {step, loss, accuracy,
    places, weights}; of many, some from all over. `told`: a curve as `history` reads it, which also
    says what was right of the inputs trained on (`trained`). Weights go as float32.
    """
    path, size = (
        Trajectory.from_folder(folder),
        sum(4 * w.size for w in model.numpy().weights.values()),
    )
    most = max(2, min(MAX_SNAPSHOTS, MAX_SNAPSHOT_BYTES // max(size, 1)))
    path = path.every_nth(-(-len(path) // most))
    task = task_if_known(model)
    rows = None if task is None else task.sample_or_all(EVALUATION_ROWS)
    found = []
    for step, each in zip(path.steps, path, strict=True):
        if each.config != model.config or each.vocabulary != model.vocabulary:
            raise GlassformerError(f"{folder} — snapshots of another model than the page's")
        one = each.numpy().astype("float32")  # as the page has it; NumPy is slow in float16
        entry: dict[str, Any] = {"step": step, "weights": encode_weights(one)}
        if task is not None:
            entry |= evaluate_snapshot(one, task, rows)
        found.append(entry | _curve_at(curve, step))
    return found


def evaluate_snapshot(model: Model, task: Task, rows: Any) -> dict[str, Any]:
    """Loss and share of right answers, whole and token by token."""
    said, (tokens, answer) = score(model, task, rows), task.batch(rows)
    with np.errstate(all="ignore"):
        logits = model.logits(tokens[:, :-1]).astype(float)
        shifted = logits - logits.max(-1, keepdims=True)
        log = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))  # B T V
    right = np.take_along_axis(log, tokens[:, 1:, None], -1)[..., 0][answer[:, 1:]]
    return {"loss": round_for_json(-right.mean()), "accuracy": round_for_json(said.accuracy),
            "places": [round_for_json(x) for x in said.positions]}  # fmt: skip


def _curve_at(curve: Mapping[str, Any] | None, step: int) -> dict[str, Any]:
    """What a curve says of a step."""
    if not curve or step not in curve["steps"]:
        return {}
    i, names = curve["steps"].index(step), ("loss", "accuracy", "trained")
    return {name: curve[name][i] for name in names if curve[name] is not None}


def read_history(path: Path) -> dict[str, Any]:
    """A training curve out of a file of evaluations, JSON lines; of several seeds the first."""
    text = read_text(path)
    try:
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        rows = [x for x in lines if isinstance(x, dict) and "loss" in x]
        rows = [x for x in rows if x.get("kind", "evaluation") == "evaluation"]
        rows = [x for x in rows if x.get("seed") == rows[0].get("seed")]
        rows = rows[:: -(-len(rows) // MAX_CURVE_POINTS)] if rows else []
        known = CurvePoint.__struct_fields__
        points = convert([{n: x[n] for n in known if n in x} for x in rows], list[CurvePoint])
    except (ValueError, RecursionError, GlassformerError):
        expected = "one JSON object a line with step, loss and accuracy (train --history X.jsonl)"
        raise GlassformerError(f"{path} — expected a training history, {expected}") from None
    if not rows:
        raise GlassformerError(f"{path} — a training history without an evaluation")
    curve: dict[str, Any] = {
        "steps": [x.step for x in points], "loss": [round_for_json(x.loss) for x in points],
        "accuracy": [round_for_json(x.accuracy) for x in points], "trained": None,
    }  # fmt: skip
    trained = [x.train_accuracy for x in points if x.train_accuracy is not UNSET]
    return curve | {
        "trained": [*map(round_for_json, trained)] if len(trained) == len(points) else None
    }


def round_for_json(x: Any) -> Any:
    """A number in four digits, None for what JSON has no word for."""
    return float(format_number(x)) if np.isfinite(x) else None
