"""File sandbox of worker processes, by an audit hook: read-only access to the user's folders.

It is a second line of defense after catalogue.py, for example against file names in options or
checkpoints. The folders of Python and its packages, /proc and /sys are also readable. Writing
files, starting processes and connecting to sockets are forbidden.
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
    """The file sandbox of a process. Once activated it is permanent, except within `suspended`."""

    def __init__(self, folders: Iterable[Path]) -> None:
        package = Path(__file__).parents[1]
        python_folders = [sys.prefix, sys.base_prefix, str(package), *site.getsitepackages()]
        python_folders += [site.getusersitepackages()]
        roots = [os.path.realpath(path) for path in [*python_folders, *map(str, folders)]]
        self.roots = tuple(os.path.join(root, "") for root in roots)
        self.active = False

    def activate(self) -> None:
        sys.addaudithook(self._audit)
        self.active = True

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Suspend the sandbox within the context, for refs of the command line."""
        previous, self.active = self.active, False
        try:
            yield
        finally:
            self.active = previous

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event == "open":
            path, mode, flags = args
            if isinstance(path, int):  # a descriptor of an open file
                return
            writes = bool(flags & WRITE_FLAGS) or bool({*str(mode or "")} & {*"wax+"})
            if not self.allows(os.fsdecode(path), writes):
                raise PermissionError(errno.EACCES, "not in a folder of the command line")
        elif event in FORBIDDEN_EVENTS:
            raise PermissionError(errno.EACCES, "forbidden for requests")

    def allows(self, path: str, writes: bool = False) -> bool:
        """Return whether a file may be opened, after resolving links."""
        real = os.path.realpath(path)
        if writes:
            return real == os.devnull
        return real.startswith(self.roots) or real.startswith(SYSTEM_PATHS)
