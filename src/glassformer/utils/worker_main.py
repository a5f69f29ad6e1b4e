"""Main loop of a Worker's process, which handles one order at a time until its input is closed.

A message is a line of one letter and JSON. The process may be killed at any time. It exits with its
parent, because its input is then closed. The system limits its memory and processor time.
"""

import json
import os
import queue
import re
import sys
import threading
from importlib import import_module
from typing import IO, Any

from .sandbox.child import limit_time, set_limits

READY, ASK, STOP = b"+", b"?", b"!"
EVENT, RESULT, WRONG, DEFECT = b"T", b"R", b"E", b"X"
MAX_BYTES = 2**26  # maximum size of a message
OUT_OF_MEMORY = re.compile("(?i)MemoryError|memory allocation|allocate memory|map segment")


def write(pipe: IO[bytes], kind: bytes, data: bytes = b"null") -> None:
    pipe.write(kind + data + b"\n")
    pipe.flush()


def read(pipe: IO[bytes]) -> tuple[bytes, bytes] | None:
    """Return the next message, or None at the end of input or for an oversized line."""
    line = pipe.readline(MAX_BYTES + 2)
    return (line[:1], line[1:-1]) if line.endswith(b"\n") else None


def to_ascii_json(value: Any) -> bytes:
    """Return ASCII JSON on one line, with all other characters escaped."""
    from .results import to_jsonable

    return json.dumps(to_jsonable(value), allow_nan=False, separators=(",", ":")).encode()


class ProgressChannel:
    """Channel between a running order and the parent, for progress events and stop requests.

    A stop request has the number of its order, because it may arrive before the order starts.
    """

    def __init__(self, out: IO[bytes]) -> None:
        self.out, self.order, self.last_stopped = out, 0, -1

    def send(self, value: Any) -> None:
        write(self.out, EVENT, to_ascii_json(value))

    def stopped(self) -> bool:
        return self.order == self.last_stopped


def main() -> None:
    inward, outward = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)  # Discard prints. Only this module may read the orders.
    os.dup2(nowhere, 1)
    if (first := read(inward)) is None:
        return
    settings = json.loads(first[1])
    orders: queue.Queue[dict[str, Any]] = queue.Queue()
    line, memory = ProgressChannel(outward), settings["memory"]
    threading.Thread(target=read_orders, args=(inward, orders, line), daemon=True).start()
    set_limits({"AS": memory})
    try:
        module, _, name = settings["prepare"].partition(":")
        work = getattr(import_module(module), name)(settings["setup"])
    except Exception as e:
        return write(outward, *failure_message(e, "start", memory))
    write(outward, READY)
    while True:
        order = orders.get()
        line.order, do = order["number"], order["do"]
        limit_time(order["seconds"])
        try:
            answer = RESULT, to_ascii_json(work(do, order["with"], line))
            if len(answer[1]) > MAX_BYTES:
                from .errors import GlassformerError

                size = f"{len(answer[1]) / 2**20:,.0f} MiB of at most {MAX_BYTES / 2**20:,.0f}"
                raise GlassformerError(f"{do} — the answer is too large to show: {size}")
        except Exception as e:
            answer = failure_message(e, do, memory)
        write(outward, *answer)


def read_orders(
    pipe: IO[bytes], orders: "queue.Queue[dict[str, Any]]", line: ProgressChannel
) -> None:
    """Receive orders and stop requests while the main thread works."""
    while message := read(pipe):
        if message[0] == STOP:
            line.last_stopped = json.loads(message[1])
        else:
            orders.put(json.loads(message[1]))
    os._exit(0)  # The parent has exited.


def failure_message(error: Exception, do: str, memory: int) -> tuple[bytes, bytes]:
    """Return an error as a message of the kind WRONG (invalid request) or DEFECT (a bug here)."""
    from .errors import GlassformerError, missing_extra

    if isinstance(error, ModuleNotFoundError):
        error = missing_extra(do, error) or error
    text = str(error)
    if isinstance(error, GlassformerError):
        kind, code = WRONG, error.code
    elif isinstance(error, MemoryError) or OUT_OF_MEMORY.search(text):  # PyTorch has its own type.
        kind, text, code = WRONG, memory_message(memory), "too_large"
    elif isinstance(error, RecursionError):
        kind, text, code = WRONG, "is nested too deeply", "too_large"
    else:
        kind, code = DEFECT, "defect"
        text = f"a defect of glassformer: {type(error).__name__}: {error}"
        if os.environ.get("GLASSFORMER_DEBUG"):
            import traceback

            traceback.print_exception(error, file=sys.stderr)
    return kind, json.dumps({"error": text, "code": code}).encode()


def memory_message(memory: int) -> str:
    return f"took more than {memory / 2**30:.1f} GiB of memory"
