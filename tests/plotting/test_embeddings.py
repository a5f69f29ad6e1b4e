"""Figures of embeddings and of modular addition: the data drawn."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer import load, load_task
from glassformer.lens.embeddings import before_and_after, position_embeddings, token_embeddings
from glassformer.lens.modular.analysis import analyze_modular, modular_progress
from glassformer.plotting import save
from glassformer.plotting.figures import embeddings, fourier
from glassformer.plotting.style import SHARE_COLORMAP, SIGNED_COLORMAP
from helpers import raises, random_model


@pytest.fixture(scope="module")
def pizza():
    model = load("modular-addition:p=23,variant=pizza")
    return analyze_modular(model, load_task(model))


def test_embedding_map():
    e = token_embeddings(random_model())
    ax = embeddings.embedding_map(e).axes[0]
    points = np.concatenate([c.get_offsets() for c in ax.collections])
    assert np.allclose(points, e.display_pca.points[:, :2])
    assert [t.get_text() for t in ax.texts] == e.names
    assert (
        f"({e.display_pca.explained[0]:.0%} of the variance)" in ax.get_xlabel()
        and "%" in ax.get_ylabel()
    )
    other = embeddings.embedding_map(e, components=(2, 9)).axes[0]  # there is no tenth
    assert np.allclose(other.collections[0].get_offsets()[:, 1], 0) and "(0%)" in other.get_ylabel()


def test_the_map_of_positions_marks_the_answer():
    e = position_embeddings(random_model(), boundary=6)
    ax = embeddings.embedding_map(e).axes[0]
    prompt, answer = (c.get_offsets() for c in ax.collections)
    points = e.vectors - e.vectors.mean(0)
    axis = np.linalg.svd(points, full_matrices=False)[2][0]
    drawn = np.concatenate([prompt, answer])[:, 0]
    np.testing.assert_allclose(np.abs(drawn), np.abs(points @ axis))
    assert len(prompt) == 6 and len(drawn) == len(e.names) > 6
    assert ax.get_title(loc="left").endswith("answer from 6")


def test_names_do_not_overlap():
    x, y = np.array([0.0, 0.0, 0.0, 100.0]), np.array([0.0, 0.1, 0.2, 100.0])
    sides = embeddings._free_label_sides(x, y, ["a", "b", "c", "d"], 8)
    assert len(set(sides[:3])) == 3 and sides[3] == sides[0]


def test_cosine_heatmap():
    e = position_embeddings(random_model(), boundary=6)
    ax = embeddings.cosine_heatmap(e).axes[0]
    assert np.allclose(ax.images[0].get_array(), e.cosine) and ax.images[0].get_clim() == (-1, 1)
    assert {float(np.unique(line.get_xdata())[0]) for line in ax.lines[1:]} == {
        5.5
    } and "from 6" in ax.get_xlabel()
    assert not embeddings.cosine_heatmap(token_embeddings(random_model())).axes[0].lines


def test_before_and_after_has_four_panels():
    pair = before_and_after(random_model(0), random_model(1))
    fig = embeddings.before_and_after(pair, "both", ("at first", "at last"))
    titles = [ax.get_title(loc="left") for ax in fig.axes[:4]]
    assert titles == [
        "at first",
        "at first: cosine similarity",
        "at last",
        "at last: cosine similarity",
    ]
    assert np.allclose(fig.axes[3].images[0].get_array(), pair[1].cosine)


def test_large_vocabularies_have_fewer_ticks():
    ax = embeddings.cosine_heatmap(token_embeddings(load("modular-addition:variant=pizza"))).axes[0]
    assert [t.get_text() for t in ax.get_xticklabels()][:3] == ["0", "10", "20"]


def test_spectrum_bars(pizza):
    for ax, result in zip(
        fourier.spectrum_bars(pizza, "p = 23").axes, (pizza.embedding, pizza.readout), strict=True
    ):
        assert np.allclose([bar.get_height() for bar in ax.patches], result.shares)
        dark = [
            i + 1
            for i, bar in enumerate(ax.patches)
            if bar.get_facecolor()[2] > 2 * bar.get_facecolor()[0] + 0.3
        ]
        assert dark == pizza.key
        assert {int(t.get_text()) for t in ax.texts} == set(pizza.key)


def test_neuron_frequencies(pizza):
    ax = fourier.neuron_frequencies(pizza).axes[0]
    points = np.concatenate([c.get_offsets() for c in ax.collections])
    assert len(points) == 75 and set(np.round(points[:, 0]).astype(int)) == set(pizza.key)
    assert np.allclose(np.sort(points[:, 1]), np.sort(pizza.neurons[0].share))
    with raises("bad_argument", "neurons"):
        fourier.neuron_frequencies(replace(pizza, neurons=[]))


def test_waves_and_right_logits(pizza):
    image = fourier.wave_plane(pizza).axes[0].images[0].get_array()
    assert image.shape == (12, 12) and image[pizza.key[0], pizza.key[0]] > image[pizza.key[0], 0]
    axes = fourier.right_logit_maps([("one", pizza), ("two", pizza)]).axes
    square = axes[0].images[0].get_array()
    assert square[(5 - 2) % 23, 5 + 2] == pizza.right_logits[5, 2] and np.isfinite(square).all()
    assert axes[0].get_title(loc="left").startswith("one\n")


def test_losses_along_a_run():
    task = load_task("modular-addition:p=13")
    models = [
        (s, load(f"modular-addition:p=13,variant={v}")) for s, v in ((0, "clock"), (10, "pizza"))
    ]
    history = modular_progress(models, task, task.rows(0, 30))
    top, gini, squares = fourier.loss_curves(history).axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in top.lines}
    assert drawn["restricted (all pairs)"] == [h.losses["all"].restricted for h in history]
    assert drawn["excluded (training pairs)"] == [h.losses["train"].excluded for h in history]
    assert list(gini.lines[0].get_ydata()) == [h.gini for h in history]
    assert list(squares.lines[0].get_xdata()) == [0, 10]
    with raises("bad_argument", 1):
        fourier.loss_curves(history[:1])


def test_figures_can_be_saved(pizza, tmp_path):
    for i, fig in enumerate(
        (fourier.spectrum_bars(pizza), embeddings.embedding_map(token_embeddings(random_model())))
    ):
        assert save(fig, tmp_path / f"{i}.svg").stat().st_size > 1_000


def test_more_is_bluer_in_every_figure():
    """Shares and signed numbers have the same polarity as in the page."""
    from matplotlib import colormaps

    for name in (SHARE_COLORMAP, SIGNED_COLORMAP):
        red, _, blue, _ = colormaps[name](1.0)
        assert blue > red, name
