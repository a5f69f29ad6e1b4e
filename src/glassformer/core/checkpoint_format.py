"""Checkpoint format: arrays and a header, whose fields are checked before a Model is built.

Reading does not expand theta, so parametrizations can use this module as well; see checkpoint.py.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from msgspec import Meta

from ..utils import migrate
from ..utils.errors import DAMAGED_FILE, GlassformerError, short_repr
from ..utils.fileio import read_bytes
from ..utils.limits import available_memory
from ..utils.typed_json import JsonObject, Name, Ref, Sha256, check_small, convert
from . import backend
from .model import Config, Labels, Model
from .vocabulary import Vocabulary

HEADER_KEY = "glassformer"
RUN_STATE_KEY = "glassformer-run"  # header of a training state (training/run_file.py)
THETA_PREFIX = "theta:"  # prefix of theta's arrays in the file
FORMAT_VERSION: Final = 1
MAX_PROVENANCE_CHARS = 10**7  # characters of one entry; compiled models store their source
CONFIG_DEFAULTS = {f.name: f.default for f in fields(Config)}

Position = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class LabelTables(JsonObject):
    """JSON schema of saved Labels."""

    slots: Annotated[dict[Name, tuple[Position, Position]], Meta(max_length=100_000)]
    heads: Annotated[dict[Name, Name], Meta(max_length=100_000)]
    neurons: Annotated[dict[Name, Name], Meta(max_length=1_000_000)]


class Header(JsonObject):
    """JSON schema of a header: all fields of a Model except its arrays."""

    format: Literal[1]
    config: Annotated[dict[Name, Any], Meta(max_length=len(CONFIG_DEFAULTS))]  # checked by Config
    vocabulary: Annotated[dict[Name, Any], Meta(max_length=2)]  # checked by Vocabulary.from_json
    task: Ref
    labels: Any  # checked by parse_labels
    provenance: Annotated[dict[Name, Any], Meta(max_length=1_000)]
    parametrization: Ref

    def __post_init__(self) -> None:
        for name, value in self.provenance.items():
            check_small(value, f"provenance.{short_repr(name)}", MAX_PROVENANCE_CHARS)
        for name, kind in {"maker": Name, "ref": Ref}.items():  # used by other modules
            convert(self.provenance.get(name, ""), kind, f"provenance.{name}")
        if unknown := sorted(self.config.keys() - CONFIG_DEFAULTS):
            raise GlassformerError(f"unknown field config.{short_repr(unknown[0])}")


class SealedHeader(JsonObject):
    """JSON schema of the metadata entry HEADER_KEY: a header with its checksums."""

    header: Header
    model: Sha256
    sha256: Sha256


def digest(model: Model) -> str:
    """Return the SHA-256 of a model's config, vocabulary, parametrization and tensors.

    Verdicts and certificates identify models by it.
    """
    chosen = {f.name: getattr(model.config, f.name) for f in fields(Config)}
    # config fields added later must not change digests
    chosen = {n: v for n, v in chosen.items() if v != CONFIG_DEFAULTS[n]}
    words = {"config": chosen, "vocabulary": model.vocabulary.to_json()}
    # the old name of the field is kept, since digests must not change
    h = hashlib.sha256(_canonical_json(words | {"blueprint": model.parametrization}))
    parts = dict(model.weights) | {THETA_PREFIX + n: t for n, t in model.theta.items()}
    for name in sorted(parts):
        w = np.ascontiguousarray(backend.to_numpy(parts[name]))
        kind = backend.dtype_name(parts[name])  # bfloat16 becomes float32 in NumPy
        h.update(_canonical_json([name, kind, list(w.shape)]))
        h.update(w.tobytes())
    return h.hexdigest()


def header_checksum(header: Any, model: str) -> str:
    """Return the SHA-256 of a header together with the digest of its model."""
    return hashlib.sha256(_canonical_json([header, model])).hexdigest()


def read_model(path: str | Path) -> Model:
    """Read a model without expanding its theta; raise an error if the file is damaged."""
    return model_from_bytes(Path(path), read_bytes(path, available_memory()))


def model_from_bytes(path: Path, data: bytes) -> Model:
    """Return the model from the bytes of a file; error messages use `path`."""
    tensors, metadata = parse_safetensors(path, data)
    if HEADER_KEY not in metadata:
        problem = f"expected a glassformer checkpoint, got a file without {HEADER_KEY!r} header"
        if RUN_STATE_KEY in metadata:
            problem = "expected a model, got the state of a run; continue it with train … --resume"
        raise GlassformerError(f"{path} — {problem}", code=DAMAGED_FILE)
    damaged = f"{path} — damaged checkpoint"
    try:
        sealed = json.loads(metadata[HEADER_KEY])
        model = _build_model(sealed, tensors)
    except (ValueError, RecursionError, GlassformerError) as e:
        raise GlassformerError(f"{damaged}: invalid header ({e})", code=DAMAGED_FILE) from None
    sha256 = digest(model)
    if sealed["sha256"] != header_checksum(sealed["header"], sha256):
        raise GlassformerError(f"{damaged}: its SHA-256 does not match", code=DAMAGED_FILE)
    if sealed["model"] != sha256:
        digests = f"expected model {sha256[:12]}…, got {sealed['model'][:12]}…"
        raise GlassformerError(f"{damaged}: {digests}", code=DAMAGED_FILE)
    check_finite(path, tensors)
    return model


def check_finite(where: str | Path, weights: Mapping[str, Any], code: str = DAMAGED_FILE) -> None:
    """Raise an error with the array and index of the first NaN or infinity, if there is one."""
    for name, w in weights.items():
        if not (finite := np.isfinite(w)).all():
            index = [int(i) for i in np.argwhere(~finite)[0]]
            problem = f"{name} has {w[tuple(index)]} at {index}; expected finite numbers"
            raise GlassformerError(f"{where} — {problem}", code=code)


def parse_labels(value: Any, c: Config) -> Labels:
    """Convert the labels of a header and check them against the config."""
    tables = convert(value, LabelTables, "labels")
    for name, (start, stop) in tables.slots.items():
        if not start <= stop <= c.d_model:
            must = f"must be start ≤ stop ≤ {c.d_model} (d_model)"
            raise GlassformerError(f"slot {short_repr(name)} {must}, got {start}, {stop}")
    return Labels(tables.slots, tables.heads, tables.neurons)


def _build_model(sealed: Any, tensors: dict[str, Any]) -> Model:
    header = convert(sealed, dict[str, Any]).get("header")
    if isinstance(header, dict) and (version := header.get("format")) != FORMAT_VERSION:
        raise GlassformerError(
            f"checkpoint format {short_repr(version)}; this version reads {FORMAT_VERSION}"
        )
    sealed = sealed | {"header": migrate.checkpoint_header(header)}
    header = convert(sealed, SealedHeader).header
    config = Config(**header.config)
    weights = {n: t for n, t in tensors.items() if not n.startswith(THETA_PREFIX)}
    theta = {n.removeprefix(THETA_PREFIX): tensors[n] for n in tensors.keys() - weights}
    labels, vocabulary = (
        parse_labels(header.labels, config),
        Vocabulary.from_json(header.vocabulary),
    )
    rest = header.provenance, header.parametrization, dict(sorted(theta.items()))
    return Model(config, weights, vocabulary, header.task, labels, *rest)


def parse_safetensors(path: Path, data: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arrays of a safetensors file, sorted by name, and its metadata."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    try:
        weights = dict(sorted(from_bytes(data).items()))
        (size,) = struct.unpack("<Q", data[:8])
        metadata = json.loads(data[8 : 8 + size]).get("__metadata__") or {}
    except (SafetensorError, ValueError, KeyError, TypeError, struct.error, RecursionError):
        problem = "not a safetensors file, or a truncated or damaged one"
        raise GlassformerError(f"{path} — {problem}", code=DAMAGED_FILE) from None
    for name, w in weights.items():
        if w.dtype not in (np.float64, np.float32, np.float16):
            problem = f"{name} is {w.dtype}; expected float64, float32 or float16"
            raise GlassformerError(f"{path} — {problem}", code=DAMAGED_FILE)
    return weights, metadata


def _canonical_json(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")
