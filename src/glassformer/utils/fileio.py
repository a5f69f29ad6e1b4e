"""Files that are kept: read with care, written whole or not at all, and by one run at a time.

What is read is a regular file of a size that was expected: a device or a pipe would never end. What
is written stands beside its target until it is whole, and is then renamed into place: a killed
process leaves the old file or the new one. Links are followed, modes are kept, and what is no
regular file is refused. What is wrong with a file raises GlassformerError and nothing else.
"""

import contextlib
import ctypes
import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path

from .errors import GlassformerError

try:
    import fcntl
except ImportError:  # there are systems without: done without
    fcntl = None  # type: ignore[assignment]

MAX_FILE_BYTES = 2**30  # bytes of a file that is read, unless more are expected
FILE_KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
}  # fmt: skip
# Not every system has these. A pipe without a writer is opened at once, and then refused.
NONBLOCK, NOFOLLOW = getattr(os, "O_NONBLOCK", 0), getattr(os, "O_NOFOLLOW", 0)
BINARY = getattr(os, "O_BINARY", 0)
OLD_SUFFIX = ".old"
# The last of folders on some network disks
NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EBADF}
MAX_NAME_BYTES = 200  # bytes of a file's name that a name beside it repeats; systems end at 255


def os_error_text(error: BaseException) -> str:
    """What the system says about a file, without the number and the path."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


@contextlib.contextmanager
def _os_errors_as(path: str | Path, action: str = "written") -> Iterator[None]:
    """Within it, what the system says is wrong becomes a GlassformerError that names the file."""
    try:
        yield
    except (OSError, ValueError) as e:
        raise GlassformerError(f"{path} — cannot be {action}: {os_error_text(e)}") from None


# ── in ─────────────────────────────────────────────────────────────────────────────────────────
def read_bytes(path: str | Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """All of a regular file of at most so many bytes."""
    try:
        _check_regular(os.stat(path))  # before it is opened: to open a device may do something
        with open(os.open(path, os.O_RDONLY | NONBLOCK | BINARY), "rb") as file:
            found = os.fstat(file.fileno())
            _check_regular(found)
            size = found.st_size
            if size <= max_bytes:
                data = file.read(size + 1)
                if len(data) > size:  # it grew, or is one of those that do not say their size
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
    """All of a text file in UTF-8."""
    try:
        return read_bytes(path, max_bytes).decode()
    except UnicodeDecodeError as e:
        raise GlassformerError(f"{path} — not UTF-8 text: {e.reason} at byte {e.start:,}") from None


def _check_regular(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = FILE_KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a file")


# ── out ────────────────────────────────────────────────────────────────────────────────────────
def write_atomically(path: str | Path, data: bytes) -> Path:
    """The old file or the new one, never half of one."""
    path = Path(path)
    with _os_errors_as(path):
        target, old = _resolve_target(path)
        beside = _temp_path(target, "tmp")
        with open(_create(beside), "wb", buffering=0) as file:
            try:
                _write_all(file, data)
                if old:
                    _copy_mode_and_owner(file.fileno(), old)
                os.fsync(file.fileno())
                if fcntl is None:
                    file.close()  # some systems do not rename what is open
                os.replace(beside, target)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(beside)
                raise
        sync(target.parent)
    return path


def write_together(files: Mapping[Path, bytes]) -> None:
    """Several files, all or none: if one cannot be written, the others are what they were.

    A killed process leaves the old files, the new files, or an empty last file: never a mix that
    could be taken for a whole set.
    """
    for path in files:
        check_writable(path)
    old = {path: read_bytes(path, max_bytes=2**40) if path.exists() else None for path in files}
    if not files:
        return
    *_, last = files
    begun: list[Path] = []
    try:
        if old[last] is not None and len(files) > 1:
            begun.append(last)
            write_atomically(last, b"")
        for path, data in files.items():
            begun.append(path)
            write_atomically(path, data)
    except BaseException:
        failed = False
        for path in sorted({*begun}, key=lambda p: p == last):
            if path == last and failed:
                break  # it stays empty, or missing: the set is not taken for a whole one
            try:
                remove(path) if (was := old[path]) is None else write_atomically(path, was)
            except GlassformerError:
                failed = True
        raise


def replace_folder(new: Path, path: Path) -> None:
    """Puts a folder made by `folder_beside` in the place of `path`: the old or the new is there."""
    with _os_errors_as(path):
        target = Path(os.path.realpath(path))
        mode = stat.S_IMODE(os.stat(new.parent).st_mode) & 0o666  # as the umask has it
        for file in [new, *new.rglob("*")]:
            if file.is_file():
                os.chmod(file, mode)  # some libraries write files that only the owner can read
            sync(file)
        old = None
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(target)
            if not stat.S_ISDIR(found.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "there is a file of that name")
            os.chmod(new, stat.S_IMODE(found.st_mode))
            if _swap_names(new, target):  # in one step; what was there goes with the private folder
                return sync(target.parent)
            # A run that is killed here leaves no folder, and the next one puts it back
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
    """A file that grows: it begins anew, whole, and what is added is there whole or not at all."""

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
        with contextlib.suppress(OSError):  # what was added is written already
            self.file.close()


def check_ending(path: str | Path, ending: str) -> None:
    """Refuse a path without this ending."""
    if Path(path).suffix != ending:
        raise GlassformerError(f"out: expected FILE{ending}, got {path}")


def check_writable(path: str | Path | None, *read: str | Path | None) -> None:
    """Whether a file could be written there: asked before hours of work. Changes nothing.

    `read`: what is read meanwhile, as far as these are files, with options after a colon or
    without. They are not to be replaced.
    """
    if path is None:
        return
    for file in (name for ref in map(str, filter(None, read)) for name in _file_names_in(ref)):
        with contextlib.suppress(OSError, ValueError):  # no file, or not there
            if os.path.samefile(file, path):
                way_out = "name another file to write"
                raise GlassformerError(f"{path} — is read by this command; {way_out}")
    with _os_errors_as(path):
        target, _ = _resolve_target(Path(path))
        with tempfile.TemporaryFile(dir=target.parent):  # without a name, where that can be
            pass


def _file_names_in(ref: str) -> list[str]:
    """What of a ref may be the name of a file: all of it, what stands before a colon, or the value
    of an option, as in lookup:table=FILE.
    """
    values = [word.partition("=")[2] for word in ref.replace(":", ",").split(",")]
    return [ref, *(ref[:i] for i, character in enumerate(ref) if character == ":"), *values]


def make_folder(path: str | Path) -> Path:
    """A folder, and those above it, unless they are there."""
    with _os_errors_as(path, "made"):
        try:
            Path(path).mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, "there is a file of that name") from None
    return Path(path)


def remove(path: str | Path) -> None:
    """Removes a file, if it is there."""
    with _os_errors_as(path, "removed"):
        Path(path).unlink(missing_ok=True)


@contextlib.contextmanager
def folder_beside(path: str | Path) -> Iterator[Path]:
    """A private folder beside `path`, gone at the end: what is in it is renamed into place."""
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
    """Makes a file, or a folder's names, last through a loss of power, where the system can."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # it may be written to and not read, or the system opens no folders
        return
    try:
        os.fsync(handle)
    except OSError as e:
        if e.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(handle)


def _resolve_target(path: Path) -> tuple[Path, os.stat_result | None]:
    """The file that is written when `path` is, and what stands there. OSError if it may not be."""
    hop = os.path.abspath(path)
    for _ in range(40):  # /dev/stdout may lead to a file that somebody else is writing
        if hop.startswith(("/dev/", "/proc/")) and not hop.startswith("/dev/shm/"):
            device = hop.startswith("/dev/") or "/fd/" in hop
            raise OSError(errno.EINVAL, "it is a device" if device else "nothing is kept in /proc")
        try:
            hop = os.path.join(os.path.dirname(hop), os.readlink(hop))
        except OSError:
            break
    try:
        old = os.stat(path)
    except FileNotFoundError:  # new, or a link to what is not there
        return Path(os.path.realpath(path)), None
    if not stat.S_ISREG(old.st_mode):
        raise OSError(errno.EINVAL, f"it is {FILE_KINDS.get(stat.S_IFMT(old.st_mode), 'no file')}")
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return Path(os.path.realpath(path)), old


def _write_all(file: FileIO, data: bytes) -> None:
    """A file without a buffer may take a part at a time."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _copy_mode_and_owner(file: int, old: os.stat_result) -> None:
    """Gives a new file the owner, if that can be, and the mode of the old one."""
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
    """A new file (or folder) beside a target, open and held. What a killed run left is removed."""
    for _ in range(9):  # others may do the same at the same time
        try:
            new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY
            handle = _make_temp(beside) if folder else os.open(beside, new, 0o666)
        except FileExistsError:
            _remove_leftover(beside)
            continue
        try:
            if _try_lock(handle) and os.fstat(handle).st_nlink:
                return handle
        except OSError:  # no lock: nothing is left behind
            os.close(handle)
            os.rmdir(beside) if folder else os.unlink(beside)
            raise
        os.close(handle)
    raise OSError(errno.EBUSY, "another run is writing it")


def _swap_names(a: Path, b: Path) -> bool:
    """Swaps what two names stand for in one step, where the system can do that."""
    try:
        swap = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE of Linux
    return bool(swap(here, os.fsencode(a), here, os.fsencode(b), exchange) == 0)


def _make_temp(beside: Path) -> int:
    os.mkdir(beside)
    if fcntl is None:  # nor does such a system open folders
        return os.open(os.devnull, os.O_RDONLY)
    try:
        return os.open(beside, os.O_RDONLY)
    except OSError:
        with contextlib.suppress(OSError):
            os.rmdir(beside)
        raise


def _remove_leftover(beside: Path) -> None:
    """Removes what stands where a file is to be written beside another, unless its writer lives."""
    with contextlib.suppress(FileNotFoundError):
        is_folder = stat.S_ISDIR(os.lstat(beside).st_mode)
        handle = os.open(beside, os.O_RDONLY | NONBLOCK | NOFOLLOW)
        try:
            if not _try_lock(handle):
                raise OSError(errno.EBUSY, "another run is writing it")
            if os.fstat(handle).st_nlink:  # otherwise the name may now belong to another run's file
                shutil.rmtree(beside) if is_folder else os.unlink(beside)
        finally:
            os.close(handle)


def _try_lock(handle: int) -> bool:
    """Takes the lock of an open file; False if another has it. It ends with the process.

    True also where the system has no locks: work goes on without.
    """
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
    """Hold an exclusive lock on `path`; an error if another run holds it. The lock of a killed run
    is released.

    Without file locks (Windows, some network disks) two runs may overwrite each other's files; each
    file is still written atomically.
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
            hint = "wait for it to end, or name another place"
            raise GlassformerError(f"{path} — another run is writing there; {hint}") from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            # While it is held: who opened it meanwhile finds that it has no name any more
            os.unlink(lock)
        os.close(handle)
