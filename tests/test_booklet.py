"""The booklet's names: their values, and programs against transformers written out again here."""

import importlib
import re
from itertools import product
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import glassformer as gf
from glassformer import taotp
from glassformer.parametrizations.rotated import rotation_fixing_ones
from glassformer.taotp import booklet
from glassformer.taotp.booklet_names import NAMES
from helpers import largest_difference, raises

PAGE = Path(__file__).parents[1] / "docs/booklet-names.md"
SAME = 1e-8  # the booklet's softmax and norm have an epsilon of 1e-10
INDEX = [
    "all_bit_strings", "base_layer", "base_params", "build_decimal_addition_transformer",
    "build_lookup_transformer", "build_min_transformer", "build_MLP",
    "build_multi_digit_mod_transformer", "build_search_transformer",
    "build_single_digit_mod_transformer", "build_sort_transformer", "build_untied_transformer",
    "compile_TAOTP", "count_non0_params", "count_params", "decode", "decode_simpleformer",
    "detokenize", "detokenizer", "hamming_embedding", "HumanReadableDict", "layer_norm",
    "logsumexp", "loss_and_grad", "message", "nextpoint", "norm", "og_angles", "og_embedding",
    "onehot", "optimize", "padding_block", "pos_3d_enc_rotation_matrix", "pos_enc_3d",
    "pos_enc_3d_array", "powerpoints", "random_normal_encoding", "random_rotation_embedding",
    "random_sign_encoding", "reversed_rotation_encoding", "rotation_encoding",
    "scramble_transformer", "self_attn", "self_attn2", "shift_by_delta", "simpleformer",
    "softmax", "standard_padding_dimension", "stretch", "tokenize", "tokenizer", "transformer",
    "transformer_layer", "uniform_rotation_embedding",
]  # fmt: skip


@pytest.fixture
def rng():
    return np.random.default_rng(2)


# ── the table of names ─────────────────────────────────────────────────────────────────────────
def test_every_name_of_the_index_is_there():
    assert len(INDEX) == 54 and sorted(NAMES) == sorted(INDEX)
    assert all(getattr(taotp, name) is getattr(booklet, name) for name in INDEX)
    with pytest.raises(AttributeError, match="pos_enc_4d"):
        _ = taotp.pos_enc_4d


@pytest.mark.parametrize("name", INDEX)
def test_a_name_is_what_the_table_says(name):
    place, here, _ = NAMES[name]
    thing = getattr(booklet, name)
    if isinstance(thing, FunctionType | type):
        assert f"({place})" in thing.__doc__
    module, _, attribute = here.rpartition(".")
    assert not here or hasattr(importlib.import_module(f"glassformer.{module}"), attribute)


def table() -> str:
    """Return the table of docs/booklet-names.md."""
    lines = ["| in the booklet | where | here | difference |", "|---|---|---|---|"]
    for name, (place, here, note) in NAMES.items():
        lines.append(f"| `{name}` | {place} | {f'`{here}`' if here else ''} | {note} |")
    return "\n".join(re.sub(r"\|  +\|", "| |", line).replace("|  |", "| |") for line in lines)


def test_the_page_has_the_table():
    assert table() in PAGE.read_text(), f"put this table into {PAGE}:\n{table()}"


def test_reading_a_program_imports_no_other():
    """The text language does not import the programs that the booklet's names call."""
    import subprocess
    import sys

    code = (
        "import sys; from glassformer import taotp; taotp.read('max.taotp');"
        "print('glassformer.programs.sort' in sys.modules, 'glassformer.taotp.booklet' in "
        "sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]


# ── a second transformer, and the programs, from the text of the booklet ───────────────────────
def spread(x):
    return x - x.mean(-1, keepdims=True)


def normalized(x):
    return spread(x) / (np.sqrt((spread(x) ** 2).mean(-1, keepdims=True)) + 1e-10)


def attend(x, layer, mask):
    """Add what the heads read, one head after the other."""
    out = np.zeros_like(x)
    for Q, K, V, P in zip(*(layer[key] for key in "QKVP"), strict=True):
        scores = (x @ Q) @ (x @ K).T / np.sqrt(Q.shape[1])
        scores[~mask] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out += weights / weights.sum(-1, keepdims=True) @ (x @ V) @ P.T
    return out


def run_layer(x, layer, mask):
    x = x + attend(normalized(x), layer, mask)
    hidden = np.maximum(normalized(x) @ layer["M1"] + layer["b1"], 0)
    return x + hidden @ layer["M2"] + layer["b2"]


def logits(params, tokens):
    n = len(tokens)
    x = params["tok_emb"][tokens] + params["pos_emb"][:n]
    for layer in params["layers"]:
        x = run_layer(x, layer, np.tril(np.ones((n, n), dtype=bool)))
    return normalized(x) @ params["out_emb"].T


def random_params(rng, gains=False) -> dict[str, Any]:
    params = booklet.base_params(7, 9, 4)
    params["layers"] = [booklet.base_layer(3, 4, 5, 2) for _ in range(2)]
    for entries in (params, *params["layers"]):
        for key, value in entries.items():
            if isinstance(value, np.ndarray):
                entries[key] = rng.normal(size=value.shape)
            elif isinstance(value, dict) and gains:
                entries[key] = {"gamma": rng.normal(size=4), "beta": 0.5}
    return params


def circle(angles):
    """Points on the circle around (1, 1, 1), from two vectors at right angles."""
    first, second = np.array([1, -1, 0]) / 2**0.5, np.array([1, 1, -2]) / 6**0.5
    angles = np.asarray(angles)[..., None]
    return 3**0.5 * (np.cos(angles) * first + np.sin(angles) * second)


def ring(n):
    return circle(2 * np.pi * np.arange(n) / n)


def turn(angle):
    """The rotation of the circle: what takes its two axes to the points at these angles."""
    axes, turned = circle([0, np.pi / 2]), circle([angle, angle + np.pi / 2])
    return axes.T @ turned / 3


def widened(x, before, after):
    return np.pad(x, ((0, 0), (before, after)))


def empty(vocab, block, d, layers=1, heads=1, neurons=0, d_head=None):
    """A transformer of zeros, by its sizes."""
    params = {"tok_emb": np.zeros((vocab, d)), "pos_emb": np.zeros((block, d)), "layers": []}
    for _ in range(layers):
        layer = {key: np.zeros((heads, d, d_head or d)) for key in "QKVP"}
        layer |= {"M1": np.zeros((d, neurons)), "b1": np.zeros(neurons)}
        params["layers"].append(layer | {"M2": np.zeros((neurons, d)), "b2": np.zeros(d)})
    return params


def written_min(vocab, block):
    params = empty(vocab, block, 3)
    layer = params["layers"][0]
    params["tok_emb"] = circle(np.pi * np.arange(1, vocab + 1) / (vocab + 1))
    layer["Q"][0, :, 0], layer["K"][0, :, 0] = 1e8 * circle(np.pi / 2), circle(0)
    layer["V"][0], layer["P"][0] = np.eye(3), 1e6 * np.eye(3)
    return params


def written_sort(n=28, block=100):
    p = np.concatenate([[0], np.cumsum(0.5 ** np.arange(n - 1))])
    p *= np.pi / p[-1]
    q = np.concatenate([0.75 * p[1:-1] + 0.25 * p[2:], [np.pi, 0]])
    params = empty(n, block, 6)
    layer = params["layers"][0]
    params["tok_emb"] = np.hstack([circle(p), circle(q)])
    layer["Q"][0, 3:, :3], layer["K"][0, :3, :3] = 1e20 * np.eye(3), np.eye(3)
    layer["V"][0], layer["P"][0] = 1e20 * np.eye(6), np.eye(6)
    return params


def written_search(vocab, block, length):
    size = 3 * length
    params = empty(vocab, block, size + 3, layers=2, heads=length + 1, d_head=size)
    pad = np.append((size - 4) ** 0.5, np.full(size - 4, -((size - 4) ** -0.5)))
    params["tok_emb"][:, :size] = np.hstack([ring(vocab), np.tile(pad, (vocab, 1))])
    params["pos_emb"] = widened(ring(block), size, 0)
    gather, match = params["layers"]
    for back in range(length + 1):
        gather["Q"][back, -3:, -3:] = 1e8 * turn(-2 * np.pi * back / block)
        gather["K"][back, -3:, -3:] = np.eye(3)
        gather["V"][back, :3, :3] = np.eye(3)
        gather["P"][back, 3 * back : 3 * back + 3, :3] = np.eye(3)
    gather["V"][0], gather["P"][0] = np.eye(size + 3)[:, 3:], -np.eye(size + 3)[:, 3:]
    own, older = np.eye(size + 3)[:, :size], np.eye(size + 3)[:, 3:]
    token, place = np.eye(size + 3)[:, :size], older.copy()
    token[3:], place[:size] = 0, 0
    match["Q"][0], match["K"][0], match["V"][0], match["P"][0] = 1e8 * own, older, token, token
    match["Q"][1], match["K"][1], match["V"][1], match["P"][1] = 1e8 * own, own, own, -own
    match["Q"][2], match["K"][2], match["V"][2], match["P"][2] = 1e8 * place, place, place, -place
    return params


def spikes(inputs, rows):
    """Three neurons for each input: a tent of height 1 as wide as the least distance."""
    inputs = np.array(inputs)
    width = np.diff(np.sort(inputs)).min()
    M1 = np.full(3 * len(inputs), 1 / width)
    b1 = (np.array([0, 1, -1]) - inputs[:, None] / width).ravel()
    return M1, b1, np.kron(rows, np.array([[-2], [1], [1]]))


def digit_rows(n):
    """Rows (x, 1, a, −x−a−1) of squared length 4, for x = 0, 0.01, …"""
    x = np.arange(n) / 100
    a = (-x - 1 + np.sqrt(5 - 2 * x - 3 * x * x)) / 2
    return np.stack([x, np.ones(n), a, -x - a - 1], 1)


def written_digit_sum():
    rows, sums = digit_rows(10), np.arange(19)
    params = empty(10, 2, 4, neurons=57)
    layer, params["tok_emb"] = params["layers"][0], rows
    layer["V"][0, 0, 0], layer["V"][0, 1, 1], layer["P"][0] = 2e6, 1e4, np.eye(4)
    seen = normalized(np.stack([1e4 * sums, np.full(19, 1e4), 0 * sums, 0 * sums], 1))[:, 0]
    layer["M1"][0], layer["b1"], layer["M2"] = spikes(seen, 1e10 * rows[sums % 10])
    return params


def operand_sum(params, digits, places, unit):
    """Heads that add the digits at these places, by place value, and clean up rows 2 and 3."""
    layer = params["layers"][0]
    for head, (place, k) in enumerate(places):
        layer["Q"][head], layer["K"][head, -3:, -3:] = 1e6 * place, np.eye(3)
        layer["V"][head, 0, 0], layer["P"][head, 0, 0] = 100 * 10**k, unit
    layer["Q"][-1, -3:, -3:], layer["K"][-1, -3:, -3:] = 1e6 * turn(0), np.eye(3)
    layer["V"][-1, 2:4, :2], layer["P"][-1, 2:4, :2] = -np.eye(2), np.eye(2)
    return layer


def signs_as_zero(params):
    params["tok_emb"][:, :4] = np.concatenate([digit_rows(10), digit_rows(1), digit_rows(1)])


def written_multi_digit(digits):
    sums, block = np.arange(2 * 10**digits - 1), 2 * digits + 2
    params = empty(12, block, 7, heads=2 * digits + 1, neurons=3 * len(sums), d_head=3)
    signs_as_zero(params)
    params["pos_emb"] = widened(ring(block), 4, 0)

    def back(n):
        out = np.zeros((7, 3))
        out[4:] = turn(-2 * np.pi * n / block)
        return out

    places = [(back(start + k), k) for start, k in product((1, digits + 2), range(digits))]
    layer = operand_sum(params, digits, places, 1)
    x = np.zeros((len(sums), 7))
    x[:, 0], x[:, 1], x[:, 4:] = sums, 1, ring(block)[0]
    rows = 1e10 * params["tok_emb"][sums % 10]
    layer["M1"][0], layer["b1"], layer["M2"] = spikes(normalized(x)[:, 0], rows)
    return params


def written_addition(digits):
    sums, block = np.arange(2 * 10**digits - 1), 3 * digits + 2
    neurons = 3 * (digits + 1) * len(sums)
    params = empty(12, block, 7, heads=2 * digits + 1, neurons=neurons, d_head=3)
    signs_as_zero(params)
    params["pos_emb"] = widened(ring(block), 4, 0)

    def at(place):
        out = np.zeros((7, 3))
        out[1] = ring(block)[place]
        return out

    firsts = [digits - 1, 2 * digits]
    places = [(at(first - k), k) for first, k in product(firsts, range(digits))]
    layer = operand_sum(params, digits, places, 1 / 100)
    layer["V"][-1, [0, -3], -1], layer["P"][-1, 0, -1] = [-1, 1], 1
    x = np.zeros((len(sums), digits + 1, 7))
    ends = ring(block)[-digits - 1 :]
    x[..., 0], x[..., 1], x[..., 4:] = sums[:, None] / 100 + ends[:, 0], 1, ends
    figures = sums[:, None] // 10 ** np.arange(digits, -1, -1) % 10
    rows = 1e10 * params["tok_emb"][figures.ravel()]
    layer["M1"][0], layer["b1"], layer["M2"] = spikes(normalized(x)[..., 0].ravel(), rows)
    return params


def digits_of(n, width):
    return [int(c) for c in f"{n:0{width}}"]


def questions(digits, rng, answers=0):
    """Tokens of some sums, with the first digits of their answers."""
    rows = []
    for a, b in rng.integers(0, 10**digits, (40, 2)):
        question = [*digits_of(a, digits), 10, *digits_of(b, digits), 11]
        rows.append(question + digits_of(a + b, digits + 1)[:answers])
    return np.array(rows)


def texts(vocab, n, rng):
    return rng.integers(0, vocab, (40, n))


PROGRAMS = {
    "min": (booklet.build_min_transformer, written_min, (20, 8), lambda r: texts(20, 8, r)),
    "sort": (booklet.build_sort_transformer, written_sort, (), lambda r: np.array(
        [[*r.permutation(np.arange(1, 28))[:9], 0] for _ in range(40)])),
    "a smaller sort": (booklet.build_sort_transformer, written_sort, (9, 12),
                       lambda r: np.array([[*r.permutation(np.arange(1, 9)), 0]] * 9)),
    "search": (booklet.build_search_transformer, written_search, (10, 30, 3),
               lambda r: np.tile(texts(10, 10, r), (1, 3))[:, : 25]),
    "one digit": (booklet.build_single_digit_mod_transformer, written_digit_sum, (),
                  lambda r: texts(10, 2, r)),
    "mod 10": (booklet.build_multi_digit_mod_transformer, written_multi_digit, (2,),
               lambda r: questions(2, r)),
    "addition": (booklet.build_decimal_addition_transformer, written_addition, (2,),
                 lambda r: questions(2, r, answers=2)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_what_the_booklet_writes(name, rng):
    """Logits of the last position: earlier ones may be ties of attention, decided by rounding."""
    build, write, sizes, draw = PROGRAMS[name]
    params, written, tokens = build(*sizes), write(*sizes), draw(rng)
    written["out_emb"] = written["tok_emb"]
    assert np.array_equal(params["tok_emb"], params["out_emb"])
    assert largest_difference(params["tok_emb"], written["tok_emb"]) < 1e-14
    assert largest_difference(params["pos_emb"], written["pos_emb"]) < 1e-14
    for row in tokens:
        ours, theirs = logits(params, row)[-1], logits(written, row)[-1]
        assert largest_difference(ours, theirs) < 1e-6, row
        assert largest_difference(ours, booklet.transformer(row, **params)[-1]) < 1e-6, row


def test_a_changed_program_computes_something_else(rng):
    """The comparison above can fail."""
    params, written = booklet.build_min_transformer(20, 8), written_min(20, 8)
    written["out_emb"], written["layers"][0]["K"] = written["tok_emb"], -written["layers"][0]["K"]
    rows = texts(20, 8, rng)
    assert any(largest_difference(logits(params, r), logits(written, r)) > 0.1 for r in rows)


COUNTS = [  # as printed, without the counts of non-zero numbers that differ (docs/claims)
    (booklet.build_lookup_transformer, (10, 5), 1_408),
    (booklet.build_lookup_transformer, (100, 10), 3_588),
    (booklet.build_search_transformer, (1_000, 100, 10), 123_486),
    (booklet.build_search_transformer, (10, 100, 3), 4_800),
    (booklet.build_min_transformer, (50, 50), 6 * 50 + 39),
    (booklet.build_single_digit_mod_transformer, (), 629),
    (booklet.build_multi_digit_mod_transformer, (1,), 1_226),
    (booklet.build_multi_digit_mod_transformer, (2,), 9_508),
    (booklet.build_decimal_addition_transformer, (1,), 2_088),
    (booklet.build_decimal_addition_transformer, (2,), 27_432),
]


@pytest.mark.parametrize("build,arguments,total", COUNTS)
def test_the_printed_counts(build, arguments, total, rng):
    if build is booklet.build_lookup_transformer:
        entries, dims = arguments
        ks, vs = rng.integers(0, 10, (entries, 5)), rng.integers(0, 10, entries)
        arguments = (ks, vs, 10, 5, dims, 1)
    params = build(*arguments)
    assert booklet.count_params(params)["n_params"] == gf.count(taotp.from_params(params)).total
    assert booklet.count_params(params)["n_params"] == total


def test_the_printed_counts_of_numbers_other_than_zero():
    outside = booklet.count_non0_params(booklet.build_min_transformer(50, 50))
    assert outside["non_emb"] == 11
    sort = booklet.count_non0_params(booklet.build_sort_transformer())
    assert (sort["tok_emb"], sort["non_emb"]) == (166, 18)
    assert (
        booklet.count_non0_params(booklet.build_single_digit_mod_transformer())["n_params"] == 379
    )


# ── chapter 1 ──────────────────────────────────────────────────────────────────────────────────
def test_norm_softmax_and_layer_norm(rng):
    x = rng.normal(size=(3, 4))
    assert np.allclose(booklet.norm([1, 3]), [0.25, 0.75])
    assert np.allclose(booklet.softmax(x, axis=0).sum(0), 1)
    assert np.allclose(booklet.softmax([0, np.log(3)]), [0.25, 0.75])
    assert np.allclose(booklet.softmax([1e4, 0]), [1, 0])
    y = booklet.layer_norm(x, gamma=2, beta=5)
    assert np.allclose(y.mean(-1), 5) and np.allclose(y.std(-1), 2)
    assert np.allclose(booklet.layer_norm(x, axis=0).mean(0), 0)
    assert not booklet.layer_norm([7, 7, 7]).any()


def test_attention_and_a_layer(rng):
    params = random_params(rng)
    layer, x = params["layers"][0], rng.normal(size=(5, 4))
    heads = {key: layer[key] for key in "QKVP"}
    for mask in (
        np.tril(np.ones((5, 5))),
        np.eye(5),
        np.ones((5, 5)),
        np.tri(5, 5, -1) + np.eye(5),
    ):
        right = attend(x, layer, mask.astype(bool))
        assert largest_difference(right, booklet.self_attn(x, **heads, mask=mask)) < SAME
        right = run_layer(x, layer, mask.astype(bool))
        assert largest_difference(right, booklet.transformer_layer(x, **layer, mask=mask)) < SAME


def test_the_compact_attention_differs_in_three_ways(rng):
    layer, x = random_params(rng)["layers"][0], rng.normal(size=(5, 4))
    heads, mask = {key: layer[key] for key in "QKVP"}, np.tril(np.ones((5, 5)))
    scaled = heads | {"Q": heads["Q"] * 2**0.5}  # d_head is 2
    assert booklet.self_attn2(x, **heads, m=mask).shape == (4, 5)
    other = booklet.self_attn2(x, **heads, m=mask).T
    assert largest_difference(booklet.self_attn(x, **scaled, mask=mask), other) < SAME
    assert largest_difference(booklet.self_attn(x, **heads, mask=mask), other) > 0.01


@pytest.mark.parametrize("gains", [False, True])
def test_the_transformer(rng, gains):
    params, tokens = random_params(rng, gains), [1, 6, 0, 3]
    ours = booklet.transformer(tokens, **params)
    if gains:
        assert largest_difference(logits(params, tokens), ours) > 0.1
        ln, layer = params["lnf"], params["layers"][0]
        x = rng.normal(size=(4, 4))
        changed = layer | {"ln1": {"gamma": 1.0, "beta": 0.0}}
        mask = np.tril(np.ones((4, 4)))
        a, b = (booklet.transformer_layer(x, **y, mask=mask) for y in (layer, changed))
        assert largest_difference(a, b) > 0.01
        shown = params | {"out_emb": np.eye(7, 4)}  # the logits are the stream after the norm
        plain = booklet.transformer(tokens, **(shown | {"lnf": {"gamma": 1.0, "beta": 0.0}}))
        scaled = booklet.transformer(tokens, **shown)[:, :4]
        assert largest_difference(plain[:, :4] * ln["gamma"] + 0.5, scaled) < SAME
    else:
        assert largest_difference(logits(params, tokens), ours) < SAME


def test_decode(rng):
    params, tokens = random_params(rng), [1, 6]
    for _ in range(5):
        tokens.append(int(logits(params, tokens)[-1].argmax()))
    assert booklet.decode([1, 6], params, max_steps=5).tolist() == tokens
    assert booklet.decode([1, 6], params, 5, eos=tokens[2]).tolist() == tokens[:3]
    assert len(booklet.decode([1, 6], params, 30)) == 32  # past the block of 9


def test_the_layer_of_zeros_changes_nothing(rng):
    x = rng.normal(size=(5, 4))
    layer = booklet.base_layer(2, 4, 3, 6)
    assert layer["Q"].shape == (2, 4, 6) and layer["M1"].shape == (4, 3)
    assert np.array_equal(booklet.transformer_layer(x, **layer, mask=np.eye(5)), x)


def test_count_params():
    params = booklet.base_params(10, 5, 4)
    params["layers"] = [booklet.base_layer(2, 4, 3, 6)] * 2
    layer = 4 * 2 * 4 * 6 + 4 * 3 + 3 + 3 * 4 + 4
    assert booklet.count_params(params) == {
        "n_params": 60 + 2 * layer, "tok_emb": 40, "pos_emb": 20, "non_emb": 2 * layer,
    }  # fmt: skip
    params["out_emb"] = np.ones((10, 4))
    assert booklet.count_params(params)["out_emb"] == 40
    assert booklet.count_non0_params(params)["n_params"] == 40
    assert repr(booklet.HumanReadableDict(a=1234, b=5)) == "{a: 1,234, b: 5}"


def test_scramble_transformer(rng):
    params, M = random_params(rng), rotation_fixing_ones(4, rng)
    tok_emb, pos_emb, out_emb, layers, lnf = booklet.scramble_transformer(**params, M=M)
    assert np.allclose(tok_emb, params["tok_emb"] @ M)
    scrambled = {"tok_emb": tok_emb, "pos_emb": pos_emb, "out_emb": out_emb, "lnf": lnf}
    scrambled["layers"] = layers
    assert largest_difference(logits(params, [1, 2, 3]), logits(scrambled, [1, 2, 3])) < 1e-12
    with raises("bad_argument"):
        booklet.scramble_transformer(**params, M=np.diag([1, 1, 1, -1]))


# ── chapter 2 ──────────────────────────────────────────────────────────────────────────────────
def test_hello_world_on_the_simpleformer():
    angles = np.linspace(0, 6, len(booklet.tokenizer))
    out_emb = np.stack([np.cos(angles), np.sin(angles)], 1)
    pos_emb = out_emb[booklet.tokenize(booklet.message[1:])]
    start, end = booklet.tokenize(["<bos>"]), booklet.tokenizer["<eos>"]
    output = booklet.decode_simpleformer(start, pos_emb, out_emb, eos=end)
    assert booklet.detokenize(output[1:-1]) == "Hello World!"
    assert np.allclose(booklet.simpleformer([0, 0, 3], pos_emb, out_emb), pos_emb[:3] @ out_emb.T)


def test_hello_world():
    assert "".join(booklet.message) == "<bos>Hello World!<eos>" and len(booklet.tokenizer) == 11
    assert all(booklet.detokenizer[i] == s for s, i in booklet.tokenizer.items())
    params = booklet.base_params(11, 13, d_model=3)
    params["tok_emb"] = params["out_emb"] = booklet.pos_enc_3d_array(11)
    params["pos_emb"] = 1_000_000 * params["out_emb"][booklet.tokenize(booklet.message)[1:]]
    output = booklet.decode(booklet.tokenize(["<bos>"]), params, eos=booklet.tokenizer["<eos>"])
    assert booklet.detokenize(output[1:-1]) == "Hello World!"
    assert booklet.count_params(params)["n_params"] == 72


def test_the_circle():
    assert np.allclose(booklet.pos_enc_3d(0.3), circle(0.3))
    assert np.allclose(booklet.pos_enc_3d(np.arange(5)), circle(np.arange(5)).T)
    assert np.allclose(booklet.pos_enc_3d_array(7), ring(7))


# ── chapter 3 ──────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("angle", [0.0, 0.7, -2.0, 30.0])
def test_the_rotation_matrix(angle):
    T, t = booklet.pos_3d_enc_rotation_matrix(angle), np.linspace(0, 6, 9)
    assert np.allclose(T, turn(angle))
    assert np.allclose(circle(t) @ T, circle(t + angle))


def test_small_functions_of_chapter_3():
    assert np.allclose(booklet.logsumexp([[0, 0], [1e4, 0]]), [[np.log(2)], [1e4]])
    assert np.allclose(booklet.logsumexp([[0, 0], [0, 0]], axis=0), np.log(2))
    assert booklet.onehot([2, 0], 3).tolist() == [[0, 0, 1], [1, 0, 0]]


def lookup_loss(E, M, ks, vs):
    """The loss of a table, one key after the other."""
    out = 0.0
    for key, value in zip(ks, vs, strict=True):
        h = sum(E[token] @ matrix for token, matrix in zip(key, M, strict=True))
        z = normalized(np.append(h, [0, 0, 0]))[:-3] @ E.T
        out += np.log(np.exp(z).sum()) - z[value]
    return out


def test_loss_and_gradients_of_a_table(rng):
    E, M = rng.normal(size=(6, 4)), rng.normal(size=(3, 4, 4))
    ks, vs = rng.integers(0, 6, (5, 3)), rng.integers(0, 6, 5)
    loss, (dM, dE) = booklet.loss_and_grad(E, M, ks, vs, booklet.onehot(vs, 6))
    assert loss == pytest.approx(lookup_loss(E, M, ks, vs))
    for x, gradient in ((E, dE), (M, dM)):
        for at in np.ndindex(x.shape):
            before, step = x[at], 1e-6
            x[at] = before + step
            up = lookup_loss(E, M, ks, vs)
            x[at] = before - step
            slope = (up - lookup_loss(E, M, ks, vs)) / (2 * step)
            x[at] = before
            assert gradient[at] == pytest.approx(slope, abs=1e-6)
    with raises("bad_argument", "loss_and_grad"):
        booklet.loss_and_grad(E, M, ks, vs, np.ones((5, 6)))


def test_optimize_goes_down_in_place(rng):
    E, M = rng.normal(size=(6, 4)), rng.normal(size=(3, 4, 4))
    ks, vs = rng.integers(0, 6, (5, 3)), rng.integers(0, 6, 5)
    first, second = E.copy(), M.copy()
    booklet.optimize(first, second, ks, vs, 2, lr=0.01)
    for _ in range(2):  # the same, from the numbers of loss_and_grad
        E[:] = normalized(E)
        _, (dM, dE) = booklet.loss_and_grad(E, M, ks, vs, np.eye(6)[vs])
        E, M = E - 0.01 * dE, M - 0.01 * dM
    assert np.allclose(E, first) and np.allclose(M, second)
    before = lookup_loss(normalized(first), second, ks, vs)
    booklet.optimize(first, second, ks, vs, 50, lr=0.01)
    assert lookup_loss(normalized(first), second, ks, vs) < before / 2


@pytest.mark.parametrize("tied", [True, False])
def test_lookup_tables(rng, tied):
    ks, vs = rng.integers(0, 30, (20, 4)), rng.integers(0, 30, 20)
    if tied:
        params = booklet.build_lookup_transformer(ks, vs, 30, 9, 10, 1_000, rng=rng)
    else:
        params = booklet.build_untied_transformer(ks, vs, 30, 9, 4, 60, rng=rng)
    model = taotp.from_params(params)
    assert model.config.tied is tied
    right = [model([*before, *key])[-1].argmax() == value
             for key, value in zip(ks, vs, strict=True)
             for before in ([], [3], [1, 29, 4])]  # any prefix  # fmt: skip
    assert np.mean(right) > (0.99 if tied else 0.9)
    if not tied:  # a value's column is the sum of the hashes of its keys
        x = params["tok_emb"][ks] + params["pos_emb"][:4]
        mask = np.tril(np.ones((4, 4), dtype=bool))
        sums = np.zeros_like(params["out_emb"])
        for rows, value in zip(x, vs, strict=True):
            sums[value] += run_layer(rows, params["layers"][0], mask)[-1]
        assert largest_difference(params["out_emb"], sums) < 1e-6


def test_lookup_tables_are_checked():
    with raises("bad_argument", "9"):
        booklet.build_untied_transformer([[1, 10]], [2], 10, 5, 2, 8)
    with raises("bad_argument", "3"):
        booklet.build_untied_transformer([[1, 2]], [2], 10, 5, 3, 8)
    with raises("bad_argument"):
        booklet.build_lookup_transformer([[1, 2]], [2, 3], 10, 5, 3, 8)


# ── chapters 4 to 8 ────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("d", [2, 3, 10])
def test_the_padding_block(d):
    block = booklet.padding_block(d)
    assert block.shape == (d,) and np.allclose(block.sum(), 0) and np.allclose((block**2).sum(), d)
    assert block[0] == pytest.approx((d - 1) ** 0.5)


def test_a_padding_block_needs_two_dimensions():
    for d in (0, 1):
        with raises("bad_argument", "padding_block"):
            booklet.padding_block(d)


def test_search_and_sort_and_min():
    search = booklet.build_search_transformer(10, 100, 3)
    assert booklet.decode([1, 2, 3, 4, 5, 6, 1, 2, 3], search, 1)[-1] == 4
    sort = booklet.build_sort_transformer()
    assert booklet.decode([6, 2, 12, 18, 7, 0], sort, 5)[6:].tolist() == [2, 6, 7, 12, 18]
    assert (
        booklet.decode([6, 2, 0, 12, 18, 7, 12, 12], booklet.build_min_transformer(20, 9), 1)[-1]
        == 0
    )


def test_powerpoints():
    assert np.allclose(booklet.stretch([0, 1, 4], 2), [0, 0.5, 2])
    points = booklet.powerpoints(6)
    assert points[0] == 0 and points[-1] == pytest.approx(np.pi)
    assert np.allclose(np.diff(points)[1:] / np.diff(points)[:-1], 0.5)
    assert booklet.powerpoints(6, 3.0)[-1] == pytest.approx(3)
    near = booklet.nextpoint(points)
    assert len(near) == 6 and near[-2:].tolist() == [np.pi, 0]
    for i in range(4):  # nearest to the next, then to the one after it, and so on
        order = np.argsort(np.abs(points[i + 1 :] - near[i]))
        assert order.tolist() == list(range(5 - i))


def test_build_mlp(rng):
    x0s, a0s = [0.5, -1.0, 2.0, 2.25], rng.normal(size=(4, 3))
    M1, b1, M2, b2 = booklet.build_MLP(x0s, a0s)
    right = spikes(x0s, a0s)
    assert M1.shape == (1, 12) and not b2.any() and b2.shape == (3,)
    assert all(np.allclose(a, b) for a, b in zip((M1[0], b1, M2), right, strict=True))
    x = np.array([[*x0s, 0.25, 0.75, 5.0]]).T
    out = np.maximum(x @ M1 + b1, 0) @ M2 + b2
    assert np.allclose(out[:4], a0s) and np.allclose(out[4:], 0)


def test_the_printed_adders_tie_at_zero(rng):
    """The embedding of + and = is that of 0: argmax takes the lowest number, which is right."""
    mod = booklet.build_multi_digit_mod_transformer(2)
    add = booklet.build_decimal_addition_transformer(2)
    for params in (mod, add):
        assert np.array_equal(params["tok_emb"][[10, 11]], params["tok_emb"][[0, 0]])
    assert booklet.decode([1, 2, 10, 3, 3, 11], mod, 1)[-1] == 5
    assert booklet.decode([4, 5, 10, 7, 8, 11], add, 3)[-3:].tolist() == [1, 2, 3]
    assert booklet.decode([0, 4, 10, 0, 2, 11], add, 3)[-3:].tolist() == [0, 0, 6]
    last = booklet.transformer([0, 4, 10, 0, 2, 11], **add)[-1]
    assert last[0] == last[10] == last[11] == last.max()


def test_rotations(rng):
    angles = rng.uniform(0, 6, 3)
    units = np.exp(1j * np.outer(np.arange(8), angles))
    plain = np.stack([units.real, units.imag], -1).reshape(8, 6)
    turned = np.stack([units.imag, units.real], -1).reshape(8, 6)
    assert np.allclose(booklet.rotation_encoding(8, angles), plain)
    assert np.allclose(booklet.reversed_rotation_encoding(8, angles), turned)
    assert np.allclose(plain[:6] @ booklet.shift_by_delta(6, 2, angles), plain[2:])
    assert booklet.shift_by_delta(4, 2, angles).shape == (4, 4)
    assert np.allclose(
        booklet.shift_by_delta(2, 0.1, angles)[0],
        [np.cos(0.1 * angles[0]), np.sin(0.1 * angles[0])],
    )


def test_the_positions_of_the_original_transformer():
    f = booklet.og_embedding(64, 128)
    for p, i in ((0, 0), (5, 3), (63, 63)):
        angle = p / 10_000 ** (2 * i / 128)
        assert np.allclose(f[p, 2 * i : 2 * i + 2], [np.sin(angle), np.cos(angle)])
    again = booklet.reversed_rotation_encoding(64, booklet.og_angles(128))
    np.testing.assert_allclose(again, f, atol=1e-12)
    assert booklet.standard_padding_dimension(f) == 16


def test_random_encodings(rng):
    rotation = booklet.random_rotation_embedding(64, 128, rng)
    assert booklet.standard_padding_dimension(rotation) == 0
    assert np.allclose((rotation**2).sum(1), 64) and rotation[0, 0] == 1
    assert not np.allclose(*(booklet.random_rotation_embedding(8, 4) for _ in range(2)))
    normal = booklet.random_normal_encoding(300, 200, rng)
    assert normal.shape == (300, 200) and abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02
    sign = booklet.random_sign_encoding(300, 200, rng)
    assert sign.shape == (300, 200) and {*np.unique(sign)} == {-1, 1} and abs(sign.mean()) < 0.02
    uniform = booklet.uniform_rotation_embedding(64, 16)
    assert np.allclose(uniform[:56], uniform[8:])


@pytest.mark.parametrize("r", [2, 3, 4])
def test_the_hamming_code(r):
    """The check matrix has the columns with one 1 first, from the top down, and then with more."""
    n, k = 2**r - 1, 2**r - 1 - r
    columns = [
        bits for ones in range(1, r + 1) for bits in product((1, 0), repeat=r) if sum(bits) == ones
    ]
    A = np.array(columns).T[:, r:]
    messages = np.array([[int(c) for c in f"{i:0{k}b}"] for i in range(2**k)])
    words = np.hstack([messages, messages @ A.T % 2])
    assert np.array_equal(booklet.hamming_embedding(r), 2.0 * words - 1)
    assert booklet.hamming_embedding(r).shape == (2**k, n)
    assert booklet.all_bit_strings(2) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_the_interpreter():
    text = (taotp.EXAMPLES / "figure-8.3.taotp").read_text()
    params = booklet.compile_TAOTP(text)
    assert params["tok_emb"].shape == (20, 3) and params["out_emb"] is params["tok_emb"]
    assert (
        params["layers"][0]["Q"].shape == (1, 3, 3)
        and params.keys() == booklet.base_params(1, 1, 1).keys()
    )
    assert booklet.decode([6, 2, 12, 18], params, 1)[-1] == 2
    with raises("bad_source"):
        booklet.compile_TAOTP("{'tok_emb': __import__('os')}")
