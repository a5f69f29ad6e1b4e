"""Ball arithmetic: enclosures of all values that a model may compute in its float type.

A ball (arb of python-flint, 128 bits) is a center and a radius. Operations on balls add their own
rounding to the radius. This module adds the model's rounding for each step of model.py and checks
that every intermediate value is finite in the model's type. A failed check raises NotProvable.
"""

import functools
import itertools
import math
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...core import backend
from ...core.model import Model

# checker.require_flint raises an error if python-flint is missing
flint: Any = import_module("flint") if find_spec("flint") else None
arb: Any = flint and flint.arb
Ball: TypeAlias = Any
Balls: TypeAlias = list[Ball]
UNIT: Ball = arb and arb(0, 1)  # [−1, 1]
ZERO: Ball = arb and arb(0)
CURVE_PIECES = 16  # number of pieces of a wide activation range
COVERED_CONFIG = {
    "mask": ("causal",),
    "norm": ("layer", "rms", "none"),
    "activation": ("relu", "gelu", "gelu_new", "silu"),
    "positions": ("learned", "none", "sinusoidal", "rotary", "alibi"),
}
# config fields that the checker uses; all others must have a covered value or their default
COMPUTED_FIELDS = {
    "d_vocab", "n_ctx", "d_model", "n_layers", "n_heads", "d_head", "d_mlp", "norm_first", "eps",
    "base", "slope", "scale", "qk_norm", "tied",
}  # fmt: skip
COVERED_ARRAYS = (
    "embed.W_E",
    "pos_embed.W_pos",
    "ln_final.w",
    "ln_final.b",
    "unembed.W_U",
    "unembed.b_U",
)
COVERED_BLOCK_ARRAYS = [
    *(f"{norm}.{x}" for norm in ("ln1", "ln2", "attn.q_norm", "attn.k_norm") for x in "wb"),
    *(f"attn.{x}_{kind}" for x in "Wb" for kind in "QKVO"),
    *(f"mlp.{x}_{kind}" for x in "Wb" for kind in ("in", "gate", "out")),
]


class NotProvable(Exception):
    """Error for a bound that could not be established."""


class NotCovered(NotProvable):
    """Error for a model or task that the checker has no method for."""


class InconclusiveBound(NotProvable):
    """Error for a bound that is too wide to decide a case."""


class Weight(NamedTuple):
    input_index: int
    ball: Ball
    size: Ball
    power_of_two: bool  # True if products with this weight are exact


Matrix: TypeAlias = list[list[Weight]]  # nonzero weights of each output


def symmetric_ball(r: Ball) -> Ball:
    """Return the ball [−|r|, |r|]."""
    return UNIT * r.abs_upper()


def sum_balls(balls: Any) -> Ball:
    return sum(balls, ZERO)


@dataclass
class BallRow:
    """Set of vectors (center + Σ coefficients·e) / divisor + offset, with unknowns e in [−1, 1]."""

    center: Balls
    coefficients: list[Balls]
    divisor: Ball = None
    offset: Balls | None = None

    def enclosures(self) -> Balls:
        out = list(self.center)
        for line in self.coefficients:
            out = [m + symmetric_ball(b) for m, b in zip(out, line, strict=True)]
        return BallRow(out, [], self.divisor, self.offset).divided().center

    @property
    def lines(self) -> list[Balls]:
        return [self.center, *self.coefficients]

    def divided(self) -> "BallRow":
        """Return the row with its divisor and offset applied."""
        mid, *by = self.center, *self.coefficients
        if self.divisor is not None:
            mid, *by = ([m / self.divisor for m in line] for line in (mid, *by))
        if self.offset is not None:
            mid = [m + p for m, p in zip(mid, self.offset, strict=True)]
        return BallRow(mid, by)


class BallFloatType:
    """Float type of the model: its range and bounds on the rounding of its operations, as balls."""

    def __init__(self, dtype: str) -> None:
        info = np.finfo(dtype)
        self.dtype, self.u, self.tiny = dtype, arb(2) ** -(info.nmant + 1), arb(float(info.tiny))
        self.max_value = arb(float(info.max)) / 2  # leaves room for rounding
        self.gamma = cache(lambda n: n * self.u / (1 - n * self.u))  # Higham's γ_n

    def from_float(self, x: float, label: str) -> Ball:
        """Return a float as a ball; subnormal numbers may be flushed to 0."""
        if not math.isfinite(x):
            raise NotProvable(f"{label} is not finite")
        if not backend.is_subnormal(x) and (not x or abs(x) >= self.tiny):
            return arb(x)
        return symmetric_ball(self.tiny)

    def config_value(self, value: float, label: str) -> Ball:
        """Return a ball that contains a config value, both exact and rounded to the float type."""
        with np.errstate(over="ignore"):
            rounded = float(np.dtype(self.dtype).type(float(value)))
        return self.from_float(rounded, label).union(arb(float(value)))

    def check_overflow(self, size: Ball, label: str) -> None:
        if not size.abs_upper() < self.max_value:
            raise NotProvable(f"{label} may overflow {self.dtype}")

    def rounding_error(self, size: Ball, n: int = 1) -> Ball:
        """Bound the error of n operations whose result is at most `size`."""
        return self.gamma(n) * size.abs_upper() + 4 * n * self.tiny

    def scaled_rounding_error(self, size: Ball, s: Ball) -> Ball:
        """Bound s times the error of an operation with result size/s. 0/s is exact."""
        return ZERO if size.is_zero() else self.rounding_error(size) + 4 * self.tiny * s.upper()

    def rounded(self, x: Ball) -> Ball:
        return x + symmetric_ball(self.rounding_error(x))

    def sum_error(self, terms: list[Weight], sizes: Balls, bias: Ball, label: str) -> Ball:
        """Bound the rounding error of a sum of products and a bias, in any order."""
        size = sum((t.size * sizes[t.input_index] for t in terms), bias.abs_upper())
        self.check_overflow(size, label)
        if not terms:
            return ZERO
        n = len(terms) + 1 - bias.is_zero() - all(t.power_of_two for t in terms)
        return self.rounding_error(size, n) + 4 * len(terms) * self.tiny

    def dot(self, a: Balls, b: Balls) -> Ball:
        """Enclose a sum of products as the model computes it, in any order."""
        live = [(x, y) for x, y in zip(a, b, strict=True) if not (x.is_zero() or y.is_zero())]
        size = sum_balls(x.abs_upper() * y.abs_upper() for x, y in live)
        return sum_balls(x * y for x, y in live) + symmetric_ball(
            self.rounding_error(size, len(live))
        )


def checked_weights(model: Model) -> dict[str, Any]:
    """Check config and weights and return the weights as NumPy arrays.

    Raises:
        NotCovered: A config field, array or dtype is not covered.
        NotProvable: A weight is not finite, subnormal or has another dtype.
    """
    c = model.config
    for field in fields(c):
        name, value = field.name, getattr(c, field.name)
        if name not in COMPUTED_FIELDS and value not in COVERED_CONFIG.get(name, (field.default,)):
            raise NotCovered(f"the independent checker does not cover {name}={value}")
    if model.dtype not in ("float64", "float32"):
        raise NotCovered(f"weights of {model.dtype} are not covered")
    layers = range(c.n_layers)
    covered = {f"blocks.{i}.{name}" for i in layers for name in COVERED_BLOCK_ARRAYS}
    if unknown := sorted(set(model.weights) - covered - set(COVERED_ARRAYS)):
        raise NotCovered(f"{', '.join(unknown)}: not covered")
    weights = {name: backend.to_numpy(w) for name, w in model.weights.items()}
    for name, w in weights.items():
        if str(w.dtype) != model.dtype:
            raise NotProvable(f"{name} is {w.dtype}, others {model.dtype}")
        if not np.isfinite(w).all():
            raise NotProvable(f"{name} is not finite")
        if backend.is_subnormal(w).any():
            raise NotProvable(f"{name} has subnormal numbers, which some machines flush to 0")
    return weights


class BallModel:
    """One-layer model in ball arithmetic. Its methods correspond to the steps of model.py."""

    def __init__(self, model: Model) -> None:
        self.c = c = model.config
        if c.n_layers != 1:
            raise NotCovered(f"the independent checker does not cover n_layers={c.n_layers}")
        self.weights = checked_weights(model)
        self.f = f = BallFloatType(model.dtype)
        self.options = {}
        for name in ("eps", "base", "slope"):
            self.options[name] = f.config_value(getattr(c, name), f"{name} in {f.dtype}")
        self.scale = f.config_value(c.scale or c.d_head**-0.5, f"scale in {f.dtype}")
        self.vector, self.matrix = cache(self._vector), cache(self._matrix)
        self.head_difference = cache(self._head_difference)

    def _array(self, name: str) -> Any:
        """Return a matrix [in, out] or a vector, transposed if the name ends with '."""
        W: Any = self.weights.get(name.removesuffix("'"))
        if W is not None and W.ndim == 3 and name.endswith("W_O"):  # [H,K,D]
            W = W.reshape(-1, self.c.d_model)
        elif W is not None and W.ndim == 3:  # [H,D,K] of W_Q, W_K, W_V
            W = W.swapaxes(0, 1).reshape(self.c.d_model, -1)
        return W.T if name.endswith("'") else W

    def _matrix(self, name: str) -> Matrix:
        out: Matrix = []
        for column in self._array(name).T.tolist():
            balls = [(i, arb(w), abs(math.frexp(w)[0]) == 0.5) for i, w in enumerate(column) if w]
            out.append([Weight(i, w, abs(w), easy) for i, w, easy in balls])
        return out

    def _vector(self, name: str) -> Balls | None:
        b = self._array(name)
        return None if b is None else [arb(x) for x in b.reshape(-1).tolist()]

    # ── operations ─────────────────────────────────────────────────────────────────────────────
    def linear(self, x: BallRow, name: str, b: Balls | None) -> BallRow:
        """Enclose x W + b as the model computes it. Products with 0 are exact."""
        f, inputs = self.f, x.enclosures()
        sizes, lines = [s.abs_upper() for s in inputs], [[] for _ in x.lines]  # type: Balls, list[Balls]
        for o, terms in enumerate(self.matrix(name)):
            bias = ZERO if b is None else b[o]
            live = [t for t in terms if not inputs[t.input_index].is_zero()]
            out = [sum_balls(t.ball * line[t.input_index] for t in live) for line in x.lines]
            out = out if x.divisor is None else [r / x.divisor for r in out]
            if x.offset is None:
                out[0] += bias
            else:
                out[0] += bias + sum_balls(t.ball * x.offset[t.input_index] for t in live)
            error = f.sum_error(live, sizes, bias, name)
            if live and len(live) - bias.is_zero() == 1:  # one addition: error relative to the sum
                products = sum_balls(
                    f.rounding_error(t.size * sizes[t.input_index], not t.power_of_two)
                    for t in live
                )
                addition = f.rounding_error(sum((r.abs_upper() for r in out), products))
                error = products + addition + 4 * f.tiny
            out[0] += symmetric_ball(error)
            for line, r in zip(lines, out, strict=True):
                line.append(r)
        return BallRow(lines[0], lines[1:])

    def norm(self, x: BallRow, name: str) -> BallRow:
        """Enclose a norm of a row. Sizes and errors are stored times the divisor of the norm.

        Equal numbers of the row stay equal, so their rounding errors share one unknown.
        """
        f, x = self.f, x.divided()
        if self.c.norm == "none":
            return x
        numbers, errors = x.enclosures(), [ZERO] * len(x.center)
        equal: dict[Any, list[int]] = {}
        for i, ball in enumerate(numbers):
            equal.setdefault(ball.man_exp() if ball.is_exact() else i, []).append(i)
        if self.c.norm == "layer" and not all(s.is_zero() for s in numbers):
            x, errors = self.subtract_mean(x, numbers, name)
            numbers = [y + symmetric_ball(e) for y, e in zip(x.enclosures(), errors, strict=True)]
        s, sizes = self.norm_divisor(numbers, name), [ball.abs_upper() for ball in numbers]
        for i, size in enumerate(sizes):
            f.check_overflow(size / s.lower(), f"{name}, divided")
            errors[i] += f.scaled_rounding_error(size, s)
        w, gain_errors = self.vector(f"{name}.w"), self.gain_and_bias_errors(sizes, s, name)
        mid, by = x.center, list(x.coefficients)
        if w is not None:
            mid, *by = [[m * g for m, g in zip(line, w, strict=True)] for line in (mid, *by)]
            errors = [e * g for e, g in zip(errors, w, strict=True)]
        for group in equal.values():
            if len(group) > 1 and not errors[group[0]].is_zero():
                by.append([errors[i].mid() if i in group else ZERO for i in range(len(mid))])
                for i in group:
                    errors[i] -= by[-1][i]
        terms = zip(mid, errors, gain_errors, strict=True)
        mid = [m + symmetric_ball(e) + symmetric_ball(g) for m, e, g in terms]
        return BallRow(mid, by, s, self.vector(f"{name}.b"))

    def subtract_mean(self, x: BallRow, numbers: Balls, name: str) -> tuple[BallRow, Balls]:
        """Return x minus its mean and the errors of the differences.

        The error of the mean is one unknown shared by all coordinates.
        """
        f, n, size = self.f, len(numbers), sum_balls(s.abs_upper() for s in numbers)
        f.check_overflow(size, f"{name}'s mean")
        mid, *by = [[m - sum_balls(line) / n for m in line] for line in x.lines]
        by.append([f.rounding_error(size / n, sum(not s.is_zero() for s in numbers))] * n)
        y = BallRow(mid, by)
        both = zip(numbers, y.enclosures(), strict=True)
        return y, [ZERO if s.is_zero() else f.rounding_error(z) for s, z in both]

    def norm_divisor(self, numbers: Balls, name: str) -> Ball:
        """Enclose sqrt(mean(x²) + eps) as the model computes it."""
        f, n = self.f, len(numbers)
        min_squares = sum_balls(s.abs_lower() ** 2 for s in numbers)
        squares = min_squares.union(sum_balls(s.abs_upper() ** 2 for s in numbers))
        f.check_overflow(squares, f"{name}'s sum of squares")
        variance = squares / n + self.options["eps"]
        f.check_overflow(variance, f"{name}'s variance")
        variance += symmetric_ball(f.rounding_error(variance, n + 2))
        s = f.rounded(variance.sqrt()) if variance > 0 else ZERO
        if not s > 0:
            raise NotProvable(f"{name} may divide by 0")
        return s

    def gain_and_bias_errors(self, sizes: Balls, s: Ball, name: str) -> Balls:
        """Bound the errors that a norm's gain and bias add to numbers of these sizes, times s."""
        f, w, b, errors = self.f, self.vector(f"{name}.w"), self.vector(f"{name}.b"), []
        for i, size in enumerate(sizes):
            error = ZERO
            if w is not None:
                size = size * (1 + f.gamma(1)) * abs(w[i])
                f.check_overflow(size / s.lower(), f"{name}, with its gain")
                error += f.scaled_rounding_error(size, s)
            if b is not None and not b[i].is_zero():
                size = size * (1 + f.gamma(2)) + abs(b[i]) * s.upper()
                f.check_overflow(size / s.lower(), f"{name}, with its bias")
                error += f.scaled_rounding_error(size, s)
            errors.append(error)
        return errors

    def add(self, x: BallRow, y: BallRow, label: str) -> BallRow:
        x, y = x.divided(), y.divided()
        lines = itertools.zip_longest(x.lines, y.lines, fillvalue=[ZERO] * len(x.center))
        mid, *by = [[p + q for p, q in zip(r, s, strict=True)] for r, s in lines]
        for i, (p, q) in enumerate(zip(x.enclosures(), y.enclosures(), strict=True)):
            self.f.check_overflow(p.abs_upper() + q.abs_upper(), label)
            if not (p.is_zero() or q.is_zero()):
                mid[i] += symmetric_ball(self.f.rounding_error(p + q))
        return BallRow(mid, by)

    def multiply(self, x: BallRow, y: BallRow) -> BallRow:
        """Enclose the elementwise product of two rows."""
        n_unknowns = max(len(x.coefficients), len(y.coefficients))
        out: list[Balls] = [[] for _ in range(1 + n_unknowns)]
        for i, (m, n) in enumerate(zip(x.center, y.center, strict=True)):
            p, q = ([line[i] for line in row.coefficients] for row in (x, y))
            wide = [sum_balls(b.abs_upper() for b in r) for r in (p, q)]
            size = (m.abs_upper() + wide[0]) * (n.abs_upper() + wide[1])
            self.f.check_overflow(size, "the gate's product")
            error = symmetric_ball(self.f.rounding_error(size))
            out[0].append(m * n + symmetric_ball(wide[0] * wide[1]) + error)
            pairs = itertools.zip_longest(p, q, fillvalue=ZERO)
            for line, (r, s) in zip(out[1:], pairs, strict=True):
                line.append(m * s + n * r)
        return BallRow(out[0], out[1:])

    def activate(self, x: BallRow) -> BallRow:
        """Enclose the activation by a line plus one unknown for the deviation from it."""
        kind, f, n = self.c.activation, self.f, len(x.center)
        slopes, rests = [], []
        for ball in x.enclosures():
            size = ball.abs_upper()
            if kind == "relu":
                slope, rest = bound_relu(ball)
            else:
                f.check_overflow(size**3 if kind == "gelu_new" else 2**24 * size, "the activation")
                slope, rest = bound_activation(kind, ball)
                rest += symmetric_ball(64 * f.rounding_error(size))
            slopes.append(slope)
            rests.append(rest)
        mid, *by = [[s * m for s, m in zip(slopes, line, strict=True)] for line in x.lines]
        for i, rest in enumerate(rests):
            mid[i] += rest.mid()
            if not rest.is_exact():
                by.append([rest.rad() if j == i else ZERO for j in range(n)])
        return BallRow(mid, by)

    # ── the model ──────────────────────────────────────────────────────────────────────────────
    def embed(self, token: int, position: int) -> BallRow:
        """Return the embedding of a token at a position, as the model computes it."""
        c, E = self.c, self.weights["embed.W_E"][token]
        numbers = [self.f.from_float(x, "the embedding") for x in E.tolist()]
        if c.positions == "learned":
            P = self.weights["pos_embed.W_pos"][position]
            with np.errstate(all="ignore"):
                total = (E + P).tolist()
            for i, x in enumerate(total):
                if E[i] != -P[i] and abs(x) < self.f.tiny:  # may be flushed to 0
                    numbers[i] = symmetric_ball(self.f.tiny)
                else:
                    numbers[i] = self.f.from_float(x, "the embedding")
        row = BallRow(numbers, [])
        if c.positions == "sinusoidal":
            table = [t for turn in self.sines_and_cosines(position, c.d_model // 2) for t in turn]
            row = self.add(row, BallRow(table, []), "the embedding")
        return row

    def sines_and_cosines(self, position: int, n: int) -> list[tuple[Ball, Ball]]:
        """Enclose the sines and cosines of a position's n angles as NumPy computes them."""
        with np.errstate(all="ignore"):
            angles = position * self.c.base ** (-np.arange(n) / max(n, 1))
        if not np.isfinite(angles).all():
            raise NotProvable("the angles of positions are not finite")
        off, exact_angles = UNIT * 2.0**-50, map(arb, angles.tolist())
        pairs = [(x.sin() + off, x.cos() + off) for x in exact_angles]
        if self.f.dtype == "float64":
            return pairs
        return [(self.f.rounded(s), self.f.rounded(t)) for s, t in pairs]

    def heads(self, x: BallRow, position: int, kind: str) -> list[Balls]:
        """Return Q, K or V of a position, [H][K], from the attention input x."""
        c, f, n, at = self.c, self.f, self.c.d_head // 2, "blocks.0.attn."
        flat = self.linear(x, f"{at}W_{kind}", self.vector(f"{at}b_{kind}")).enclosures()
        out = [flat[h * c.d_head : (h + 1) * c.d_head] for h in range(c.n_heads)]
        if kind != "V" and c.qk_norm:
            name = f"{at}{kind.lower()}_norm"
            out = [self.norm(BallRow(head, []), name).enclosures() for head in out]
        if kind != "V" and c.positions == "rotary":
            turns = self.sines_and_cosines(position, n)
            for head, (i, (sin, cos)) in itertools.product(out, enumerate(turns)):
                p, q = head[i], head[n + i]
                f.check_overflow(2 * (p.abs_upper() + q.abs_upper()), f"{kind}, turned")
                head[i], head[n + i] = f.dot([p, -q], [cos, sin]), f.dot([q, p], [cos, sin])
        return out

    def margin_after_attention(self, x: BallRow, correct: int) -> Ball:
        """Bound the smallest margin of the right token from the residual stream after attention."""
        norm_first, at = self.c.norm_first, "blocks.0.mlp."
        x = x if norm_first else self.norm(x, "blocks.0.ln1").divided()
        if f"{at}W_out" in self.weights:
            y = self.norm(x, "blocks.0.ln2") if norm_first else x
            post = self.activate(self.linear(y, f"{at}W_in", self.vector(f"{at}b_in")))
            if f"{at}W_gate" in self.weights:
                gate = self.linear(y, f"{at}W_gate", self.vector(f"{at}b_gate"))
                post = self.multiply(post, gate)
            output = self.linear(post, f"{at}W_out", self.vector(f"{at}b_out"))
            x = self.add(x, output, "the stream")
            x = x if norm_first else self.norm(x, "blocks.0.ln2").divided()
        return self.smallest_margin(self.norm(x, "ln_final") if norm_first else x, correct)

    def smallest_margin(self, x: BallRow, correct: int) -> Ball:
        """Bound the smallest margin by differences of the unembedding's columns."""
        sizes, U = [s.abs_upper() for s in x.enclosures()], self.matrix(self.head_name)
        b, margins = self.vector("unembed.b_U") or [ZERO] * len(U), []
        errors = [self.f.sum_error(terms, sizes, b[v], "a logit") for v, terms in enumerate(U)]
        for v in (v for v in range(len(U)) if v != correct):
            difference = self.head_difference(correct, v)
            value = sum_balls(d * x.center[i] for i, d in difference).lower()
            for line in x.coefficients:  # radii have only 30 bits, so coefficients are used
                value -= sum_balls(d * line[i] for i, d in difference).abs_upper()
            value = value.lower() if x.divisor is None else value.lower() / x.divisor
            offset = b[correct] - b[v]
            if x.offset is not None:
                offset += sum_balls(d * x.offset[i] for i, d in difference)
            value += offset
            margins.append((value - errors[correct] - errors[v]).lower())
        if not all(x.is_finite() for x in margins):
            raise NotProvable("a margin is not finite")
        return min_ball(margins)

    @property
    def head_name(self) -> str:
        return "embed.W_E'" if self.c.tied else "unembed.W_U"

    def _head_difference(self, correct: int, other: int) -> list[tuple[int, Ball]]:
        p, q = (
            {t.input_index: t.ball for t in self.matrix(self.head_name)[v]}
            for v in (correct, other)
        )
        difference = [(i, p.get(i, arb(0)) - q.get(i, arb(0))) for i in sorted(p | q)]
        return [(i, d) for i, d in difference if not d.is_zero()]


def min_ball(balls: Balls) -> Ball:
    return functools.reduce(lambda x, y: x.min(y), balls)


def max_ball(balls: Balls) -> Ball:
    return -min_ball([-b for b in balls])


def bound_relu(ball: Ball) -> tuple[Ball, Ball]:
    """Return a slope and a ball that contains relu(x) − slope·x for all x in a ball."""
    low, high = ZERO if ball >= 0 else ball.lower(), ZERO if ball <= 0 else ball.upper()
    slope = ZERO
    if not high.is_zero():
        slope = arb(1) if low.is_zero() else (high / (high - low)).mid()
    return slope, ZERO.union(-slope * low).union(high - slope * high)


def bound_activation(kind: str, ball: Ball) -> tuple[Ball, Ball]:
    """Return a slope and a ball that contains f(x) − slope·x for all x in a ball.

    Wide balls are cut into pieces; the mean value theorem bounds each.
    """
    slope, rests = activation_and_derivative(kind, ball.mid())[1].mid(), []
    n = CURVE_PIECES if ball.rad() > 0.001 else 1
    low, width = ball.lower(), (ball.upper() - ball.lower()) / n
    for j in range(n):
        piece = (low + j * width).union(low + (j + 1) * width)
        point = piece.mid()
        tilt = (activation_and_derivative(kind, piece)[1] - slope) * (piece - point)
        rests.append(activation_and_derivative(kind, point)[0] - slope * point + tilt)
    return slope, min_ball(rests).union(max_ball(rests))


def activation_and_derivative(kind: str, x: Ball) -> tuple[Ball, Ball]:
    """Return an activation function and its derivative at x, with the constants of model.py."""
    if kind == "gelu":
        area = (1 + (x / arb(2).sqrt()).erf()) / 2
        return x * area, area + x * (-x * x / 2).exp() / (2 * arb.pi()).sqrt()
    p, q = ((2 / math.pi) ** 0.5, 0.044715) if kind == "gelu_new" else (0.5, 0.0)
    t = (p * (x + q * x * x * x)).tanh()
    return x * (1 + t) / 2, (1 + t) / 2 + x * (1 - t * t) / 2 * p * (1 + 3 * q * x * x)
