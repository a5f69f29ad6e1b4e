"""The certificate checker: an induction over the sublayers of a compiled model.

The claim is that every slot holds the code of the value that the interpreter computes. The inputs
are a model, the program as it was read, and a declaration by the compiler: a simplified program,
the slot, code and sublayer of each of its values, and the slots where heads write averages for
neurons. The checker trusts none of it: equivalence.py compares the programs, reads and writes are
derived from the nonzero weights, and undeclared writes are rejected. <bos> attends only to itself,
so its row is one known vector. At every other position:

    embedding   every token at every position gives the codes of its values
    heads       a better match leads by a gap, ties differ by little: the right value is copied
    neurons     every combination of the values they read gives the code of the result
    logits      the token of every value of `emit` leads

Each step checks finitely many cases and passes its error bounds to the next step.

Trusted: the parser (frontend/), the meaning of a program (ir.py, interpreter.py), joint_domains.py
(no combination is missing), this package, NumPy, and the float model (floats.py). No compiler pass
is trusted. The certificate claims nothing about inputs that the interpreter rejects.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core import backend
from ...core.model import Model
from ...utils.errors import GlassformerError, short_repr
from ...utils.progress import Progress, ProgressCallback
from ..ir import Position, Program, ThresholdCount, Token, Value
from ..joint_domains import JointCases, case_count, joint_cases
from .equivalence import check_equivalent
from .floats import (
    MAX_NUMBER,
    NORM_ROUNDINGS,
    UNDERFLOW,
    UNIT_ROUNDOFF,
    WIDEN,
    NormedRow,
    RoundingBounds,
    TooManyCases,
    Unproved,
)

MAX_WORK = 300_000_000  # limit for query-key pairs plus cases times neurons, a few seconds
MAX_NORM_GAIN = 2.0**20  # with larger gains underflow could exceed UNDERFLOW
MAX_CODE_NUMBER = 1e15  # squares and sums of smaller numbers are far below overflow


@dataclass(frozen=True)
class Declaration:
    """The compiler's claims about a model. The checker verifies all of them."""

    program: Program  # the simplified program, whose values are in the stream
    replacements: Mapping[Value, Value]  # value of the program as read -> simplified value
    codes: Mapping[Value, Any]  # [members, width]
    sublayers: Mapping[Value, int]  # 0 for the embedding, 2l+1 for heads, 2l+2 for neurons
    slots: Mapping[Value, slice]
    average_slots: Mapping[
        ThresholdCount, slice
    ]  # slots where heads write averages for the MLP of their layer


@dataclass
class Certificate:
    """The results of the checks. Every dict maps value names to results."""

    dtype: str
    margin: float = np.inf  # smallest lead of the correct logit
    cases: int = 0
    work: int = 0  # number of enumerated cases and operations of equal cost
    slot_error: dict[str, float] = field(default_factory=dict)  # largest error in each slot
    notes: dict[str, str] = field(default_factory=dict)  # description of each value's proof
    slack: dict[str, float] = field(default_factory=dict)  # unused share of the bound, 0 to 1
    score_gap: dict[str, float] = field(default_factory=dict)  # smallest lead of the correct key
    score_spread: dict[str, float] = field(default_factory=dict)  # largest difference of ties
    step_reach: dict[str, float] = field(default_factory=dict)  # reach of count steps; at least 1

    @property
    def tightest(self) -> str:
        return min(self.slack, key=lambda n: self.slack[n], default="")


def certify(
    model: Model,
    program: Program,
    declaration: Declaration,
    progress: ProgressCallback | None = None,
) -> Certificate:
    """Check that a compiled model emits the interpreter's output on every input sequence.

    Args:
        model: the compiled model, in float64 or float32.
        program: the program as it was read from the source.
        declaration: the compiler's claims, which are verified.
        progress: callback that receives the number of proved values and their total.

    Returns:
        The certificate.

    Raises:
        Unproved: a check fails; its `certificate` has the results up to that check.
    """
    certificate = Certificate(model.dtype)
    try:
        if program is not declaration.program:
            check_equivalent(program, declaration.program, declaration.replacements)
        with np.errstate(all="ignore"):
            return CertificateChecker(model, declaration, certificate, progress).check()
    except Unproved as e:
        e.certificate = certificate
        raise


class CertificateChecker:
    """State of the induction: bounds of the stream after the sublayers checked so far."""

    base: Any  # [D] component of the stream common to all positions after <bos>
    err: Any  # [D] error bound of the stream
    bos: Any  # [D] the stream at <bos>
    bos_err: Any

    def __init__(
        self,
        model: Model,
        declaration: Declaration,
        certificate: Certificate,
        progress: ProgressCallback | None = None,
    ) -> None:
        computed = {v.name for v, sublayer in declaration.sublayers.items() if sublayer}
        self.progress, self.total = progress, len(computed | {declaration.program.emit.name})
        self.config, self.program, self.declaration = model.config, declaration.program, declaration
        if model.dtype not in UNIT_ROUNDOFF:
            raise Unproved(f"dtype: expected float64 or float32, got {model.dtype}")
        self.floats = RoundingBounds(self.config, model.dtype)
        self.weights = {n: np.asarray(a, np.float64) for n, a in model.numpy().weights.items()}
        self.certificate = certificate
        self.in_stream: list[Value] = []
        self.residue = np.zeros(self.config.d_model)  # magnitude of averages in the stream
        self.residue_squared = self.residue_sum = 0.0
        self.check_architecture(model)
        self.check_overflow()
        self.check_declaration_types()
        self.check_slots()

    # ── form of the model and the declaration ──────────────────────────────────────────────────
    def check_architecture(self, model: Model) -> None:
        """Check the architecture and weights; fold norm gains into the weights after them."""
        c, p = self.config, self.program
        expected = {"norm": "layer", "norm_first": True, "activation": "relu", "mask": "causal",
                    "qk_norm": False, "tied": False}  # fmt: skip
        for name, value in expected.items():
            if (got := getattr(c, name)) != value:
                raise Unproved(f"{name}: expected {value}, got {got}")
        if c.positions not in ("learned", "none"):
            raise Unproved(f"positions: expected learned or none, got {c.positions}")
        if c.d_vocab != len(p.tokens) + 1:
            raise Unproved(f"d_vocab: expected {len(p.tokens) + 1}, got {c.d_vocab}")
        if c.n_ctx < p.length + 1:
            raise Unproved(f"n_ctx: expected at least {p.length + 1}, got {c.n_ctx}")
        if list(model.vocabulary.tokens)[1:] != [str(t) for t in p.tokens]:
            raise Unproved("vocabulary: expected the tokens of the program, in their order")
        smallest, weights = np.finfo(model.dtype).tiny, model.numpy().weights
        for name, a in self.weights.items():
            if not np.isfinite(a).all():
                raise Unproved(f"{name}: expected finite weights")
            if backend.is_subnormal(weights[name]).any():
                raise Unproved(
                    f"{name}: expected 0 or normal numbers, got some below {smallest:.3g}"
                )
            kind = name.rpartition(".")[2]
            if (
                kind in ("b_Q", "b_K", "b_V", "b_O", "b_U", "b") and a.any()
            ):  # "b" is the bias of a norm
                raise Unproved(f"{name}: expected 0; only MLPs may have biases")
            if kind in ("W_gate", "b_gate"):
                raise Unproved(f"{name}: gated MLPs are not supported")
        for name in [n for n in self.weights if n.endswith(("ln1.w", "ln2.w", "ln_final.w"))]:
            self.fold_gain(name, self.weights[name])

    def check_slots(self) -> None:
        """Check that slots and codes fit the stream and each other, without overlap."""
        c, d = self.config, self.declaration
        if not set(d.slots) == set(d.sublayers) == set(d.codes):
            raise Unproved("declaration: expected a slot, a code and a sublayer for each value")
        taken = np.zeros(c.d_model, int)
        for v, s in d.slots.items():
            width = s.stop - s.start
            if d.codes[v].shape != (len(v), width) or not 0 <= s.start <= s.stop <= c.d_model:
                raise Unproved(f"{v.name}: its slot does not fit its code or the stream")
            if len(v) > 1 and len(np.unique(d.codes[v], axis=0)) < len(v):
                raise Unproved(f"{v.name}: two members have the same code")
            taken[s] += 1
        if (taken > 1).any():
            raise Unproved("declaration: slots of values overlap")
        self.unused_dims = taken == 0
        for count, s in d.average_slots.items():
            last_use = d.sublayers.get(count, 0) - 1
            below = [v for v, x in d.slots.items() if x.start < s.stop and s.start < x.stop]
            free = self.unused_dims[s].all() or all(d.sublayers[v] < last_use for v in below)
            if not 0 <= s.start <= s.stop <= c.d_model or not free:
                raise Unproved(f"{count.name}: its average slot is outside the stream, or in use")
            taken[s] += 10
        if (taken > 19).any():
            raise Unproved("declaration: average slots overlap")
        for s in d.average_slots.values():
            self.unused_dims[s] = False

    def check_declaration_types(self) -> None:
        """Check that the declaration maps values to valid indices and bounded arrays."""
        d = self.declaration
        for v, s in [*d.slots.items(), *d.average_slots.items()]:
            ends = (s.start, s.stop) if isinstance(s, slice) and s.step is None else ()
            if not ends or not all(_is_index(x) for x in ends):
                raise Unproved(f"{getattr(v, 'name', v)}: expected a slot (start, stop)")
        if odd := [v for v in [*d.slots, *d.sublayers] if not isinstance(v, Value)]:
            raise Unproved(f"declaration: expected a value, got {short_repr(odd[0])}")
        if odd := [v for v in d.average_slots if not isinstance(v, ThresholdCount)]:
            raise Unproved(f"{odd[0]}: only counts have an average slot")
        for v, sublayer in d.sublayers.items():
            if not _is_index(sublayer):
                raise Unproved(f"{v.name}: expected a sublayer from 0, got {short_repr(sublayer)}")
        for v, code in d.codes.items():
            is_matrix = isinstance(code, np.ndarray) and code.ndim == 2 and code.dtype.kind == "f"
            if not is_matrix or not (np.abs(code) < MAX_CODE_NUMBER).all():
                raise Unproved(f"{v.name}: expected a code of numbers below {MAX_CODE_NUMBER:.3g}")

    def check_overflow(self) -> None:
        """Check that no number can overflow, including numbers that no component reads.

        A normed row has length at most √D; its gain is folded into the weights.
        """
        c, longest_row = self.config, 2 * self.config.d_model**0.5

        def longest(name: str) -> Any:
            return np.linalg.norm(self.weights[name], axis=-2) * longest_row

        for i in range(c.n_layers):
            at = f"blocks.{i}."
            q, k, v = (longest(f"{at}attn.W_{x}") for x in "QKV")
            scores = (q * k).sum(-1) * max(1.0, c.scale)
            written = (v[..., None] * np.abs(self.weights[f"{at}attn.W_O"])).sum((0, 1))
            self.require_finite(f"heads {i}", q, k, v, scores, written)
            if f"{at}mlp.W_in" in self.weights:
                pre = longest(f"{at}mlp.W_in") + np.abs(self.weights.get(f"{at}mlp.b_in", 0.0))
                post = pre @ np.abs(self.weights[f"{at}mlp.W_out"])
                self.require_finite(f"neurons {i}", pre, post)
        self.require_finite("logits", longest("unembed.W_U"))

    def fold_gain(self, name: str, gain: Any) -> None:
        """Multiply a norm's gain into the weights that read it, which costs one more rounding."""
        size, max_gain = np.abs(gain[gain != 0]), MAX_NORM_GAIN
        if (size > max_gain).any() or (size < 1 / max_gain).any():
            raise Unproved(
                f"{name}: expected gains of 0 or from {1 / max_gain:.3g} to {max_gain:.3g}"
            )
        block, _, norm = name[: -len(".w")].rpartition(".")
        readers = {
            "ln1": [f"{block}.attn.W_{x}" for x in "QKV"],
            "ln2": [f"{block}.mlp.W_in"],
            "ln_final": ["unembed.W_U"],
        }[norm]
        for reader in readers:
            if reader in self.weights:
                self.weights[reader] = self.weights[reader] * gain[:, None]

    # ── values and rows of the stream ──────────────────────────────────────────────────────────
    def code(self, v: Value) -> Any:
        return self.declaration.codes[v]

    def computed_at(self, sublayer: int) -> list[Value]:
        return [v for v, s in self.declaration.sublayers.items() if s == sublayer]

    def enumerate_cases(
        self, values: list[Value], extra_roots: tuple[str, ...] = ()
    ) -> tuple[JointCases, int]:
        """Return the joint cases of values, and the number of cases."""
        try:
            cases = joint_cases(self.program, values, extra_roots)
        except GlassformerError as e:
            raise TooManyCases(str(e)) from None
        self.certificate.cases += case_count(cases)
        return cases, case_count(cases)

    def count_work(self, label: str, n_cases: int) -> None:
        """Add to the work of the checker; raise TooManyCases if it would exceed the limit."""
        self.certificate.work += n_cases
        if (work := self.certificate.work) > MAX_WORK:
            raise TooManyCases(f"{label}: expected at most {MAX_WORK:,} cases, got {work:,}")

    def expected_stream(self, cases: JointCases, n: int) -> Any:
        """Return the expected rows [n,D] of the stream in these cases.

        Slots of values that are not in `cases` are not filled.
        """
        x = np.tile(self.base, (n, 1))
        for v in self.in_stream:
            if v in cases:
                x[:, self.declaration.slots[v]] = self.code(v)[cases[v]]
        return x

    def values_read(self, W: Any, label: str) -> list[Value]:
        """Return the values whose slots W [D,…] reads.

        Raises:
            Unproved: W reads a dimension that holds no declared value.
        """
        used = W.reshape(len(W), -1).any(1)
        values = [v for v in self.in_stream if used[self.declaration.slots[v]].any()]
        rest = used & ~self.unused_dims
        for v in values:
            rest[self.declaration.slots[v]] = False
        if rest.any():
            dims = np.flatnonzero(rest).tolist()
            raise Unproved(f"{label}: reads dimensions {dims}, which hold no value")
        return values

    def length_bounds(self) -> tuple[float, float, float]:
        """Return the smallest and largest squared length of a row, and its largest sum."""
        low = high = float(self.base @ self.base)
        total = abs(float(self.base.sum())) + self.residue_sum
        for v in self.in_stream:
            squares = (self.code(v) ** 2).sum(1)
            low, high = low + float(squares.min()), high + float(squares.max())
            total += float(np.abs(self.code(v).sum(1)).max())
        D = self.config.d_model
        own = self.floats.checker_gamma(2 * D + 2)  # each number is squared and added twice
        # The numbers of a row add up to at most √(D·squares).
        return low * (1 - own), high * (1 + own), total + own * (D * high) ** 0.5

    def normed_row(self, more: float = 0.0, less: float = 0.0, total: float = 0.0) -> NormedRow:
        """Return bounds of a row after its norm.

        `more` is added to the largest squared length, `less` is subtracted from the smallest, and
        `total` is added to the largest sum.
        """
        low, high, sums = self.length_bounds()
        err = self.err + self.residue
        row = self.floats.normed_row(
            self.err, max(low - less, 0.0), high + self.residue_squared + more, sums + total
        )
        return NormedRow(row.low, row.high, row.shift, err)

    def normed_bos(self) -> tuple[Any, NormedRow]:
        """Return the row of <bos> minus its mean [1,D], and the bounds of its norm."""
        mean = float(self.bos.mean())
        x = self.bos - mean
        n2, own = float(x @ x), self.floats.checker_gamma(2 * self.config.d_model + 2)
        total = own * float(np.abs(self.bos).sum())  # 0 except for the rounding of the mean
        rounds = self.floats.gamma(NORM_ROUNDINGS)  # roundings of x − m, or of s·x − s·m
        err = self.bos_err + rounds * np.abs(self.bos)
        mean = abs(mean) * (1 + own) + total
        return x[None], self.floats.normed_row(err, n2 * (1 - own), n2 * (1 + own), total, mean)

    # ── the induction ──────────────────────────────────────────────────────────────────────────
    def check(self) -> Certificate:
        """Check all sublayers and return the certificate."""
        from .heads import check_heads
        from .neurons import check_neurons

        d, n_layers = self.declaration, self.config.n_layers
        self.check_embedding()
        for layer in range(n_layers):
            check_neurons(self, layer, check_heads(self, layer))
        if late := [v for v, s in d.sublayers.items() if s > 2 * n_layers]:
            raise Unproved(f"{late[0].name}: declared for a layer that the model does not have")
        self.check_logits()
        self.certificate.slot_error = {
            v.name: float(self.err[d.slots[v]].max(initial=0)) for v in self.in_stream
        }
        return self.certificate

    def check_embedding(self) -> None:
        """Check that every token at every position gives the codes of the embedded values."""
        c, d = self.config, self.declaration
        E = self.weights["embed.W_E"]
        P = self.weights.get("pos_embed.W_pos", np.zeros((c.n_ctx, c.d_model)))
        P = P[: self.program.length + 1]
        self.bos = E[0] + P[0]
        self.bos_err = 2 * self.floats.unit * np.abs(self.bos) + UNDERFLOW[self.floats.dtype]
        self.in_stream = self.computed_at(0)
        if odd := [v for v in self.in_stream if not isinstance(v, (Token, Position))]:
            raise Unproved(
                f"{odd[0].name}: an embedded value must depend on token or position only"
            )
        E, P = E[1:], P[1:]
        self.certificate.cases += len(E) * len(P)
        self.base, self.err = np.zeros(c.d_model), np.zeros(c.d_model)
        want = {v: self.code(v)[v.table] for v in self.in_stream}  # type: ignore[attr-defined]
        owner = {
            k: (v, k - s.start)
            for v, s in d.slots.items()
            if v in want
            for k in range(s.start, s.stop)
        }
        both: Any = E.any(0) & P.any(0)  # dimensions with token and position contributions
        for k in range(c.d_model):
            x = E[:, k, None] + P[:, k] if both[k] else E[:, k, None] if E[:, k].any() else P[:, k]
            # In declared slots the base is 0, and any unexpected contribution counts as error.
            self.base[k] = np.median(x) if self.unused_dims[k] else 0.0
            expected: Any = self.base[k]
            if k in owner:
                column = want[owner[k][0]][:, owner[k][1]]
                expected = column[:, None] if isinstance(owner[k][0], Token) else column
            self.count_work("embedding", np.broadcast(x, expected).size)
            self.err[k] = np.abs(x - expected).max() + 2 * self.floats.unit * np.abs(x).max()
        self.err[both] += UNDERFLOW[self.floats.dtype]

    def check_logits(self) -> None:
        """Check that the correct token leads for every value of `emit`.

        The lead must be at least the smallest normal number of the float type.
        """
        U, v = self.weights["unembed.W_U"], self.program.emit
        if len(v) > 1 and v not in self.in_stream:
            raise Unproved(f"{v.name}: not in the stream after the last layer")
        cases, n = self.enumerate_cases([*self.values_read(U, "unembed"), v])
        x, row = self.expected_stream(cases, n), self.normed_row()
        tokens = np.array([self.program.tokens.index(d) + 1 for d in v.domain])
        worst, relative = np.inf, np.inf
        for i, t in enumerate(tokens):
            rows = cases[v] == i
            if not rows.any():
                continue
            lead = np.delete(U[:, [t]] - U, t, axis=1)
            z, off = self.floats.product(x[rows], row, lead)
            size = (np.abs(x[rows]) + row.err + row.shift) @ np.abs(U)
            size = self.floats.gamma(len(U) + 8) * size + self.floats.underflow_error(U, row)
            off = (off + size[:, [t]] + np.delete(size, t, axis=1)) * WIDEN
            self.require_finite("logits", z, off)
            worst = min(worst, float((z - off).min(initial=np.inf)))
            relative = min(relative, float(np.where(z > off, 1 - off / z, 0.0).min(initial=1.0)))
        self.certificate.margin = margin = worst * (row.low if worst > 0 else row.high)
        if not margin >= np.finfo(self.certificate.dtype).tiny:
            raise Unproved(f"logits: the right token may lead by only {margin:.3g}")
        self.record(v, f"leads by at least {margin:.3g}", relative)

    def record(self, v: Value, note: str, slack: float | None = None) -> None:
        """Record the description of a value's proof and its slack.

        The error of a slot has no separate slack: it reduces the slack of the values that read it.
        """
        c = self.certificate
        if slack is not None:
            c.slack[v.name] = min(slack, c.slack.get(v.name, 1.0))
        c.notes[v.name] = f"{c.notes[v.name]}; {note}" if v.name in c.notes else note
        if self.progress:
            self.progress(Progress(len(c.notes), self.total))

    def require_finite(self, label: str, *bounds: Any) -> None:
        limit = MAX_NUMBER[self.certificate.dtype]
        if not all((np.abs(b) < limit).all() for b in bounds):
            raise Unproved(f"{label}: expected numbers below {limit:g} in {self.certificate.dtype}")


def _is_index(x: Any) -> bool:
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool) and bool(0 <= x < 2**31)
