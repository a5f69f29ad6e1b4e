"""How many parameters, by each way of counting.

A model that a blueprint made from a few numbers (theta) is counted as *made from* theta, the
constants that the blueprint declares and the floats of the config that it uses (eps, scale, rotary
base, ALiBi slope). Any other model is made from its weights and these floats. Free are 0 and ±1,
counting (the number of a token or position), the radix and the digit count. Blueprints say *which*
formula makes the weights; formulas are not counted, by any of these ways.

Bits: what it takes to write down all that the model is made from, number by number, each exactly
and as briefly as possible as m·2^e or as m·10^e with whole m and e: one bit to say which, one for
each sign, and the binary digits of |m| and |e|. So 0 takes 3 bits, ±1 4, 0.1 and 22 take 5 and 8,
and a float64 without a pattern about 60. Exactly means that the float of the model's type nearest
to what is written is the number.
"""

import math
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


@dataclass(frozen=True)
class ParameterCount(Result):
    """Ways to count the same weights."""

    also = ("non_embedding",)
    total: int  # entries of all arrays; a tied head counts once
    nonzero: int  # of these, not 0
    unique: int  # numbers that the blueprint makes the weights from; without one, all of them
    distinct: int  # different values among the entries
    strict: int  # distinct numbers other than 0 and ±1 that it is made from: see above
    bits: int  # to write down what it is made from: see above
    embedding: int  # entries of the token, position and output embeddings
    nonzero_embedding: int
    booklet: int  # as the booklet counts: gains and biases of norms are left out
    arrays: dict[str, int]  # entries by array
    nonzero_arrays: dict[str, int]

    @property
    def non_embedding(self) -> int:
        return self.total - self.embedding


def count(model: Model) -> ParameterCount:
    """Count a model's parameters. An error if its theta does not make its weights."""
    check_theta("model", model)
    size = {n: int(np.prod(w.shape)) for n, w in model.weights.items()}
    used = {n: int((w != 0).sum()) for n, w in model.weights.items()}
    made_from = _concatenate(model.theta if model.blueprint else model.weights)
    numbers, beside = np.unique(made_from), _declared_constants(model)
    return ParameterCount(
        total=sum(size.values()),
        nonzero=sum(used.values()),
        unique=made_from.size,
        distinct=len(np.unique(_concatenate(model.weights))),
        strict=len(set(numbers[~np.isin(np.abs(numbers), (0, 1))].tolist()) | beside),
        bits=_total_bits(made_from) + sum(map(bits_of, beside)),
        embedding=sum(size.get(name, 0) for name in EMBEDDING_ARRAYS),
        nonzero_embedding=sum(used.get(name, 0) for name in EMBEDDING_ARRAYS),
        booklet=sum(n for name, n in size.items() if name.rsplit(".", 2)[-2] not in NORM_NAMES),
        arrays=size,
        nonzero_arrays=used,
    )


def _concatenate(weights: Weights) -> Any:
    """The numbers of all arrays, one after the other."""
    every = [arrays.to_numpy(w).ravel() for w in weights.values()]
    return np.concatenate(every or [np.zeros(0)])


def _declared_constants(model: Model) -> set[float]:
    """The blueprint's constants and those floats of the config that it uses; not 0 and ±1."""
    c = model.config
    used = {c.scale}
    if model.blueprint:
        used |= set(find("blueprint", ref_head(model.blueprint)).build.constants)  # type: ignore[attr-defined]
    if c.norm != "none":
        used.add(c.eps)
    if c.positions in ("rotary", "sinusoidal"):
        used.add(c.base)
    if c.positions == "alibi":
        used.add(c.slope)
    return {x for x in used if x not in (0, 1, -1)}


def bits_of(x: Any) -> int:
    """Bits to write down a float: see the top of this file."""
    if not math.isfinite(x):
        return 8 * np.dtype(type(x)).itemsize
    m, scale = float(x).as_integer_ratio()
    zeros = (m & -m).bit_length() - 1 if m else 0
    # The shortest that reads back as x in its type; by hand, as models have millions of numbers.
    mantissa, _, exponent = (repr(float(x)) if isinstance(x, float) else str(x)).partition("e")
    whole, _, rest = mantissa.lstrip("-").partition(".")
    digits = (whole + rest).rstrip("0")
    ten = int(exponent or 0) + len(whole) - len(digits) if m else 0
    as_decimal = int(digits or "0").bit_length() + ten.bit_length()
    as_dyadic = (abs(m) >> zeros).bit_length() + (zeros - scale.bit_length() + 1).bit_length()
    return 3 + min(as_decimal, as_dyadic)


def _total_bits(numbers: Any) -> int:
    # A sign takes one bit, whichever it is.
    values, times = np.unique(np.abs(numbers), return_counts=True)
    as_floats = values.tolist() if values.dtype == np.float64 else values
    return sum(bits_of(x) * k for x, k in zip(as_floats, times.tolist(), strict=True))


COUNT_NAMES = [f.name for f in fields(ParameterCount) if f.type in (int, "int")]
