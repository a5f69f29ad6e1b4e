"""Submissions of other people: what theirs say, what they cannot do, and what becomes of those that misbehave."""

import hashlib
import json
import os
import signal
from pathlib import Path

import pytest

from glassformer import GlassformerError
from glassformer.verify.protocol import EDGES, Part
from glassformer.verify.trust import Limits, submission

QUICK = Limits(start=120, answer=60, whole=120, cpu=60)
BUILD = "def build_model():\n    return None, {'name': 'x', 'params': 7}\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "theirs.py"
    path.write_text(text)
    return path


def judge(path, n=30, limits=QUICK):
    *_, end = submission(path, trust=True, n=n, limits=limits)
    return end


def test_one_that_is_right(tmp_path):
    path = write(tmp_path, BUILD + "def add(model, a, b):\n    print('noise', flush=True)\n    return a + b\n")
    v = judge(path)
    assert v.holds and v.edges == Part(10, 10) and v.pairs == Part(30, 30) and v.counts is None
    assert v.model == hashlib.sha256(path.read_bytes()).hexdigest()
    assert v.submission["metadata"] == {"name": "x", "params": 7} and "parameters" not in v.submission
    assert list(tmp_path.iterdir()) == [path]  # no __pycache__


def test_one_that_is_wrong(tmp_path):
    v = judge(write(tmp_path, BUILD + "def add(model, a, b):\n    return a + b if a % 2 else a ^ b\n"))
    assert not v.holds and v.counterexamples
    for c in v.counterexamples:
        assert c["got"] == c["a"] ^ c["b"] != c["expected"] and c["a"] % 2 == 0


def test_an_exception_is_a_wrong_answer(tmp_path):
    text = "def add(model, a, b):\n    if a == b: raise ValueError('the same')\n    return a + b\n"
    v = judge(write(tmp_path, BUILD + text))
    same = sum(a == b for a, b in EDGES)
    assert v.edges == Part(10 - same, 10) and v.pairs == Part(30, 30) and not v.holds
    assert v.counterexamples[0]["got"] == "ValueError: the same"


def test_it_gets_its_pairs_in_order_one_at_a_time(tmp_path):
    text = "asked = []\ndef build_model(): return asked, {}\ndef add(model, a, b):\n    model.append((a, b))\n"
    text += f"    return a + b if (a, b) == {list(EDGES)!r}[len(model) - 1] else -len(model)\n"
    v = judge(write(tmp_path, text), n=0)
    assert v.edges == Part(10, 10) and v.pairs == Part(0, 0)


def test_numbers_of_a_module_are_counted(tmp_path):
    text = "class T:\n    def __init__(self, n): self.n = n\n    def numel(self): return self.n\n"
    text += "class M:\n    t = T(5)\n    def parameters(self): return [self.t, T(7), self.t]\n"
    text += "    def buffers(self): return [T(3)]\n"
    text += "def build_model(): return M(), {'params': 2}\ndef add(model, a, b): return a + b\n"
    v = judge(write(tmp_path, text), n=1)
    assert (v.submission["parameters"], v.submission["buffers"], v.submission["metadata"]["params"]) == (12, 3, 2)


def test_without_trust_nothing_runs(tmp_path):
    path = write(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\n{BUILD}def add(model, a, b): return a + b\n")
    with pytest.raises(GlassformerError, match="if you trust it, say --trust"):
        submission(path)
    assert not (tmp_path / "ran").exists()
    assert judge(path, n=1).holds and (tmp_path / "ran").exists()


MISBEHAVED = [
    ("def add(model, a, b): return float(a + b)", r"expected add\(0, 0\) to give an int, got float \(0.0\)"),
    ("def add(model, a, b): return str(a + b)", r"expected add\(0, 0\) to give an int, got str \(0\)"),
    ("def add(model, a, b): return a == b", r"to give an int, got bool \(True\)"),
    ("def add(model, a, b): pass", r"to give an int, got NoneType"),
    ("", r"expected it to define add\(\)"),
    ("add = 5", r"expected it to define add\(\)"),
    ("import os\ndef add(model, a, b):\n    if a: os._exit(3)\n    return a + b",
     r"at add\(9999999999, 0\): its process ended with status 3"),
    ("import os\ndef add(model, a, b): os.abort()", r"at add\(0, 0\): its process died \(SIGABRT\)"),
    ("import os\ndef add(model, a, b):\n    for f in range(3, 9):\n        try: os.write(f, b'hello')\n"
     "        except OSError: pass\n    return a + b", r"expected a line of JSON from its process, got 'hello"),
    ("import os\ndef add(model, a, b):\n    for f in range(3, 9):\n"
     "        try: os.write(f, b'{\"event\": \"answer\", \"got\": 1.5}\\n')\n"
     "        except OSError: pass\n    return a + b", r"expected a line of JSON from its process"),
    ("import os, sys\ndef add(model, a, b):\n    os.closerange(0, 20)\n    sys.stdin.close()",
     r"its process (ended|died|closed)"),
    ("def build_model(): return 5\ndef add(model, a, b): return 1", r"to give \(model, metadata\), got int"),
    ("def build_model(): return 5, 6\ndef add(model, a, b): return 1", r"to give \(model, metadata\), got tuple"),
    ("def build_model(): raise ValueError('no weights')\ndef add(m, a, b): return 1",
     r"build_model\(\) raised ValueError: no weights"),
    ("import sys\ndef build_model(): sys.exit(4)\ndef add(m, a, b): return 1", r"build_model\(\) raised SystemExit: 4"),
    ("import nowhere_to_be_found", r"cannot be loaded: ModuleNotFoundError"),
    ("def add(:", r"cannot be loaded: SyntaxError"),
]  # fmt: skip


@pytest.mark.parametrize("text,why", MISBEHAVED, ids=[t[:40] for t, _ in MISBEHAVED])
def test_misbehaviour_has_a_clear_line(tmp_path, text, why):
    with pytest.raises(GlassformerError, match=why) as e:
        judge(write(tmp_path, BUILD + text + "\n"))
    assert "\n" not in str(e.value) and "theirs.py — " in str(e.value)


def test_a_loop_without_end_is_ended(tmp_path):
    note = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))"
    path = write(tmp_path, BUILD + f"import os\ndef add(model, a, b):\n    {note}\n    while True: pass\n")
    with pytest.raises(GlassformerError, match=r"at add\(0, 0\): no answer within 1 s"):
        judge(path, limits=Limits(answer=1))
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()


def test_children_are_ended_too(tmp_path):
    text = BUILD + "import os, time\ndef add(model, a, b):\n    pid = os.fork()\n    if not pid: time.sleep(1000)\n"
    path = write(tmp_path, text + f"    open({str(tmp_path / 'pid')!r}, 'w').write(str(pid))\n    return a + b\n")
    assert judge(path, n=0).edges.right == 10
    state = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_a_child_that_gets_away_holds_nobody_up(tmp_path):
    pid = tmp_path / "pid"
    text = "import os, time\ndef add(model, a, b):\n    if a == b == 0 and not os.fork():\n        os.setsid()\n"
    text += f"        open({str(pid)!r}, 'w').write(str(os.getpid()))\n        time.sleep(600)\n"
    text += f"    while not os.path.exists({str(pid)!r}) or not os.path.getsize({str(pid)!r}): time.sleep(0.01)\n"
    v = judge(write(tmp_path, BUILD + text + "    return a + b\n"), n=0)
    os.kill(int(pid.read_text()), signal.SIGKILL)  # it is still there: nobody waited ten minutes for it
    assert v.edges.right == 10


def test_a_flood_of_lines(tmp_path):
    text = "import os\ndef add(model, a, b):\n    for f in range(3, 9):\n        try:\n"
    text += "            while True: os.write(f, b'x' * 2**16)\n        except OSError: pass\n"
    with pytest.raises(GlassformerError, match="expected a line of JSON from its process, got 'xxx"):
        judge(write(tmp_path, BUILD + text))


def test_processor_time_is_limited(tmp_path):
    path = write(tmp_path, "def build_model():\n    while True: pass\ndef add(model, a, b): return 1\n")
    with pytest.raises(GlassformerError, match="before its model was built: it used up its processor time"):
        judge(path, limits=Limits(cpu=1))


def test_memory_and_files_are_limited(tmp_path):
    text = "def build_model():\n    said = []\n"
    text += "    for f in (lambda: bytes(2**30), lambda: open('x', 'wb').write(bytes(2**20))):\n"
    text += "        try: f()\n        except (MemoryError, OSError) as e: said.append(type(e).__name__)\n"
    text += "    return None, {'said': said}\ndef add(model, a, b): return a + b\n"
    path = write(tmp_path, text)
    assert judge(path, 0, Limits(memory=2**29, file=2**16)).submission["metadata"]["said"] == ["MemoryError", "OSError"]
    assert judge(path, 0).submission["metadata"]["said"] == []


def test_it_has_no_environment_no_network_and_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    text = "import os\ndef build_model():\n    net = os.readlink('/proc/self/ns/net')\n"
    text += "    return None, {'env': sorted(os.environ), 'cwd': os.getcwd(), 'files': os.listdir(), 'net': net}\n"
    v = judge(write(tmp_path, text + "def add(model, a, b): return a + b\n"), n=0)
    said = v.submission["metadata"]
    assert set(said["env"]) <= {"HOME", "TMPDIR", "PATH", "OMP_NUM_THREADS", "LC_CTYPE"}
    assert said["files"] == [] and said["cwd"] != os.getcwd() and not Path(said["cwd"]).exists()
    assert v.submission["limited"] == ["cpu", "memory", "file"]
    assert v.submission["network"] is (said["net"] == os.readlink("/proc/self/ns/net"))  # where the system lets us


def test_the_command(call, tmp_path):
    path = write(tmp_path, BUILD + "def add(model, a, b): return a + b\n")
    status, out, err = call("verify", path, "--protocol", "adderboard")
    why = "is someone's code, and checking it runs it; if you trust it, say --trust"
    assert (status, out, err) == (2, "", f"error: {path} — {why}\n")
    status, out, err = call("verify", path, "--protocol", "adderboard", "--trust")
    assert status == 0 and "qualifies, 100.00 % right" in out and "says of itself (not checked): 7 parameters" in out
    assert err.startswith(f"running {path} in a process of its own: at most 7,200 s of processor time, 4 GiB of memory")
    path.write_text(BUILD + "def add(model, a, b): return a + b if a > b else 0\n")
    status, out, err = call("verify", path, "--protocol", "adderboard", "--trust", "--json", "--keep", "1")
    got = json.loads(out)
    assert status == 1 and not got["qualifies"] and got["submission"]["metadata"]["params"] == 7
    assert got["counts"] is None and len(got["counterexamples"]) == 1 and got["pairs"]["of"] == 10_000
