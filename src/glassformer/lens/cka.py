"""Linear CKA: a similarity of activations that is independent of basis and width.

CKA (Kornblith et al., 2019) is 1 if one array is a scaled rotation of the other and 0 if they have
nothing linear in common. This is the debiased version, with Song et al.'s estimator of HSIC: plain
CKA nears 1 for any two arrays with more columns than rows. It may be slightly below 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.backend import Array
from ..core.hooks import check_hook_names, hook_names, record
from ..core.model import Model
from ..utils.errors import GlassformerError
from ..utils.numfmt import stable_argmax
from ..utils.results import Result

STREAM_HOOKS = (
    "hook_resid_pre", "hook_attn_out", "hook_resid_mid", "hook_mlp_out", "hook_resid_post",
)  # fmt: skip
MIN_INPUTS = 4  # minimum number of inputs of the debiased estimator


@dataclass(frozen=True, eq=False)
class Similarity(Result):
    """Linear CKA of each selected activation of a with each selected activation of b."""

    extra_json_fields = ("best",)

    names: tuple[list[str], list[str]]
    values: Array  # [names of a, names of b]; NaN for a constant activation

    @property
    def best(self) -> list[tuple[str, str, float]]:
        """For each activation of a, the most similar activation of b and its CKA."""
        values = np.nan_to_num(self.values, nan=-np.inf)
        best = zip(self.names[0], stable_argmax(values), values.max(1), strict=True)
        return [(x, self.names[1][j], float(s)) for x, j, s in best if np.isfinite(s)]

    @property
    def matching_names(self) -> dict[str, float]:
        """CKA of activations with the same name in both models."""
        a, b = self.names
        return {x: float(self.values[i, b.index(x)]) for i, x in enumerate(a) if x in b}


def similarity(
    a: Model, b: Model, tokens: Array, mask: Array | None = None, names: Sequence[str] = ()
) -> Similarity:
    """Compare activations of two models on tokens [B,T] at the positions in `mask` [B,T]."""
    mask = np.ones(np.shape(tokens), bool) if mask is None else mask
    activations = []
    for model in (m.numpy() for m in (a, b)):
        chosen = list(names) or [n for n in hook_names(model) if n.endswith(STREAM_HOOKS)]
        if not chosen:
            raise GlassformerError("CKA: expected models with layers, got one without")
        check_hook_names(model, chosen)
        cache = record(model, tokens)[1]
        activations.append({n: cache[n][mask].reshape(int(mask.sum()), -1) for n in chosen})
    values = [[cka(x, y) for y in activations[1].values()] for x in activations[0].values()]
    return Similarity(([*activations[0]], [*activations[1]]), np.array(values))


def cka(x: Any, y: Any) -> float:
    """Return the debiased linear CKA of x [n,p] and y [n,q]; NaN if x or y is constant."""
    if len(x) != len(y) or len(x) < MIN_INPUTS:
        expected = f"two arrays about the same {MIN_INPUTS} or more inputs"
        raise GlassformerError(f"CKA: expected {expected}, got {len(x):,} and {len(y):,}")
    x, y = _center_and_normalize(x), _center_and_normalize(y)
    variance = _hsic(x, x) * _hsic(y, y)
    return float(_hsic(x, y) / np.sqrt(variance)) if variance > 0 else float("nan")


def _center_and_normalize(x: Any) -> Any:
    """Center an array and scale it to norm 1, so that sums of squares stay precise."""
    x = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    centered = x - x.mean(0)
    size = np.linalg.norm(centered)
    rounding = 1e-12 * np.linalg.norm(x)
    return centered / size if size > rounding else np.zeros_like(x)


def _hsic(x: Any, y: Any) -> float:
    """Return n(n−3) times Song et al.'s unbiased estimate of HSIC, without [n,n] matrices."""
    n = len(x)
    k, l = (x * x).sum(1), (y * y).sum(1)  # noqa: E741 - diagonals of K = xxᵀ and L = yyᵀ
    K1, L1 = x @ x.sum(0) - k, y @ y.sum(0) - l  # row sums without the diagonals
    both = ((x.T @ y) ** 2).sum() - k @ l
    return float(both + K1.sum() * L1.sum() / (n - 1) / (n - 2) - 2 / (n - 2) * (K1 @ L1))
