"""A server of the live page: in a thread (`gf.open`), or until Ctrl-C (the command studio)."""

import atexit
import html
import tempfile
import threading
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ..core import checkpoint
from ..core.model import Model
from ..utils.argcheck import as_text
from ..utils.errors import GlassformerError
from ..utils.results import Displayable
from .server import StudioServer

MIN_LIMITS, MAX_LIMITS = (0.1, 1), (10_000, 1_000)  # minutes, and GiB


class ServerHandle(Displayable):
    """A running server, until `close` or the end of this process. `with gf.studio(…)` closes it."""

    def __init__(self, server: Any, kept: Any) -> None:
        self.address, self._server, self._model_folder = server.address, server, kept
        self._thread = threading.Thread(target=server.run, daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Ends it, and all that it is doing."""
        atexit.unregister(self.close)
        self._server.stop()
        self._thread.join(10)
        self._server.close()
        self._model_folder.cleanup()

    def __enter__(self) -> "ServerHandle":
        return self

    def __exit__(self, *what: object) -> None:
        self.close()

    def __str__(self) -> str:
        running = "" if self._thread.is_alive() else " (closed)"
        return f"{self.address}{running}"

    def _repr_html_(self) -> str:
        if not self._thread.is_alive():
            return "<div>closed</div>"
        address = html.escape(self.address)
        where = "on this machine; Python is behind it until <code>close()</code>"
        return f'<div><a href="{address}" target="_blank" rel="noopener">the page</a> {where}</div>'


def create_server(
    models: Sequence[Model | str | PathLike[str]],
    folders: str | PathLike[str] | Sequence[str | PathLike[str]], inputs: str | Sequence[str],
    port: int | None, minutes: float, memory: float,
) -> tuple[StudioServer, Any]:  # fmt: skip
    """A server that is ready to run, and the folder of models that it needs until it is closed."""
    for name, value, least, most in (
        ("minutes", minutes, MIN_LIMITS[0], MAX_LIMITS[0]),
        ("memory", memory, MIN_LIMITS[1], MAX_LIMITS[1]),
        ("port", port or 0, 0, 65_535),
    ):
        if not least <= value <= most:
            raise GlassformerError(
                f"studio — {name} must be from {least:g} to {most:g}, got {value}"
            )
    kept = tempfile.TemporaryDirectory(prefix="glassformer-")
    try:
        if not models:
            raise GlassformerError("studio — expected a model, or several")
        refs = [
            _ref_for_workers(each, Path(kept.name, f"model-{i}"))
            for i, each in enumerate(models, 1)
        ]
        given = [folders] if isinstance(folders, (str, PathLike)) else folders
        server = StudioServer(
            refs, folders=[as_text(f, "studio", "a path") for f in given], port=port,
            inputs=[inputs] if isinstance(inputs, str) else list(inputs), minutes=minutes,
            gigabytes=memory,
        )  # fmt: skip
    except BaseException:
        kept.cleanup()
        raise
    return server, kept


def _ref_for_workers(model: Model | str | PathLike[str], path: Path) -> str:
    """A ref for other processes: a Model of this one is written to a file first."""
    if isinstance(model, Model):
        return str(checkpoint.save(model, path.with_suffix(".safetensors")))
    return as_text(model, "open")
