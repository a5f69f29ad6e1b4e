"""By induction over the sublayers: every slot holds the code of the value that the interpreter has.

Given are a model, a program as it was read, and a declaration: a simpler program, which slot holds
which of its values, by which code, from when on, and where heads leave sums for neurons. None of it
is believed: that the simpler program means the same is checked first (equivalence.py); what a head
or a neuron reads and writes is seen from the weights that are not 0, and a write that was not
declared is refused. For every position but the beginning of the text, which sees only itself and is
one known row:

    embedding   every token at every position gives the codes of its values
    heads       a better match leads by a gap, equals differ by little, so the right value comes
    neurons     for every combination of what they read, the code of the result
    logits      for every value of `emit`, its token leads

Each is a check of finitely many cases; the errors of each go into the next.

Trusted are the reader, which makes a program of a text (parser.py and what it imports), the meaning
of a program (ir.py, interpreter.py), that joint_domains.py leaves no combination out, this folder,
NumPy, and how floats round (floats.py). No pass of the compiler is. Of a text that the interpreter
itself refuses, with a combination that the reader said can never be, nothing is claimed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core import backend
from ...core.model import Model
from ...utils.errors import GlassformerError, short_repr
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

MAX_WORK = 300_000_000  # pairs of here and there, cases times neurons: some seconds
MAX_NORM_GAIN = (
    2.0**20
)  # of a norm: with larger ones more could be lost by underflow than is counted


MAX_CODE_NUMBER = (
    1e15  # of a code's numbers: their squares and sums are far from what floats can hold
)


def _is_index(x: Any) -> bool:
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool) and bool(0 <= x < 2**31)


@dataclass(frozen=True)
class Declaration:
    """What a compiled model is said to do; the checker believes none of it."""

    program: Program  # the same program, made simpler: its values are those in the stream
    replacements: Mapping[
        Value, Value
    ]  # which of them stands for which of the program as it was read
    codes: Mapping[Value, Any]  # [members, width]
    sublayers: Mapping[Value, int]  # 0 embedding, 2l+1 heads of layer l, 2l+2 its neurons
    slots: Mapping[Value, slice]
    average_slots: Mapping[
        ThresholdCount, slice
    ]  # where heads leave averages for neurons of their layer


@dataclass
class Certificate:
    """What was found out on the way."""

    dtype: str
    margin: float = np.inf  # the least lead of a right token
    cases: int = 0
    work: int = 0  # cases that were gone through one by one, and what takes as long
    slot_error: dict[str, float] = field(default_factory=dict)  # value -> most that its slot is off
    notes: dict[str, str] = field(default_factory=dict)  # value -> how it was found to hold
    slack: dict[str, float] = field(default_factory=dict)  # value -> what is left: 1 all, 0 none
    score_gap: dict[str, float] = field(
        default_factory=dict
    )  # look -> by how much the right one leads
    score_spread: dict[str, float] = field(
        default_factory=dict
    )  # tally -> by how much equals differ
    step_reach: dict[str, float] = field(
        default_factory=dict
    )  # tally -> how far its steps go, 1 is enough

    @property
    def tightest(self) -> str:
        return min(self.slack, key=lambda n: self.slack[n], default="")


CertifyProgress = Callable[[int, int], object]


def certify(
    model: Model,
    program: Program,
    declaration: Declaration,
    progress: CertifyProgress | None = None,
) -> Certificate:
    """The certificate of a model, or Unproved with the place where it fails. `watch` is told of how
    many values it is known that they hold, of all.
    """
    found = Certificate(model.dtype)
    try:
        if program is not declaration.program:
            check_equivalent(program, declaration.program, declaration.replacements)
        with np.errstate(all="ignore"):
            return CertificateChecker(model, declaration, found, progress).check()
    except Unproved as e:
        e.certificate = found
        raise


class CertificateChecker:
    """The state of the induction."""

    base: Any  # [D] what is the same at all positions but the first
    err: Any  # [D] by how much the stream may be off
    bos: Any  # [D] the stream at the beginning of the text
    bos_err: Any

    def __init__(
        self,
        model: Model,
        declaration: Declaration,
        certificate: Certificate,
        progress: CertifyProgress | None = None,
    ) -> None:
        computed = {v.name for v, time in declaration.sublayers.items() if time}
        self.progress, self.total = progress, len(computed | {declaration.program.emit.name})
        self.config, self.program, self.declaration = model.config, declaration.program, declaration
        c = model.config
        if model.dtype not in UNIT_ROUNDOFF:
            raise Unproved(f"{model.dtype} — expected float64 or float32")
        self.floats = RoundingBounds(c, model.dtype)
        self.weights = {n: np.asarray(a, np.float64) for n, a in model.numpy().weights.items()}
        self.certificate = certificate
        self.in_stream: list[Value] = []
        self.residue = np.zeros(c.d_model)  # what averages left behind
        self.residue_squared = self.residue_sum = 0.0
        self.check_architecture(model)

    def check_architecture(self, model: Model) -> None:
        c, p, said = self.config, self.program, self.declaration
        kind = (c.norm, c.norm_first, c.activation, c.mask, c.qk_norm, c.tied)
        if kind != ("layer", True, "relu", "causal", False, False):
            raise Unproved(
                "expected layer norms before each part, ReLU, a causal mask, an untied head"
            )
        if c.positions not in ("learned", "none"):
            raise Unproved(f"positions {c.positions} — expected learned ones, or none")
        if c.d_vocab != len(p.tokens) + 1 or c.n_ctx < p.length + 1:
            raise Unproved("expected a token for the beginning and one for each of the program's")
        if list(model.vocabulary.tokens)[1:] != [str(t) for t in p.tokens]:
            raise Unproved("expected tokens that are called what the program calls them")
        if not all(np.isfinite(a).all() for a in self.weights.values()):
            raise Unproved("weights that are not finite")
        smallest, weights = np.finfo(model.dtype).tiny, model.numpy().weights
        for name, a in self.weights.items():
            if backend.is_subnormal(weights[name]).any():
                raise Unproved(
                    f"{name} — expected 0 or normal numbers, got some below {smallest:.3g}"
                )
            where = name.rpartition(".")[2]
            if where in ("b_Q", "b_K", "b_V", "b_O", "b_U", "b"):  # b: of a norm
                if a.any():
                    raise Unproved(f"{name} — expected no biases but of neurons")
            elif where == "W_gate" or where == "b_gate":
                raise Unproved("gated neurons are not known to this checker")
        for name in [n for n in self.weights if n.endswith(("ln1.w", "ln2.w", "ln_final.w"))]:
            self.fold_gain(name, self.weights[name])
        self.check_overflow()
        self.check_declaration_types()
        if not set(said.slots) == set(said.sublayers) == set(said.codes):
            raise Unproved("expected a slot, a code and a time for each declared value")
        taken = np.zeros(c.d_model, int)
        for v, s in said.slots.items():
            width = s.stop - s.start
            if said.codes[v].shape != (len(v), width) or not 0 <= s.start <= s.stop <= c.d_model:
                raise Unproved(f"{v.name} — its slot and its code do not agree")
            if len(v) > 1 and len(np.unique(said.codes[v], axis=0)) < len(v):
                raise Unproved(f"{v.name} — two of its members have one code")
            taken[s] += 1
        if (taken > 1).any():
            raise Unproved("two values are declared to stand in one slot")
        self.unused_dims = taken == 0
        for tally, s in said.average_slots.items():
            if not 0 <= s.start <= s.stop <= c.d_model or (
                not self.unused_dims[s].all()
                and not all(
                    said.sublayers[v] < said.sublayers.get(tally, 0) - 1
                    for v, other in said.slots.items()
                    if other.start < s.stop and s.start < other.stop
                )
            ):
                raise Unproved(f"{tally.name} — its room is not in the stream, or not free")
            taken[s] += 10
        if (taken > 19).any():
            raise Unproved("two tallies are declared to have one room")
        for s in said.average_slots.values():
            self.unused_dims[s] = False

    def check_declaration_types(self) -> None:
        """A declaration is made of values, whole numbers and finite rows, none of them huge."""
        said = self.declaration
        for v, s in [*said.slots.items(), *said.average_slots.items()]:
            ends = (s.start, s.stop) if isinstance(s, slice) and s.step is None else ()
            if not ends or not all(_is_index(x) for x in ends):
                raise Unproved(f"{getattr(v, 'name', v)} — expected a slot from number to number")
        if odd := [v for v in [*said.slots, *said.sublayers] if not isinstance(v, Value)]:
            raise Unproved(f"{short_repr(odd[0])} — is no value")
        if odd := [v for v in said.average_slots if not isinstance(v, ThresholdCount)]:
            raise Unproved(f"{odd[0]} — has room declared, and is no tally")
        for v, time in said.sublayers.items():
            if not _is_index(time):
                raise Unproved(f"{v.name} — expected a time from 0, got {short_repr(time)}")
        for v, code in said.codes.items():
            good = isinstance(code, np.ndarray) and code.ndim == 2 and code.dtype.kind == "f"
            if not good or not (np.abs(code) < MAX_CODE_NUMBER).all():
                raise Unproved(
                    f"{v.name} — expected a code of rows of numbers below {MAX_CODE_NUMBER:.3g}"
                )

    def check_overflow(self) -> None:
        """No number on the way can be beyond all floats, not even one that nothing reads: a row
        is at most √D long after its norm, its gain being part of the weights.
        """
        c, most = self.config, 2 * self.config.d_model**0.5

        def longest(name: str) -> Any:
            return np.linalg.norm(self.weights[name], axis=-2) * most

        for i in range(c.n_layers):
            at = f"blocks.{i}."
            q, k, v = (longest(f"{at}attn.W_{x}") for x in "QKV")
            scores = (q * k).sum(-1) * max(1.0, c.scale)
            brought = (v[..., None] * np.abs(self.weights[f"{at}attn.W_O"])).sum((0, 1))
            self.require_finite(f"heads {i}", q, k, v, scores, brought)
            if f"{at}mlp.W_in" in self.weights:
                pre = longest(f"{at}mlp.W_in") + np.abs(self.weights.get(f"{at}mlp.b_in", 0.0))
                self.require_finite(
                    f"neurons {i}", pre, pre @ np.abs(self.weights[f"{at}mlp.W_out"])
                )
        self.require_finite("logits", longest("unembed.W_U"))

    def fold_gain(self, name: str, gain: Any) -> None:
        """A norm's gain, as part of the weights that read it: one rounding more."""
        size = np.abs(gain[gain != 0])
        if (size > MAX_NORM_GAIN).any() or (size < 1 / MAX_NORM_GAIN).any():
            raise Unproved(
                f"{name} — expected gains of 0 or from {1 / MAX_NORM_GAIN:.3g} to {MAX_NORM_GAIN:.3g}"
            )
        place = name[: -len(".w")]
        block = place.rpartition(".")[0]
        readers = {
            "ln1": [f"{block}.attn.W_{x}" for x in "QKV"], "ln2": [f"{block}.mlp.W_in"],
            "ln_final": ["unembed.W_U"],
        }[place.rpartition(".")[2]]  # fmt: skip
        for reader in readers:
            if reader in self.weights:
                self.weights[reader] = self.weights[reader] * gain[:, None]

    # ── what is there ──────────────────────────────────────────────────────────────────────────
    def code(self, v: Value) -> Any:
        return self.declaration.codes[v]

    def computed_at(self, sublayer: int) -> list[Value]:
        return [v for v, t in self.declaration.sublayers.items() if t == sublayer]

    def enumerate_cases(
        self, values: list[Value], also: tuple[str, ...] = ()
    ) -> tuple[JointCases, int]:
        try:
            found = joint_cases(self.program, values, also)
        except GlassformerError as e:
            raise TooManyCases(str(e)) from None
        self.certificate.cases += case_count(found)
        return found, case_count(found)

    def count_work(self, label: str, n_cases: int) -> None:
        """Refuses what would take too long before it is begun."""
        self.certificate.work += n_cases
        if self.certificate.work > MAX_WORK:
            raise TooManyCases(
                f"{label} — would take {self.certificate.work:,} cases; at most {MAX_WORK:,}"
            )

    def expected_stream(self, found: JointCases, n: int) -> Any:
        """Rows of the stream [n,D] in these cases, as far as the values in them go."""
        x = np.tile(self.base, (n, 1))
        for v in self.in_stream:
            if v in found:
                x[:, self.declaration.slots[v]] = self.code(v)[found[v]]
        return x

    def values_read(self, W: Any, label: str) -> list[Value]:
        """The values whose slots W [D,…] reads; it must read nothing that nobody declared."""
        used = W.reshape(len(W), -1).any(1)
        values = [v for v in self.in_stream if used[self.declaration.slots[v]].any()]
        rest = used & ~self.unused_dims
        for v in values:
            rest[self.declaration.slots[v]] = False
        if rest.any():
            raise Unproved(
                f"{label} — reads numbers {np.flatnonzero(rest).tolist()}, where no value is"
            )
        return values

    def length_bounds(self) -> tuple[float, float, float]:
        """(least and most squared length, most sum) of a row."""
        low = high = float(self.base @ self.base)
        total = abs(float(self.base.sum())) + self.residue_sum
        for v in self.in_stream:
            squares = (self.code(v) ** 2).sum(1)
            low, high = low + float(squares.min()), high + float(squares.max())
            total += float(np.abs(self.code(v).sum(1)).max())
        own = self.floats.checker_gamma(
            2 * self.config.d_model + 2
        )  # a number is squared, and added twice
        # all numbers together are at most √(D·squares)
        return low * (1 - own), high * (1 + own), total + own * (self.config.d_model * high) ** 0.5

    def normed_row(self, more: float = 0.0, less: float = 0.0, total: float = 0.0) -> NormedRow:
        """What is known of a row after its norm; `more` and `less`: further squared length."""
        low, high, sums = self.length_bounds()
        err = self.err + self.residue
        found = self.floats.normed_row(
            self.err, max(low - less, 0.0), high + self.residue_squared + more, sums + total
        )
        return NormedRow(found.low, found.high, found.shift, err)

    def normed_bos(self) -> tuple[Any, NormedRow]:
        mean = float(self.bos.mean())
        x = self.bos - mean
        n2, own = float(x @ x), self.floats.checker_gamma(2 * self.config.d_model + 2)
        total = own * float(np.abs(self.bos).sum())  # of x: 0, but for the mean's roundings
        err = self.bos_err + self.floats.gamma(NORM_ROUNDINGS) * np.abs(
            self.bos
        )  # x − m, or s·x − s·m
        mean = abs(mean) * (1 + own) + total
        return x[None], self.floats.normed_row(err, n2 * (1 - own), n2 * (1 + own), total, mean)

    # ── the induction ──────────────────────────────────────────────────────────────────────────
    def check(self) -> Certificate:
        from .heads import check_heads
        from .neurons import check_neurons

        self.check_embedding()
        for layer in range(self.config.n_layers):
            check_neurons(self, layer, check_heads(self, layer))
        late = [
            v
            for v, t in self.declaration.sublayers.items()
            if t > 2 * self.config.n_layers or t < 0
        ]
        if late:
            raise Unproved(f"{late[0].name} — is declared for a layer that is not there")
        self.check_logits()
        self.certificate.slot_error = {
            v.name: float(self.err[self.declaration.slots[v]].max(initial=0))
            for v in self.in_stream
        }
        return self.certificate

    def check_embedding(self) -> None:
        E = self.weights["embed.W_E"]
        begin = E[0]
        P = self.weights.get("pos_embed.W_pos", np.zeros((self.config.n_ctx, self.config.d_model)))
        P = P[: self.program.length + 1]
        start = P[0]
        self.in_stream = self.computed_at(0)
        if odd := [v for v in self.in_stream if not isinstance(v, (Token, Position))]:
            raise Unproved(
                f"{odd[0].name} — is declared to be embedded, and is no function of a token"
            )
        E, P = E[1:], P[1:]
        self.certificate.cases += len(E) * len(P)
        c = self.config
        self.base, self.err = np.zeros(c.d_model), np.zeros(c.d_model)
        want = {v: self.code(v)[v.table] for v in self.in_stream}  # type: ignore[attr-defined]
        of = {d: (v, d - s.start) for v, s in self.declaration.slots.items() if v in want
              for d in range(s.start, s.stop)}  # fmt: skip
        both: Any = E.any(0) & P.any(0)  # numbers to which token and position add
        for d in range(c.d_model):
            x = E[:, d, None] + P[:, d] if both[d] else E[:, d, None] if E[:, d].any() else P[:, d]
            # Where something is declared to stand, now or later, the base is 0, or off.
            self.base[d] = np.median(x) if self.unused_dims[d] else 0.0
            known: Any = self.base[d]
            if d in of:
                column = want[of[d][0]][:, of[d][1]]
                known = column[:, None] if isinstance(of[d][0], Token) else column
            self.count_work("the embedding", np.broadcast(x, known).size)
            self.err[d] = np.abs(x - known).max() + 2 * self.floats.unit * np.abs(x).max()
        self.err[both] += UNDERFLOW[self.floats.dtype]
        self.bos = begin + start
        self.bos_err = 2 * self.floats.unit * np.abs(self.bos) + UNDERFLOW[self.floats.dtype]

    def record(self, v: Value, note: str, slack: float | None = None) -> None:
        """Notes how a value was found to hold, and how much of what it needs is left. By how much
        a slot is off is seen by who reads it: what is left is left there.
        """
        if slack is not None:
            self.certificate.slack[v.name] = min(slack, self.certificate.slack.get(v.name, 1.0))
        self.certificate.notes[v.name] = (
            self.certificate.notes.get(v.name, "") + "; " + note
        ).lstrip("; ")
        if self.progress:
            self.progress(len(self.certificate.notes), self.total)

    def require_finite(self, label: str, *bounds: Any) -> None:
        for b in bounds:
            if not (np.abs(b) < MAX_NUMBER[self.certificate.dtype]).all():
                raise Unproved(
                    f"{label} — numbers too large for {self.certificate.dtype}, or none at all"
                )

    def check_logits(self) -> None:
        U, v = self.weights["unembed.W_U"], self.program.emit
        if len(v) > 1 and v not in self.in_stream:
            raise Unproved(f"{v.name} — is not there at the end")
        read = self.values_read(U, "the head")
        found, n = self.enumerate_cases([*read, v])
        x, row = self.expected_stream(found, n), self.normed_row()
        number = np.array([self.program.tokens.index(d) + 1 for d in v.domain])
        worst, relative = np.inf, np.inf
        for i, t in enumerate(number):
            rows = found[v] == i
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
        self.certificate.margin = worst * (row.low if worst > 0 else row.high)
        if not self.certificate.margin >= np.finfo(self.certificate.dtype).tiny:
            raise Unproved(f"logits — the right token may lead by {self.certificate.margin:.3g}")
        self.record(v, f"leads by at least {self.certificate.margin:.3g}", relative)
