"""Weight matrices with names for their axes, to be listed and drawn."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..core.backend import Array
from ..core.components import head_name
from ..core.model import Model
from ..utils.errors import GlassformerError, did_you_mean, short_repr
from ..utils.results import Displayable, Result
from .rank import weight_matrices

# Last part of an array's name -> the names of its rows and columns.
AXES = {
    "W_E": ("token", "stream"), "W_pos": ("position", "stream"), "W_U": ("stream", "token"),
    "W_Q": ("stream", "query"), "W_K": ("stream", "key"), "W_V": ("stream", "value"),
    "W_O": ("value", "stream"), "W_in": ("stream", "neuron"), "W_gate": ("stream", "neuron"),
    "W_out": ("neuron", "stream"),
}  # fmt: skip
HEAD_AXES = ("query", "key", "value")


@dataclass(frozen=True)
class MatrixAxis(Displayable):
    """The rows or columns of a matrix: what they are, and ranges of them with names."""

    name: str
    spans: list[tuple[int, int, str]]  # (start, stop, label), such as slots or heads


@dataclass(frozen=True, eq=False)
class WeightMatrix(Result):
    """A weight matrix; the heads of a layer are side by side."""

    extra_json_fields = ("shape", "nonzero", "largest", "norm")
    name: str
    values: Array = field(repr=False)  # [M,N]
    axes: tuple[MatrixAxis, MatrixAxis] = field(repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.values.shape
        return rows, columns

    @property
    def nonzero(self) -> int:
        return int((self.values != 0).sum())

    @property
    def largest(self) -> float:
        """The largest absolute value."""
        return float(np.abs(self.values).max())

    @property
    def norm(self) -> float:
        """The root of the sum of squares."""
        return float(np.sqrt(np.square(self.values.astype(np.float64)).sum()))

    def __str__(self) -> str:
        m, n = self.shape
        entries = f"{self.nonzero:,} of {self.values.size:,} entries nonzero"
        size = f"largest {self.largest:.3g} in absolute value, norm {self.norm:.3g}"
        return f"{self.name} {m}×{n}: {entries}, {size}"


def named_matrices(model: Model, names: Sequence[str] = ()) -> list[WeightMatrix]:
    """Return the weight matrices with these names, or all.

    Raises:
        GlassformerError: No matrix has a name. Its code is `not_found`.
    """
    matrices = weight_matrices(model)
    for name in names:
        if name not in matrices:
            hint = did_you_mean(str(name), matrices, 1, 0.6, "expected one of")
            raise GlassformerError(f"matrix {short_repr(name)}: {hint}", code="not_found")
    return [
        WeightMatrix(name, matrices[name], _axes(model, name, matrices[name].shape))
        for name in names or matrices
    ]


def _axes(model: Model, name: str, shape: Sequence[int]) -> tuple[MatrixAxis, MatrixAxis]:
    rows, columns = AXES.get(name.rpartition(".")[2], ("row", "column"))
    return _axis(model, name, rows, shape[0]), _axis(model, name, columns, shape[1])


def _axis(model: Model, name: str, kind: str, n: int) -> MatrixAxis:
    c, labels = model.config, {"token": model.vocabulary.tokens, "position": range(n)}
    if kind == "stream":
        slots = [(a, b, slot) for slot, (a, b) in model.labels.slots.items() if b > a]
        return MatrixAxis(kind, sorted(slots))
    if kind in HEAD_AXES and c.n_heads > 1:
        layer, k = int(name.split(".")[1]), c.d_head
        heads = [(h * k, h * k + k, head_name(layer, h)) for h in range(c.n_heads)]
        return MatrixAxis(kind, heads)
    return MatrixAxis(
        kind, [(i, i + 1, str(label)) for i, label in enumerate(labels.get(kind, ()))]
    )
