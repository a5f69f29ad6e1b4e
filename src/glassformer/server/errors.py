"""What is wrong with what a page asked for, as the page is told: every line with its place."""

import re
from typing import Any

SOURCE = "source"  # what errors call a text that was typed
PLACE = re.compile(rf"{SOURCE}(?::(\d{{1,9}}))?(?::(\d{{1,9}}))? — (.*)", re.DOTALL)


def wrong(message: str) -> dict[str, Any]:
    """`errors`, a line each with its line and column in the source if it says them; `problem`, all
    in one.
    """
    return {"errors": places(message), "problem": "; ".join(message.split("\n"))}


def places(message: str) -> list[dict[str, Any]]:
    """The lines of a message, each with where it belongs."""
    found = []
    for line in message.split("\n"):
        at = PLACE.fullmatch(line)
        where = [int(n) if n else None for n in at.groups()[:2]] if at else [None, None]
        found.append({"line": where[0], "column": where[1], "message": at[3] if at else line})
    return found
