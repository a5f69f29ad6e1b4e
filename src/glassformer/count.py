"""How many parameters, by each way of counting."""

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from . import arrays
from .model import Model


@dataclass(frozen=True)
class Count:
    """Ways to count the same weights. What each means is in the order of the fields."""

    total: int  # entries of all arrays; a tied head counts once
    nonzero: int  # of these, not 0
    unique: int  # numbers that the blueprint makes the weights from; without one, all of them
    distinct: int  # different values among the entries
    strict: int  # distinct numbers other than 0 and ±1, the config's floats among them
    embedding: int  # entries of the token, position and output embeddings
    nonzero_embedding: int
    booklet: int  # as the booklet counts: gains and biases of norms are left out
    arrays: dict[str, int]  # entries by array
    nonzero_arrays: dict[str, int]

    @property
    def non_embedding(self) -> int:
        return self.total - self.embedding

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"non_embedding": self.non_embedding}


def count(model: Model) -> Count:
    """Counts a model's parameters."""
    size = {n: int(np.prod(w.shape)) for n, w in model.weights.items()}
    used = {n: int((w != 0).sum()) for n, w in model.weights.items()}
    values = _values(model.weights)
    made_from = _values(model.theta) if model.blueprint else values
    total = sum(size.values())
    return Count(
        total=total,
        nonzero=sum(used.values()),
        unique=sum(int(np.prod(t.shape)) for t in model.theta.values()) if model.blueprint else total,
        distinct=len(values),
        strict=len(set(made_from[~np.isin(np.abs(made_from), (0, 1))].tolist()) | _declared(model)),
        embedding=sum(n for name, n in size.items() if _is_embedding(name)),
        nonzero_embedding=sum(n for name, n in used.items() if _is_embedding(name)),
        booklet=sum(n for name, n in size.items() if not _is_norm(name)),
        arrays=size,
        nonzero_arrays=used,
    )


def _values(arrays_by_name: Any) -> Any:
    """The different values in arrays, sorted."""
    return np.unique(np.concatenate([arrays.numpy(w).ravel() for w in arrays_by_name.values()]))


def _declared(model: Model) -> set[float]:
    """The config's floats that this model uses, other than 0 and ±1."""
    c = model.config
    used = {c.scale}
    if c.norm != "none":
        used.add(c.eps)
    if c.positions in ("rotary", "sinusoidal"):
        used.add(c.base)
    return {x for x in used if x not in (0, 1, -1)}


def _is_embedding(name: str) -> bool:
    return name in ("embed.W_E", "pos_embed.W_pos", "unembed.W_U")


def _is_norm(name: str) -> bool:
    return name.rsplit(".", 2)[-2] in ("ln1", "ln2", "ln_final", "q_norm", "k_norm")


WAYS = [f.name for f in fields(Count) if f.type in (int, "int")]
