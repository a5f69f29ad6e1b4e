"""Names, options and their errors. A program and a task of our own stand in for the real ones."""

from typing import Annotated, Literal

import numpy as np
import pytest

from glassformer import Config, GlassformerError, Model, Vocabulary, load, load_task, save
from glassformer.core.model import zeros
from glassformer.registry import REGISTRY, Between, entries, program, split_ref, task
from glassformer.tasks.base import Task


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
    with pytest.raises(GlassformerError, match="not right in float32: right up to 4"):
        load("own:size=6,dtype=float32")


@pytest.mark.parametrize("ref,match", [
    ("owm", "owm — no such program; did you mean own"),
    ("zzzzzz", "no such program; there are "),
    ("own:sise=3", "has no option 'sise'; did you mean size?"),
    ("own:size=x", "own:size=x — size must be a whole number from 1 to 9, got 'x'"),
    ("own:size=10", "size must be a whole number from 1 to 9, got 10"),
    ("own:size=99999999999999999999999", "size must be"),
    ("own:way=three", "way must be one of one, two, got 'three'"),
    ("own:on=maybe", "on must be true or false"),
    ("own:size", "expected option=value"),
    ("own:size=3,size=4", "given twice"),
    ("own:size=7", "own:size=7 — 7 is unlucky"),
    ("own:dtype=float8", "dtype must be one of float64, float32"),
    ("a/b.bin", "expected a program, or a file that ends in"),
    ("", "expected a ref or a path"),
])  # fmt: skip
def test_bad_refs(own, ref, match):
    with pytest.raises(GlassformerError, match=match):
        load(ref)


def test_bad_calls_from_python(own):
    build, OwnTask = own
    with pytest.raises(GlassformerError, match="size must be a whole number"):
        build(size="3")
    with pytest.raises(GlassformerError, match="unexpected keyword"):
        build(colour=3)
    with pytest.raises(GlassformerError, match="size must be"):
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
    with pytest.raises(GlassformerError, match="'x' at character 2"):
        v.encode("bx")
    n = Vocabulary.numbers(10, first=-5)
    assert n.encode("-5, 0 4") == [0, 5, 9] and n.decode([0, 9]) == "-5 4"
    for bad in ("5", "-6", "1.5", "x", "9" * 30):
        with pytest.raises(GlassformerError, match="whole number from -5 to 4"):
            n.encode(bad)
    assert Vocabulary.from_json(n.to_json()) == n != Vocabulary.from_json(v.to_json()) == v
    with pytest.raises(GlassformerError, match="different"):
        Vocabulary("aa")
    assert np.array_equal(Vocabulary.numbers(10**6).encode("999999"), [999_999])


def test_a_file_without_an_ending_is_not_taken_for_a_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save("min:vocab=3", "model.safetensors").rename("model")
    with pytest.raises(GlassformerError, match=r"ends in \.safetensors"):
        load("model")


def test_a_thing_of_another_kind_in_a_file_that_was_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import glassformer as gf\nquick = gf.Recipe(name='q')\n")
    with pytest.raises(GlassformerError, match="expected a task, that is something else"):
        load_task("mine.py:quick")


def test_options_as_keywords_are_pointed_to_the_ref():
    with pytest.raises(GlassformerError, match="addition:digits=3"):
        load("addition", digits=3)
