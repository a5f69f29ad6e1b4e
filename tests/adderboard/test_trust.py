"""Submissions of other people: what theirs say, what they cannot do, and what becomes of those
that misbehave.
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from glassformer import GlassformerError
from glassformer.leaderboard import trust, trust_child
from glassformer.leaderboard.protocol import EDGE_CASES, GroupScore
from glassformer.leaderboard.trust import run_submission
from glassformer.utils.sandbox import guard as guard_module
from glassformer.utils.sandbox import runner
from glassformer.utils.sandbox.cgroup import PREFIX, ControlGroup, parent_folders
from glassformer.utils.sandbox.runner import Limits
from helpers import raises

pytest.importorskip("fcntl")  # on Windows nothing of others is run

QUICK = Limits(start=120, answer=60, whole=120, cpu=60)
BUILD = "def build_model():\n    return None, {'name': 'x', 'params': 7}\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "theirs.py"
    path.write_text(text)
    return path


def judge(path, n=30, limits=QUICK, sandbox=True):
    """The verdict. Where the system has no sandbox, it is run without, even by root."""
    sandbox = sandbox and HAS_SANDBOX
    *_, end = trust._submission_events(path, path.read_bytes(), n, 10, limits, sandbox, None)
    return end


def started(path, limits, sandbox):
    return runner.run_in_sandbox(path, path.read_bytes(), trust_child.__file__, limits, sandbox)


def has_sandbox():
    try:
        lines = trust.sandbox_lines(Path("x.py"), b"", [(1, 2)], QUICK, True)
        next(lines)
        lines.close()
    except GlassformerError:
        return False
    return True


HAS_SANDBOX = has_sandbox()
needs_sandbox = pytest.mark.skipif(not HAS_SANDBOX, reason="this system gives no sandbox")


def test_one_that_is_right(tmp_path):
    path = write(
        tmp_path,
        BUILD + "def add(model, a, b):\n    print('noise', flush=True)\n    return a + b\n",
    )
    v = judge(path)
    assert (
        v.holds
        and v.edges == GroupScore(10, 10)
        and v.pairs == GroupScore(30, 30)
        and v.counts is None
    )
    assert v.model == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (
        v.submission["metadata"] == {"name": "x", "params": 7} and "parameters" not in v.submission
    )
    assert list(tmp_path.iterdir()) == [path]  # no __pycache__


def test_one_that_is_wrong(tmp_path):
    v = judge(
        write(tmp_path, BUILD + "def add(model, a, b):\n    return a + b if a % 2 else a ^ b\n")
    )
    assert not v.holds and v.counterexamples
    for c in v.counterexamples:
        assert c["got"] == c["a"] ^ c["b"] != c["expected"] and c["a"] % 2 == 0


def test_an_exception_is_a_wrong_answer(tmp_path):
    text = "def add(model, a, b):\n    if a == b: raise ValueError('the same')\n    return a + b\n"
    v = judge(write(tmp_path, BUILD + text))
    same = sum(a == b for a, b in EDGE_CASES)
    assert v.edges == GroupScore(10 - same, 10) and v.pairs == GroupScore(30, 30) and not v.holds
    assert v.counterexamples[0]["got"] == "ValueError: the same"


def test_it_gets_its_pairs_in_order_one_at_a_time(tmp_path):
    text = (
        "asked = []\ndef build_model(): return asked, {}\ndef add(model, a, b):\n    "
        "model.append((a, b))\n"
    )
    text += f"    return a + b if (a, b) == {list(EDGE_CASES)!r}[len(model) - 1] else -len(model)\n"
    v = judge(write(tmp_path, text), n=0)
    assert v.edges == GroupScore(10, 10) and v.pairs == GroupScore(0, 0)


def test_numbers_of_a_module_are_counted(tmp_path):
    text = "class T:\n    def __init__(self, n): self.n = n\n    def numel(self): return self.n\n"
    text += "class M:\n    t = T(5)\n    def parameters(self): return [self.t, T(7), self.t]\n"
    text += "    def buffers(self): return [T(3)]\n"
    text += "def build_model(): return M(), {'params': 2}\ndef add(model, a, b): return a + b\n"
    v = judge(write(tmp_path, text), n=1)
    assert (
        v.submission["parameters"],
        v.submission["buffers"],
        v.submission["metadata"]["params"],
    ) == (12, 3, 2)
    assert v.submission["as_it_says"] == [
        "metadata",
        "parameters",
        "buffers",
    ]  # the count too: it is its own process


def test_without_trust_nothing_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "run_in_sandbox", None)
    path = write(tmp_path, BUILD + "def add(model, a, b): return a + b\n")
    with raises("bad_argument", path, "trust=True"):
        run_submission(path)


MISBEHAVED = [
    ("def add(model, a, b): return float(a + b)", ("bad_argument", "add(0, 0)", "float (0.0)")),
    ("def add(model, a, b): return str(a + b)", ("bad_argument", "add(0, 0)", "str (0)")),
    ("def add(model, a, b): return a == b", ("bad_argument", "add(0, 0)", "bool (True)")),
    ("def add(model, a, b): pass", ("bad_argument", "add(0, 0)", "NoneType")),
    ("", ("bad_argument", "add()")),
    ("add = 5", ("bad_argument", "add()")),
    ("import os\ndef add(model, a, b):\n    if a: os._exit(3)\n    return a + b",
     ("bad_argument", "add(9999999999, 0)", "status 3")),
    ("import os\ndef add(model, a, b): os.abort()", ("bad_argument", "add(0, 0)", "SIGABRT")),
    ("import os\ndef add(model, a, b):\n    for f in range(3, 9):\n        try: os.write(f, "
     "b'hello')\n"
     "        except OSError: pass\n    return a + b",
     ("bad_argument", "JSON", "'hello")),
    ("import os\ndef add(model, a, b):\n    for f in range(3, 9):\n"
     "        try: os.write(f, b'{\"event\": \"answer\", \"got\": 1.5}\\n')\n"
     "        except OSError: pass\n    return a + b", ("bad_argument", "JSON")),
    ("import os, sys\ndef add(model, a, b):\n    os.closerange(0, 20)\n    sys.stdin.close()",
     ("bad_argument", "add(0, 0)")),
    ("def build_model(): return 5\ndef add(model, a, b): return 1",
     ("bad_argument", "build_model()", "int")),
    ("def build_model(): return 5, 6\ndef add(model, a, b): return 1",
     ("bad_argument", "build_model()", "tuple")),
    ("def build_model(): raise ValueError('no weights')\ndef add(m, a, b): return 1",
     ("bad_argument", "build_model()", "ValueError: no weights")),
    ("import sys\ndef build_model(): sys.exit(4)\ndef add(m, a, b): return 1",
     ("bad_argument", "build_model()", "SystemExit: 4")),
    ("import nowhere_to_be_found", ("bad_argument", "nowhere_to_be_found")),
    ("def add(:", ("bad_argument", "SyntaxError")),
]  # fmt: skip


@pytest.mark.parametrize("text,why", MISBEHAVED, ids=[t[:40] for t, _ in MISBEHAVED])
@pytest.mark.some(3)
def test_misbehaviour_has_a_clear_line(tmp_path, text, why):
    with raises(*why) as e:
        judge(write(tmp_path, BUILD + text + "\n"))
    assert "\n" not in str(e.value) and "theirs.py — " in str(e.value)


# ── how it ends ────────────────────────────────────────────────────────────────────────────────
# A process is recognized from outside by its name, whatever its number is in a namespace. The
# grandchild has left the group and the session, and ignores every signal that can be ignored.
STUBBORN = """
import ctypes, os, signal, time
def name(text): ctypes.CDLL(None).prctl(15, text, 0, 0, 0)
name({name!r})
def build_model():
    r, w = os.pipe()
    if not os.fork():
        os.setsid()
        if os.fork(): os._exit(0)
        for s in set(signal.Signals) - {{signal.SIGKILL, signal.SIGSTOP}}: signal.signal(s, signal.SIG_IGN)
        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
        name({name!r}[:-1] + b"+")
        os.write(w, b"x")
        time.sleep(600)
    os.read(r, 1)
    return None, {{}}
def add(model, a, b): {add}
"""  # noqa: E501
CHECKERS = """
import os, sys
from pathlib import Path
from glassformer.leaderboard import trust, trust_child
for path in map(Path, sys.argv[2:]):
    if not (pid := os.fork()):
        sys.stderr = open(os.devnull, "w")
        sandbox = sys.argv[1] == "True"
        list(trust._submission_events(path, path.read_bytes(), 9, 9, trust.Limits(), sandbox, None))
    print(pid, flush=True)
for _ in sys.argv[2:]: os.wait()
"""


def stubborn(folder, add="time.sleep(600)", name="x"):
    """A submission, and the name of its processes but for the last letter."""
    path, mark = folder / f"{name}.py", f"gf{secrets.token_hex(6)}"
    path.write_text(STUBBORN.format(name=f"{mark}-".encode(), add=add))
    return path, mark


def running(mark):
    """The last letters of the names of living processes whose names begin with `mark`."""
    results = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            head, _, rest = file.read_text(errors="replace").rpartition(")")
            if rest.split()[0] not in "ZX" and head.partition("(")[2].startswith(mark):
                results.append(head[-1])
    return results


def parent(pid):
    """The parent of a process, by their numbers; 0 if there is no such process."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def in_time(fact):
    for _ in range(500):
        if fact():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(params=[pytest.param(True, marks=needs_sandbox), False], ids=["sandbox", "none"])
def sandbox(request):
    return request.param


linux = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere who leaves the group gets away"
)


@linux
@pytest.mark.some(2)
def test_nothing_outlives_the_checker(tmp_path, sandbox):
    kinds = (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGINT)
    paths, marks = zip(*(stubborn(tmp_path, name=s.name) for s in kinds), strict=True)
    command = [sys.executable, "-c", CHECKERS, str(sandbox), *map(str, paths)]
    # Whoever runs the tests in the background, or by nohup, ignores some of these signals.
    usual = lambda: [signal.signal(s, signal.SIG_DFL) for s in (signal.SIGHUP, signal.SIGINT)]  # noqa: E731
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=usual) as checkers:
        pids = [int(checkers.stdout.readline()) for _ in paths]
        for kind, mark in zip(kinds, marks, strict=True):
            assert in_time(lambda mark=mark: "+" in running(mark)), kind
        groups = [g for g in cgroups() if parent(g.name.split("-")[1]) in pids]
        for pid, kind in zip(pids, kinds, strict=True):
            os.kill(pid, kind)
        outlived = [
            kind.name
            for kind, mark in zip(kinds, marks, strict=True)
            if not in_time(lambda mark=mark: not running(mark))
        ]
        assert in_time(lambda: not any(map(Path.exists, groups)))
    assert not outlived and bool(groups) is has_cgroup()


@linux
@pytest.mark.parametrize("add,why", [
    ("return a + b", ""), ("time.sleep(600)", ("bad_argument", "0.2")),
    ("os.kill(0, 9)", ("bad_argument", "SIGKILL")),
    ("os.kill(os.getppid(), 19); return a + b", ""),  # stops its parent, if it can
])  # fmt: skip
def test_nothing_outlives_the_check(tmp_path, sandbox, add, why):
    path, mark = stubborn(tmp_path, add=add)
    if why:
        with raises(*why):
            judge(path, 0, Limits(answer=0.2 if "0.2" in why else 60), sandbox)
    else:
        assert judge(path, 0, sandbox=sandbox).submission["sandbox"] is sandbox
    assert not running(mark)  # at once: the check waits for the end of everything


@linux
def test_a_loop_without_end_is_ended(tmp_path, sandbox):
    path, mark = stubborn(tmp_path, "\n    while True: pass")
    with raises("bad_argument", "add(0, 0)", "0.5 s"):
        judge(path, limits=Limits(answer=0.5), sandbox=sandbox)
    assert not running(mark)


@needs_sandbox
def test_the_guard_itself_may_be_killed(tmp_path):
    path, mark = stubborn(tmp_path)
    with started(path, QUICK, True) as child:
        assert b'"ready"' in child.lines.get(timeout=60) and not running(mark)
        child.send(b"[[1, 2]]")
        assert in_time(lambda: "+" in running(mark))
        child.process.kill()
        assert in_time(lambda: not running(mark))


# ── what it cannot do ──────────────────────────────────────────────────────────────────────────
ATTACKS = """
import ctypes, os, socket
def attempt(what):
    try: what()
    except BaseException as e: return type(e).__name__
    return "done"
def library(name, *arguments):
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
def connect(family, address):
    with socket.socket(family) as s: s.connect(address)
def status():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    names = "CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp"
    return [fields[name].strip() for name in names]
folder, port, abstract = WITNESS
tried = {
    "hostname": lambda: library("sethostname", b"x", 1),
    "core_pattern": lambda: os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY),
    "own setting": lambda: os.open("/proc/self/oom_score_adj", os.O_WRONLY),
    "socket by path": lambda: connect(
        socket.AF_UNIX, f"/proc/self/fd/{os.open(folder, os.O_RDONLY)}/socket"),
    "abstract socket": lambda: connect(socket.AF_UNIX, abstract),
    "tcp": lambda: connect(socket.AF_INET, ("127.0.0.1", port)),
    "vsock": lambda: socket.socket(40, socket.SOCK_STREAM),
    "shadow": lambda: open("/etc/shadow"),
    "secret": lambda: open(folder + "/secret"),
    "home": lambda: open(folder + "/left", "w"),
    "root": lambda: open("/left", "w"),
    "usr": lambda: open("/usr/left", "w"),
    "ptrace": lambda: library("ptrace", 16, os.getppid(), 0, 0),
    "namespace": lambda: library("unshare", 0x10000000),
    "memfd": lambda: os.memfd_create("x"),
    "shmget": lambda: library("shmget", 0, 4096, 0o600),
    "setuid": lambda: os.setuid(0),
}
def build_model():
    return None, {
        "done": [n for n, f in tried.items() if attempt(f) == "done"], "status": status(),
        "user": os.getuid(), "seen": sum(n.isdigit() for n in os.listdir("/proc"))}
def add(model, a, b): return a + b
"""


@needs_sandbox
def test_settings_sockets_and_files_are_out_of_reach(tmp_path):
    (tmp_path / "secret").write_text("x")
    host = socket.gethostname()
    abstract = f"\0{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        families = socket.AF_UNIX, socket.AF_UNIX, socket.AF_INET
        by_path, by_name, tcp = (stack.enter_context(socket.socket(f)) for f in families)
        here = os.open(tmp_path, os.O_RDONLY)
        by_path.bind(f"/proc/self/fd/{here}/socket")  # the path may be too long for a socket
        os.close(here)
        by_name.bind(abstract)
        tcp.bind(("127.0.0.1", 0))
        for listener in (by_path, by_name, tcp):
            listener.listen()
        witness = str(tmp_path), tcp.getsockname()[1], abstract
        v = judge(write(tmp_path, ATTACKS.replace("WITNESS", repr(witness))), n=0)
        heard = select.select([by_path, by_name, tcp], [], [], 0)[0]
    output = v.submission["metadata"]
    assert output["done"] == [] and not heard and socket.gethostname() == host
    assert output["status"] == ["0" * 16] * 3 + ["1", "2"] and output["seen"] == 2
    assert output["user"] == (os.getuid() or guard_module.NOBODY)
    assert not (tmp_path / "left").exists() and not Path("/usr/left").exists()


@needs_sandbox
def test_no_setting_of_the_guard_is_visible(tmp_path):
    text = "import os\ndef build_model():\n    seen = {}\n    for pid in os.listdir('/proc'):\n"
    text += "        if pid.isdigit() and int(pid) != os.getpid():\n"
    text += "            with open(f'/proc/{pid}/cmdline') as f:\n"
    text += "                seen[pid] = f.read().strip('\\0')\n"
    text += "    return None, seen\ndef add(m, a, b): return a + b\n"
    assert judge(write(tmp_path, text), n=0).submission["metadata"] == {"1": ""}


def cgroups():
    """The folders of control groups that guards made."""
    places: list[str] = []
    with contextlib.suppress(OSError):
        places = [place for choices in parent_folders() for place in choices]
    return [path for place in places for path in Path(place).glob(f"{PREFIX}*")]


def has_cgroup():
    try:
        ControlGroup(2**30, 9).remove()
    except OSError:
        return False
    return True


needs_cgroup = pytest.mark.skipif(not has_cgroup(), reason="this system gives no control group")


@pytest.fixture(params=[pytest.param(True, marks=needs_cgroup), False], ids=["cgroup", "sampled"])
def cgroup(request):
    return request.param


@linux
def test_a_fork_bomb_is_bounded(tmp_path, sandbox, cgroup):
    path, mark = stubborn(tmp_path, "[os.fork() for _ in range(8)]; time.sleep(600)")
    try:
        text = str(judge(path, 0, Limits(processes=16, cgroup=cgroup), sandbox).counterexamples)
    except GlassformerError as e:
        text = str(e)
    assert re.search("processes and threads, limit 16|BlockingIOError", text)
    assert not running(mark)


@needs_sandbox
def test_the_number_of_processes_is_exact(tmp_path, cgroup):
    text = "import os, time\ndef build_model():\n    n = 1\n    try:\n        while n < 99:\n"
    text += "            if not os.fork(): time.sleep(600)\n            n += 1\n"
    text += "    except OSError: pass\n    return None, {'n': n}\ndef add(m, a, b): return a + b\n"
    v = judge(write(tmp_path, text), 0, Limits(processes=16, cgroup=cgroup))
    assert v.submission["metadata"]["n"] == 16 and v.submission["cgroup"] is cgroup


THREE_HOLD_MEMORY = """
import os, time
def build_model():
    for _ in range(3):
        if not os.fork():
            held = b"x" * (100 * 2**20)
            time.sleep(600)
    time.sleep(600)
def add(model, a, b): return a + b
"""
# Starts processes that start processes, and counts those that the system gives it at once.
FORK_BOMB = """
import os, time
def build_model():
    r, w = os.pipe()
    for _ in range(200):
        with __import__("contextlib").suppress(OSError):
            os.fork()
            os.write(w, str(os.getpid()).encode() + b" ")
    time.sleep(1)
    return None, {"n": len({*os.read(r, 2**20).split()})}
def add(model, a, b): return a + b
"""


@needs_sandbox
def test_memory_is_limited_in_total(tmp_path, cgroup):
    """Three processes, each within the limit, are beyond it together."""
    path = write(tmp_path, THREE_HOLD_MEMORY)
    with raises("bad_argument", "200"):
        judge(path, limits=Limits(memory=200 * 2**20, start=60, cgroup=cgroup))


@needs_cgroup
def test_memory_is_limited_in_total_without_a_sandbox(tmp_path):
    path = write(tmp_path, THREE_HOLD_MEMORY)
    with raises("bad_argument", "200"):
        judge(path, limits=Limits(memory=200 * 2**20, start=60), sandbox=False)
    assert not cgroups()


@needs_cgroup
def test_a_fork_bomb_is_limited_without_a_sandbox(tmp_path):
    v = judge(write(tmp_path, FORK_BOMB), 0, Limits(processes=16, start=60), sandbox=False)
    assert v.submission["metadata"]["n"] <= 16 and not cgroups()


@needs_cgroup
def test_the_kernel_keeps_the_limits(tmp_path, sandbox):
    """The group has them before the file runs, and its processes are in it."""
    path, mark = stubborn(tmp_path)
    limits = Limits(memory=2**30, processes=7)
    with started(path, limits, sandbox) as child:
        assert child.lines.get(timeout=60) == b'{"event": "ready", "cgroup": true}\n'
        groups = [g for g in cgroups() if g.name.startswith(f"{PREFIX}{child.process.pid}-")]
        assert len(groups) == len(parent_folders())
        files = {f.name: f for g in groups for f in g.iterdir()}
        memory = files.get("memory.max") or files["memory.limit_in_bytes"]
        assert (int(memory.read_text()), int(files["pids.max"].read_text())) == (2**30, 7)
        if swap := files.get("memory.swap.max"):
            assert int(swap.read_text()) == 0
        if both := files.get("memory.memsw.limit_in_bytes"):
            assert int(both.read_text()) == 2**30
        child.send(b"[[1, 2]]")
        assert in_time(lambda: "+" in running(mark))
        for group in groups:
            assert len((group / "cgroup.procs").read_text().split()) == 2
    assert not any(map(Path.exists, groups)) and not running(mark)


@needs_cgroup
def test_the_groups_of_a_guard_that_was_killed_are_removed(tmp_path):
    path, mark = stubborn(tmp_path)
    with started(path, QUICK, HAS_SANDBOX) as child:
        child.lines.get(timeout=60)
        groups = [g for g in cgroups() if g.name.startswith(f"{PREFIX}{child.process.pid}-")]
        child.process.kill()
        child.process.wait()
    assert groups and in_time(lambda: not running(mark))
    if HAS_SANDBOX:  # without, its processes may live on, in their group
        assert in_time(lambda: ControlGroup(2**30, 9).remove() or not any(map(Path.exists, groups)))


@needs_sandbox
def test_no_control_group_is_visible(tmp_path, cgroup):
    text = "import os\ndef build_model():\n    with open('/proc/self/cgroup') as f:\n"
    text += "        seen = f.read()\n    with open('/proc/1/cgroup') as f: seen += f.read()\n"
    text += "    with open('/proc/self/mountinfo') as f: mounts = f.read()\n"
    text += "    return None, {'named': 'glassformer-' in seen, 'mounted': 'cgroup' in mounts,\n"
    text += "                  'sys': os.path.exists('/sys')}\ndef add(m, a, b): return a + b\n"
    v = judge(write(tmp_path, text), 0, Limits(cgroup=cgroup))
    assert v.submission["metadata"] == {"named": False, "mounted": False, "sys": False}
    assert v.submission["cgroup"] is cgroup


@needs_sandbox
def test_files_are_limited_in_total(tmp_path):
    text = "def build_model():\n    n = 0\n    try:\n        for n in range(99):\n"
    text += "            with open(str(n), 'wb') as f: f.write(bytes(2**20))\n"
    text += "    except OSError as e: return None, {'n': n, 'why': e.strerror}\n"
    v = judge(write(tmp_path, text + "def add(m, a, b): return a + b\n"), 0, Limits(disk=2**22))
    assert v.submission["metadata"] == {"n": 4, "why": "No space left on device"}


# ── without a sandbox ──────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("broken", ["enter_namespaces", "new_root", "filter_calls"])
def test_without_a_sandbox_nothing_is_run(tmp_path, monkeypatch, broken):
    """A failure in any part of the sandbox refuses the file before it runs, in one line."""
    code = f"def fail(*_): raise PermissionError('{broken} is not permitted')\n"
    code += f"from glassformer.utils.sandbox import guard\nguard.{broken} = fail\n"
    monkeypatch.setattr(runner, "GUARD", runner.GUARD.replace("run()", f"\n{code}run()"))
    lines = []
    with raises("bad_argument", "--no-sandbox") as e:
        path = write(tmp_path, "import os\nos._exit(7)\n")
        list(run_submission(path, trust=True, announce=lines.append))
    assert not lines and ("is not permitted" in str(e.value) or not HAS_SANDBOX)


def test_what_is_not_contained_is_said_before_it_runs(tmp_path, monkeypatch):
    path = write(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\n{BUILD}def add(*_): return 0\n")
    lines = []
    say = lambda text: lines.append((text, (tmp_path / "ran").exists()))  # noqa: E731
    monkeypatch.setattr(os, "getuid", lambda: 0)
    with raises("bad_argument", "root"):
        run_submission(path, trust=True, sandbox=False)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    list(run_submission(path, trust=True, sandbox=False, num_pairs=0, announce=say))
    [(text, ran)] = lines
    assert "without a sandbox: it can read and change your files" in text and not ran
    assert (tmp_path / "ran").exists()


# ── its words ──────────────────────────────────────────────────────────────────────────────────
NASTY = "\x1b]0;mine\x07 \x1b[31m red\r\u202e\x9b2J\ud800\u2028\0 é"
SHOWN = r"\x1b]0;mine\x07 \x1b[31m red \u202e\x9b2J\ud800 \x00 é"


@pytest.mark.parametrize("text,found", [
    ("def build_model(): raise ValueError(NASTY)\ndef add(m, a, b): pass\n",
     f"build_model() raised ValueError: {SHOWN}"),
    ("def add(m, a, b): return NASTY\n", f"expected add(0, 0) to give an int, got str ({SHOWN})"),
    ("import sys, os\ndef add(m, a, b):\n    os.write(2, NASTY.encode('utf8', 'replace'))\n    "
     "os._exit(9)\n",
     r"at add(0, 0): its process ended with status 9: \x00 é"),
    ("import os\ndef add(m, a, b): os.write(3, NASTY.encode('utf8', 'replace'))\n",
     r"got '\x1b]0;mine\x07 \x1b[31m red\r\u202e\x9b2J?\u2028\x00 é"),
])  # fmt: skip
def test_what_it_says_of_an_error_is_shown_and_not_sent(tmp_path, text, found):
    with pytest.raises(GlassformerError) as e:
        judge(write(tmp_path, f"NASTY = {NASTY!a}\n{BUILD}{text}"))
    assert found in str(e.value) and str(e.value).isprintable()


@needs_sandbox
def test_what_it_says_of_itself_is_shown_and_not_sent(tmp_path, call):
    text = (
        f"NASTY = {NASTY!a}\ndef build_model():\n    told = {{NASTY: NASTY, 'params': 10**400, "
        f"'x': [NASTY] * 99}}\n"
    )
    text += (
        "    return None, told | {'nan': float('nan'), 'large': 'x' * 10**6, 'deep': {'a': "
        "[[1e400]]}}\n"
    )
    text += (
        "def add(m, a, b):\n    if a == b: raise ValueError(NASTY)\n    return a + b if b else "
        "10**100\n"
    )
    path = write(tmp_path, text)
    v = judge(path, n=5)
    output = v.submission["metadata"]
    assert (
        output[SHOWN[:40]] == SHOWN and output["x"] == [SHOWN] * 20 and len(output["large"]) == 200
    )
    assert (output["nan"], output["params"], output["deep"]) == (
        "nan",
        "1" + "0" * 199,
        "{'a': [[inf]]}",
    )
    got = [c["got"] for c in v.counterexamples]
    assert got[0] == f"ValueError: {SHOWN}" and "a number of more than 30 digits" in got
    strict = json.loads(json.dumps(v.to_json(), allow_nan=False))
    assert strict["submission"]["metadata"] == output
    status, out, err = call("adderboard", path, "--trust")
    assert status == 1 and "edge cases are wrong" in out.splitlines()[-1]
    assert all(line.isprintable() for line in (out + err).splitlines())
    assert "not checked: 1000" in out


LINES = [
    b'{"event": "answer", "got": ' + b"9" * 5000 + b"}", b'{"event": "answer", "got": NaN}',
    b'{"event": "answer"}',
    b'{"event": "answer", "raised": 5}', b"[" * 50_000, b'{"event": ["answer"]}',
    b'{"event": "ready", "cgroup": true}', b'{"event": "refused", "why": "x"}',
    b'{"event": "answer", "got": 1e400}', b"\xff\xfe", b"5", b"",
    b'{"event": "answer", "got": true}',
]  # fmt: skip


@pytest.mark.parametrize("line", LINES, ids=lambda x: x.decode(errors="replace")[:40])
def test_lines_that_are_none(line):
    assert trust._parse_line(line, ("answer", "failed")) is None


def test_lines_are_cleaned_here_whoever_wrote_them():
    """A submission can write to the pipe itself: what its process cleans is cleaned once more."""

    def line(due="answer", **fields):
        return trust._parse_line(json.dumps({"event": due, **fields}).encode(), (due,))

    assert (
        line(raised=NASTY * 99)["raised"].startswith(SHOWN[:20])
        and len(line(raised=NASTY * 99)["raised"]) == 200
    )
    assert line(raised=NASTY)["raised"].isprintable() and line(got=-(10**29)) == {
        "event": "answer",
        "got": -(10**29),
    }
    assert line(got=10**40) == {"event": "answer", "raised": "a number of more than 30 digits"}
    built = line(
        "built", metadata={NASTY: [[[NASTY]]], "n": float("inf")}, parameters=7, extra=NASTY
    )
    assert set(built) == {"event", "metadata", "parameters"} and str(built).isprintable()
    assert built["parameters"] == 7 and built["metadata"]["n"] == "inf"
    assert line("built", metadata={}, parameters="7") is None and line("built", metadata=[]) is None
    assert line("built", metadata={}, buffers=10**50) is None
    assert str(line("refused", why=NASTY)).isprintable() and line("refused") is None


def test_it_cannot_claim_that_it_was_refused(tmp_path):
    fake = json.dumps({"event": "refused", "why": "no sandbox"})
    text = (
        f"import os\nos.write(3, {fake.encode()!r} + b'\\n')\n{BUILD}def add(m, a, b): return a + "
        f"b\n"
    )
    with raises("bad_argument", "JSON"):
        judge(write(tmp_path, text))


@pytest.mark.parametrize("deep", [20, pytest.param(1100, marks=pytest.mark.slow)])
@needs_sandbox
def test_what_it_leaves_in_its_folder_is_removed(tmp_path, monkeypatch, deep):
    (own := tmp_path / "own").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    text = (
        "import os\ndef build_model():\n    open('x', 'w')\n    os.symlink('/', 'y')\n    "
        "os.makedirs('b/c/d', 0)\n"
    )
    text += (
        f"    for _ in range({deep}):\n        os.mkdir('a')\n        os.chdir('a')\n    return "
        f"None, {{}}\n"
    )
    text += "def add(m, a, b): return a + b\n"
    v = judge(write(tmp_path, text), n=0)
    assert v.edges == GroupScore(10, 10) and not list(own.iterdir())


@pytest.mark.parametrize("make", [os.mkfifo, lambda p: os.symlink("/dev/zero", p), os.mkdir])
def test_what_is_no_file_is_not_read(tmp_path, make):
    make(tmp_path / "x.py")
    with raises("file_error", "x.py"):
        run_submission(tmp_path / "x.py", trust=True)


def test_a_flood_of_lines(tmp_path):
    text = "import os\ndef add(model, a, b):\n    for f in range(3, 9):\n        try:\n"
    text += "            while True: os.write(f, b'x' * 2**16)\n        except OSError: pass\n"
    with raises("bad_argument", "xxx"):
        judge(write(tmp_path, BUILD + text))


@pytest.mark.slow
def test_processor_time_is_limited(tmp_path):
    path = write(
        tmp_path, "def build_model():\n    while True: pass\ndef add(model, a, b): return 1\n"
    )
    with raises("bad_argument", "model"):
        judge(path, limits=Limits(cpu=1))


def test_a_submission_may_be_called_as_the_runner_is(tmp_path):
    path = tmp_path / "child.py"
    path.write_text("def build_model(): return None, {}\ndef add(model, a, b): return a + b\n")
    assert judge(path, 0).holds


def test_shared_memory_that_no_process_holds_cannot_be_had(tmp_path):
    """It would be resident in none of them, and so beyond the limit."""
    text = "import mmap\ndef build_model():\n    try: mmap.mmap(-1, 4096)\n"
    text += "    except OSError as e: return None, {'said': type(e).__name__}\n"
    text += "    return None, {'said': ''}\ndef add(model, a, b): return a + b\n"
    path = write(tmp_path, text)
    assert judge(path, 0).submission["metadata"]["said"] == "PermissionError"


def test_memory_and_files_are_limited(tmp_path):
    text = "def build_model():\n    said = []\n"
    text += "    for f in (lambda: bytes(2**30), lambda: open('x', 'wb').write(bytes(2**20))):\n"
    text += (
        "        try: f()\n        except (MemoryError, OSError) as e: "
        "said.append(type(e).__name__)\n"
    )
    text += "    return None, {'said': said}\ndef add(model, a, b): return a + b\n"
    path = write(tmp_path, text)
    assert judge(path, 0, Limits(memory=2**29, disk=2**16)).submission["metadata"]["said"] == [
        "MemoryError",
        "OSError",
    ]
    assert judge(path, 0).submission["metadata"]["said"] == []


def test_it_has_no_environment_and_a_folder_of_its_own(tmp_path, monkeypatch, sandbox):
    monkeypatch.setenv("SECRET", "hunter2")
    text = (
        "import os\ndef build_model():\n    about = {'files': os.listdir(), 'cwd': os.getcwd()}\n"
    )
    text += "    return None, {'env': sorted(os.environ), **about}\n"
    path = write(tmp_path, text + "def add(model, a, b): return a + b\n")
    output = judge(path, n=0, sandbox=sandbox).submission["metadata"]
    assert set(output["env"]) <= {"HOME", "TMPDIR", "PATH", "OMP_NUM_THREADS", "LC_CTYPE"}
    assert (
        output["files"] == [] and output["cwd"] != os.getcwd() and not Path(output["cwd"]).exists()
    )


@needs_sandbox
def test_the_command(call, tmp_path):
    path = write(tmp_path, BUILD + "def add(model, a, b): return a + b\n")
    status, out, err = call("adderboard", path)
    assert (status, out, err.count("\n")) == (2, "", 1) and str(path) in err and "--trust" in err
    status, out, err = call("adderboard", path, "--trust")
    assert status == 0 and "qualifies, 100.00 % right" in out and "not checked: 7 parameters" in out
    assert "executed in a sandbox" in out and err.startswith(
        f"running {path} in a sandbox: no network"
    )
    held = "of memory and 64 processes" if has_cgroup() else "of resident memory and 64 processes"
    assert f"4 GiB {held}" in err and "64 MiB in files" in err
    assert ("(kept by a control group)" in err) is has_cgroup() is ("(sampled" not in err)
    path.write_text(BUILD + "def add(model, a, b): return a + b if a > b else 0\n")
    status, out, err = call("adderboard", path, "--trust", "--json", "--max-counterexamples", "1")
    got = json.loads(out)
    assert status == 1 and not got["qualifies"] and got["submission"]["metadata"]["params"] == 7
    assert (
        got["counts"] is None and len(got["counterexamples"]) == 1 and got["pairs"]["of"] == 10_000
    )
