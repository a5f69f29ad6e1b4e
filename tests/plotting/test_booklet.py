"""The booklet's figures: what is drawn is what is computed, with other numbers too."""

import re
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer import craft, taotp
from glassformer.plotting.booklet_encodings import ENCODINGS, rotation_angles
from helpers import raises
from plotting.test_pictures import texts

SHOW = gf.show
PAGE = Path(__file__).parents[2] / "docs/booklet-names.md"


def image(picture, panel=0):
    """Return the numbers of the heat map in a panel."""
    return np.asarray(picture.figure.axes[panel].images[0].get_array())


def dots(picture, panel=0):
    """Return the points of every scatter plot in a panel."""
    return [np.asarray(c.get_offsets()) for c in picture.figure.axes[panel].collections
            if hasattr(c, "get_offsets") and len(c.get_offsets())]  # fmt: skip


def lines(picture, panel=0):
    return {line.get_label(): line.get_xydata() for line in picture.figure.axes[panel].lines}


# ── encodings ──────────────────────────────────────────────────────────────────────────────────
def test_an_encoding_has_three_panels():
    picture = SHOW.encoding("sinusoidal")  # the sizes of Figure 7.2
    f = craft.sinusoidal(64, 128)
    np.testing.assert_array_equal(image(picture), f)
    attention = image(picture, 1)
    assert np.allclose(attention.sum(1), 1)
    assert attention.diagonal().min() == pytest.approx(craft.distinguishability(f))
    assert {"distinguishability 0.769", "64 angles", "values"} <= set(texts(picture))
    (points,) = dots(picture, 2)
    angles = craft.sinusoidal_angles(128)
    assert np.allclose(points, np.stack([np.cos(angles), np.sin(angles)], 1))
    assert picture._repr_png_()[0].startswith(b"\x89PNG")


def test_an_array_is_an_encoding():
    f = np.random.default_rng(0).normal(size=(12, 5))
    for given in (f, f.tolist()):
        np.testing.assert_array_equal(image(SHOW.encoding(given)), f)
    similar = lines(SHOW.encoding(f), 2)["_child0"]
    assert np.allclose(similar[:, 1], f @ f[6]) and similar[0, 0] == -6
    positions = gf.load("min:vocab=9,variant=book").W_pos
    assert "distinguishability 0.111" in texts(SHOW.encoding(positions))  # all 0: one of nine


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_named_encoding(name):
    d = 15 if "hamming" in name else 16
    picture = SHOW.encoding(name, n=20, d=d, seed=3)
    again = [image(SHOW.encoding(name, n=20, d=d, seed=seed)) for seed in (3, 4)]
    np.testing.assert_array_equal(image(picture), again[0])
    assert np.array_equal(*again) != name.startswith(("random", "sorted"))
    assert image(picture).shape == (20, 3 if name == "ring" else d)


def test_angles_are_recognized():
    theta = np.array([0.1, 3.0, 5.9])
    for encode in (craft.rotation, craft.reversed_rotation):
        assert np.allclose(rotation_angles(encode(9, theta)), theta)
    assert rotation_angles(craft.ring(9)) is None
    assert rotation_angles(craft.rotation(9, theta) + 1e-3) is None
    assert rotation_angles(craft.random_sign(9, 6, np.random.default_rng(0))) is None


def test_encodings_side_by_side():
    names = ["random-normal", "random-sign", "hamming", "balanced-hamming"]  # Figure 7.13
    picture = SHOW.encodings(names, d=15)
    words = taotp.hamming_embedding(4)
    np.testing.assert_array_equal(image(picture, 2), words[:64])
    balanced = words[np.abs(words.sum(1)) <= 1][:64]
    np.testing.assert_array_equal(image(picture, 3), balanced)
    assert abs(words[:64].mean() + 1 / 3) < 0.01 and abs(balanced.mean()) < 0.1
    assert set(names) <= set(texts(picture))
    two = SHOW.encodings()  # Figure 7.10
    np.testing.assert_array_equal(image(two), craft.sinusoidal(64, 128))
    assert taotp.standard_padding_dimension(image(two, 1)) == 0
    four = SHOW.encodings(["sinusoidal", "random-rotation", "sorted-rotation", "uniform-rotation"])
    rows = {round(ax.get_position().y0, 3) for ax in four.figure.axes[:4]}
    assert len(rows) == 2


def test_angles_and_first_positions():
    picture = SHOW.angles("sinusoidal", d=8, positions=3)
    theta = craft.sinusoidal_angles(8)
    (points,) = dots(picture, 0)
    assert np.allclose(points[:, 1], np.sin(theta))
    first, second, third = dots(picture, 1)
    assert np.allclose(first, [1, 0]) and np.allclose(np.hypot(*third.T), 2)
    assert np.allclose(np.arctan2(*second.T[::-1]), theta)
    with raises("bad_argument", "show.angles", "ring"):
        SHOW.angles("ring")


def test_distinguishability_against_dimensions():
    picture = SHOW.distinguishability(n=32, dims=(4, 8, 16), runs=4)
    drawn = lines(picture)
    for i, d in enumerate((4, 8, 16)):
        runs = [craft.random_rotation(32, d, np.random.default_rng(seed)) for seed in range(4)]
        shares = [craft.distinguishability(f) for f in runs]
        assert drawn["random-rotation"][i].tolist() == pytest.approx([d, np.mean(shares)])
        og = craft.distinguishability(craft.sinusoidal(32, d))
        assert drawn["sinusoidal"][i, 1] == pytest.approx(og)
    band = picture.figure.axes[0].collections[1].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(max(shares))


WRONG_ENCODINGS = ["sinus", 3, None, [[1, 2], [3]], [[np.nan, 1]], [1, 2, 3], [["a"]]]


@pytest.mark.parametrize("code", WRONG_ENCODINGS, ids=str)
def test_wrong_encodings(code):
    with raises("not_found" if code == "sinus" else "bad_argument"):
        SHOW.encoding(code)
    with pytest.raises(gf.GlassformerError):
        SHOW.encodings(code)


@pytest.mark.parametrize("call", [
    lambda: SHOW.encoding("sinusoidal", d=7), lambda: SHOW.encoding("hamming", d=16),
    lambda: SHOW.encoding("hamming", n=64, d=7), lambda: SHOW.encoding(n=1),
    lambda: SHOW.encoding(n=10**9), lambda: SHOW.encoding(np.zeros((5_000, 2))),
    lambda: SHOW.encodings("sinusoidal"), lambda: SHOW.encodings([]),
    lambda: SHOW.distinguishability("sinusoidal"), lambda: SHOW.distinguishability(dims=()),
    lambda: SHOW.distinguishability([craft.ring(5)]), lambda: SHOW.distinguishability(dims=[2.5]),
    lambda: SHOW.angles(positions=0), lambda: SHOW.norm_collapse(0),
    lambda: SHOW.tokens_on_ring("search"), lambda: SHOW.tokens_on_ring("min", head=1),
    lambda: SHOW.powerpoint_angles(2), lambda: SHOW.powerpoint_angles(ratio=1.5),
    lambda: SHOW.powerpoint_angles(arc="x"), lambda: SHOW.sum_table(1), lambda: SHOW.sum_table(99),
    lambda: SHOW.lookup_precision(entries=()), lambda: SHOW.lookup_precision(dims=[2]),
    lambda: SHOW.lookup_precision(vocab=10), lambda: SHOW.lookup_precision(runs=0),
    lambda: SHOW.word_counts(""), lambda: SHOW.word_counts("1 2 3"), lambda: SHOW.word_counts(3),
    lambda: SHOW.word_counts("a", top=0), lambda: SHOW.architecture("min", "x"),
])  # fmt: skip
def test_wrong_arguments(call):
    with raises("bad_argument"):
        call()


def test_names_that_are_not_there(tmp_path):
    with raises("not_found", "pointt", "point"):
        SHOW.tokens_on_ring("sort:variant=book", slot="pointt")
    with raises("not_found"):
        SHOW.word_counts(tmp_path / "no.txt")


# ── circles, powerpoints, sums ─────────────────────────────────────────────────────────────────
def test_layer_norm_leaves_two_points_and_a_circle():
    picture = SHOW.norm_collapse(n=40, seed=1)
    ends = [p[0] for p in dots(picture) if len(p) == 1]
    assert sorted(np.round(ends, 12).tolist()) == [[-1, 1], [1, -1]]
    plane, space = picture.figure.axes
    assert sum(len(line.get_xdata()) == 2 for line in plane.lines) >= 40
    images = np.array(space.collections[1]._offsets3d)
    assert images.shape == (3, 40)
    assert np.allclose(images.sum(0), 0) and np.allclose(np.linalg.norm(images, axis=0), 3**0.5)
    assert len(np.unique(images[0].round(6))) == 40 and np.ptp(images, axis=1).min() > 2
    assert SHOW.norm_collapse(n=1)._repr_png_()[0]


def test_min_looks_along_one_axis():
    picture = SHOW.tokens_on_ring("min:vocab=10,variant=book")  # Figure 5.1
    (points,) = dots(picture)
    angles = np.pi * np.arange(1, 11) / 11
    assert np.allclose(points, 3**0.5 * np.stack([np.cos(angles), np.sin(angles)], 1))
    assert set("0123456789") < set(texts(picture))
    assert any("reads the smallest number" in text for text in texts(picture))

    def axis(ref):
        (arrow,) = [t for t in SHOW.tokens_on_ring(ref).figure.axes[0].texts if t.arrow_patch]
        return arrow.xy

    right, left = axis("min:vocab=10"), axis("max:vocab=10")
    assert right[0] > 1 and left[0] < -1 and abs(right[1]) < 1e-6


def test_sort_looks_for_the_next_powerpoint():
    model = gf.load("sort:variant=book")
    points, looks = dots(SHOW.tokens_on_ring(model, slot="point"))
    assert np.allclose(points, model.W_E[:, :3] @ craft.lift(2).T)
    assert np.allclose(looks, model.W_E[:, 3:] @ craft.lift(2).T, atol=1e-6)


def test_the_simpleformer_has_an_unembedding_only():
    picture = SHOW.tokens_on_ring("hello-world:variant=simpleformer")  # Figure 2.3
    (points,) = dots(picture)
    assert np.allclose(np.hypot(*points.T), 1)
    assert {"H", "<bos>", "' '", "unembedding"} <= set(texts(picture))
    untied = gf.load(
        taotp.base_params(5, 4, 3) | {"tok_emb": craft.ring(5), "out_emb": np.eye(5, 3)}
    )
    assert len(dots(SHOW.tokens_on_ring(untied))) == 2
    assert len(dots(SHOW.tokens_on_ring("hello-world"))) == 1


def test_close_tokens_share_a_name():
    names = [t for t in texts(SHOW.tokens_on_ring("max:vocab=200")) if t.isdigit()]
    assert "0" in names and 10 < len(names) < 60


def test_powerpoints():
    points, looks, *_ = dots(SHOW.powerpoint_angles(6, ratio=0.6, arc=2.0, aim=0.4))
    assert np.allclose(
        points[:, 0],
        np.array([0, *np.cumsum(0.6 ** np.arange(5))]) * 2 / np.cumsum(0.6 ** np.arange(5))[-1],
    )
    assert np.allclose(looks[:, 0], 0.6 * points[1:-1, 0] + 0.4 * points[2:, 0])
    book = SHOW.powerpoint_angles()  # Figure 5.3
    on_circle = dots(book, 1)[0]
    assert np.allclose(on_circle[-1], [-1, 0]) and len(on_circle) == 8
    assert {"0", "4", "q0", "angle"} <= set(texts(book)) and "7" not in texts(book)


@pytest.mark.parametrize("base", [2, 3, 10])
def test_the_table_of_sums(base):
    picture = SHOW.sum_table(base)
    left, right = (image(picture, i).reshape(base, base, 4) for i in (0, 1))
    colored = (left != left[-1, 0]).any(2)
    assert colored.sum() == 2 * base - 1 and colored[0].all() and colored[:, -1].all()
    for row, column in np.ndindex(base, base):
        same = (right == right[row, column]).all(2)
        assert np.array_equal(
            same, np.add.outer(np.arange(base), np.arange(base)) % base == (row + column) % base
        )
    assert f"{2 * base - 1} of {base * base} cells determine the others" in texts(picture)
    assert {"x₁+y₀", "v₁", "x₀"} <= set(texts(picture))


# ── lookup tables, words, architecture ─────────────────────────────────────────────────────────
def test_precision_against_size():
    from glassformer.programs.lookup_book import tied_lookup
    from glassformer.tasks.lookup import Lookup

    picture = SHOW.lookup_precision(
        entries=(12,), vocab=(9,), dims=(3, 4), length=2, runs=3, seed=5
    )
    shares = []
    for seed in (5, 6, 7):
        task = Lookup(entries=12, length=2, vocab=9, seed=seed)
        model = tied_lookup(task, 2, 3, seed=0)
        answers = [model(key)[-1].argmax() for key in task.table.keys]
        shares.append(np.mean(answers == task.table.values))
    drawn = lines(picture)["9 tokens"]
    assert drawn[:, 0].tolist() == [6, 7] and drawn[0, 1] == pytest.approx(np.mean(shares))
    band = picture.figure.axes[0].collections[0].get_paths()[0].vertices
    assert {*np.round(band[:, 1], 9)} >= {round(min(shares), 9), round(max(shares), 9)}


def test_words_by_frequency(tmp_path):
    text = "The cat, the dog and the cat's hat: THE end. x'"
    picture = SHOW.word_counts(text, top=2)
    assert {"the", "8 words; the first 2 are 45% of the text"} <= {*texts(picture)}
    bars = [patch.get_width() for patch in picture.figure.axes[0].patches]
    ranks = [patch.get_height() for patch in picture.figure.axes[1].patches]
    assert bars == [4, 1] and ranks == [4, 1, 1, 1, 1, 1, 1, 1]
    (tmp_path / "a.txt").write_text(text)
    assert texts(SHOW.word_counts(tmp_path / "a.txt", top=2)) == texts(picture)


ARCHITECTURES = [
    ("hello-world", "Hel", ["<bos> H e l", "l", "layer norm", "embedding  11 × 3"]),
    ("hello-world:variant=simpleformer", "", ["2 × 11", "tokens", "next token"]),
    ("adder-3.safetensors", "127+458=", ["2 layers", "MLP", "64 neurons, gelu", "1 head of 32"]),
    ("max:vocab=20", "6 2 12", ["1 layer", "20 × 3", "tied: embedding, transposed", "12"]),
]


@pytest.mark.parametrize("ref,text,parts", ARCHITECTURES)
def test_an_architecture(ref, text, parts):
    picture = SHOW.architecture(ref, text)
    assert set(parts) <= set(texts(picture)), texts(picture)
    norms = texts(picture).count("layer norm")
    assert norms == {"hello-world": 1, "adder-3.safetensors": 3, "max:vocab=20": 2}.get(ref, 0)
    assert picture._repr_png_()[0]


def test_post_norm_comes_after_the_sum():
    params = {"tok_emb": craft.ring(4), "block_size": 3, "layers": [{}], "norm_first": False}
    picture = SHOW.architecture(gf.load(params))
    height = {t.get_text(): t.get_position()[1] for t in picture.figure.axes[0].texts}
    assert height["attention"] < height["layer norm"] < height["unembedding"]
    assert texts(picture).count("layer norm") == 1, "no norm after the last layer"


# ── the table of figures ───────────────────────────────────────────────────────────────────────
CALLS = re.findall(r"^\| ([\d., ]+|[\w ]+) \| `(gf\.show\..*)` \|", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize("figure,call", CALLS)
@pytest.mark.some(6)
def test_the_calls_of_the_page(figure, call):
    if "lookup_precision" in call:
        pytest.skip("takes minutes; test_precision_against_size draws a smaller one")
    assert eval(call, {"gf": gf})._repr_png_()[0].startswith(b"\x89PNG")


def test_the_page_has_the_figures():
    named = {name for figures, _ in CALLS for name in re.findall(r"[\d.]+", figures)}
    wanted = "1.1 2.2 2.3 2.5 2.6 2.7 3.7 3.8 5.1 5.3 7.2 7.6 7.8 7.9 7.10 7.13"
    assert set(wanted.split()) <= named
