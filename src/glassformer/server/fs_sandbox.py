"""A fence around a process that works for a page: files of the folders given, and nothing else.

catalogue.py decides what a page may name and says why not. This is the second lock: whatever reads
a file for whatever reason (an option that names a table, a parametrization in a checkpoint) stops
here if nobody gave that folder. What Python and its libraries need is let through to be read: its
own folders (sys.prefix, site-packages), /proc and /sys. Nothing is written, started or connected
to.
"""

import errno
import os
import site
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
SYSTEM_PATHS = ("/proc/", "/sys/", "/dev/null", "/dev/urandom")
FORBIDDEN_EVENTS = (
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork",
    "os.forkpty", "os.startfile", "socket.connect", "socket.bind", "os.remove", "os.rename",
    "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "shutil.rmtree", "os.kill", "os.killpg",
)  # fmt: skip


class FileSandbox:
    """Raised once, and for good: an audit hook cannot be taken away. `lowered` opens it a while."""

    def __init__(self, folders: Iterable[Path]) -> None:
        package = Path(__file__).parents[1]
        own = [sys.prefix, sys.base_prefix, str(package), *site.getsitepackages()]
        own += [site.getusersitepackages()]
        roots = [os.path.realpath(path) for path in [*own, *map(str, folders)]]
        self.roots = tuple(os.path.join(root, "") for root in roots)
        self.active = False

    def activate(self) -> None:
        sys.addaudithook(self._audit)
        self.active = True

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Within it everything may be opened: for what was typed on the command line."""
        before, self.active = self.active, False
        try:
            yield
        finally:
            self.active = before

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event == "open":
            path, mode, flags = args
            if isinstance(path, int):  # open already
                return
            writes = bool(flags & WRITE_FLAGS) or bool({*str(mode or "")} & {*"wax+"})
            if not self.allows(os.fsdecode(path), writes):
                raise PermissionError(errno.EACCES, "it is in none of the folders that were given")
        elif event in FORBIDDEN_EVENTS:
            raise PermissionError(errno.EACCES, "not for a page")

    def allows(self, path: str, writes: bool = False) -> bool:
        """Whether a file may be opened, wherever links lead."""
        real = os.path.realpath(path)
        if writes:
            return real == os.devnull
        return real.startswith(self.roots) or real.startswith(SYSTEM_PATHS)
