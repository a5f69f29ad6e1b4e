"""Token and position embeddings as geometry: principal components, cosines, lines and circles.

e = token_embeddings(model)
e.pca.points[:, :2]        where each token is, in the plane that shows most
e.cosine                   which tokens point the same way
e.line, e.circle           do the numbers stand in a row, or around a circle?
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.backend import Array
from ..core.model import POSITIONS, Model, Scope
from ..utils.errors import GlassformerError
from ..utils.numfmt import format_percent, stable_argmax
from ..utils.results import Displayable
from .modular.fourier import spectrum
from .rank import count_for_share, finite_svd


@dataclass(frozen=True)
class PCA(Displayable):
    """Points in coordinates of falling variance."""

    points: Array  # [N,R], centred
    components: Array  # [R,D], orthonormal rows
    explained: Array  # [R], shares of the variance; they add up to 1 (or are all 0)

    def components_for(self, share: float = 0.9) -> int:
        """How many components hold so much of the variance."""
        return count_for_share(self.explained, share)


def pca(matrix: Array) -> PCA:
    """Principal components of rows [N,D], with signs that make their largest entries positive."""
    matrix = np.asarray(matrix, dtype=float)
    if matrix.ndim != 2 or not len(matrix):
        got = f"got shape {list(matrix.shape)}"
        raise GlassformerError(f"pca — expected a matrix [N,D] with N from 1, {got}")
    centred = matrix - matrix.mean(0)
    u, s, vt = finite_svd(centred, full_matrices=False)  # N R, R, R D
    sign = np.sign(vt[np.arange(len(vt)), stable_argmax(np.abs(vt))])
    sign[sign == 0] = 1
    power = s**2
    tiny = 1e-24 * float((matrix**2).sum())  # what rounding leaves of equal rows
    explained = power / power.sum() if power.sum() > tiny else np.zeros_like(power)
    return PCA(u * s * sign, vt * sign[:, None], explained)


def cosine(matrix: Array) -> Any:
    """Cosine of the angle between any two rows: [N,D] -> [N,N]; 0 for a row of zeros."""
    matrix = np.asarray(matrix, dtype=float)
    size = np.linalg.norm(matrix, axis=1, keepdims=True)
    unit = matrix / np.where(size > 0, size, 1)
    return np.clip(unit @ unit.T, -1, 1)


@dataclass(frozen=True)
class Embeddings(Displayable):
    """The rows of an embedding, with names."""

    kind: str  # tokens or positions
    names: list[str]
    vectors: Array = field(repr=False)  # [N,D]
    # rows that are 0, 1, 2, … in order; [] if there are none
    numbers: list[int] = field(default_factory=list)
    boundary: int | None = None  # positions: the first that is predicted, not given

    @property
    def pca(self) -> PCA:
        return pca(self.vectors)

    @property
    def display_pca(self) -> PCA:
        """Components of the numbers alone, where there are some, and all rows in these: what `line`
        and `circle` say of the numbers is seen there. Other tokens would turn the axes.
        """
        if len(self.numbers) < 3:
            return self.pca
        found, middle = pca(self.vectors[self.numbers]), self.vectors[self.numbers].mean(0)
        points = (np.asarray(self.vectors, dtype=float) - middle) @ found.components.T
        return PCA(points, found.components, found.explained)

    @property
    def cosine(self) -> Any:
        return cosine(self.vectors)

    @property
    def line_r2(self) -> float | None:
        """Share of the numbers' variance on a straight line n ↦ x + n·y; by chance 1/(N − 1)."""
        return line_r2(self.vectors[self.numbers]) if len(self.numbers) > 2 else None

    @property
    def best_circle(self) -> tuple[int, float] | None:
        """The frequency whose circle explains most of the numbers' variance, and how much of it."""
        if len(self.numbers) < 3:
            return None
        found = spectrum(self.vectors[self.numbers])
        return found.by_strength[0], float(found.shares[found.by_strength[0] - 1])

    def __str__(self) -> str:
        whose = " of the numbers" if len(self.numbers) > 2 else ""
        held = format_percent(sum(self.display_pca.explained[:2]))
        return f"first two components{whose} hold {held} of the variance"

    def to_json(self) -> dict[str, Any]:
        found = self.pca
        return {
            "what": self.kind, "names": self.names, "explained": found.explained.tolist(),
            "points": found.points[:, :2].tolist(), "cosine": self.cosine.tolist(),
            "line": self.line_r2, "circle": self.best_circle, "boundary": self.boundary,
        }  # fmt: skip


def line_r2(vectors: Array) -> float:
    """R² of rows [N,D] on their index, all coordinates together."""
    x = np.asarray(vectors, dtype=float)
    x, n = x - x.mean(0), np.arange(len(x)) - (len(x) - 1) / 2
    whole = (x**2).sum()
    return float(((n @ x) ** 2).sum() / (n @ n) / whole) if whole else 0.0


def token_embeddings(model: Model) -> Embeddings:
    """The token embedding. `numbers` are the tokens 0, 1, 2, … as far as there are any."""
    names = list(model.vocabulary.tokens)
    at = {name: i for i, name in enumerate(names)}
    numbers: list[int] = []
    while str(len(numbers)) in at:
        numbers.append(at[str(len(numbers))])
    return Embeddings("tokens", names, model.numpy().weights["embed.W_E"].astype(float), numbers)


def position_embeddings(model: Model, boundary: int | None = None) -> Embeddings:
    """What is added to the stream at each position. `boundary`: the first that holds an answer."""
    table = position_table(model.numpy())
    if table is None:
        nothing = f"positions={model.config.positions} adds nothing"
        raise GlassformerError(f"positions — the model has none to look at: {nothing}")
    names = [str(i) for i in range(len(table))]
    return Embeddings("positions", names, table.astype(float), boundary=boundary)


def position_table(model: Model) -> Array | None:
    """What each position adds to the stream, [T,D]; None where positions add nothing."""
    c, at = model.config, Scope(model.weights, None)
    embed = POSITIONS[c.positions].embed
    return None if embed is None else embed(c, at, np.zeros((1, c.n_ctx, c.d_model)), 0)


def before_and_after(
    before: Model, after: Model, kind: str = "tokens"
) -> tuple[Embeddings, Embeddings]:
    """The same embedding of two models, such as one that was trained and what it was at first."""
    if kind not in ("tokens", "positions"):
        raise GlassformerError(f"before_and_after — expected tokens or positions, got {kind!r}")
    look = token_embeddings if kind == "tokens" else position_embeddings
    first, second = look(before), look(after)
    if first.names != second.names:
        expected = f"expected two models with the same {kind}"
        got = f"{len(first.names)} and {len(second.names)}"
        raise GlassformerError(f"before_and_after — {expected}, got {got}")
    return first, second
