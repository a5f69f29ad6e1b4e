"""Tools for handwritten weights: slots of the stream, encodings, heads and MLPs.

All functions work on NumPy arrays and the flat dict of weights. Vectors are rows: row i of an
encoding [n, d] encodes i, and a matrix acts as `row @ matrix`.
"""

from .encodings import (  # noqa: I001
    balanced_hamming, circle, hamming, lag_matrix, mirror_matrix, random_isometry, random_normal,
    random_rotation, random_sign, reversed_rotation, ring, rotation, rotation_shift, shift_matrix,
    sinusoidal, sinusoidal_angles, uniform_rotation,
)  # fmt: skip
from .heads import Head, hardness_for
from .layout import FixedNormLayout, Layout
from .measures import (
    distinguishability, fit_shift, layer_norm_displacement, padding_dimension, period,
)  # fmt: skip
from .mlp import Neurons, eraser, polyline, spike, spikes, weak_spike, weak_spikes
from .norms import (
    Floats, layer_norm, lift, messy_cleanup_scale, padding, residue_after_norm, rms_norm,
)  # fmt: skip

__all__ = [
    "FixedNormLayout", "Floats", "Head", "Layout", "Neurons", "balanced_hamming", "circle",
    "distinguishability", "eraser", "fit_shift", "hamming", "hardness_for", "lag_matrix",
    "layer_norm", "layer_norm_displacement", "lift", "messy_cleanup_scale", "mirror_matrix",
    "padding", "padding_dimension", "period", "polyline", "random_isometry", "random_normal",
    "random_rotation", "random_sign", "residue_after_norm", "reversed_rotation", "ring", "rms_norm",
    "rotation", "rotation_shift", "shift_matrix", "sinusoidal", "sinusoidal_angles", "spike",
    "spikes", "uniform_rotation", "weak_spike", "weak_spikes",
]  # fmt: skip
