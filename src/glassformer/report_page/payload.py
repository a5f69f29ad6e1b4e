"""Conversion of a model to plain data for the page (web/model.js).

The fields of a checkpoint's header are sent as the JSON strings from which its seal is computed, so
that the page can save edited models as checkpoints.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from ..compiler.task import task_name
from ..core import backend
from ..core.checkpoint import digest
from ..core.checkpoint_format import CONFIG_DEFAULTS, FORMAT_VERSION
from ..core.model import PROVENANCE_KEY, Config, Model
from ..core.param_count import count
from ..resolve import task_if_known
from ..tasks.base import Task
from ..tasks.token_layout import answer_names
from ..utils.errors import GlassformerError, ascii_name
from .examples import MAX_EXAMPLES, input_parser, page_examples

MAX_NONZERO_WEIGHTS = 2_000_000  # largest number for one model, about 20 MB
SPARSE_RATIO = 3  # arrays with less than 1/SPARSE_RATIO nonzeros are stored by index
DTYPE_NOTES = {
    "float64": "the page computes in float64, with another order of sums",
    "float32": "the page rounds to float32, with another order of sums",
}


def model_payload(
    model: Model, ref: str = "", *, title: str = "", inputs: Sequence[str] = (),
    verdict: Mapping[str, Any] | None = None, rows: int = MAX_EXAMPLES,
    snapshots: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the data of a model for the page.

    Args:
        model: A model with at most MAX_NONZERO_WEIGHTS nonzero weights.
        ref: The ref of the model.
        title: The title on the page. Defaults to the ref or the model's name.
        inputs: Initial inputs.
        verdict: The result of `verification_summary`.
        rows: Maximum number of examples.
        snapshots: The result of `read_snapshots`.
    """
    model = model.numpy()
    title = title or ref or model.name
    if (n := sum(int(np.count_nonzero(w)) for w in model.weights.values())) > MAX_NONZERO_WEIGHTS:
        problem = f"expected at most {MAX_NONZERO_WEIGHTS:,} nonzero weights, got {n:,}"
        hint = "glassformer inspect and explain support larger models"
        raise GlassformerError(f"{title}: {problem}. {hint}", code="too_large")
    if task := task_if_known(model):
        task.require(model.vocabulary)
    return {
        "title": title,
        "ref": ref or ascii_name(model.provenance.get("ref", "")),
        "dtype": model.dtype,
        "digest": digest(model),
        "header": checkpoint_header(model),
        "weights": encode_weights(model),
        "task": None if task is None else _task_payload(model, task, rows, bool(snapshots)),
        "inputs": list(inputs),
        "verdict": None if verdict is None else dict(verdict),
        "facts": model_facts(model),
        "source": _source_payload(model),
        "snapshots": None if snapshots is None else list(snapshots),
    }


def _source_payload(model: Model) -> dict[str, Any] | None:
    """Return the source of a compiled model as data, or None for other models."""
    if PROVENANCE_KEY not in model.provenance:
        return None
    from .sources import source_payload

    return source_payload(model)


def _task_payload(model: Model, task: Task, rows: int, trained: bool) -> dict[str, Any]:
    form = task.layout()
    layout = None if form is None else {
        "spots": [list(spot) for spot in form.spots], "first": form.first, "padded": form.padded,
    }  # fmt: skip
    return {
        "ref": task.ref,
        "parser": input_parser(task),
        "stop": task.stop,
        "format": layout,
        "modular": task.modular,
        "places": answer_names(task) if trained else None,
        "examples": page_examples(model, task, rows),
    }


# ── checkpoint fields ──────────────────────────────────────────────────────────────────────────
def checkpoint_header(model: Model) -> dict[str, Any]:
    """Return the header of a checkpoint as canonical JSON strings, which distinguish 1.0 from 1.

    Theta is left out, because edited weights have no parametrization.
    """
    chosen = {f.name: getattr(model.config, f.name) for f in fields(Config)}
    return {
        "format": FORMAT_VERSION,
        "config": _canonical_json(asdict(model.config)),
        "chosen": _canonical_json({n: v for n, v in chosen.items() if v != CONFIG_DEFAULTS[n]}),
        "vocabulary": _canonical_json(model.vocabulary.to_json()),
        "task": _canonical_json(model.task),
        "labels": {name: dict(labels) for name, labels in vars(model.labels).items()},
        "provenance": [[key, _canonical_json(x)] for key, x in model.provenance.items()],
    }


def _canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def encode_weights(model: Model) -> dict[str, Any]:
    """Return {name: {shape, data}} in little-endian base64; sparse arrays have indices `at`."""
    kind = "<f4" if model.dtype == "float32" else "<f8"
    weights = model.map(backend.to_numpy).weights
    return {name: _encode_array(w.astype(kind)) for name, w in weights.items()}


def _encode_array(w: Any) -> dict[str, Any]:
    flat = w.reshape(-1)
    at = np.flatnonzero((flat != 0) | np.signbit(flat))
    if SPARSE_RATIO * len(at) >= flat.size:
        return {"shape": list(w.shape), "data": _base64(flat)}
    places = {"at": _base64(at.astype("<u4")), "data": _base64(flat[at])}
    return {"shape": list(w.shape), **places}


def _base64(x: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()


# ── facts ──────────────────────────────────────────────────────────────────────────────────────
def model_facts(model: Model) -> list[list[str]]:
    """Return [name, text] of the model's task, origin, sizes and float type."""
    counted, provenance = count(model), model.provenance
    maker = str(provenance.get("maker", ""))
    kinds = {"program": "a program", "text": "a text program"}
    by = f"{kinds[maker]}: weights set by hand" if maker in kinds else maker or "unknown"
    fields_ = {k: v for k, v in provenance.items() if isinstance(v, (str, int, float)) and v != ""}
    details = [f"{k} {v}" for k, v in fields_.items() if k not in ("maker", "ref")]
    sizes = f"{counted.nonzero:,} nonzero, {counted.distinct:,} distinct values"
    rows = [
        ["task", task_name(model) or "none known"], ["made by", ", ".join([by, *details[:6]])],
        ["transformer", str(model.config)], ["parameters", f"{counted.total:,}, {sizes}"],
    ]  # fmt: skip
    if model.parametrization:
        made_from = f"{model.parametrization}: {counted.unique:,} free parameters"
        rows.append(["parametrization", made_from])
    if model.labels.slots:
        slots = ", ".join(f"{n} [{a}:{b}]" for n, (a, b) in model.labels.slots.items())
        rows.append(["slots", slots])
    page = DTYPE_NOTES.get(model.dtype, "the page computes in float64")
    return [*rows, ["floats", f"{model.dtype}; {page}"], ["SHA-256", digest(model)]]
