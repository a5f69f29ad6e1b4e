"""A Model on disk: one .safetensors file with everything inside. Loading never executes code.

The header holds config, vocabulary, labels, task and provenance as JSON, and the SHA-256 of all of
these and of the tensors: a flipped bit is an error. Other safetensors readers can read the arrays.
"""

import hashlib
import json
import os
import struct
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from . import arrays
from .errors import GlassformerError
from .model import Config, Labels, Model
from .vocabulary import Vocabulary

KEY = "glassformer"
THETA = "theta:"  # names of theta's parts on disk start so
FORMAT = 1
DEFAULTS = {f.name: f.default for f in fields(Config)}


def digest(model: Model) -> str:
    """SHA-256 of what the model computes with: config, vocabulary, blueprint and tensors. Verdicts cite it."""
    chosen = {f.name: getattr(model.config, f.name) for f in fields(Config)}
    chosen = {n: v for n, v in chosen.items() if v != DEFAULTS[n]}  # a field that is new tomorrow changes no digest
    words = {"config": chosen, "vocabulary": model.vocabulary.to_json(), "blueprint": model.blueprint}
    h = hashlib.sha256(_dump(words))
    parts = dict(model.weights) | {THETA + n: t for n, t in model.theta.items()}
    for name in sorted(parts):
        w = np.ascontiguousarray(arrays.numpy(parts[name]))
        h.update(_dump([name, str(w.dtype), list(w.shape)]))
        h.update(w.tobytes())
    return h.hexdigest()


def save(model: Model, path: str | Path) -> Path:
    """Writes the model beside `path` and renames it into place: a killed process leaves the old or the new."""
    from safetensors.numpy import save as to_bytes

    header = {
        "format": FORMAT,
        "config": asdict(model.config),
        "vocabulary": model.vocabulary.to_json(),
        "task": model.task,
        "labels": asdict(model.labels),
        "provenance": dict(model.provenance),
        "blueprint": model.blueprint,
    }
    sealed = {"header": header, "model": digest(model), "sha256": _seal(header, digest(model))}
    stored = dict(model.weights) | {THETA + n: t for n, t in model.theta.items()}
    tensors = {n: np.ascontiguousarray(arrays.numpy(w)) for n, w in stored.items()}
    return write_atomically(path, to_bytes(tensors, {KEY: json.dumps(sealed)}))


def load(path: str | Path) -> Model:
    """Reads a model; anything that is not exactly what was saved is an error."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as e:
        raise GlassformerError(f"{path} — cannot be read: {e.strerror}") from None
    tensors, metadata = _parse(path, data)
    weights = {n: t for n, t in tensors.items() if not n.startswith(THETA)}
    theta = {n.removeprefix(THETA): t for n, t in tensors.items() if n.startswith(THETA)}
    if KEY not in metadata:
        raise GlassformerError(f"{path} — a safetensors file, but not of glassformer: it has no {KEY!r} header")
    try:
        sealed = json.loads(metadata[KEY])
        header = sealed["header"]
        if header["format"] != FORMAT:
            raise GlassformerError(f"{path} — checkpoint format {header['format']}; this version reads {FORMAT}")
        labels = header["labels"]
        labels["slots"] = {name: (int(a), int(b)) for name, (a, b) in labels["slots"].items()}
        model = Model(
            Config(**header["config"]), weights, Vocabulary.from_json(header["vocabulary"]),
            header["task"], Labels(**labels), header["provenance"], header["blueprint"], theta,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, GlassformerError) as e:
        if isinstance(e, GlassformerError) and str(path) in str(e):
            raise
        raise GlassformerError(f"{path} — damaged checkpoint: its header does not fit ({e})") from None
    if sealed.get("sha256") != _seal(header, digest(model)):
        raise GlassformerError(f"{path} — damaged checkpoint: its SHA-256 does not match what is in it")
    _check_theta(path, model)
    return model


def _check_theta(path: Path, model: Model) -> None:
    """Theta must really make the weights, or a count of theta would be a lie."""
    if not model.blueprint:
        if model.theta:
            raise GlassformerError(f"{path} — damaged checkpoint: theta without a blueprint")
        return
    from .blueprint import make

    made = make(model.blueprint).expand(model.theta, {n: tuple(w.shape) for n, w in model.weights.items()})
    tolerance = 1e-12 if model.dtype == "float64" else 1e-5
    for name, w in model.weights.items():
        if not np.allclose(made[name], w, rtol=tolerance, atol=tolerance):
            raise GlassformerError(f"{path} — its theta does not make its weights: {name} differs")


def write_atomically(path: str | Path, data: bytes) -> Path:
    """The old file or the new one, never half of one."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(beside, path)
    except OSError as e:
        beside.unlink(missing_ok=True)
        raise GlassformerError(f"{path} — cannot be written: {e.strerror}") from None
    return path


def _parse(path: Path, data: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    try:
        weights = from_bytes(data)
        (size,) = struct.unpack("<Q", data[:8])
        metadata = json.loads(data[8 : 8 + size]).get("__metadata__", {})
    except (SafetensorError, ValueError, KeyError, TypeError, struct.error, RecursionError):
        raise GlassformerError(f"{path} — not a safetensors file, or a truncated or damaged one") from None
    bad = sorted(n for n, w in weights.items() if w.dtype not in (np.float64, np.float32, np.float16))
    if bad:
        raise GlassformerError(f"{path} — {bad[0]} is {weights[bad[0]].dtype}; expected float64, float32 or float16")
    return weights, metadata


def _seal(header: Any, model: str) -> str:
    return hashlib.sha256(_dump([header, model])).hexdigest()


def _dump(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
