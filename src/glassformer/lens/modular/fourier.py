"""Functions of numbers modulo p as waves: spectra of tables over 0 … p−1, and waves of a + b.

A function of 0 … p−1 is a constant plus cos(2πkj/p) and sin(2πkj/p) for the frequencies
k = 1 … p/2. Powers are squared coefficients, scaled to sum to the squared norm of the table.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.backend import Array
from ...utils.errors import GlassformerError
from ...utils.numfmt import stable_argsort
from ...utils.results import Result
from ..rank import count_for_share

KEY_THRESHOLD = 0.2  # minimum amplitude of a key frequency, relative to the largest amplitude


def fft_multiplicity(p: int) -> Any:
    """Return the number of terms of the full transform for each real frequency 0 … p//2: 1 or 2."""
    k = np.arange(p // 2 + 1)
    return np.where((k == 0) | (2 * k == p), 1, 2)


@dataclass(frozen=True)
class Spectrum(Result):
    """The power of a table over 0 … p−1 at each frequency, without the constant."""

    shares: Array  # [p//2], shares of frequencies 1, 2, …; their sum is 1 (0 for a constant)
    constant: float  # the constant's share of the total power

    @property
    def by_strength(self) -> list[int]:
        """All frequencies, strongest first."""
        return [int(i) + 1 for i in stable_argsort(self.shares)]

    @property
    def gini(self) -> float:
        """Gini coefficient of the amplitudes: 0 if all are equal, near 1 if few dominate."""
        return gini(np.sqrt(self.shares))

    def power_share(self, frequencies: list[int]) -> float:
        return float(sum(self.shares[k - 1] for k in frequencies))

    def frequencies_for(self, share: float = 0.9) -> int:
        """Return the smallest number of frequencies that together reach a share of the power."""
        return count_for_share(np.sort(self.shares)[::-1], share)

    def key_frequencies(self, threshold: float = KEY_THRESHOLD) -> list[int]:
        """Return the frequencies with at least `threshold` times the largest amplitude."""
        size = np.sqrt(self.shares)
        large = (size >= threshold * size.max() * (1 - 1e-9)) & (size > 0)
        return [int(i) + 1 for i in np.nonzero(large)[0]]

    def to_json(self) -> dict[str, Any]:
        extra = {"gini": self.gini, "needed_for_90_percent": self.frequencies_for()}
        return super().to_json() | extra


def spectrum(table: Array) -> Spectrum:
    """Return the spectrum of a table [p,…], such as the embedding of the p numbers."""
    p = len(table)
    if p < 2:
        raise GlassformerError(f"spectrum: expected a table of at least 2 numbers, got {p}")
    waves = np.fft.rfft(np.asarray(table, dtype=float).reshape(p, -1), axis=0)  # n D
    power = (np.abs(waves) ** 2).sum(1) * fft_multiplicity(p) / p
    total, rest = power.sum(), power[1:].sum()
    rounding = 1e-24 * max(total, 1e-300)
    shares = power[1:] / rest if rest > rounding else np.zeros(p // 2)
    return Spectrum(shares, float(power[0] / total) if total else 0.0)


def gini(x: Array) -> float:
    """Return the Gini coefficient: half the mean absolute difference divided by the mean."""
    x, n = np.sort(np.asarray(x, dtype=float).ravel()), np.size(x)
    return float(((2 * np.arange(1, n + 1) - n - 1) * x).sum() / (n * x.sum())) if x.sum() else 0.0


def power_plane(table: Array) -> Any:
    """Return the power of a table [p,p,…] by frequency in a and in b: [n,n,…] with n = p//2 + 1."""
    p = len(table)
    power = np.abs(np.fft.rfft2(np.asarray(table, dtype=float), axes=(0, 1))) ** 2  # p n …
    power = (power.swapaxes(1, -1) * (fft_multiplicity(p) / p**2)).swapaxes(1, -1)
    power[1 : (p + 1) // 2] += power[: p // 2 : -1]  # for a, frequency p − k equals frequency k
    return power[: p // 2 + 1]


def single_frequency_shares(activations: Array) -> Any:
    """Return the share of each neuron's variance explained by each frequency: [p,p,F] -> [p//2,F].

    The regressors are cos wa, sin wa, cos wb, sin wb and their four products of a wave of a and a
    wave of b. Constant neurons have shares of 0.
    """
    power = power_plane(activations)  # n n F
    varies = power.sum((0, 1)) - power[0, 0]  # F
    diagonal = np.einsum("kkf->kf", power)[1:]
    explained = power[0, 1:] + power[1:, 0] + diagonal  # p//2 F
    alive = varies > 1e-20 * np.maximum(power[0, 0], 1e-300)
    return np.where(alive, explained / np.where(alive, varies, 1), 0.0)


def waves_of_result(table: Array, result: Array, frequencies: list[int]) -> Any:
    """Project a table [p,p,V] on the waves of the result with these frequencies.

    `result` [p,p] is a + b or a − b modulo p. Each result has p pairs, so the table is first
    averaged over them.
    """
    waves = np.fft.rfft(means_by_result(table, result), axis=0)  # n V
    waves[~np.isin(np.arange(len(waves)), frequencies)] = 0
    return np.fft.irfft(waves, len(table), axis=0)[result]


def means_by_result(table: Array, result: Array) -> Any:
    """Average a table over the pairs with equal results: [p,p,V] -> [p,V]."""
    p = len(table)
    order = np.argsort(result.ravel(), kind="stable")
    return table.reshape(p * p, -1)[order].reshape(p, p, -1).mean(1)


def cosine_strengths(table: Array, result: Array) -> Any:
    """Return the least-squares strengths [p//2 + 1] of cos w(result − c) in a table [p,p,p]."""
    p = len(table)
    means, n = means_by_result(table, result), np.arange(p)  # p p
    by_distance = np.array([means[n, (n - d) % p].mean() for d in n])  # result − c = d
    return np.fft.rfft(by_distance).real * fft_multiplicity(p) / p


def sum_of_cosines(strengths: Array, result: Array, frequencies: list[int]) -> Any:
    """Return the table [p,p,p] of Σ strength · cos w(result − c) over the frequencies."""
    p = len(result)
    chosen = np.isin(np.arange(p // 2 + 1), frequencies)
    by_distance = np.fft.irfft(np.where(chosen, strengths * p / fft_multiplicity(p), 0), p)
    return by_distance[(result[..., None] - np.arange(p)) % p]
