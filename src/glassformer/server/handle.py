"""A running studio server: in a thread (from Python), or until Ctrl-C (from the command line)."""

import atexit
import html
import tempfile
import threading
from collections.abc import Sequence
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

from ..core import checkpoint
from ..core.model import Model
from ..utils.argcheck import as_text
from ..utils.errors import GlassformerError
from ..utils.results import Displayable
from .server import StudioServer


class ServerHandle(Displayable):
    """A server that runs until `close`, the end of its `with` block, or the end of the process."""

    def __init__(self, server: Any, model_folder: Any) -> None:
        self.address, self._server, self._model_folder = server.address, server, model_folder
        self._thread = threading.Thread(target=server.run, daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Stop the server and all its jobs."""
        atexit.unregister(self.close)
        self._server.stop()
        self._thread.join(10)
        self._server.close()
        self._model_folder.cleanup()

    def __enter__(self) -> "ServerHandle":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __str__(self) -> str:
        running = "" if self._thread.is_alive() else " (closed)"
        return f"{self.address}{running}"

    def _repr_html_(self) -> str:
        if not self._thread.is_alive():
            return "<div>closed</div>"
        address = html.escape(self.address)
        link = f'<a href="{address}" target="_blank" rel="noopener">the studio</a>'
        return f"<div>{link} runs on this machine until <code>close()</code></div>"


def create_server(
    models: Sequence[Model | str | PathLike[str]],
    folders: str | PathLike[str] | Sequence[str | PathLike[str]], inputs: str | Sequence[str],
    port: int | None, minutes: float, memory: float,
) -> tuple[StudioServer, Any]:  # fmt: skip
    """Return a server that is ready to run, and its temporary folder of models."""
    for name, value, minimum, maximum in (
        ("minutes", minutes, 0.1, 10_000), ("memory", memory, 1, 1_000),
        ("port", port or 0, 0, 65_535),
    ):  # fmt: skip
        if not minimum <= value <= maximum:
            expected = f"expected {minimum:g} to {maximum:g}, got {value}"
            raise GlassformerError(f"studio: {name}: {expected}")
    model_folder = tempfile.TemporaryDirectory(prefix="glassformer-")
    try:
        if not models:
            raise GlassformerError("studio: models: expected at least one")
        files = (Path(model_folder.name, f"model-{i}") for i in count(1))
        refs = list(map(_ref_for_workers, models, files))
        folder_list = [folders] if isinstance(folders, (str, PathLike)) else folders
        server = StudioServer(
            refs, folders=[as_text(f, "studio", "a path") for f in folder_list], port=port,
            inputs=[inputs] if isinstance(inputs, str) else list(inputs), minutes=minutes,
            gigabytes=memory,
        )  # fmt: skip
    except BaseException:
        model_folder.cleanup()
        raise
    return server, model_folder


def _ref_for_workers(model: Model | str | PathLike[str], path: Path) -> str:
    """Return a ref that worker processes can load. A Model object is saved to a file."""
    if isinstance(model, Model):
        return str(checkpoint.save(model, path.with_suffix(".safetensors")))
    return as_text(model, "studio")
