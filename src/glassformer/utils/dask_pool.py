"""Dask backend of utils/workers.py, which submits pieces and waits for their futures.

The shared data is sent once, as a Dask task that the cluster can recompute on any worker.
"""

import importlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .errors import GlassformerError

WAIT_SECONDS = 5  # maximum seconds to wait for results or an answer
CONNECT_TIMEOUT_S = 5  # maximum seconds until the cluster has a worker
NO_WORKER_TIMEOUT_S = 60  # maximum seconds without workers
QUEUED_PER_THREAD = 4  # number of submitted pieces per cluster thread
RESUME_HINT = "run the same command again to continue"

PieceFunction = Callable[[Any, Any], Any]


@contextmanager
def connect_cluster(
    address: str, do: PieceFunction, shared: Any, resume_hint: str
) -> Iterator["Cluster"]:
    """Yield a cluster that runs `do(shared, piece)`; an error ends with `resume_hint`."""
    dask = _dask()
    try:
        with _connect(dask, address) as client:
            yield Cluster(dask, client, do, shared, address, resume_hint)
    except (OSError, dask.TimeoutError, dask.CancelledError):
        raise GlassformerError(f"{address} — the cluster went away; {resume_hint}") from None


class Cluster:
    """Connection to a Dask cluster. Calls raise an error after the scheduler is lost."""

    def __init__(
        self, dask: Any, client: Any, do: PieceFunction, shared: Any, address: str, resume_hint: str
    ) -> None:
        self.dask, self.client, self.do, self.shared = dask, client, do, shared
        self.problem = f"{address} — the cluster has no workers left; {resume_hint}"
        self.killed, self.gone = dask.KilledWorker, dask.CancelledError
        self.last_seen = time.monotonic()  # last time the cluster had a worker
        self.sent = self._send()

    def _send(self) -> Any:
        return self.client.submit(_identity, self.shared, key=f"shared-{os.urandom(8).hex()}")

    def capacity(self) -> int:
        threads: int = sum(self.client.nthreads().values())
        return QUEUED_PER_THREAD * max(threads, 1)

    def submit(self, piece: Any) -> Any:
        if self.sent.status == "error":  # The data was lost with its worker.
            self.sent = self._send()
        key = f"piece-{os.urandom(8).hex()}"
        return self.client.submit(self.do, self.sent, piece, key=key)

    def wait(self, futures: list[Any]) -> Any:
        """Wait at most WAIT_SECONDS for a future and return the futures that are done."""
        try:
            done = self.dask.wait(futures, WAIT_SECONDS, "FIRST_COMPLETED").done
        except self.dask.TimeoutError:
            done = ()
        if done or self.client.nthreads():
            self.last_seen = time.monotonic()
        elif time.monotonic() - self.last_seen > NO_WORKER_TIMEOUT_S:
            raise GlassformerError(self.problem)
        return done


def _identity(x: Any) -> Any:
    return x


# ── the cluster ────────────────────────────────────────────────────────────────────────────────
def _dask() -> Any:
    try:
        dask: Any = importlib.import_module("distributed")
    except ImportError:
        raise GlassformerError(
            "cluster — needs Dask: pip install 'glassformer[cluster]'", code="needs_extra"
        ) from None
    for name in [n for n in logging.root.manager.loggerDict if n.startswith("distributed")]:
        # Lost workers are handled here, so Dask must not log them.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return dask


def _connect(dask: Any, address: str) -> Any:
    """Return a Dask client of the cluster at an address, or raise an error within seconds."""
    result: list[Any] = []

    def connect() -> None:
        try:
            result.append(dask.Client(address, timeout=WAIT_SECONDS))
        except Exception as e:
            result.append(e)

    # Dask waits forever if another service answers at the address.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS + 1)
    client: Any = result[0] if result else "no answer"
    if not hasattr(client, "submit"):
        raise GlassformerError(f"{address} — no Dask cluster there: {client}")
    try:
        client.wait_for_workers(1, timeout=CONNECT_TIMEOUT_S)
    except Exception:
        client.close()
        raise GlassformerError(f"{address} — the cluster has no workers") from None
    return client
