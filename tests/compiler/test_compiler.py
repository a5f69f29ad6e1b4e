"""Compiled models are small, proved in both float types, and never wrong."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from cases import drawn
from compiler.compiled import built, changed, every, right, small, texts
from glassformer.compiler import compile, library, recheck
from glassformer.compiler.certify import TooManyCases, checker
from glassformer.compiler.driver import (
    DECLARATION_FORMAT,
    PROVENANCE_KEY,
    load_declaration,
    simplified_program,
)
from glassformer.core import checkpoint
from helpers import raises

# The most parameters at n = 10 and 20 (0: no limit), and what Tracr has there (0: not known).
TABLE = {
    "reverse": ((1_400, 2_200), (108_059, 675_879)),
    "sort": ((4_600, 12_600), (269_903, 3_532_223)),
    "sort-unique": ((1_300, 3_700), (9_611, 33_451)),
    "histogram-so-far": ((900, 1_600), (4_153, 14_213)),
    "histogram": ((4_000, 6_800), (4_153, 14_213)),
    "length": ((900, 1_600), (4_153, 14_213)),
    "most-frequent": ((1_700, 2_900), (0, 0)),
    "second-most-frequent": ((8_200, 24_100), (0, 0)),
    "dyck-1": ((1_300, 1_300), (0, 0)),
    "dyck-2": ((18_700, 32_100), (0, 0)),
}
CASES = [(name, k, dtype) for name in TABLE for k in (0, 1) for dtype in ("float64", "float32")]
# The bound on PyTorch's one-pass layer norm is too wide for it: not proved in float32.
CASES.remove(("histogram", 1, "float32"))


def sized(name, n):
    """The options of a source for lists of n out of n."""
    text = library.source_paths()[name].read_text("utf-8")
    return {o: n for o in ("vocab", "length") if f"{o} = option" in text}


def size(model):
    return sum(w.size for w in model.weights.values())


def never_wrong(found, program, many):
    rng = np.random.default_rng(0)
    for start in range(0, many, 500):
        assert right(found.model, program, texts(program, min(500, many - start), rng))


@pytest.mark.parametrize(("name", "k", "dtype"), CASES)
@pytest.mark.some(5)
def test_small_proved_and_never_wrong(name, k, dtype):
    n = 10 * (k + 1)
    result = built(name, dtype, **sized(name, n))
    assert result.certificate.dtype == result.model.dtype == dtype
    assert result.certificate.margin > 0
    assert size(result.model) <= TABLE[name][0][k]
    never_wrong(result, library.load(name, sized(name, n)), 300)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "k", "dtype"), CASES)
def test_thousands_of_texts(name, k, dtype):
    n, many = 10 * (k + 1), drawn(10_000)
    never_wrong(built(name, dtype, **sized(name, n)), library.load(name, sized(name, n)), many)


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("name", TABLE)
@pytest.mark.some(5)
def test_gpt2_shapes(name, k):
    n = 10 * (k + 1)
    result = built(name, target="gpt2", **sized(name, n))
    c = result.model.config
    assert c.n_heads * c.d_head == c.d_model
    tracr = TABLE[name][1][k]
    assert tracr <= 10_000 or size(result.model) < tracr
    never_wrong(result, library.load(name, sized(name, n)), 100)


@pytest.mark.slow
def test_sort_of_50_from_100():
    options = {"vocab": 100, "length": 50}
    result = built("sort", **options)
    never_wrong(result, library.load("sort", options), 40)


def test_recheck_after_saving(tmp_path):
    result = built("reverse", "float32", **sized("reverse", 10))
    path = tmp_path / "reverse.safetensors"
    checkpoint.save(result.model, path)
    again = recheck(checkpoint.load(path))
    assert again.certificate == result.certificate
    named, _, about = str(again).partition(": ")
    assert named == "the embedded source (named 'reverse')"
    assert about == str(result).partition(": ")[2]


def test_wrong_calls():
    text = "tokens = [0, 1]\nlength = 2\nemit = token"
    with raises("bad_argument", "dtype", "float64", "float32"):
        compile(text, dtype="float16")
    with raises("bad_argument", "target", "gpt2", "llama"):
        compile(text, target="llama")


def test_unproved_in_float32_is_refused():
    text = library.source_paths()["sort-words"].read_text("utf-8")
    with raises("unsupported", "sort-words", "float32"):
        compile(text, "sort-words", dtype="float32")


def test_a_table_of_many_arguments_does_not_take_all_their_orders():
    flags = [f"f{i}" for i in range(12)]
    lines = [f"{f} = any(token == {i})" for i, f in enumerate(flags)]
    head = ["tokens = [*range(12)]", "length = 13"]
    result = compile("\n".join([*head, *lines, f"emit = 1 if {' and '.join(flags)} else 0"]))
    assert result.model.config.d_mlp == 1
    rng = np.random.default_rng(0)
    tokens = np.array([[*rng.permutation(12), 0] for _ in range(50)])
    assert right(result.model, result.program, np.concatenate([tokens, tokens % 11]))


def test_too_much_work_is_refused(monkeypatch):
    result = built("sort", vocab=4, length=4)
    monkeypatch.setattr(checker, "MAX_WORK", 100)
    text = library.source_paths()["sort"].read_text("utf-8")
    with raises("unsupported", "sort", "float64", 100):
        compile(text, "sort")
    with pytest.raises(TooManyCases):
        recheck(result.model)


@pytest.mark.parametrize("where", [
    'here.token == "b" and token == "b"', 'token == "b" and (token == "b") != here.f',
    'here.f and token == "b"',
])  # fmt: skip
def test_a_condition_that_stands_here_and_there(where):
    result = compile(
        'tokens = [*"abc"]\nlength = 4\nf = token == "b"\nx = latest('
        f'token, {where}, default="a")\nemit = x if token == "c" else token'
    )
    assert right(result.model, result.program, every(3, 4))


@pytest.mark.parametrize("default", ["", ", default=0"])
def test_a_difference_that_is_an_address_and_is_compared(default):
    """It is in the stream for one look, and another does without: what stands for nothing in it
    must be out of the way of both.
    """
    result = compile(
        f"tokens = [0, 1, 2]\nlength = 5\nb = latest(position, token == 1{default})\n"
        "d = position - b\nx = only(token, position == here.d, default=0)\n"
        "y = latest(token, position < here.d, default=0)\nemit = 0 if x == y else x if x else 1"
    )
    assert right(result.model, result.program, every(3, 5))


# ── what a model carries ───────────────────────────────────────────────────────────────────────
def test_values_of_one_name_get_distinct_names():
    """Looks that begin alike: each has a slot, a head and a lead of its own."""
    look = "latest(token, position < here.position and token != 'a' and token != '{}', default='b')"
    same = " and ".join(f"{look.format(x)} == 'b'" for x in "bcdef")
    c = compile(f"tokens = [*'abcdef']\nlength = 4\nemit = 'a' if {same} else 'b'")
    output = load_declaration(c.model.provenance[PROVENANCE_KEY])[1]
    slots = c.model.labels.slots
    assert sum(b - a for a, b in slots.values()) == c.model.config.d_model
    looks = [n for n in slots if n.startswith("latest(") and "there" not in n]
    assert len(looks) == 5 and all(c.certificate.score_gap[n] > 1 for n in looks)
    assert sorted(n for n in slots if n != "base") == sorted(
        v.name for v, s in output.slots.items() if s.stop > s.start
    )


@pytest.mark.parametrize("version", [99, "1"])
def test_another_format_is_refused(version):
    with raises("damaged_file", "format", version):
        recheck(changed(small("reverse").model, entry={"format": version}))
    older = dict(small("reverse").model.provenance[PROVENANCE_KEY])
    del older["format"]
    with raises("damaged_file", "format", 0):
        recheck(replace(small("reverse").model, provenance={PROVENANCE_KEY: older}))


def test_the_format_is_that_of_the_values_and_their_order():
    """If this is red, give FORMAT the next number: old files would be taken for something else."""
    names = [
        "reverse",
        "sort",
        "histogram",
        "most-frequent",
        "dyck-2",
        "induction",
        "ioi",
        "mean",
        "slide",
    ]
    made = [simplified_program(library.load(n))[0].values for n in names]
    entry = json.dumps([[(type(v).__name__, len(v)) for v in values] for values in made])
    assert (DECLARATION_FORMAT, hashlib.sha256(entry.encode()).hexdigest()[:16]) == (
        1,
        "d23757003d2271dc",
    )


def test_a_test_that_no_key_adds_to_is_proved():
    """The largest value is always reached: its neurons see the beginning alone."""
    text = "tokens = [*range(5)]\nlength = 5\nemit = nth(token, count() - 1, default=0)\n"
    assert compile(text).certificate.margin > 0
