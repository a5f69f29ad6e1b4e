"""The live page with Python behind it: from a notebook or a script beside whatever else it does
(`gf.open`), or until Ctrl-C (the command open).
"""

import atexit
import html
import tempfile
import threading
import webbrowser
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from .. import checkpoint
from ..calls import text_of
from ..errors import GlassformerError
from ..face import model_of
from ..finding import Shown
from ..model import Model

LEAST, MOST = (0.1, 1), (10_000, 1_000)  # minutes, and GiB


class Opened(Shown):
    """A server that runs until `close` is called, or this Python ends. `with gf.open(…)` closes."""

    def __init__(self, server: Any, kept: Any) -> None:
        self.address, self._server, self._kept = server.address, server, kept
        self._thread = threading.Thread(target=server.run, daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Ends it, and all that it is doing."""
        atexit.unregister(self.close)
        self._server.stop()
        self._thread.join(10)
        self._server.close()
        self._kept.cleanup()

    def __enter__(self) -> "Opened":
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


def open_(
    models: Any, *, folders: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    inputs: str | Sequence[str] = (), port: int | None = None, minutes: float = 30.0,
    memory: float = 4.0, browser: bool = False,
) -> Opened:  # fmt: skip
    """Opens the live page with a server behind it: type sources, verify, prove and train from it.

    It listens on 127.0.0.1 alone and answers only who knows its `address`; nothing that is sent to
    it is executed. `folders`: whose models and sources the page may name. `inputs`: texts to begin
    with. `minutes` that a verification, a proof or a training may take, and each model at the
    start; `memory` in GiB that any work may take. `browser`: open the page in one.
    """
    server, kept = serving(models, folders, inputs, port, minutes, memory)
    if browser:
        webbrowser.open(server.once)
    return Opened(server, kept)


def serving(
    models: Any, folders: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    inputs: str | Sequence[str] = (), port: int | None = None, minutes: float = 30.0,
    memory: float = 4.0,
) -> tuple[Any, Any]:  # fmt: skip
    """A server that waits to be run, and the folder of models that it needs until it is closed."""
    try:
        from ..serve.server import Open
    except ModuleNotFoundError as e:
        raise GlassformerError(f"open — needs {e.name}: pip install 'glassformer[serve]'") from None

    for name, value, least, most in (
        ("minutes", minutes, LEAST[0], MOST[0]), ("memory", memory, LEAST[1], MOST[1]),
        ("port", port or 0, 0, 65_535),
    ):  # fmt: skip
        if not least <= value <= most:
            raise GlassformerError(f"open — {name} must be from {least:g} to {most:g}, got {value}")
    kept = tempfile.TemporaryDirectory(prefix="glassformer-")
    try:
        several = list(models) if isinstance(models, (list, tuple)) else [models]
        if not several:
            raise GlassformerError("open — expected a model, or several")
        refs = [_ref(each, Path(kept.name, f"model-{i}")) for i, each in enumerate(several, 1)]
        given = [folders] if isinstance(folders, (str, PathLike)) else folders
        server = Open(
            refs, folders=[text_of(f, "open", "a path") for f in given], port=port,
            inputs=[inputs] if isinstance(inputs, str) else list(inputs), minutes=minutes,
            gigabytes=memory,
        )  # fmt: skip
    except BaseException:
        kept.cleanup()
        raise
    return server, kept


def _ref(given: Any, path: Path) -> str:
    """A ref for other processes: a Model of this one is written to a file first."""
    if isinstance(given, (str, PathLike)):
        return text_of(given, "open")
    model: Model = model_of(given).numpy()
    return str(checkpoint.save(model, path.with_suffix(".safetensors")))
