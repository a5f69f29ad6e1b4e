"""Verdicts: contents, saving, rechecking, and other options of the command."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from glassformer import load, load_task, save
from glassformer.core.checkpoint import digest
from glassformer.verification import Verdict, recheck, verify
from glassformer.verification import chunks as works
from glassformer.verification.evaluation import token_margins
from helpers import PATIENCE, raises

REF = "addition:digits=2"
OLD = {
    "checked", "wrong", "looked_at", "domain", "exhaustive", "worst_margin", "counterexamples",
    "holds", "model",
    "task", "dtype", "seed",
}  # fmt: skip


@pytest.fixture
def wrong(tmp_path):
    """A checkpoint of an adder that is wrong on some pairs."""
    model = load(REF)
    weights = {n: w.copy() for n, w in model.weights.items()}
    weights["embed.W_E"][7] *= 1.02
    return save(replace(model, weights=weights), tmp_path / "wrong.safetensors")


def test_classes_and_worst(wrong):
    model, task = load(str(wrong)), load_task(REF)
    v = verify(model, task)
    rows = task.rows(0, task.size)
    names = task.classes(rows)
    assert set(v.classes) == set(names)
    for name, c in v.classes.items():
        alone = verify(model, task, rows=rows[names == name])
        assert (c["checked"], c["wrong"]) == (alone.checked, alone.wrong)
        assert c["worst_margin"] == pytest.approx(
            alone.worst_margin
        )  # batches of another size round in another way
    counts = {
        "looked_at": 10_000,
        "checked": 10_000,
        "wrong": v.wrong,
        "worst_margin": v.worst_margin,
    }
    assert v.parts == {"domain": counts}
    assert verify(model, task, rows=np.array([v.worst["row"]])).worst_margin == pytest.approx(
        v.worst_margin
    )
    assert v.error_bound is None and v.model == digest(model)


def test_keep(wrong, call):
    few, many = (
        json.loads(call("verify", wrong, "--json", "--max-counterexamples", n)[1]) for n in (2, 40)
    )
    assert (
        len(few["counterexamples"]) == 2
        and len(many["counterexamples"]) == 40 < many["wrong"] == few["wrong"]
    )
    assert many["counterexamples"][:2] == few["counterexamples"]


def test_the_command_prints_parts_and_classes(wrong, call):
    status, out, _ = call("verify", wrong, "--sample", 300)
    assert (
        status == 1
        and "at random: " in out
        and "with 99 % confidence" in out
        and "edge cases: " in out
    )
    assert "by class of input" in out and "search: " in out
    status, out, _ = call("verify", REF, "--sample", 300, "--search", 0)
    assert (
        status == 0
        and "0 wrong of 300; at most 1.5 % of all inputs are" in out
        and "search" not in out
    )
    assert "inputs so drawn" in call("verify", "sort", "--sample", 20)[1], (
        "its samples are not uniform"
    )


# ── float types ────────────────────────────────────────────────────────────────────────────────
def test_dtypes(call):
    ref = "addition:digits=1,order=ones"
    got = {
        d: json.loads(call("verify", ref, "--dtype", d, "--json")[1])
        for d in ("float64", "float32", "bfloat16")
    }
    assert {d: v["dtype"] for d, v in got.items()} == {d: d for d in got}
    assert len({v["model"] for v in got.values()}) == 1, "the model is the one that was named"
    assert got["float64"]["wrong"] == 0 and got["float32"]["wrong"] == 0
    assert got["float64"]["worst_margin"] != got["float32"]["worst_margin"]
    assert got["bfloat16"]["wrong"] > 0 and got["bfloat16"]["counterexamples"][0]["got"], (
        "it says what it decodes"
    )
    assert "torch" in got["bfloat16"]["versions"] and "torch" not in got["float64"]["versions"]


def test_beyond_the_range_of_a_type_is_wrong():
    model = load("addition:digits=12")
    v = verify(model, load_task(model), dtype="float32", sample=50)
    assert v.wrong == v.checked and v.dtype == "float32"


def test_without_torch(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    status, out, err = call("verify", REF, "--dtype", "bfloat16")
    assert status == 2 and "needs PyTorch" in err and err.count("\n") == 1 and not out


# ── saved, and checked again ───────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("options", [
    [], ["--sample", 400, "--seed", 3, "--max-counterexamples", 2], ["--dtype", "float32"],
    ["--all"],
])  # fmt: skip
@pytest.mark.some(2)
def test_saved_and_confirmed(call, tmp_path, options, wrong):
    for ref, status in ((REF, 0), (wrong, 1)):
        path = tmp_path / "v.json"
        code, out, _ = call("verify", ref, *options, "--out", path, "--json")
        data = json.loads(out)
        status = status if "float32" not in options else code
        assert code == status and set(data) >= OLD
        saved = Verdict.read(path)
        assert saved.to_json() == {k: v for k, v in data.items() if k != "ref"}
        assert saved.versions["numpy"] == np.__version__ and saved.versions["blas"]
        code, out, _ = call("verify", ref, "--recheck", path, "--json")
        again = json.loads(out)
        assert code == status and again["confirmed"] and again["differences"] == []
        assert f"{path} is confirmed" in call("verify", ref, "--recheck", path)[1].replace(
            "\n", " "
        )
    assert {f.name for f in tmp_path.iterdir()} == {"v.json", "wrong.safetensors"}, (
        "the journal is gone"
    )


@pytest.mark.parametrize("change", [
    {"wrong": 0, "holds": True}, {"worst_margin": 1.0}, {"counterexamples": []}, {"checked": 9_999},
    {"dtype": "bfloat16"}, {"classes": {}}, {"exhaustive": False, "sample": 100},
])  # fmt: skip
@pytest.mark.some(3)
def test_a_tampered_verdict_is_found(call, tmp_path, wrong, change):
    path = tmp_path / "v.json"
    call("verify", wrong, "--out", path)
    saved = json.loads(path.read_text()) | change
    path.write_text(json.dumps(saved))
    first = next(iter(change))
    if first in ("wrong", "worst_margin", "checked"):  # the file itself says otherwise elsewhere
        status, _, err = call("verify", wrong, "--recheck", path)
        assert status == 2 and f"({first} " in err
        saved["parts"]["domain"] |= {n: v for n, v in change.items() if n != "holds"}
        saved["classes"] = {}
        path.write_text(json.dumps(saved))
    status, out, _ = call("verify", wrong, "--recheck", path, "--json")
    got = json.loads(out)
    assert status == 1 and not got["confirmed"] and got["differences"]
    if first in ("wrong", "worst_margin", "checked"):
        assert first in [d["what"] for d in got["differences"]]
    assert "NOT confirmed" in call("verify", wrong, "--recheck", path)[1]


def test_what_a_search_is_said_to_have_seen_it_can_have_seen(tmp_path):
    """Searches may differ between processors, but not by a factor of a thousand."""
    model, task = load("addition:digits=5"), load_task("addition:digits=5")
    path = verify(model, task, sample=500, search=2).save(tmp_path / "v.json")
    good = json.loads(path.read_text())
    assert recheck(model, Verdict.read(path), task).confirmed
    for n in ("looked_at", "checked"):
        good[n] += 10**9
        good["parts"]["search"][n] += 10**9
    path.write_text(json.dumps(good))
    assert [d["what"] for d in recheck(model, Verdict.read(path), task).differences] == ["search"]
    for odd in ({}, {"row": ["x"], "input": "", "expected": ""}, {"row": [1], "input": 1}):
        path.write_text(json.dumps(good | {"worst": odd}))
        with raises("damaged_file", path):
            Verdict.read(path)


def test_margins_may_round_and_nothing_else_may(wrong):
    v = verify(load(str(wrong)), load_task(REF))
    near = replace(v, worst_margin=v.worst_margin * (1 + 1e-6))
    for versions in (v.versions, {"numpy": "0"}):
        assert not v.differences(replace(near, versions=versions))
        assert v.differences(replace(v, wrong=v.wrong + 1, versions=versions))
        far = replace(v, worst_margin=v.worst_margin * 1.01, versions=versions)
        assert [d["what"] for d in v.differences(far)] == ["worst_margin"]
    with raises("bad_argument", "verdict", "rows"):
        _ = verify(load(REF), load_task(REF), rows=np.array([[1, 2]])).recheck_options


@pytest.fixture
def another_processor(monkeypatch):
    """Change the last digits of all margins from now on."""

    def begin():
        rng = np.random.default_rng(0)

        def rounded(*words, **options):
            gap = token_margins(*words, **options)
            return gap * (1 + 1e-6 * rng.uniform(-1, 1, gap.shape))

        monkeypatch.setattr(works, "token_margins", rounded)

    return begin


@pytest.mark.parametrize("options", [{}, {"sample": 300}, {"sample": 300, "search": 3}])
def test_another_processor_confirms_what_is_true(another_processor, wrong, options):
    """The worst of equal rows and the path of a search depend on last digits."""
    for ref in (REF, str(wrong)):
        model, task = load(ref), load_task(REF)
        saved = verify(model, task, **options)
        another_processor()
        again = recheck(model, saved, task)
        assert again.rerun.worst_margin != saved.worst_margin
        assert again.confirmed and again.holds == saved.holds, again


def test_beside_a_search_all_else_is_compared(wrong):
    v = verify(load(str(wrong)), load_task(REF), sample=300, search=2)
    assert v.parts["search"]["wrong"] and not v.differences(v)
    for name in ("looked_at", "checked", "wrong"):
        assert [d["what"] for d in v.differences(replace(v, **{name: 9_999}))] == [name]
    for part in ("edges", "sample"):
        parts = v.parts | {part: v.parts[part] | {"worst_margin": -99.0}}
        assert [d["what"] for d in v.differences(replace(v, parts=parts))] == ["parts"]
    # a search that finds something where the other found nothing differs
    good = verify(load(REF), load_task(REF), sample=300, search=2)
    result = good.parts["search"] | {"wrong": 1}
    worse = replace(good, wrong=1, parts=good.parts | {"search": result})
    assert [d["what"] for d in good.differences(worse)] == ["holds"]


def change(**values):
    return lambda o: json.dumps(o | values)


def drop(name):
    return lambda o: json.dumps({k: v for k, v in o.items() if k != name})


@pytest.mark.parametrize("damage,word", [
    (lambda o: json.dumps(o)[:100], "damaged"), (lambda o: "[]", "damaged"), (lambda o: "",
    "damaged"),
    (drop("model"), "no model"), (drop("format"), "format"), (change(wrong="none"), "wrong:"),
    (change(wrong=True), "wrong:"), (change(holds=False), "holds"), (change(chunk=-1),
    "chunk:"),
    (change(sample=-5), "sample"), (change(extra=1), "damaged"), (change(dtype="float99"),
    "float99"),
    (change(task="subtraction"), "no such task"), (change(model="0" * 64),
    "000000000000…"),
    (change(format="glassformer verdict 9"), "format"), (change(parts={}), "rows"),
    (change(parts={"domain": {"wrong": 0}}), "parts[...]: has no checked"),
])  # fmt: skip
@pytest.mark.some(4)
def test_a_damaged_verdict_is_one_line(call, tmp_path, damage, word):
    path = tmp_path / "v.json"
    call("verify", "addition:digits=1", "--out", path)
    path.write_text(damage(json.loads(path.read_text())))
    status, out, err = call("verify", "addition:digits=1", "--recheck", path)
    assert (status, out, err.count("\n")) == (2, "", 1) and word in err


@pytest.mark.parametrize("words,word", [
    (["--dtype", "float99"], "one of float64, float32, bfloat16"), (["--all", "--sample", "5"],
    "leave one out"),
    (["--out", "{}"], "expected FILE.json"), (["--out", "{}/no/v.json"], "cannot be written"),
    (["--workers", "0"], "workers"),
    (["--task", "min", "--out", "{}/v.json"], "vocabulary"),
    (["--max-counterexamples", "-1"], "max_counterexamples"),
])  # fmt: skip
def test_bad_options_are_one_line(call, tmp_path, words, word):
    status, out, err = call("verify", "addition:digits=1", *(w.format(tmp_path) for w in words))
    assert (status, out, err.count("\n")) == (2, "", 1) and word in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words,word", [
    (["{}/none.json"], "none.json"), ([], "--recheck"), (["{}/v.json", "--seed", "1"], "--seed"),
    (["{}/v.json", "--task", "addition:digits=2"], "task addition:digits=2"),
    (["{}/v.json", "--out", "{}/v.json"], "v.json"),
])  # fmt: skip
def test_bad_rechecks_are_one_line(call, tmp_path, words, word):
    call("verify", "addition:digits=1", "--out", tmp_path / "v.json")
    status, out, err = call(
        "verify", "addition:digits=1", "--recheck", *(w.format(tmp_path) for w in words)
    )
    assert (status, out, err.count("\n")) == (2, "", 1) and word in err


def test_too_many_to_look_at_all(call):
    status, _, err = call("verify", "addition:digits=10", "--all")
    assert status == 2 and "about 10^20" in err


def test_a_folder_that_cannot_be_written_to(call, tmp_path):
    if os.geteuid() == 0:
        path = "/proc/v.json"  # even for root
    else:
        tmp_path.chmod(0o500)
        path = tmp_path / "v.json"
    status, _, err = call("verify", "addition:digits=1", "--out", path)
    assert status == 2 and "cannot be written" in err and err.count("\n") == 1


# ── interrupted ────────────────────────────────────────────────────────────────────────────────
INTERRUPTED = """
import os, signal, sys
from glassformer.cli import main
from glassformer.verification import resume_log

counted, chunks = resume_log.JournalState.with_chunks, []
def with_chunks(*words):
    chunks.append(words)
    if len(chunks) == 3:
        os.killpg(0, signal.SIGINT)  # to all of them, as a terminal does
    return counted(*words)

resume_log.WRITE_INTERVAL_S, resume_log.JournalState.with_chunks = 0, with_chunks
sys.modules["glassformer.verification.verifier"].chunk_size = lambda *_: 100
main()
"""


@pytest.mark.parametrize("saves", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_ctrl_c(tmp_path, call, saves, monkeypatch):
    path = tmp_path / "v.json"
    words = [
        "verify",
        "addition:digits=2",
        "--workers",
        "2",
        *(["--out", str(path)] if saves else []),
    ]
    run = subprocess.Popen([sys.executable, "-c", INTERRUPTED, *words], stderr=subprocess.PIPE,
        text=True,
                           start_new_session=True,
                           preexec_fn=lambda: signal.signal(signal.SIGINT,
                           signal.default_int_handler))  # fmt: skip
    journal = tmp_path / "v.json.journal"
    _, err = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130 and err.count("\n") == 1 and "Traceback" not in err, err
    if not saves:
        assert "--out FILE" in err
        return
    assert f"glassformer {' '.join(words)}" in err and not path.exists()
    before = json.loads(journal.read_text())["found"]["domain"]["looked_at"]
    assert 0 < before < 10**4
    monkeypatch.setattr(
        sys.modules["glassformer.verification.verifier"], "chunk_size", lambda *_: 100
    )
    status, out, err = call(*words, "--json")
    assert status == 0 and str(journal) in err and not journal.exists()
    got = json.loads(out)
    assert got["checked"] == 10**4 and got["wrong"] == 0
