"""Rounding of the first prover: SLACK covers it, and functions of extended precision are as
accurate as docs/proof.md assumes. Both are measured.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("own_rounding.py")


def leads(tmp_path, precision, factor):
    out = tmp_path / f"{precision}-{factor}.npz"
    subprocess.run([sys.executable, SCRIPT, precision, str(factor), out], check=True)
    with np.load(out) as file:
        return dict(file)


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 2e-19, reason="needs extended precision")
def test_slack_covers_what_the_prover_rounds(tmp_path):
    """The prover in float64, with the SLACK of that precision, shows no lead above what it shows in
    extended precision with no SLACK at all; it uses at most a quarter of SLACK. Without SLACK, it
    shows larger ones.
    """
    with_slack, without, exact = (
        leads(tmp_path, *how) for how in (("float64", 1), ("float64", 0), ("longdouble", 0))
    )
    assert len(exact) == 4
    for ref, true in exact.items():
        known = np.isfinite(true)
        assert known.sum() > 40
        assert (with_slack[ref] <= true)[known].all()
        if (wrong := (without[ref] > true) & known).sum():
            used = (without[ref] - true)[wrong] / (without[ref] - with_slack[ref])[wrong]
            assert used.max() < 0.25
    assert sum((without[ref] > true).sum() for ref, true in exact.items()) > 100


@pytest.mark.parametrize("name,low,high", [
    ("exp", -11_000, 11_000), ("exp", -50, 50), ("expm1", -50, 50), ("expm1", 1e-30, 1e-3),
    ("tanh", -30, 30), ("tanh", 1e-30, 1e-3),
])  # fmt: skip
def test_functions_of_extended_precision(name, low, high):
    """Within 4 units in the last place, of which the prover allows 128 and more."""
    flint = pytest.importorskip("flint")
    Real = np.longdouble
    rng = np.random.default_rng(3)
    share = rng.random(2_000).astype(Real)
    spread = low * (high / low) ** share if low > 0 else low + (high - low) * share
    x = np.asarray(spread, Real)
    with np.errstate(over="ignore"):
        y = getattr(np, name)(x)
    with flint.ctx.workprec(256):
        for number, result in zip(x, y, strict=True):
            if not np.isfinite(result) or abs(result) < np.finfo(Real).tiny:
                continue
            true = getattr(as_ball(flint, number), name)()
            off = abs((as_ball(flint, result) - true) / true)
            assert off < 4 * as_ball(flint, np.finfo(Real).eps)


def as_ball(flint, x):
    """A number of extended precision, exactly: an integer times a power of two."""
    part, power = np.frexp(x)
    top = int(np.ldexp(part, 64))
    return flint.arb(top) * flint.arb(2) ** (int(power) - 64)
