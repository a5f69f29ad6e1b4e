"""Geometry of token and position embeddings: principal components, cosines, lines and circles."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.backend import Array
from ..core.model import POSITIONS, Model, Scope
from ..utils.errors import GlassformerError, value_error
from ..utils.numfmt import format_percent, stable_argmax
from ..utils.results import Displayable
from .modular.fourier import spectrum
from .rank import count_for_share, finite_svd


@dataclass(frozen=True)
class PCA(Displayable):
    """Principal component analysis: coordinates of points along axes of decreasing variance."""

    points: Array  # [N,R], centered
    components: Array  # [R,D], orthonormal rows
    explained: Array  # [R], shares of the variance; their sum is 1 (or 0 for equal points)

    def components_for(self, share: float = 0.9) -> int:
        """Return the smallest number of components that explain a share of the variance."""
        return count_for_share(self.explained, share)


def pca(matrix: Array) -> PCA:
    """Return the PCA of the rows [N,D]. The largest entry of each component is positive."""
    matrix = np.asarray(matrix, dtype=float)
    if matrix.ndim != 2 or not len(matrix):
        raise value_error("pca:", "a matrix [N,D] with at least one row", list(matrix.shape))
    u, s, vt = finite_svd(matrix - matrix.mean(0), full_matrices=False)  # N R, R, R D
    sign = np.sign(vt[np.arange(len(vt)), stable_argmax(np.abs(vt))])
    sign[sign == 0] = 1
    power = s**2
    rounding = 1e-24 * float((matrix**2).sum())
    explained = power / power.sum() if power.sum() > rounding else np.zeros_like(power)
    return PCA(u * s * sign, vt * sign[:, None], explained)


def cosine(matrix: Array) -> Any:
    """Return the cosine similarity of all pairs of rows: [N,D] -> [N,N]. Rows of zeros have 0."""
    matrix = np.asarray(matrix, dtype=float)
    size = np.linalg.norm(matrix, axis=1, keepdims=True)
    unit = matrix / np.where(size > 0, size, 1)
    return np.clip(unit @ unit.T, -1, 1)


@dataclass(frozen=True)
class Embeddings(Displayable):
    """An embedding matrix with a name for each row."""

    kind: str  # tokens or positions
    names: list[str]
    vectors: Array = field(repr=False)  # [N,D]
    numbers: list[int] = field(default_factory=list)  # indices of the tokens 0, 1, 2, …
    boundary: int | None = None  # for position embeddings: first position of the answer

    @property
    def pca(self) -> PCA:
        return pca(self.vectors)

    @property
    def display_pca(self) -> PCA:
        """PCA of all rows, fitted on the number tokens if there are any.

        Other tokens in the fit would rotate the axes away from the line or circle of the numbers.
        """
        if len(self.numbers) < 3:
            return self.pca
        numbers, mean = pca(self.vectors[self.numbers]), self.vectors[self.numbers].mean(0)
        points = (np.asarray(self.vectors, dtype=float) - mean) @ numbers.components.T
        return PCA(points, numbers.components, numbers.explained)

    @property
    def cosine(self) -> Any:
        return cosine(self.vectors)

    @property
    def line_r2(self) -> float | None:
        """R² of a linear fit of the numbers' embeddings on n; 1/(N − 1) is expected by chance."""
        return line_r2(self.vectors[self.numbers]) if len(self.numbers) > 2 else None

    @property
    def best_circle(self) -> tuple[int, float] | None:
        """The frequency that explains most of the numbers' variance, and the explained share."""
        if len(self.numbers) < 3:
            return None
        waves = spectrum(self.vectors[self.numbers])
        return waves.by_strength[0], float(waves.shares[waves.by_strength[0] - 1])

    def __str__(self) -> str:
        of_numbers = " of the numbers" if len(self.numbers) > 2 else ""
        share = format_percent(sum(self.display_pca.explained[:2]))
        return f"first two components{of_numbers} explain {share} of the variance"

    def to_json(self) -> dict[str, Any]:
        components = self.pca
        return {
            "what": self.kind, "names": self.names, "explained": components.explained.tolist(),
            "points": components.points[:, :2].tolist(), "cosine": self.cosine.tolist(),
            "line": self.line_r2, "circle": self.best_circle, "boundary": self.boundary,
        }  # fmt: skip


def line_r2(vectors: Array) -> float:
    """Return R² of a linear fit of the rows [N,D] on their index."""
    x = np.asarray(vectors, dtype=float)
    x, n = x - x.mean(0), np.arange(len(x)) - (len(x) - 1) / 2
    total = (x**2).sum()
    return float(((n @ x) ** 2).sum() / (n @ n) / total) if total else 0.0


def token_embeddings(model: Model) -> Embeddings:
    """Return the token embedding; `numbers` are the rows of the tokens 0, 1, 2, …"""
    names = list(model.vocabulary.tokens)
    indices = {name: i for i, name in enumerate(names)}
    numbers: list[int] = []
    while str(len(numbers)) in indices:
        numbers.append(indices[str(len(numbers))])
    return Embeddings("tokens", names, model.numpy().weights["embed.W_E"].astype(float), numbers)


def position_embeddings(model: Model, boundary: int | None = None) -> Embeddings:
    """Return the position embedding. `boundary` is the first position of the answer."""
    table = position_table(model.numpy())
    if table is None:
        expected = "learned or sinusoidal embeddings"
        raise GlassformerError(f"positions: expected {expected}, got {model.config.positions}")
    names = [str(i) for i in range(len(table))]
    return Embeddings("positions", names, table.astype(float), boundary=boundary)


def position_table(model: Model) -> Array | None:
    """Return the vectors added to the stream at each position, [T,D], or None without them."""
    c, embed = model.config, POSITIONS[model.config.positions].embed
    stream = np.zeros((1, c.n_ctx, c.d_model))
    return None if embed is None else embed(c, Scope(model.weights, None), stream, 0)


def before_and_after(
    before: Model, after: Model, kind: str = "tokens", boundary: int | None = None
) -> tuple[Embeddings, Embeddings]:
    """Return one kind of embedding of two models, such as before and after training.

    `boundary` is the first position of the answer, for position embeddings.
    """
    if kind not in ("tokens", "positions"):
        raise value_error("before_and_after:", "tokens or positions", kind)
    first, second = (
        token_embeddings(m) if kind == "tokens" else position_embeddings(m, boundary)
        for m in (before, after)
    )
    if first.names != second.names:
        raise value_error("before_and_after:", f"{len(first.names)} {kind}", len(second.names))
    return first, second
