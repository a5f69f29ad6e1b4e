"""A fence around a process that works for a page: files of the folders given, and nothing else.

catalogue.py decides what a page may name and says why not. This is the second lock: whatever reads
a file for whatever reason (an option that names a table, a blueprint in a checkpoint) is stopped
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

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
SYSTEM = ("/proc/", "/sys/", "/dev/null", "/dev/urandom")
BEYOND = (
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork",
    "os.forkpty", "os.startfile", "socket.connect", "socket.bind", "os.remove", "os.rename",
    "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "shutil.rmtree", "os.kill", "os.killpg",
)  # fmt: skip


class Fence:
    """Raised once, and for good: an audit hook cannot be taken away. `lowered` opens it a while."""

    def __init__(self, folders: Iterable[Path]) -> None:
        package = Path(__file__).parents[1]
        own = [sys.prefix, sys.base_prefix, str(package), *site.getsitepackages()]
        own += [site.getusersitepackages()]
        roots = [os.path.realpath(path) for path in [*own, *map(str, folders)]]
        self.roots = tuple(os.path.join(root, "") for root in roots)
        self.up = False

    def raise_(self) -> None:
        sys.addaudithook(self._look)
        self.up = True

    @contextmanager
    def lowered(self) -> Iterator[None]:
        """Within it everything may be opened: for what was typed on the command line."""
        before, self.up = self.up, False
        try:
            yield
        finally:
            self.up = before

    def _look(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.up:
            return
        if event == "open":
            path, mode, flags = args
            if isinstance(path, int):  # open already
                return
            writes = bool(flags & WRITES) or bool({*str(mode or "")} & {*"wax+"})
            if not self.allows(os.fsdecode(path), writes):
                raise PermissionError(errno.EACCES, "it is in none of the folders that were given")
        elif event in BEYOND:
            raise PermissionError(errno.EACCES, "not for a page")

    def allows(self, path: str, writes: bool = False) -> bool:
        """Whether a file may be opened, wherever links lead."""
        real = os.path.realpath(path)
        if writes:
            return real == os.devnull
        return real.startswith(self.roots) or real.startswith(SYSTEM)
