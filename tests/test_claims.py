"""The ledger: every quick claim is measured and is what is on record; and the mechanism can
tell when it is not.
"""

import pytest

from glassformer.published_claims import Claim, format_value, ledger, select_claims
from helpers import raises


@pytest.mark.parametrize("claim", select_claims([]), ids=lambda c: c.name)
@pytest.mark.some(3)
def test_measured_is_recorded(claim):
    measured = claim.measure()
    assert claim.matches(measured), (
        f"measured {format_value(measured)}, recorded {format_value(claim.records)}"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "claim", [c for c in select_claims([], slow=True) if c.slow], ids=lambda c: c.name
)
def test_slow_ones_too(claim):
    test_measured_is_recorded(claim)


def test_matching():
    def made(records):
        return Claim("x", "here", "something", "holds", records, lambda: 0)

    assert made(72).matches(72) and not made(72).matches(71)
    assert made(0.5).matches(0.5 + 1e-9) and not made(0.5).matches(0.51)
    assert (
        made((1, 2)).matches(1.5)
        and not made((1, 2)).matches(2.1)
        and not made((1, 2)).matches(float("nan"))
    )
    assert made("yes").matches("yes") and not made("yes").matches("no")


def test_selecting():
    assert {c.name for c in select_claims(["booklet-2"])} == {
        n for n in ledger() if n.startswith("booklet-2")
    }
    slow = next(c.name for c in ledger().values() if c.slow)
    assert slow not in {c.name for c in select_claims([])} and [
        c.name for c in select_claims([slow])
    ] == [slow]
    with raises("bad_argument", "name"):
        select_claims(["nobody"])


def test_every_difference_is_explained():
    for c in ledger().values():
        assert c.verdict == "holds" or c.note, f"{c.name} is {c.verdict} and does not say why"
