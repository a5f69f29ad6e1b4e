"""Save models to .safetensors files and load them. Loading never executes code.

The header contains config, vocabulary, labels, task and provenance as JSON. A SHA-256 of these and
the tensors detects damaged files. Other safetensors readers can read the arrays.
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
    check_finite,
    digest,
    header_checksum,
    model_from_bytes,
    read_model,
)
from .model import Model

__all__ = ["digest", "from_bytes", "load", "save", "to_bytes"]


def save(model: Model, path: str | Path) -> Path:
    """Write the model to a .safetensors file and return its path.

    Raises:
        GlassformerError: The path does not end in .safetensors or cannot be written, or the
            weights are not finite, or its theta does not produce them.
    """
    if Path(path).suffix != ".safetensors":
        raise GlassformerError(f"{path} — expected a file name that ends in .safetensors")
    inputs = split_ref(model.parametrization)[
        1
    ].values()  # may include a file that must not be overwritten
    check_writable(path, *inputs)
    check_finite("model", model.numpy().weights, "bad_argument")  # load() would refuse the file
    return write_atomically(path, to_bytes(model))


def to_bytes(model: Model) -> bytes:
    """Return the model as the bytes of a .safetensors file."""
    from safetensors.numpy import save as safetensors_bytes

    check_theta("model", model)
    try:
        header = vars_of(
            Header(
                format=FORMAT_VERSION,
                config=asdict(model.config),
                task=model.task,
                vocabulary=model.vocabulary.to_json(),
                provenance=dict(model.provenance),
                labels={n: dict(names) for n, names in vars(model.labels).items()},
                parametrization=model.parametrization,
            )
        )
        json.dumps(header)
    except (TypeError, ValueError, RecursionError) as e:
        raise GlassformerError(f"model — provenance cannot be saved as JSON: {e}") from None
    sha256 = digest(model)
    sealed = {"header": header, "model": sha256, "sha256": header_checksum(header, sha256)}
    arrays = dict(model.weights) | {THETA_PREFIX + n: t for n, t in model.theta.items()}
    tensors = {n: np.ascontiguousarray(backend.to_numpy(w)) for n, w in arrays.items()}
    return safetensors_bytes(tensors, {HEADER_KEY: json.dumps(sealed)})


def load(path: str | Path) -> Model:
    """Read a model from a file; raise an error if it is damaged or was not written by `save`."""
    return _checked(Path(path), read_model(path))


def from_bytes(data: bytes, name: str) -> Model:
    """Return the model from the output of `to_bytes`; error messages use `name`."""
    return _checked(Path(name), model_from_bytes(Path(name), data))


def _checked(path: Path, model: Model) -> Model:
    ref = model.parametrization
    if FILE_REF.match(ref) and not is_registered("parametrization", ref):
        # Files named by a checkpoint are never executed: keep the weights and drop theta.
        return replace(model, theta={}, parametrization="")
    check_theta(path, model)
    return model


def check_theta(where: str | Path, model: Model) -> None:
    """Raise an error if theta does not produce the weights, as after replace(model, weights=…)."""
    recompute_from_theta(model, where)


def recompute_from_theta(model: Model, where: str | Path = "model") -> Model:
    """Return the model with its weights recomputed from theta on this machine.

    Stored weights may differ by rounding; a larger difference raises an error. A model without a
    parametrization keeps its weights.
    """
    model = model.numpy()
    if not model.parametrization:
        if model.theta:
            expected = "expected no theta without a parametrization"
            raise GlassformerError(f"{where} — {expected}, got {len(model.theta)} arrays")
        return model
    from ..parametrizations import build_parametrization

    shapes = {n: tuple(w.shape) for n, w in model.weights.items()}
    try:
        parametrization = build_parametrization(model.parametrization)
        theta_shapes = parametrization.theta_shapes(shapes)
        if wrong := sorted({*theta_shapes} ^ {*model.theta}):
            verb = "has no" if wrong[0] in theta_shapes else "has"
            raise GlassformerError(f"theta {verb} {wrong[0]}")
        # check shapes first: two thin arrays can expand to a huge one
        for name, t in sorted(model.theta.items()):
            if tuple(t.shape) != tuple(theta_shapes[name]):
                must = f"must have shape {list(theta_shapes[name])}, got {list(t.shape)}"
                raise GlassformerError(f"theta's {name} {must}")
        expanded = parametrization.expand(model.theta, shapes)
        if wrong := sorted(
            n for n in shapes if n not in expanded or tuple(expanded[n].shape) != shapes[n]
        ):
            raise GlassformerError(
                f"theta does not expand to {wrong[0]} of shape {list(shapes[wrong[0]])}"
            )
    except (GlassformerError, KeyError, ValueError, TypeError, IndexError) as e:
        ref = f"its parametrization {short_repr(model.parametrization)}"
        raise GlassformerError(f"{where} — {ref} does not expand to its weights: {e}") from None
    tolerance = 1e-12 if model.dtype == "float64" else 1e-5
    for name, w in model.weights.items():
        if not np.allclose(expanded[name], w, rtol=tolerance, atol=tolerance):
            hint = 'if its weights were edited: replace(model, theta={}, parametrization="")'
            raise GlassformerError(
                f"{where} — its theta does not expand to its weights: {name} differs; {hint}"
            )
    weights = {n: expanded[n].astype(w.dtype, copy=False) for n, w in model.weights.items()}
    return replace(model, weights=weights)
