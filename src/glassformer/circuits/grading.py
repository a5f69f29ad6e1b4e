"""How good is what somebody claims of a model? Edges and directions against the ground truth."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.backend import Array
from ..core.components import normalize_name
from ..utils.errors import GlassformerError
from ..utils.results import Result
from .edges import GroundTruth


@dataclass(frozen=True)
class EdgeScores(Result):
    """How claimed edges compare with the truth."""

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
    """Precision and recall of claimed edges (writer, reader) or (writer, reader, port).

    What counts as present: edges that matter, i.e. move some answer's logits when cut; with
    `all_edges`, whatever can flow. Where claims name no ports, ports are not looked at.
    """
    claims = {(*map(normalize_name, e[:2]), *e[2:]) for e in claimed}
    sizes = {len(e) for e in claims}
    if not sizes <= {2} and not sizes <= {3}:
        what = "expected (writer, reader), or (writer, reader, port), and all of one kind"
        raise GlassformerError(f"edges — {what}")
    width = max(sizes, default=3)
    for part in sorted({p for e in claims for p in e[:2]} - set(truth.parts)):
        near = difflib.get_close_matches(part, truth.parts, 3, 0.4) or truth.parts[:3]
        hint = f"near: {', '.join(near)}"
        raise GlassformerError(f"edge with {part!r} — no such part of the model; {hint}")
    present = {(e.writer, e.reader, e.port)[:width] for e in truth.edges if all_edges or e.matters}
    right = claims & present
    return EdgeScores(
        len(claims), len(present), len(right), len(right) / len(claims) if claims else 1.0,
        len(right) / len(present) if present else 1.0, sorted(present - claims),
        sorted(claims - present),
    )  # fmt: skip


def subspace_overlap(claimed: Array, actual: Array) -> tuple[float, float]:
    """Directions [n,D], [m,D]: the share of the claimed space in the actual one, and the reverse.

    The mean squared cosine of the principal angles, over each space's own dimensions: (1, 1) for
    the same space.
    """
    A, B = (_orthonormal(x) for x in (claimed, actual))
    if A.shape[1] != B.shape[1]:
        what = f"expected the same d_model, got {A.shape[1]} and {B.shape[1]}"
        raise GlassformerError(f"directions — {what}")
    common = float(np.square(A @ B.T).sum())
    return common / max(len(A), 1), common / max(len(B), 1)


def _orthonormal(x: Array) -> Any:
    x = np.atleast_2d(np.asarray(x, dtype=float))
    if x.ndim != 2 or not np.isfinite(x).all():
        raise GlassformerError("directions — expected finite numbers [n,D]")
    _, s, Vt = np.linalg.svd(x, full_matrices=False)
    return Vt[s > 1e-9 * max(s.max(initial=0.0), 1e-300)]
