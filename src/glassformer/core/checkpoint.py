"""A Model on disk: one .safetensors file with everything inside. Loading never executes code.

The header holds config, vocabulary, labels, task and provenance as JSON, and the SHA-256 of all of
these and of the tensors: a flipped bit is an error. Other safetensors readers can read the arrays.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from msgspec.structs import asdict as vars_of

from ..registry import FILE_REF, is_registered, split_ref
from ..utils.errors import GlassformerError, short_repr
from ..utils.fileio import check_writable, write_atomically
from . import backend
from .checkpoint_format import (
    FORMAT_VERSION,
    HEADER_KEY,
    THETA_PREFIX,
    Header,
    digest,
    header_checksum,
    model_from_bytes,
    read_model,
)
from .model import Model

__all__ = ["digest", "from_bytes", "load", "save", "to_bytes"]


def save(model: Model, path: str | Path) -> Path:
    """Writes the model in a file that ends in .safetensors: by that, `load` knows it again."""
    if Path(path).suffix != ".safetensors":
        raise GlassformerError(f"{path} — a model is saved in a file that ends in .safetensors")
    check_writable(path, *split_ref(model.blueprint)[1].values())  # not over what it is made from
    return write_atomically(path, to_bytes(model))


def to_bytes(model: Model) -> bytes:
    """What `save` writes."""
    from safetensors.numpy import save as with_header

    check_theta("model", model)

    try:
        header = vars_of(
            Header(
                format=FORMAT_VERSION,
                config=asdict(model.config),
                vocabulary=model.vocabulary.to_json(),
                task=model.task,
                labels={n: dict(names) for n, names in vars(model.labels).items()},
                provenance=dict(model.provenance),
                blueprint=model.blueprint,
            )
        )
        json.dumps(header)
    except (TypeError, ValueError, RecursionError) as e:
        raise GlassformerError(f"model — its provenance cannot be saved as JSON: {e}") from None
    sealed = {
        "header": header,
        "model": digest(model),
        "sha256": header_checksum(header, digest(model)),
    }
    stored = dict(model.weights) | {THETA_PREFIX + n: t for n, t in model.theta.items()}
    tensors = {n: np.ascontiguousarray(backend.to_numpy(w)) for n, w in stored.items()}
    return with_header(tensors, {HEADER_KEY: json.dumps(sealed)})


def load(path: str | Path) -> Model:
    """Reads a model; anything that is not exactly what was saved is an error."""
    return _checked(Path(path), read_model(path))


def from_bytes(data: bytes, name: str) -> Model:
    """The model in what `to_bytes` made; errors call it by this name."""
    return _checked(Path(name), model_from_bytes(Path(name), data))


def _checked(path: Path, model: Model) -> Model:
    if FILE_REF.match(model.blueprint) and not is_registered("blueprint", model.blueprint):
        # nobody typed that file, and nothing runs it: the weights stand without their theta
        return replace(model, theta={}, blueprint="")
    check_theta(path, model)
    return model


def check_theta(where: str | Path, model: Model) -> None:
    """Refuse a model whose theta does not make its weights: a count of theta would be false.

    `dataclasses.replace(model, weights=…)` makes such a model, as it keeps theta.
    """
    recompute_from_theta(model, where)


def recompute_from_theta(model: Model, where: str | Path = "model") -> Model:
    """Return the model with exactly the weights that its theta makes here.

    Its own weights may differ from them by rounding, as another machine has other sines and sums:
    an error if they differ by more. A model without a parametrization is returned as it is.
    """
    model = model.numpy()
    if not model.blueprint:
        if model.theta:
            raise GlassformerError(f"{where} — expected no theta without a blueprint, got some")
        return model
    from ..parametrizations import build_parametrization

    shapes = {n: tuple(w.shape) for n, w in model.weights.items()}
    try:
        blueprint = build_parametrization(model.blueprint)
        parts = blueprint.theta_shapes(shapes)
        if wrong := sorted({*parts} ^ {*model.theta}):
            raise GlassformerError(f"theta {'has no' if wrong[0] in parts else 'has'} {wrong[0]}")
        # Before it is expanded: two thin arrays can make a huge one.
        for name, t in sorted(model.theta.items()):
            if tuple(t.shape) != tuple(parts[name]):
                must = f"must have shape {list(parts[name])}, got {list(t.shape)}"
                raise GlassformerError(f"theta's {name} {must}")
        made = blueprint.expand(model.theta, shapes)
        if wrong := sorted(n for n in shapes if n not in made or tuple(made[n].shape) != shapes[n]):
            raise GlassformerError(f"theta makes no {wrong[0]} of shape {list(shapes[wrong[0]])}")
    except (GlassformerError, KeyError, ValueError, TypeError, IndexError) as e:
        what = f"its blueprint {short_repr(model.blueprint)}"
        raise GlassformerError(f"{where} — {what} does not make its weights: {e}") from None
    tolerance = 1e-12 if model.dtype == "float64" else 1e-5
    for name, w in model.weights.items():
        if not np.allclose(made[name], w, rtol=tolerance, atol=tolerance):
            hint = 'if its weights were edited: replace(model, theta={}, blueprint="")'
            raise GlassformerError(
                f"{where} — its theta does not make its weights: {name} differs; {hint}"
            )
    weights = {n: made[n].astype(w.dtype, copy=False) for n, w in model.weights.items()}
    return replace(model, weights=weights)
