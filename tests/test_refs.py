"""Names, options and their errors. A program and a task of our own stand in for the real ones."""

from typing import Annotated, Literal

import numpy as np
import pytest

from glassformer import Config, GlassformerError, Model, Vocabulary, load, load_task, save
from glassformer.core.model import zeros
from glassformer.registry import REGISTRY, Between, entries, program, split_ref, task
from glassformer.tasks.base import Task
from helpers import raises


@pytest.fixture
def own(monkeypatch):
    entries("program")  # the real ones are there already
    monkeypatch.setitem(REGISTRY, "program", dict(REGISTRY["program"]))
    monkeypatch.setitem(REGISTRY, "task", dict(REGISTRY["task"]))

    @program("own", float32=lambda o: "" if o["size"] < 5 else "right up to 4")
    def build(
        size: Annotated[int, Between(1, 9)] = 3,
        way: Literal["one", "two"] = "one",
        word: str = "x",
        on: bool = False,
    ) -> Model:
        """Makes nothing much."""
        if size == 7:
            raise GlassformerError("7 is unlucky")
        config = Config(size, 4, 2)
        return Model(config, zeros(config), Vocabulary.numbers(size), task=f"own-task:size={size}")

    @task("own-task")
    class OwnTask(Task):
        """Asks nothing much."""

        def __init__(self, size: Annotated[int, Between(1, 9)] = 3) -> None:
            self.vocabulary, self.radix = Vocabulary.numbers(size), (size,)

    return build, OwnTask


def test_a_ref_is_a_call(own):
    build, OwnTask = own
    a, b = load("own:size=4,way=two,on=true"), build(size=4, way="two", on=True)
    assert a.config == b.config and a.provenance == b.provenance
    assert a.provenance["ref"] == "own:size=4,way=two,on=true"
    assert build(3).provenance["ref"] == "own", "defaults are left out"
    assert load_task(a).ref == "own-task:size=4" == OwnTask(4).ref
    assert load_task("own-task").radix == (3,)


def test_dtype(own):
    assert load("own:dtype=float32").dtype == "float32"
    assert load("own:dtype=float32").provenance["ref"] == "own:dtype=float32"
    with raises("bad_argument", "float32"):
        load("own:size=6,dtype=float32")


@pytest.mark.parametrize("ref,match", [
    ("owm", ("not_found", "owm", "own")),
    ("zzzzzz", ("not_found", "zzzzzz")),
    ("own:sise=3", ("bad_argument", "size", "sise")),
    ("own:size=x", ("bad_argument", "own:size=x", "size", "x")),
    ("own:size=10", ("bad_argument", "size", "10")),
    ("own:size=99999999999999999999999", ("bad_argument", "size")),
    ("own:way=three", ("bad_argument", "way", "three")),
    ("own:on=maybe", ("bad_argument", "on")),
    ("own:size", ("bad_argument", "option=value")),
    ("own:size=3,size=4", ("bad_argument", "own:size=3")),
    ("own:size=7", ("bad_argument", "own:size=7")),
    ("own:dtype=float8", ("bad_argument", "dtype", "float64", "float32")),
    ("a/b.bin", ("bad_argument", "a/b.bin")),
    ("", ("bad_argument", "model")),
])  # fmt: skip
def test_bad_refs(own, ref, match):
    with raises(*match):
        load(ref)


def test_bad_calls_from_python(own):
    build, OwnTask = own
    with raises("bad_argument", "size"):
        build(size="3")
    with raises("bad_argument", "own"):
        build(colour=3)
    with raises("bad_argument", "size"):
        OwnTask(size=0)


@pytest.mark.parametrize("ref,options", [
    ("a", {}),
    ("a:b=1,c=x", {"b": "1", "c": "x"}),
    ('a:b="1,c=2",c=3', {"b": "1,c=2", "c": "3"}),
    ("a:b=Hello, World!", {"b": "Hello, World!"}),
    ('a:b="say \\"x\\""', {"b": 'say "x"'}),
    ("a:b=x=y:z", {"b": "x=y:z"}),
    ("a:b=", {"b": ""}),
])  # fmt: skip
def test_split(ref, options):
    assert split_ref(ref) == ("a", options)


def test_a_recorded_ref_builds_the_same_model(own):
    build, _ = own
    for word in ("plain", "Hello, World!", 'a "quoted" \\ one', "x=y,z:1"):
        ref = build(word=word).provenance["ref"]
        assert load(ref).provenance["ref"] == ref
        assert split_ref(ref)[1]["word"] == word


def test_every_real_program_and_task_can_be_made():
    for kind, make in (("program", load), ("task", load_task)):
        for name, entry in entries(kind).items():
            assert entry.help, f"{kind} {name} needs one line of help"
            make(name)


def test_vocabularies():
    v = Vocabulary(["<bos>", "b", "o", "<"])
    assert v.encode("<bos>bo<") == [0, 1, 2, 3] and v.decode([0, 1]) == "<bos>b"
    with raises("bad_argument", "'x'", "2"):
        v.encode("bx")
    n = Vocabulary.numbers(10, first=-5)
    assert n.encode("-5, 0 4") == [0, 5, 9] and n.decode([0, 9]) == "-5 4"
    for bad in ("5", "-6", "1.5", "x", "9" * 30):
        with raises("bad_argument", bad[:9], "-5", "4"):
            n.encode(bad)
    assert Vocabulary.from_json(n.to_json()) == n != Vocabulary.from_json(v.to_json()) == v
    with raises("bad_argument"):
        Vocabulary("aa")
    assert np.array_equal(Vocabulary.numbers(10**6).encode("999999"), [999_999])


def test_a_file_without_an_ending_is_not_taken_for_a_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save("min:vocab=3", "model.safetensors").rename("model")
    with raises("bad_argument", "model"):
        load("model")


def test_a_thing_of_another_kind_in_a_file_that_was_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import glassformer as gf\nquick = gf.Recipe(name='q')\n")
    with raises("bad_argument", "mine.py:quick"):
        load_task("mine.py:quick")


def test_options_as_keywords_are_pointed_to_the_ref():
    with raises("bad_argument", "addition:digits=3"):
        load("addition", digits=3)
