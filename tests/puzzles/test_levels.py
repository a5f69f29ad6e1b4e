"""The levels: in order, complete, their stubs wrong, their solutions right and the best known."""

import json
from pathlib import Path

import pytest

from glassformer import compiler, taotp
from glassformer.core.decoding import decode
from glassformer.puzzles import judge, level, levels
from glassformer.puzzles.level import AXES, FOLDER
from glassformer.puzzles.reference_answers import REFERENCE_ANSWERS
from helpers import raises
from puzzles.measure import SOLUTIONS, measured, solutions

LONG = (
    "backwards",
    "narrow",
    "add-3",
    "add-3-small",
    "add-10",
    "beat-ours",
    "add-ones-first",
    "add",
)
EVERY = [pytest.param(n, marks=[pytest.mark.slow] * (n in LONG)) for n in levels()]
ROUNDED = ("strict", "bits")  # depend on the last bits of cosines: 51 or 58 were seen


def test_forty_and_more_in_order():
    results = list(levels().values())
    assert len(results) >= 40 and [each.number for each in results] == list(
        range(1, len(results) + 1)
    )
    assert results[0].id == "traffic-light" and results[-1].id == "beat-ours"
    assert {each.kind for each in results} == {"taotp", "glass"}
    assert (
        len({each.title for each in results})
        == len({each.goal for each in results})
        == len(results)
    )


@pytest.mark.parametrize("name", levels())
def test_a_level_says_all_that_is_needed(name):
    result = level(name)
    assert result.goal.endswith(".") and "\n" not in result.goal and len(result.goal) < 160
    assert len(result.hints) >= 2 and result.examples and result.stub.endswith("\n")
    assert bool(result.task_ref) != bool(result.truth) and result.limits.keys() <= AXES.keys()
    assert result.kind == "taotp" or result.truth
    page = (FOLDER.parents[2] / "docs" / result.read.partition("#")[0]) if result.read else FOLDER
    assert page.exists()
    json.dumps(result.to_json())


def test_every_truth_is_asked_for():
    assert {each.truth for each in levels().values()} - {""} == REFERENCE_ANSWERS.keys()


@pytest.mark.parametrize("name", levels())
@pytest.mark.some(4)
def test_examples_are_right(name):
    """The examples of a level are the answers of its solution, which other tests judge."""
    result, (first, *_) = level(name), solutions(level(name))
    words = result.task().vocabulary
    for text, answer in result.examples.items():
        asked, wanted = words.encode(text), words.encode(answer)
        if result.kind == "taotp":
            output = decode(taotp.read(first), asked, len(wanted))[len(asked) :]
        else:
            output = compiler.run(compiler.read(first.read_text("utf-8")), asked)
        assert words.decode(output) == answer


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.some(4)
def test_a_stub_is_read_and_is_no_solution(name):
    judgment = judge(level(name), level(name).stub)
    assert not judgment.problem and not judgment.passed
    assert judgment.counterexample or judgment.over


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.some(5)
def test_solutions_pass_and_are_the_best_known(name):
    best, result = measured(level(name))
    assert result and all(one.passed for one in result), [one.verdict for one in result]
    for axis, n in level(name).best.items():
        assert best[axis] == pytest.approx(n, rel=0.2 if axis in ROUNDED else 0), axis
    assert best.keys() == level(name).best.keys() == AXES.keys()


def test_every_solution_has_its_level():
    known = {path for each in levels().values() for path in solutions(each)}
    assert {*SOLUTIONS.iterdir()} == known


def test_no_solution_is_in_the_package():
    """Nor in the documentation of the levels."""
    root = FOLDER.parents[2]
    files = [
        p
        for p in (*FOLDER.rglob("*"), *(root / "src/glassformer/report_page").iterdir())
        if p.is_file()
    ]
    texts = [bare(p) for p in [*files, root / "docs/puzzles.md"] if p.suffix not in (".pyc", "")]
    assert len(texts) > len(levels())
    for each in levels().values():
        for path in solutions(each):
            solved = bare(path)
            assert not any(solved in text for text in texts), path.name


def bare(path: Path) -> str:
    """A text without blanks and comments."""
    lines = path.read_text("utf-8").splitlines()
    return "".join("".join(line.partition("#")[0].split()) for line in lines)


def test_a_level_that_is_not_there():
    with raises("not_found", "trafic-light", "traffic-light"):
        level("trafic-light")


def test_a_level_is_named_by_its_title_too():
    """As the page and the command line show both; a title is no other level's name."""
    for each in levels().values():
        for name in (each.title, each.title.upper(), each.title.rstrip(".")):
            assert level(name) is each
    with raises("not_found", "traffic-light"):
        level("the trafic light")
    with raises("not_found", "traffic-light"):
        level("zzzzzzzz")


def test_the_score_is_what_count_says(call):
    """One word, one meaning: a solution's text is counted as `glassformer count` counts it."""
    path = SOLUTIONS / "one-back.1.taotp"
    result = judge(level("one-back"), path.read_text("utf-8")).score
    counted = json.loads(call("count", path, "--json")[1])
    assert {n: result[n] for n in ("strict", "bits")} == {n: counted[n] for n in ("strict", "bits")}
    assert result["parameters"] == counted["total"]


def test_the_documentation_has_all_levels_in_their_order():
    text = (FOLDER.parents[2] / "docs/puzzles.md").read_text("utf-8")
    rows = [
        line.split(" | ") for line in text.splitlines() if line.startswith("| ") and "`" in line
    ]
    rows = [
        (row[0].strip("| "), row[1].strip("`"), row[2]) for row in rows if row[0][2:].isdecimal()
    ]
    assert rows == [(str(each.number), each.id, each.goal) for each in levels().values()]
