"""Progress of long calls: the event type, the callback type and a progress line for terminals."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

CLEAR = "\r\x1b[2K"  # escape sequence that clears the line


@dataclass(frozen=True)
class Progress:
    """Progress of a long call: `done` of `total` items, with `wrong` failures so far.

    `total` is 0 if it is unknown. `stage` describes the current work: "checking the certificate".
    """

    done: int = 0
    total: int = 0
    wrong: int = 0
    stage: str = ""


ProgressCallback: TypeAlias = Callable[[Progress], object]


def report_stage(progress: ProgressCallback | None, stage: str) -> None:
    """Call `progress`, if it is not None, with the current stage of a call."""
    if progress:
        progress(Progress(stage=stage))


@contextmanager
def terminal_line() -> Iterator[Callable[[str], None]]:
    """Yield a function that rewrites one line of a terminal, which is cleared at the end.

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
