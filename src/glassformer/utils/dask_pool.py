"""Work on a Dask cluster: pieces are handed out, and what a dead worker had begun others do.

Each piece gives one result, however often it was begun: sweeps and verification count on that. What
all pieces need is sent once, as work of the cluster's own that any worker can do again.
"""

import importlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from .errors import GlassformerError

LIVES = 3  # how often a piece is handed out if those who do it are killed
PATIENCE = 5  # seconds for a cluster to answer
FIRST = 5  # seconds for it to have a worker, at the beginning
GONE = 60  # seconds without any worker, in the middle of it
AHEAD = 4  # pieces for each thread of the cluster that are handed out: there may be billions
GO_ON = "the same command does what is left"

Piece = TypeVar("Piece")
Do = Callable[[Any, Any], Any]


def spread(
    pieces: Iterable[Piece], do: Do, shared: Any, address: str, go_on: str = GO_ON
) -> Iterator[tuple[Piece, Any]]:
    """Does `do(shared, piece)` on the cluster, and yields (piece, result) in any order, once each.

    The result of a piece that failed is the exception: its own, or that of a worker which was
    killed LIVES times. `go_on`: what to do if the whole cluster goes away.
    """
    dask = _dask()
    try:
        with _connect(dask, address) as client:
            yield from _hand_out(dask, client, iter(pieces), do, shared)
    except _NoWorkers:
        what = "the cluster has no workers any more"
        raise GlassformerError(f"{address} — {what}; {go_on}") from None
    except (OSError, dask.TimeoutError, dask.CancelledError):  # whatever it was asked for just then
        raise GlassformerError(f"{address} — the cluster went away; {go_on}") from None


class _NoWorkers(Exception):
    pass


def _hand_out(
    dask: Any, client: Any, left: Iterator[Piece], do: Do, shared: Any
) -> Iterator[tuple[Piece, Any]]:
    """What `spread` yields. Without a scheduler, every question to the client is an error."""
    sent = _Sent(client, shared)
    running: dict[Any, tuple[Piece, int]] = {}
    seen = time.monotonic()  # when there was a worker
    while True:
        threads = sum(client.nthreads().values())
        while len(running) < AHEAD * max(threads, 1):
            if (piece := next(left, None)) is None:
                break
            running[sent.submit(do, piece)] = piece, LIVES
        if not running:
            return
        try:
            done = dask.wait(list(running), PATIENCE, "FIRST_COMPLETED").done
        except dask.TimeoutError:
            done = ()
        if done or client.nthreads():
            seen = time.monotonic()
        elif time.monotonic() - seen > GONE:
            raise _NoWorkers
        for future in done:
            piece, lives = running.pop(future)
            error = future.exception()
            if isinstance(error, dask.CancelledError):  # not its own: the scheduler has left
                raise error
            # the scheduler gave it up; we do not yet
            if isinstance(error, dask.KilledWorker) and lives > 1:
                running[sent.submit(do, piece)] = piece, lives - 1
            else:
                yield piece, future.result() if error is None else error


class _Sent:
    """What all pieces share. It is the result of a task and not data that lies somewhere: if the
    worker that has it dies, another makes it again.
    """

    def __init__(self, client: Any, shared: Any) -> None:
        self.client, self.shared = client, shared
        self.future = self._send()

    def _send(self) -> Any:
        return self.client.submit(_itself, self.shared, key=f"shared-{os.urandom(8).hex()}")

    def submit(self, do: Do, piece: Any) -> Any:
        if self.future.status == "error":  # given up with the worker that had it
            self.future = self._send()
        return self.client.submit(do, self.future, piece, key=f"piece-{os.urandom(8).hex()}")


def _itself(x: Any) -> Any:
    return x


def check_workers(what: str, address: str, workers: int) -> None:
    """Refuses processes of this machine beside those of a cluster."""
    if address and workers > 1:
        why = "workers are processes here; a cluster has those it has: leave out one of the two"
        raise GlassformerError(f"{what} — {why}")


# ── the cluster ────────────────────────────────────────────────────────────────────────────────
def _dask() -> Any:
    try:
        dask: Any = importlib.import_module("distributed")
    except ImportError:
        what = "needs Dask: pip install 'glassformer[cluster]'"
        raise GlassformerError(f"cluster — {what}") from None
    for name in [n for n in logging.root.manager.loggerDict if n.startswith("distributed")]:
        # a worker's death is our business, not the reader's
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return dask


def _connect(dask: Any, address: str) -> Any:
    """A client of the cluster at an address, or an error within seconds."""
    made: list[Any] = []

    def connect() -> None:
        try:
            made.append(dask.Client(address, timeout=PATIENCE))
        except Exception as e:
            made.append(e)

    # Dask waits for ever where something else answers
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(PATIENCE + 1)
    client: Any = made[0] if made else "no answer"
    if not hasattr(client, "submit"):
        raise GlassformerError(f"{address} — no Dask cluster there: {client}")
    try:
        client.wait_for_workers(1, timeout=FIRST)
    except Exception:
        client.close()
        raise GlassformerError(f"{address} — the cluster has no workers") from None
    return client
