"""Judges the solutions of all levels, and writes what is best known to puzzles/best.json.

    python tests/puzzles/measure.py            # says what differs from best.json
    python tests/puzzles/measure.py --write    # writes it

A level's solutions are solutions/LEVEL.N.taotp or .glass; the best on each axis is taken from
whichever of them has it, so one solution may not have all.
"""

import json
import sys
from pathlib import Path

from glassformer.puzzles import Judgment, Level, judge, levels
from glassformer.puzzles.level import AXES, FOLDER

SOLUTIONS = Path(__file__).parent / "solutions"


def solutions(level: Level) -> list[Path]:
    """The solutions of a level, those that it was made with first."""
    return sorted(SOLUTIONS.glob(f"{level.id}.*.{level.kind}"))


def measured(level: Level) -> tuple[dict[str, int], list[Judgment]]:
    """The best on each axis over all solutions that pass, and what became of each."""
    results = [judge(level, path.read_text("utf-8")) for path in solutions(level)]
    scores = [f.score for f in results if f.passed]
    return {axis: min(s[axis] for s in scores) for axis in AXES} if scores else {}, results


def main() -> None:
    best = {}
    for level in levels().values():
        best[level.id], result = measured(level)
        for path, one in zip(solutions(level), result, strict=True):
            if not one.passed:
                print(f"{path.name}: {one.verdict}")
        if best[level.id] != level.best:
            print(f"{level.id}: {level.best} -> {best[level.id]}")
    if "--write" in sys.argv:
        lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in best.items())
        (FOLDER / "best.json").write_text(f"{{\n{lines}\n}}\n", "utf-8")


if __name__ == "__main__":
    main()
