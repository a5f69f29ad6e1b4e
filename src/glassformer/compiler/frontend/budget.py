"""What working out a source may cost: steps, depth, and the weight of things."""

import ast
from typing import Any

from .diagnostics import SourceError
from .functions import MAX_ITEMS

MAX_STEPS = 1_000_000  # of one source
MAX_NESTING = 120  # expressions within expressions, functions that call one another included


class Budget:
    """How many steps are left, and how deep we are."""

    call_depth = 0  # functions of the source that are being worked out

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.steps_left, self.depth = steps, 0

    def spend(self, node: ast.AST, steps: int = 1) -> None:
        self.steps_left -= steps
        if self.steps_left < 0:
            raise SourceError(
                node, f"takes more than {MAX_STEPS:,} steps to work out; make its domains smaller"
            )


def total_size(thing: Any) -> int:
    """How many items and characters there are in a thing, all told, or more than ITEMS."""
    if not hasattr(thing, "__len__"):
        return 0
    total, left = 0, [thing]
    while left and total <= MAX_ITEMS:
        x = left.pop()
        if isinstance(x, (list, tuple, frozenset, dict, str, range)):
            total += len(x)
            if not isinstance(x, (str, range)):
                left += [*x, *(x.values() if isinstance(x, dict) else ())]
    return total
