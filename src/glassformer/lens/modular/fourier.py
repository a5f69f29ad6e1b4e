"""Numbers modulo p as waves: spectra of tables over 0 … p−1, and waves in a, b and a + b.

A function of a number j below p is a sum of a constant and of cos(2πkj/p), sin(2πkj/p) for the
frequencies k = 1 … p/2. NumPy's FFT gives them, and powers (squares of coefficients) are scaled to
add up to the square of the whole. `modular.take_apart` applies it to a model.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.backend import Array
from ...utils.errors import GlassformerError
from ...utils.numfmt import stable_argsort
from ...utils.results import Result
from ..rank import count_for_share

KEY_THRESHOLD = (
    0.2  # a frequency is key if its waves are at least so large, beside the largest one's
)


def fft_multiplicity(p: int) -> Any:
    """Return the number of full-transform terms behind each real frequency 0 … p//2: 1 or 2."""
    k = np.arange(p // 2 + 1)
    return np.where((k == 0) | (2 * k == p), 1, 2)


@dataclass(frozen=True)
class Spectrum(Result):
    """How a table over 0 … p−1 is spread over the frequencies, the constant left out."""

    shares: Array  # [p//2], of frequency 1 first; they add up to 1 (or are all 0)
    constant: float  # the constant's share of the whole power

    @property
    def by_strength(self) -> list[int]:
        """All frequencies, the strongest first."""
        return [int(i) + 1 for i in stable_argsort(self.shares)]

    @property
    def gini(self) -> float:
        """Of the waves' sizes: 0 if all frequencies are equally strong, near 1 if few are alone."""
        return gini(np.sqrt(self.shares))

    def power_share(self, frequencies: list[int]) -> float:
        return float(sum(self.shares[k - 1] for k in frequencies))

    def frequencies_for(self, share: float = 0.9) -> int:
        """How many frequencies it takes to hold so much of the power."""
        return count_for_share(np.sort(self.shares)[::-1], share)

    def key_frequencies(self, threshold: float = KEY_THRESHOLD) -> list[int]:
        """Frequencies whose waves (roots of power) are `threshold` times the largest or more."""
        size = np.sqrt(self.shares)
        large = (size >= threshold * size.max() * (1 - 1e-9)) & (size > 0)
        return [int(i) + 1 for i in np.nonzero(large)[0]]

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {
            "gini": self.gini,
            "needed_for_90_percent": self.frequencies_for(),
        }


def spectrum(table: Array) -> Spectrum:
    """Of a table [p,…], such as the embedding of the p numbers."""
    p = len(table)
    if p < 2:
        raise GlassformerError(f"spectrum — expected a table of at least 2 numbers, got {p}")
    waves = np.fft.rfft(np.asarray(table, dtype=float).reshape(p, -1), axis=0)  # n D
    power = (np.abs(waves) ** 2).sum(1) * fft_multiplicity(p) / p
    whole, rest = power.sum(), power[1:].sum()
    tiny = 1e-24 * max(whole, 1e-300)  # what rounding leaves of a constant is no wave
    shares = power[1:] / rest if rest > tiny else np.zeros(p // 2)
    return Spectrum(shares, float(power[0] / whole) if whole else 0.0)


def gini(x: Array) -> float:
    """The Gini coefficient of numbers from 0: half their mean difference over their mean."""
    x, n = np.sort(np.asarray(x, dtype=float).ravel()), np.size(x)
    return float(((2 * np.arange(1, n + 1) - n - 1) * x).sum() / (n * x.sum())) if x.sum() else 0.0


def power_plane(table: Array) -> Any:
    """Power of a table [p,p,…] by (frequency in a, frequency in b): [n,n,…], n = p//2 + 1."""
    p = len(table)
    power = np.abs(np.fft.rfft2(np.asarray(table, dtype=float), axes=(0, 1))) ** 2  # p n …
    power = (power.swapaxes(1, -1) * (fft_multiplicity(p) / p**2)).swapaxes(1, -1)
    power[1 : (p + 1) // 2] += power[: p // 2 : -1]  # in a, frequency p - k is k
    return power[: p // 2 + 1]


def single_frequency_shares(activations: Array) -> Any:
    """Share of each neuron's variance, over all pairs, that polynomials of degree 2 in one
    frequency explain.

    activations [p,p,F] -> [p//2, F]. Such a polynomial is made of cos wa, sin wa, cos wb, sin wb
    and the four products of one in a and one in b. Neurons that never change have shares of 0.
    """
    power = power_plane(activations)  # n n F
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
    waves = np.fft.rfft(means_by_result(table, result), axis=0)  # n V
    waves[~np.isin(np.arange(len(waves)), frequencies)] = 0
    return np.fft.irfft(waves, len(table), axis=0)[result]


def means_by_result(table: Array, result: Array) -> Any:
    """table [p,p,V] -> [p,V]: the mean over the pairs with each result."""
    p = len(table)
    order = np.argsort(result.ravel(), kind="stable")
    return table.reshape(p * p, -1)[order].reshape(p, p, -1).mean(1)


def cosine_strengths(table: Array, result: Array) -> Any:
    """Least-squares strengths [p//2 + 1] of cos w(result − c) in a table [p,p,p] over (a, b, c)."""
    p = len(table)
    means, n = means_by_result(table, result), np.arange(p)  # p p
    by_distance = np.array([means[n, (n - d) % p].mean() for d in n])  # result − c = d
    return np.fft.rfft(by_distance).real * fft_multiplicity(p) / p


def sum_of_cosines(strengths: Array, result: Array, frequencies: list[int]) -> Any:
    """The table [p,p,p] that these cosines of result − c make."""
    p = len(result)
    chosen = np.isin(np.arange(p // 2 + 1), frequencies)
    by_distance = np.fft.irfft(np.where(chosen, strengths * p / fft_multiplicity(p), 0), p)
    return by_distance[(result[..., None] - np.arange(p)) % p]
