"""A mistake in a user's task is reported in one line that names it, by every caller."""

import numpy as np
import pytest

import glassformer as gf
from glassformer import load_task
from glassformer.core.model import zeros
from glassformer.tasks.base import Task
from glassformer.tasks.token_layout import TokenLayout, checked_layout, mark_answer
from helpers import raises


class Twice(Task):
    """After n comes n again. The row is n."""

    def __init__(self):
        self.vocabulary, self.radix = gf.Vocabulary("abcd"), (4,)

    def batch(self, rows):
        return rows.repeat(2, 1), np.tile([False, True], (len(rows), 1))


def without_an_answer(self, rows):
    tokens, answer = Twice.batch(self, rows)
    return tokens, answer & (rows != 3)


MISTAKES = {  # what the message must mention, and the task's methods or fields
    ("batch", "[3]"): {"batch": without_an_answer},
    ("batch", "first position"): {
        "batch": lambda s, rows: (rows.repeat(2, 1), np.ones((len(rows), 2), bool))
    },
    ("batch", "float64"): {
        "batch": lambda s, rows: (rows.repeat(2, 1) / 1, Twice.batch(s, rows)[1])
    },
    ("batch", "int64", ", 0]"): {"batch": lambda s, rows: (rows[:, :0], rows[:, :0] > 0)},
    ("batch", "[["): {
        "batch": lambda s, rows: (rows.repeat(2, 1).tolist(), Twice.batch(s, rows)[1])
    },
    ("batch", "3, ", "[3]"): {
        "batch": lambda s, rows: (rows.repeat(2, 1) + 1, Twice.batch(s, rows)[1])
    },
    ("batch", ", 2]", "int64"): {"batch": lambda s, rows: (rows.repeat(2, 1), rows.repeat(2, 1))},
    ("batch", "None"): {"batch": lambda s, rows: None},
    ("batch",): {"batch": Task.batch},
    ("radix", "4"): {"radix": 4},
    ("radix", "(0,)"): {"radix": (0,)},
    ("radix", "(2.5,)"): {"radix": (2.5,)},
    ("vocabulary", "'abcd'"): {"vocabulary": "abcd"},
    ("defined", "int64"): {"defined": lambda s, rows: rows[:, 0]},
    ("defined", "bool [1]"): {"defined": lambda s, rows: np.ones(1, bool)},
    ("defined", "got True"): {"defined": lambda s, rows: True},
    ("rows", ", 1]", "int64"): {"rows": lambda s, start, stop: np.arange(start, stop)},
}


@pytest.fixture(params=MISTAKES, ids=" ".join)
def mistake(request):
    """A task with one mistake, and what the message must mention."""
    wrong = dict(MISTAKES[request.param])
    values = {name: wrong.pop(name) for name in ("radix", "vocabulary") if name in wrong}
    task = type("Mine", (Twice,), wrong)()
    vars(task).update(values)
    return task, request.param


def model():
    config = gf.Config(4, 3, 4, n_layers=0, norm="none", positions="none")
    weights = zeros(config) | {"embed.W_E": np.eye(4), "unembed.W_U": np.eye(4)}
    return gf.Model(config, weights, gf.Vocabulary("abcd"))


@pytest.mark.parametrize("ask", [
    lambda task: gf.verify(model(), task), lambda task: gf.prove(model(), task),
    lambda task: gf.fit(task, "fast", steps=1, data="split", train_rows=1, test_rows=0),
    lambda task: next(gf.train(task, "fast", steps=1, data="split", train_rows=1, test_rows=0)),
], ids=["verify", "prove", "fit", "train"])  # fmt: skip
@pytest.mark.some(4)
def test_a_mistake_is_named(ask, mistake):
    with raises("bad_argument", "Mine", *mistake[1]) as caught:
        ask(mistake[0])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name,method", [
    ("edges", lambda s: None), ("sample", lambda s, n, rng: rng.random((n, 1))),
])  # fmt: skip
def test_rows_of_one_s_own(name, method):
    task = type("Mine", (Twice,), {name: method})()
    with raises("bad_argument", "Mine", name):
        gf.verify(model(), task, sample=9)


def test_a_task_with_a_mistake_can_be_shown():
    assert repr(gf.Task()) == "<Task Task — vocabulary: expected a Vocabulary, got None>"


def test_without_one_it_is_a_task():
    assert gf.verify(model(), Twice()).holds and gf.prove(model(), Twice()).result == "proved"


def test_a_format_that_one_row_does_not_have():
    class Parity(Task):
        """A number of five digits, ones first, and whether it is odd. One row may be off."""

        def __init__(self, off=-1):
            self.vocabulary, self.radix, self.off = gf.Vocabulary("0123456789"), (15_000,), off

        def layout(self):
            return TokenLayout((*[("n", i) for i in range(5)], ("odd", 0)), 5)

        def values(self, rows):
            return {"n": rows[:, 0], "odd": rows[:, 0] % 2}

        def batch(self, rows):
            odd = (rows % 2) ^ (rows == self.off)
            return mark_answer(np.concatenate([rows // 10 ** np.arange(5) % 10, odd], 1))

    assert checked_layout(Parity())
    with raises("bad_argument", "odd0", "5"):
        checked_layout(Parity(12_345))


@pytest.mark.parametrize("kind", ["uint8", "int32", "uint64"])
def test_whole_numbers_of_any_kind_are_those_of_int64(kind):
    """Else kinds mix, and int64 with uint64 makes floats."""
    methods = {
        "batch": lambda s, rows: (rows.repeat(2, 1).astype(kind), Twice.batch(s, rows)[1]),
        "rows": lambda s, a, b: Task.rows(s, a, b).astype(kind),
        "sample": lambda s, n, rng: Task.sample(s, n, rng).astype(kind),
        "edges": lambda s: np.zeros((1, 1), kind),
    }
    task = type("Mine", (Twice,), methods)()
    rows = task.rows(0, 4)
    results = [rows, task.sample(3, np.random.default_rng(0)), task.edges(), task.batch(rows)[0]]
    assert {x.dtype for x in results} == {np.dtype(np.int64)}


def test_what_a_task_says_of_its_format_and_modulus_is_looked_at():
    for layout, mention in ((lambda s: 5, "TokenLayout"), (lambda s: 1 / 0, "ZeroDivisionError")):
        with raises("bad_argument", "Mine", "layout", mention):
            type("Mine", (Twice,), {"layout": layout})().layout()
    with raises("bad_argument", "modular", "True"):
        gf.verify(model(), type("Mine", (Twice,), {"modular": True})())


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.batch("x"),
        lambda t: t.batch(np.zeros(3)),
        lambda t: t.batch(np.zeros((2, 2))),
        lambda t: t.classes(()),
        lambda t: t.defined(-1),
        lambda t: t.defined(range(10**12)),
        lambda t: t.values(1.0),
        lambda t: t.values(np.array(["a"])),
        lambda t: t.at_difficulty(b"x", True),
        lambda t: t.counterfactual_answers(["a"], None),
        lambda t: t.rows("a", {}),
        lambda t: t.rows(-1, 5),
        lambda t: t.rows(0, 10**40),
        lambda t: t.sample(1, "x"),
        lambda t: t.sample_or_all("x"),
        lambda t: t.sample_or_all(n=np.array([1, 2])),
        lambda t: t.prompt([1]),
        lambda t: t.read([]),
        lambda t: t.declares([1]),
        lambda t: t.answer(0),
    ],
)
def test_wrong_arguments_of_methods_are_refused_in_one_line(call):
    for ref in ("addition:digits=2", "reverse:length=3", "lang/copy"):
        with raises("bad_argument"):
            call(load_task(ref))
