"""Run a submission in a sandbox and end it: the process that the checker starts.

    checker ── guard ── first process of the sandbox ── submission ── its child processes

The guard ends everything to its right when the submission ends, when it gets SIGTERM, when the
submission exceeds a limit on its processes together, and when the checker is gone: the checker
holds the other end of the guard's stdin.

The sandbox (Linux 5.14 or later) consists of

- user, process, network, IPC, host name and mount namespaces. The kernel ends every process in them
  when the first one ends, and that one ends with the guard. The submission cannot see the guard.
- a separate root file system: Python and the system's libraries, read-only, and /scratch, a
  tmpfs of limited size. Nothing else of the machine has a path there, so no socket has one either.
- a user without capabilities: the user nobody if the checker is root, else the checker's user.
- a seccomp filter that blocks system calls for shared memory, new namespaces, and socket families
  that network namespaces do not isolate.

If any of it fails, the submission is not started, and the guard prints why. Without a sandbox
(settings["sandbox"] is false) the guard limits each process and ends the descendants that it finds.

With or without a sandbox, a control group (cgroup.py), if the guard can create one, limits the
total memory and processes of the submission. Otherwise the guard samples both, and ends a
submission that exceeds a limit.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from .cgroup import ControlGroup
from .child import set_limits

NEW_MOUNTS, NEW_CGROUPS = 0x20000, 0x2000000  # unshare flags
# UTS IPC USER PID NET
NAMESPACE_FLAGS = 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000
# for prctl
DEATH_SIGNAL, SECCOMP, DROP_CAPABILITY, SUBREAPER, NO_NEW_PRIVILEGES = 1, 22, 24, 36, 38
# for mount
NOSUID, NODEV, NOEXEC, BIND, RECURSIVE, PRIVATE = 0x2, 0x4, 0x8, 0x1000, 0x4000, 0x40000
MOUNT_SETATTR = 442  # number of a system call, equal on all machines
NOBODY = 65534
POLL_SECONDS = 0.2  # interval between samples of processes and memory
EXIT_TIMEOUT_S = 5.0  # maximum time to wait for processes to end
CHECKER_GONE = "the checker is gone"
# Names of each process's limits, and their names in the system.
LIMIT_NAMES = {"cpu": "CPU", "memory": "AS", "disk": "FSIZE", "files": "NOFILE"}
# Besides Python's own folders, the parts of the system that the submission can read.
SYSTEM_FOLDERS = (
    "/usr", "/bin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store", "/etc/ld.so.cache",
    "/etc/alternatives", "/dev/null", "/dev/random", "/dev/urandom",
)  # fmt: skip
# The architecture's number in seccomp, then system calls: pivot_root, socket, clone, and the calls
# to block: memfd_create, shmget, msgget, semget, unshare, setns, add_key, request_key,
# keyctl, userfaultfd, bpf, perf_event_open, ptrace, mount; and, equal on all machines,
# io_uring_setup and memfd_secret.
FILTERED_CALLS = {
    "x86_64": (0xC000003E, 155, 41, 56,
               (319, 29, 68, 64, 272, 308, 248, 249, 250, 323, 321, 298, 101, 165, 425, 447)),
    "aarch64": (0xC00000B7, 41, 198, 220,
                (279, 194, 186, 190, 97, 268, 217, 218, 219, 282, 280, 241, 117, 40, 425, 447)),
}  # fmt: skip
CLONE3 = 435
MMAP = {"x86_64": 9, "aarch64": 222}
SHARED_ANONYMOUS = 0x21  # mmap flags of memory that survives unmapping


def main(settings: dict[str, Any]) -> int:
    """Run the submission and return its exit status, or minus the signal that ended it."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)  # The signal number is read from the pipe.
    os.umask(0o022)
    guard, sandbox, limits = os.getpid(), settings["sandbox"], settings["limits"]
    mine, its = socket.socketpair()
    group = None
    if limits["cgroup"]:
        with contextlib.suppress(OSError):
            group = ControlGroup(limits["memory"], limits["processes"])
    if sandbox:
        try:
            enter_namespaces()
        except OSError as e:
            if group:
                group.remove()
            return refuse(e)
        pid = fork(lambda: sandbox_init(settings, group, mine, its))
    else:
        with contextlib.suppress(OSError):
            control(SUBREAPER, 1)
        pid = fork(lambda: without_sandbox(settings, group, guard))
    its.close()
    release_pipes((1,))
    why, status = watch(wake, pid, settings, group)
    running = pid if why else 0
    if group:
        if group.out_of_memory() and why != CHECKER_GONE:
            limit = f"{limits['memory'] / 2**20:,.0f} MiB"
            why = f"its processes together held more than {limit} of memory"
        group.remove()
    end_submission(running, sandbox)
    if why == CHECKER_GONE:
        with contextlib.suppress(RecursionError):
            shutil.rmtree(settings["folder"], ignore_errors=True)
    if why:
        os.write(2, f"\n{why}\n".encode())
        return 1
    return int(mine.recv(20) or 1) if sandbox else status


def watch(
    wake: int, pid: int, settings: dict[str, Any], group: ControlGroup | None
) -> tuple[str, int]:
    """Wait until the submission ends or exceeds a limit; return the reason and its status."""
    checker = select.poll()
    checker.register(0, 0)  # Reports only that the other end is closed.
    limits, own = settings["limits"], int(settings["sandbox"])
    while True:
        ready = select.select([wake], [], [], POLL_SECONDS)[0]
        if checker.poll(0) or os.getppid() != settings["checker"]:
            return CHECKER_GONE, 1
        if ready and signal.SIGTERM in os.read(wake, 1000):
            return "SIGTERM", 1
        if (status := reap_children().get(pid)) is not None:
            return "", status
        if group:
            if group.out_of_memory():
                return "out of memory", 1
            continue
        now = processes()
        started = [now[p] for p in descendants(now)]
        if (n := sum(p[2] for p in started) - own) > limits["processes"]:
            return f"it had {n:,} processes and threads, limit {limits['processes']:,}", 1
        if (used := sum(p[3] for p in started)) > limits["memory"]:
            sizes = f"{used / 2**20:,.0f} MiB, limit {limits['memory'] / 2**20:,.0f} MiB"
            return f"its processes together held {sizes}, of memory", 1


# ── starting ───────────────────────────────────────────────────────────────────────────────────
def fork(run: Callable[[], None]) -> int:
    """Start a process that calls `run` and exits, and return its id; print why if `run` fails."""
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
        refuse(e)
    finally:
        os._exit(status)


def refuse(error: BaseException) -> int:
    os.write(1, json.dumps({"event": "refused", "why": str(error)}).encode() + b"\n")
    return 1


def without_sandbox(settings: dict[str, Any], group: ControlGroup | None, guard: int) -> None:
    with contextlib.suppress(OSError):
        control(DEATH_SIGNAL, signal.SIGKILL)
        control(NO_NEW_PRIVILEGES, 1)
    if os.getppid() == guard:
        os.setsid()  # Signals to its group must not reach the guard.
        folder, limits = settings["folder"], settings["limits"]
        outside = sum(p[2] for p in processes().values() if p[1] == os.getuid())
        set_limits(resource_limits(limits, outside))
        if group:
            group.enter()
        submission = os.path.join(folder, settings["name"])
        run_child(settings["child"], submission, f"{folder}/tmp", group)


def run_child(script: str, submission: str, folder: str, group: ControlGroup | None) -> None:
    """Replace this process by the submission."""
    names = {"HOME": folder, "TMPDIR": folder, "PATH": os.defpath, "OMP_NUM_THREADS": "1"}
    os.chdir(folder)
    python = [sys.executable, "-I", "-B", "-X", "utf8"]
    os.execve(sys.executable, [*python, script, submission, str(bool(group))], names)


def sandbox_init(
    settings: dict[str, Any],
    group: ControlGroup | None,
    own_pipe: socket.socket,
    other_pipe: socket.socket,
) -> None:
    """Run the first process of the sandbox: start the submission and reap all processes."""
    control(DEATH_SIGNAL, signal.SIGKILL)
    own_pipe.close()
    other_pipe.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        other_pipe.recv(1)
        return  # The guard died before DEATH_SIGNAL was set.
    with open("/proc/self/oom_score_adj", "w") as f:
        f.write("1000")  # Out of memory, the kernel ends this process first.
    clear_arguments()
    new_root(settings)
    pid = fork(lambda: submission(settings, group))
    release_pipes((0, 1))
    if group:
        group.close()
    while True:
        ended, status = os.wait()
        if ended == pid:
            other_pipe.send(str(os.waitstatus_to_exitcode(status)).encode())
            return


def clear_arguments() -> None:
    """Overwrite the command line of this process, which the submission can read in /proc."""
    with open("/proc/self/stat", "rb") as f:
        start, stop = f.read().rpartition(b")")[2].split()[45:47]
    ctypes.memset(int(start), 0, int(stop) - int(start))


def read_settings() -> dict[str, Any]:
    """Read the settings from the first line of stdin, all that is sent before the submission."""
    line = b""
    while not line.endswith(b"\n"):
        if not (new := os.read(0, 2**16)):
            raise OSError(CHECKER_GONE)
        line += new
    return dict(json.loads(line))


def release_pipes(which: tuple[int, ...]) -> None:
    for descriptor in which:
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)


def enter_namespaces() -> None:
    """Move this process into new namespaces and map the users of the sandbox."""
    if os.uname().machine not in FILTERED_CALLS:
        raise OSError(f"expected one of {', '.join(FILTERED_CALLS)}, got {os.uname().machine}")
    guard, root = os.getpid(), os.getuid() == 0
    unshared, tell = os.pipe()

    def write_maps() -> None:  # Only a process outside may map another user.
        os.close(tell)
        if os.read(unshared, 1):
            maps = {"setgroups": "allow" if root else "deny"}
            for name, own in (("uid_map", os.getuid()), ("gid_map", os.getgid())):
                maps[name] = f"{own} {own} 1\n" + f"{NOBODY} {NOBODY} 1\n" * root
            for name, text in maps.items():
                with open(f"/proc/{guard}/{name}", "w") as f:
                    f.write(text)

    helper = fork(write_maps)
    try:
        libc_call("unshare", NAMESPACE_FLAGS)
        os.write(tell, b"x")
    finally:
        os.close(tell)
        status = os.waitpid(helper, 0)[1]
    if status:
        raise OSError("the map of users could not be written")


def new_root(settings: dict[str, Any]) -> None:
    """Replace the root file system by one with Python, the submission and an empty folder."""
    pivot_root = FILTERED_CALLS[os.uname().machine][1]
    root, user = f"{settings['folder']}/tmp", NOBODY if os.getuid() == 0 else os.getuid()
    libc_call("unshare", NEW_MOUNTS)
    libc_call("mount", None, b"/", None, RECURSIVE | PRIVATE, None)
    texts = {}
    for name, path in (
        ("runner/child.py", settings["child"]),
        (f"submission/{settings['name']}", os.path.join(settings["folder"], settings["name"])),
    ):
        with open(path, "rb") as f:
            texts[name] = f.read()
    libc_call("mount", b"tmpfs", root.encode(), b"tmpfs", NOSUID | NODEV, b"mode=755")
    for path in readable_paths(settings["home"]):
        target = root + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.mkdir(target) if os.path.isdir(path) else open(target, "x").close()
        libc_call("mount", os.fsencode(path), os.fsencode(target), None, BIND | RECURSIVE, None)
    os.chdir(root)
    for folder in ("scratch", "proc", "runner", "submission"):
        os.mkdir(folder)
    os.symlink("/scratch", "dev/shm")
    for name, text in texts.items():
        with open(name, "wb") as f:
            f.write(text)
    with contextlib.suppress(OSError):  # Some containers forbid mounting /proc.
        libc_call("mount", b"proc", b"proc", b"proc", NOSUID | NODEV | NOEXEC, None)
    libc_call("syscall", pivot_root, b".", b".")
    libc_call("umount2", b".", 2)  # Unmount the old root on top of the new one.
    os.chdir("/")
    read_only = struct.pack("4Q", 1 | NOSUID, 0, 0, 0)
    libc_call("syscall", MOUNT_SETATTR, -100, b"/", 0x8000, read_only, len(read_only))
    size = f"mode=700,nr_inodes=16384,size={settings['limits']['disk']},uid={user}"
    libc_call("mount", b"tmpfs", b"/scratch", b"tmpfs", NOSUID | NODEV, size.encode())


def readable_paths(home: str) -> list[str]:
    """Return the paths of the machine that the submission can read, without nested ones."""
    packages = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    python = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *packages]
    home, readable = os.path.realpath(home), list[str]()
    python += [os.path.realpath(path) for path in python]
    for path in sorted({*SYSTEM_FOLDERS, *python}, key=len):
        if path in python and f"{home}/".startswith(path.rstrip("/") + "/"):
            raise OSError(f"Python is installed in {path}, which contains your home folder")
        if os.path.exists(path) and not any(f"{path}/".startswith(f"{p}/") for p in readable):
            readable.append(path)
    return readable


def submission(settings: dict[str, Any], group: ControlGroup | None) -> None:
    """Drop all privileges, then replace this process by the submission."""
    os.setsid()
    if group:
        group.enter()
        libc_call("unshare", NEW_CGROUPS)  # Hide the host's paths in /proc/self/cgroup.
    for capability in range(64):
        try:
            control(DROP_CAPABILITY, capability)
        except OSError:
            if capability < 32:
                raise
            break  # All capabilities are dropped.
    extra = 2  # The guard and the first process have this user, too.
    if os.getuid() == 0:
        extra = 0
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    libc_call("capset", struct.pack("Ii", 0x20080522, 0), bytes(24))
    control(NO_NEW_PRIVILEGES, 1)
    set_limits(resource_limits(settings["limits"], extra), required=True)
    filter_calls()
    run_child("/runner/child.py", f"/submission/{settings['name']}", "/scratch", group)


def resource_limits(limits: dict[str, int], extra: int) -> dict[str, int]:
    """Return the limits of each process of a user with `extra` other processes and threads."""
    amounts = {kind: limits[name] for name, kind in LIMIT_NAMES.items()}
    return amounts | {"NPROC": limits["processes"] + extra}


def filter_calls() -> None:
    """Install the seccomp filter of instructions (operation, jump if true, if false, operand)."""
    machine, _, open_socket, clone, refused = FILTERED_CALLS[os.uname().machine]
    load, equal, at_least, any_bit, bit_and, give = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
    allow, error = 0x7FFF0000, 0x50000
    code = [(load, 0, 0, 4), (equal, 1, 0, machine), (give, 0, 0, 0x80000000), (load, 0, 0, 0)]
    code += [(at_least, 0, 1, 0x40000000), (give, 0, 0, error | 1)]  # x32 calls
    for number in refused:
        code += [(equal, 0, 1, number), (give, 0, 0, error | 1)]
    code += [(equal, 0, 5, MMAP[os.uname().machine]), (load, 0, 0, 40)]
    code += [(bit_and, 0, 0, SHARED_ANONYMOUS), (equal, 0, 1, SHARED_ANONYMOUS)]
    code += [(give, 0, 0, error | 1), (load, 0, 0, 0)]
    # A filter cannot see the flags of clone3. Without it, the C library uses clone.
    code += [(equal, 0, 1, CLONE3), (give, 0, 0, error | 38)]
    new = NEW_MOUNTS | NAMESPACE_FLAGS | NEW_CGROUPS
    code += [(equal, 0, 4, clone), (load, 0, 0, 16), (any_bit, 0, 1, new), (give, 0, 0, error | 1)]
    code += [(give, 0, 0, allow), (equal, 1, 0, open_socket), (give, 0, 0, allow)]
    code += [(load, 0, 0, 16)]  # allow only sockets that a network namespace isolates
    for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
        code += [(equal, 0, 1, family), (give, 0, 0, allow)]
    code += [(give, 0, 0, error | 97)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    libc_call("prctl", SECCOMP, 2, struct.pack("HP", len(code), ctypes.addressof(program)), 0, 0)


def control(option: int, value: int) -> None:
    libc_call("prctl", option, value, 0, 0, 0)


def libc_call(name: str, *arguments: int | bytes | None) -> None:
    """Call a function of the C library; raise OSError if it fails."""
    if sys.platform != "linux":
        raise OSError(f"{name}: not on {sys.platform}")
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*converted) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


# ── ending ─────────────────────────────────────────────────────────────────────────────────────
def end_submission(pid: int, sandbox: bool) -> None:
    """End the submission, whose first process is `pid` (0: ended), and all that it started."""
    if pid and sandbox:
        kill(pid)
        os.waitpid(pid, 0)  # Returns when the namespace is empty.
    elif pid:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    until = time.monotonic() + EXIT_TIMEOUT_S
    while not sandbox and time.monotonic() < until and (left := descendants(processes())):
        for each in left:
            kill(each)
        reap_children()


def reap_children() -> dict[int, int]:
    """Return the statuses of the child processes that have ended, by process id."""
    statuses = {}
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    return statuses


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def processes() -> dict[int, tuple[int, int, int, int]]:
    """Return (parent, user, threads, bytes in memory) of living processes by id, from /proc."""
    living = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        with contextlib.suppress(OSError, ValueError, IndexError):
            user = os.stat(f"/proc/{int(name)}").st_uid
            with open(f"/proc/{name}/stat", "rb") as f:
                fields = f.read().rpartition(b")")[2].split()
            if fields[0] not in (b"Z", b"X"):
                size = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
                living[int(name)] = int(fields[1]), user, int(fields[17]), size
    return living


def descendants(known: dict[int, tuple[int, int, int, int]]) -> list[int]:
    """Return the ids of all descendants of this process."""
    children: dict[int, list[int]] = {}
    for each, about in known.items():
        children.setdefault(about[0], []).append(each)
    below, todo = [], [os.getpid()]
    while todo:
        todo += (started := children.get(todo.pop(), []))
        below += started
    return below


def run() -> None:
    """Run the submission given by stdin and exit with its status or signal."""
    ended = main(read_settings())
    if ended < 0:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-ended, signal.SIG_DFL)
        set_limits({})  # Disable core dumps.
        os.kill(os.getpid(), -ended)
    os._exit(ended % 256)
