"""The judge within limits, and the command that asks it."""

import json
import sys

import pytest

from glassformer.puzzles import judge, judge_in_process, judge_process, level
from glassformer.utils import workers
from glassformer.utils.sandbox.child import limited_memory
from puzzles.measure import SOLUTIONS

LIGHT = SOLUTIONS / "traffic-light.1.taotp"


def test_it_says_what_the_judge_says():
    text = LIGHT.read_text("utf-8")
    assert (
        judge_in_process("traffic-light", text).to_json()
        == judge(level("traffic-light"), text).to_json()
    )


def test_what_takes_too_long_ends():
    """A model that is small to write, and takes hours on a million questions."""
    wide = 'tokens: "0123456789+="  block_size: 12  norm: none  tok_emb: ones(12 300)\n'
    layer = "{ Q: ones(300 300) K: ones(300 300) V: ones(300 300) P: ones(300 300) }"
    result = judge_in_process("add-3", f"{wide}layers: [{layer * 9}]", seconds=3)
    assert result.problem == "add-3.taotp — took more than 3 s"
    assert not result.passed and result.best


def test_what_takes_too_much_ends():
    result = judge_in_process("traffic-light", LIGHT.read_text("utf-8"), memory=2**26)
    assert "took more than" in result.problem and "0.1 GiB" in result.problem


@pytest.mark.parametrize("prepare,setup,said", [
    ("operator:neg", "x", "a defect of glassformer: TypeError: bad operand"),
    ("os:_exit", 7, "its process ended with status 7"),
    ("signal:raise_signal", 11, "died (SIGSEGV), maybe for lack of memory"),
    ("signal:raise_signal", 24, "it used up its processor time"),
    ("time:sleep", 600, "took more than 1 s"),
])  # fmt: skip
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_why_there_is_no_judgement(monkeypatch, prepare, setup, said):
    monkeypatch.setattr(judge_process, "PREPARE", prepare)
    monkeypatch.setattr(judge_process, "SETUP", setup)
    monkeypatch.setattr(workers, "START_SECONDS", 1 if prepare == "time:sleep" else 60)
    result = judge_in_process("traffic-light", "x", seconds=90)
    assert result.problem.startswith("traffic-light.taotp — ") and said in result.problem


def test_a_process_that_goes_on_has_its_memory_back():
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    with limited_memory(2**44):
        assert resource.getrlimit(resource.RLIMIT_AS)[0] <= 2**44
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_text_that_is_too_long_is_not_even_sent():
    assert "at most 100,000 characters" in judge_in_process("traffic-light", "x" * 10**6).problem


def test_the_folder_that_one_is_in_is_not_looked_into(tmp_path, monkeypatch):
    """A file there that is called as a library is not that library."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numpy.py").write_text("open('ran', 'w').close()\n")
    assert judge_in_process("traffic-light", LIGHT.read_text("utf-8")).passed
    assert not (tmp_path / "ran").exists()


# ── the command ────────────────────────────────────────────────────────────────────────────────
@pytest.mark.slow
def test_check(call, tmp_path):
    status, out, err = call("puzzle", "check", "traffic-light", LIGHT)
    assert (status, err) == (0, "")
    assert out.startswith(
        "The traffic light (traffic-light): right: all 120 questions; the right token leads by "
    )
    assert "best known" in out and out.endswith("Next: glassformer list levels echo\n")
    stub = tmp_path / "mine.taotp"
    stub.write_text(level("traffic-light").stub)
    status, out, err = call("puzzle", "check", "traffic-light", stub)
    output = "wrong: 120 of all 120 questions; the smallest: red → red, expected green"
    assert (status, out, err) == (1, f"The traffic light (traffic-light): {output}\n", "")
    status, out, _ = call("puzzle", "check", "traffic-light", stub, "--json")
    assert status == 1 and json.loads(out)["counterexample"]["got"] == "red"


@pytest.mark.parametrize("words,said", [
    (["trafic-light", "x.taotp"], "no such level; did you mean traffic-light"),
    (["traffic-light", "x.glass"], "x.glass — traffic-light: expected a .taotp file"),
    (["traffic-light", "nowhere.taotp"], "nowhere.taotp — "),
    (["traffic-light", "bad.taotp"], "bad.taotp:1:13 — expected a value"),
])  # fmt: skip
def test_a_call_that_is_wrong(call, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.taotp").write_text("tok_emb: [[1")
    status, out, err = call("puzzle", "check", *words)
    assert (status, out) == (2, "") and said in err and err.count("\n") == 1


def test_list_levels(call):
    status, out, _ = call("list", "levels")
    assert status == 0 and out.startswith(" 1  traffic-light  The traffic light: After red")
    reported = json.loads(call("list", "levels", "--json")[1])["levels"]
    assert [each["number"] for each in reported] == list(range(1, len(reported) + 1))
    _, out, err = call("list", "levels", "echo-in-20")
    assert not err
    for part in ("At most: 20 parameters", "Best known, on each axis: 20 parameters", "Hint 3: ",
                 "Judged by all 1,000 questions: glassformer puzzle check echo-in-20 ",
                 level("echo-in-20").stub):  # fmt: skip
        assert part in out
    assert json.loads(call("list", "levels", "add-10", "--json")[1])["task_ref"] == "digit-addition"
    assert "a proof for all about 10^20 questions" in call("list", "levels", "add-10")[1]
    assert call("list", "levels", "3")[1] == out
    status, _, err = call("list", "levels", "nowhere")
    assert status == 2 and "no such level" in err
