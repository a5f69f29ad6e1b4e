"""Entry point of the server's worker processes, inside the sandbox of fs_sandbox.py."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..utils.worker_main import Line as Line


def prepare(setup: dict[str, Any]) -> Callable[[str, Any, Line], Any]:
    """Load the models of the command line, restrict file access, and return the request handler."""
    from .catalogue import Shelf
    from .fs_sandbox import Fence
    from .handlers import Desk

    folders = [Path(folder) for folder in setup["folders"]]
    fence = Fence(folders)
    desk = Desk(Shelf(setup["typed"], folders, fence))
    fence.raise_()
    return desk.do
