"""Jobs: polled, stopped, killed beyond their time or memory; no process is left behind."""

import io
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from glassformer.server import jobs, server
from glassformer.server.jobs import MAX_FINISHED_JOBS, JobTable
from glassformer.server.worker_pool import PoolBusy, WorkerPool
from glassformer.utils import worker_main
from glassformer.utils.workers import ProcessEnded
from helpers import raises
from server.conftest import ADDER

SRC = str(Path(__file__).parents[2] / "src")
HEAVY = """
import glassformer as gf
def forever() -> gf.Model:
    while True:
        pass
def huge() -> gf.Model:
    return bytearray(2**34)
def gone() -> gf.Model:
    import os
    os._exit(9)
def broken() -> gf.Model:
    raise ZeroDivisionError("mine")
"""


def alive(pid):
    """Whether a process is there and no mere entry of a table."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def workers(served):
    return [w.process.pid for w in served.open.pool.workers]


@pytest.fixture
def heavy(tmp_path):
    file = tmp_path / "heavy.py"
    file.write_text(HEAVY)
    typed = [f"{file}:{name}" for name in ("forever", "huge", "gone", "broken")]
    pool = WorkerPool({"typed": typed, "folders": [], "memory": 2**31}, {"quick": 1, "job": 1})
    yield pool, dict(zip(("forever", "huge", "gone", "broken"), typed, strict=True))
    pool.close()


@pytest.mark.slow
def test_requests_beyond_their_limits_are_killed_and_the_next_one_works(heavy):
    pool, refs = heavy

    def ask(ref, seconds=60.0):
        with pool.worker("quick") as worker:
            return worker.request("model", {"ref": ref}, seconds)

    with raises(ProcessEnded, "0.5 s"):
        ask(refs["forever"], 0.5)
    kind, data = ask(refs["huge"])
    assert kind == worker_main.WRONG and json.loads(data)["code"] == "too_large"
    with raises(ProcessEnded, 9):
        ask(refs["gone"])
    kind, data = ask(refs["broken"])
    assert kind == worker_main.DEFECT and b"ZeroDivisionError" in data
    assert ask("min:vocab=3")[0] == worker_main.RESULT


def test_a_pool_has_limited_workers(heavy):
    pool, _ = heavy
    with pool.worker("quick"), pytest.raises(PoolBusy), pool.worker("quick"):
        pass
    pool.close()
    with pytest.raises(ProcessEnded), pool.worker("quick"):
        pass


# ── ownership of processes ─────────────────────────────────────────────────────────────────────
class FakeWorker:
    """A worker without a process that records calls."""

    def __init__(self, answer=(worker_main.RESULT, b"1")):
        self.answer, self.next_order, self.calls, self.go = answer, 7, [], threading.Event()
        self.asked, self.killed = threading.Event(), threading.Event()

    def request(self, do, fields, seconds, tell):
        self.tell = tell
        self.asked.set()
        assert self.go.wait(60)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def stop(self, order):
        self.calls.append(order)

    def kill(self):
        self.calls.append("kill")
        self.killed.set()


STARTED = b'{"steps": 5, "names": []}'  # first message of a training


class FakePool:
    """A pool with one fake worker; `on_release()` is called when a job releases it."""

    def __init__(self, worker, on_release=lambda: None):
        self.fake, self.on_release = worker, on_release

    @contextmanager
    def worker(self, kind):
        try:
            yield self.fake
        finally:
            self.on_release()


def finished(job):
    for _ in range(6_000):
        if job.state != "running":
            return job
        time.sleep(0.01)
    raise AssertionError("the job does not end")


def test_a_process_that_cannot_start_is_reported(monkeypatch, heavy):
    pool, _ = heavy

    def none(*args, **more):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", none)
    job = finished(JobTable(pool, 60.0).start("verify", {}))
    output = "Resource temporarily unavailable"
    (error,) = job.errors
    assert (job.state, job.code) == ("wrong", "stopped") and output in error["message"]


def test_a_job_that_fails_for_whatever_reason_is_finished():
    worker = FakeWorker(KeyError("x"))
    worker.go.set()
    job = finished(JobTable(FakePool(worker), 60.0).start("verify", {}))
    assert (job.state, job.code) == ("wrong", "defect") and "KeyError" in job.errors[0]["message"]


@pytest.mark.parametrize("kind", ["verify", "train"])
def test_a_stop_ignores_a_released_process(kind):
    worker, began = FakeWorker((worker_main.WRONG, b'{"error": "x"}')), []
    all_jobs = JobTable(FakePool(worker, lambda: all_jobs.stop(began[0])), 60.0)
    began.append(all_jobs.start(kind, {}))
    worker.go.set()
    assert finished(began[0]).state == "wrong" and worker.calls == []


def test_stopping_a_training_sends_its_order_and_its_timer_is_cancelled():
    worker = FakeWorker()
    all_jobs = JobTable(FakePool(worker), 60.0)
    job = all_jobs.start("train", {})
    all_jobs.stop(job)
    all_jobs.stop(job)
    assert worker.calls == [7] and job.kill_timer.daemon
    assert worker.asked.wait(60)
    worker.tell(STARTED)
    worker.go.set()
    assert finished(job).state == "done" and worker.calls == [7, "kill"]
    assert job.kill_timer.finished.is_set()  # cancelled


def test_the_grace_period_of_a_training_begins_with_its_start(monkeypatch):
    """The time to start the process and to import PyTorch does not count."""
    monkeypatch.setattr(jobs, "STOP_GRACE_SECONDS", 0.0)
    worker = FakeWorker()
    all_jobs = JobTable(FakePool(worker), 60.0)
    job = all_jobs.start("train", {})
    assert worker.asked.wait(60)
    all_jobs.stop(job)
    assert not worker.killed.wait(0.3) and job.kill_timer.interval == jobs.START_SECONDS
    worker.tell(STARTED)
    assert worker.killed.wait(60)  # it does not end by itself
    worker.answer = ProcessEnded("it was stopped")
    worker.go.set()
    assert finished(job).state == "stopped" and worker.calls == [7, "kill"]


def test_the_grace_period_of_a_started_training_begins_at_once(monkeypatch):
    monkeypatch.setattr(jobs, "STOP_GRACE_SECONDS", 0.0)
    worker = FakeWorker()
    all_jobs = JobTable(FakePool(worker), 60.0)
    job = all_jobs.start("train", {})
    assert worker.asked.wait(60)
    worker.tell(STARTED)
    assert job.kill_timer is None
    all_jobs.stop(job)
    assert worker.killed.wait(60)
    worker.go.set()


@pytest.mark.parametrize("begun", [True, False])
def test_a_process_ends_with_its_started_training(begun):
    worker = FakeWorker((worker_main.WRONG, b'{"error": "it diverged"}'))
    job = JobTable(FakePool(worker), 60.0).start("train", {})
    assert worker.asked.wait(60)
    if begun:
        worker.tell(STARTED)
    worker.go.set()
    assert finished(job).state == "wrong" and worker.calls == ["kill"] * begun


def test_a_stop_ends_only_its_own_order(monkeypatch):
    monkeypatch.setattr(os, "_exit", lambda status: None)
    pipe, line = io.BytesIO(), worker_main.ProgressChannel(io.BytesIO())
    worker_main.write(pipe, worker_main.STOP, b"2")
    worker_main.write(pipe, worker_main.ASK, b'{"number": 2}')
    pipe.seek(0)
    worker_main.read_orders(pipe, asked := queue.Queue(), line)
    assert not line.stopped()
    line.order = asked.get()["number"]
    assert line.stopped()
    line.order = 3
    assert not line.stopped()


LONG_JOB = {"ref": "addition:digits=3", "sample": 10**9}


def test_a_job_can_be_stopped(served):
    job = served.begin("verify", **LONG_JOB)
    told = served.finished(
        job, lambda told: told["progress"].get("done") or told["state"] != "running"
    )
    far = told["progress"]
    assert told["state"] == "running" and 0 < far["done"] < far["total"] and far["total"] >= 10**9
    before = workers(served)
    assert served.client.delete(f"/api/jobs/{job}").status_code == 200
    told = served.finished(job)
    assert told["state"] == "stopped" and told["result"] is None and told["errors"] == []
    assert len([pid for pid in before if alive(pid)]) < len(before)
    assert served.client.delete(f"/api/jobs/{job}").status_code == 200  # again: nothing to do
    assert served.client.get("/api/jobs/none").status_code == 404
    assert served.client.delete("/api/jobs/none").status_code == 404


def test_a_compiled_proof_can_be_stopped(served):
    large = "lang/double-histogram:vocab=100,length=100"  # which takes long to make
    job = served.begin("prove", ref=large)
    told = served.finished(job, lambda told: "stage" in told["progress"])
    assert told["state"] == "running" and told["progress"]["stage"] == "compiling"
    assert served.client.delete(f"/api/jobs/{job}").status_code == 200
    assert served.finished(job)["state"] == "stopped"


def test_too_many_jobs_are_refused(served):
    room = served.open.pool.slots["job"]._initial_value
    running = [served.begin("verify", **LONG_JOB) for _ in range(room)]
    assert served.post("verify", **LONG_JOB).status_code == 429
    assert served.model(ref=ADDER)["ref"] == ADDER  # other requests still work
    for job in running:
        served.client.delete(f"/api/jobs/{job}")
    assert {served.finished(job)["state"] for job in running} == {"stopped"}
    assert served.job("verify", ref=ADDER)["state"] == "done"


def test_old_finished_jobs_are_dropped(served):
    first = served.begin("verify", ref=ADDER)
    served.finished(first)
    for _ in range(MAX_FINISHED_JOBS + 1):
        served.job("verify", ref=ADDER)
    assert served.client.get(f"/api/jobs/{first}").status_code == 404
    assert len(served.open.jobs.by_id) <= MAX_FINISHED_JOBS + 1


def test_a_job_has_a_time_limit(served, monkeypatch):
    assert served.open.jobs.seconds == 60 * 30.0  # minutes
    monkeypatch.setattr(served.open.jobs, "seconds", 0.5)
    reported = served.job("verify", **LONG_JOB)
    assert reported["state"] == "wrong" and "0.5 s" in reported["errors"][0]["message"]
    assert served.model(ref=ADDER)["ref"] == ADDER


@pytest.mark.slow
def test_a_training_reports_events_and_returns_its_model_when_stopped(served):
    steps = {"steps": 10**6, "target_accuracy": 2}
    job = served.begin("train", task="addition:digits=1", settings=steps)

    def twice(told):
        return len(evaluated(told)) > 1 or told["state"] != "running"

    seen = evaluated(told := served.finished(job, twice))
    assert (
        seen[:2] == [20, 40] and told["progress"]["steps"] == 10**6 and told["state"] == "running"
    )
    served.client.delete(f"/api/jobs/{job}")
    told = served.finished(job)
    assert told["state"] == "done" and told["result"]["training"]["status"] == "interrupted"
    assert served.look(job, after=1)["events"] == told["events"][1:]
    model = told["result"]["model"]
    assert [s["step"] for s in model["snapshots"]] == evaluated(told)
    assert model["weights"] and model["task"]["ref"] == "addition:digits=1"


@pytest.mark.slow
def test_a_training_stopped_before_its_start_ends_by_itself(served):
    job = served.begin("train", task=ADDER, settings={"steps": 10**6, "test_rows": 50})
    served.client.delete(f"/api/jobs/{job}")
    reported = served.finished(job)
    assert reported["state"] == "done" and reported["result"]["training"]["status"] == "interrupted"


def evaluated(told):
    return [e["step"] for e in told["events"] if e["kind"] == "evaluation"]


@pytest.mark.parametrize("more", [
    {"recipe": "../x.json"}, {"recipe": "x.toml"}, {"recipe": "mine.py:R"}, {"task": "additoin"},
    {"task": "mine.py:Vote"}, {"settings": {"lrr": 1}}, {"settings": {"lr": "much"}},
    pytest.param({"settings": {"d_model": 60_000, "n_layers": 900}}, marks=pytest.mark.slow),
])  # fmt: skip
def test_an_invalid_training_is_refused(served, more):
    reported = served.job("train", **({"task": ADDER} | more))
    assert reported["state"] == "wrong" and reported["errors"][0]["message"]
    assert reported["code"] != "defect"


def test_a_server_stopped_before_it_runs_does_not_run():
    """Such as one closed at once, before its thread has started."""
    opened = server.StudioServer([])
    opened.stop()
    running = threading.Thread(target=opened.run, daemon=True)
    running.start()
    running.join(60)
    ended = not running.is_alive()
    opened.stop()
    running.join(60)
    assert ended and opened.socket.fileno() == -1 and opened.pool.closed


# ── the command ────────────────────────────────────────────────────────────────────────────────
def start(*words, settings=(), **more):
    environment = os.environ | {"PYTHONPATH": SRC} | dict(settings)
    command = [sys.executable, "-m", "glassformer", "studio", *words, "--no-browser", "--json"]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )


def free_port():
    """A free port below those that systems hand out."""
    for port in random.SystemRandom().sample(range(10_000, 30_000), 1_000):
        with suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def children(pid):
    results = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                results.append(int(entry.name))
        except OSError:
            continue
    return results


@pytest.mark.parametrize("by", [signal.SIGINT, *(pytest.param(number, marks=pytest.mark.slow)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL))])  # fmt: skip
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
@pytest.mark.slow
def test_nothing_is_left_behind(by):
    import httpx

    # under nohup the tests ignore the signal, and so would what they start
    process = start("addition:digits=3", "--port", str(port := free_port()), preexec_fn=lambda:
                    signal.signal(by, signal.SIG_DFL) if by == signal.SIGHUP else None)  # fmt: skip
    base, token = json.loads(process.stdout.readline())["address"].split("/?token=")
    headers = {"X-Glassformer-Token": token}
    answer = httpx.post(f"{base}/api/verify", json=LONG_JOB, headers=headers, timeout=60)
    assert answer.status_code == 200
    assert httpx.get(f"{base}/api/refs", headers=headers, timeout=60).status_code == 200
    below = children(process.pid)  # one that is at work, and one that waits for some
    assert len(below) == 2 and all(map(alive, below))
    process.send_signal(by)
    _, output = process.communicate(timeout=60)
    assert process.returncode == (-9 if by == signal.SIGKILL else 0), output
    assert "Traceback" not in output
    for _ in range(600):
        if not any(map(alive, below)):
            break
        time.sleep(0.05)
    assert not any(map(alive, below))
    with socket.socket() as free:  # and its port is free again
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))


def test_the_default_port_is_constant_unless_it_is_taken(monkeypatch):
    """Browsers store data by port."""
    monkeypatch.setattr(server, "DEFAULT_PORT", free_port())
    with server.default_socket() as first:
        assert first.getsockname()[1] == server.DEFAULT_PORT
        with server.default_socket() as second:
            assert second.getsockname()[1] not in (0, server.DEFAULT_PORT)
    with server.default_socket() as again:
        assert again.getsockname()[1] == server.DEFAULT_PORT


@pytest.mark.parametrize("library", ["fastapi", "uvicorn", "pydantic"])
def test_without_the_extra_the_error_has_the_install_command(call, monkeypatch, library):
    for name in [n for n in sys.modules if n.startswith("glassformer.server.")]:
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(sys.modules["glassformer.server"], name.split(".")[2], raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    status, out, err = call("studio", ADDER)
    assert (status, out) == (2, "") and "pip install 'glassformer[serve]'" in err


@pytest.mark.parametrize(("words", "mention"), [
    (["additoin"], "additoin"), ([""], "''"), (["addition:digits=x"], "digits"),
    (["nothing.safetensors"], "nothing.safetensors"), (["nothing.glass"], "nothing.glass"),
    (["nothing.py:NAME"], "nothing.py"), ([ADDER] * 5, "at most 4 models"),
    ([ADDER, "--folder", "nothing"], "--folder nothing"),
    ([ADDER, "--folder", __file__], __file__), ([ADDER, "--port", "TAKEN"], "--port"),
    ([ADDER, "--port", "70000"], "65535"), ([ADDER, "--port", "x"], "port"),
    ([ADDER, "--minutes", "0"], "minutes"), ([ADDER, "--memory", "0"], "memory"),
    ([ADDER, "--input", "zzz"], "zzz"), ([], "REF"), ([ADDER, "--nothing"], "--nothing"),
    (["\x1b[31m"], "\\x1b"),
])  # fmt: skip
@pytest.mark.some(5)
def test_a_wrong_call_ends_with_one_line(call, words, mention):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        given = [w if w != "TAKEN" else taken.getsockname()[1] for w in words]
        status, out, err = call("studio", *given)
    assert (status, out) == (2, "") and mention in err
    assert err.startswith("error: ") and err.count("\n") == 1 and "\x1b" not in err
