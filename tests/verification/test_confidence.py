"""The confidence bound against tables, exact fractions and the score interval."""

from fractions import Fraction
from math import comb, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.verification import upper_bound


@pytest.mark.parametrize("n", [1, 10, 1_000, 10**6, 10**9])
def test_none_wrong(n):
    assert upper_bound(0, n) == pytest.approx(1 - 0.01 ** (1 / n), rel=1e-6)
    assert (1 - upper_bound(0, n)) ** n == pytest.approx(0.01, rel=1e-6)


@pytest.mark.parametrize("k,n,confidence,bound", [
    (1, 10, 0.95, 0.39416), (5, 100, 0.975, 0.11283), (50, 100, 0.975, 0.60168), (1, 2, 0.975,
    0.98742),
    (9, 10, 0.95, 0.99488), (10, 10, 0.99, 1.0), (0, 0, 0.99, 1.0),
])  # fmt: skip
def test_known_values(k, n, confidence, bound):
    assert upper_bound(k, n, confidence) == pytest.approx(bound, abs=1e-5)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n))))
def test_the_tail_is_exactly_the_risk(drawn):
    k, n = drawn
    p = Fraction(upper_bound(k, n))
    tail = sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))
    assert float(tail) == pytest.approx(0.01, rel=1e-9)


@pytest.mark.parametrize(
    "k,n", [(50_000, 100_000), (10, 10**8), (10**7, 10**8), (99_999_990, 10**8)]
)
def test_large_samples(k, n):
    """Close to the score interval: the largest p from which k/n is 2.326 deviations away."""
    z, share = 2.3263479, k / n
    score = (share + z * z / 2 / n + z * sqrt(share * (1 - share) / n + z * z / 4 / n / n)) / (
        1 + z * z / n
    )
    assert upper_bound(k, n) > share
    assert upper_bound(k, n) == pytest.approx(score, rel=0.08 if k < 100 else 1e-4)
