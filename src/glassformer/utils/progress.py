"""Progress of long calls: one type of event, one type of callback, one line on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

CLEAR = "\r\x1b[2K"  # the whole line


@dataclass(frozen=True)
class Progress:
    """How far a long call is: `done` of `total` (0: unknown), with `wrong` failures so far.

    `stage` is what the call is doing: "checking the certificate".
    """

    done: int = 0
    total: int = 0
    wrong: int = 0
    stage: str = ""


ProgressCallback: TypeAlias = Callable[[Progress], object]


def report_stage(progress: ProgressCallback | None, stage: str) -> None:
    """Call `progress`, if there is one, with the stage that a call has reached."""
    if progress:
        progress(Progress(stage=stage))


@contextmanager
def terminal_line() -> Iterator[Callable[[str], None]]:
    """Yield a function that replaces one line on a terminal; the line is cleared at the end.

    Nothing is written to a pipe, a file or a notebook.
    """
    written = False

    def write(text: str) -> None:
        nonlocal written
        if sys.stderr and not sys.stderr.closed and sys.stderr.isatty():
            written = True
            print(CLEAR + text, end="", file=sys.stderr, flush=True)

    try:
        yield write
    finally:
        if written:
            print(CLEAR, end="", file=sys.stderr, flush=True)
