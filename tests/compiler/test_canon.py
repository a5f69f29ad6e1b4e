"""Every source of the library is proved in float64 with default options, and most in float32."""

import pytest

from compiler.compiled import built
from glassformer import GlassformerError
from glassformer.compiler import library

NAMES = list(library.source_paths())

# Sources without a proof, and a mention of the error: the value whose head or logits have too large
# a rounding error, or too many cases. Shorter lists are proved in both types.
UNPROVED = {
    "float64": {},
    "float32": {
        "addition": "carry", "by-frequency": "roundings", "mark-last": "logits",
        "double-histogram": "count(turn == here.often)", "next-identical": "last",
        "rule-110": "above in [0, 1]", "slide": "found", "sort-by-frequency": "roundings",
        "sort-words": "emit", "subleq": "old", "swap-halves": "item",
    },
}  # fmt: skip
SLOW = {"subleq", "scan", "by-frequency", "sort-by-frequency", "counter-machine"}  # seconds each


def check(name, dtype):
    if name in UNPROVED[dtype]:
        with pytest.raises(GlassformerError) as caught:
            built(name, dtype)
        assert UNPROVED[dtype][name] in str(caught.value)
    else:
        assert built(name, dtype).certificate.margin > 0


@pytest.mark.parametrize("name", [n for n in NAMES if n not in SLOW][::8])
@pytest.mark.some(4)
def test_some_of_the_canon(name):
    check(name, "float64")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", NAMES)
def test_canon(name, dtype):
    check(name, dtype)


def test_at_least_150_are_proved():
    for unproved in UNPROVED.values():
        assert set(unproved) <= set(NAMES) and all(unproved.values())
        assert len(NAMES) - len(unproved) >= 150
