"""Messages for common wrong names and options: they name what exists, and a fix."""

import copy
import json
import pickle
import re
from contextlib import contextmanager

import pytest

import glassformer as gf
from glassformer.cli import prove
from glassformer.utils.errors import short_repr
from glassformer.utils.progress import Progress
from helpers import raises

REF = "addition:digits=1"
TASKS = """
open("ran", "w").write("yes")
class Parity(gf.Task): ...
class Half(Parity): ...
class _Hidden(Parity): ...
class Other: ...
def program(): ...
quick = gf.Recipe(steps=3)
PI = 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(TASKS)
    return tmp_path


@pytest.mark.parametrize("words", [
    ["check-task", "mine.py"], ["check-task", "mine.py:"],
    ["train", "mine.py", "--out", "x.safetensors"],
    ["verify", REF, "--task", "mine.py"], ["run", "mine.py"],
], ids=" ".join)  # fmt: skip
def test_a_file_without_a_name_is_read_and_not_run(call, here, words):
    status, _, err = call(*words)
    assert status == 2 and err.count("\n") == 1 and "FILE.py:NAME" in err
    names = "Parity", "Half", "Other", "program", "quick"
    assert re.findall(r"mine\.py:(\w+)", err) == [*names], err
    assert not (here / "ran").exists()


def test_so_it_is_from_python(here):
    for call in (gf.check_task, gf.load_task, gf.load, lambda ref: gf.verify(REF, ref)):
        with raises("bad_argument", "mine.py:Parity", "mine.py:Half"):
            call("mine.py")
    (here / "empty.py").write_text("x = 3\n")
    (here / "bad.py").write_text("x = = 3\n")
    for name, code in {"empty": "bad_argument", "bad": "bad_argument", "no": "not_found"}.items():
        with raises(code, f"{name}.py"):
            gf.check_task(f"{name}.py")
    assert not (here / "ran").exists()


@pytest.mark.parametrize("ask, said", [
    (lambda m: m.run("1+2"), r"a Model has no run; gf.run\(model, …\) does that"),
    (lambda m: m.wieghts, "a Model has no wieghts; did you mean weights"),
    (lambda m: gf.prove(m).proved, "a Proof has no proved; did you mean holds"),
    (lambda m: gf.verify(m).wrongs, "a Verdict has no wrongs; did you mean wrong"),
    (lambda m: gf.count(m).qqq, "a ParameterCount has no qqq; it has "),
])  # fmt: skip
def test_attributes_that_are_not_there(ask, said):
    model = gf.load(REF)
    with pytest.raises(AttributeError, match=said):
        ask(model)
    for thing in (model, gf.count(model)):  # what machines ask for is as ever
        assert not hasattr(thing, "_repr_json_") and getattr(thing, "qqq", 3) == 3
        assert repr(copy.deepcopy(thing)) == repr(pickle.loads(pickle.dumps(thing))) == repr(thing)


@pytest.mark.parametrize("command", ["train", "ablation-study"])
def test_a_field_of_the_recipe_typed_as_an_option(call, command):
    for option, field in ("--steps", "steps"), ("--weight-decay", "weight_decay"):
        status, _, err = call(command, REF, option, "5", "--out", "x.safetensors")
        assert (status, err.count("\n")) == (2, 1) and f"--set {field}=" in err
    assert "No such option" in call("run", REF, "--d-model", "5")[2]


def test_two_kinds_of_value_compared():
    head = "tokens = [*'ab', 1, 2]; length = 4; began = first(token, default='a'); "
    with raises("bad_source", "`x in [1, 2] and x > 1`"):
        gf.compile(head + "emit = 'a' if token > began else 'b'")
    hint = "emit = 'a' if token in [1, 2] and token > 1 else 'b'"
    assert gf.run(gf.compile(head + hint), "a 2").output.startswith("a")


def test_prove_says_what_it_is_doing_while_it_runs(call, monkeypatch):
    events: list[Progress] = []

    @contextmanager
    def recorded(label):
        yield events.append

    monkeypatch.setattr(prove, "progress_bar", recorded)
    other = "addition:digits=1,dtype=float64,variant=book"
    assert call("prove", REF, "--equal-to", other)[0] in (0, 1)
    assert events[0].stage == "running both"
    assert call("prove", REF)[0] == 0 and events[-1] == Progress(100, 100, stage="proving")


HUGE = 10**5000  # Python writes no number of more than 4,300 digits


@pytest.mark.parametrize("ask", [
    lambda m: gf.Config(d_vocab=HUGE, n_ctx=1, d_model=1),
    lambda m: gf.Config(d_vocab=2, n_ctx=1, d_model=1, eps=HUGE),
    lambda m: gf.run(m, "1+1", steps=HUGE),
    lambda m: gf.verify(m, seed=HUGE),
    lambda m: gf.verify(m, rows=[[HUGE, 1]]),
    lambda m: gf.load_task("digit-addition:digits=30").validate_rows([[HUGE, 1]]),
    lambda m: gf.Vocabulary([HUGE]),
    lambda m: gf.load(HUGE),
    lambda m: m([HUGE, 1]),
    lambda m: gf.prove(m, method=HUGE),
])  # fmt: skip
def test_a_whole_number_that_python_does_not_write_is_said_in_words(ask):
    with raises("bad_argument"):
        ask(gf.load(REF))


def test_so_it_is_in_lists_and_below_0():
    assert short_repr([HUGE, {"a": (-HUGE, 3)}]) == "[about 10^5000, {'a': (...)}]"
    assert short_repr(-HUGE) == "about -10^5000" and short_repr(10**4000 * 7) == "about 10^4000"
    assert short_repr(10**70) == "1" + "0" * 27 + "..." + "0" * 29 and short_repr(-12) == "-12"
    with raises("bad_argument", "embed.W_E"):
        gf.Model(gf.load(REF).config, {"embed.W_E": HUGE}, gf.load(REF).vocabulary)


@pytest.mark.parametrize("words, name", [
    (["check-task", "search:vocab=10000,block=1100"], "size"),
    (["prove", "sort:vocab=65536,length=1000", "--equal-to", "sort:vocab=65536,length=1000"],
     "inputs"),
], ids=["task", "prove"])  # fmt: skip
def test_json_has_such_a_number_in_words(call, words, name):
    status, out, err = call(*words, "--json")
    assert (status, err) == (0, "") and json.loads(out)[name].startswith("about 10^4")
