"""The canon: every source of the library, at its defaults, proved in float64; most in float32."""

import re

import pytest

from compiler.compiled import built
from glassformer import GlassformerError
from glassformer.compiler import library

NAMES = list(library.source_paths())

# What is not proved, and what the refusal names: the value at whose head or logits rounding has
# used up what there was, or the cases that are too many. Shorter lists go in both types.
OPEN = {
    "float64": {},
    "float32": {
        "addition": "carry", "by-frequency": "roundings", "mark-last": "logits",
        "double-histogram": "count(turn == here.often)", "next-identical": "last",
        "rule-110": "above in [0, 1]", "slide": "found", "sort-by-frequency": "roundings",
        "sort-words": "emit", "subleq": "old", "swap-halves": "item",
    },
}  # fmt: skip
LONG = {"subleq", "scan", "by-frequency", "sort-by-frequency", "counter-machine"}  # seconds each


def check(name, dtype):
    if name in OPEN[dtype]:
        with pytest.raises(GlassformerError, match=re.escape(OPEN[dtype][name])):
            built(name, dtype)
    else:
        assert built(name, dtype).certificate.margin > 0


@pytest.mark.parametrize("name", [n for n in NAMES if n not in LONG][::8])
@pytest.mark.some(4)
def test_some_of_the_canon(name):
    check(name, "float64")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", NAMES)
def test_canon(name, dtype):
    check(name, dtype)


def test_at_least_a_hundred():
    for left in OPEN.values():
        assert set(left) <= set(NAMES) and all(left.values())
        assert len(NAMES) - len(left) >= 150
