"""The booklet's exercises of chapter 3. See docs/exercises.md."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from glassformer import load, load_task
from glassformer.core.param_count import count
from glassformer.craft import layer_norm
from glassformer.programs.lookup_hash import untied_lookup
from glassformer.tasks.lookup import Lookup
from glassformer.training import fit
from glassformer.training.recipes import choose_recipe
from glassformer.verification import verify


def right(model, task=None) -> float:
    verdict = verify(model, task or load_task(model))
    return 1 - verdict.wrong / verdict.checked


def sphere(n, d, rng):
    x = rng.standard_normal((n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True) * np.sqrt(d)


def test_3_1_a_trained_table_is_checked_with_every_prefix():
    """Rows with random prefixes, nothing set by hand. Few rows pass a test and leave prefixes that
    break the model; training until all rows are right leaves none: there are finitely many.
    """
    task = load_task("lookup:prefix=2")
    few = {"data": "split", "train_rows": 50, "test_rows": 20, "steps": 200, "full_domain_steps": 0}
    runs = [fit(task, choose_recipe("", task).override(few), seed) for seed in range(3)]
    good = [verify(t.model, task) for t in runs if t.accuracy == 1]
    assert good and all(v.checked == 1_000 for v in good)
    assert max(v.wrong for v in good) > 0
    long = load_task("lookup:prefix=4")
    verdict = verify(fit(long, choose_recipe("", long), 0).model, long)
    assert (verdict.wrong, verdict.checked, verdict.exhaustive) == (0, 100_000, True)


def test_3_2_concatenation_needs_far_fewer_numbers_a_token_than_the_hash():
    task = Lookup(entries=500, vocab=500)
    hashed, side_by_side = (
        right(untied_lookup(task, 5, 20, seed=0, concatenate=c), task) for c in (False, True)
    )
    assert hashed < 0.7 and side_by_side > 0.99


def test_3_3_layer_norm_almost_preserves_a_sphere():
    rng = np.random.default_rng(0)
    miss = [
        np.abs((v * layer_norm(v)).sum(1) / d - 1).mean()
        for d in (10, 100, 1000)
        for v in [sphere(500, d, rng)]
    ]
    assert miss[0] > 5 * miss[1] > 25 * miss[2] and miss[2] < 1e-3  # like 1/(2d)


@pytest.mark.parametrize("k", [0, 1, 3, 8])
def test_3_4_a_sum_of_k_plus_one_vectors_gives_the_root_of_k_plus_one(k):
    """The booklet's sum runs from 0 to k, so it has k + 1 terms: √(k+1), not √k. They must be
    independent:
    """
    rng = np.random.default_rng(0)
    d = 4000
    s = sum(sphere(50, d, rng) for _ in range(k + 1))
    assert (s * layer_norm(s)).sum(1).mean() / d == pytest.approx(np.sqrt(k + 1), rel=0.01)
    same = (k + 1) * sphere(50, d, rng)  # equal vectors add up to k + 1 times one
    assert (same * layer_norm(same)).sum(1).mean() / d == pytest.approx(k + 1, rel=0.01)


@pytest.mark.parametrize("n", [3, 4, 10, 50])
def test_3_5_a_coordinate_on_the_sphere_is_distributed_like_beta(n):
    rng = np.random.default_rng(0)
    x = sphere(40_000, n, rng)[:, 0] / np.sqrt(n)
    beta = 2 * rng.beta((n - 1) / 2, (n - 1) / 2, 40_000) - 1
    grid = np.linspace(-1, 1, 201)
    distance = (
        np.abs(np.searchsorted(np.sort(x), grid) - np.searchsorted(np.sort(beta), grid)).max()
        / 40_000
    )
    assert distance < 1.63 * np.sqrt(2 / 40_000)  # Kolmogorov–Smirnov, 1 %
    assert x.var() == pytest.approx(1 / n, rel=0.05)


def test_3_6_normalising_hashes_helps_a_little_and_columns_a_lot():
    plain, each, columns = [], [], []
    for seed in range(3):
        task = Lookup(entries=500, vocab=500, seed=seed)
        for out, how in ((plain, ""), (each, "each"), (columns, "columns")):
            out.append(right(untied_lookup(task, 5, 20, seed, normalize=how), task))
    assert np.mean(plain) < np.mean(each) + 0.02 < np.mean(columns)
    assert np.mean(columns) > np.mean(plain) + 0.15


@pytest.mark.slow
def test_3_8_six_grams_and_longer_ones_of_an_english_text():
    """The booklet's text is another, of 1,540 words: 23K parameters. Here 1,897 words."""
    model = load("lookup:table=moby-dick,entries=1000,variant=book,dims=11")
    assert len(model.vocabulary) == 1897 and right(model) == 1
    assert count(model).total == 30_562 and count(model).nonzero < 23_000
    longer = load("lookup:table=moby-dick,entries=1187,length=7,variant=book,dims=18")
    assert right(longer) == 1


@pytest.mark.parametrize("variant", ["any", "book", "hash"])
def test_3_7_the_same_weights_work_post_norm(variant):
    model = load(f"lookup:entries=50,vocab=50,block=7,variant={variant}")
    post = replace(model, config=replace(model.config, norm_first=False))
    task = load_task("lookup:entries=50,vocab=50,prefix=1")
    assert right(model, task) == right(post, task) == 1


# ── 3.9 and 3.11: what no sum over positions can hold ──────────────────────────────────────────
def test_3_9_logits_are_additive_in_positions():
    """Before the last layer norm (a positive factor), the logit of a key is a sum over its
    tokens.
    """
    model = load("lookup:entries=100,variant=book,dims=30")
    seen = {}

    def logits(keys):
        model(np.array(keys), hook=lambda name, x: seen.__setitem__(name, x) or x)
        return seen["blocks.0.hook_resid_post"][:, -1] @ model.weights["embed.W_E"].T

    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 10, (2, 20, 5))
    mixed = [np.concatenate([x[:, :2], y[:, 2:]], axis=1) for x, y in ((a, b), (b, a))]
    miss = logits(a) + logits(b) - logits(mixed[0]) - logits(mixed[1])
    assert np.abs(miss).max() < 1e-8 * np.abs(logits(a)).max()


def additive(task, steps=1000):
    """The sum over positions that fits a table best, one free table V × V a position and no `dims`:
    share right, slope.

    The cross-entropy is convex in these. If any sum had all entries right, going its way would
    lower the cross-entropy from anywhere: so where the slope is 0, none has.
    """
    V, each = len(task.vocabulary), np.arange(task.entries)
    x = np.eye(V)[task.table.keys].reshape(task.entries, -1)
    W, first, second = np.zeros((x.shape[1], V)), 0.0, 0.0
    for t in range(1, steps + 1):
        z = x @ W
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        share = float((p.argmax(1) == task.table.values).mean())
        p[each, task.table.values] -= 1
        g = x.T @ p
        first, second = 0.9 * first + 0.1 * g, 0.99 * second + 0.01 * g * g
        rate = 0.1 * (1 - t / steps) * np.sqrt(1 - 0.99**t) / (1 - 0.9**t)
        W -= rate * first / (np.sqrt(second) + 1e-9)
    return share, float(np.abs(g).max())


@pytest.mark.slow
def test_3_9_so_a_vocabulary_of_10_is_too_small_for_1000_entries():
    assert additive(Lookup(entries=150), steps=300)[0] == 1
    for entries, most in ((300, 0.8), (1000, 0.35)):  # it ends near ½(l(V−1)+1)(V−1) = 207
        share, slope = additive(Lookup(entries=entries))
        assert share < most and slope < 0.01  # no number of dimensions helps
    assert additive(Lookup(entries=1000, vocab=100), steps=60)[0] == 1
    assert 0.2 < right(load("lookup:entries=1000,variant=book")) < 0.35
    assert right(load("lookup:entries=1000")) == 1


def test_3_10_the_dimensions_needed_do_not_grow_with_the_length():
    """A hash is l vectors long, but so is what it is compared with: signal l·d, noise l·√(c·d)
    for c keys a value.
    """
    tasks = [Lookup(entries=400, length=n, vocab=400) for n in (2, 5, 20)]
    share = [right(untied_lookup(task, task.key_length, 40, 0), task) for task in tasks]
    assert share[0] <= share[1] + 0.02 and share[1] <= share[2] + 0.02 and share[2] > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["book", "hash"])
@pytest.mark.parametrize("table,most", [("xor", 0.75), ("parity-6", 0.75), ("sum-mod-10", 0.6)])
def test_3_11_xor_is_adversarial(table, most, variant):
    for dims in (5, 100):
        assert right(load(f"lookup:table={table},dims={dims},variant={variant}")) <= most


def test_3_11_no_three_entries_are():
    """Three different keys are independent as one-hot vectors: sums over positions can have any
    three values.
    """
    for keys in itertools.combinations(itertools.product(range(3), repeat=2), 3):
        x = np.eye(3)[np.array(keys)].reshape(3, -1)
        assert np.linalg.matrix_rank(x) == 3
    x = np.eye(2)[np.array(list(itertools.product(range(2), repeat=2)))].reshape(4, -1)
    assert (
        np.linalg.matrix_rank(x) == 3 and np.abs(np.array([1, -1, -1, 1]) @ x).max() == 0
    )  # XOR's four are not


@pytest.mark.parametrize("table", ["xor", "sum-mod-10", "parity-6"])
def test_3_12_the_default_holds_any_table(table):
    for dtype in ("float64", "float32"):
        assert right(load(f"lookup:table={table},dtype={dtype}")) == 1


@pytest.mark.slow
def test_3_12_any_values_at_all():
    """All 256 tables from 3 bits to a bit."""
    from glassformer.tasks import lookup as module

    keys = module._complete(2, 3)
    for values in itertools.product(range(2), repeat=8):
        module.BUILT_IN["test"] = lambda v=values: replace(keys, values=np.array(v))
        try:
            assert right(load("lookup:table=test")) == 1
        finally:
            del module.BUILT_IN["test"]
