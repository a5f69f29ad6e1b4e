"""The studio server on 127.0.0.1. All its worker processes end with it."""

import asyncio
import errno
import json
import os
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .. import __version__, report_page
from ..puzzles import levels
from ..puzzles.level import AXES
from ..report_page.report import MAX_MODELS, short_titles
from ..utils.errors import GlassformerError
from ..utils.fileio import os_error_text
from ..utils.limits import available_memory, cores
from ..utils.workers import ProcessEnded
from .app import build_app
from .auth_middleware import AuthMiddleware
from .handlers import resolve_folders
from .jobs import JobTable
from .worker_pool import WorkerPool, decode_answer

HOST = "127.0.0.1"
DEFAULT_PORT = 8757  # constant, because browsers store puzzle progress by address and port
MAX_CONNECTIONS = 128
MAX_SILENT_SECONDS = 15.0  # time limit of a connection without a complete request


class LimitedProtocol(H11Protocol):
    """A connection that closes beyond MAX_CONNECTIONS or after MAX_SILENT_SECONDS."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.close()
        else:
            self._limit_next_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._limit_next_request()

    def _limit_next_request(self) -> None:
        """Close the connection unless a complete request arrives within MAX_SILENT_SECONDS."""
        self.loop.call_later(MAX_SILENT_SECONDS, self._close_if_silent, self.cycle)

    def _close_if_silent(self, last: Any) -> None:
        if self.cycle is last and not self.transport.is_closing():
            self.transport.close()


class PoolClosingServer(uvicorn.Server):
    """A server that closes its worker pool when it ends."""

    def __init__(self, config: uvicorn.Config, pool: WorkerPool) -> None:
        super().__init__(config)
        self.pool = pool

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # close the pool first, as its pending answers will not arrive
        await asyncio.to_thread(self.pool.close)
        await super().shutdown(sockets)


class StudioServer:
    """The studio's socket, worker processes and page. `run` serves requests until Ctrl-C."""

    def __init__(
        self, refs: Sequence[str], *, folders: Sequence[str | Path] = (), port: int | None = None,
        inputs: Sequence[str] = (), minutes: float = 30.0, gigabytes: float = 4.0,
    ) -> None:  # fmt: skip
        if len(refs) > MAX_MODELS:
            raise GlassformerError(f"studio: expected at most {MAX_MODELS} models, got {len(refs)}")
        folder_names = [str(folder) for folder in resolve_folders(folders)]
        size = min(int(gigabytes * 2**30), available_memory())
        self.pool = WorkerPool(
            {"typed": list(refs), "folders": folder_names, "memory": size},
            {"quick": 2, "judge": 1, "job": max(1, min(cores(), 4))},
        )
        self.token = secrets.token_urlsafe(24)
        self.socket = default_socket() if port is None else bind_socket(port)
        self.port = int(self.socket.getsockname()[1])
        self.jobs = JobTable(self.pool, 60 * minutes)
        inner = build_app(lambda: self.page, self.pool, self.jobs)
        self.app = AuthMiddleware(inner, self.token, self.port)
        self.server = PoolClosingServer(self._config(), self.pool)
        try:
            self.models = [self._model(ref, inputs) for ref in refs]
            self.page = self._page()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        return self._address(self.token)

    @property
    def one_time_address(self) -> str:
        """An address that opens the page once."""
        return self._address(self.app.new_ticket())

    def _address(self, token: str) -> str:
        return f"http://{HOST}:{self.port}/?token={token}"

    def run(self) -> None:
        """Serve requests until Ctrl-C or SIGTERM."""
        try:
            self.server.run(sockets=[self.socket])
        finally:
            self.close()

    def stop(self) -> None:
        """End `run` from another thread, even if it has not started yet."""
        self.server.should_exit = True

    def close(self) -> None:
        self.pool.close()
        self.socket.close()

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self.app, http=LimitedProtocol, ws="none", lifespan="off", access_log=False,
            log_level="critical", server_header=False, timeout_keep_alive=5,
            timeout_graceful_shutdown=2, h11_max_incomplete_event_size=2**16, loop="asyncio",
        )  # fmt: skip

    def _model(self, ref: str, inputs: Sequence[str]) -> Any:
        try:
            with self.pool.worker("quick") as worker:
                request = {"ref": ref, "inputs": list(inputs)}
                answer = worker.request("model", request, self.jobs.seconds)
                return json.loads(decode_answer(*answer))
        except ProcessEnded as e:
            raise GlassformerError(f"{ref}: {e}") from None

    def _page(self) -> bytes:
        titles = short_titles([m["ref"] for m in self.models])
        for model, title in zip(self.models, titles, strict=True):
            model["title"] = title
        footer = f"Served by glassformer {__version__} on this machine."
        data = {
            "models": self.models, "title": ", ".join(m["title"] for m in self.models),
            "notes": [], "footer": footer, "axes": AXES,
            "levels": [level.to_json() for level in levels().values()],
        }  # fmt: skip
        return report_page.assemble(data, {"token": self.token, "base": ""})


def default_socket() -> socket.socket:
    """Return a socket listening at DEFAULT_PORT, or at any free port if DEFAULT_PORT is taken."""
    try:
        return bind_socket(DEFAULT_PORT)
    except GlassformerError:
        return bind_socket(0)


def bind_socket(port: int) -> socket.socket:
    """Return a socket listening at a port of 127.0.0.1."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if os.name != "nt":  # on Windows this option would allow sharing a port
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(MAX_CONNECTIONS)
    except (OSError, OverflowError) as e:
        listening.close()
        taken = isinstance(e, OSError) and e.errno == errno.EADDRINUSE
        problem = "in use" if taken else f"not available: {os_error_text(e)}"
        raise GlassformerError(f"--port {port}: {problem}. Omit it to use a free port") from None
    return listening
