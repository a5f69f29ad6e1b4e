"""The independent checker: bounds against models' values, confirmed proofs, and refused ones."""

import ast
import itertools
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import glassformer
from cases import drawn
from glassformer import load, resolve
from glassformer.core.checkpoint import digest
from glassformer.core.model import ACTIVATIONS, forward
from glassformer.proof import prove
from glassformer.proof.independent import ball_arithmetic, checker
from glassformer.proof.independent.ball_arithmetic import (
    ZERO,
    BallFloatType,
    BallModel,
    BallRow,
    NotProvable,
    activation_and_derivative,
    bound_activation,
)
from glassformer.proof.independent.checker import AttentionBounds, check_independently, lower_float
from glassformer.proof.independent.columns import (
    MaxSum,
    find_digit_layout,
    iter_cases,
    split_columns,
)
from glassformer.proof.independent.rows import parse_row
from glassformer.tasks.addition import Addition
from glassformer.tasks.digit_addition import DigitAddition
from glassformer.verification import verify
from helpers import prove_once, raises, random_model

flint = pytest.importorskip("flint")
arb = flint.arb
TRAINED = str(Path(glassformer.__file__).parent / "trained" / "adder-10-7p.safetensors")
PROVED = [
    "addition:digits=10", "addition:digits=10,order=ones", "addition:digits=3,dtype=float32",
    "adder-least",
    "adder-least:dtype=float32", "adder-hinge", "adder-hinge:dtype=float32", "adder-hinge:norm=rms",
    "adder-prefix",
    TRAINED, TRAINED.replace("7p", "34p"), "adder-hinge:digits=20",
]  # fmt: skip
LONG = ["adder-hinge:digits=100", "adder-coupled:digits=100"]  # confirmed in test_long.py
ONE_CHECKER = {"adder-36": "it knows one layer", "adder-coupled:digits=1000": "not waited for"}


@pytest.fixture(autouse=True)
def bits():
    with flint.ctx.workprec(checker.PRECISION_BITS):
        yield


@cache
def known(ref):
    """A model, its task and a certificate."""
    model = load(ref)
    task = resolve.load_task(model)
    method = {} if task.size > 10**18 else {"method": "certificate"}  # as documents prove it
    return model, task, prove_once(model, task, **method).certificate


def again(model, ref, **more):
    """Check this model with the certificate of another one."""
    _, task, certificate = known(ref)
    return check_independently(
        model, task, certificate | {"model": digest(model), "dtype": model.dtype} | more
    )


def case_of(spots, row, split, a, b):
    columns = split_columns(spots, row, split)
    power = 10 ** columns[0] if len(columns) else 1
    cells = [(a // 10**c % 10, b // 10**c % 10) for c in columns]
    known = tuple(x if kind == "pair" else sum(x) for x, kind in zip(cells, split, strict=True))
    return columns, known, (a % power + b % power) // power


def least_split(spots, row, kind):
    named = spots.requested_columns(row)
    return [kind] * (max(named) - min(named) + 1 if named else 0)


def test_it_shares_nothing_with_the_first_checker():
    """It imports no other names of this package."""
    own = ("ball_arithmetic", "columns", "rows", "checker", "interval_model", "intervals", None)
    own = (*own, "every_input", "hard_attention", "copy_tasks", "ordering_tasks")
    shared = {"backend", "Model", "digest", "GlassformerError", "Task", "format_count"}
    shared |= {"Min", "Max", "Sort", "TokenLayout", "ROW", "TOKEN"}  # which task it is
    folder = Path(checker.__file__).parent
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        plain = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        ours = [
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.ImportFrom) and (n.level or "glassformer" in n.module)
        ]
        assert not any("glassformer" in name for name in plain)
        assert {a.name for n in ours if n.module not in own for a in n.names} <= shared
        called = [
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "import_module"
        ]
        assert all(n.args[0].value == "flint" for n in called)


def test_a_model_of_bfloat16_is_not_taken_for_float32():
    """As NumPy arrays, bfloat16 weights are float32."""
    pytest.importorskip("torch")
    model = load("addition:digits=1")
    single, half = model.torch("float32"), model.torch("float32").torch("bfloat16")
    task = resolve.load_task(model)
    rough = half.torch("float32")  # the same numbers
    proof = prove(single, task, method="certificate")
    assert digest(half) != digest(rough)
    forged = proof.certificate | {"model": digest(half), "dtype": "bfloat16", "margin": 1e-12}
    again = check_independently(half, task, forged)
    assert not again.holds and "bfloat16" in again.reason


def test_a_field_of_the_config_that_it_does_not_know_is_refused(monkeypatch):
    model = load("addition:digits=1")
    monkeypatch.setattr(
        ball_arithmetic, "COMPUTED_FIELDS", ball_arithmetic.COMPUTED_FIELDS - {"scale"}
    )
    with raises(ball_arithmetic.NotCovered, "scale"):
        ball_arithmetic.BallModel(replace(model, config=replace(model.config, scale=3.0)))


# ── where the digits stand, cases, sums over columns ───────────────────────────────────────────
def test_digits_are_found_where_they_stand():
    assert find_digit_layout(Addition(2)).names == (
        "a1",
        "a0",
        "=10",
        "b1",
        "b0",
        "=11",
        "s2",
        "s1",
        "s0",
    )
    assert find_digit_layout(Addition(1, "ones")).names == (
        "a0",
        "=10",
        "b0",
        "=11",
        "s0",
        "s1",
        "=13",
    )
    spots = find_digit_layout(DigitAddition(2))
    assert spots.names == ("=0", "a0", "a1", "=0", "=0", "b0", "b1", "=0", "s0", "s1", "s2")
    assert (
        spots.query_positions == range(7, 10)
        and spots.tokens(10) == range(2)
        and spots.tokens(9) == range(10)
    )


@pytest.mark.parametrize("ref,error,mention", [
    ("modular-addition", ball_arithmetic.NotCovered, "113"),
    ("multiplication:digits=2", NotProvable, "position"),
    ("addition:digits=2,padding=none", NotProvable, "answer"),
    ("sort", ball_arithmetic.NotCovered, "sort"),
])  # fmt: skip
def test_other_tasks_are_refused(ref, error, mention):
    with raises(error, mention):
        find_digit_layout(resolve.load_task(ref))


@pytest.mark.parametrize("order", ["most", "ones"])
@pytest.mark.parametrize("kinds", [("digit",), ("pair", "digit")])
def test_sums_over_columns_are_those_of_all_pairs(order, kinds):
    task, rng = Addition(2, order), np.random.default_rng(0)
    spots, rows = find_digit_layout(task), task.rows(0, task.size)
    tokens = task.batch(rows)[0]
    for row in spots.query_positions:
        named = spots.requested_columns(row)
        split = [*kinds, *["digit"] * max(0, max(named) - min(named) + 1 - len(kinds))][
            : max(named) + 1
        ]
        table = rng.integers(-(10**6), 10**6, (row + 1, len(task.vocabulary)))
        sums = table[np.arange(row + 1), tokens[:, : row + 1]].sum(1).tolist()
        most = {}
        for (a, b), x in zip(rows.tolist(), sums, strict=True):
            case = case_of(spots, row, split, a, b)
            most[case] = max(x, most.get(case, x))
        chain = MaxSum(
            spots, [{v: int(table[p, v]) for v in spots.tokens(p)} for p in range(row + 1)]
        )
        assert {case: chain.maximum(case) for case in iter_cases(spots, row, split)} == most
        assert len(most) == checker.count_cases(spots, row, split)


# ── bounds: never above what forward computes ──────────────────────────────────────────────────
def shuffled(model, rng):
    """Permute the dimensions and neurons of a model, so that sums have another order."""
    c, D, F = (
        model.config,
        rng.permutation(model.config.d_model),
        rng.permutation(model.config.d_mlp),
    )
    if c.positions == "sinusoidal":
        D = np.arange(c.d_model)
    axes = {
        "embed.W_E": ":D",
        "pos_embed.W_pos": ":D",
        "unembed.W_U": "D:",
        "ln_final.w": "D",
        "ln_final.b": "D",
    }
    axes |= {f"blocks.0.{ln}.{n}": "D" for ln in ("ln1", "ln2") for n in "wb"} | {
        "blocks.0.attn.b_O": "D"
    }
    axes |= {f"blocks.0.attn.W_{n}": ":D:" for n in "QKV"} | {"blocks.0.attn.W_O": "::D"}
    axes |= {
        f"blocks.0.mlp.{n}": ax
        for n, ax in zip(("W_in", "W_gate", "W_out"), ("DF", "DF", "FD"), strict=True)
    }
    axes |= {"blocks.0.mlp.b_in": "F", "blocks.0.mlp.b_gate": "F", "blocks.0.mlp.b_out": "D"}
    order = {"D": D, "F": F}
    weights = dict(model.weights)
    for name, marks in axes.items():
        for axis, mark in enumerate(marks):
            if mark != ":" and name in weights:
                weights[name] = weights[name].take(order[mark], axis)
    return replace(model, weights=weights)


def leads(model, tokens, row):
    logits = forward(model.config, model.weights, tokens[:, :-1])[:, row].astype(float)
    right = np.take_along_axis(logits, tokens[:, row + 1, None], 1)
    others = np.where(np.arange(logits.shape[1]) == tokens[:, row + 1, None], -np.inf, logits)
    return (right[:, 0] - others.max(1)), np.abs(logits).max(1)


def slack(seed, count=5):
    """Yield margins minus bounds of a random model, whether the case has one input, and dtype."""
    rng = np.random.default_rng(seed)
    pick = lambda *choices: choices[rng.integers(len(choices))]  # noqa: E731
    digits = 1 + seed % 2
    formats = (
        Addition(digits),
        Addition(digits, "ones"),
        DigitAddition(digits),
        DigitAddition(digits, "most", True),
    )
    task = formats[seed // 2 % 4]
    model = random_model(
        seed, d_vocab=len(task.vocabulary), n_ctx=14, n_layers=1, norm=pick("layer", "rms", "none"),
        activation=pick("relu", "gelu", "gelu_new", "silu"), norm_first=pick(True, False),
        qk_norm=pick(True, False),
        positions=pick("learned", "none", "sinusoidal", "rotary", "alibi"), tied=pick(True, False),
        d_mlp=pick(0, 2, 5),
        gated=pick(True, False), extras=pick(True, False), n_heads=pick(1, 2, 3), d_head=pick(1, 2,
        3, 4),
    )  # fmt: skip
    size = 10 ** rng.uniform(-1, 1)
    model = replace(model, vocabulary=task.vocabulary).map(
        lambda w: w * (size if rng.random() < 0.5 else 1)
    )
    model = model.astype(pick("float64", "float32"))
    spots, rows = find_digit_layout(task), task.sample(count, rng)
    tokens, attention = task.batch(rows)[0], AttentionBounds(BallModel(model), spots)
    for row in spots.query_positions:
        split = least_split(spots, row, "pair" if digits == 1 else "digit")
        part = parse_row(spots, {"row": row, "split": split})
        ways = [leads(m, tokens, row) for m in (model, shuffled(model, rng))]
        for i, (a, b) in enumerate(rows.tolist()):
            case = case_of(spots, row, split, a, b)
            try:
                bound = lower_float(
                    attention.case_margin(part, case, (-np.inf, np.inf)[i % 4 == 0])
                )
            except NotProvable:
                bound = -np.inf
            one = digits == 1 and len(split) == 2
            yield from (
                ((real[i] - bound) / max(1, loud[i]), one, model.dtype) for real, loud in ways
            )


def within_bounds(seeds):
    one = {"float64": [], "float32": []}
    for seed in seeds:
        for room, single, dtype in slack(seed):
            assert room >= 0, f"seed {seed}: a lead is below its bound"
            if single:
                one[dtype].append(room)
    assert np.median(one["float64"]) < 1e-10 and np.median(one["float32"]) < 0.02, (
        "one input, and the bound is far off"
    )


@pytest.mark.slow
def test_leads_are_never_below_their_bounds_and_just_there_if_nothing_is_free():
    within_bounds(range(10))


@pytest.mark.slow
def test_leads_are_never_below_their_bounds_for_many_models():
    within_bounds(range(10, 10 + drawn(240)))


@pytest.mark.parametrize("kind", list(ACTIVATIONS))
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_activations_are_enclosed(kind, dtype):
    from glassformer.core import backend as arrays

    rng, model = (
        np.random.default_rng(0),
        random_model(n_layers=1, d_mlp=1, activation=kind, norm="none").astype(dtype),
    )
    net = BallModel(model)
    for _ in range(40):
        mid, wide = rng.normal() * 4, 10 ** rng.uniform(-6, 1)
        y = net.activate(BallRow([arb(mid)], [[arb(wide)]]))
        for e in np.linspace(-1, 1, 9):
            x = np.array([mid + e * wide], dtype)
            real = float(ACTIVATIONS[kind](arrays.backend_for(x), x)[0])
            at = (float(x[0]) - mid) / wide  # as it was rounded
            if abs(at) > 1:
                continue
            room = (
                sum(abs(float(line[0])) for line in y.coefficients[1:])
                + float(y.center[0].rad())
                + 1e-12 * abs(real)
            )
            assert abs(real - float(y.center[0]) - at * float(y.coefficients[0][0])) <= room
    if kind != "relu":
        slope, rest = bound_activation(kind, arb(0.3, 1e-6))
        assert rest.rad() < 1e-9 and slope.overlaps(
            activation_and_derivative(kind, arb(0.3, 1e-6))[1]
        )


def test_equal_numbers_stay_equal_and_only_powers_of_two_do_not_round():
    model = random_model(
        n_layers=1, d_model=5, n_heads=1, d_head=2, norm="layer", positions="none", extras=False
    )
    W = np.zeros((1, 5, 2))
    W[0, 2:4] = [[4.0, 3.0], [-4.0, -3.0]]
    net = BallModel(replace(model, weights={**model.weights, "blocks.0.attn.W_V": W}))
    x = net.norm(BallRow([arb(v) for v in (1e20, -1e20, 0.3, 0.3, 7.0)], []), "blocks.0.ln1")
    four, three = net.heads(x, 0, "V")[0]
    assert four.abs_upper() < 1e-50, "y·4 − y·4 is 0, up to the checker's own rounding"
    assert three.abs_upper() > 1e-40, "y·3 − y·3 is not, with a fused multiply-add"


def test_a_mean_may_be_off_by_much_and_is_so_for_all_alike():
    """Layer norm in float32 of numbers that cancel, summed in every order."""
    values = np.array([1e8, -1e8, 1.25, 2.5, 3.3], np.float32)
    model = random_model(n_layers=1, d_model=5, positions="none", extras=False)
    net = BallModel(model.astype("float32"))
    held = net.norm(BallRow([arb(float(v)) for v in values], []), "ln_final").enclosures()
    seen = set()
    for order in itertools.permutations(range(5)):
        mean = np.float32(0)
        for i in order:
            mean = mean + values[i]
        y = values - mean / np.float32(5)
        z = y / np.sqrt((y * y).sum() / np.float32(5) + np.float32(net.c.eps))
        assert all(ball.contains(arb(float(v))) for ball, v in zip(held, z, strict=True))
        seen.add(float(mean))
    assert len(seen) > 2, "orders that differ"


def test_every_step_has_room_for_its_rounding():
    model = random_model(
        n_layers=1, d_model=2, d_vocab=14, n_ctx=9, norm="rms", positions="none", extras=False
    )
    net, u = BallModel(model), 2.0**-53
    x = net.norm(BallRow([arb(3), arb(4)], []), "ln_final")
    assert x.center[0].rad() > 2.9 * u and x.center[1].rad() > 3.9 * u, "the quotient"
    assert x.divisor.rad() > 2.9 * u * 3.5, (
        "a square, the sum, its half, eps: half of each; and the root"
    )
    attention = AttentionBounds(net, find_digit_layout(Addition(1, "ones")))
    for term in attention.exponentials([ZERO] * 3, 0, 3):
        assert all(e.contains(1) and 7.9 * u < e.rad() < 9 * u for e in term.values()), (
            "exp, within 4 ulp"
        )


def test_sums_of_large_terms_are_off_by_more_than_their_result():
    net = BallModel(random_model(n_layers=1, norm="none").astype("float32"))
    error = lambda a, b: net.f.dot([arb(x) for x in a], [arb(x) for x in b]).rad()  # noqa: E731
    assert 1.0 < error([1e8, 1e8, 1], [1, -1, 1]) < 100 and error([1, 1], [1, 1]) < 1e-6
    with raises(NotProvable, "it", "float32"):
        BallFloatType("float32").check_overflow(arb(3e38), "it")


# ── what it confirms ───────────────────────────────────────────────────────────────────────────
def confirmed(ref):
    model, task, certificate = known(ref)
    check = check_independently(model, task, json.loads(json.dumps(certificate)))
    assert check.holds and check.cases == certificate["cases"], check.reason
    claimed = certificate["margin"]
    assert check.margin >= claimed * 0.999 and bool(check.reason) == (check.margin < claimed)
    rows = np.concatenate([task.edges()[::50], task.sample(500, np.random.default_rng(0))])
    assert check.margin <= verify(model, task, rows=rows).worst_margin


@pytest.mark.parametrize(
    "ref", ["addition:digits=2,dtype=float32", "adder-hinge:digits=2,norm=rms"]
)
def test_small_proofs_are_confirmed(ref):
    confirmed(ref)


@pytest.mark.slow
@pytest.mark.parametrize("ref", PROVED)
def test_the_proofs_of_the_docs_are_confirmed(ref):
    confirmed(ref)


def test_every_proof_of_the_docs_has_both_checkers_or_says_why_not():
    """The table of docs/proof.md lists the proofs confirmed here and in test_long.py."""
    text = (Path(__file__).parents[2] / "docs" / "proof.md").read_text(encoding="utf-8")
    table = text[text.index("## What has been proved") :]
    rows = re.findall(r"^\| `([^`]+)`.*\| ([^|]+) \|$", table, re.M)
    both = {ref for ref, margin in rows if margin[0].isdigit()}
    assert both == {Path(ref).name for ref in PROVED} | set(LONG)
    assert {ref: why for ref, why in rows if ref not in both} == ONE_CHECKER


def test_a_margin_that_is_smaller_than_claimed_is_told(monkeypatch):
    monkeypatch.setattr(checker, "DEFAULT_BISECTIONS", 0)
    model, task, certificate = known("addition:digits=2")
    check = check_independently(model, task, certificate | {"margin": 100.0})
    assert check.holds and "100" in check.reason and check.margin < 2


def test_weights_of_pytorch_are_read():
    pytest.importorskip("torch")
    model, task, certificate = known("adder-hinge:digits=2")
    on_torch = check_independently(model.torch(), task, certificate)
    assert on_torch == check_independently(model, task, certificate)


# ── what it must not pass ──────────────────────────────────────────────────────────────────────
def damage(ref, rng):
    """Change one array of a model at random, by a little or a lot."""
    model = known(ref)[0]
    name = sorted(model.weights)[rng.integers(len(model.weights))]
    W = model.weights[name] * (
        1 + 10 ** rng.uniform(-9, 0) * rng.standard_normal(model.weights[name].shape)
    )
    return replace(
        model, weights={**model.weights, name: W.astype(model.dtype)}, parametrization="", theta={}
    )


def never_contradicts(count, seed):
    rng, output = np.random.default_rng(seed), []
    for i in range(count):
        ref = ("addition:digits=2", "addition:digits=2,order=ones", "adder-hinge:digits=2")[i % 3]
        model = damage(ref, rng)
        result, real = again(model, ref), verify(model, known(ref)[1])
        assert real.holds or not result.holds, f"{i}: passed, and wrong"
        assert not result.holds or result.margin <= real.worst_margin
        output.append((result.holds, real.holds))
    assert (True, True) in output and (False, False) in output


@pytest.mark.slow
def test_no_damaged_model_is_passed_that_enumeration_finds_wrong():
    never_contradicts(6, seed=1)


@pytest.mark.slow
def test_no_damaged_model_of_many_is_passed_that_enumeration_finds_wrong():
    never_contradicts(drawn(100), seed=2)


ONES, LAYER, ROTARY = "addition:digits=2,order=ones", "addition:digits=2", "adder-hinge:digits=2"


def changed(ref, dtype="float64", weights=None, **config):
    """Return a model with changed entries, {name: (index, value)}, dtype and config."""
    model = known(ref)[0].astype(dtype)
    arrays = {n: w.copy() for n, w in model.weights.items()}
    if config.get("tied") is False:
        arrays["unembed.W_U"] = arrays["embed.W_E"].T.copy()
    for name, (index, value) in (weights or {}).items():
        with np.errstate(over="ignore"):
            arrays[name][index] = value
    options = {n: config.pop(n) for n in ("eps", "base", "slope", "scale") if n in config}
    model = replace(
        model, config=replace(model.config, **config), weights=arrays, parametrization="", theta={}
    )
    # Past Model, which refuses some of these
    object.__setattr__(model, "config", replace(model.config, **options))
    return model


UNREAD = {"unembed.W_U": ((0, 13), 0.0)}  # then no token reads slot 0 of the stream
GAIN, V, K = "ln_final.w", "blocks.0.attn.W_V", "blocks.0.attn.W_K"
POISON = [
    ("eps in float32 is not finite", ONES, {"dtype": "float32", "eps": 2.0**128}),
    ("variance may overflow", ONES, {"dtype": "float32", "eps": 2.0**128 * 0.99}),
    ("variance may overflow", ONES, {"eps": 1.7e308}),
    ("may divide by 0", LAYER, {"eps": 0.0, "weights": {"pos_embed.W_pos": (5, 0.0)}}),
    ("with its gain may overflow", ONES, {"tied": False, "weights": UNREAD | {GAIN: (0,
    1.9 * 2.0**1023)}}),
    ("with its gain may overflow", ONES, {"tied": False, "dtype": "float32",
    "weights": UNREAD | {GAIN: (0, 3.3e38)}}),
    ("slope in float32 is not finite", ONES, {"dtype": "float32", "slope": 1e39}),
    ("base in float32 is not finite", ROTARY, {"dtype": "float32", "base": 1e39}),
    ("angles of positions are not finite", ROTARY, {"base": 0.0}),
    ("scale in float32 is not finite", ONES, {"dtype": "float32", "scale": 1e39}),
    ("W_E is not finite", ONES, {"weights": {"embed.W_E": ((12, 0), np.nan)}}),
    ("b_in is not finite", ONES, {"weights": {"blocks.0.mlp.b_in": (0, -np.inf)}}),
    ("W_V has subnormal numbers", ONES, {"weights": {V: ((0, 0, 0), 1e-310)}}),
    ("embedding is not finite", LAYER, {"weights": {"embed.W_E": (0, 1.7e308),
    "pos_embed.W_pos": (0, 1.7e308)}}),
    ("mean may overflow", LAYER, {"weights": {"embed.W_E": (3, 1e308)}}),
    ("sum of squares may overflow", LAYER, {"weights": {"embed.W_E": ((3, 4), 1e160)}}),
    ("W_V may overflow", ONES, {"weights": {V: ((0, 0, 1), 1.7e308)}}),
    ("W_K may overflow", ONES, {"weights": {K: ((0, 0, 1), 1.7e308)}}),
    ("a score may overflow", ONES, {"weights": {K: ((0, 0), 1e307)}}),
    ("a score may overflow", ONES, {"scale": 1.7e308}),
    ("W_O may overflow", ROTARY, {"weights": {"blocks.0.attn.b_O": (0, 1.7e308)}}),
    ("W_in may overflow", ONES, {"weights": {"blocks.0.mlp.W_in": ((0, 0), 1.7e308)}}),
    ("W_out may overflow", ONES, {"weights": {"blocks.0.mlp.W_out": ((0, 0), 1.7e308)}}),
    ("the activation may overflow", ONES, {"activation": "gelu_new",
    "weights": {"blocks.0.mlp.b_in": (0, 1e110)}}),
    ("a logit may overflow", ONES, {"weights": {"unembed.b_U": (12, -1.7e308)}}),
    ("a logit may overflow", ROTARY, {"tied": False, "weights": {"unembed.W_U": ((0, 3), -1e307)}}),
    ("does not cover mask=none", ONES, {"mask": "none"}),
    ("weights of float16 are not covered", ROTARY, {"dtype": "float16"}),
]  # fmt: skip


@pytest.mark.parametrize("why,ref,change", POISON)
@pytest.mark.some(3)
def test_poisoned_models_are_refused(why, ref, change):
    result = again(changed(ref, **change), ref)
    assert not result.holds and why in result.reason
    assert result.margin == -np.inf


@pytest.mark.slow
def test_what_is_only_seen_by_the_checks_of_overflow(monkeypatch):
    """Without overflow checks, a model whose logits are all NaN would pass."""
    poison = changed(ONES, **next(change for why, _, change in POISON if "gain" in why))
    with np.errstate(all="ignore"):
        assert not verify(poison, known(ONES)[1]).holds
    assert again(changed(ONES, tied=False, weights=UNREAD), ONES).holds
    monkeypatch.setattr(BallFloatType, "check_overflow", lambda self, size, what: None)
    assert again(poison, ONES).holds


def test_two_layers_are_refused_by_name():
    model = random_model(d_vocab=14, n_ctx=10)
    result = again(replace(model, vocabulary=known(ONES)[1].vocabulary), ONES)
    assert not result.covered and "n_layers=2" in result.reason


# ── certificates that were changed, and calls that are wrong ───────────────────────────────────
def with_last_row(change):
    """Return the rows of a certificate with the last one changed."""
    _, _, good = known(LAYER)
    return {"rows": [*good["rows"][:-1], {**good["rows"][-1], **change}]}


@pytest.mark.parametrize("change,why", [
    ({"model": "0" * 64}, "another model"), ({"model": None}, "another model"),
    ({"dtype": "float32"}, "another dtype"),
    ({"task": "addition:digits=1"}, "another task"), ({"layout": ["a0"]}, "another layout"),
    ({"layout": 3}, "another"),
    ({"cases": 7}, "number of cases"), ({"cases": "401"}, "number of cases"), ({"cases": True},
    "number of cases"),
    ({"margin": float("inf")}, "no margin"), ({"margin": float("nan")}, "no margin"),
    ({"margin": "1"}, "no margin"),
    ({"margin": None}, "no margin"), ({"margin": -1}, "no margin"), ({"rows": []},
    "those of the answer"),
    ({"rows": None}, "not a list"), ({"rows": {}}, "not a list"), ({"rows": [3]}, "not a list"),
    ({"rows": [{"row": "5"}]}, "not a list"), ({"rows": [{"row": True, "split": []}]},
    "not a list"),
])  # fmt: skip
@pytest.mark.some(3)
def test_a_certificate_that_was_changed_does_not_hold(change, why):
    model, task, good = known(LAYER)
    check = check_independently(model, task, {**good, **change})
    assert not check.holds and why in check.reason


@pytest.mark.parametrize("split", [
    None, [], "pair", ["digit"], ["digit"] * 5, ["digit"] * 10**6, ["digit", 3], ["digit", None],
    ["digit", ["pair"]],
    ["digit", "guess"], {"digit": 1}, 7,
])  # fmt: skip
@pytest.mark.some(3)
def test_a_split_that_there_is_not_does_not_hold(split):
    model, task, good = known(LAYER)
    check = check_independently(model, task, good | with_last_row({"split": split}))
    assert not check.holds and "split" in check.reason


@pytest.mark.parametrize("cuts", [None, -1, 9, 10**9, True, 2.0, "2", [2]])
def test_cuts_that_there_are_not_do_not_hold(cuts):
    model, task, good = known(LAYER)
    check = check_independently(model, task, good | with_last_row({"cuts": cuts}))
    assert not check.holds and "cuts" in check.reason


def test_cuts_that_the_certificate_asks_for_are_made(monkeypatch):
    model, task, good = known(LAYER)
    lead, made = AttentionBounds.case_margin, set()

    def watched(self, part, case, claimed, cuts):
        made.add((part.rows[0], cuts))
        return lead(self, part, case, claimed, cuts)

    monkeypatch.setattr(AttentionBounds, "case_margin", watched)
    assert check_independently(model, task, good | with_last_row({"cuts": 6})).holds
    *others, last = (row["row"] for row in good["rows"])
    assert made == {*((row, checker.DEFAULT_BISECTIONS) for row in others), (last, 7)}


def test_what_is_cut_closes():
    model = load(TRAINED.replace("7p", "34p"))
    task = resolve.load_task(model)
    spots = find_digit_layout(task)
    attention = AttentionBounds(BallModel(model), spots)
    row, split = spots.query_positions[0], ["digit"]
    for case in itertools.islice(iter_cases(spots, row, split), 6, 9):
        part = parse_row(spots, {"row": row, "split": split})
        leads = [lower_float(attention.case_margin(part, case, np.inf, cuts)) for cuts in range(6)]
        assert leads == sorted(leads) and leads[0] < 0 < 6 < leads[-1], leads


def test_rows_must_be_there_once():
    model, task, good = known(LAYER)
    for wrong in (
        good["rows"][1:],
        good["rows"] + good["rows"][:1],
        good["rows"][:-1] + good["rows"][:1],
    ):
        check = check_independently(model, task, good | {"rows": wrong})
        assert "those of the answer" in check.reason
    assert not check_independently(model, task, []).holds
    assert not check_independently(model, task, {}).holds


def test_cases_are_counted_before_they_are_made(monkeypatch):
    model, task, good = known(LAYER)
    finer = with_last_row({"split": ["pair", "pair"]})
    assert "number of cases" in check_independently(model, task, good | finer).reason
    monkeypatch.setattr(checker, "MAX_CASES", 400)
    assert "too many" in check_independently(model, task, good).reason


def test_finer_cases_hold_too():
    model, task, good = known(LAYER)
    finer = [r if r["row"] != 6 else {"row": 6, "split": ["pair", "digit"]} for r in good["rows"]]
    check = check_independently(model, task, good | {"rows": finer, "cases": good["cases"] + 162})
    assert check.holds and check.cases == 563


def test_wrong_calls(monkeypatch):
    model, task, good = known(LAYER)
    with raises("bad_argument", ONES):
        check_independently(model, known(ONES)[1], good)
    check = check_independently(model, Addition(3), good)
    assert not check.holds and "block has 8" in check.reason
    monkeypatch.setattr(checker, "flint", None)
    with raises("needs_extra", "glassformer[proof]"):
        check_independently(model, task, good)
