"""Control groups: kernel limits on the total memory and processes of a submission.

The group is created below the guard's group, whose limits also apply. Version 1 has a folder for
each controller. Version 2 has one folder, below the nearest ancestor whose children have both
controllers, because a group that contains processes has no such children.
"""

import contextlib
import os
import secrets
import signal
import time

PREFIX = "glassformer-"
CONTROLLERS = {"memory", "pids"}
V1_LIMIT = "memory.limit_in_bytes"
REMOVE_TIMEOUT_S = 5.0  # seconds to wait for the processes of a group to end


class ControlGroup:
    """A new control group. Raises OSError if this process may not create one."""

    def __init__(self, memory: int, processes: int) -> None:
        name = f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        self.folders: list[str] = []
        try:
            for choices in parent_folders():
                self.folders.append(make_folder(choices, name))
            # Version 1 limits memory plus swap, version 2 limits swap separately.
            limited = [self._set("pids.max", processes)]
            limited += [self._set("memory.max", memory) or self._set(V1_LIMIT, memory)]
            if not all(limited):
                raise OSError("the new control group has no limits")
            self._set("memory.memsw.limit_in_bytes", memory)
            self._set("memory.swap.max", 0)
            self._set("memory.oom.group", 1)
            # Open these files now, because they have no path inside the sandbox.
            self.files = [os.open(f"{f}/cgroup.procs", os.O_WRONLY) for f in self.folders]
        except OSError:
            self.remove()
            raise

    def enter(self) -> None:
        """Move this process into the group."""
        for file in self.files:
            os.write(file, b"0")
        self.close()

    def close(self) -> None:
        for file in self.files:
            os.close(file)

    def out_of_memory(self) -> bool:
        """Return whether the kernel killed a process of the group for lack of memory."""
        for file in ("memory.events", "memory.oom_control"):
            for path in self._paths(file):
                with open(path) as f:
                    counts = dict(line.split() for line in f)
                return counts.get("oom_kill", "0") != "0"
        return False

    def remove(self) -> None:
        """End all processes of the group, then remove it."""
        until = time.monotonic() + REMOVE_TIMEOUT_S
        while self.folders and time.monotonic() < until:
            with contextlib.suppress(OSError):
                self._kill()
            for folder in self.folders[:]:
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
                    self.folders.remove(folder)
            time.sleep(0.01 if self.folders else 0)

    def _kill(self) -> None:
        self._set("pids.max", 0)  # No new process may start meanwhile.
        self._set("cgroup.kill", 1)
        for path in self._paths("cgroup.procs"):
            with open(path) as f:
                for pid in map(int, f):
                    if pid:  # 0 is a process of another namespace.
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)

    def _paths(self, file: str) -> list[str]:
        return [path for f in self.folders if os.path.exists(path := f"{f}/{file}")]

    def _set(self, file: str, value: int) -> bool:
        """Set a limit and return True, or return False if the group does not have the file."""
        paths = self._paths(file)
        for path in paths:
            with open(path, "w") as f:
                f.write(str(value))
        return bool(paths)


def make_folder(choices: list[str], name: str) -> str:
    """Create a group in the first of the folders that allows it, and return its path."""
    for parent in choices:
        with contextlib.suppress(OSError):
            os.mkdir(f"{parent}/{name}")
            remove_abandoned(parent)
            return f"{parent}/{name}"
    raise OSError("no control group can be made")


def remove_abandoned(parent: str) -> None:
    """Remove the empty groups of guards that were killed."""
    for name in os.listdir(parent):
        if name.startswith(PREFIX) and not os.path.exists(f"/proc/{name.split('-')[1]}"):
            with contextlib.suppress(OSError):
                os.rmdir(f"{parent}/{name}")


def parent_folders() -> list[list[str]]:
    """Return the candidate parent folders of each group to create, best first."""
    with open("/proc/self/cgroup") as f:
        own = {line.split(":")[1]: line.rstrip("\n").split(":", 2)[2] for line in f}
    groups = []
    missing = set(CONTROLLERS)
    with open("/proc/self/mountinfo") as f:
        mounts = [line.split() for line in f]
    for fields in mounts:
        kind, _, options = fields[fields.index("-") + 1 :]
        controllers = CONTROLLERS & {*options.split(",")} if kind == "cgroup" else set()
        path = next((p for names, p in own.items() if controllers & {*names.split(",")}), "")
        if controllers & missing and (folder := group_folder(fields[4], fields[3], path)):
            groups.append([folder])
            missing -= controllers
    if not missing:
        return groups
    for fields in mounts:
        if fields[fields.index("-") + 1] == "cgroup2":
            mount = fields[4]
            folder = group_folder(mount, fields[3], own.get("", ""))
            choices = []
            while folder.startswith(mount):
                with open(f"{folder}/cgroup.subtree_control") as f:
                    if {*f.read().split()} >= CONTROLLERS:
                        choices.append(folder)
                folder = os.path.dirname(folder)
            return [choices]
    raise OSError("no control groups are mounted")


def group_folder(mount: str, root: str, path: str) -> str:
    """Return the folder of the group `path` in a mount of the group `root`; "" if there is none."""
    inside = path == root or path.startswith(root.rstrip("/") + "/")
    return mount + path[len(root.rstrip("/")) :].rstrip("/") if path and inside else ""
