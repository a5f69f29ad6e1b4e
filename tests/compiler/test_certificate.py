"""Bounds in the certificate hold for `forward` on any text; false or missing declarations fail."""

from dataclasses import replace

import numpy as np
import pytest

from compiler.compiled import SMALL, built, changed, every, proved, right, small, texts
from glassformer import GlassformerError
from glassformer.compiler import compile, recheck, trace
from glassformer.compiler.certify import Unproved, certify
from glassformer.compiler.driver import PROVENANCE_KEY, load_declaration
from glassformer.compiler.ir import Map, Program, Select, Sum, ThresholdCount, Token
from glassformer.compiler.passes.calibrate import calibrate
from glassformer.compiler.passes.stream import BASE_LENGTH, ONE_DIRECTION
from glassformer.core.hooks import record
from helpers import raises

LIBRARY = ["reverse", "sort", "sort-unique", "histogram", "most-frequent", "dyck-2", "induction",
           "ioi", "slide", "count", "mean", "key-value", "predecessor"]  # fmt: skip
MODELS = [(n, make, d) for make, names in ((small, SMALL), (built, LIBRARY)) for n in names
          for d in ("float64", "float32") if (n, d) != ("slide", "float32")]  # fmt: skip


def test_too_little_precision_is_refused():
    with raises("unsupported", "slide", "float32"):
        built("slide", "float32")


@pytest.mark.parametrize(("name", "make", "dtype"), MODELS, ids=[f"{n}-{d}" for n, _, d in MODELS])
@pytest.mark.some(4)
def test_every_bound_holds(name, make, dtype):
    c = make(name, dtype, "gpt2" if name == "table" else "")
    program, output = load_declaration(c.model.provenance[PROVENANCE_KEY])
    result, model = certify(c.model, program, output), c.model
    rng = np.random.default_rng(0)
    tokens = texts(program, max(24, min(240, 400_000 // program.length**3)), rng)
    truth = trace(output.program, tokens)
    logits, seen = record(model, np.insert(tokens + 1, 0, 0, axis=1))
    last = model.config.n_layers - 1
    stream = np.asarray(seen[f"blocks.{last}.hook_resid_post"], np.float64)[:, 1:]
    # the slots hold the codes
    for v, slot in output.slots.items():
        if v.name in result.slot_error:
            off = np.abs(stream[..., slot] - output.codes[v][truth[v]]).max(initial=0)
            assert off <= result.slot_error[v.name], (
                f"{v.name}: {off} > {result.slot_error[v.name]}"
            )
    # the right token leads
    number = np.array([program.tokens.index(d) + 1 for d in program.emit.domain])
    want = number[truth[output.program.emit]][..., None]
    z = np.asarray(logits, np.float64)[:, 1:]
    lead = np.take_along_axis(z, want, -1) - np.where(
        np.arange(z.shape[-1]) == want, -np.inf, z
    ).max(-1, keepdims=True)
    assert lead.min() >= result.margin > 0
    # the right position leads
    for v, time in output.sublayers.items():
        if isinstance(v, Select) and len(v) > 1:
            layer = (time - 1) // 2
            (head,) = np.flatnonzero(
                model.weights[f"blocks.{layer}.attn.W_O"][..., output.slots[v]].any((1, 2))
            )
            scores = np.asarray(seen[f"blocks.{layer}.attn.hook_attn_scores"], np.float64)[:, head]
            assert (
                look_leads(v, scores[:, 1:], truth, tokens.shape) >= result.score_gap[v.name] > 1
            ), v.name
        if (
            isinstance(v, ThresholdCount)
            and len(v.thresholds)
            and len(v) > 1
            and v in output.average_slots
        ):
            layer = time // 2 - 1
            room = output.average_slots[v]
            (head,) = np.flatnonzero(
                model.weights[f"blocks.{layer}.attn.W_O"][..., room].any((1, 2))
            )
            scores = np.asarray(seen[f"blocks.{layer}.attn.hook_attn_scores"], np.float64)[:, head]
            wide, lead_ = tally_leads(v, scores[:, 1:], truth, tokens.shape)
            assert wide <= result.score_spread[v.name], v.name
            assert lead_ >= result.score_gap[v.name] > 1, v.name


def allowed(v, truth, shape):
    """Return the earlier positions that match all predicates of a head, [B, here, there]."""
    B, T = shape
    holds = np.broadcast_to(np.tril(np.ones((T, T), bool)), (B, T, T)).copy()
    zero = np.zeros(shape, int)
    for t in v.predicates:
        here, there = (zero if x is None else truth[x] for x in (t.query, t.key))
        holds &= t.table[here[:, :, None], there[:, None, :]]
    return holds


def look_leads(v, scores, truth, shape):
    """The least lead of the best position (the beginning, where there is none) over the rest."""
    holds = allowed(v, truth, shape)
    good = np.broadcast_to(v.priority(truth), shape)[:, None, :]
    best = holds & (good == np.where(holds, good, -1).max(-1, keepdims=True))
    seen = np.tril(np.ones(shape[1:] * 2, bool)) if len(shape) == 2 else None
    begin = ~holds.any(-1, keepdims=True)
    won = np.concatenate([begin, best], -1)
    rest = np.concatenate([~begin, np.broadcast_to(seen, best.shape) & ~best], -1)
    least = np.where(won, scores, np.inf).min(-1)
    return float((least - np.where(rest, scores, -np.inf).max(-1)).min())


def tally_leads(v, scores, truth, shape):
    """(by how much equals differ, by how much they lead)."""
    holds = allowed(v, truth, shape)
    won = np.concatenate([np.ones_like(holds[..., :1]), holds], -1)
    seen = np.broadcast_to(np.tril(np.ones(shape[1:] * 2, bool)), holds.shape)
    rest = np.concatenate([np.zeros_like(holds[..., :1]), seen & ~holds], -1)
    least, most = np.where(won, scores, np.inf).min(-1), np.where(won, scores, -np.inf).max(-1)
    return float((most - least).max()), float(
        (least - np.where(rest, scores, -np.inf).max(-1)).min()
    )


# ── norm gains ─────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.some(3)
def test_gains(name, dtype):
    """Gains that were folded out of what reads them change nothing; others are seen."""
    c = small(name, dtype)
    m, rng, outcomes = c.model, np.random.default_rng(1), set()
    tokens = every(len(c.program.tokens), c.program.length)
    blocks = range(m.config.n_layers)
    readers = {"ln_final.w": ["unembed.W_U"]}
    readers |= {f"blocks.{i}.ln1.w": [f"blocks.{i}.attn.W_{x}" for x in "QKV"] for i in blocks}
    readers |= {f"blocks.{i}.ln2.w": [f"blocks.{i}.mlp.W_in"] for i in blocks
                if f"blocks.{i}.mlp.W_in" in m.weights}  # fmt: skip
    for powers, fold in [(2, True), (0, True), (2, False), (0.3, True), (0.3, False), (9, True)]:
        new = {}
        for norm, read in readers.items():
            gain = np.exp2(np.round(rng.uniform(-powers, powers, m.config.d_model), 2 if powers < 1
                                    else 0)).astype(dtype)  # fmt: skip
            new[norm] = gain
            new |= {r: m.weights[r] / gain[:, None] for r in read if fold}
        model = changed(m, new)
        held = proved(model)
        assert not held or right(model, c.program, tokens)
        assert held or not (fold and powers in (2, 0, 9)), (name, powers)
        outcomes.add(held)
    assert outcomes == {True, False}


def test_gains_that_are_beyond_floats():
    c = small("reverse", "float32")
    for size in (1e-37, 1e37):
        gain = np.full(c.model.config.d_model, size, "float32")
        for W_U in (c.model.weights["unembed.W_U"], np.zeros_like(c.model.weights["unembed.W_U"])):
            assert not proved(changed(c.model, {"ln_final.w": gain, "unembed.W_U": W_U}))


# ── declarations that lie ──────────────────────────────────────────────────────────────────────
def lies(entry):
    """(what is wrong with it, a declaration)."""
    values = entry["values"]
    for k, (i, t, s, code) in enumerate(values):
        rest = [*values[:k], *values[k + 1 :]]
        width = len(code[0])
        if not width:
            yield "wide", {"values": [*rest, [i, t, s, [[1.0] for _ in code]]]}
            continue
        yield "left out", {"values": rest}
        yield "moved", {"values": [*rest, [i, t, s + 1, code]]}
        yield "in another's slot", {"values": [*rest, [i, t, 3 if s > 3 else 3 + width, code]]}
        yield "permuted", {"values": [*rest, [i, t, s, [*code[1:], code[0]]]]}
        yield "twice", {"values": [*rest, [i, t, s, [code[0]] * len(code)]]}
        yield "huge", {"values": [*rest, [i, t, s, (np.array(code) * 1e200).tolist()]]}
        yield "narrow", {"values": [*rest, [i, t, s, [row[:-1] for row in code]]]}
        yield "no width", {"values": [*rest, [i, t, s, [[] for _ in code]]]}
        yield "in the base", {"values": [*rest, [i, t, 0, code]]}
        for time in range(t + 3):
            if time != t:
                yield "at another time", {"values": [*rest, [i, time, s, code]]}
    for k, (i, a, b) in enumerate(entry["room"]):
        rest = [*entry["room"][:k], *entry["room"][k + 1 :]]
        yield "no room", {"room": rest}
        for start, stop in ((a + 1, b + 1), (a - 1, b), (a, b - 1), (0, b - a), (3, 3 + b - a)):
            yield "room elsewhere", {"room": [*rest, [i, start, stop]]}


@pytest.mark.parametrize("name", [*SMALL, "constant"])
@pytest.mark.some(4)
def test_declarations_that_lie(name):
    c = small(name) if name in SMALL else compile("tokens = [0, 1, 2]\nlength = 3\nemit = 2")
    entry = c.model.provenance[PROVENANCE_KEY]
    assert proved(c.model)
    for what, new in lies(entry):
        assert not proved(changed(c.model, entry=new)), f"{what}: {str(new)[:200]}"


PHANTOMS = {  # values of one member: what they are is known, that a slot holds it is not
    "map": Map("phantom", (), {(): 0}),
    "sum": Sum("phantom", {}, 0, {0: 0}),
    "tally": ThresholdCount("phantom", (), [], np.zeros(0, int), [], [0]),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", PHANTOMS)
@pytest.mark.parametrize("name", ["reverse", "after"])  # without neurons
def test_values_declared_but_never_written(name, kind, bias):
    """A head reads a slot that is never filled; the base favors another token."""
    c, v = small(name), PHANTOMS[kind]
    program, output = load_declaration(c.model.provenance[PROVENANCE_KEY])
    D, last = c.model.config.d_model, 2 * c.model.config.n_layers
    w = {n: np.array(a) for n, a in c.model.weights.items()}
    for n, a in w.items():
        axis = {"E": 1, "s": 1, "O": 2, "U": 0}.get(n[-1], 1)
        same = (D / (D + 2)) ** 0.5 if n[-1] in "QKVU" else 1.0  # a norm divides by √D, too
        w[n] = same * np.insert(a, [a.shape[axis]] * 2, 0, axis=axis)
    w["unembed.W_U"][:3, 1] += 1000 * ONE_DIRECTION / BASE_LENGTH
    w["unembed.W_U"][D:, 1] = -500, 500
    if bias:  # of neurons that are not there
        w["blocks.1.mlp.b_out"] = np.array([*np.zeros(D), 1.0, -1.0])
    model = changed(c.model, w, d_model=D + 2)
    lie = replace(
        output,
        codes={**output.codes, v: np.array([[1.0, -1.0]])},
        sublayers={**output.sublayers, v: last},
        slots={**output.slots, v: slice(D, D + 2)},
        average_slots={**output.average_slots, v: slice(0, 0)}
        if isinstance(v, ThresholdCount)
        else output.average_slots,
    )
    assert not right(model, program, every(3, 5))
    with raises("unsupported", "logits"):
        certify(model, program, lie)


def test_numbers_that_are_none():
    c = small("often")
    program, output = load_declaration(c.model.provenance[PROVENANCE_KEY])
    for bad in (np.nan, np.inf):
        for v in output.codes:
            codes = {x: np.array(a) for x, a in output.codes.items()}
            if codes[v].size:
                codes[v][0, 0] = bad
                with pytest.raises(Unproved):
                    certify(c.model, program, replace(output, codes=codes))
    for name, a in c.model.weights.items():
        worse = np.array(a)
        worse.reshape(-1)[0] = np.nan
        with pytest.raises(GlassformerError):
            recheck(changed(c.model, {name: worse}))


@pytest.mark.parametrize("name", ["reverse", "often", "table", "brackets"])
def test_undeclared_writes_are_refused(name):
    """Writes of heads and neurons to undeclared dimensions, even unread ones."""
    c = small(name, "float64", "gpt2")
    free = np.ones(c.model.config.d_model, bool)
    entry = c.model.provenance[PROVENANCE_KEY]
    for _, _, s, code in entry["values"]:
        free[s : s + len(code[0])] = False
    for _, a, b in entry["room"]:
        free[a:b] = False
    free = np.flatnonzero(free)
    for n, a in c.model.weights.items():
        if n.endswith(("W_O", "W_out", "b_out")):
            for at in (free[0], free[-1]):
                worse = np.array(a)
                worse[..., at] += 1e-9
                part = "head" if n.endswith("W_O") else "neurons"
                with raises("unsupported", part):
                    recheck(changed(c.model, {n: worse}))


def rows(weights, cut):
    """A tally whose tests add up rows of numbers of the token."""
    token = Token("token", [0, 1, 2])
    each = np.zeros(len(cut), int)
    tally = ThresholdCount("emit", (), [(token, np.array(weights))], each, cut, range(len(cut) + 1))
    return Program((0, 1, 2), 4, tally, "rows")


@pytest.mark.parametrize(("weights", "cut", "holds"), [
    ([[0, 1, 1], [0, 0, 1]], [0.5, 0.5], True),  # 2 is there: then 1 or 2 is
    ([[0, 1, 0], [0, 0, 1]], [0.5, 0.5], False),  # 2 is there, but 1 need not be
    ([[0, 1, 1], [0, 1, 1]], [0.5, 2.5], True),
    ([[0, 1, 1], [0, 1, 1]], [2.5, 0.5], False),
    ([[-1, 1, 2], [-3, 2, 5]], [-0.5, -0.5], True),  # more than once, than one and a half times
    ([[-3, 2, 5], [-1, 1, 2]], [-0.5, -0.5], False),
])  # fmt: skip
def test_each_test_of_a_count_implies_the_one_before(weights, cut, holds):
    program = rows(weights, cut)
    tokens = every(3, 4)
    if holds:
        model = calibrate(program, "float64")[0]
        assert right(model, program, tokens)
    else:
        with raises("unsupported", "float64", "emit"):
            calibrate(program, "float64")


def test_counts_add_integers_only():
    """Only whole sums are gone through: 0.75 lies between two of them."""
    with raises("unsupported", "float64", "emit"):
        calibrate(rows([[0, 0.5, 1.0]], [0.5]), "float64")


def test_other_kinds_of_models_are_refused():
    c = small("often")
    for name, value in {"mask": "none", "activation": "gelu", "norm": "rms", "norm_first": False,
                        "qk_norm": True}.items():  # fmt: skip
        with raises("unsupported", f"{name}: ", value):
            recheck(changed(c.model, **{name: value}))
    with raises("unsupported", "float16"):
        recheck(c.model.astype("float16"))
    gate = {"blocks.0.mlp.W_gate": np.ones_like(c.model.weights["blocks.0.mlp.W_in"])}
    with raises("unsupported", "W_gate"):
        recheck(changed(c.model, gate))
    with raises("bad_argument", c.model.name):
        recheck(replace(c.model, provenance={}))
