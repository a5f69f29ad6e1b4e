"""What is in a checkpoint's file: arrays and a header, each field checked before anything is built.

checkpoint.py saves and loads; this half of loading needs no blueprint, so a blueprint can use it.
"""

import hashlib
import json
import struct
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from msgspec import Meta

from ..utils.errors import DAMAGED, GlassformerError, shown
from ..utils.fileio import read_bytes
from ..utils.limits import memory
from ..utils.typed_json import Name, Record, Ref, Sha256, check_small, convert
from . import backend
from .model import Config, Labels, Model
from .vocabulary import Vocabulary

KEY = "glassformer"
RUN = "glassformer-run"  # the header of a run that can go on, training/run_file.py
THETA = "theta:"  # names of theta's parts on disk start so
FORMAT: Final = 1
CARRIED = 10**7  # characters of an entry of the provenance: a compiled model carries its codes
DEFAULTS = {f.name: f.default for f in fields(Config)}

Position = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class LabelTables(Record):
    """Labels."""

    slots: Annotated[dict[Name, tuple[Position, Position]], Meta(max_length=100_000)]
    heads: Annotated[dict[Name, Name], Meta(max_length=100_000)]
    neurons: Annotated[dict[Name, Name], Meta(max_length=1_000_000)]


class Header(Record):
    """Every field of a Model except its arrays."""

    format: Literal[1]
    config: Annotated[dict[Name, Any], Meta(max_length=len(DEFAULTS))]  # Config checks it
    vocabulary: Annotated[dict[Name, Any], Meta(max_length=2)]  # Vocabulary.from_json checks it
    task: Ref
    labels: Any  # `labels` checks them
    provenance: Annotated[dict[Name, Any], Meta(max_length=1_000)]
    blueprint: Ref

    def __post_init__(self) -> None:
        for name, value in self.provenance.items():
            check_small(value, f"provenance.{shown(name)}", CARRIED)
        for name, kind in {"maker": Name, "ref": Ref}.items():  # read by other modules
            convert(self.provenance.get(name, ""), kind, f"provenance.{name}")
        if unknown := sorted(self.config.keys() - DEFAULTS):
            raise GlassformerError(f"unknown field config.{shown(unknown[0])}")


class SealedHeader(Record):
    """The metadata entry KEY of a file."""

    header: Header
    model: Sha256
    sha256: Sha256


def digest(model: Model) -> str:
    """SHA-256 of config, vocabulary, blueprint and tensors: what verdicts cite."""
    chosen = {f.name: getattr(model.config, f.name) for f in fields(Config)}
    # A field that is new tomorrow changes no digest
    chosen = {n: v for n, v in chosen.items() if v != DEFAULTS[n]}
    words = {"config": chosen, "vocabulary": model.vocabulary.to_json()}
    h = hashlib.sha256(_dump(words | {"blueprint": model.blueprint}))
    parts = dict(model.weights) | {THETA + n: t for n, t in model.theta.items()}
    for name in sorted(parts):
        w = np.ascontiguousarray(backend.numpy(parts[name]))
        kind = backend.kind(parts[name])  # bfloat16 becomes float32 in NumPy, and is not the same
        h.update(_dump([name, kind, list(w.shape)]))
        h.update(w.tobytes())
    return h.hexdigest()


def seal(header: Any, model: str) -> str:
    """SHA-256 of a header and of the digest of its model."""
    return hashlib.sha256(_dump([header, model])).hexdigest()


def read(path: str | Path) -> Model:
    """The model in a file, exactly as it was saved, or an error. Its theta is not expanded."""
    return read_from(Path(path), read_bytes(path, memory()))


def read_from(path: Path, data: bytes) -> Model:
    """The model in the bytes of a file; `path` is what errors call it."""
    tensors, metadata = parse(path, data)
    if KEY not in metadata:
        what = f"a safetensors file, but not of glassformer: it has no {KEY!r} header"
        if RUN in metadata:
            what = "the state of a run and no model yet: train … --resume goes on with it"
        raise GlassformerError(f"{path} — {what}", code=DAMAGED)
    damaged = f"{path} — damaged checkpoint: it"
    try:
        sealed = json.loads(metadata[KEY])
        model = _model(sealed, tensors)
    except (ValueError, RecursionError, GlassformerError) as e:
        raise GlassformerError(f"{damaged}s header does not fit ({e})", code=DAMAGED) from None
    found = digest(model)
    if sealed["sha256"] != seal(sealed["header"], found):
        raise GlassformerError(f"{damaged}s SHA-256 does not match its contents", code=DAMAGED)
    if sealed["model"] != found:
        said = sealed["model"][:12]
        what = f"{damaged} says its model is {said}…, but that is {found[:12]}…"
        raise GlassformerError(what, code=DAMAGED)
    finite(path, tensors)
    return model


def finite(path: Path, weights: dict[str, Any]) -> None:
    """Refuses arrays with a NaN or an infinity, by name and place."""
    for name, w in weights.items():
        if not (good := np.isfinite(w)).all():
            at = [int(i) for i in np.argwhere(~good)[0]]
            found = f"{name} has {w[tuple(at)]} at {at}"
            raise GlassformerError(f"{path} — {found}; expected finite numbers", code=DAMAGED)


def labels(given: Any, c: Config) -> Labels:
    """Names as a header has them, for a model of this config."""
    tables = convert(given, LabelTables, "labels")
    for name, (start, stop) in tables.slots.items():
        if not start <= stop <= c.d_model:
            must = f"must be start ≤ stop ≤ {c.d_model} (d_model)"
            raise GlassformerError(f"slot {shown(name)} {must}, got {start}, {stop}")
    return Labels(tables.slots, tables.heads, tables.neurons)


def _model(sealed: Any, tensors: dict[str, Any]) -> Model:
    header = convert(sealed, dict[str, Any]).get("header")
    if isinstance(header, dict) and (version := header.get("format")) != FORMAT:
        raise GlassformerError(f"checkpoint format {shown(version)}; this version reads {FORMAT}")
    header = convert(sealed, SealedHeader).header
    config = Config(**header.config)
    weights = {n: t for n, t in tensors.items() if not n.startswith(THETA)}
    theta = {n.removeprefix(THETA): t for n, t in tensors.items() if n.startswith(THETA)}
    vocabulary, names = Vocabulary.from_json(header.vocabulary), labels(header.labels, config)
    rest = header.provenance, header.blueprint, theta
    return Model(config, weights, vocabulary, header.task, names, *rest)


def parse(path: Path, data: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """Arrays by name, in the order of their names whatever the file has, and the metadata."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    try:
        weights = dict(sorted(from_bytes(data).items()))
        (size,) = struct.unpack("<Q", data[:8])
        metadata = json.loads(data[8 : 8 + size]).get("__metadata__") or {}
    except (SafetensorError, ValueError, KeyError, TypeError, struct.error, RecursionError):
        what = "not a safetensors file, or a truncated or damaged one"
        raise GlassformerError(f"{path} — {what}", code=DAMAGED) from None
    for name, w in weights.items():
        if w.dtype not in (np.float64, np.float32, np.float16):
            found = f"{name} is {w.dtype}"
            what = f"{path} — {found}; expected float64, float32 or float16"
            raise GlassformerError(what, code=DAMAGED)
    return weights, metadata


def _dump(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")
