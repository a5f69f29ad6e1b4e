"""add-mod, in all variants: every pair of 1- and 2-digit numbers; of 3 digits all with -m slow,
else a sample.
"""

import pytest

from glassformer.core.decoding import decode
from glassformer.core.param_count import count
from glassformer.resolve import load, load_task
from glassformer.verification import verify
from helpers import raises

PLACES = ("ones", "tens", "hundreds", "thousands")
SMALL = [(n, place) for n in (1, 2) for place in PLACES[: n + 1]]
FLOAT32 = {"hinge": (1, 2, 3), "table": (1, 2, 3), "book": (1,)}


@pytest.mark.parametrize("variant", ["hinge", "table", "book"])
@pytest.mark.parametrize(("digits", "place"), SMALL)
@pytest.mark.some(4)
def test_every_pair(variant: str, digits: int, place: str) -> None:
    model = load(f"add-mod:digits={digits},place={place},variant={variant}")
    for m in [model] + [model.astype("float32")] * (digits in FLOAT32[variant]):
        verdict = verify(m, load_task(model))
        assert (verdict.wrong, verdict.checked, verdict.exhaustive) == (0, 100**digits, True), (
            f"{m.dtype}: {verdict}"
        )


@pytest.mark.parametrize("variant", ["hinge", "table", "book"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.some(5)
def test_three_digits(variant: str, place: str) -> None:
    model = load(f"add-mod:digits=3,place={place},variant={variant}")
    for m in [model] + [model.astype("float32")] * (3 in FLOAT32[variant]):
        verdict = verify(
            m, load_task(model), sample={"hinge": 20_000, "table": 2_000, "book": 500}[variant]
        )
        assert verdict.wrong == 0, f"{m.dtype}: {verdict}"


@pytest.mark.parametrize(("digits", "zeros"), [(1, 10), (2, 1_000)])
def test_figure_6_3_as_printed_ties_where_the_answer_is_0(digits: int, zeros: int) -> None:
    """Of 0, + and = the lowest token is the answer; `verify` wants the answer above the others."""
    model = load(f"add-mod:digits={digits},variant=printed")
    task = load_task(model)
    rows = task.rows(0, task.size)
    assert sum((a + b) % 10 == 0 for a, b in rows.tolist()) == zeros
    tokens = task.batch(rows)[0]
    logits = model(tokens[:, :-1], last=1)[:, 0]
    assert (logits.argmax(-1) == tokens[:, -1]).all()
    assert (logits[:, [10, 11]] == logits[:, :1]).all()
    assert verify(model, task).wrong == zeros


@pytest.mark.slow
@pytest.mark.parametrize("ref", [
    "hinge", "hinge,dtype=float32", "hinge,place=thousands", "hinge,place=thousands,dtype=float32",
    "table,dtype=float32",
])  # fmt: skip  # "book" is the claim booklet-6.7-right-3
def test_every_pair_of_three_digits(ref: str) -> None:
    model = load(f"add-mod:digits=3,variant={ref}")
    verdict = verify(model, load_task(model))
    assert (verdict.wrong, verdict.checked, verdict.exhaustive) == (0, 1_000_000, True)


@pytest.mark.parametrize("digits", [4, 9])
@pytest.mark.parametrize("place", PLACES)
def test_hinge_goes_on(digits: int, place: str) -> None:
    model = load(f"add-mod:digits={digits},place={place}")
    assert verify(model, load_task(model), sample=5_000).wrong == 0


def test_counts() -> None:
    for variant, totals in {
        "hinge": (74, 80, 86), "table": (473, 3_271, 30_369), "book": (1_226, 9_508, 90_690),
    }.items():  # fmt: skip
        assert (
            tuple(count(load(f"add-mod:digits={n},variant={variant}")).total for n in (1, 2, 3))
            == totals
        )


@pytest.mark.parametrize(("text", "place", "output"), [
    ("12+33", "ones", "5"), ("7+8=", "tens", "1"), ("97 + 05", "hundreds", "1"),
])  # fmt: skip
@pytest.mark.parametrize("variant", ["hinge", "book"])
def test_text(text: str, place: str, output: str, variant: str) -> None:
    model = load(f"add-mod:place={place},variant={variant}")
    task = load_task(model)
    prompt = task.prompt(text)
    assert task.answer(decode(model, prompt, task.steps(prompt))[len(prompt) :]) == output


@pytest.mark.parametrize("text", ["12", "123+4", "1+2+3", "-1+2", "٣+4"])
def test_bad_text(text: str) -> None:
    with raises("bad_argument", "2"):
        load_task("add-mod").prompt(text)


@pytest.mark.parametrize(("ref", "mention"), [
    ("add-mod:digits=2,place=thousands", "thousands"),
    ("add-mod:digits=4,variant=book", "4"),
    ("add-mod:digits=2,variant=book,dtype=float32", "float32"),
    ("add-mod:digits=4,place=thousands,dtype=float32", "float32"),
    ("add-mod:digits=10", "digits"),
])  # fmt: skip
def test_refused(ref: str, mention: str) -> None:
    with raises("bad_argument", mention):
        load(ref)


def test_refused_for_a_reason() -> None:
    """Programs that are refused in float32 are wrong there."""
    for ref in ("add-mod:digits=2,variant=book", "add-mod:digits=4,place=thousands"):
        model = load(ref)
        assert verify(model.astype("float32"), load_task(model), sample=100_000).wrong > 0


def test_edges_are_on_both_sides_of_a_carry() -> None:
    task = load_task("add-mod:digits=3,place=tens")
    classes = task.classes(task.edges())
    assert {"carry", "no carry"} == set(classes)
    assert [99, 1] in task.edges().tolist()
