"""Judgments of solutions: the verdict, the smallest counterexample and the score."""

from dataclasses import dataclass, field

from ..utils.results import Result
from .level import AXES


@dataclass(frozen=True, eq=False)
class Judgment(Result):
    """The judgment of a solution."""

    extra_json_fields = ("passed", "lines")
    level: str
    right: bool = False
    problem: str = ""  # the reason if the solution could not be judged
    coverage: str = ""  # description of the checked questions and the method
    checked: int = 0
    wrong: int = 0
    margin: float | None = None  # the smallest margin of a right token
    counterexample: dict[str, str] | None = None  # input, expected, got
    which: str = "the smallest"  # position among the counterexamples
    score: dict[str, int] = field(default_factory=dict)
    best: dict[str, int] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)

    @property
    def over(self) -> list[str]:
        """Names of the axes on which the solution exceeds the level's limits."""
        return [axis for axis, limit in self.limits.items() if self.score.get(axis, 0) > limit]

    @property
    def passed(self) -> bool:
        return self.right and not self.over

    @property
    def lines(self) -> list[str]:
        """The verdict and the score on every axis, as lines of a report."""
        return [self.verdict, *(self._describe_axis(axis) for axis in self.score)]

    @property
    def verdict(self) -> str:
        if self.problem:
            return f"not judged: {self.problem}"
        if self.right:
            large = [
                f"{self.score[a]:,} {AXES[a]}, the most is {self.limits[a]:,}" for a in self.over
            ]
            lead = "" if self.margin is None else f"; the right token leads by {self.margin:.3g}"
            begin = f"right, but too large ({'; '.join(large)})" if large else "right"
            return f"{begin}: {self.coverage}{lead}"
        example = ""
        if c := self.counterexample:
            example = f"; {self.which}: {c['input']} → {c['got']}, expected {c['expected']}"
        return f"wrong: {self.coverage}{example}"

    def _describe_axis(self, axis: str) -> str:
        yours, best = self.score[axis], self.best.get(axis)
        text = f"{AXES[axis]}: {yours:,}"
        if best is not None:
            beats = " — beaten" if self.passed and yours < best else ""
            text += f" (best known {best:,}{beats})"
        return text

    def __str__(self) -> str:
        return "\n".join(self.lines)
