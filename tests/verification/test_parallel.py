"""Verdicts with several processes, interruptions and journals equal those of one process."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from glassformer import load, load_task
from glassformer.utils import workers
from glassformer.verification import Progress, Verdict, chunks, verify, verify_events
from glassformer.verification import resume_log as journals
from glassformer.verification.counts import RowCounts
from helpers import own_children, raises, random_model, wait_for

REF = "addition:digits=2"


def weakened(by: float = 0.02):
    """Return an adder in which the digit 7 is slightly too large: some pairs are wrong."""
    model = load(REF)
    weights = {n: w.copy() for n, w in model.weights.items()}
    weights["embed.W_E"][7] *= 1 + by
    return replace(model, weights=weights)


@pytest.fixture(scope="module")
def task():
    return load_task(REF)


@pytest.fixture(scope="module")
def expected(task):
    verdict = verify(weakened(), task, chunk=100)
    assert 0 < verdict.wrong < 10_000 and len(verdict.classes) > 1
    return verdict


def same(a, b):
    return a.to_json() == b.to_json()


def test_workers_agree_with_one_process(task, expected):
    assert same(verify(weakened(), task, chunk=100, workers=2), expected)


@pytest.mark.slow
def test_a_sample_is_the_same_in_other_processes(task):
    options = {"sample": 9_000, "chunk": 100, "search": 2, "seed": 3}
    assert same(verify(weakened(), task, workers=2, **options), verify(weakened(), task, **options))


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(task, expected):
    mine = own_children()
    events = verify_events(weakened(), task, chunk=100, workers=2)
    assert isinstance(next(events), Progress)
    victim, *_ = mine()
    os.kill(victim.pid, signal.SIGKILL)
    assert same(list(events)[-1], expected) and victim not in mine()


@pytest.mark.slow
def test_what_no_worker_survives_ends(task, monkeypatch):
    """Workers that die at their start are an error after a few attempts."""
    monkeypatch.setattr(workers, "_start_worker", len)
    monkeypatch.setattr(workers, "MAX_ATTEMPTS", 2)
    monkeypatch.setattr(chunks, "MAX_ATTEMPTS", 2)
    with raises("bad_argument", "workers=2"):
        verify(load(REF), task, chunk=100, workers=2)


def test_what_cannot_be_sent_is_said(task):
    class Local(type(task)):
        pass

    with raises("bad_argument", "workers=2", "Local"):
        verify(load(REF), Local(2), chunk=100, workers=2)
    with raises("bad_argument", "hook"):
        verify(load(REF), task, chunk=100, workers=2, hook=lambda name, value: value)


def test_workers_leave_with_their_parent(tmp_path):
    """Also if the parent is killed in the middle of long work."""
    words = ["verify", "addition:digits=4", "--all", "--workers", "2"]
    parent = subprocess.Popen(
        [sys.executable, "-m", "glassformer", *words], stdout=subprocess.DEVNULL
    )
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    if not children.exists():
        parent.kill()
        parent.wait()
        pytest.skip("needs /proc")
    workers: list[str] = []
    while len(workers) < 3 and parent.poll() is None:  # the tracker of resources and two workers
        workers = children.read_text().split()
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    assert len(workers) == 3
    wait_for(lambda: not [w for w in workers if Path(f"/proc/{w}").exists()])


# ── journals ───────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.slow
def test_resumed_is_uninterrupted(task, expected, tmp_path, workers):
    path = tmp_path / "v.journal"
    for stop in (3, 1):  # interrupted twice
        events = verify_events(weakened(), task, chunk=100, journal=path, workers=workers)
        for _ in range(stop):
            reached = next(events)
        events.close()
        assert json.loads(path.read_text())["found"]["domain"]["looked_at"] == reached.done < 10_000
    events = list(verify_events(weakened(), task, chunk=100, journal=path))
    assert events[0].done > reached.done and same(events[-1], expected)


@pytest.mark.slow
def test_a_killed_process_loses_seconds_only(task, expected, tmp_path, monkeypatch):
    path = tmp_path / "v.journal"
    monkeypatch.setattr(journals, "WRITE_INTERVAL_S", 0.0)
    events = verify_events(weakened(), task, chunk=100, journal=path)
    for _ in range(5):
        next(events)
    kept = path.read_bytes()  # what a killed process leaves
    list(events)
    path.write_bytes(kept)
    events = list(verify_events(weakened(), task, chunk=100, journal=path))
    assert len(events) == 10_000 // 100 - 5 + 1 and same(events[-1], expected)


def test_numbers_beyond_int64_are_resumed(tmp_path):
    model, path = load("adder-coupled:digits=22"), tmp_path / "v.journal"
    task, options = (
        load_task(model),
        {"sample": 60, "chunk": 20, "max_counterexamples": 2, "search": 1},
    )
    events = verify_events(model, task, journal=path, **options)
    reached = [next(events) for _ in range(task.edges().shape[0] // 20 + 2)][-1]
    events.close()
    assert max(json.loads(path.read_text())["found"]["sample"]["worst"][2]) >= 2**64
    events = list(verify_events(model, task, journal=path, **options))
    assert events[0].done > reached.done and same(events[-1], verify(model, task, **options))


@pytest.mark.parametrize("row", [(2**63 + 1, 10**3_900), (0, 1) * 6_000])
def test_what_a_journal_writes_it_reads(tmp_path, row):
    """The largest number of a row and the longest row that a verdict can store."""
    task = type("T", (), {"radix": tuple(x + 2 for x in row)})
    work = type("W", (), {"n_chunks": 1, "task": task, "rows_by_part": lambda done: {"sample": 1}})
    worst = (-1.0, 0, row)
    state = journals.JournalState((range(1),), {
        "sample": RowCounts(1, 1, 1, worst, (worst,), {"": (1, 1, -1.0)}, ((worst,), ()))
    })  # fmt: skip
    kept = journals.Journal(tmp_path / "v.journal", {})
    kept.write(state, now=True)
    assert kept.read(work) == state


def test_the_order_in_which_chunks_end_does_not_matter(task):
    work = chunks.ChunkedEvaluation(
        weakened(),
        task,
        {"edges": len(task.edges()), "sample": 500},
        chunk=100,
        keep=20,
        n_closest=3,
    )
    there, back = journals.JournalState(), journals.JournalState()
    for i in range(work.n_chunks):
        there = there.with_chunks(range(i, i + 1), work.count_chunks(range(i, i + 1)), work)
    for i in range(0, work.n_chunks, 2)[::-1]:
        pair = range(i, min(i + 2, work.n_chunks))
        back = back.with_chunks(pair, work.count_chunks(pair), work)
    assert (
        there == back
        and list(there.counts) == list(back.counts)
        and there.done == (range(work.n_chunks),)
    )
    assert len(there.counts["edges"].failures) == 20


def test_what_is_in_flight_is_not_lost_or_counted_twice(task):
    state = journals.JournalState()
    work = type("W", (), {"keep": 1, "n_closest": 0, "parts": {}})
    for r in (range(4, 6), range(0, 2), range(2, 4), range(9, 10)):
        state = state.with_chunks(r, {}, work)
    assert state.done == (range(0, 6), range(9, 10))
    assert list(state.remaining(12)) == [range(6, 9), range(10, 12)]


@pytest.mark.parametrize("other,word", [
    ({"dtype": "float32"}, "dtype"), ({"max_counterexamples": 3}, "keep"),
    ({"sample": 500}, "exhaustive"), ({"chunk": 50}, "chunk"),
])  # fmt: skip
def test_the_journal_of_another_run_is_refused(task, tmp_path, other, word):
    path = tmp_path / "v.journal"
    next(verify_events(load(REF), task, chunk=100, journal=path))
    with raises("bad_argument", path, f"{word} "):
        verify(load(REF), task, **({"chunk": 100, "journal": path} | other))


def test_the_journal_of_another_model_or_task_is_refused(task, tmp_path):
    path = tmp_path / "v.journal"
    next(verify_events(load(REF), task, chunk=100, journal=path))
    with raises("bad_argument", path, "model "):
        verify(weakened(), task, chunk=100, journal=path)
    three = load("addition:digits=3")
    path.unlink()
    next(verify_events(load(REF), task, chunk=100, journal=path))
    text = json.loads(path.read_text())
    assert text["run"]["task"] == REF
    with raises("bad_argument", path):
        next(verify_events(three, load_task(three), chunk=100, journal=path))


@pytest.mark.parametrize("damage", [
    lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"[1]", lambda b: b"\xff" + b,
    lambda b: b.replace(b'"wrong": 0', b'"wrong": 5'),
    lambda b: b.replace(b"glassformer journal", b"some other journal"),
])  # fmt: skip
def test_a_damaged_journal_is_refused(task, tmp_path, damage):
    path = tmp_path / "v.journal"
    next(verify_events(load(REF), task, chunk=100, journal=path))
    path.write_bytes(damage(path.read_bytes()))
    with raises("damaged_file", path):
        verify(load(REF), task, chunk=100, journal=path)


def test_a_journal_is_only_for_what_it_can_name(task, tmp_path):
    for other in ({"rows": np.array([[1, 2]])}, {"hook": lambda name, value: value}):
        with raises("bad_argument", "journal"):
            verify(load(REF), task, journal=tmp_path / "j", **other)


def test_the_sample_of_any_size_is_drawn_in_blocks(task, monkeypatch):
    """Each block has its own seed, so any process can draw any part."""
    monkeypatch.setattr(chunks, "SAMPLE_BLOCK_ROWS", 64)
    work = chunks.ChunkedEvaluation(load(REF), task, {"sample": 200}, chunk=50, keep=1, seed=5)
    whole = np.concatenate([work.rows("sample", a, a + 50) for a in range(0, 200, 50)])
    assert (
        np.array_equal(whole, work.rows("sample", 0, 200)) and len(np.unique(whole, axis=0)) > 190
    )
    assert np.array_equal(whole[:64], task.sample(64, np.random.default_rng(5)))


def test_memory_does_not_grow_with_the_domain(task):
    """A verdict's size does not depend on the number of rows."""
    broken = random_model(d_vocab=12, n_ctx=8, mask="causal")
    broken = replace(broken, vocabulary=task.vocabulary)
    sizes = []
    for n in (500, 10_000):
        verdict = verify(broken, task, rows=task.rows(0, n), max_counterexamples=3, chunk=100)
        sizes.append(len(json.dumps(verdict.to_json())))
        assert (
            isinstance(verdict, Verdict)
            and verdict.wrong > 0.9 * n
            and len(verdict.counterexamples) == 3
        )
    assert sizes[1] < sizes[0] * 2
