"""What calls that take long say of themselves: a line on a terminal, and nothing anywhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

CLEAR = "\r\x1b[2K"  # the line, from its beginning


@contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """A line on a terminal that is written anew each time, and gone at the end: `with telling() as
    tell: tell("3 of 124")`. In a pipe, a file or a notebook nothing is said.
    """
    told = False

    def tell(text: str) -> None:
        nonlocal told
        if sys.stderr and not sys.stderr.closed and sys.stderr.isatty():
            told = True
            print(CLEAR + text, end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        if told:
            print(CLEAR, end="", file=sys.stderr, flush=True)
