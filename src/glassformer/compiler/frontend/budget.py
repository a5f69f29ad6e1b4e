"""Limits on the evaluation of a source: steps, nesting, and the size of results."""

import ast
from typing import Any

from .diagnostics import SourceError
from .functions import MAX_ITEMS

MAX_STEPS = 1_000_000  # per source
MAX_NESTING = 120  # depth of nested expressions, including the bodies of called functions


class Budget:
    """The remaining steps and the current nesting depth of an evaluation."""

    call_depth = 0  # number of active calls of functions defined in the source

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.steps_left, self.depth = steps, 0

    def spend(self, node: ast.AST, steps: int = 1) -> None:
        self.steps_left -= steps
        if self.steps_left < 0:
            limit = f"needs more than {MAX_STEPS:,} steps to evaluate"
            raise SourceError(node, f"{limit}; make its domains smaller")


def total_size(x: Any) -> int:
    """Return the number of items and characters in a nested object.

    Counting stops above MAX_ITEMS.
    """
    if not hasattr(x, "__len__"):
        return 0
    total, stack = 0, [x]
    while stack and total <= MAX_ITEMS:
        item = stack.pop()
        if isinstance(item, (list, tuple, frozenset, dict, str, range)):
            total += len(item)
            if not isinstance(item, (str, range)):
                stack += [*item, *(item.values() if isinstance(item, dict) else ())]
    return total
