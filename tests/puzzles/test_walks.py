"""Three levels, solved by following only what they say (walks.py)."""

import re

import pytest

from glassformer.puzzles import judge, level
from puzzles.walks import TOLD, WALKS

PIECE = re.compile(r"[\w.]+|[^\w\s]")


@pytest.mark.parametrize("name", WALKS)
def test_a_level_is_solved_by_what_it_says(name):
    asked, text, known = level(name), level(name).stub, level(name).stub + " " + level(name).goal
    reported, verdicts = list(TOLD[name]), [judge(asked, text)]
    for hint, old, new in WALKS[name]:
        known = " ".join([known, *asked.hints[:hint]])
        assert old in text
        text = text.replace(old, new) if old else text
        assert set(PIECE.findall(new)) <= set(PIECE.findall(known)), "typed what nobody said"
        verdicts.append(judge(asked, text))
    for result, words in zip(verdicts, reported, strict=True):
        assert result.verdict.startswith(words)
    assert [result.passed for result in verdicts] == [False] * (len(verdicts) - 1) + [True]
