"""Everything the command line does is one call: the same name, a ref, a Model or a text, and what
comes back shows itself.
"""

import doctest
import inspect
import io
import json
import os
import pickle
import re
import sys

import pytest

import glassformer as gf
from glassformer import GlassformerError, api, registry
from glassformer.cli.entry import load_commands
from glassformer.lens import inspect as views
from glassformer.utils.progress import Progress, terminal_line
from helpers import raises

REF = "addition:digits=1"


def names():
    return [c.name.replace("-", "_") for c in load_commands()] + ["check_puzzle"]


@pytest.mark.parametrize("name", names())
def test_every_command_is_a_call(name):
    assert name in dir(gf)
    assert callable(getattr(gf, name)) and (getattr(gf, name).__doc__ or "").strip()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shows_itself(found):
    page = found._repr_html_()
    assert "<" in page and "array(" not in page and len(repr(found)) < 300, repr(found)
    return found


SPEC = (
    'task = "addition:digits=1"\nrecipe = "fast"\n[set]\nsteps = 1\nevaluate_every = 1\n'
    "train_rows = 9\ntest_rows = 9\nd_model = 4\nd_mlp = 4\n"
)


def test_truth_and_disguise(here):
    model = gf.load("reverse")
    result = shows_itself(gf.ground_truth(model))
    assert result.to_json() == gf.ground_truth("reverse").to_json()
    assert json.loads(result.save(here / "t.json").read_text())["format"] == "glassformer-truth"
    copy, key = made = shows_itself(gf.obfuscate("reverse", 3))
    made.save("c.safetensors", "k.json")
    assert gf.load("c.safetensors").config == copy.config and key.faithful
    assert gf.verify(made, "reverse").holds, "a Disguised is a model where one is wanted"


def test_recheck(here):
    verdict = gf.verify(REF)
    path = verdict.save("v.json")
    for given in (path, "v.json", verdict):
        result = shows_itself(gf.recheck(REF, given))
        assert result.holds and result.confirmed
    text = path.read_text()
    path.write_text(text.replace('"worst_margin": ', '"worst_margin": 1', 1))
    with raises("damaged_file", "v.json", "worst_margin"):
        gf.recheck(REF, path)
    path.write_text(text.replace('"worst_margin": ', '"worst_margin": 1'))  # everywhere
    result = gf.recheck(REF, path)
    assert not result.confirmed and result.rerun.holds and "NOT confirmed" in str(result)
    assert result.differences[0]["what"] == "worst_margin"
    with raises("bad_argument", "verdict"):
        gf.recheck(gf.load(REF).map(lambda w: w * 2), verdict)
    with raises("bad_argument", "addition:digits=1"):
        gf.recheck(REF, verdict, "addition:digits=2")


def test_a_verdict_runs_no_file(here):
    (here / "evil.py").write_text("open('ran', 'w')\n")
    path = gf.verify(REF).save("v.json")
    path.write_text(path.read_text().replace('"task": "addition:digits=1"', '"task": "evil.py:X"'))
    with raises("bad_argument", "evil.py:X"):
        gf.recheck(REF, path)
    assert not (here / "ran").exists()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_long_calls_say_how_far_they_are_on_a_terminal_alone(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    gf.claims("booklet-2.4")
    gf.adderboard("addition:digits=10")
    line, last = terminal.getvalue().split("\r\x1b[2K")[1], terminal.getvalue()[-5:]
    assert line.startswith("claims: 0 of ") and "now booklet-2.4" in line
    assert "board: 10,010 of 10,010" in terminal.getvalue() and last == "\r\x1b[2K", "and is gone"
    monkeypatch.setattr(sys, "stderr", pipe := io.StringIO())
    gf.claims("booklet-2.4", progress=lambda p: None)
    gf.claims("booklet-2.4")
    assert not pipe.getvalue()
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    gf.claims("booklet-2.4", progress=lambda p: None)
    assert not terminal.getvalue(), "who watches is told, and nobody else"


def test_dir_has_what_is_public_and_nothing_else():
    plain = [name for name in dir(gf) if not name.startswith("__")]
    assert set(plain) == {*gf.__all__, "list", "compile", "show"}


def test_claims():
    result = shows_itself(gf.claims("booklet-2.4-parameters"))
    assert result.holds and result.measurements[0].measured == 72 and "72 parameters" in str(result)
    with raises("bad_argument", "x"):
        gf.claims(["booklet-2.4", "x"])


def test_prove_by_its_options(here):
    assert shows_itself(gf.prove(REF, accuracy=True)).share == 1
    same = shows_itself(gf.prove(REF, equal_to="addition:digits=1,variant=book"))
    assert same.result in ("equal", "different") and same.method == "enumeration"
    two = "addition:digits=2"
    certificate = gf.prove(two, method="certificate").certificate
    (here / "c.json").write_text(json.dumps(certificate))
    for given in (certificate, here / "c.json", "c.json"):
        assert shows_itself(gf.prove(two, check=given)).holds
    assert not gf.prove(REF, check=certificate).holds
    with raises("bad_argument", "accuracy", "method"):
        gf.prove(REF, accuracy=True, method="enumeration")
    with raises("bad_argument", "independent_check", "enumeration"):
        gf.prove(REF, independent_check=True, method="enumeration")


def test_prove_says_what_it_is_doing():
    events: list[Progress] = []
    gf.prove(REF, progress=events.append)
    assert events[-1] == Progress(100, 100, stage="proving")
    gf.prove(REF, equal_to=gf.load(REF).map(lambda w: w * 2), progress=events.append)
    assert events[-1] == Progress(0, 100, stage="running both")


def test_one_type_of_progress_everywhere():
    """Every public function that takes a callback for progress takes the same one."""
    functions = [name for name in gf.__all__ if name.islower()]
    for name in functions:
        parameters = inspect.signature(getattr(gf, name)).parameters
        assert not {"say", "seen", "tell", "each"} & {*parameters}
        if "progress" in parameters:
            assert parameters["progress"].annotation == "ProgressCallback | None", name
    takes = [n for n in functions if "progress" in inspect.signature(getattr(gf, n)).parameters]
    assert {"verify", "recheck", "prove", "compare", "report", "claims", "sweep", "fit"} <= {*takes}
    events: list[Progress] = []
    gf.verify("addition:digits=2", progress=events.append)
    assert events[-1] == Progress(10_000, 10_000)
    gf.fit(REF, "fast", steps=2, evaluate_every=1, progress=events.append)
    assert events[-1] == Progress(2, 2, stage="training")
    gf.report(REF, progress=events.append)
    assert events[-1].stage == f"{REF}: verifying"
    gf.inspect(REF, only="tokens", progress=events.append)
    assert events[-1].stage == "tokens"


def test_the_board(monkeypatch):
    from glassformer.leaderboard import boards, protocol

    few = lambda *a, **k: protocol.run_protocol(*a, **k, num_pairs=5)  # noqa: E731
    monkeypatch.setattr(boards, "run_protocol", few)
    for given in ("adder-least", gf.load("adder-least")):
        result = shows_itself(gf.adderboard(given))
        assert result.holds and str(result.pairs) == "5 of 5"
    with raises("bad_argument", __file__, "trust=True"):
        gf.adderboard(__file__)
    with raises("bad_argument", "trust"):
        gf.adderboard(trust=True)


@pytest.mark.slow  # it proves
def test_the_honest_board(monkeypatch):
    from glassformer.leaderboard import boards

    monkeypatch.setattr(
        boards, "table_entries", lambda more, *_: more
    )  # ours take seconds to prove
    result = shows_itself(gf.adderboard(gf.load("adder-least"), table=True))
    assert result.entries[0].name == "adder-least" and result.entries[0].known.startswith("proved")
    assert gf.adderboard(__file__, table=True).entries[0].made == "someone's file"


@pytest.mark.slow  # it trains in another process
def test_a_sweep(here):
    (here / "s.toml").write_text(SPEC)
    result = shows_itself(gf.sweep("s.toml", workers=1))
    assert (result.runs, result.lost, result.holds) == (1, 0, True) and len(result.rows) == 1
    assert gf.sweep(here / "s.toml").skipped == 1 and (here / "s-sweep/results.csv").exists()


def test_ablations():
    small = {"steps": 1, "evaluate_every": 1, "train_rows": 9, "test_rows": 9}
    result = shows_itself(gf.ablation_study(REF, "fast", seeds=[0], only="no-mlp", **small))
    assert [r.case.name for r in result.results] == ["baseline", "no-mlp"]
    assert "no-mlp" in str(result)


VOTE = """
import numpy as np
import glassformer as gf

class Vote(gf.Task):
    def __init__(self, people: int = 3) -> None:
        self.vocabulary = gf.Vocabulary(["no", "yes"], sep=" ")
        self.radix = (2,) * people

    def batch(self, rows):
        most = 2 * rows.sum(1, keepdims=True) > rows.shape[1]
        return gf.tasks.token_layout.mark_answer(np.concatenate([rows, most], 1))
"""


def test_a_task_is_tried_and_registered(here, monkeypatch):
    monkeypatch.setitem(registry.REGISTRY, "task", dict(registry.entries("task")))
    (here / "mine.py").write_text(VOTE)
    for given in ("sort", REF, gf.load_task(REF), gf.load(REF), "mine.py:Vote", "lang/copy"):
        assert shows_itself(gf.check_task(given)).holds, given
    space: dict[str, object] = {}
    exec(VOTE, space)
    named = gf.task("vote-of-mine")(space["Vote"])
    assert gf.check_task(named).task == gf.load_task("vote-of-mine").ref == "vote-of-mine"
    gf.task("vote-of-mine")(named)  # a cell run twice
    with raises("not_found", "adition", "addition"):
        gf.check_task("adition")


@pytest.mark.parametrize("kind", ["recipes", "lang", "levels"])
@pytest.mark.parametrize("name", [3, None, ["fast"], "no-such-one"])
def test_one_of_a_list_is_named_by_a_text(kind, name):
    with pytest.raises(GlassformerError):
        gf.list(kind, name)


@pytest.mark.parametrize("stream", [None, "closed"])
def test_long_calls_run_where_there_is_nobody_to_tell(stream, monkeypatch):
    output = io.StringIO()
    output.close()
    monkeypatch.setattr(sys, "stderr", None if stream is None else output)
    with terminal_line() as tell:
        tell("3 of 4")


def test_pictures_take_a_program_in_a_file(here):
    (here / "mine.py").write_text(
        "import glassformer as gf\ndef small(): return gf.load('addition:digits=1')\n"
    )
    assert "attention" in repr(gf.show.attention("mine.py:small", "4+8"))


def test_run_says_why_and_what_it_means():
    why = gf.run(REF, "4+8", trace=True)
    assert [row["step"] for row in why.trace] == [1, 2] and why.trace[0]["reads"] == "4+8="
    assert why.to_json()["trace"] and "trace" not in gf.run(REF, "4+8").to_json()
    meant = gf.run("lang/copy", "3 1 |", interpret=True)
    assert meant.output == "3 1" and meant.meaning["token"] == ["3", "1", "|"]
    assert meant.to_json()["meaning"] == meant.meaning
    with raises("bad_argument", "lang"):
        gf.run(REF, "4+8", interpret=True)


@pytest.mark.slow  # its workers are processes
def test_open_serves_until_it_is_closed(monkeypatch):
    httpx, opened = pytest.importorskip("httpx"), []
    monkeypatch.setattr("webbrowser.open", opened.append)
    with gf.studio([gf.load(REF), REF], port=0, browser=True) as server:
        assert httpx.get(server.address).status_code == 200
        assert [httpx.get(opened[0]).status_code for _ in range(2)] == [200, 403]
        assert "http://127.0.0.1:" in shows_itself(server)._repr_html_()
    assert "closed" in str(server) and "closed" in server._repr_html_()
    with pytest.raises(httpx.HTTPError):
        httpx.get(server.address)
    with raises("bad_argument", "minutes"):
        gf.studio(REF, minutes=0)


def test_a_report_with_and_without_a_file(here):
    page = gf.report(REF, rows=20)
    assert page.path is None and not any(here.iterdir())
    with pytest.raises(TypeError):
        os.fspath(page)
    assert page.save("a.html").stat().st_size > 1000
    kept = gf.report(REF, out="b.html", rows=20, task=REF, inputs="1+2")
    assert kept.path.exists() and os.path.getsize(kept) == kept.path.stat().st_size
    assert "srcdoc" in page._repr_html_() and "<iframe" in page._repr_html_()
    with raises("bad_argument", "a.txt", ".html"):
        page.save("a.txt")


def test_export_writes_what_is_ours_too(here):
    for to in ("safetensors", "taotp"):
        result = shows_itself(gf.export(REF, to, f"a.{to}"))
        assert result.bytes == os.path.getsize(result.path)
        assert json.loads(json.dumps(result.to_json()))["path"] == f"a.{to}"
        assert gf.run(f"a.{to}", "4+8").output == gf.run(REF, "4+8").output
    assert shows_itself(gf.export(REF, "torch", "m.py")).path.exists()


def functions():
    return [n for n in [*gf.__all__, "list", "compile"] if n[0].islower()]


@pytest.mark.parametrize("name", functions())
def test_a_public_function_has_a_signature_a_docstring_and_a_place(name):
    function = getattr(gf, name)
    assert function.__name__ == name and pickle.loads(pickle.dumps(function)) is function
    parameters = inspect.signature(function).parameters.values()
    assert parameters and all(p.annotation is not p.empty for p in parameters)
    assert inspect.getsourcefile(function) == api.__file__
    text = inspect.getdoc(function)
    for p in parameters:  # functions of a single argument are described in a sentence
        assert len(parameters) <= 2 or f"    {p.name}: " in text or f"**{p.name}: " in text or (
            "Arguments as of" in text
        ), p  # fmt: skip


@pytest.mark.parametrize("name", functions())
def test_a_public_function_documents_its_result_its_errors_and_an_example(name):
    headings = re.findall(r"^(Returns|Raises|Example):$", inspect.getdoc(getattr(gf, name)), re.M)
    assert headings == ["Returns", "Raises", "Example"]


SLOW_EXAMPLES = {"ablation_study", "studio", "sweep"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW_EXAMPLES))
        for n in functions()
        if n != "tour"  # test_tour.py runs it
    ],
)
def test_the_example_of_a_public_function_runs(name, here, monkeypatch):
    for kind in ("task", "program", "parametrization"):  # examples register names
        monkeypatch.setitem(registry.REGISTRY, kind, dict(registry.entries(kind)))
    monkeypatch.setattr(views, "VIEWS", dict(views.VIEWS))
    function = inspect.unwrap(getattr(gf, name))
    (example,) = doctest.DocTestFinder().find(function, name, globs={})
    result = doctest.DocTestRunner().run(example)
    assert result.attempted > 1 and not result.failed


def test_fields_of_a_recipe_are_keyword_arguments():
    from glassformer.training.recipe import RECIPE_FIELDS
    from glassformer.training.recipe_fields import RecipeFields

    assert {n: f.type for n, f in RECIPE_FIELDS.items()} == RecipeFields.__annotations__
