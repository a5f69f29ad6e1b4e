"""File access: bounded reads, atomic writes and locks. All errors are GlassformerErrors.

Only regular files up to a size limit are read, because reading a device or a pipe might never end.
A file is written beside its target and renamed to it, so a killed process leaves the old file or
the new one. Links are followed and modes are kept.
"""

import contextlib
import ctypes
import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from io import FileIO
from pathlib import Path

from .errors import GlassformerError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MAX_FILE_BYTES = 2**30
FILE_KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
}  # fmt: skip
# Some systems lack the flag. With O_NONBLOCK, opening a pipe without a writer returns at once.
NONBLOCK, NOFOLLOW = getattr(os, "O_NONBLOCK", 0), getattr(os, "O_NOFOLLOW", 0)
BINARY = getattr(os, "O_BINARY", 0)
OLD_SUFFIX = ".old"
# EBADF occurs for folders on some network disks.
NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EBADF}
MAX_NAME_BYTES = 200  # maximum in temporary names; longer names are hashed


def os_error_text(error: BaseException) -> str:
    """Return a system error message without the error number and the path."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


@contextlib.contextmanager
def _os_errors_as(path: str | Path, action: str = "written") -> Iterator[None]:
    """Convert system errors within the block to a GlassformerError that names the file."""
    try:
        yield
    except (OSError, ValueError) as e:
        raise GlassformerError(f"{path} — cannot be {action}: {os_error_text(e)}") from None


# ── in ─────────────────────────────────────────────────────────────────────────────────────────
def read_bytes(path: str | Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the contents of a regular file with at most `max_bytes` bytes."""
    try:
        _check_regular(os.stat(path))  # Check first: opening a device may have side effects.
        with open(os.open(path, os.O_RDONLY | NONBLOCK | BINARY), "rb") as file:
            status = os.fstat(file.fileno())
            _check_regular(status)
            size = status.st_size
            if size <= max_bytes:
                data = file.read(size + 1)
                if len(data) > size:  # The file grew, or reports size 0 as in /proc.
                    data += file.read(max_bytes + 1 - len(data))
                size = len(data)
    except (OSError, ValueError) as e:
        raise GlassformerError(f"{path} — cannot be read: {os_error_text(e)}") from None
    except MemoryError:
        raise GlassformerError(f"{path} — cannot be read: it does not fit into memory") from None
    if size > max_bytes:
        got = f"{size:,} bytes or more, where at most {max_bytes:,} are expected"
        raise GlassformerError(f"{path} — cannot be read: {got}")
    return data


def read_text(path: str | Path, max_bytes: int = MAX_FILE_BYTES) -> str:
    """Return the contents of a UTF-8 text file."""
    try:
        return read_bytes(path, max_bytes).decode()
    except UnicodeDecodeError as e:
        raise GlassformerError(f"{path} — not UTF-8 text: {e.reason} at byte {e.start:,}") from None


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = FILE_KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a file")


# ── out ────────────────────────────────────────────────────────────────────────────────────────
def write_atomically(path: str | Path, data: bytes) -> Path:
    """Write a file so that a crash leaves either the old or the new contents."""
    path = Path(path)
    with _os_errors_as(path), _staged(path, data) as rename:
        rename()
    return path


@contextlib.contextmanager
def _staged(path: Path, data: bytes, end: str = "tmp") -> Iterator[Callable[[], None]]:
    """Write a file beside `path`, and yield a function that renames it to `path`."""
    target, old = _resolve_target(path)
    beside = _temp_path(target, end)
    renamed = False

    def rename() -> None:
        nonlocal renamed
        if fcntl is None:
            file.close()  # Windows cannot rename open files.
        os.replace(beside, target)
        renamed = True

    with open(_create(beside), "wb", buffering=0) as file:
        try:
            _write_all(file, data)
            if old:
                _copy_mode_and_owner(file.fileno(), old)
            os.fsync(file.fileno())
            yield rename
        finally:
            if not renamed:
                with contextlib.suppress(OSError):
                    os.unlink(beside)
    sync(target.parent)


def write_together(files: Mapping[Path, bytes]) -> None:
    """Write several files; after an error, restore the old contents of all files.

    All files are written beside their targets before the first one is renamed. A process killed
    between the renames leaves an empty last file, by which readers recognize an incomplete set.
    """
    for path in files:
        check_writable(path)
    old = {path: read_bytes(path, max_bytes=2**40) if path.exists() else None for path in files}
    if not files:
        return
    *_, last = files
    steps = [(path, data, "tmp") for path, data in files.items()]
    if old[last] is not None and len(files) > 1:
        steps.insert(0, (last, b"", "empty"))
    started: list[Path] = []
    try:
        with _os_errors_as(last), contextlib.ExitStack() as stack:
            renames = []
            for path, data, end in steps:
                with _os_errors_as(path):
                    renames.append((path, stack.enter_context(_staged(path, data, end))))
            for path, rename in renames:
                started.append(path)
                with _os_errors_as(path):
                    rename()
    except BaseException:
        failed = False
        for path in sorted({*started}, key=lambda p: p == last):
            if path == last and failed:
                break  # An empty or missing file marks the set as incomplete.
            try:
                remove(path) if (was := old[path]) is None else write_atomically(path, was)
            except GlassformerError:
                failed = True
        raise


def replace_folder(new: Path, path: Path) -> None:
    """Replace `path` by a folder made in `folder_beside`, in one step if the system can."""
    with _os_errors_as(path):
        target = Path(os.path.realpath(path))
        mode = stat.S_IMODE(os.stat(new.parent).st_mode) & 0o666  # mode set by the umask
        for file in [new, *new.rglob("*")]:
            if file.is_file():
                os.chmod(file, mode)  # Some libraries restrict files to their owner.
            sync(file)
        old = None
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(target)
            if not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "a file has that name")
            os.chmod(new, stat.S_IMODE(status.st_mode))
            if _swap_names(new, target):  # The private folder now contains the old folder.
                return sync(target.parent)
            # If the run is killed here, the next `folder_beside` restores the folder.
            old = new.with_name(OLD_SUFFIX)
            os.rename(target, old)
        try:
            os.rename(new, target)
        except BaseException:
            if old:
                with contextlib.suppress(OSError):
                    os.rename(old, target)
            raise
        sync(target.parent)


class AppendLog:
    """Log file that starts with `first` and grows by `add`, each time completely or not at all."""

    def __init__(self, path: str | Path, first: bytes = b"") -> None:
        self.path = write_atomically(path, first)
        with _os_errors_as(path):
            self.file = open(path, "ab", buffering=0)  # noqa: SIM115 - close() closes it

    def add(self, data: bytes) -> None:
        with _os_errors_as(self.path):
            end = os.fstat(self.file.fileno()).st_size
            try:
                _write_all(self.file, data)
            except BaseException:
                with contextlib.suppress(OSError):
                    self.file.truncate(end)
                raise

    def close(self) -> None:
        with contextlib.suppress(OSError):  # Additions are already written.
            self.file.close()


def check_ending(path: str | Path, ending: str, name: str = "out") -> None:
    """Raise an error if a path does not have the given ending."""
    if Path(path).suffix != ending:
        raise GlassformerError(f"{name}: expected FILE{ending}, got {path}")


def check_writable(path: str | Path | None, *read: str | Path | None) -> None:
    """Raise an error if a file cannot be written at `path`. Existing files are not changed.

    `read` are refs and paths of inputs, which must not be overwritten.
    """
    if path is None:
        return
    for file in (name for ref in map(str, filter(None, read)) for name in _file_names_in(ref)):
        with contextlib.suppress(OSError, ValueError):  # The name is no file.
            if os.path.samefile(file, path):
                raise GlassformerError(f"{path} — is an input of this call; name another output")
    with _os_errors_as(path):
        target, _ = _resolve_target(Path(path))
        with tempfile.TemporaryFile(dir=target.parent):
            pass


def _file_names_in(ref: str) -> list[str]:
    """Return what may be a file in a ref: all of it, the parts before colons, option values."""
    values = [word.partition("=")[2] for word in ref.replace(":", ",").split(",")]
    return [ref, *(ref[:i] for i, character in enumerate(ref) if character == ":"), *values]


def make_folder(path: str | Path) -> Path:
    """Create a folder and its parents if they do not exist."""
    with _os_errors_as(path, "made"):
        try:
            Path(path).mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, "a file has that name") from None
    return Path(path)


def remove(path: str | Path) -> None:
    """Remove a file if it exists."""
    with _os_errors_as(path, "removed"):
        Path(path).unlink(missing_ok=True)


@contextlib.contextmanager
def folder_beside(path: str | Path) -> Iterator[Path]:
    """Yield a private folder beside `path`, to be filled and renamed; remove it at the end."""
    path = Path(path)
    with _os_errors_as(path):
        target = Path(os.path.realpath(path))
        beside = _temp_path(target, "new")
        if (beside / OLD_SUFFIX).is_dir() and not os.path.lexists(target):
            os.rename(beside / OLD_SUFFIX, target)
        handle = _create(beside, folder=True)
    try:
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        os.close(handle)


def sync(path: Path) -> None:
    """Flush a file or a folder's entries to disk if the system supports it."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # The file is not readable or is a folder on Windows.
        return
    try:
        os.fsync(handle)
    except OSError as e:
        if e.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(handle)


def _resolve_target(path: Path) -> tuple[Path, os.stat_result | None]:
    """Return the file that `path` links to, and its status or None if it does not exist."""
    hop = os.path.abspath(path)
    for _ in range(40):  # /dev/stdout may link to a file of another process.
        if hop.startswith(("/dev/", "/proc/")) and not hop.startswith("/dev/shm/"):
            device = hop.startswith("/dev/") or "/fd/" in hop
            problem = "it is a device" if device else "files in /proc are not kept"
            raise OSError(errno.EINVAL, problem)
        try:
            hop = os.path.join(os.path.dirname(hop), os.readlink(hop))
        except OSError:
            break
    try:
        old = os.stat(path)
    except FileNotFoundError:  # The file is new, or the link is dangling.
        return Path(os.path.realpath(path)), None
    if not stat.S_ISREG(old.st_mode):
        raise OSError(errno.EINVAL, f"it is {FILE_KINDS.get(stat.S_IFMT(old.st_mode), 'no file')}")
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return Path(os.path.realpath(path)), old


def _write_all(file: FileIO, data: bytes) -> None:
    """Write all of `data` in a loop, because an unbuffered file may accept only a part."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _copy_mode_and_owner(file: int, old: os.stat_result) -> None:
    """Give a new file the mode and, if permitted, the owner of the old file."""
    if hasattr(os, "fchown"):
        with contextlib.suppress(OSError):
            os.fchown(file, old.st_uid, old.st_gid)
        os.fchmod(file, stat.S_IMODE(old.st_mode))


# ── beside ─────────────────────────────────────────────────────────────────────────────────────
def _temp_path(target: Path, end: str) -> Path:
    name = target.name
    if len(os.fsencode(name)) > MAX_NAME_BYTES:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return target.with_name(f".{name}.glassformer.{end}")


def _create(beside: Path, folder: bool = False) -> int:
    """Create and lock a file (or folder) beside a target; replace the leftover of a killed run."""
    for _ in range(9):  # Other processes may create or remove it meanwhile.
        try:
            new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY
            handle = _make_temp(beside) if folder else os.open(beside, new, 0o666)
        except FileExistsError:
            _remove_leftover(beside)
            continue
        try:
            if _try_lock(handle) and os.fstat(handle).st_nlink:
                return handle
        except OSError:  # It cannot be locked, so remove it.
            os.close(handle)
            os.rmdir(beside) if folder else os.unlink(beside)
            raise
        os.close(handle)
    raise OSError(errno.EBUSY, "another run is writing it")


def _swap_names(a: Path, b: Path) -> bool:
    """Exchange the names of two files in one step. Return False if the system cannot."""
    try:
        swap = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    cwd, exchange = -100, 2  # Linux constants AT_FDCWD, RENAME_EXCHANGE
    return bool(swap(cwd, os.fsencode(a), cwd, os.fsencode(b), exchange) == 0)


def _make_temp(beside: Path) -> int:
    os.mkdir(beside)
    if fcntl is None:  # Windows cannot open folders.
        return os.open(os.devnull, os.O_RDONLY)
    try:
        return os.open(beside, os.O_RDONLY)
    except OSError:
        with contextlib.suppress(OSError):
            os.rmdir(beside)
        raise


def _remove_leftover(beside: Path) -> None:
    """Remove the temporary file or folder of a run. Raise an error if that run is still alive."""
    with contextlib.suppress(FileNotFoundError):
        is_folder = stat.S_ISDIR(os.lstat(beside).st_mode)
        handle = os.open(beside, os.O_RDONLY | NONBLOCK | NOFOLLOW)
        try:
            if not _try_lock(handle):
                raise OSError(errno.EBUSY, "another run is writing it")
            if os.fstat(handle).st_nlink:  # Otherwise the name may belong to another run.
                shutil.rmtree(beside) if is_folder else os.unlink(beside)
        finally:
            os.close(handle)


def _try_lock(handle: int) -> bool:
    """Lock an open file if the system has locks. Return False if another process holds the lock."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as e:
        if e.errno not in NO_LOCKS:
            raise
    return True


@contextlib.contextmanager
def exclusive_lock(path: str | Path | None) -> Iterator[None]:
    """Hold an exclusive lock on `path`. Raise an error if another run holds it.

    The lock of a killed run is released. Without file locks (Windows, some network disks) two runs
    may overwrite each other's files, although each file is still written atomically.
    """
    if path is None or fcntl is None:
        yield
        return
    with _os_errors_as(path):
        lock = _temp_path(_resolve_target(Path(path))[0], "lock")
        try:
            handle = _create(lock)
        except OSError as e:
            if e.errno != errno.EBUSY:
                raise
            hint = "wait for it to end, or choose another path"
            raise GlassformerError(f"{path} — another run is writing there; {hint}") from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            # Unlink while locked, so that a process that opened the file detects the removal.
            os.unlink(lock)
        os.close(handle)
