"""Inequalities of the certificate against PyTorch's kernels, in batches of 1 to thousands.

PyTorch adds biases anywhere, computes variances in one pass, and may subtract other numbers in a
softmax than NumPy.
"""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from compiler.compiled import SMALL, changed, every, proved, right, small
from compiler.test_lemmas import EPS, beginning, bringing, floats, rows_of, wrote
from glassformer.compiler import compile
from glassformer.compiler.certify import Unproved, heads, mlp_output_bounds, neurons
from glassformer.compiler.certify.checker import CertificateChecker
from glassformer.compiler.certify.floats import MAX_SCORE_FALL, NormedRow
from glassformer.compiler.ir import ThresholdCount, Token
from helpers import raises

torch = pytest.importorskip("torch")
DTYPES = ["float64", "float32"]
BATCHES = [1, 10, 1000, 20_000]


def normed(x, n=1):
    """PyTorch's layer norm of rows, each of them n times in a batch; one of each is given back."""
    whole = torch.from_numpy(np.repeat(x, max(1, n // len(x)), 0))
    return torch.nn.functional.layer_norm(whole, x.shape[-1:], eps=EPS)


def picked(y, many):
    return y.numpy().reshape(many, -1, y.shape[-1])


def affine(x, W, b):
    return torch.addmm(torch.from_numpy(b.astype(W.dtype)), x, torch.from_numpy(W))


def within(got, want, bound):
    off = np.abs(np.asarray(got, np.longdouble) - np.asarray(want, np.longdouble))
    assert (off <= bound).all(), f"{float((off / bound).max())} of the bound"


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["errors", "shift", "lengths", "rounding"])
@pytest.mark.some(3)
def test_norm_product_scaled(kind, dtype, batch):
    rng, D = np.random.default_rng(0), 24
    f = floats(D, dtype)
    x, err, W = rows_of(kind, D, rng)
    x, W = (a.astype(dtype).astype(float) for a in (x, W))
    squares = (x**2).sum(1)
    row = f.normed_row(err, squares.min() * (1 - 1e-14), squares.max() * (1 + 1e-14),
                 float(np.abs(x.sum(1)).max()) + 1e-13)  # fmt: skip
    z, off = f.product(x, row, W)
    middle, off = f.scaled(z, np.broadcast_to(off, z.shape), row)
    for sign in (np.ones(D), *np.sign(W.T), *-np.sign(W.T)):
        moved = (x + (1 - 1e-4) * err * sign).astype(dtype)
        got = normed(moved, batch) @ torch.from_numpy(W.astype(dtype))
        within(picked(got, len(x)), middle[:, None], off[:, None])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mean", [0.0, 2.0**6, 2.0**12, 2.0**16])
@pytest.mark.parametrize("D", [3, 7, 16, 100])
def test_norm_of_rows_with_a_mean(D, mean, dtype):
    """A variance that comes of one pass is off by more, the larger the mean is beside it."""
    rng, worst = np.random.default_rng(1), 0.0
    f = floats(D, dtype)
    for kind in range(40):
        x = rng.normal(size=D) if kind % 2 else rng.choice([-1.0, 1.0], D)
        x = (x + mean * (1 + kind / 7)).astype(dtype)
        c = SimpleNamespace(floats=f, config=f.config, bos=x.astype(float), bos_err=np.zeros(D))
        try:
            centre, row = CertificateChecker.normed_bos(c)
        except Unproved:  # a mean so large that nothing is known of the rest
            continue
        if not np.abs(centre).max() > 1e-3:
            continue
        got = normed(x[None])[0].numpy().astype(np.longdouble)
        y = centre[0].astype(np.longdouble)
        s = float((got * y).sum() / (y * y).sum())
        assert row.low <= s <= row.high
        assert (np.abs(got - s * y) <= s * (row.shift + row.err)).all()
        exact = 1 / float((y * y).mean() + EPS) ** 0.5
        worst = max(worst, abs(s / exact - 1) / f.unit)
    assert worst > D + 10 or mean != 2**12  # two passes are not off by so much


def addition_orders(x, W, b):
    """x @ W + b in x's type, the bias last and the bias first, products one by one; PyTorch's."""
    t = x.dtype.type
    yield np.cumsum(x[..., None, :] * W.T.astype(t), -1)[..., -1] + b.astype(t)
    terms = x[..., None, :] * W.T.astype(t)
    first = np.broadcast_to(b.astype(t)[:, None], (*terms.shape[:-1], 1))
    yield np.cumsum(np.concatenate([first, terms], -1), -1)[..., -1]
    yield affine(torch.from_numpy(x), W.astype(t), b).numpy()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_large_bias_at_bos(dtype):
    """A bias that is added first swallows every product that is less than half of its last unit."""
    rng, D = np.random.default_rng(4), 60
    c = beginning(dtype, rng, D=D)
    c.bos_err = np.zeros(D)
    x = c.bos.astype(dtype)[None]
    y = normed(x).numpy()
    b_in, b_out, W_out = np.full(1, 2.0**16), np.zeros(D), np.zeros((1, D))
    W_out[0, 0] = 1.0
    W_in = (0.45 * np.spacing(b_in.astype(dtype)) / y.T).astype(dtype).astype(float)
    neurons.neurons_at_bos(c, W_in, b_in, W_out, b_out)
    for pre in addition_orders(y, W_in, b_in):
        for out in addition_orders(np.maximum(pre, 0), W_out, b_out):
            within(x + out, c.bos, c.bos_err)


@pytest.mark.parametrize("large", [0.0, 2.0**16])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["errors", "shift", "factor", "on or off", "rounding after"])
@pytest.mark.some(3)
def test_output_error(kind, dtype, large):
    p, row, x, err = wrote(kind, dtype, np.random.default_rng(5))
    p.b_in[:], p.b_out[:] = p.b_in + large, p.b_out - large
    c = SimpleNamespace(floats=floats(p.W_in.shape[0], dtype), require_finite=lambda *a: None)
    c.config = c.floats.config
    z, A = x @ p.W_in, np.abs(p.W_in)
    want = np.maximum(z + p.b_in, 0) @ p.W_out + p.b_out
    off, size = np.broadcast_to(err @ A, z.shape), (np.abs(x) + err + row.shift) @ A
    bound = mlp_output_bounds.output_error(c, p, row, z, off, size, want, err)
    for sign, s in itertools.product((1, -1), (row.low, row.high)):
        moved = (s * (x + sign * err * (1 - 1e-4) - sign * row.shift)).astype(dtype)
        for pre in addition_orders(moved, p.W_in, p.b_in):
            for out in addition_orders(np.maximum(pre, 0), p.W_out, p.b_out):
                assert (np.abs(out.astype(np.longdouble) - want).max(1) <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_of_more_than_the_largest_score(dtype):
    """Softmax may subtract more than the largest score, as long as no power gets too small."""
    token = Token("token", [0, 1])
    tally = ThresholdCount(
        "tally", (), [(token, np.array([[0, 1]]))], np.zeros(1, int), [0.5], [0, 1]
    )
    row, rng, worst, n = NormedRow(1.0, 1.0, 0.0, np.zeros(3)), np.random.default_rng(0), 0.0, 1
    c, spread = bringing(tally, np.eye(2, 3), dtype, n), float(np.finfo(dtype).eps)
    rows = heads.LayerRows(row, np.zeros((1, 3)), row)
    scores = heads.ScoreBounds(60.0, spread, False)
    result = heads.average_of_head(c, tally, np.eye(3), np.eye(3), rows, scores)
    low = rng.uniform(1, 1.9, 5000).astype(dtype)
    above = low + rng.uniform(0, MAX_SCORE_FALL[dtype] - 1, low.shape).astype(dtype)
    e = np.exp(np.stack([low, np.nextafter(low, np.dtype(dtype).type(2))], 1) - above[:, None])
    w = (e / e.sum(1, keepdims=True)).astype(np.longdouble)
    worst = float(np.abs(w * (n + 1) - 1).max())
    assert c.floats.gamma(2 * n + 17) + spread < worst <= result.weight_error


# ── whole models ───────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.some(4)
def test_bos_with_a_large_mean(name):
    """Its norm takes the mean away, and is off by a part of the mean: no proof without that."""
    c, rng = small(name, "float32"), np.random.default_rng(0)
    D, texts = c.model.config.d_model, every(len(c.program.tokens), c.program.length)
    readers = [n for n in c.model.weights if n.endswith(("W_V", "W_K"))]
    outcomes = set()
    for size, by in itertools.product((2.0**10, 2.0**20), (1.0, 50.0)):
        E = np.array(c.model.weights["embed.W_E"])
        E[0] = np.round((E[0] + size + rng.uniform(0, 8, D)) * 8) / 8
        E[0, 0] += 1000.0  # what is left without the mean is as long as before, or longer
        new = {
            n: c.model.weights[n] + np.float32(by / size) for n in readers
        }  # reads what is alike
        model = changed(c.model, {"embed.W_E": E.astype("float32"), **new})
        held = proved(model)
        outcomes.add(held)
        assert not held or right(model, c.program, texts)
    assert False in outcomes


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_below_the_smallest_normal_number_are_refused(dtype):
    c, least = small("often", dtype), np.finfo(dtype).tiny
    for name, a in c.model.weights.items():
        for size, holds in ((least / 4, False), (0.0, True)):
            worse = np.array(a)
            at = np.flatnonzero(worse == 0)
            if not len(at):
                continue
            worse.reshape(-1)[at[0]] = size
            assert proved(changed(c.model, {name: worse})) == holds


@pytest.mark.parametrize("dtype", DTYPES)
def test_too_many_roundings_for_a_bound(dtype):
    with raises("unsupported", dtype):
        floats(8, dtype).gamma(2.0**60)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.some(5)
def test_compiled_models_in_batches(name, dtype, batch):
    """Logits of the last position alone predict the same tokens as those of all positions."""
    c = small(name, dtype)
    texts = every(len(c.program.tokens), c.program.length)
    rows = np.resize(texts, (batch, texts.shape[1]))
    model = c.model.torch()
    assert right(model, c.program, rows)
    last = model.logits(np.insert(rows + 1, 0, 0, axis=1), last=1)[:, 0]
    whole = model.logits(np.insert(rows + 1, 0, 0, axis=1))[:, -1]
    assert (last.argmax(-1) == whole.argmax(-1)).all()


def test_a_source_in_both_backends():
    """One layer, few tokens and many texts: scores of the first attention come from one table."""
    c = compile("tokens = [0, 1, 2]\nlength = 6\nemit = count(token == 1) % 3", dtype="float32")
    texts = np.resize(every(3, 6), (20_000, 6))
    tokens = np.insert(texts + 1, 0, 0, axis=1)
    a, b = (m.logits(tokens, last=1)[:, 0] for m in (c.model, c.model.torch()))
    assert (a.argmax(-1) == b.argmax(-1)).all() and np.abs(a - b).max() < 0.1
