"""Counts add up to the same result for any division and order of the rows."""

import json
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from glassformer.utils.typed_json import convert
from glassformer.verification.counts import RowCounts, add_counts, count_rows

KEEP, LOW = 4, 2


def some(seed, n=60):
    rng = np.random.default_rng(seed)
    gap = rng.integers(-1, 9, (n, 3)).astype(float)  # ties in plenty
    gap[rng.random((n, 3)) < 0.05] = np.nan
    gap[rng.random(n) < 0.3, 0] = np.inf
    rows = np.stack([np.arange(n), rng.integers(0, 5, n)], 1)
    return rows, gap, rng.choice(["a", "b", "long name"], n)


def of(rows, gap, names, start, stop):
    part = slice(start, stop)
    return count_rows(
        rows[part], gap[part], names[part], np.arange(start, stop), stop - start, KEEP, LOW
    )


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000), st.lists(st.integers(0, 60), max_size=6), st.randoms())
def test_any_division_any_order(seed, cuts, random):
    all_ = some(seed)
    whole = of(*all_, 0, 60)
    edges = [0, *sorted(cuts), 60]
    parts = [of(*all_, a, b) for a, b in pairwise(edges)]
    random.shuffle(parts)
    assert add_counts(parts, KEEP, LOW) == whole
    assert (
        add_counts([add_counts(parts[:2], KEEP, LOW), add_counts(parts[2:], KEEP, LOW)], KEEP, LOW)
        == whole
    )


def test_what_is_in_it():
    rows, gap, names = some(3)
    margin = np.where(np.isnan(gap), -np.inf, gap).min(1)
    t = of(rows, gap, names, 0, 60)
    bad = np.flatnonzero(~(margin > 0))
    assert t.wrong == len(bad) > KEEP and [f[1] for f in t.failures] == bad[:KEEP].tolist()
    assert t.worst[0] == -np.inf and t.worst[1] == margin.argmin()
    for name, (checked, wrong, worst) in t.classes.items():
        here = margin[names == name]
        assert (checked, wrong, worst) == (len(here), (~(here > 0)).sum(), here.min())
    last = np.where(np.isnan(gap[:, -1]), -np.inf, gap[:, -1])
    assert [f[1] for f in t.lowest[0]] == np.lexsort([np.arange(60), last])[:LOW].tolist()
    assert convert(json.loads(json.dumps(to_builtins(t))), RowCounts) == t
