"""The process that works for a page: one thing after another, until its pipe closes.

What goes through the pipes are frames: a length, a letter, JSON. Whoever started it may kill it at
any time; if that one is gone, the pipe ends and so does this. Memory and processor time are limited
by the system, files by the fence.
"""

import json
import os
import queue
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

HEAD = struct.Struct(">Ic")  # bytes that follow, and what they are
READY, ASK, STOP = b"+", b"?", b"!"
TOLD, RESULT, WRONG, DEFECT = b"T", b"R", b"E", b"X"
MOST = 2**26  # bytes of a frame


def write_frame(pipe: IO[bytes], kind: bytes, data: bytes = b"") -> None:
    pipe.write(HEAD.pack(len(data), kind) + data)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> tuple[bytes, bytes] | None:
    """The next frame; None at the end, or where there is none that could be read."""
    head = pipe.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    size, kind = HEAD.unpack(head)
    if size > MOST:
        return None
    data = pipe.read(size)
    return (kind, data) if len(data) == size else None


def dump(value: Any) -> bytes:
    """JSON of ASCII: half characters and the like are written out."""
    from ..utils.results import plain

    return json.dumps(plain(value), allow_nan=False, separators=(",", ":")).encode()


class Line:
    """What a piece of work says while it is at it, and whether it was asked to stop.

    Orders are numbered, and a stop names one: it may come before its order, and must not end
    another.
    """

    def __init__(self, out: IO[bytes]) -> None:
        self.out, self.order, self.last_stopped = out, 0, -1

    def tell(self, value: Any) -> None:
        write_frame(self.out, TOLD, dump(value))

    def stopped(self) -> bool:
        return self.order == self.last_stopped


def main() -> None:
    inward, outward = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)  # what is printed goes nowhere, and nobody reads what was meant for us
    os.dup2(nowhere, 1)
    first = read_frame(inward)
    if first is None:
        return
    setup = json.loads(first[1])
    asked: queue.Queue[dict[str, Any]] = queue.Queue()
    line = Line(outward)
    threading.Thread(target=_read, args=(inward, asked, line), daemon=True).start()
    _limit_memory(setup["memory"])
    try:
        work = _prepare(setup)
    except Exception as e:
        return write_frame(outward, *_told(e))
    write_frame(outward, READY)
    while True:
        order = asked.get()
        line.order = order["number"]
        _limit_time(order["seconds"])
        try:
            answer = RESULT, dump(work(order["do"], order["with"], line))
            if len(answer[1]) > MOST:
                from ..utils.errors import GlassformerError

                size = f"{len(answer[1]) / 2**20:,.0f} MiB, the most is {MOST / 2**20:,.0f}"
                raise GlassformerError(f"{order['do']} — more to show than a page can take: {size}")
        except Exception as e:
            answer = _told(e)
        write_frame(outward, *answer)


def _prepare(setup: dict[str, Any]) -> Callable[[str, Any, Line], Any]:
    from .catalogue import Shelf
    from .fs_sandbox import Fence
    from .handlers import Desk

    folders = [Path(folder) for folder in setup["folders"]]
    fence = Fence(folders)
    desk = Desk(Shelf(setup["typed"], folders, fence))
    fence.raise_()
    return desk.do


def _read(pipe: IO[bytes], asked: "queue.Queue[dict[str, Any]]", line: Line) -> None:
    """All that comes in, while the other thread works."""
    while frame := read_frame(pipe):
        if frame[0] == STOP:
            line.last_stopped = json.loads(frame[1])
        else:
            asked.put(json.loads(frame[1]))
    os._exit(0)  # whoever asked is gone


def _told(error: Exception) -> tuple[bytes, bytes]:
    """What went wrong, as a frame: with the line and the column if it is in a source."""
    from ..utils.errors import GlassformerError, missing_extra
    from .errors import wrong

    if isinstance(error, ModuleNotFoundError):
        error = missing_extra("train", error) or error
    if isinstance(error, GlassformerError):
        return WRONG, dump(wrong(str(error), error.code))
    if isinstance(error, RecursionError):
        return WRONG, dump(wrong("this takes a nesting too deep", "too_large"))
    # PyTorch has no MemoryError
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return WRONG, dump(wrong("this takes more memory than a page is given", "too_large"))
    if os.environ.get("GLASSFORMER_DEBUG"):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    message = f"a defect of glassformer: {type(error).__name__}: {error}"
    return DEFECT, dump({"error": message, "code": "defect"})


# ── limits that the system keeps ───────────────────────────────────────────────────────────────
def _limit_memory(size: int) -> None:
    with suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_time(seconds: float) -> None:
    """Of the processor, from now on: even if whoever watches the clock is gone, this ends."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        soft = int(used.ru_utime + used.ru_stime + seconds) + 10
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
