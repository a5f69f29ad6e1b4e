"""The prover: its bounds against the logits of models, and its proofs against enumeration."""

import itertools
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import glassformer
from cases import drawn, every
from glassformer import Config, Model, Vocabulary, load, resolve
from glassformer.core.model import zeros
from glassformer.proof import check_certificate, prove
from glassformer.proof.bounds import Bounder
from glassformer.proof.checker import check_model_and_task
from glassformer.proof.column_window import RowGroup
from glassformer.proof.counterexamples import refute, sample_counterexample
from glassformer.proof.layout import layout_of
from glassformer.proof.prover import candidate_splits, try_split
from glassformer.proof.qkv_bounds import QKVTables
from glassformer.proof.softmax_bounds import SumBounds
from glassformer.tasks.addition import Addition
from glassformer.verification import verify
from helpers import prove_once, raises, random_model

from .pairs import case_of

ADDERS = ["addition:digits=10"]
MORE = ["addition:digits=10,order=ones", "adder-least", "adder-hinge", "adder-hinge:norm=rms"]
MORE += ["adder-hinge:dtype=float32"]
MORE.append(str(Path(glassformer.__file__).parent / "trained" / "adder-10-34p.safetensors"))


def test_layouts_are_read_off_the_tasks():
    assert " ".join(layout_of(Addition(2)).to_json()) == "a1 a0 =10 b1 b0 =11 s2 s1 s0"
    assert " ".join(layout_of(Addition(1, "ones")).to_json()) == "a0 =10 b0 =11 s0 s1 =13"
    digits = layout_of(resolve.load_task("digit-addition:digits=3"))
    columns = ["=0", "a0", "a1", "a2", "=0", "=0", "b0", "b1", "b2", "=0", "s0", "s1", "s2", "s3"]
    assert digits.to_json() == columns and digits.format.first == 10


def test_an_embedding_that_underflows_may_be_zero():
    model = random_model(n_layers=1, positions="learned").astype("float32")
    W, tiny = model.weights["embed.W_E"], np.finfo("float32").tiny
    near = {
        "embed.W_E": W * 0 + np.float32(1.5 * tiny),
        "pos_embed.W_pos": model.weights["pos_embed.W_pos"] * 0 - tiny,
    }
    stream = QKVTables(replace(model, weights={**model.weights, **near}), 3).stream
    assert (stream.mid == 0.5 * tiny).all() and (stream.rad == tiny).all()
    assert not QKVTables(model, 3).stream.rad.any()


# ── bounds: the twin of forward ────────────────────────────────────────────────────────────────
KINDS = list(
    itertools.product(
        ["layer", "rms", "none"], ["relu", "gelu", "gelu_new", "silu"],
        ["learned", "none", "sinusoidal", "rotary", "alibi"], [True, False], [True, False],
        ["float64", "float32"],
    )
)  # fmt: skip
np.random.default_rng(0).shuffle(KINDS)
# First those where the model's rounding is all that the bounds leave room for.
KINDS = [("layer", "relu", "learned", True, False, d) for d in ("float64", "float32")] + KINDS


def differences(number, digits, split, count, change=lambda model: model, cuts=0):
    """Yield the margins of a random model minus their bounds, row by row: [(columns, B)]."""
    norm, activation, positions, first, qk_norm, dtype = KINDS[number]
    rng = np.random.default_rng(number)
    task = Addition(digits, ["most", "ones"][number % 2])
    model = random_model(
        number, extras=number % 3 > 0, d_vocab=len(task.vocabulary), n_ctx=3 * digits + 4,
        n_layers=1, norm=norm,
        activation=activation, positions=positions, norm_first=first, qk_norm=qk_norm,
        tied=number % 5 < 2,
        d_mlp=5 * (number % 7 > 0), gated=number % 4 == 0,
    )  # fmt: skip
    model = change(replace(model, vocabulary=task.vocabulary).astype(dtype))
    layout = check_model_and_task(model, task)
    bounder, rows = Bounder(model, layout), task.sample(count, rng)
    tokens = task.batch(rows)[0]
    with np.errstate(all="ignore"):
        # So that their differences do not round
        logits = model(tokens[:, :-1]).astype(np.longdouble)
    for row in layout.answer_rows:
        for b in bounder.bounds(
            bounder.row_group(row), (split,) * len(bounder.window(bounder.row_group(row))), cuts
        ):
            which = case_of(b.cases, rows)
            here = (which >= 0) & (tokens[:, row] == b.token)
            yield (
                len(bounder.window(bounder.row_group(row))),
                over(logits[here, row], tokens[here, row + 1], b.margin[which[here]]),
            )


@pytest.mark.parametrize("number", every(3, range(10)))
def test_leads_are_never_below_their_bounds_and_just_there_if_nothing_is_free(number):
    """With one digit, two columns told apart by pairs leave one input a case: then the bound is
    all but the lead.
    """
    sizes = []
    for columns, off in differences(number, 1, "pair", 60):
        assert (off >= 0).all()
        sizes += list(off) if columns == 2 else []
    assert sizes and np.median(sizes) < (1e-8 if KINDS[number][-1] == "float64" else 2)


@pytest.mark.parametrize("number", range(10, 14))
@pytest.mark.some(2)
def test_leads_are_never_below_their_bounds(number):
    for _, off in differences(number, 2, "digit", 300):
        assert (off >= 0).all()


@pytest.mark.parametrize("number", every(3, range(2, 7)))
def test_leads_are_never_below_their_bounds_when_what_attention_writes_is_cut(number):
    """And the bounds are better for it."""
    whole, cut = (list(differences(number, 2, "digit", 200, cuts=n)) for n in (0, 3))
    assert all((off >= 0).all() for _, off in cut)
    off, less = (np.concatenate([off for _, off in each]) for each in (whole, cut))
    assert np.median(less) < np.median(off) * 0.9


def over(logits, right, bound):
    """How far the lead of the right token is above a bound: [B]; NaN if it is not finite, inf
    if nothing is claimed.
    """
    rivals = logits.copy()
    np.put_along_axis(rivals, right[:, None], -np.inf, 1)
    lead = np.take_along_axis(logits, right[:, None], 1)[:, 0] - rivals.max(1)
    lead = np.where(np.isfinite(logits).all(1), lead, np.nan)
    return np.where(bound == -np.inf, np.inf, lead - bound).astype(float)


def extreme(seed):
    """Half of a model's arrays, and eps and scale, times powers of two up to the ends of its
    type's range.
    """

    def change(model):
        rng, most = np.random.default_rng(seed), np.finfo(model.dtype).maxexp
        powers = {
            name: int(rng.integers(-most, most)) * int(rng.random() < 0.5)
            for name in sorted(model.weights)
        }
        # Most of them are not so extreme
        near = {name: int(p * rng.random() ** 2) for name, p in powers.items()}
        with np.errstate(all="ignore"):
            weights = {
                name: np.ldexp(w, near[name]).astype(w.dtype) for name, w in model.weights.items()
            }
        fields = {
            "eps": 2.0 ** rng.integers(-most, most - 1),
            "scale": 2.0 ** rng.integers(-most // 2, most // 2),
        }
        chosen = {name: float(value) for name, value in fields.items() if rng.random() < 0.4}
        return replace(model, config=replace(model.config, **chosen), weights=weights)

    return change


def bounded_at_the_ends(numbers):
    """Check the bounds at the ends of the range; return the number of margins that are finite and
    proved.
    """
    finite = 0
    for number in numbers:
        for _, off in differences(number % len(KINDS), 1, "digit", 20, extreme(number)):
            assert ((off >= 0) | (off == np.inf)).all(), (
                f"{number}: a lead that is not finite, or below its bound"
            )
            finite += int((off < np.inf).sum())
    return finite


@pytest.mark.slow
def test_leads_at_the_ends_of_the_range_are_never_below_their_bounds():
    assert bounded_at_the_ends(range(40)) > 100


@pytest.mark.slow
def test_leads_at_the_ends_of_the_range_are_never_below_their_bounds_for_many_models():
    count = drawn(400)
    assert bounded_at_the_ends(range(40, 40 + count)) > count * 5 // 2


@pytest.mark.slow
@pytest.mark.parametrize("number", range(14, len(KINDS), 4)[: drawn(120)])  # they are shuffled
def test_leads_are_never_below_their_bounds_for_many_kinds(number):
    for digits, split in ((1, "pair"), (2, "digit")):
        for _, off in differences(number, digits, split, 100):
            assert (off >= 0).all()


# ── what is proved, refuted, unknown ───────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "ref", ADDERS + [pytest.param(ref, marks=pytest.mark.slow) for ref in MORE]
)
def test_ten_digits_are_proved(ref):
    model = load(ref)
    task = resolve.load_task(model)
    proof = prove_once(model, task)
    assert (proof.result, proof.method, proof.dtype) == ("proved", "certificate", model.dtype), (
        proof.reason
    )
    assert (
        proof.cases > 6_000
        and proof.counterexample is None
        and proof.model == verify(model, task, sample=1).model
    )
    rows = np.concatenate([task.edges()[::20], task.sample(1_000, np.random.default_rng(0))])
    seen = verify(model, task, rows=rows).worst_margin
    assert 0.5 * seen < proof.margin <= seen


def weakened(off):
    """10 digits, with `7` worth 7·(1 + off) where it is read."""
    model = load("addition:digits=10")
    W = model.weights["embed.W_E"].copy()
    W[7, 2:4] *= 1 + off
    weights = {**model.weights, "embed.W_E": W, "unembed.W_U": model.weights["embed.W_E"].T.copy()}
    return replace(
        model, config=replace(model.config, tied=False), weights=weights
    ), resolve.load_task(model)


def test_a_rare_error_is_found_by_going_through_the_columns():
    """Only pairs with 7s in all high places are wrong, one in millions."""
    model, task = weakened(3.22e-11)
    assert verify(model, task, rows=task.sample(20_000, np.random.default_rng(0))).wrong == 0
    bounder = Bounder(model, check_model_and_task(model, task))
    row = bounder.layout.answer_rows[-1]
    left = try_split(
        bounder, bounder.row_group(row), next(candidate_splits(bounder, bounder.row_group(row)))
    ).open_bounds
    result = refute(model, task, bounder, sorted(left, key=lambda b: float(b.margin.min())))
    assert result and result["got"] != result["expected"] and result["margin"] < 0
    assert verify(model, task, rows=np.array([result["row"]])).wrong == 1
    assert sample_counterexample(model, task)["got"] == "15555555555", (
        "7777777777+7777777777 is an edge case"
    )


@pytest.mark.slow
def test_a_weakened_adder_is_refuted():
    proof = prove(*weakened(3.22e-11))
    assert (proof.result, proof.margin) == ("refuted", None)
    assert proof.reason == "7777777777+7777777777= gives 15555555555, expected 15555555554"


@pytest.mark.slow
def test_less_of_it_is_proved():
    assert prove(*weakened(2e-11)).result == "proved"


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
@pytest.mark.parametrize(
    "name", ["embed.W_E", "blocks.0.attn.W_K", "blocks.0.attn.W_V", "blocks.0.mlp.b_in"]
)
@pytest.mark.some(4)
def test_what_is_not_finite_is_not_proved(name, value):
    model = load("addition:digits=2,order=ones")
    W = model.weights[name].copy()
    W.flat[0] = value
    broken = replace(model, weights={**model.weights, name: W})
    task = resolve.load_task(model)
    proof = prove(broken, task, method="certificate")
    assert proof.result != "proved" or verify(broken, task).holds
    layout = check_model_and_task(broken, task)
    if not np.isfinite(value):
        bounder = Bounder(broken, layout)
        assert any(
            try_split(
                bounder,
                bounder.row_group(row),
                next(candidate_splits(bounder, bounder.row_group(row))),
            ).open_bounds
            for row in layout.answer_rows
        )


def test_a_normaliser_that_may_be_zero_proves_nothing(monkeypatch):
    model = load("addition:digits=2,order=ones")
    task = resolve.load_task(model)
    bounder = Bounder(model, check_model_and_task(model, task))
    view, real, calls = (
        bounder.row_group(bounder.layout.answer_rows[1]),
        RowGroup.sum_bounds,
        itertools.count(),
    )
    assert all((b.margin > 0).all() for b in bounder.bounds(view, ("digit", "digit")))

    def below_zero(*args):
        low, high = real(*args)
        # The first of two is the sum of weights
        return SumBounds(low, high) if next(calls) % 2 else SumBounds(-high, high)

    monkeypatch.setattr(RowGroup, "sum_bounds", below_zero)
    assert not any((b.margin > 0).any() for b in bounder.bounds(view, ("digit", "digit")))


def test_overflow_of_the_models_own_type_is_seen():
    model = load("addition:digits=2,order=ones,dtype=float32")
    task = resolve.load_task(model)
    assert prove(model, task, method="certificate").result == "proved"
    loud = replace(
        model, weights={**model.weights, "embed.W_E": model.weights["embed.W_E"] * np.float32(1e30)}
    )
    assert prove(loud, task, method="certificate").result != "proved"


# ── certificates ───────────────────────────────────────────────────────────────────────────────
@cache
def small():
    """A model of two digits, its task and a certificate."""
    model = load("addition:digits=2")
    task = resolve.load_task(model)
    return model, task, prove(model, task, method="certificate").certificate


@pytest.mark.parametrize("change,reason", [
    ({"model": "0" * 64}, "another model"),
    ({"dtype": "float32"}, "another dtype"),
    ({"task": "addition:digits=1"}, "another task"),
    ({"layout": ["a0"]}, "another layout"),
    ({"margin": 1e3}, "larger margin"),
    ({"cases": 7}, "number of cases"),
    ({"rows": []}, "rows are not those"),
])  # fmt: skip
def test_a_certificate_that_was_changed_does_not_hold(change, reason):
    model, task, certificate = small()  # which holds: test_command
    checked = check_certificate(model, task, certificate | change)
    assert not checked.holds and reason in checked.reason


def test_a_certificate_needs_every_row_once_and_splits_that_there_are():
    model, task, good = small()
    assert not check_certificate(model, task, good | {"rows": good["rows"][1:]}).holds
    assert not check_certificate(
        model, task, good | {"rows": good["rows"] + good["rows"][:1]}
    ).holds
    for split in ([], ["digit"] * 5, ["digit", "guess"]):
        rows = [*good["rows"][:-1], good["rows"][-1] | {"split": split}]
        with raises("bad_argument", "certificate", "split"):
            check_certificate(model, task, good | {"rows": rows})


@pytest.mark.parametrize("change", [
    {"rows": None}, {"rows": "all"}, {"rows": [None]}, {"rows": [{}]}, {"rows": [{"row": True,
    "split": ["digit"]}]},
    {"rows": [{"row": 5, "split": "digit"}]}, {"rows": [{"row": 5, "split": [["digit"]]}]},
    {"cases": True},
    {"cases": "9"}, {"margin": float("nan")}, {"margin": float("inf")}, {"margin": None},
    {"layout": {}},
    {"model": None}, {"rows": [{"row": 5, "split": ["digit"], "cuts": None}]},
    {"rows": [{"row": 5, "split": ["digit"], "cuts": True}]},
])  # fmt: skip
@pytest.mark.some(3)
def test_a_certificate_of_other_types_is_refused(change):
    model, task, good = small()
    with raises("bad_argument", "certificate", *change):
        check_certificate(model, task, good | change)


@pytest.mark.parametrize("cuts,value", [(-1, -1), (10**9, 10**9), (7, "50,000")])
def test_a_certificate_that_cuts_too_often_is_refused(cuts, value):
    model, task, good = small()
    rows = [*good["rows"][:-1], good["rows"][-1] | {"cuts": cuts}]
    with raises("bad_argument", "certificate", value):
        check_certificate(model, task, good | {"rows": rows})


def test_heads_that_write_nothing_can_be_cut():
    model, task, _ = small()
    W_O = {"blocks.0.attn.W_O": model.weights["blocks.0.attn.W_O"] * 0}
    model = replace(model, weights={**model.weights, **W_O})
    bounder = Bounder(model, check_model_and_task(model, task))
    for row in bounder.layout.answer_rows:
        split = ("digit",) * len(bounder.window(bounder.row_group(row)))
        for whole, cut in zip(
            bounder.bounds(bounder.row_group(row), split),
            bounder.bounds(bounder.row_group(row), split, 2),
            strict=True,
        ):
            assert np.array_equal(whole.margin, cut.margin) and len(cut.cases) == len(cut.margin)


@pytest.mark.slow
def test_a_cut_is_a_part_of_the_certificate():
    """Without it the trained adder's cases stay open; with it, it is claimed and found again."""
    model = load(MORE[-1])
    task = resolve.load_task(model)
    certificate = prove_once(model, task).certificate
    assert certificate["rows"][0] == {"row": 30, "split": ["digit"], "cuts": 4}
    assert check_certificate(model, task, json.loads(json.dumps(certificate))).holds
    whole = [{"row": r["row"], "split": r["split"]} for r in certificate["rows"]]
    checked = check_certificate(model, task, certificate | {"rows": whole})
    assert not checked.holds and checked.reason.startswith("open: position 30")


@pytest.mark.parametrize("split", [["digit"] * 1_000_000, ["pair"] * 3, ["digit"] * 10])
def test_a_certificate_of_a_million_cases_is_refused_before_they_are_made(split):
    model = load("addition:digits=10")
    layout = check_model_and_task(model, resolve.load_task(model))
    with raises("bad_argument", "certificate", layout.answer_rows[0]):
        bounder = Bounder(model, layout)
        next(bounder.bounds(bounder.row_group(layout.answer_rows[0]), split))


def test_a_proof_of_a_pytorch_model_names_the_fused_norm():
    model, task, _ = small()
    words = prove(model.torch(), task, method="certificate").reason
    assert "but for its fused layer norm" in words
    assert words == prove(model, task, method="certificate").reason  # it covers both backends


# ── enumeration, and calls that are wrong ──────────────────────────────────────────────────────
def test_small_domains_are_enumerated():
    model = load("add-digit")
    proof = prove(model, resolve.load_task(model))
    assert (proof.result, proof.method, proof.cases) == ("proved", "enumeration", 100)
    assert proof.certificate is None
    assert proof.margin == pytest.approx(verify(model, resolve.load_task(model)).worst_margin)
    broken = model.map(lambda w: w * 0)
    proof = prove(broken, resolve.load_task(model))
    assert proof.result == "refuted"
    assert proof.counterexample["got"] != proof.counterexample["expected"]


def wrong_calls():
    adder = load("addition:digits=10")
    task = resolve.load_task(adder)
    deep, numbers = Config(12, 40, 4, n_layers=3), Vocabulary.numbers(12)
    half = adder.map(lambda w: (w * 0).astype("float16"))
    yield "unsupported", 3, Model(deep, zeros(deep), task.vocabulary), task
    yield (
        "unsupported",
        "mask",
        replace(adder, config=replace(adder.config, mask="none")),
        task,
    )
    yield "bad_argument", "vocabulary", replace(adder, vocabulary=numbers), task
    yield "bad_argument", 32, adder, Addition(12)
    yield "unsupported", "float16", half, task
    sums = load("add-mod")
    yield "bad_argument", "add-mod", sums, resolve.load_task(sums)
    mul = load("multiplication:digits=2")
    yield "bad_argument", "multiplication", mul, resolve.load_task(mul)


@pytest.mark.parametrize("number", range(7))
def test_calls_that_are_wrong(number):
    code, mention, model, task = list(wrong_calls())[number]
    with raises(code, mention):
        prove(model, task, method="certificate")


@pytest.mark.slow
def test_deeper_models_are_refuted_by_search_or_unknown():
    sound = prove(load("adder-36"), resolve.load_task("digit-addition:order=most,marks=true"))
    assert (sound.result, sound.method) == ("proved", "certificate") and sound.margin > 3_600
    proof = prove(
        load("adder-36:guard=row"), resolve.load_task("digit-addition:order=most,marks=true")
    )
    assert proof.result == "refuted"
    assert proof.counterexample["got"] != proof.counterexample["expected"]


def test_enumeration_has_a_limit():
    with raises("bad_argument", "enumeration"):
        prove(load("addition:digits=10"), Addition(10), method="enumeration")
    with raises("bad_argument", "guess"):
        prove(load("addition:digits=10"), Addition(10), method="guess")


# ── the command ────────────────────────────────────────────────────────────────────────────────
def test_command(call, tmp_path):
    file = tmp_path / "c.json"
    status, out, _ = call("prove", "addition:digits=4", "--json", "--out", file)
    output = json.loads(out)
    assert status == 0 and (output["result"], output["dtype"]) == ("proved", "float64")
    assert output["counterexample"] is None and output["certificate"] == json.loads(
        file.read_text()
    )
    assert output["cases"] > 1_000 and output["margin"] > 0
    holds = f"the certificate holds: {output['cases']:,} cases, margin {output['margin']:.4g}\n"
    one = call("prove", "addition:digits=4", "--check", file, "--no-independent-check")
    assert one[:2] == (0, holds)
    both = call("prove", "addition:digits=4", "--check", file)
    assert both[0] == 0 and both[1].startswith(f"{holds}independent checker holds")
    status, out, _ = call("prove", "addition:digits=5", "--check", file, "--json")
    assert status == 1 and json.loads(out)["reason"] == "the certificate is for another model"
    file.write_text("{}")
    assert call("prove", "addition:digits=4", "--check", file)[0] == 2


@pytest.mark.parametrize("words", [
    ["multiplication:digits=4"], ["addition:digits=10", "--task", "addition:digits=12"],
    ["addition:digits=10", "--task", "reverse"], ["addition:digits=10", "--task",
    "addition:digits=10,order=ones"],
    ["addition:digits=5,padding=none"], ["addition:digits=10", "--check", "no-such-file"],
])  # fmt: skip
def test_a_wrong_call_is_one_line(call, words):
    status, out, err = call("prove", *words)
    assert (status, out, err.count("\n")) == (2, "", 1) and err.startswith("error: ")
