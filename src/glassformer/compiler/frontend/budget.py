"""What working out a source may cost: steps, depth, and the weight of things."""

import ast
from typing import Any

from .diagnostics import Wrong
from .functions import ITEMS

STEPS = 1_000_000  # of one source
NESTED = 120  # expressions within expressions, functions that call one another included


class Budget:
    """How many steps are left, and how deep we are."""

    within = 0  # functions of the source that are being worked out

    def __init__(self, steps: int = STEPS) -> None:
        self.left, self.depth = steps, 0

    def spend(self, node: ast.AST, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise Wrong(
                node, f"takes more than {STEPS:,} steps to work out; make its domains smaller"
            )


def weight(thing: Any) -> int:
    """How many items and characters there are in a thing, all told, or more than ITEMS."""
    if not hasattr(thing, "__len__"):
        return 0
    total, left = 0, [thing]
    while left and total <= ITEMS:
        x = left.pop()
        if isinstance(x, (list, tuple, frozenset, dict, str, range)):
            total += len(x)
            if not isinstance(x, (str, range)):
                left += [*x, *(x.values() if isinstance(x, dict) else ())]
    return total
