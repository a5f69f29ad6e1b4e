"""Figures of modular addition: spectra, neurons by frequency, waves in logits, losses."""

from collections.abc import Sequence

import numpy as np

from ...lens.modular.analysis import SINGLE_FREQUENCY_SHARE, ModularAnalysis, ModularProgress
from ...utils.errors import GlassformerError
from .. import style
from ..helpers import add_grid, color_bar, log_axis, note, percent_axis
from ..style import Figure, drawing

# Loss, pairs, color and line style. Without training rows, the loss is that of all pairs.
LOSS_CURVES = (
    ("full", "all", style.BLUE, 0),
    ("restricted", "all", style.GREEN, 1),
    ("excluded", "train", style.ORANGE, 3),
    ("full", "train", style.GRAY, 2),
)


def spectrum_bars(analysis: ModularAnalysis, title: str = "") -> Figure:
    """Draw the power of each frequency in embedding and readout; color key frequencies."""
    parts = (("embedding", analysis.embedding), ("map to the logits", analysis.readout))
    with drawing(2, size=(7.0, 4.2), title=title, sharex=True) as (fig, axes):
        for ax, (name, spectrum) in zip(axes, parts, strict=True):
            k, key = np.arange(1, len(spectrum.shares) + 1), analysis.key
            others = style.PALE, style.GRAY
            fill, edge = ([style.BLUE if i in key else color for i in k] for color in others)
            ax.bar(k, spectrum.shares, 0.8, color=fill, edgecolor=edge, linewidth=0.5)
            for i in spectrum.by_strength[: max(8, len(key))]:
                if i in key or spectrum.shares[i - 1] >= 0.02:
                    weight = "bold" if i in key else "normal"
                    at = i, spectrum.shares[i - 1]
                    note(ax, str(i), at, (0, 1.5), ha="center", fontweight=weight)
            share = f"{spectrum.power_share(key):.0%} in the key frequencies"
            ax.set_title(f"{name}: {share}, Gini {spectrum.gini:.2f}")
            percent_axis(ax.yaxis)
            ax.set_ylabel("share of power")
            ax.margins(x=0.01, y=0.12)
        axes[1].set_xlabel("frequency")
    return fig


def neuron_frequencies(analysis: ModularAnalysis) -> Figure:
    """Draw the best frequency and explained variance of each neuron, one panel per layer."""
    if not analysis.neurons:
        raise GlassformerError("neurons: expected a model with neurons, got none")
    layers, jitter = analysis.neurons, np.random.default_rng(0)
    size = 7.0, 0.6 + 2.1 * len(layers)
    with drawing(len(layers), size=size, sharex=True) as (fig, axes):
        for ax, fit in zip(axes, layers, strict=True):
            single = fit.share >= SINGLE_FREQUENCY_SHARE
            x = fit.frequency + jitter.uniform(-0.28, 0.28, len(fit.frequency))
            ax.scatter(x[single], fit.share[single], s=5, color=style.BLUE, linewidth=0)
            ax.scatter(x[~single], fit.share[~single], s=5, color=style.GRAY, linewidth=0)
            least = SINGLE_FREQUENCY_SHARE
            ax.axhline(least, color=style.INK, linewidth=0.7, linestyle=style.DASHED)
            for k, n in fit.neurons_by_frequency().items():
                note(ax, f"{n}", (k, 1.02), ha="center", va="bottom")
            ax.set(ylim=(0, 1.12), yticks=[0, 0.25, 0.5, 0.75, 1])
            percent_axis(ax.yaxis)
            ax.set_xlim(-0.7, len(analysis.embedding.shares) + 0.7)
            share = f"{fit.single_frequency_share:.1%} of {len(fit.share)} neurons"
            ax.set_title(f"layer {fit.layer}: {share} have a single frequency", pad=8)
        axes[-1].set_xlabel("best frequency of the neuron (0: constant neuron)")
        fig.supylabel("share of variance explained", fontsize=9)
    return fig


def wave_plane(analysis: ModularAnalysis) -> Figure:
    """Draw the power of the logits by frequency in a and b. Waves of a + b are on the diagonal."""
    power, low = analysis.power_plane / max(analysis.power_plane.sum(), 1e-300), 1e-6
    with drawing(size=(5.0, 4.3)) as (fig, (ax,)):
        powers, low = np.log10(np.maximum(power, low)), np.log10(low)
        image = ax.imshow(powers, style.SHARE_COLORMAP, vmin=low, vmax=0, origin="lower")
        bar = color_bar(fig, image, ax, shrink=0.7, ticks=[-6, -4, -2, 0])
        bar.ax.yaxis.set_major_formatter(lambda t, _: f"{100 * 10.0**t:g} %")
        at = [0, *(k for k in analysis.key if k > 2)]
        if len(analysis.key) > 8:
            at = list(range(0, len(power), 10))
        ax.set_xticks(at, map(str, at), fontsize=7)
        ax.set_yticks(at, map(str, at), fontsize=7)
        ax.set(xlabel="frequency in b", ylabel="frequency in a")
        ax.set_title("power of the logits by frequency")
    return fig


def right_logit_maps(analyses: Sequence[tuple[str, ModularAnalysis]]) -> Figure:
    """Draw the right logit by a + b and a − b: with stripes for a pizza, without for a clock."""
    import matplotlib

    n = len(analyses)
    with drawing(1, n, size=(0.4 + 2.4 * n, 2.8)) as (fig, axes):
        colors = matplotlib.colormaps["cividis"].resampled(24)  # few colors make a smaller file
        for ax, (name, analysis) in zip(axes, analyses, strict=True):
            p = analysis.p
            a, b = np.indices((p, p))
            square = np.full((p, p), np.nan)
            # for odd p, each cell contains one pair
            square[(a - b) % p, (a + b) % p] = analysis.right_logits
            image = ax.imshow(square, cmap=colors, origin="lower", interpolation="nearest")
            color_bar(fig, image, ax, shrink=0.7)
            ax.set_title(f"{name}\ndistance irrelevance {analysis.irrelevance:.2f}", fontsize=8)
            ax.set(xlabel="(a + b) mod p", xticks=[0, p // 2, p - 1], yticks=[0, p // 2, p - 1])
        axes[0].set_ylabel("(a − b) mod p")
    return fig


def loss_curves(history: Sequence[ModularProgress], title: str = "") -> Figure:
    """Draw full, restricted and excluded loss, Gini coefficient and weights of a run."""
    if len(history) < 2:
        raise GlassformerError(f"losses: expected at least two checkpoints, got {len(history)}")
    heights = [2.4, 1, 1]
    steps = [h.step for h in history]
    with_training = "train" in history[0].losses
    with drawing(3, 1, (7.0, 5.6), title, sharex=True, height_ratios=heights) as (fig, axes):
        for name, pairs, color, line in LOSS_CURVES if with_training else LOSS_CURVES[:3]:
            training = with_training and pairs == "train"
            values = [getattr(h.losses["train" if training else "all"], name) for h in history]
            label = f"{name} ({'training' if training else 'all'} pairs)"
            axes[0].plot(steps, values, color=color, linestyle=style.LINE_STYLES[line], label=label)
        log_axis(axes[0])
        axes[0].set_ylabel("loss (log scale)")
        axes[0].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=2.4)
        axes[1].plot(steps, [h.gini for h in history], color=style.INK)
        axes[1].set_ylabel("Gini coefficient\nof the embedding", fontsize=8)
        axes[2].plot(steps, [h.squares for h in history], color=style.INK)
        axes[2].set_ylabel("sum of\nsquared weights", fontsize=8)
        axes[2].set_ylim(0, None)
        axes[-1].set_xlabel("step")
        for ax in axes:
            add_grid(ax)
    return fig
