"""Keeps watch over a submission: a script, started by trust.py, that needs Python alone.

    checker ── guard ── (first process of a namespace) ── submission ── whatever it starts

The guard ends everything to its right when the submission ends, when it gets SIGTERM, and when the
checker is gone, however it went: the checker holds the other end of the guard's stdin.

- On Linux, where the system allows namespaces, the submission sees no processes but its own, and
  the kernel ends them all with the first of them, which dies with the guard.
- Else, on Linux, what the submission leaves behind becomes a child of the guard, which looks for
  its descendants and ends them. With the guard itself, only the submission's first process ends.
- Elsewhere its process group is ended: a process that leaves the group gets away.
"""

import contextlib
import ctypes
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

# flags of unshare
NEW_MOUNTS, NEW_USER, NEW_PROCESSES, NEW_NETWORK = 0x20000, 0x10000000, 0x20000000, 0x40000000
DEATH_SIGNAL, SUBREAPER, NO_NEW_PRIVILEGES = 1, 36, 38  # options of prctl
PRIVATE = 0x4000 | 0x40000  # flags of mount: recursive, private
HARMLESS = 0x2 | 0x4 | 0x8  # no setuid, no devices, no programs
TICK = 0.2  # seconds between two looks around
PATIENCE = 5.0  # seconds until processes that do not end are left
GONE = "the checker is gone"


def main(path: str, settings: dict[str, Any]) -> int:
    """The submission's status: as a process has it, or minus the signal that ended it."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)  # the number comes through the pipe
    # the checker keeps the pipe open, unless it is gone
    if not (line := sys.stdin.buffer.readline()):
        return 1
    asked, most = json.loads(line), settings["limits"]["processes"]
    known, guard = processes(), os.getpid()
    limits = settings["limits"] | {"processes": most + threads(known)}
    got = apart() if settings["namespaces"] else 0
    own = bool(got & NEW_PROCESSES)
    way = "namespace" if own else "descendants" if control(SUBREAPER, 1) else "group"
    counted = bool(known) and os.getuid() == 0  # for root the system's own limit does not count

    def submission() -> None:
        os.closerange(3, 100)
        os.setsid()  # signals to its group are not for us
        control(NO_NEW_PRIVILEGES, 1)
        here = os.path.dirname(os.path.abspath(__file__))
        child = runpy.run_path(os.path.join(here, "trust_child.py"))
        told = {"network": not got & NEW_NETWORK, "ended": way}
        child["main"](path, limits, asked, told, counted)

    mine, its = socket.socketpair()
    pid = fork(lambda: first(submission, mine, its) if own else alone(submission, guard))
    its.close()
    silence()
    why, status = watch(wake, pid, settings["checker"], most if counted else 0)
    end(pid if why or way == "group" else 0, way)
    if why == GONE:
        with contextlib.suppress(RecursionError):
            shutil.rmtree(settings["folder"], ignore_errors=True)
    if why:
        os.write(2, f"\n{why}\n".encode())
        return 1
    return int(mine.recv(20) or 1) if own else status


def watch(wake: int, pid: int, checker: int, most: int) -> tuple[str, int]:
    """Waits until the submission has ended, or has to be: the reason for that, and its status."""
    while True:
        ready = select.select([0, wake], [], [], TICK)[0]
        if 0 in ready or os.getppid() != checker:
            return GONE, 1
        if wake in ready and signal.SIGTERM in os.read(wake, 1000):
            return "told to end", 1
        if (status := reap().get(pid)) is not None:
            return "", status
        if most and (n := len(descendants(os.getpid()))) > most:
            return f"it started {n:,} processes, and {most:,} are allowed", 1


# ── beginnings ─────────────────────────────────────────────────────────────────────────────────
def fork(run: Callable[[], None]) -> int:
    """A process that runs this and nothing else."""
    if pid := os.fork():
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        run()
        status = 0
    except BaseException as e:
        with contextlib.suppress(BaseException):
            sys.stderr.write(f"{type(e).__name__}: {str(e)[:200]}\n")
            sys.stderr.flush()
    finally:
        os._exit(status)


def first(submission: Callable[[], None], mine: socket.socket, its: socket.socket) -> None:
    """The first process of a namespace: starts the submission, and waits for orphans too."""
    control(DEATH_SIGNAL, signal.SIGKILL)
    mine.close()
    its.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        its.recv(1)
        return  # the guard died before it was to be noticed
    own_proc()
    pid = fork(submission)
    silence()
    while True:
        ended, status = os.wait()
        if ended == pid:
            its.send(str(os.waitstatus_to_exitcode(status)).encode())
            return


def alone(submission: Callable[[], None], guard: int) -> None:
    """The submission without a namespace; it dies with the guard."""
    control(DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() == guard:
        submission()


def silence() -> None:
    """Lets go of stdout: the submission's lines end with the submission."""
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)


def apart() -> int:
    """Moves into new namespaces, as many as the system allows: the flags of those we got."""
    user, group = os.getuid(), os.getgid()
    all_ = NEW_PROCESSES | NEW_NETWORK
    for flags in (NEW_USER | all_, all_, NEW_USER | NEW_NETWORK, NEW_NETWORK):
        if not call("unshare", flags):
            continue
        if flags & NEW_USER:
            users, groups = f"{user} {user} 1", f"{group} {group} 1"
            told = (("uid_map", users), ("setgroups", "deny"), ("gid_map", groups))
            for file, text in told:
                with contextlib.suppress(OSError), open(f"/proc/self/{file}", "w") as f:
                    f.write(text)
        return flags
    return 0


def own_proc() -> None:
    """A /proc that shows this namespace alone, where the system allows it."""
    if call("unshare", NEW_MOUNTS) and call("mount", b"none", b"/", None, PRIVATE, None):
        call("mount", b"proc", b"/proc", b"proc", HARMLESS, None)


def control(option: int, value: int) -> bool:
    """prctl, where there is one."""
    return sys.platform == "linux" and call("prctl", option, value, 0, 0, 0)


def call(name: str, *arguments: Any) -> bool:
    """Whether a function of the C library is there and succeeds."""
    try:
        given = [ctypes.c_ulong(a) if isinstance(a, int) else ctypes.c_char_p(a) for a in arguments]
        return bool(getattr(ctypes.CDLL(None), name)(*given) == 0)
    except (OSError, AttributeError):
        return False


# ── ends ───────────────────────────────────────────────────────────────────────────────────────
def end(pid: int, way: str) -> None:
    """Ends the submission and all that it started. `pid`: of a child not waited for."""
    if way == "namespace" and pid:
        kill(pid)
        os.waitpid(pid, 0)  # comes back when the namespace is empty
    elif way == "group":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    until = time.monotonic() + PATIENCE
    while way == "descendants" and time.monotonic() < until and (left := descendants(os.getpid())):
        for each in left:
            kill(each)
        reap()


def reap() -> dict[int, int]:
    """Children that have ended, with their statuses."""
    found = {}
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    return found


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def processes() -> dict[int, tuple[int, int, int]]:
    """(parent, user, threads) of all living processes; nothing where there is no /proc."""
    found = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        with contextlib.suppress(OSError, ValueError, IndexError):
            user = os.stat(f"/proc/{int(name)}").st_uid
            with open(f"/proc/{name}/stat", "rb") as f:
                fields = f.read().rpartition(b")")[2].split()
            if fields[0] not in (b"Z", b"X"):
                found[int(name)] = int(fields[1]), user, int(fields[17])
    return found


def threads(known: dict[int, tuple[int, int, int]]) -> int:
    """Of our user: the system's limit counts them all."""
    return sum(n for _, user, n in known.values() if user == os.getuid())


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for each, (parent, _, _) in processes().items():
        children.setdefault(parent, []).append(each)
    found, todo = [], [pid]
    while todo:
        todo += (below := children.get(todo.pop(), []))
        found += below
    return found


if __name__ == "__main__":
    ended = main(sys.argv[1], json.loads(sys.argv[2]))
    if ended < 0:  # as it ended
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-ended, signal.SIG_DFL)
        with contextlib.suppress(ImportError, OSError, ValueError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), -ended)
    os._exit(ended % 256)
