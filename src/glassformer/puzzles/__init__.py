"""Puzzles: transformers built by hand or in the language, judged on all possible questions.

    >>> from glassformer import puzzles
    >>> level = puzzles.level("traffic-light")
    >>> print(puzzles.judge(level, level.stub))

docs/puzzles.md lists the levels. `glassformer puzzle check LEVEL FILE` and the page use this judge.
"""

from .judge import judge as judge
from .judge_process import judge_in_process as judge_in_process
from .judgement import Judgment as Judgment
from .level import Level as Level
from .level import level as level
from .level import levels as levels
