"""Score claimed edges and directions against the ground truth."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.backend import Array
from ..core.components import normalize_name
from ..utils.errors import GlassformerError, did_you_mean, value_error
from ..utils.results import Result
from .edges import GroundTruth


@dataclass(frozen=True)
class EdgeScores(Result):
    """Precision and recall of claimed edges, with the missed and wrong edges."""

    claimed: int
    present: int
    right: int
    precision: float
    recall: float
    missed: list[tuple[str, ...]]
    wrong: list[tuple[str, ...]]


def score_edges(
    truth: GroundTruth, claimed: Iterable[Sequence[str]], *, all_edges: bool = False
) -> EdgeScores:
    """Score claimed edges against the ground truth.

    Args:
        truth: ground truth of the model.
        claimed: edges (writer, reader), for which ports are ignored, or (writer, reader, port).
        all_edges: count all edges of the ground truth as present, not only those that matter.

    Raises:
        GlassformerError: the claims mix both kinds of edges, or name a part that the model does
            not have.
    """
    claims = {(*map(normalize_name, e[:2]), *e[2:]) for e in claimed}
    sizes = {len(e) for e in claims}
    if not sizes <= {2} and not sizes <= {3}:
        raise GlassformerError(
            "edges: expected only (writer, reader), or only (writer, reader, port), got both"
            if sizes <= {2, 3}
            else f"edges: expected 2 or 3 names in an edge, got {sorted(sizes)}"
        )
    width = max(sizes, default=3)
    for part in sorted({p for e in claims for p in e[:2]} - set(truth.parts)):
        raise GlassformerError(f"edge: no part {part!r}; {did_you_mean(part, truth.parts)}")
    present = {(e.writer, e.reader, e.port)[:width] for e in truth.edges if all_edges or e.matters}
    right = claims & present
    return EdgeScores(
        len(claims),
        len(present),
        len(right),
        len(right) / len(claims) if claims else 1.0,
        len(right) / len(present) if present else 1.0,
        sorted(present - claims),
        sorted(claims - present),
    )


def subspace_overlap(claimed: Array, actual: Array) -> tuple[float, float]:
    """Return the share of the claimed subspace inside the actual one, and the converse share.

    A share is the sum of squared cosines of the principal angles, divided by the dimension of the
    first subspace. Equal subspaces give (1, 1).

    Args:
        claimed: directions [n,D] that span the claimed subspace.
        actual: directions [m,D] that span the actual subspace.

    Raises:
        GlassformerError: a number is not finite, or the two arrays differ in d_model.
    """
    A, B = (_orthonormal(x) for x in (claimed, actual))
    if A.shape[1] != B.shape[1]:
        raise value_error("directions:", f"d_model {B.shape[1]}", A.shape[1])
    common = float(np.square(A @ B.T).sum())
    return common / max(len(A), 1), common / max(len(B), 1)


def _orthonormal(x: Array) -> Any:
    x = np.atleast_2d(np.asarray(x, dtype=float))
    if x.ndim != 2 or not np.isfinite(x).all():
        raise value_error("directions:", "finite numbers [n,D]", x)
    _, s, Vt = np.linalg.svd(x, full_matrices=False)
    return Vt[s > 1e-9 * max(s.max(initial=0.0), 1e-300)]
