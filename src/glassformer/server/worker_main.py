"""Entry point of the server's worker processes, inside the sandbox of fs_sandbox.py."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..utils.worker_main import ProgressChannel as ProgressChannel


def prepare(setup: dict[str, Any]) -> Callable[[str, Any, ProgressChannel], Any]:
    """Load command-line models, activate the file sandbox, and return the request handler."""
    from .catalogue import Catalogue
    from .fs_sandbox import FileSandbox
    from .handlers import Handlers

    folders = [Path(folder) for folder in setup["folders"]]
    fence = FileSandbox(folders)
    desk = Handlers(Catalogue(setup["typed"], folders, fence))
    fence.activate()
    return desk.handle
