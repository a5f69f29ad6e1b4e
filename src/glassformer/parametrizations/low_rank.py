"""Low-rank parametrizations of all matrices, or of updates of a frozen base model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ..core import backend
from ..core.backend import Array
from ..core.checkpoint_format import read_model
from ..core.model import Model
from ..registry import Between, parametrization
from ..utils.errors import GlassformerError
from .base import Parametrization, Shapes, is_matrix, to_matrix


def _factor_shapes(name: str, shape: tuple[int, ...], rank: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the two factors of a matrix by name."""
    return {f"{name}.A": (shape[0], rank), f"{name}.B": (rank, shape[1])}


@parametrization("low-rank")
class LowRank(Parametrization):
    """Every matrix inside the blocks is a product A·B of two thin ones."""

    def __init__(self, rank: Annotated[int, Between(1, 1024)] = 4) -> None:
        self.rank = rank

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        theta: dict[str, tuple[int, ...]] = {}
        for name, shape in super().theta_shapes(shapes).items():
            thin = self._factors(name, shape)
            theta |= _factor_shapes(name, shape, self.rank) if thin else {name: shape}
        return theta

    def init_theta(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """Return the best approximation of each matrix, from its largest singular values."""
        theta: dict[str, Any] = {}
        for name, w in super().init_theta(weights, rng).items():
            if self._factors(name, w.shape):
                U, s, Vt = np.linalg.svd(w, full_matrices=False)
                root = np.sqrt(s[: self.rank])
                theta[f"{name}.A"] = U[:, : self.rank] * root
                theta[f"{name}.B"] = root[:, None] * Vt[: self.rank]
            else:
                theta[name] = w
        return theta

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        whole = {}
        for n in shapes:
            whole[n] = theta[f"{n}.A"] @ theta[f"{n}.B"] if f"{n}.A" in theta else theta[n]
        return super().expand(whole, shapes)

    def _factors(self, name: str, shape: tuple[int, ...]) -> bool:
        return is_matrix(name, shape) and self.rank * sum(shape) < shape[0] * shape[1]


@parametrization("lora")
class Lora(Parametrization):
    """A low-rank update A·B of every matrix inside the blocks of a frozen base, a checkpoint."""

    def __init__(self, base: str = "", rank: Annotated[int, Between(1, 1024)] = 2) -> None:
        if not base:
            raise GlassformerError(
                "lora — expected a base, got none. Use lora:base=FILE.safetensors"
            )
        self.rank, self.base = rank, _read_base(base)
        self.base_matrices = {
            name: to_matrix(name, w.copy()) for name, w in self.base.weights.items()
        }

    def theta_shapes(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        theta: dict[str, tuple[int, ...]] = {}
        for name, shape in super().theta_shapes(shapes).items():
            theta |= _factor_shapes(name, shape, self.rank) if is_matrix(name, shape) else {}
        return theta

    def init_theta(self, weights: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """Return random A and B = 0, which expand to the base model itself."""
        assert self.base
        model_shapes = {name: tuple(w.shape) for name, w in weights.items()}
        base_shapes = {name: tuple(w.shape) for name, w in self.base.weights.items()}
        if wrong := sorted({n for n, _ in model_shapes.items() ^ base_shapes.items()}):
            names = ", ".join(wrong[:3])
            raise GlassformerError(
                f"lora — expected a base with the model's arrays; these differ: {names}"
            )
        theta: dict[str, Any] = {}
        for name, shape in self.theta_shapes(model_shapes).items():
            is_A = name.endswith(".A")
            theta[name] = rng.normal(size=shape) / shape[0] ** 0.5 if is_A else np.zeros(shape)
        return theta

    def expand(self, theta: Mapping[str, Array], shapes: Shapes) -> dict[str, Array]:
        some = next(iter(theta.values()))
        whole = {}
        for name in shapes:
            # Adding 0 copies the array.
            change = theta[f"{name}.A"] @ theta[f"{name}.B"] if f"{name}.A" in theta else 0
            whole[name] = (
                backend.backend_for(some).as_dtype_of(some, self.base_matrices[name]) + change
            )
        return super().expand(whole, shapes)


def _read_base(path: str) -> Model:
    """Read the base model from a checkpoint."""
    try:
        return read_model(path)
    except GlassformerError as e:
        wanted = f"it must be in {Path.cwd()}, unchanged since the training"
        hint = "" if Path(path).is_absolute() or Path(path).exists() else f"; {wanted}"
        raise GlassformerError(f"lora:base={e}{hint}") from None
