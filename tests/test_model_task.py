"""A model resolves its task once; no copy, pickle or new registration sees an old one."""

import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
from glassformer import registry, resolve
from glassformer.core.vocabulary import Vocabulary
from glassformer.tasks import Task

REF = "addition:digits=1"
CALLS = {
    "run": lambda folder: gf.run(REF, "4+8"),
    "verify": lambda folder: gf.verify(REF),
    "prove": lambda folder: gf.prove(REF),
    "explain": lambda folder: gf.explain(REF, "4+8"),
    "compare": lambda folder: gf.compare(REF, REF),
    "report": lambda folder: gf.report(REF, folder / "r.html", rows=20),
    "inspect": lambda folder: gf.inspect(REF, only="heads"),
    "ablate": lambda folder: gf.ablate(REF, "head 0.0"),
}


@pytest.fixture
def built(monkeypatch):
    """How often each task is built."""
    counts, build = Counter(), registry.build

    def count(kind, ref):
        counts[ref] += kind == "task"
        return build(kind, ref)

    monkeypatch.setattr(registry, "build", count)
    return counts


@pytest.mark.parametrize("name", CALLS)
def test_a_call_builds_the_task_of_its_model_once(name, built, tmp_path):
    CALLS[name](tmp_path)
    assert built[REF] == 1


def test_a_copy_of_a_model_has_its_own_task():
    model = gf.load(REF)
    task = resolve.load_task(model)
    assert resolve.load_task(model) is resolve.task_if_known(model) is task
    for copy in (replace(model, task="addition:digits=1,order=ones"), model.astype("float32")):
        assert resolve.load_task(copy) is not task
    assert resolve.load_task(pickle.loads(pickle.dumps(model))) is not task
    assert (
        resolve.load_task(replace(model, task="addition:order=ones")).ref == "addition:order=ones"
    )


def test_a_compiled_model_reads_its_source_once():
    model = gf.load("lang/first")
    assert resolve.load_task(model) is resolve.load_task(model)


def test_a_task_registered_anew_is_seen():
    def define(size):
        class Echo(Task):
            def __init__(self) -> None:
                self.vocabulary, self.radix = Vocabulary("ab"), (size,)

            def batch(self, rows):
                return np.zeros((len(rows), 2), int), np.tile([False, True], (len(rows), 1))

        Echo.__qualname__ = "Echo"  # as in a notebook, where a cell is run twice
        return gf.task("model-task-echo")(Echo)

    define(2)
    model = replace(gf.load("min:vocab=2"), vocabulary=Vocabulary("ab"), task="model-task-echo")
    try:
        assert resolve.load_task(model).size == 2
        define(3)
        assert resolve.load_task(model).size == 3
    finally:
        del registry.REGISTRY["task"]["model-task-echo"]


def test_a_file_that_changed_is_seen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = (
        "import numpy as np\nfrom glassformer import Task, Vocabulary\n"
        "class Echo(Task):\n"
        "    def __init__(self):\n"
        "        self.vocabulary, self.radix = Vocabulary('ab'), (SIZE,)\n"
        "    def batch(self, rows):\n"
        "        return np.zeros((len(rows), 2), int), np.tile([False, True], (len(rows), 1))\n"
    )
    file = tmp_path / "mine.py"
    model = replace(gf.load("min:vocab=2"), vocabulary=Vocabulary("ab"), task="mine.py:Echo")
    assert resolve.task_if_known(model) is None  # the user has not passed the file
    for size in (2, 30):
        file.write_text(source.replace("SIZE", str(size)))
        gf.load_task("mine.py:Echo")
        assert resolve.load_task(replace(model)).size == resolve.load_task(model).size == size
