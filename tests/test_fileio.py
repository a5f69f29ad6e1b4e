"""Files that are kept: what is no file is refused, links and modes stay, and nothing is ever
half written.
"""

import errno
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer import GlassformerError
from glassformer.utils import fileio
from glassformer.utils.fileio import (
    check_writable,
    exclusive_lock,
    read_bytes,
    read_text,
    write_atomically,
)
from glassformer.utils.typed_json import read_json
from helpers import raises

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0

CODES = {"No such file": "not_found", "null": "bad_argument", "surrogates": "bad_argument"}


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


# ── in ─────────────────────────────────────────────────────────────────────────────────────────
def test_a_file_comes_whole(tmp_path):
    path = tmp_path / "a"
    for data in (b"", b"x", b"x" * 100_000):
        path.write_bytes(data)
        assert read_bytes(path) == data == read_bytes(str(path), max_bytes=len(data))
    assert b"python" in read_bytes(f"/proc/{os.getpid()}/cmdline"), (
        "a file that says it has no bytes"
    )


def test_what_is_no_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    make_socket(tmp_path / "socket")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path, reason in [
        ("/dev/zero", "a device"),
        (tmp_path / "link", "a device"),
        (tmp_path / "pipe", "a pipe"),
        (tmp_path / "socket", "a socket"),
        (tmp_path, "a folder"),
        (tmp_path / "loop", "levels of symbolic links"),
        (tmp_path / "none", "No such file"),
        ("a\0b", "null"),
        ("x" * 5_000, "too long"),
        ("\ud800", "surrogates"),
    ]:
        with raises(CODES.get(reason, "file_error"), reason):
            read_bytes(path)


def test_no_more_is_read_than_was_expected(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 11)
    with raises("bad_argument", "11", "10"):
        read_bytes(path, max_bytes=10)
    with open(path, "wb") as f:
        f.truncate(2**40)  # a terabyte of nothing
    with raises("bad_argument"):
        read_bytes(path)
    with raises("bad_argument", "3"):
        read_bytes(f"/proc/{os.getpid()}/cmdline", max_bytes=3)


@pytest.mark.parametrize(
    "text,reason",
    [
        (b"{", "Expecting"), (b"[" * 100_000, "nested too deeply"), (b'"\xff"', "expected UTF-8"),
        (b"", "Expecting"),
        (b"9" * 5_000, "digits"), (b"[NaN]", "NaN is not a finite"), (b"-Infinity", "-Infinity"),
        (b"[1e999]", "1e999"),
    ],
)  # fmt: skip
def test_what_is_no_json_is_one_line(tmp_path, text, reason):
    path = tmp_path / "a.json"
    path.write_bytes(text)
    with raises("damaged_file", "a.json", reason) as e:
        read_json(path, "damaged thing")
    assert "\n" not in str(e.value) and len(str(e.value)) < 300 + len(str(path))


def test_json_and_text(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": [1, 2.5, "é"]}', encoding="utf-8")
    assert read_json(path) == {"a": [1, 2.5, "é"]} and read_text(path) == '{"a": [1, 2.5, "é"]}'
    path.write_text("[NaN, -Infinity]")
    assert read_json(path, finite=False)[1] == -float("inf")
    path.write_bytes(b"\xff")
    with raises("bad_argument", "UTF-8", "0"):
        read_text(path)


# ── out ────────────────────────────────────────────────────────────────────────────────────────
def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def refused(path, reason):
    """Both ask the same question, and neither changes anything."""
    for ask in (check_writable, lambda p: write_atomically(p, b"new")):
        with raises(CODES.get(reason, "file_error"), reason) as e:
            ask(path)
        assert "\n" not in str(e.value)


def test_what_is_no_file_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    make_socket(tmp_path / "socket")
    (tmp_path / "device").symlink_to("/dev/null")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"old")
    before = names(tmp_path)
    for name, reason in [
        ("pipe", "a pipe"),
        ("socket", "a socket"),
        ("device", "a device"),
        ("loop", "levels"),
        ("folder", "a folder"),
        ("file/x", "Not a directory"),
        ("none/x", "No such file"),
        (".", "a folder"),
        ("..", "a folder"),
        ("x" * 300, "too long"),
        ("x" * 5_000, "too long"),
        ("a\0b", "null"),
        ("\ud800", "surrogates"),
    ]:
        refused(tmp_path / name, reason)
    refused("", "a folder")
    refused("/dev/null", "a device")
    refused("/proc/nothing", "/proc")
    assert names(tmp_path) == before and (tmp_path / "file").read_bytes() == b"old"
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.skipif(ROOT, reason="nothing is forbidden to root")
def test_what_is_forbidden(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o444)
    refused(path, "Permission denied")
    path.chmod(0o644)
    tmp_path.chmod(0o555)
    try:
        refused(path, "Permission denied")
        refused(tmp_path / "new", "Permission denied")
    finally:
        tmp_path.chmod(0o755)
    assert path.read_bytes() == b"old"


def test_links_are_followed_and_stay(tmp_path):
    (tmp_path / "there").mkdir()
    target, link, dangling = tmp_path / "there" / "a", tmp_path / "link", tmp_path / "dangling"
    target.write_bytes(b"old")
    link.symlink_to(Path("there") / "a")
    dangling.symlink_to(Path("there") / "b")
    assert write_atomically(link, b"new") == link and write_atomically(dangling, b"b") == dangling
    assert (
        link.is_symlink()
        and target.read_bytes() == b"new"
        and (tmp_path / "there" / "b").read_bytes() == b"b"
    )
    assert dangling.is_symlink() and names(tmp_path / "there") == ["a", "b"]
    nowhere = tmp_path / "nowhere"
    nowhere.symlink_to(Path("none") / "c")
    refused(nowhere, "No such file")


def test_modes_are_kept(tmp_path):
    old = os.umask(0o027)
    try:
        new = write_atomically(tmp_path / "new", b"")
    finally:
        os.umask(old)
    assert stat.S_IMODE(new.stat().st_mode) == 0o640
    for mode in (0o600, 0o664, 0o755):
        new.chmod(mode)
        write_atomically(new, b"again")
        assert stat.S_IMODE(new.stat().st_mode) == mode


def test_the_longest_name(tmp_path):
    path = tmp_path / ("ü" * 126 + "abc")  # 255 bytes, as many as there may be
    check_writable(path)
    write_atomically(path, b"x")
    with exclusive_lock(path):
        assert write_atomically(path, b"xy").read_bytes() == b"xy"
    assert names(tmp_path) == [path.name]


def test_asking_makes_nothing(tmp_path):
    check_writable(tmp_path / "new")
    check_writable(None)
    (tmp_path / "a").write_bytes(b"old")
    os.utime(tmp_path / "a", (1, 1))
    check_writable(tmp_path / "a")
    assert names(tmp_path) == ["a"] and (tmp_path / "a").stat().st_mtime == 1


def test_the_folder_is_synced(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda f: synced.append(os.readlink(f"/proc/self/fd/{f}")))
    write_atomically(tmp_path / "a", b"x")
    assert synced == [str(tmp_path / ".a.glassformer.tmp"), str(tmp_path)], (
        "the file, and then its name"
    )


@pytest.mark.parametrize(
    "call", ["open", "write", "fsync", "replace", "fchmod", "fsync of the folder"]
)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("stuck", [False, True])
@pytest.mark.some(3)
def test_every_step_may_fail(tmp_path, monkeypatch, call, number, stuck):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    real, left = {n: getattr(os, n) for n in ("open", "fsync", "replace", "fchmod", "unlink")}, []

    def failing(*args, **options):
        raise OSError(number, os.strerror(number))

    if call == "write":  # what is written goes through a file object

        class Full:
            def __init__(self, handle, *args, **options):
                self.handle = handle

            def __enter__(self):
                return self

            def __exit__(self, *args):
                os.close(self.handle)

            fileno = lambda self: self.handle  # noqa: E731
            write = failing

        monkeypatch.setattr(fileio, "open", Full, raising=False)
    elif call == "fsync of the folder":
        monkeypatch.setattr(
            os, "fsync", lambda f: failing() if left else left.append(real["fsync"](f))
        )
    else:
        monkeypatch.setattr(os, call, failing)
    if stuck:
        monkeypatch.setattr(os, "unlink", failing)
    with raises("file_error", os.strerror(number)):
        write_atomically(path, b"new")
    monkeypatch.undo()
    whole = b"new" if call == "fsync of the folder" else b"old"
    assert path.read_bytes() == whole and (stuck or names(tmp_path) == ["a"])
    assert write_atomically(path, b"later").read_bytes() == b"later" and names(tmp_path) == ["a"]


def test_memory_and_interrupts_leave_nothing(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    for error in (MemoryError, KeyboardInterrupt):
        monkeypatch.setattr(os, "fsync", lambda f, e=error: (_ for _ in ()).throw(e()))
        with pytest.raises(error):
            write_atomically(path, b"new")
    assert names(tmp_path) == ["a"] and path.read_bytes() == b"old"


def test_several_files_or_none(tmp_path, monkeypatch):
    old, new, last = (tmp_path / name for name in ("old", "new", "last"))
    old.write_bytes(b"old")
    real = os.replace

    def fail_at_last(beside, target):
        if Path(target) == last:
            raise OSError(errno.EIO, "no")
        real(beside, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail_at_last)
        with raises("file_error", "last"):
            fileio.write_together({old: b"1", new: b"2", last: b"3"})
    assert names(tmp_path) == ["old"] and old.read_bytes() == b"old"
    fileio.write_together({old: b"1", new: b"2", last: b"3"})
    assert [p.read_bytes() for p in (old, new, last)] == [b"1", b"2", b"3"]
    last.unlink()
    last.mkdir()
    with raises("file_error", "last"):
        fileio.write_together({old: b"4", last: b"5"})
    assert old.read_bytes() == b"1"


def test_several_files_under_a_kill(tmp_path, monkeypatch):
    """Killed before or after each rename: the old files, the new ones, or an empty last file."""
    a, b = tmp_path / "a", tmp_path / "b"
    real, seen = os.replace, set()
    for stop in range(8):
        write_atomically(a, b"old")
        write_atomically(b, b"old")
        if (child := os.fork()) == 0:
            calls = []

            def replace(beside, target, stop=stop, calls=calls):
                for step in (lambda: None, lambda: real(beside, target)):
                    step()
                    calls.append(target)
                    if len(calls) > stop:
                        os._exit(9)

            os.replace = replace
            fileio.write_together({a: b"new", b: b"new"})
            os._exit(0)
        os.waitpid(child, 0)
        seen.add((a.read_bytes(), b.read_bytes()))
    assert seen == {(b"old", b"old"), (b"old", b""), (b"new", b""), (b"new", b"new")}


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_kill_during_the_writing_keeps_the_old_files(tmp_path, monkeypatch, call):
    a, b = tmp_path / "a", tmp_path / "b"
    write_atomically(a, b"old")
    write_atomically(b, b"old")
    renamed = []
    for stop in range(3):  # the empty last file, and both new ones
        if (child := os.fork()) == 0:
            where = fileio if call == "write" else os
            name = "_write_all" if call == "write" else "fsync"
            real, calls = getattr(where, name), []

            def write(*args, stop=stop, real=real, calls=calls):
                if len(calls) == stop:
                    os._exit(9)
                calls.append(args)
                return real(*args)

            setattr(where, name, write)
            fileio.write_together({a: b"new", b: b"new"})
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        renamed += [p.name for p in (a, b) if p.read_bytes() != b"old"]
    assert not renamed
    fileio.write_together({a: b"new", b: b"new"})  # what the killed runs left is no obstacle
    assert names(tmp_path) == ["a", "b"] and b.read_bytes() == b"new"


def test_the_last_file_is_restored_last(tmp_path, monkeypatch):
    """If another cannot be restored, the last one stays empty: no mix looks whole."""
    a, b, last = (tmp_path / name for name in ("a", "b", "last"))
    for path in (a, b, last):
        write_atomically(path, b"old")
    real, calls = os.replace, []

    def fail(beside, target):
        calls.append(Path(target).name)
        if len(calls) > 2:  # the last was emptied, and a written: nothing else can be
            raise OSError(errno.EIO, "no")
        real(beside, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(GlassformerError):
            fileio.write_together({a: b"new", b: b"new", last: b"new"})
    assert calls[:3] == ["last", "a", "b"] and last.read_bytes() == b""
    fileio.write_together({})


def test_a_lock_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "no lock")

    monkeypatch.setattr(fileio.fcntl, "flock", fail)
    with raises("file_error"):
        write_atomically(tmp_path / "a", b"new")
    with (
        raises("file_error"),
        fileio.folder_beside(tmp_path / "b"),
    ):
        pass
    assert names(tmp_path) == []


def test_files_of_a_folder_have_one_mode(tmp_path):
    with fileio.folder_beside(tmp_path / "place") as beside:
        (beside / "made").mkdir()
        for name, mode in (("a", 0o600), ("b", 0o644)):
            (beside / "made" / name).write_text(name)
            (beside / "made" / name).chmod(mode)
        fileio.replace_folder(beside / "made", tmp_path / "place")
    usual = write_atomically(tmp_path / "usual", b"").stat().st_mode
    assert {p.stat().st_mode for p in (tmp_path / "place").iterdir()} == {usual}


def test_a_folder_is_the_old_one_or_the_new_one(tmp_path, monkeypatch):
    place, link = tmp_path / "place", tmp_path / "link"
    link.symlink_to("place")

    def put(path, text):
        with fileio.folder_beside(path) as beside:
            (beside / "made").mkdir()
            (beside / "made" / "file").write_text(text)
            fileio.replace_folder(beside / "made", path)

    put(place, "1")
    place.chmod(0o750)
    put(link, "2")
    assert (
        link.is_symlink()
        and (place / "file").read_text() == "2"
        and names(tmp_path) == ["link", "place"]
    )
    assert stat.S_IMODE(place.stat().st_mode) == 0o750
    real = os.rename

    def fail_into_place(a, b):
        if Path(a).name == "made":
            raise OSError(errno.ENOSPC, "full")
        real(a, b)

    with monkeypatch.context() as patch:  # a system that cannot swap two folders in one step
        patch.setattr(fileio, "_swap_names", lambda a, b: False)
        put(place, "2")
        patch.setattr(os, "rename", fail_into_place)
        with raises("file_error", "place"):
            put(place, "3")
    assert (place / "file").read_text() == "2" and names(tmp_path) == ["link", "place"]
    (tmp_path / "file").write_text("old")
    with raises("file_error", "file"):
        put(tmp_path / "file", "4")
    assert (tmp_path / "file").read_text() == "old"


def test_what_a_command_reads_it_does_not_replace(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        call("export", "addition:digits=1", "--to", "safetensors", "--out", "m.safetensors")[0] == 0
    )
    before = Path("m.safetensors").read_bytes()
    os.link("m.safetensors", "twin.json")
    for words in (
        ["verify", "--out", "twin.json"], ["export", "--to", "torch", "--out", "m.safetensors"],
        ["prove", "--method", "certificate", "--out", "twin.json"],
        ["ground-truth", "--out", "twin.json"],
    ):  # fmt: skip
        status, out, err = call(words[0], "m.safetensors", *words[1:])
        assert status == 2 and not out and "is an input" in err
    assert Path("m.safetensors").read_bytes() == before


def test_a_table_that_a_task_is_made_of_is_not_replaced(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("1,2\n2,1\n")
    Path("t.json").write_text("[[1,2],[2,1]]")
    train = ["train", "lookup:table=t.csv", "--set", "steps=2", "--out", "n.safetensors"]
    for words in (
        [*train, "--history", "t.csv"],
        ["verify", "lookup:table=t.json", "--out", "t.json"],
    ):
        status, out, err = call(*words)
        assert status == 2 and not out and "is an input" in err
    assert Path("t.csv").read_text() == "1,2\n2,1\n" and Path("t.json").read_text()[0] == "["


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="no /proc here")
def test_a_device_that_leads_to_a_file_is_refused(tmp_path):
    """The shell opened that file, maybe to add to it."""
    kept = tmp_path / "log"
    kept.write_text("years of work")
    with open(kept, "a") as file:
        link = tmp_path / "link"
        link.symlink_to(f"/proc/self/fd/{file.fileno()}")
        for path in (f"/dev/fd/{file.fileno()}", f"/proc/self/fd/{file.fileno()}", link):
            for write in (
                fileio.check_writable,
                lambda path: fileio.write_atomically(path, b"new"),
            ):
                with raises("file_error"):
                    write(path)
    assert kept.read_text() == "years of work"


def test_a_folder_is_swapped_in_one_step(tmp_path, monkeypatch):
    """Where that can be: then no moment is without a folder, whenever a run is killed."""
    if not fileio._swap_names(
        *(tmp_path / name for name in ("a", "b") if not (tmp_path / name).mkdir())
    ):
        pytest.skip("this system cannot")
    monkeypatch.setattr(os, "rename", lambda a, b: pytest.fail("two steps"))
    with fileio.folder_beside(tmp_path / "a") as beside:
        (beside / "made").mkdir()
        (beside / "made" / "new").touch()
        fileio.replace_folder(beside / "made", tmp_path / "a")
    assert names(tmp_path) == ["a", "b"] and names(tmp_path / "a") == ["new"]


def test_a_folder_that_a_killed_run_took_away_is_put_back(tmp_path):
    left = fileio._temp_path(tmp_path / "place", "new") / fileio.OLD_SUFFIX
    left.mkdir(parents=True)
    (left / "file").write_text("old")
    with pytest.raises(ZeroDivisionError), fileio.folder_beside(tmp_path / "place"):
        raise ZeroDivisionError
    assert (tmp_path / "place" / "file").read_text() == "old" and names(tmp_path) == ["place"]


def test_a_log_grows_by_whole_lines(tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.write_bytes(b"old")
    log = fileio.AppendLog(path, b"begin\n")
    log.add(b"1\n")
    real = fileio._write_all

    def half(file, data):
        real(file, data[:1])
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(fileio, "_write_all", half)
        with raises("file_error", "log"):
            log.add(b"2\n")
    log.add(b"3\n")
    log.close()
    assert path.read_bytes() == b"begin\n1\n3\n"


# ── one run at a time ──────────────────────────────────────────────────────────────────────────
HOLDER = """
import sys, time
from pathlib import Path
from glassformer.utils import fileio
path = Path(sys.argv[1])
with fileio.exclusive_lock(path), fileio.folder_beside(path) as folder:
    (folder / "half").write_text("x")
    beside = fileio._create(fileio._temp_path(path, "tmp"))
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_run_is_refused_until_the_first_is_killed(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout
    try:
        assert holder.stdout.readline() == "held\n"
        with (
            raises("file_error", "a"),
            exclusive_lock(path),
        ):
            pass
        with raises("file_error"):
            write_atomically(path, b"new")
        with (
            raises("file_error"),
            fileio.folder_beside(path),
        ):
            pass
        assert (tmp_path / ".a.glassformer.new" / "half").exists() and path.read_bytes() == b"old"
        with exclusive_lock(tmp_path / "b"):
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    with exclusive_lock(path), fileio.folder_beside(path):
        write_atomically(path, b"new")
    assert names(tmp_path) == ["a"], "what the killed run left is gone"


def test_a_lock_is_taken_again_and_leaves_nothing(tmp_path):
    (tmp_path / "link").symlink_to("a")
    for _ in range(2):
        with exclusive_lock(tmp_path / "a"), exclusive_lock(tmp_path / "b"):
            with (
                raises("file_error"),
                exclusive_lock(tmp_path / "link"),
            ):
                pass
            assert len(names(tmp_path)) == 3
        assert names(tmp_path) == ["link"]
    with exclusive_lock(None):
        pass
    with (
        raises("not_found"),
        exclusive_lock(tmp_path / "none" / "a"),
    ):
        pass


def test_without_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(fileio, "fcntl", None)
    with exclusive_lock(tmp_path / "a"), exclusive_lock(tmp_path / "a"):
        write_atomically(tmp_path / "a", b"x")
    (tmp_path / ".a.glassformer.tmp").write_bytes(b"left")
    write_atomically(tmp_path / "a", b"y")
    assert names(tmp_path) == ["a"]


def test_what_a_killed_run_left_is_taken_away(tmp_path):
    beside = tmp_path / ".a.glassformer.tmp"
    for leave in (lambda: beside.write_bytes(b"half"), beside.mkdir, lambda: os.mkfifo(beside)):
        leave()
        write_atomically(tmp_path / "a", json.dumps([1]).encode())
        assert names(tmp_path) == ["a"]
        os.rename(tmp_path / "a", beside)
        beside.rename(tmp_path / ".a.glassformer.new")
        with fileio.folder_beside(tmp_path / "a") as folder:
            (folder / "x").write_bytes(b"x")
        assert names(tmp_path) == []


# Windows has none of these; a run there imports, writes and reads all the same.
ELSEWHERE = """
import os, signal, sys
for name in ("fcntl", "pwd", "grp", "resource", "termios", "tty", "pty"):
    sys.modules[name] = None
for room, names in (os, "fork getuid fchmod fchown O_NOFOLLOW O_NONBLOCK killpg setsid"), (
    signal, "SIGKILL SIGHUP SIGPIPE SIGALRM SIGCHLD"
):
    for name in names.split():
        if hasattr(room, name):
            delattr(room, name)
import glassformer as gf
model = gf.load("addition:digits=1")
path = gf.save(model, "a.safetensors")
gf.verify(path, journal="journal")
print(gf.run(gf.save(gf.load(path), path), "4+8").output, gf.utils.fileio.fcntl)
"""


def test_a_system_without_locks_and_signals(tmp_path):
    words = [sys.executable, "-c", ELSEWHERE]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "12 None\n", done.stderr[-1500:]
