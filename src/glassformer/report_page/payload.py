"""A model as plain data, for the page: what model.js reads.

Everything that a checkpoint's header holds goes as the very text that its seal is made of, so that
the page can save an edited model that `load` takes. Nothing in it is executed.
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
from ..core.model import Config, Model
from ..core.param_count import count
from ..resolve import task_if_known
from ..tasks.base import Task
from ..tasks.token_layout import answer_names
from ..utils.errors import GlassformerError, ascii_name
from .examples import MAX_EXAMPLES, input_parser, page_examples
from .sources import source_payload

MAX_NONZERO_WEIGHTS = 2_000_000  # that are not 0, in the weights of one model: 20 MB
SPARSE_RATIO = 3  # weights of which less than one in so many is not 0 are told by their places
DTYPE_NOTES = {  # float types that the page computes in, and how that is said; others as float64
    "float64": "the page computes in it, with sums in its own order",
    "float32": "the page rounds every number to it, with sums in its own order",
}


def model_payload(
    model: Model, ref: str = "", *, title: str = "", inputs: Sequence[str] = (),
    verdict: Mapping[str, Any] | None = None, rows: int = MAX_EXAMPLES,
    snapshots: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """All that the page knows of a model. `inputs`: texts to begin with, `rows`: examples."""
    model = model.numpy()
    title = title or ref or model.name
    if (n := sum(int(np.count_nonzero(w)) for w in model.weights.values())) > MAX_NONZERO_WEIGHTS:
        most = f"a page carries at most {MAX_NONZERO_WEIGHTS:,} numbers that are not 0"
        way_out = "glassformer inspect and explain look at larger models"
        raise GlassformerError(f"{title} — {most}, and this model has {n:,}; {way_out}")
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
        "source": source_payload(model),
        "snapshots": None if snapshots is None else list(snapshots),
    }


def _task_payload(model: Model, task: Task, rows: int, trained: bool) -> dict[str, Any]:
    form = task.layout()
    told = None if form is None else {
        "spots": [list(spot) for spot in form.spots], "first": form.first, "base": form.base,
        "padded": form.padded,
    }  # fmt: skip
    return {
        "ref": task.ref,
        "reading": input_parser(task),
        "stop": task.stop,
        "format": told,
        "roles": {name: np.argwhere(found).tolist() for name, found in task.roles().items()},
        "known": list(task.example_inputs),
        "modular": task.modular,
        "places": answer_names(task) if trained else None,
        "examples": page_examples(model, task, rows),
    }


# ── what a checkpoint holds ────────────────────────────────────────────────────────────────────
def checkpoint_header(model: Model) -> dict[str, Any]:
    """The parts of a checkpoint's header, as the texts that the seal is made of: the page could not
    tell 1 from 1.0. (Weights that were edited have no parametrization: theta stays here.)
    """
    chosen = {f.name: getattr(model.config, f.name) for f in fields(Config)}
    return {
        "format": FORMAT_VERSION,
        "config": _canonical_json(asdict(model.config)),
        "chosen": _canonical_json({n: v for n, v in chosen.items() if v != CONFIG_DEFAULTS[n]}),
        "vocabulary": _canonical_json(model.vocabulary.to_json()),
        "task": _canonical_json(model.task),
        "labels": {name: dict(given) for name, given in vars(model.labels).items()},
        "provenance": [[key, _canonical_json(x)] for key, x in model.provenance.items()],
    }


def _canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def encode_weights(model: Model) -> dict[str, Any]:
    """Name -> shape and numbers, little-endian in base64; `at`: the places of those that are not 0,
    where that is shorter.
    """
    kind = "<f4" if model.dtype == "float32" else "<f8"
    return {
        name: _encode_array(backend.to_numpy(w).astype(kind)) for name, w in model.weights.items()
    }


def _encode_array(w: Any) -> dict[str, Any]:
    flat = w.reshape(-1)
    at = np.flatnonzero((flat != 0) | np.signbit(flat))
    if SPARSE_RATIO * len(at) >= flat.size:
        return {"shape": list(w.shape), "data": _base64(flat)}
    places = {"at": _base64(at.astype("<u4")), "data": _base64(flat[at])}
    return {"shape": list(w.shape), **places}


def _base64(x: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()


# ── in words ───────────────────────────────────────────────────────────────────────────────────
def model_facts(model: Model) -> list[list[str]]:
    """Who made it, how large it is, in which floats: name and text."""
    counted, made = count(model), model.provenance
    maker = str(made.get("maker", ""))
    kinds = {"program": "a program", "text": "a text program"}
    by = f"{kinds[maker]}: weights set by hand" if maker in kinds else maker or "not said"
    told = {k: v for k, v in made.items() if isinstance(v, (str, int, float)) and v != ""}
    more = [f"{k} {v}" for k, v in told.items() if k not in ("maker", "ref")]
    sizes = f"{counted.nonzero:,} of them not 0, {counted.distinct:,} distinct values"
    found = [
        ["task", task_name(model) or "none known"], ["made by", ", ".join([by, *more[:6]])],
        ["transformer", str(model.config)], ["parameters", f"{counted.total:,}, {sizes}"],
    ]  # fmt: skip
    if model.parametrization:
        made_from = f"{model.parametrization}: {counted.unique:,} numbers make the weights"
        found.append(["parametrization", made_from])
    if model.labels.slots:
        slots = ", ".join(f"{n} [{a}:{b}]" for n, (a, b) in model.labels.slots.items())
        found.append(["slots", slots])
    page = DTYPE_NOTES.get(model.dtype, "the page computes in float64")
    return [*found, ["floats", f"{model.dtype}; {page}"], ["SHA-256", digest(model)]]
