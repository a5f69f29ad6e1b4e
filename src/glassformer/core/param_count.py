"""Parameter counts.

A model with a parametrization is *made from* theta, the constants that the parametrization declares
and the floats of the config in use (eps, scale, rotary base, ALiBi slope). Any other model is made
from its weights and these floats. 0 and ±1, token and position numbers, the radix and the digit
count are free. The formula of a parametrization is not counted.

The bit count is the total length of these numbers. Each number is written exactly and as short as
possible as m·2^e or m·10^e with integers m and e. It takes one bit for the base, one for each sign,
and the binary digits of |m| and |e|. So 0 takes 3 bits, ±1 takes 4, 0.1 takes 5, 22 takes 8 and a
random float64 about 60. A notation is exact if the nearest float of the model's type is the number.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..registry import find, ref_head
from ..utils.results import Result
from . import backend as arrays
from .checkpoint import check_theta
from .model import Model, Weights

EMBEDDING_ARRAYS = ("embed.W_E", "pos_embed.W_pos", "unembed.W_U")
NORM_NAMES = ("ln1", "ln2", "ln_final", "q_norm", "k_norm")
COMPONENT_KINDS = ("embeddings", "attention", "MLP", "norms")
EMBEDDING_ROWS = {
    "embed": "token embedding", "pos_embed": "position embedding", "unembed": "unembedding",
}  # fmt: skip


@dataclass(frozen=True)
class ParameterCount(Result):
    """Parameter counts of one model, by several conventions."""

    extra_json_fields = ("non_embedding", "kinds")
    total: int  # entries of all arrays; a tied unembedding counts once
    nonzero: int  # entries that are not 0
    unique: int  # entries of theta, or of the weights without a parametrization
    distinct: int  # different values among the entries
    strict: int  # distinct numbers other than 0 and ±1 that the model is made from
    bits: int  # length of the numbers that the model is made from
    embedding: int  # entries of the token, position and output embeddings
    nonzero_embedding: int
    # entries as the booklet counts: without gains and biases of norms, and without an unembedding
    # whose entries are those of the token embedding
    booklet: int
    arrays: dict[str, int]  # entries by array
    nonzero_arrays: dict[str, int]
    # entries by component, such as "layer 0", and by kind, one of COMPONENT_KINDS
    components: dict[str, dict[str, int]]

    @property
    def kinds(self) -> dict[str, int]:
        """Entries by kind of component: embeddings, attention, MLP, norms."""
        rows = self.components.values()
        return {kind: sum(row.get(kind, 0) for row in rows) for kind in COMPONENT_KINDS}

    @property
    def non_embedding(self) -> int:
        return self.total - self.embedding


def count(model: Model) -> ParameterCount:
    """Count the parameters of a model.

    Raises:
        GlassformerError: The model's theta does not produce its weights.

    Example:
        >>> import glassformer as gf
        >>> gf.count("min:vocab=10").total
        66
    """
    check_theta("model", model)
    sizes = {n: int(np.prod(w.shape)) for n, w in model.weights.items()}
    nonzero = {n: int((w != 0).sum()) for n, w in model.weights.items()}
    made_from = _concatenate(model.theta if model.parametrization else model.weights)
    numbers, constants = np.unique(made_from), _declared_constants(model)
    return ParameterCount(
        total=sum(sizes.values()),
        nonzero=sum(nonzero.values()),
        unique=made_from.size,
        distinct=len(np.unique(_concatenate(model.weights))),
        strict=len(set(numbers[~np.isin(np.abs(numbers), (0, 1))].tolist()) | constants),
        bits=_total_bits(made_from) + sum(map(bits_of, constants)),
        embedding=sum(sizes.get(name, 0) for name in EMBEDDING_ARRAYS),
        nonzero_embedding=sum(nonzero.get(name, 0) for name in EMBEDDING_ARRAYS),
        booklet=sum(n for name, n in sizes.items() if _counts_in_booklet(model, name)),
        arrays=sizes,
        nonzero_arrays=nonzero,
        components=_count_by_component(sizes),
    )


def _count_by_component(sizes: Mapping[str, int]) -> dict[str, dict[str, int]]:
    components: dict[str, dict[str, int]] = {}
    for name, size in sizes.items():
        first, *rest = name.split(".")
        row, kind = EMBEDDING_ROWS.get(first, "final norm"), "embeddings"
        if first == "blocks":
            row, kind = f"layer {rest[0]}", "attention" if rest[1] == "attn" else "MLP"
        if name.split(".")[-2] in NORM_NAMES:
            kind = "norms"
        kinds = components.setdefault(row, {})
        kinds[kind] = kinds.get(kind, 0) + size
    return components


def _counts_in_booklet(model: Model, name: str) -> bool:
    """Return whether the booklet's Figure 1.4 counts an array.

    It compares the embeddings by value, so equal ones count once even if they are two arrays.
    """
    if name == "unembed.W_U":
        W_E, W_U = (arrays.to_numpy(model.weights[n]) for n in ("embed.W_E", name))
        return not np.array_equal(W_E, W_U.T)
    return name.rsplit(".", 2)[-2] not in NORM_NAMES


def _concatenate(weights: Weights) -> Any:
    """Concatenate the entries of all arrays into one vector."""
    every = [arrays.to_numpy(w).ravel() for w in weights.values()]
    return np.concatenate(every or [np.zeros(0)])


def _declared_constants(model: Model) -> set[float]:
    """Return the parametrization's constants and the config's used floats, except 0 and ±1."""
    c = model.config
    used = {c.scale}
    if model.parametrization:
        used |= set(find("parametrization", ref_head(model.parametrization)).build.constants)  # type: ignore[attr-defined]
    if c.norm != "none":
        used.add(c.eps)
    if c.positions in ("rotary", "sinusoidal"):
        used.add(c.base)
    if c.positions == "alibi":
        used.add(c.slope)
    return {x for x in used if x not in (0, 1, -1)}


def bits_of(x: Any) -> int:
    """Return the number of bits of a float, as defined in the module docstring."""
    if not math.isfinite(x):
        return 8 * np.dtype(type(x)).itemsize
    m, scale = float(x).as_integer_ratio()
    zeros = (m & -m).bit_length() - 1 if m else 0
    # the shortest repr of x, parsed by hand since decimal.Decimal is too slow for large arrays
    mantissa, _, exponent = (repr(float(x)) if isinstance(x, float) else str(x)).partition("e")
    whole, _, rest = mantissa.lstrip("-").partition(".")
    digits = (whole + rest).rstrip("0")
    ten = int(exponent or 0) + len(whole) - len(digits) if m else 0
    as_decimal = int(digits or "0").bit_length() + ten.bit_length()
    as_dyadic = (abs(m) >> zeros).bit_length() + (zeros - scale.bit_length() + 1).bit_length()
    return 3 + min(as_decimal, as_dyadic)


def _total_bits(numbers: Any) -> int:
    # the sign does not change the number of bits
    values, times = np.unique(np.abs(numbers), return_counts=True)
    as_floats = values.tolist() if values.dtype == np.float64 else values
    return sum(bits_of(x) * k for x, k in zip(as_floats, times.tolist(), strict=True))


COUNT_NAMES = [f.name for f in fields(ParameterCount) if f.type in (int, "int")]
