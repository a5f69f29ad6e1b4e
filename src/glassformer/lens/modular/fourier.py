"""Numbers modulo p as waves: spectra of tables over 0 … p−1, and waves in a, b and a + b.

A function of a number j below p is a sum of a constant and of cos(2πkj/p), sin(2πkj/p) for the
frequencies k = 1 … p/2. `basis` has these as orthonormal rows, so powers (squares of coefficients)
add up to the square of the whole. All of it is plain array work; `modular.take_apart` applies it to
a model.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.backend import Array
from ...utils.errors import GlassformerError
from ...utils.limits import afford
from ...utils.numfmt import ranked
from ...utils.results import Finding
from ..rank import count_for_share

KEY = 0.2  # a frequency is key if its waves are at least so large, beside the largest one's


def basis(p: int) -> tuple[Any, Any]:
    """Orthonormal waves over 0 … p−1 as rows [p,p], and their frequencies [p]: 0, 1, 1, 2, 2, …

    Each frequency has a cosine and then a sine, but for p/2 of an even p, whose sine is 0.
    """
    k = (np.arange(p) + 1) // 2
    afford(f"spectrum — {p:,} frequencies of {p:,} tokens", 8 * p * p)
    angle = 2 * np.pi * (np.outer(k, np.arange(p)) % p) / p  # p p
    odd = np.arange(p)[:, None] % 2 == 1
    rows = np.where(odd | (k == 0)[:, None], np.cos(angle), np.sin(angle))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), k


def by_frequency(power: Array, p: int) -> Any:
    """Sums over the rows of a frequency: [p,…] -> [p//2 + 1, …]."""
    k = basis(p)[1]
    out = np.zeros((p // 2 + 1, *power.shape[1:]))
    np.add.at(out, k, power)
    return out


@dataclass(frozen=True)
class Spectrum(Finding):
    """How a table over 0 … p−1 is spread over the frequencies, the constant left out."""

    shares: Array  # [p//2], of frequency 1 first; they add up to 1 (or are all 0)
    constant: float  # the constant's share of the whole power

    @property
    def order(self) -> list[int]:
        """All frequencies, the strongest first."""
        return [int(i) + 1 for i in ranked(self.shares)]

    @property
    def gini(self) -> float:
        """Of the waves' sizes: 0 if all frequencies are equally strong, near 1 if few are alone."""
        return gini(np.sqrt(self.shares))

    def share(self, frequencies: list[int]) -> float:
        return float(sum(self.shares[k - 1] for k in frequencies))

    def needed(self, share: float = 0.9) -> int:
        """How many frequencies it takes to hold so much of the power."""
        return count_for_share(np.sort(self.shares)[::-1], share)

    def key(self, threshold: float = KEY) -> list[int]:
        """Frequencies whose waves (roots of power) are `threshold` times the largest or more."""
        size = np.sqrt(self.shares)
        large = (size >= threshold * size.max() * (1 - 1e-9)) & (size > 0)
        return [int(i) + 1 for i in np.nonzero(large)[0]]

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"gini": self.gini, "needed_for_90_percent": self.needed()}


def spectrum(table: Array) -> Spectrum:
    """Of a table [p,…], such as the embedding of the p numbers."""
    p = len(table)
    if p < 2:
        raise GlassformerError(f"spectrum — expected a table of at least 2 numbers, got {p}")
    waves = basis(p)[0] @ np.asarray(table, dtype=float).reshape(p, -1)  # p D
    power = by_frequency((waves**2).sum(1), p)
    whole, rest = power.sum(), power[1:].sum()
    tiny = 1e-24 * max(whole, 1e-300)  # what rounding leaves of a constant is no wave
    shares = power[1:] / rest if rest > tiny else np.zeros(p // 2)
    return Spectrum(shares, float(power[0] / whole) if whole else 0.0)


def gini(x: Array) -> float:
    """The Gini coefficient of numbers from 0: half their mean difference over their mean."""
    x, n = np.sort(np.asarray(x, dtype=float).ravel()), np.size(x)
    return float(((2 * np.arange(1, n + 1) - n - 1) * x).sum() / (n * x.sum())) if x.sum() else 0.0


def plane(table: Array) -> Any:
    """Power of a table [p,p,…] by (frequency in a, frequency in b): [n,n,…], n = p//2 + 1."""
    p = len(table)
    rows = basis(p)[0]
    waves = np.tensordot(rows, np.asarray(table, dtype=float), (1, 0))  # p b …
    waves = np.moveaxis(np.tensordot(rows, waves, (1, 1)), 0, 1)  # p p …
    power = by_frequency(waves**2, p)
    return np.moveaxis(by_frequency(np.moveaxis(power, 1, 0), p), 1, 0)


def single_frequency(activations: Array) -> Any:
    """Share of each neuron's variance, over all pairs, that polynomials of degree 2 in one
    frequency explain.

    activations [p,p,F] -> [p//2, F]. Such a polynomial is made of cos wa, sin wa, cos wb, sin wb
    and the four products of one in a and one in b. Neurons that never change have shares of 0.
    """
    power = plane(activations)  # n n F
    varies = power.sum((0, 1)) - power[0, 0]  # F
    diagonal = np.einsum("kkf->kf", power)[1:]
    explained = power[0, 1:] + power[1:, 0] + diagonal  # p//2 F
    alive = varies > 1e-20 * np.maximum(power[0, 0], 1e-300)
    return np.where(alive, explained / np.where(alive, varies, 1), 0.0)


def waves_of_result(table: Array, result: Array, frequencies: list[int]) -> Any:
    """The part of a table [p,p,V] that is waves of result(a,b), of these frequencies: [p,p,V].

    `result` [p,p] is a + b or a − b modulo p: each value has p pairs, so projecting is averaging
    over them first.
    """
    p = len(table)
    rows, k = basis(p)
    kept = rows[np.isin(k, frequencies)]  # m p
    return (kept.T @ (kept @ means_by_result(table, result)))[result]


def means_by_result(table: Array, result: Array) -> Any:
    """table [p,p,V] -> [p,V]: the mean over the pairs with each result."""
    p = len(table)
    order = np.argsort(result.ravel(), kind="stable")
    return table.reshape(p * p, -1)[order].reshape(p, p, -1).mean(1)


def cosines(table: Array, result: Array) -> Any:
    """Least-squares strengths [p//2 + 1] of cos w(result − c) in a table [p,p,p] over (a, b, c)."""
    p = len(table)
    means, n = means_by_result(table, result), np.arange(p)  # p p
    by_distance = np.array([means[n, (n - d) % p].mean() for d in n])  # result − c = d
    k = np.arange(p // 2 + 1)
    waves = np.cos(2 * np.pi * (np.outer(k, n) % p) / p)
    return waves @ by_distance / (waves**2).sum(1)


def sum_of_cosines(strengths: Array, result: Array, frequencies: list[int]) -> Any:
    """The table [p,p,p] that these cosines of result − c make."""
    p = len(result)
    d, by_distance = np.arange(p), np.zeros(p)
    for k in frequencies:
        by_distance = by_distance + strengths[k] * np.cos(2 * np.pi * (k * d % p) / p)
    return by_distance[(result[..., None] - d) % p]
