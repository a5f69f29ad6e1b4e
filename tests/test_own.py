"""Things of one's own: FILE.py:NAME is a ref wherever one is typed, and nowhere else."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import glassformer as gf
from glassformer import registry, user_modules
from glassformer.lens.inspect import VIEWS
from glassformer.tasks.examine import examine
from glassformer.training.recipes import RECIPES, find_recipe
from helpers import raises

MINE = '''
import numpy as np
import glassformer as gf
from glassformer.core.weight_shapes import array_shapes

class Vote(gf.Task):
    """Of some votes, what most say."""

    def __init__(self, votes: int = 5) -> None:
        self.votes, self.radix = votes, (2,) * votes
        self.vocabulary = gf.Vocabulary(["no", "yes"], sep=" ")

    def batch(self, rows):
        won = rows.sum(1, keepdims=True) * 2 > self.votes
        tokens = np.concatenate([rows, won], 1)
        return tokens, np.broadcast_to(np.arange(self.votes + 1) == self.votes, tokens.shape)

def majority(votes: int = 5) -> gf.Model:
    """Attention alone, the same to all: it counts."""
    c = gf.Config(2, votes + 1, 2, n_heads=1, n_layers=1, d_mlp=0, norm="none", positions="none")
    weights = {name: np.zeros(shape) for name, shape in array_shapes(c).items()}
    weights["embed.W_E"] = np.eye(2)
    weights["blocks.0.attn.W_V"][0], weights["blocks.0.attn.W_O"][0] = np.eye(2), 99 * np.eye(2)
    weights["unembed.W_U"] = np.eye(2)
    return gf.Model(c, weights, Vote(votes).vocabulary, f"{FILE}:Vote:votes={votes}")

FILE = "mine.py"
quick = gf.Recipe(name="quick", n_layers=1, n_heads=1, d_model=16, d_mlp=32, steps=60,
                  data="split", train_rows=28, test_rows=0, batch=28, evaluate_every=20)

@gf.view("largest", gist="the largest weight is {:.3g}".format)
def largest(s):
    return max(abs(w).max() for w in s.model.weights.values())

class Half(gf.registry.find("parametrization", "dense").build):
    """Theta is twice the weights."""

    def init_theta(self, weights, rng):
        return {name: 2 * w for name, w in super().init_theta(weights, rng).items()}

    def expand(self, theta, shapes):
        return {name: w / 2 for name, w in super().expand(theta, shapes).items()}
'''
BATCH = "    def batch"


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with mine.py in it; what is typed is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    for kind in list(registry.REGISTRY):
        monkeypatch.setitem(registry.REGISTRY, kind, dict(registry.entries(kind)))
    shelves = user_modules.LOADED_FILES, RECIPES, VIEWS
    before = [dict(shelf) for shelf in shelves]
    Path("mine.py").write_text(MINE)
    yield tmp_path
    for shelf, old in zip(shelves, before, strict=True):
        shelf.clear()
        shelf.update(old)


@pytest.mark.slow
def test_the_walk_of_a_task_on_the_command_line(mine, call):
    status, out, err = call("train", "mine.py:Vote", "--recipe", "mine.py:quick",
        "--set", "steps=300", "--out", "v.safetensors")  # fmt: skip
    assert status == 0, out + err
    assert gf.load("v.safetensors").task == "mine.py:Vote"
    for words in (
        ["verify", "v.safetensors"], ["prove", "v.safetensors"], ["inspect", "v.safetensors"],
        ["report", "v.safetensors", "--out", "v.html"],
        ["run", "v.safetensors", "yes no yes no no"],
        ["explain", "v.safetensors", "yes no yes no no"],
        ["compare", "v.safetensors", "v.safetensors"],
    ):  # fmt: skip
        status, out, err = call(*words, "--task", "mine.py:Vote")
        assert status == 0, (words, out, err)
    assert call("export", "v.safetensors", "--to", "taotp", "--out", "v.taotp")[0] == 0
    status, out, _ = call("inspect", "v.safetensors", "--only", "mine.py:largest")
    assert status == 0 and "the largest weight is" in out


def test_a_program_and_a_parametrization(mine, call):
    status, out, _ = call("run", "mine.py:majority", "yes no yes no yes", "--task", "mine.py:Vote")
    assert (status, out.strip()) == (0, "yes")
    seven = "mine.py:Vote:votes=7"
    status, out, _ = call("verify", "mine.py:majority:votes=7", "--task", seven, "--json")
    data = json.loads(out)
    assert (status, data["wrong"], data["task"]) == (0, 0, seven)
    assert gf.load("mine.py:majority").provenance["ref"] == "mine.py:majority"
    status, out, err = call(
        "train",
        "mine.py:Vote",
        "--recipe",
        "mine.py:quick",
        "--parametrization",
        "mine.py:Half",
        "--out",
        "h.safetensors",
    )
    assert status in (0, 1), err
    assert gf.load("h.safetensors").parametrization == "mine.py:Half"
    del registry.REGISTRY["parametrization"]["mine.py:Half"]  # as in another process
    alone = gf.load("h.safetensors")
    assert (alone.parametrization, alone.theta) == ("", {})


def test_from_python(mine):
    assert gf.verify("mine.py:majority", "mine.py:Vote").holds
    assert gf.load_task("mine.py:Vote:votes=3").size == 8
    with raises("bad_argument", "mine.py:Vote", "program"):
        gf.load("mine.py:Vote")


@pytest.mark.slow
def test_a_task_goes_to_other_processes(mine):
    assert gf.verify(
        "mine.py:majority:votes=11", "mine.py:Vote:votes=11", workers=2, chunk=16
    ).holds


def test_an_edited_file_is_run_again(mine):
    assert gf.load_task("mine.py:Vote").size == 32
    Path("mine.py").write_text(MINE.replace("votes: int = 5", "votes: int = 7"))
    assert gf.load_task("mine.py:Vote").size == 128


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "Vote"),
        ("def Vote(", "mine.py:1 — SyntaxError"),
        ("\n1/0", "mine.py:2 — ZeroDivisionError"),
        ("import no_such_thing", "mine.py:1 — ModuleNotFoundError"),
        ("raise SystemExit(3)", "mine.py:1 — SystemExit: 3"),
        ("Vote = 3", "mine.py:Vote — expected a task"),
        ("class Vote: pass", "mine.py:Vote — expected a task"),
    ],
)
def test_what_is_wrong_with_a_file_is_a_line(mine, call, text, says):
    Path("mine.py").write_text(text)
    status, out, err = call("verify", "min", "--task", "mine.py:Vote")
    assert (status, out) == (2, "") and says in err and err.count("\n") == 1, err


def test_a_function_that_exits_does_not_set_the_status(mine, call):
    """Status 0 would mean that the model is right."""
    for error in ("SystemExit(0)", "GeneratorExit"):
        Path("mine.py").write_text(f"def model():\n    raise {error}\n")
        status, out, err = call("verify", "mine.py:model")
        assert (status, out, err.count("\n")) == (2, "", 1) and error[:10] in err


def test_a_file_that_is_not_there(mine, call):
    status, _, err = call("run", "no.py:thing")
    assert status == 2 and "no.py — cannot be read" in err


def test_a_name_that_is_no_identifier_lists_those_of_the_file(mine, call):
    status, _, err = call("check-task", "mine.py:vote-of-seven")
    assert status == 2 and "expected FILE.py:NAME; tasks: mine.py:Vote" in err


def test_an_option_that_ends_like_a_file_runs_none(call):
    assert call("run", "hello-world:message=a.py") == (0, "a.py\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ["run", "x.safetensors", "1 2"], ["explain", "x.safetensors", "1 2"],
        ["verify", "x.safetensors"], ["prove", "x.safetensors"], ["count", "x.safetensors"],
        ["inspect", "x.safetensors", "--only", "attention"], ["ground-truth", "x.safetensors"],
        ["compare", "x.safetensors", "x.safetensors"], ["adderboard", "x.safetensors"],
        ["report", "x.safetensors", "--out", "x.html"],
        ["obfuscate", "x.safetensors", "--out", "y.safetensors", "--key", "k.json"],
        ["export", "x.safetensors", "--to", "torch", "--out", "x.py"],
        ["train", "min", "--init-from", "x.safetensors", "--set", "steps=1", "--out",
            "z.safetensors"],
        ["list", "hooks", "x.safetensors"], ["sweep", "sweep.toml"],
        ["verify", "x.safetensors", "--recheck", "v.json"],
    ],
)  # fmt: skip
@pytest.mark.some(5)
def test_a_ref_in_a_file_runs_nothing(mine, call, words):
    Path("evil.py").write_text("open('ran', 'w').write('ran')\nX = 1\n")
    model = replace(gf.load("min"), task="evil.py:X")
    model = replace(model, provenance={**model.provenance, "ref": "evil.py:X"})
    gf.save(model, "x.safetensors")
    verdict = gf.verify("min")
    replace(verdict, task="evil.py:X", model=gf.core.checkpoint.digest(model)).save("v.json")
    Path("sweep.toml").write_text('task = "evil.py:X"\nrecipe = "fast"\n')
    call(*words)
    assert not Path("ran").exists()


@pytest.mark.slow
def test_a_sweep_of_ones_own_task(mine):
    Path("sweep.toml").write_text(
        'task = "mine.py:Vote"\nrecipe = "fast"\n[set]\nsteps = 2\ntrain_rows = 20\ntest_rows = 5\n'
    )
    command = [sys.executable, "-m", "glassformer", "sweep", "sweep.toml", "--json"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2 and "--task mine.py:Vote" in refused.stderr
    done = subprocess.run([*command, "--task", "mine.py:Vote"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["task"] == "mine.py:Vote"


def test_what_packages_announce(mine, monkeypatch):
    Path("votes.py").write_text(MINE.replace('FILE = "mine.py"', 'FILE = "x"'))
    monkeypatch.syspath_prepend(str(mine))
    info = mine / "votes-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: votes\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[glassformer.tasks]\nvote=votes:Vote\nbroken=votes:No\n[glassformer.recipes]\nquick=votes:quick\n"
        "[glassformer.programs]\nmajority=votes:majority\n"
    )
    registry.entry_points_of.cache_clear()
    try:
        assert gf.load_task("vote:votes=3").size == 8 and "vote" in gf.list("tasks")
        assert gf.verify("majority", "vote").holds
        assert gf.load("majority").provenance["ref"] == "majority"
        assert find_recipe("quick").steps == 60
        with raises("bad_argument", "votes:No"):
            gf.load_task("broken")
    finally:
        registry.entry_points_of.cache_clear()
        sys.modules.pop("votes", None)


# ── tasks, tried out ───────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", sorted(registry.entries("task")))
def test_tasks_are_in_order(name):
    report = examine(registry.build("task", name))
    assert report.holds, report.problems
    assert report.examples and len(report.good) == 8


def test_the_command_task(mine, call):
    status, out, _ = call("check-task", "mine.py:Vote")
    assert status == 0 and "32 inputs" in out and "yes yes yes yes yes  ->  yes" in out
    assert "problem" not in out and out.count("ok  ") == 8


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("won = rows", "rows = rows ^ (len(rows) > 1); won = rows", "[0, 0, 0, 0, 0]"),
        ("np.concatenate([rows, won], 1)", "np.concatenate([rows * [[1, 1, 1, 1, 0]], won], 1)",
         "[0, 0, 1, 1, 0]"),
        ("np.arange(self.votes + 1) == self.votes", "np.arange(self.votes + 1) % 2 == 1",
         "[0, 0, 0, 0, 0]"),
        (BATCH, "    def edges(self):\n        return np.full((1, 5), 2)\n\n" + BATCH,
         "edges"),
        (BATCH, "    def classes(self, rows):\n        return ['a']\n\n" + BATCH,
         "classes()"),
        ('["no", "yes"], sep=" "', '["x", "xx"]', "xx"),
        (BATCH, "    def steps(self, prompt):\n        return 0\n\n" + BATCH, "steps() returns 0"),
        (BATCH, "    def steps(self, prompt):\n        return 2\n\n" + BATCH, "`stop`"),
        (BATCH, "    def layout(self):\n        return 3\n\n" + BATCH,
            "TokenLayout"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_task_is_told(mine, call, old, new, says):
    assert old in MINE
    Path("mine.py").write_text(MINE.replace(old, new))
    status, out, err = call("check-task", "mine.py:Vote")
    assert status == 1 and "problem" in out and says in out, out + err


def test_an_error_in_ones_own_task_is_told_with_its_line(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    head = "import glassformer as gf\nclass Mine(gf.Task):\n  def __init__(self):\n"
    words = "    self.vocabulary = gf.Vocabulary([*'01'])\n"
    batch = "  def batch(self, rows):\n    return rows.nope\n"
    for text, why in (
        (head + words + "    self.radix = (2, 2)\n" + batch, "its batch failed: AttributeError"),
        (head + words + batch, "radix must be whole numbers from 1"),
        (head + "    self.radix = (2, 2)\n" + batch, "vocabulary: expected a Vocabulary"),
    ):
        name = f"own{len(text)}.py"
        Path(name).write_text(text)
        status, out, err = call("train", f"{name}:Mine", "--out", "o.safetensors")
        assert status == 2 and not out and why in err and "defect" not in err, err
        assert ".py:7)" in err or "failed" not in why
