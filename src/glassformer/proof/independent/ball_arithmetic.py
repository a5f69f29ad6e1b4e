"""The second checker's arithmetic: what a model may compute in its float type, held in balls.

A ball (arb of python-flint, 128 bits) has a centre and a radius, and what is done to balls gives a
ball that holds the result: the checker's own rounding is in the radius. The model's rounding is put
there by this file, step by step as in model.py, and every number on the way is shown to be finite
in the model's type. What cannot be shown raises NotProvable.
"""

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

# check_independently says so if it is missing
flint: Any = import_module("flint") if find_spec("flint") else None
arb: Any = flint and flint.arb
Ball: TypeAlias = Any
Balls: TypeAlias = list[Ball]
UNIT: Ball = arb and arb(0, 1)  # all numbers from −1 to 1
ZERO: Ball = arb and arb(0)
PIECES = 16  # of the range of a curved activation, where it is wide
COVERED = {
    "n_layers": (1,), "mask": ("causal",), "norm": ("layer", "rms", "none"),
    "activation": ("relu", "gelu", "gelu_new", "silu"),
    "positions": ("learned", "none", "sinusoidal", "rotary", "alibi"),
}  # fmt: skip
# Fields of the config that are computed with, or checked elsewhere; others are at their defaults.
READ = {
    "d_vocab", "n_ctx", "d_model", "n_heads", "d_head", "d_mlp", "norm_first", "eps", "base",
    "slope", "scale", "qk_norm", "tied",
}  # fmt: skip
ARRAYS = {
    "": "embed.W_E pos_embed.W_pos ln_final.w ln_final.b unembed.W_U unembed.b_U",
    "blocks.0.": "ln1.w ln1.b ln2.w ln2.b",
    "blocks.0.mlp.": "W_in b_in W_gate b_gate W_out b_out",
    "blocks.0.attn.": "W_Q b_Q W_K b_K W_V b_V W_O b_O q_norm.w q_norm.b k_norm.w k_norm.b",
}


class NotProvable(Exception):
    """A bound could not be established."""


class NotCovered(NotProvable):
    """A model or a task that a checker has no method for."""


class TooWide(NotProvable):
    """A bound that is too wide to decide, of numbers that are all in order."""


class Weight(NamedTuple):
    at: int  # which number of the row it multiplies
    ball: Ball
    size: Ball
    easy: bool  # a power of two: the product does not round


Matrix: TypeAlias = list[list[Weight]]  # a list for each output; zeros are left out


def within(r: Ball) -> Ball:
    """All numbers from −|r| to |r|."""
    return UNIT * r.abs_upper()


def total(balls: Any) -> Ball:
    return sum(balls, ZERO)


@dataclass
class Row:
    """One position: (mid + Σ by·unknown) / over + plus. A row shares unknowns, each within ±1."""

    mid: Balls
    by: list[Balls]
    over: Ball = None
    plus: Balls | None = None

    def balls(self) -> Balls:
        out = list(self.mid)
        for line in self.by:
            out = [m + within(b) for m, b in zip(out, line, strict=True)]
        return Row(out, [], self.over, self.plus).settled().mid

    def settled(self) -> "Row":
        """The same, divided and added."""
        mid, *by = self.mid, *self.by
        if self.over is not None:
            mid, *by = ([m / self.over for m in line] for line in (mid, *by))
        if self.plus is not None:
            mid = [m + p for m, p in zip(mid, self.plus, strict=True)]
        return Row(mid, by)


class Floats:
    """The model's float type: what its operations may be off by, and how far it reaches."""

    def __init__(self, dtype: str) -> None:
        info = np.finfo(dtype)
        self.dtype, self.u, self.tiny = dtype, arb(2) ** -(info.nmant + 1), arb(float(info.tiny))
        self.most = arb(float(info.max)) / 2  # with room for what rounding adds
        self.off = cache(lambda n: n * self.u / (1 - n * self.u))  # n roundings, of the result

    def known(self, x: float, what: str) -> Ball:
        """A float that is there. One below the smallest normal number may count as 0."""
        if not math.isfinite(x):
            raise NotProvable(f"{what} is not finite")
        if not backend.subnormal(x) and (not x or abs(x) >= self.tiny):
            return arb(x)
        return within(self.tiny)

    def option(self, value: float, what: str) -> Ball:
        """A number of the config, as it is and as the type has it."""
        with np.errstate(over="ignore"):
            rounded = float(np.dtype(self.dtype).type(float(value)))
        return self.known(rounded, what).union(arb(float(value)))

    def fit(self, size: Ball, what: str) -> None:
        if not size.abs_upper() < self.most:
            raise NotProvable(f"{what} may overflow {self.dtype}")

    def error(self, size: Ball, n: int = 1) -> Ball:
        """What n operations on numbers of this size may be off by."""
        return self.off(n) * size.abs_upper() + 4 * n * self.tiny

    def error_over(self, size: Ball, s: Ball) -> Ball:
        """What an operation that gives size/s may be off by, times s. 0/s is exact."""
        return ZERO if size.is_zero() else self.error(size) + 4 * self.tiny * s.upper()

    def rounded(self, x: Ball) -> Ball:
        return x + within(self.error(x))

    def sum_error(self, live: list[Weight], sizes: Balls, bias: Ball, what: str) -> Ball:
        """What a sum of products and a bias may be off by, added in any order."""
        size = sum((t.size * sizes[t.at] for t in live), bias.abs_upper())
        self.fit(size, what)
        if not live:
            return ZERO
        n = len(live) + 1 - bias.is_zero() - all(t.easy for t in live)
        return self.error(size, n) + 4 * len(live) * self.tiny

    def dot(self, a: Balls, b: Balls) -> Ball:
        """A sum of products as computed, in any order."""
        live = [(x, y) for x, y in zip(a, b, strict=True) if not (x.is_zero() or y.is_zero())]
        size = total(x.abs_upper() * y.abs_upper() for x, y in live)
        return total(x * y for x, y in live) + within(self.error(size, len(live)))


class BallModel:
    """A one-layer model as balls. Its methods follow model.py."""

    def __init__(self, model: Model) -> None:
        self.c = c = model.config
        for field in fields(c):
            value = getattr(c, field.name)
            if value not in COVERED.get(field.name, (field.default,)) and field.name not in READ:
                raise NotCovered(f"the second checker does not cover {field.name}={value}")
        if model.dtype not in ("float64", "float32"):
            raise NotCovered(f"weights of {model.dtype} are not covered")
        self.weights = weights = {name: backend.numpy(w) for name, w in model.weights.items()}
        known = {at + name for at, names in ARRAYS.items() for name in names.split()}
        if unknown := sorted(set(weights) - known):
            raise NotCovered(f"{', '.join(unknown)}: not covered")
        self.f = f = Floats(model.dtype)
        for name, w in weights.items():
            if str(w.dtype) != model.dtype:
                raise NotProvable(f"{name} is {w.dtype}, others {model.dtype}")
            if not np.isfinite(w).all():
                raise NotProvable(f"{name} is not finite")
            if backend.subnormal(w).any():
                small = "numbers below the smallest normal one"
                raise NotProvable(f"{name} has {small}, which some machines take for 0")
        self.options = {}
        for name in ("eps", "base", "slope"):
            self.options[name] = f.option(getattr(c, name), f"{name} in {f.dtype}")
        self.scale = f.option(c.scale or c.d_head**-0.5, f"scale in {f.dtype}")
        self.vector, self.matrix = cache(self._vector), cache(self._matrix)
        self.leading = cache(self._leading)

    def _array(self, name: str) -> Any:
        """A matrix [in, out] or a vector; a final ' is for one that is turned."""
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

    # ── steps ──────────────────────────────────────────────────────────────────────────────────
    def linear(self, x: Row, name: str, b: Balls | None) -> Row:
        """x W + b. Zeros add nothing and round nothing."""
        f, seen = self.f, x.balls()
        sizes, rows = [s.abs_upper() for s in seen], [[] for _ in range(1 + len(x.by))]  # type: Balls, list[Balls]
        for o, terms in enumerate(self.matrix(name)):
            bias, live = ZERO if b is None else b[o], [t for t in terms if not seen[t.at].is_zero()]
            out = [total(t.ball * line[t.at] for t in live) for line in (x.mid, *x.by)]
            out = out if x.over is None else [r / x.over for r in out]
            out[0] += bias if x.plus is None else bias + total(t.ball * x.plus[t.at] for t in live)
            error = f.sum_error(live, sizes, bias, name)
            if live and len(live) - bias.is_zero() == 1:  # one addition is off by a part of it
                products = total(f.error(t.size * sizes[t.at], not t.easy) for t in live)
                error = products + f.error(sum((r.abs_upper() for r in out), products)) + 4 * f.tiny
            out[0] += within(error)
            for line, r in zip(rows, out, strict=True):
                line.append(r)
        return Row(rows[0], rows[1:])

    def norm(self, x: Row, name: str) -> Row:
        """A row over one divisor. Numbers of the row that are equal stay equal, so what rounding
        does to them is one unknown. Sizes and errors are those of the quotient, times its divisor.
        """
        f, x = self.f, x.settled()
        if self.c.norm == "none":
            return x
        seen, off = x.balls(), [ZERO] * len(x.mid)
        equal: dict[Any, list[int]] = {}
        for i, ball in enumerate(seen):
            equal.setdefault(ball.man_exp() if ball.is_exact() else i, []).append(i)
        if self.c.norm == "layer" and not all(s.is_zero() for s in seen):
            x, off = self.centred(x, seen, name)
            seen = [y + within(e) for y, e in zip(x.balls(), off, strict=True)]
        s, sizes = self.divisor(seen, name), [ball.abs_upper() for ball in seen]
        for i, size in enumerate(sizes):
            f.fit(size / s.lower(), f"{name}, divided")
            off[i] += f.error_over(size, s)
        w, own = self.vector(f"{name}.w"), self.gained(sizes, s, name)
        mid, by = x.mid, list(x.by)
        if w is not None:
            mid, *by = [[m * g for m, g in zip(line, w, strict=True)] for line in (mid, *by)]
            off = [e * g for e, g in zip(off, w, strict=True)]
        for group in equal.values():
            if len(group) > 1 and not off[group[0]].is_zero():
                by.append([off[i].mid() if i in group else ZERO for i in range(len(mid))])
                for i in group:
                    off[i] -= by[-1][i]
        mid = [m + within(e) + within(o) for m, e, o in zip(mid, off, own, strict=True)]
        return Row(mid, by, s, self.vector(f"{name}.b"))

    def centred(self, x: Row, seen: Balls, name: str) -> tuple[Row, Balls]:
        """x less its mean, off alike for all, and what a difference is off by. 0 − y is exact."""
        f, n, size = self.f, len(seen), total(s.abs_upper() for s in seen)
        f.fit(size, f"{name}'s mean")
        mid, *by = [[m - total(line) / n for m in line] for line in (x.mid, *x.by)]
        by.append([f.error(size / n, sum(not s.is_zero() for s in seen))] * n)
        y = Row(mid, by)
        both = zip(seen, y.balls(), strict=True)
        return y, [ZERO if s.is_zero() else f.error(z) for s, z in both]

    def divisor(self, seen: Balls, name: str) -> Ball:
        """The root of the mean square and eps."""
        f, n = self.f, len(seen)
        least = total(s.abs_lower() ** 2 for s in seen)
        squares = least.union(total(s.abs_upper() ** 2 for s in seen))
        f.fit(squares, f"{name}'s sum of squares")
        variance = squares / n + self.options["eps"]
        f.fit(variance, f"{name}'s variance")
        variance += within(f.error(variance, n + 2))
        s = f.rounded(variance.sqrt()) if variance > 0 else ZERO
        if not s > 0:
            raise NotProvable(f"{name} may divide by 0")
        return s

    def gained(self, sizes: Balls, s: Ball, name: str) -> Balls:
        """What a norm's gain and bias round off numbers of these sizes over s."""
        f, w, b, out = self.f, self.vector(f"{name}.w"), self.vector(f"{name}.b"), []
        for i, size in enumerate(sizes):
            off = ZERO
            if w is not None:
                size = size * (1 + f.off(1)) * abs(w[i])
                f.fit(size / s.lower(), f"{name}, with its gain")
                off += f.error_over(size, s)
            if b is not None and not b[i].is_zero():
                size = size * (1 + f.off(2)) + abs(b[i]) * s.upper()
                f.fit(size / s.lower(), f"{name}, with its bias")
                off += f.error_over(size, s)
            out.append(off)
        return out

    def add(self, x: Row, y: Row, what: str) -> Row:
        x, y = x.settled(), y.settled()
        zeros, many = [ZERO] * len(x.mid), max(len(x.by), len(y.by))
        lines = zip(*([r.mid, *r.by, *[zeros] * (many - len(r.by))] for r in (x, y)), strict=True)
        mid, *by = [[p + q for p, q in zip(r, s, strict=True)] for r, s in lines]
        for i, (p, q) in enumerate(zip(x.balls(), y.balls(), strict=True)):
            self.f.fit(p.abs_upper() + q.abs_upper(), what)
            if not (p.is_zero() or q.is_zero()):
                mid[i] += within(self.f.error(p + q))
        return Row(mid, by)

    def times(self, x: Row, y: Row) -> Row:
        """Number by number."""
        many = max(len(x.by), len(y.by))
        out: list[Balls] = [[] for _ in range(1 + many)]
        for i, (m, n) in enumerate(zip(x.mid, y.mid, strict=True)):
            p, q = ([line[i] for line in r.by] + [ZERO] * (many - len(r.by)) for r in (x, y))
            wide = [total(b.abs_upper() for b in r) for r in (p, q)]
            size = (m.abs_upper() + wide[0]) * (n.abs_upper() + wide[1])
            self.f.fit(size, "the gate's product")
            out[0].append(m * n + within(wide[0] * wide[1]) + within(self.f.error(size)))
            for line, r, s in zip(out[1:], p, q, strict=True):
                line.append(m * s + n * r)
        return Row(out[0], out[1:])

    def activated(self, x: Row) -> Row:
        """A slope, and an unknown of its own for what the activation is away from it."""
        kind, f, n = self.c.activation, self.f, len(x.mid)
        slopes, rests = [], []
        for ball in x.balls():
            size = ball.abs_upper()
            if kind == "relu":
                slope, rest = chord(ball)
            else:
                f.fit(size**3 if kind == "gelu_new" else 2**24 * size, "the activation")
                slope, rest = curve(kind, ball)
                rest += within(64 * f.error(size))
            slopes.append(slope)
            rests.append(rest)
        mid, *by = [[s * m for s, m in zip(slopes, line, strict=True)] for line in (x.mid, *x.by)]
        for i, rest in enumerate(rests):
            mid[i] += rest.mid()
            if not rest.is_exact():
                by.append([rest.rad() if j == i else ZERO for j in range(n)])
        return Row(mid, by)

    # ── the model ──────────────────────────────────────────────────────────────────────────────
    def embedded(self, token: int, position: int) -> Row:
        """One addition of two floats that are known is a float that is known."""
        c, E = self.c, self.weights["embed.W_E"][token]
        numbers = [self.f.known(x, "the embedding") for x in E.tolist()]
        if c.positions == "learned":
            P = self.weights["pos_embed.W_pos"][position]
            with np.errstate(all="ignore"):
                total = (E + P).tolist()
            for i, x in enumerate(total):  # an underflowing value may be 0 here
                lost = E[i] != -P[i] and abs(x) < self.f.tiny
                numbers[i] = within(self.f.tiny) if lost else self.f.known(x, "the embedding")
        row = Row(numbers, [])
        if c.positions == "sinusoidal":
            table = [t for turn in self.turns(position, c.d_model // 2) for t in turn]
            row = self.add(row, Row(table, []), "the embedding")
        return row

    def turns(self, position: int, n: int) -> list[tuple[Ball, Ball]]:
        """Sines and cosines, of angles as NumPy rounds them."""
        with np.errstate(all="ignore"):
            angles = position * self.c.base ** (-np.arange(n) / max(n, 1))
        if not np.isfinite(angles).all():
            raise NotProvable("the angles of positions are not finite")
        off, exact = UNIT * 2.0**-50, map(arb, angles.tolist())
        near = [(x.sin() + off, x.cos() + off) for x in exact]
        if self.f.dtype == "float64":
            return near
        return [(self.f.rounded(s), self.f.rounded(t)) for s, t in near]

    def heads(self, x: Row, position: int, kind: str) -> list[Balls]:
        """Q, K or V of a position, [H][K]. x is what attention reads."""
        c, f, n, at = self.c, self.f, self.c.d_head // 2, "blocks.0.attn."
        flat = self.linear(x, f"{at}W_{kind}", self.vector(f"{at}b_{kind}")).balls()
        out = [flat[h * c.d_head : (h + 1) * c.d_head] for h in range(c.n_heads)]
        if kind != "V" and c.qk_norm:
            name = f"{at}{kind.lower()}_norm"
            out = [self.norm(Row(head, []), name).balls() for head in out]
        if kind != "V" and c.positions == "rotary":
            turns = self.turns(position, n)
            for head, (i, (sin, cos)) in itertools.product(out, enumerate(turns)):
                p, q = head[i], head[n + i]
                f.fit(2 * (p.abs_upper() + q.abs_upper()), f"{kind}, turned")
                head[i], head[n + i] = f.dot([p, -q], [cos, sin]), f.dot([q, p], [cos, sin])
        return out

    def lead(self, x: Row, right: int) -> Ball:
        """The stream after attention and its sum -> the right token's least lead over any other."""
        first, at = self.c.norm_first, "blocks.0.mlp."
        x = x if first else self.norm(x, "blocks.0.ln1").settled()
        if f"{at}W_out" in self.weights:
            y = self.norm(x, "blocks.0.ln2") if first else x
            post = self.activated(self.linear(y, f"{at}W_in", self.vector(f"{at}b_in")))
            if f"{at}W_gate" in self.weights:
                gate = self.linear(y, f"{at}W_gate", self.vector(f"{at}b_gate"))
                post = self.times(post, gate)
            written = self.linear(post, f"{at}W_out", self.vector(f"{at}b_out"))
            x = self.add(x, written, "the stream")
            x = x if first else self.norm(x, "blocks.0.ln2").settled()
        return self.least(self.norm(x, "ln_final") if first else x, right)

    def least(self, x: Row, right: int) -> Ball:
        """A lead is a difference of logits: what the norm divides, over its divisor, and more."""
        sizes, U = [s.abs_upper() for s in x.balls()], self.matrix(self.head)
        b, leads = self.vector("unembed.b_U") or [ZERO] * len(U), []
        off = [self.f.sum_error(terms, sizes, b[v], "a logit") for v, terms in enumerate(U)]
        for v in (v for v in range(len(U)) if v != right):
            apart = self.leading(right, v)
            value = total(d * x.mid[i] for i, d in apart).lower()
            for line in x.by:  # a radius has 30 bits: too few for what is wide
                value -= total(d * line[i] for i, d in apart).abs_upper()
            value = value.lower() if x.over is None else value.lower() / x.over
            more = b[right] - b[v]
            if x.plus is not None:
                more += total(d * x.plus[i] for i, d in apart)
            value += more
            leads.append((value - off[right] - off[v]).lower())
        if not all(x.is_finite() for x in leads):
            raise NotProvable("a lead is not finite")
        return smallest(leads)

    @property
    def head(self) -> str:
        return "embed.W_E'" if self.c.tied else "unembed.W_U"

    def _leading(self, right: int, other: int) -> list[tuple[int, Ball]]:
        p, q = ({t.at: t.ball for t in self.matrix(self.head)[v]} for v in (right, other))
        apart = [(i, p.get(i, arb(0)) - q.get(i, arb(0))) for i in sorted(p | q)]
        return [(i, d) for i, d in apart if not d.is_zero()]


def smallest(balls: Balls) -> Ball:
    out = balls[0]
    for b in balls[1:]:
        out = out.min(b)
    return out


def largest(balls: Balls) -> Ball:
    return -smallest([-b for b in balls])


def chord(ball: Ball) -> tuple[Ball, Ball]:
    """A slope, and a ball that holds relu(x) − slope·x: linear between low, 0 and high."""
    low, high = ZERO if ball >= 0 else ball.lower(), ZERO if ball <= 0 else ball.upper()
    if high.is_zero():
        slope = ZERO
    else:
        slope = arb(1) if low.is_zero() else (high / (high - low)).mid()
    return slope, ZERO.union(-slope * low).union(high - slope * high)


def curve(kind: str, ball: Ball) -> tuple[Ball, Ball]:
    """A slope, and a ball that holds f(x) − slope·x on a ball: the mean value theorem on pieces."""
    slope, rests = activation(kind, ball.mid())[1].mid(), []
    n = PIECES if ball.rad() > 0.001 else 1
    low, width = ball.lower(), (ball.upper() - ball.lower()) / n
    for j in range(n):
        piece = (low + j * width).union(low + (j + 1) * width)
        at = piece.mid()
        tilt = (activation(kind, piece)[1] - slope) * (piece - at)
        rests.append(activation(kind, at)[0] - slope * at + tilt)
    return slope, smallest(rests).union(largest(rests))


def activation(kind: str, x: Ball) -> tuple[Ball, Ball]:
    """An activation and its derivative, with the constants that model.py has."""
    if kind == "gelu":
        area = (1 + (x / arb(2).sqrt()).erf()) / 2
        return x * area, area + x * (-x * x / 2).exp() / (2 * arb.pi()).sqrt()
    p, q = ((2 / math.pi) ** 0.5, 0.044715) if kind == "gelu_new" else (0.5, 0.0)
    t = (p * (x + q * x * x * x)).tanh()
    return x * (1 + t) / 2, (1 + t) / 2 + x * (1 - t * t) / 2 * p * (1 + 3 * q * x * x)
