"""Verification on a Dask cluster gives the verdict of one process, also when workers die."""

import json
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from glassformer import GlassformerError, load, load_task
from glassformer.utils import dask_pool as far
from glassformer.utils.workers import map_pieces
from glassformer.verification import Progress, Verdict, chunks, verify, verify_events
from glassformer.verification.chunks import ChunkedEvaluation
from glassformer.verification.counts import RowCounts
from glassformer.verification.resume_log import JournalState
from helpers import PATIENCE, raises, wait_for

REF = "addition:digits=2"


def weakened():
    """Return an adder that is wrong on some pairs."""
    model = load(REF)
    weights = {n: w.copy() for n, w in model.weights.items()}
    weights["embed.W_E"][7] *= 1.02
    return replace(model, weights=weights)


def same(a, b):
    return a.to_json() == b.to_json()


def test_ten_to_the_ten_pairs_are_cut_without_being_listed():
    """All chunks are generated lazily, each once."""
    task = load_task("addition:digits=5")
    work = ChunkedEvaluation(
        load("addition:digits=5"), task, {"domain": task.size}, chunk=1_000, keep=10
    )
    assert task.size == 10**10 and work.n_chunks == 10**7
    size, end = chunks.CHUNKS_PER_CLUSTER_JOB, 0
    for job in chunks.split_ranges(JournalState().remaining(work.n_chunks), size):
        assert job.start == end and 0 < len(job) <= size
        end = job.stop
    assert end == work.n_chunks
    part, start, stop = work.locate_chunk(work.n_chunks - 1)
    assert (part, start, stop) == ("domain", 10**10 - 1_000, 10**10)


def test_what_is_counted_cannot_be_counted_again():
    task = load_task(REF)
    work = ChunkedEvaluation(load(REF), task, {"domain": task.size}, chunk=100, keep=10)
    state = JournalState().with_chunks(range(4, 8), {"domain": RowCounts()}, work)
    for again in (range(4, 8), range(7, 9), range(0, 5)):
        with pytest.raises(AssertionError) as caught:
            state.with_chunks(again, {"domain": RowCounts()}, work)
        assert str(max(again.start, 4)) in str(caught.value)


class Client:
    """A fake Dask client in this process; the first `killed` submissions fail."""

    def __init__(self, killed=0):
        self.killed, self.begun = killed, []

    def __enter__(self):
        return self

    def __exit__(self, *_): ...

    def nthreads(self):
        return {"a": 1}

    def submit(self, do, *given, key):
        future = Future(key)
        if do is not far._identity:
            self.begun.append(given[-1])
            if self.killed:
                self.killed -= 1
                future.error = KilledWorker("a")
                return future
        future.value = do(*(g.value if isinstance(g, Future) else g for g in given))
        return future


class KilledWorker(Exception):
    pass


class Future:
    status = "finished"

    def __init__(self, key):
        self.key, self.error, self.value = key, None, None

    def exception(self):
        return self.error

    def result(self):
        return self.value


@pytest.fixture
def pretended(monkeypatch):
    """Replace the Dask client by a fake one."""

    def use(client):
        class Dask:
            TimeoutError = TimeoutError
            CancelledError = InterruptedError

            @staticmethod
            def wait(futures, patience, how):
                return type("", (), {"done": futures[:1]})

        Dask.KilledWorker = KilledWorker
        monkeypatch.setattr(far, "_dask", lambda: Dask)
        monkeypatch.setattr(far, "_connect", lambda dask, address: client)
        return client

    return use


def test_a_cluster_agrees_with_one_process(pretended):
    client, task = pretended(Client()), load_task(REF)
    expected = verify(weakened(), task, chunk=100)
    assert same(verify(weakened(), task, chunk=100, cluster="tcp://x"), expected)
    assert sum(map(len, client.begun)) == 100 and expected.wrong
    options = {"sample": 3_000, "chunk": 100, "search": 2, "seed": 3}
    sampled = verify(weakened(), task, cluster="tcp://x", **options)
    assert same(sampled, verify(weakened(), task, **options))


def test_a_piece_whose_worker_dies_is_done_again_and_counted_once(pretended):
    client, task = pretended(Client(killed=2)), load_task(REF)
    expected = verify(weakened(), task, chunk=100)
    assert same(verify(weakened(), task, chunk=100, cluster="tcp://x"), expected)
    assert len(client.begun) == -(-100 // chunks.CHUNKS_PER_CLUSTER_JOB) + 2


def test_a_piece_that_no_worker_survives_ends_it_and_a_journal_has_the_rest(
    pretended, tmp_path, monkeypatch
):
    monkeypatch.setattr(chunks, "CHUNKS_PER_CLUSTER_JOB", 8)
    task, path = load_task(REF), tmp_path / "v.journal"
    pretended(client := Client())
    events = verify_events(weakened(), task, chunk=100, cluster="tcp://x", journal=path)
    assert isinstance(last := next(events), Progress)
    client.killed = 99
    with raises("bad_argument", "tcp://x", "KilledWorker: a"):
        for event in events:
            last = event
    assert json.loads(path.read_text())["found"]["domain"]["looked_at"] == last.done < 10_000
    client.killed = 0
    again = verify(weakened(), task, chunk=100, cluster="tcp://x", journal=path)
    assert same(again, verify(weakened(), task, chunk=100))


class Leaving(Client):
    """A client whose scheduler dies after `left` calls."""

    def __init__(self, left):
        super().__init__()
        self.left = left

    def asked(self):
        self.left -= 1
        if self.left < 0:
            raise OSError("Timed out trying to connect to tcp://x after 5 s")

    def nthreads(self):
        self.asked()
        return super().nthreads()

    def submit(self, do, *given, key):
        self.asked()
        future = super().submit(do, *given, key=key)
        future.exception = lambda: self.asked() or future.error
        future.result = lambda: self.asked() or future.value
        return future


def test_a_scheduler_that_dies_at_any_moment_is_one_line(pretended):
    """The error is the same at any moment, and finished pieces are kept."""
    errors, done = [], []
    while len(done) < 3:
        pretended(Leaving(len(errors)))
        done = []
        try:
            for piece, result in map_pieces(
                [1, 2, 3], lambda shared, x: x * 10, None, cluster="tcp://x"
            ):
                assert result == piece * 10
                done.append(piece)
        except GlassformerError as e:
            errors.append(str(e))
    assert len(errors) > 10 and len(set(errors)) == 1 and errors[0].startswith("tcp://x — ")


def test_a_scheduler_that_dies_leaves_a_journal(pretended, tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNKS_PER_CLUSTER_JOB", 32)
    task, path = load_task(REF), tmp_path / "v.journal"
    pretended(Leaving(12))
    with raises("file_error", "tcp://x", "journal"):
        verify(weakened(), task, chunk=100, cluster="tcp://x", journal=path)
    assert 0 < json.loads(path.read_text())["found"]["domain"]["looked_at"] < 10_000
    again = verify(weakened(), task, chunk=100, journal=path)
    assert same(again, verify(weakened(), task, chunk=100))


def test_a_piece_that_was_cancelled_has_not_failed(pretended):
    """Tasks cancelled by a leaving scheduler are not failures."""

    class Cancelling(Client):
        def submit(self, do, *given, key):
            future = super().submit(do, *given, key=key)
            future.error = None if do is far._identity else InterruptedError("cancelled")
            return future

    pretended(Cancelling())
    with raises("file_error", "tcp://x"):
        list(map_pieces([1, 2], lambda shared, piece: piece, None, cluster="tcp://x"))


def test_a_piece_may_fail_as_a_lost_connection_does(pretended):
    """An OSError of a piece is not taken for a lost connection."""

    class Failing(Client):
        def submit(self, do, *given, key):
            future = super().submit(do, *given, key=key)
            future.error = None if do is far._identity else OSError("disk full")
            return future

    pretended(Failing())
    results = list(map_pieces([1, 2], lambda shared, piece: piece, None, cluster="tcp://x"))
    assert [(piece, str(e)) for piece, e in results] == [(1, "disk full"), (2, "disk full")]


def test_a_cluster_without_workers_is_one_line(pretended, monkeypatch):
    monkeypatch.setattr(far, "NO_WORKER_TIMEOUT_S", -1)
    pretended(client := Client())
    client.nthreads = dict
    monkeypatch.setattr(far._dask(), "wait", lambda *_: type("", (), {"done": ()}))
    with raises("bad_argument", "tcp://x", "workers"):
        list(map_pieces([1], lambda shared, piece: piece, None, cluster="tcp://x", resume_hint="x"))


def test_a_worker_of_another_kind_is_refused(pretended, monkeypatch):
    pretended(Client())
    mine = chunks.versions("float64")
    reported = iter([mine])  # here; then a worker's
    other = mine | {"numpy": "1.0"}
    monkeypatch.setattr(chunks, "versions", lambda dtype: next(reported, other))
    with raises("bad_argument", "tcp://x", "numpy", "1.0"):
        verify(load(REF), load_task(REF), chunk=100, cluster="tcp://x")


def test_what_cannot_be_sent_is_said(pretended):
    pretended(Client())
    with raises("bad_argument", "hook"):
        verify(load(REF), load_task(REF), cluster="tcp://x", hook=lambda name, value: value)
    with raises("bad_argument", "workers", "cluster"):
        verify(load(REF), load_task(REF), cluster="tcp://x", workers=2)


def test_the_command(call, monkeypatch):
    monkeypatch.setattr(far, "WAIT_SECONDS", 0.5)
    status, out, err = call("verify", REF, "--cluster", "tcp://127.0.0.1:1", "--workers", 2)
    assert (status, out) == (2, "") and "workers" in err and "cluster" in err
    monkeypatch.setitem(sys.modules, "distributed", None)
    status, out, err = call("verify", REF, "--cluster", "tcp://127.0.0.1:1")
    assert (status, out) == (2, "") and "pip install" in err


def held(folder, do):
    """Wrap a worker function: it creates a file `begun-PID`, then waits for a file `go`."""

    def wait(work, chunks):
        Path(folder, f"begun-{os.getpid()}").touch()
        while not Path(folder, "go").exists():
            time.sleep(0.02)
        return do(work, chunks)

    return wait


# 0: the scheduler fails a task when its worker dies, and it is submitted again
@pytest.mark.slow
@pytest.mark.parametrize("dask_cluster", [0], indirect=True)
def test_a_killed_worker_of_a_real_cluster(dask_cluster, tmp_path, call, monkeypatch):
    from distributed import Client as DaskClient

    address, workers = dask_cluster
    monkeypatch.setattr(far, "WAIT_SECONDS", PATIENCE)
    monkeypatch.setattr(far, "CONNECT_TIMEOUT_S", PATIENCE)
    monkeypatch.setattr(chunks, "_count_chunks", held(tmp_path, chunks._count_chunks))
    monkeypatch.setattr(chunks, "CHUNKS_PER_CLUSTER_JOB", 8)
    result: list[Progress | Verdict] = []

    def read():
        result.extend(verify_events(weakened(), load_task(REF), chunk=100, cluster=address))

    reader = threading.Thread(target=read, daemon=True)
    with DaskClient(address, timeout=PATIENCE, set_as_default=False) as monitor:
        monitor.wait_for_workers(2, timeout=PATIENCE)
    reader.start()
    wait_for(lambda: (tmp_path / f"begun-{workers['a'].pid}").exists())
    workers["a"].kill()
    workers["a"].wait()
    (tmp_path / "go").touch()
    reader.join(PATIENCE)
    assert same(result[-1], verify(weakened(), load_task(REF), chunk=100))
    # and by the command, on the worker that is left
    status, out, output = call("verify", "addition:digits=2", "--cluster", address, "--json")
    got = json.loads(out)
    assert (status, output) == (0, "") and (got["checked"], got["wrong"]) == (10_000, 0)
