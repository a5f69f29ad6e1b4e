"""Neurons of a ReLU layer that compute tables of numbers exactly, or erase a slot.

Every function returns Neurons, a small network that unpacks as W_in, b_in, W_out, b_out.
`Neurons.in_stream` connects it to slots of the stream, and `Neurons.write` copies it into the
weights of a layer.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..utils.errors import GlassformerError
from .norms import Floats


class Neurons(NamedTuple):
    """ReLU network relu(x @ W_in + b_in) @ W_out + b_out: [in,F], [F], [F,out], [out]."""

    W_in: Floats
    b_in: Floats
    W_out: Floats
    b_out: Floats

    def __call__(self, x: npt.ArrayLike) -> Floats:
        """Return the output [..., out] for an input x [..., in]."""
        out: Floats = np.maximum(np.asarray(x) @ self.W_in + self.b_in, 0) @ self.W_out + self.b_out
        return out

    def in_stream(self, source: slice, target: slice, d_model: int) -> "Neurons":
        """Return the same neurons with slot `source` as input and slot `target` as output."""
        W_in, W_out = np.zeros((d_model, len(self.b_in))), np.zeros((len(self.b_in), d_model))
        b_out = np.zeros(d_model)
        W_in[source], W_out[:, target], b_out[target] = self.W_in, self.W_out, self.b_out
        return Neurons(W_in, self.b_in, W_out, b_out)

    def combine(self, other: "Neurons") -> "Neurons":
        """Concatenate two groups of neurons on the same stream, whose outputs add."""
        W_in, b_in = np.hstack([self.W_in, other.W_in]), np.append(self.b_in, other.b_in)
        return Neurons(W_in, b_in, np.vstack([self.W_out, other.W_out]), self.b_out + other.b_out)

    def write(self, weights: dict[str, Floats], layer: int) -> None:
        """Write the neurons into `weights` as the MLP of a layer."""
        for name, array in self._asdict().items():
            weights[f"blocks.{layer}.mlp.{name}"] = array


def polyline(x: npt.ArrayLike, y: npt.ArrayLike) -> Neurons:
    """Return n − 1 neurons with f(x_i) = y_i for n distinct numbers x; y has shape [n] or [n, out].

    f is the polyline through the points (exercise 6.4). b_out is the value y_c at the middle point
    x_c. Right of x_c, neuron relu(x − x_j) changes the slope at x_j; left of x_c, relu(x_j − x)
    does. Starting in the middle halves the number of changes that add up at the outermost points.

    Accuracy: a slope is (y step)/(x step), so canceling terms are up to (step of y)·(range/least
    step of x), and the error is about n·1e-16 times that. For evenly spaced x and y from 0 to 9 it
    is 1e-13 with 20 points, 1e-10 with 2,000 and 1e-9 with 20,000. Consecutive integers are exact.
    Input weights are ±1, so that x − x_j loses no precision.
    """
    x, y = _points(x, y)
    middle = len(x) // 2
    slopes = np.diff(y, axis=0) / np.diff(x)[:, None]  # n−1 out
    # Slope changes on both sides of the middle. Toward the left, a slope s rises by −s.
    right = np.diff(slopes[middle:], axis=0, prepend=0.0)
    left = np.diff(-slopes[:middle][::-1], axis=0, prepend=0.0)
    signs = np.repeat([1.0, -1.0], [len(right), len(left)])
    knots = np.append(x[middle:-1], x[1 : middle + 1][::-1])
    return Neurons(signs[None], -signs * knots, np.concatenate([right, left]), y[middle])


def spike(at: float = 0.0, value: npt.ArrayLike = 1.0, width: float = 1.0) -> Neurons:
    """Return 3 neurons that output `value` at the number `at`, and 0 outside at ± width."""
    return _tents(np.array([at]), np.atleast_2d(value), width, (0, 1, -1), (-2, 1, 1))


def spikes(x: npt.ArrayLike, y: npt.ArrayLike) -> Neurons:
    """Return 3n neurons with f(x_i) = y_i: spikes as wide as the least distance (theorem 6.1).

    Outside the spikes f is 0 in exact arithmetic. In floating point the error is about (r/w)·1e-16
    of the value at distance r from a spike of width w, so keep range/least distance below 1e9.
    `polyline` needs fewer neurons.
    """
    x, y = _points(x, y, keep_order=True)
    return _tents(x, y, _least_step(x), (0, 1, -1), (-2, 1, 1))


def weak_spike(at: float = 0.0, value: npt.ArrayLike = 1.0, width: float = 1.0) -> Neurons:
    """Return 2 neurons: value·(relu(t + 1) − 2 relu(t)), t = (x − at)/width (exercise 6.5).

    The output is `value` at `at`, 0 for t ≤ −1, and has the opposite sign for t > 1. This is enough
    for argmax.
    """
    return _tents(np.array([at]), np.atleast_2d(value), width, (1, 0), (1, -2))


def weak_spikes(x: npt.ArrayLike) -> Neurons:
    """Return 2n neurons whose output i is 1 at x_i and at most 0 at other points."""
    x, y = _points(x, np.eye(np.size(x)), keep_order=True)
    return _tents(x, y, _least_step(x), (1, 0), (1, -2))


def eraser(width: int, bound: float | None = None) -> Neurons:
    """Return neurons that output −x (*proper cleanup*), exact where the norm keeps the stream.

    With `bound` ≥ −min(x), there is one neuron relu(x + bound) per number, with an error of
    bound·1e-16. Without `bound` there are two neurons per number, −relu(x) + relu(−x), which is
    exact.
    """
    eye = np.eye(width)
    if bound is None:
        both = Neurons(eye, np.zeros(width), -eye, np.zeros(width))
        return both.combine(Neurons(-eye, np.zeros(width), eye, np.zeros(width)))
    return Neurons(eye, np.full(width, float(bound)), -eye, np.full(width, float(bound)))


def _tents(
    x: Floats, y: Floats, width: float, offsets: tuple[int, ...], heights: tuple[int, ...]
) -> Neurons:
    """Return neurons relu((x − x_i)/width + offset) with output weights heights·y_i."""
    b_in = (np.array(offsets) - x[:, None] / width).ravel()  # F
    W_out = (np.array(heights, dtype=float)[:, None] * y[:, None]).reshape(-1, y.shape[-1])  # F out
    return Neurons(np.full((1, len(b_in)), 1 / width), b_in, W_out, np.zeros(y.shape[-1]))


def _points(x: npt.ArrayLike, y: npt.ArrayLike, keep_order: bool = False) -> tuple[Floats, Floats]:
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    y = y[:, None] if y.ndim == 1 else y
    order = np.argsort(x)
    if x.ndim != 1 or len(x) < 1 or len(y) != len(x) or not np.all(np.diff(x[order]) > 0):
        repeats = " with repeated numbers" if x.ndim == 1 and len(np.unique(x)) < len(x) else ""
        got = f"shapes {x.shape} and {y.shape}{repeats}"
        raise GlassformerError(f"neurons: expected n distinct numbers and n values, got {got}")
    return (x, y) if keep_order else (x[order], y[order])


def _least_step(x: Floats) -> float:
    return float(np.min(np.diff(np.sort(x)))) if len(x) > 1 else 1.0
