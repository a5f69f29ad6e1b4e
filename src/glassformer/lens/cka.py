"""Is what flows in two models alike? Linear CKA, which does not mind another basis or size.

    similarity(a, b, tokens).best()          for each activation of a, what in b is most like it
    cka(x, y)                                of any two arrays [n,…] about the same n inputs

CKA (Kornblith et al., 2019) is 1 if one is a rotation of the other, scaled, and 0 if nothing linear
is in common. This is the debiased kind (with Song et al.'s estimator of HSIC): the plain one nears
1 for any two arrays that have more columns than rows. So it may come out a little below 0.
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
    "hook_resid_pre",
    "hook_attn_out",
    "hook_resid_mid",
    "hook_mlp_out",
    "hook_resid_post",
)
MIN_INPUTS = 4  # inputs, or there is no debiased estimate


@dataclass(frozen=True, eq=False)
class Similarity(Result):
    """Linear CKA of every chosen activation of a with every one of b."""

    also = ("best",)

    names: tuple[list[str], list[str]]
    values: Array  # [names of a, names of b]; NaN where one does not vary

    @property
    def best(self) -> list[tuple[str, str, float]]:
        """For each activation of a, the one of b that is most like it."""
        known = np.nan_to_num(self.values, nan=-np.inf)
        found = zip(self.names[0], stable_argmax(known), known.max(1), strict=True)
        return [(x, self.names[1][j], float(s)) for x, j, s in found if np.isfinite(s)]

    @property
    def matching_names(self) -> dict[str, float]:
        """Of the activations that have one name in both."""
        a, b = self.names
        return {x: float(self.values[i, b.index(x)]) for i, x in enumerate(a) if x in b}


def similarity(
    a: Model, b: Model, tokens: Array, mask: Array | None = None, names: Sequence[str] = ()
) -> Similarity:
    """On the same tokens [B,T], at the positions `where` (bool [B,T]; all of them by default).

    `names`: of activations; by default the stream between the parts, and what each writes to it.
    """
    mask = np.ones(np.shape(tokens), bool) if mask is None else mask
    found = []
    for model in (m.numpy() for m in (a, b)):
        chosen = list(names) or [n for n in hook_names(model) if n.endswith(STREAM_HOOKS)]
        if not chosen:
            raise GlassformerError("CKA — a model without layers has nothing to compare")
        check_hook_names(model, chosen)
        cache = record(model, tokens)[1]
        found.append({n: cache[n][mask].reshape(int(mask.sum()), -1) for n in chosen})
    values = [[cka(x, y) for y in found[1].values()] for x in found[0].values()]
    return Similarity(([*found[0]], [*found[1]]), np.array(values))


def cka(x: Any, y: Any) -> float:
    """Debiased linear CKA of x [n,p] and y [n,q]; NaN if one does not vary."""
    if len(x) != len(y) or len(x) < MIN_INPUTS:
        got = f"got {len(x):,} and {len(y):,}"
        raise GlassformerError(
            f"CKA — expected arrays about the same inputs, {MIN_INPUTS} or more, {got}"
        )
    x, y = _center_and_normalize(x), _center_and_normalize(y)
    own = _hsic(x, x) * _hsic(y, y)
    return float(_hsic(x, y) / np.sqrt(own)) if own > 0 else float("nan")


def _center_and_normalize(x: Any) -> Any:
    """Centred, of length 1: neither changes CKA, and both keep sums of squares exact."""
    x = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    spread = x - x.mean(0)
    size = np.linalg.norm(spread)
    noise = 1e-12 * np.linalg.norm(x)  # of rounding alone: it does not vary
    return spread / size if size > noise else np.zeros_like(x)


def _hsic(x: Any, y: Any) -> float:
    """Song et al.'s unbiased estimate of HSIC, times n(n−3), from features: no [n,n] is made."""
    n = len(x)
    k, l = (x * x).sum(1), (y * y).sum(1)  # noqa: E741 - the diagonals of K = xxᵀ and L = yyᵀ …
    K1, L1 = x @ x.sum(0) - k, y @ y.sum(0) - l  # … and their rows' sums without them
    both = ((x.T @ y) ** 2).sum() - k @ l
    return float(both + K1.sum() * L1.sum() / (n - 1) / (n - 2) - 2 / (n - 2) * (K1 @ L1))
