"""Sweeps: what a spec says, what is skipped, what becomes of failures, and of processes and
workers that are killed.
"""

import csv
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from glassformer import load, load_task
from glassformer.training import fit
from glassformer.training.data import TrainingData
from glassformer.training.full_domain_phase import SAMPLED_ROWS, DomainCheck, FullDomainPhase
from glassformer.training.recipes import choose_recipe
from glassformer.training.studies import sweep as sweeps
from glassformer.training.studies.sweep import Sweep, train_job, train_jobs
from glassformer.training.studies.sweep_spec import read_spec
from glassformer.utils import dask_pool as far
from glassformer.utils import workers
from glassformer.utils.errors import GlassformerError
from helpers import PATIENCE, Held, own_children, raises, wait_for

TINY = """
task = "addition:digits=1"
recipe = "fast"
seeds = [0, 1]
{top}
[set]
n_layers = 1
d_model = 8
d_mlp = 8
steps = {steps}
stable = 0
evaluate_every = 10
train_rows = 90
test_rows = 20
batch = 16
{set}
"""


@pytest.fixture
def spec_file(tmp_path):
    def write(text="", top="", set="", steps=20, name="spec.toml"):
        path = tmp_path / name
        path.write_text(TINY.format(top=top, set=set, steps=steps) + text)
        return path

    return write


def here(jobs):
    """Trains in this process: starting others takes seconds."""
    return (train_job(load_task, job) for job in jobs)


def sweep_of(path, out):
    return Sweep(read_spec(path, load_task), out)


def table(out):
    with open(Path(out, "results.csv"), newline="") as f:
        return list(csv.DictReader(f))


# ── specs ──────────────────────────────────────────────────────────────────────────────────────
def test_runs_are_the_product(spec_file):
    path = spec_file("[grid]\nn_heads = [1, 2, 4]\nlr = [0.003, 1]")
    spec = read_spec(path, load_task)
    assert [(j.recipe.n_heads, j.recipe.lr, j.seeds) for j in spec.jobs] == [
        (h, lr, (s,)) for h in (1, 2, 4) for lr in (0.003, 1.0) for s in (0, 1)
    ]
    assert spec.varied_fields == ("n_heads", "lr") and {j.recipe.d_model for j in spec.jobs} == {8}
    several = (
        'task = ["reverse", "addition"]\nrecipe = ["book", "fast"]\nensemble = true\nseeds = [3, 5]'
    )
    path.write_text(several)
    assert [(j.task, j.recipe.name, j.seeds) for j in read_spec(path, load_task).jobs] == [
        (t, r, (3, 5)) for t in ("reverse", "addition") for r in ("book", "fast")
    ]


def test_ids_are_of_settings_not_of_how_they_are_written(spec_file):
    def ids(path):
        return [j.id(s) for j in read_spec(path, load_task).jobs for s in j.seeds]

    written = ids(spec_file("[grid]\nlr = [1]"))
    assert ids(spec_file(set="lr = 1.0", top="ensemble = true")) == written
    everything = [
        *written,
        *ids(spec_file("[grid]\nlr = [2, 3]\nfocal = [0, 1]")),
        *ids(spec_file(steps=21)),
    ]
    assert len(set(everything)) == 2 + 8 + 2


@pytest.mark.parametrize("name,setting", [
    ("grok-fast", "train_rows=300"), ("grok-fast", "train_fraction=0.3"),
    ("grok-fast", "data='draw'"),
    ("grok", "data='all'"), ("auto", "data='draw'"), ("auto", "data='split'"),
])  # fmt: skip
@pytest.mark.parametrize("table", ["set", "grid"])
def test_a_field_of_a_spec_does_what_set_does(tmp_path, name, setting, table):
    """Above all: so many rows are so many, whatever share of them the recipe would take."""
    path, (field, _, value) = tmp_path / "spec.toml", setting.partition("=")
    by_name = {
        "set": f"{field} = {value}\nbatch = 64",
        "grid": f"{field} = [{value}]\nbatch = [64]",
    }
    top = f'task = "modular-addition:p=59"\nrecipe = "{name}"'
    path.write_text(f"{top}\n[{table}]\n{by_name[table]}")
    (job,) = read_spec(path, load_task).jobs
    typed = {field: value.replace("'", ""), "batch": "64"}
    assert job.recipe == choose_recipe(name, load_task(job.task)).override(typed)


def test_rows_of_a_grid_are_what_is_trained_on(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text('task = "modular-addition:p=59"\nrecipe = "grok-fast"\n'
                    "[grid]\ntrain_rows = [300, 900]")  # fmt: skip
    few, many = read_spec(path, load_task).jobs
    trained = [len(TrainingData(load_task(j.task), j.recipe).train_rows) for j in (few, many)]
    assert trained == [300, 900]


def test_suited_is_what_suits_each_task(tmp_path):
    path, tasks = tmp_path / "spec.toml", ["addition:digits=1", "modular-addition:p=59", "reverse"]
    path.write_text(f'task = {tasks}\nrecipe = ["auto", "fast"]\n[set]\nsteps = 7')
    jobs = read_spec(path, load_task).jobs
    recipes = [choose_recipe(name, load_task(t)) for t in tasks for name in ("", "fast")]
    assert [j.recipe for j in jobs] == [r.override({"steps": 7}) for r in recipes]
    assert jobs[0].recipe.name == "auto"
    assert len({str(j.recipe) for j in jobs if j.recipe.name == "auto"}) == 3


TOP = 'task = "addition"\nrecipe = "fast"\n'


@pytest.mark.parametrize("text,mentions", [
    ("seeds = [0,\ntask", ("line 2",)),
    (TOP + "[grid]", ("[grid]",)),
    (TOP + "grid = 3", ("grid", 3)),
    (TOP + "[[set]]\nlr = 1\n[[set]]\nlr = 2", ("[set]", "'lr': 2")),
    (TOP + "[grid]\nlr = []", ("lr", "[grid]", "[]")),
    (TOP + "[grid]\nlr = 1", ("lr", "[grid]", 1)),
    (TOP + "[grid]\nlr = [1, 1.0]", ("lr", "[1, 1.0]")),
    (TOP + "[set]\nlr = 1\n[grid]\nlr = [2]", ("lr", "[set]", "[grid]")),
    (TOP + "[set]\nlr = nan", ("lr", "nan")),
    (TOP + "[set]\nd_model = 0", ("d_model", 0)),
    (TOP + '[set]\noptional_params = "nrms"', ("optional_params", "nrms")),
    (TOP + "seeds = [1, 1]", ("seeds", "[1, 1]")),
    (TOP + "seeds = [0, -1]", ("seeds", -1)),
    (TOP + "seeds = [true]", ("seeds", "[True]")),
    (TOP + "ensemble = 1", ("ensemble", 1)),
    ('task = []\nrecipe = "fast"', ("task", "[]")),
    ('task = "addition:digits=99"\nrecipe = "fast"', ("digits", 99)),
    ("", ("task", "recipe")),
])  # fmt: skip
def test_bad_specs(tmp_path, text, mentions):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with raises("bad_argument", path, *mentions):
        read_spec(path, load_task)


def test_all_problems_at_once(tmp_path):
    path = tmp_path / "bad.toml"
    top = 'task = "adition"\nrecipe = "fsat"\nsedes = [1]'
    path.write_text(top + '\n[set]\nlrr = 1\nsteps = "x"\n[grid]\nlr = [1, true]')
    with pytest.raises(GlassformerError) as error:
        read_spec(path, load_task)
    text = str(error.value)
    assert text.startswith(f"{path} — ") and len(text.split("; ")) >= 6
    for part in ("adition — no such task; did you mean "
                 "addition", "fsat — no such recipe; did you mean fast",
                 "sedes — no such key; did you mean seeds?", "lrr — no such field; did you mean lr",
                 "steps must be a whole number from 1 to 1,000,000,000, got "
                 "'x'", "lr must be a finite number from 0, got True"):  # fmt: skip
        assert part in text


def test_too_many_runs_are_refused_before_they_are_made(tmp_path):
    path = tmp_path / "big.toml"
    lists = "\n".join(
        f"{name} = {list(range(1, 101))}"
        for name in ("steps", "warmup", "batch", "d_mlp", "d_model")
    )
    path.write_text(f'task = "addition"\nrecipe = "fast"\n[grid]\n{lists}')
    with raises("bad_argument", "10,000,000,000", "--limit 10000000000"):
        read_spec(path, load_task)
    path.write_text('task = "addition"\nrecipe = "fast"\nseeds = [1, 2, 3]')
    assert len(read_spec(path, load_task, limit=3).jobs) == 3
    with raises("bad_argument", 3, 2):
        read_spec(path, load_task, limit=2)


# ── results ────────────────────────────────────────────────────────────────────────────────────
def test_results_are_those_of_single_runs_and_a_second_start_skips_them(spec_file, tmp_path):
    path = spec_file("[grid]\nd_head = [10, 20]", top="models = true")
    first = sweep_of(path, tmp_path)
    half = first.collect(here(first.left))
    done = [next(half), next(half)]  # and then it is interrupted
    assert [r["id"] for r in done] == [r["id"] for r in table(tmp_path)]
    second = sweep_of(path, tmp_path)
    assert len(second.left) == 2 and not {j.id(j.seeds[0]) for j in second.left} & {
        r["id"] for r in done
    }
    list(second.collect(here(second.left)))
    rows = table(tmp_path)
    assert [(r["d_head"], r["seed"]) for r in rows] == [
        ("10", "0"),
        ("10", "1"),
        ("20", "0"),
        ("20", "1"),
    ]
    third = sweep_of(path, tmp_path)
    assert not third.left and table(tmp_path) == rows
    job = third.spec.jobs[2]
    alone = fit(load_task(job.task), job.recipe, 0)
    assert (
        float(rows[2]["accuracy"]) == alone.accuracy
        and rows[2]["last_step"] == "20"
        and rows[2]["status"] == "done"
    )
    kept = load(str(tmp_path / "runs" / f"{rows[2]['id']}.safetensors"))
    assert (kept.weights["embed.W_E"] == alone.model.weights["embed.W_E"]).all()
    stored = json.loads((tmp_path / "runs" / f"{rows[2]['id']}.json").read_text())
    assert stored["recipe"] == job.recipe.to_json() and [h["step"] for h in stored["history"]] == [
        10,
        20,
    ]
    # what is damaged, or lacks its model, is done again
    (tmp_path / "runs" / f"{rows[0]['id']}.json").write_text('{"id"')
    (tmp_path / "runs" / f"{rows[3]['id']}.safetensors").unlink()
    assert [j.id(j.seeds[0]) for j in sweep_of(path, tmp_path).left] == [
        rows[0]["id"],
        rows[3]["id"],
    ]


def test_an_ensemble_trains_the_seeds_that_are_missing(spec_file, tmp_path):
    path = spec_file()
    one = sweep_of(path, tmp_path)
    list(one.collect(here(one.left[:1])))
    path.write_text(
        path.read_text().replace("seeds = [0, 1]", "seeds = [0, 1, 2]\nensemble = true")
    )
    more = sweep_of(path, tmp_path)
    assert [j.seeds for j in more.left] == [(1, 2)]
    assert [row["seed"] for row in more.collect(here(more.left))] == [1, 2]
    assert [r["seed"] for r in table(tmp_path)] == ["0", "1", "2"]


def test_a_run_that_fails_is_a_row(spec_file, tmp_path):
    path = spec_file("[grid]\nlr = [1e30, 0.001]\ndata = ['split', 'draw']")
    path.write_text(
        path.read_text().replace("test_rows = 20", "test_rows = 200").replace("[0, 1]", "[0]")
    )
    sweep = sweep_of(path, tmp_path)
    list(sweep.collect(here(sweep.left)))
    rows = {(r["lr"], r["data"]): r for r in table(tmp_path)}
    assert {k: r["status"] for k, r in rows.items()} == {
        ("1e+30", "split"): "refused", ("1e+30", "draw"): "diverged", ("0.001", "split"): "refused",
        ("0.001", "draw"): "done",
    }  # fmt: skip
    assert "training diverged at step" in rows["1e+30", "draw"]["error"]
    assert "200 test_rows" in rows["0.001", "split"]["error"]
    assert not rows["0.001", "draw"]["error"]
    assert not sweep_of(path, tmp_path).left  # it would fail again


def test_a_run_lost_through_no_fault_of_its_own_is_done_again(spec_file, tmp_path, monkeypatch):
    def no_memory(*_):
        raise MemoryError("too little")

    path = spec_file()
    sweep = sweep_of(path, tmp_path)
    with monkeypatch.context() as m:
        m.setattr(sweeps, "train", no_memory)
        list(sweep.collect(here(sweep.left)))
    assert [(r["status"], r["error"]) for r in table(tmp_path)] == [
        ("lost", "MemoryError: too little")
    ] * 2
    assert len(sweep_of(path, tmp_path).left) == 2


def test_what_fails_again_and_again_is_given_up_with_its_reason(
    spec_file, tmp_path, call, monkeypatch
):
    path, out = spec_file(), tmp_path / "out"
    monkeypatch.setattr(sweeps, "train_jobs", lambda jobs, *_: (j.lost("no memory") for j in jobs))
    for _ in range(sweeps.MAX_TRIES - 1):
        status, _, output = call("sweep", path, "--out", out)
        assert status == 2 and "2 runs are lost" in output
    for _ in range(2):  # the second has nothing left to do, and says the same
        status, _, output = call("sweep", path, "--out", out)
        assert status == 2 and output.count("\n") == 1, output
        assert "2 runs are given up" in output and "no memory" in output and str(out) in output
        assert [(r["status"], r["error"]) for r in table(out)] == [("given up", "no memory")] * 2
        monkeypatch.setattr(
            sweeps, "train_jobs", lambda jobs, *_: pytest.fail("nothing is tried for ever")
        )
    sweep = sweep_of(path, out)
    (out / "runs" / f"{sweep.order[0]}.json").unlink()
    assert [j.seeds for j in sweep_of(path, out).left] == [(0,)]


def test_a_damaged_result_is_trained_again(spec_file, tmp_path):
    path = spec_file()
    sweep = sweep_of(path, tmp_path)
    list(sweep.collect(here(sweep.left)))
    file = tmp_path / "runs" / f"{sweep.order[0]}.json"
    row = json.loads(file.read_text())
    for wrong in (
        {"accuracy": "high"},
        {"steps": -1},
        {"recipe": []},
        {"seed": 1},
        {"status": None},
        {"more": 1},
        {"id": "0" * 12},
        {"error": 10_000_000 * "x"},
        {"task": "reverse"},
    ):
        file.write_text(json.dumps(row | wrong))
        assert [j.seeds for j in sweep_of(path, tmp_path).left] == [(0,)], wrong
    file.write_text(json.dumps(row))
    assert not sweep_of(path, tmp_path).left


def test_the_document_has_every_status():
    text = Path(__file__).parents[2].joinpath("docs/sweeps.md").read_text("utf-8")
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    names = {word for row in rows for word in re.findall("`([^`]+)`", row)}
    ends = {"done", "stable", "aborted", "diverged"}  # in loop.py
    for digits in (1, 10):
        task = load_task(f"addition:digits={digits}")
        for look in (DomainCheck(1, 100), DomainCheck(0, 100), DomainCheck(0, 100, SAMPLED_ROWS)):
            ends.add(
                FullDomainPhase(
                    task, seed=0, start_step=0, held_out_accuracy=1.0, last_check=look
                ).status
            )
    assert len(ends) == 7 and ends | {*sweeps.FAILED, sweeps.LOST} <= names


# ── processes and workers that are killed ──────────────────────────────────────────────────────
def test_a_run_that_kills_its_process_takes_no_other_along(spec_file, tmp_path, monkeypatch):
    """Each process is a pool of its own. Those that were killed are replaced."""
    pools = []

    class Pool:
        def __init__(self, n, *_, **__):
            pools.append(self)
            self.size, self.broken = n, False

        def submit(self, do, job):
            future = Future()
            self.broken |= job.recipe.n_heads == 1
            future.set_exception(BrokenProcessPool()) if self.broken else future.set_result(
                job.lost("survived")
            )
            return future

        _processes = None

        def shutdown(self, **_): ...

    monkeypatch.setattr(workers, "ProcessPoolExecutor", Pool)
    jobs = sweep_of(spec_file("[grid]\nn_heads = [1, 2, 4]"), tmp_path).left
    by_name = {
        row["recipe"]["n_heads"]: row["error"]
        for result in train_jobs(jobs, load_task, 4)
        for row, _ in result
    }
    assert by_name == {1: "its process was killed, 3 times", 2: "survived", 4: "survived"}
    assert {pool.size for pool in pools} == {1}
    assert sum(pool.broken for pool in pools) == 6  # each of the two runs with one head, 3 times


@pytest.mark.slow
def test_a_killed_process_is_replaced(spec_file, tmp_path):
    sweep = sweep_of(spec_file("[grid]\nn_heads = [1, 2]"), tmp_path)
    killed, mine = [], own_children()

    def kill():
        wait_for(lambda: list(tmp_path.glob("begun-*")))  # and it does not end before `go`
        (child,) = mine()
        os.kill(child.pid, signal.SIGKILL)
        killed.append(child.pid)
        (tmp_path / "go").touch()

    killer = threading.Thread(target=kill)
    killer.start()
    rows = list(sweep.collect(train_jobs(sweep.left, Held(tmp_path), workers=1)))
    killer.join()
    (pid,) = {int(r["worker"].rpartition(":")[2]) for r in rows}
    assert killed and pid not in killed
    assert Counter(r["id"] for r in rows) == Counter(sweep.order) and {
        r["status"] for r in table(tmp_path)
    } == {"done"}
    assert not mine()


@pytest.mark.slow
def test_an_interrupted_sweep_ends_its_own_processes_only(spec_file, tmp_path):
    sweep, mine = sweep_of(spec_file(), tmp_path), own_children()
    results = train_jobs(sweep.left, load_task, workers=1)
    next(results)
    (worker,) = mine()
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(PATIENCE,))
    other.start()  # another thread's, say
    results.close()
    try:
        assert mine() == [other] and not worker.is_alive()
    finally:
        other.kill()
        other.join()


# The sweep stops after its first result and waits to be killed: its process has others to train.
KILLED = """
import time
import glassformer.cli as c, glassformer.cli.sweep
from glassformer.training.studies.sweep import Sweep

collect = Sweep.collect

def first(self, results):
    yield next(collect(self, results))
    while True:
        time.sleep(1)

Sweep.collect = first
if __name__ == "__main__":
    c.main()
"""


@pytest.mark.slow
def test_a_killed_sweep_takes_its_processes_along_and_goes_on(spec_file, tmp_path, call):
    path, out = spec_file("[grid]\nn_heads = [1, 2, 4]", steps=100), tmp_path / "out"
    script = tmp_path / "run.py"
    script.write_text(KILLED)
    words = [sys.executable, script, "sweep", path, "--out", out, "--workers", "1"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: list(out.glob("runs/*.json")))
        process.kill()
    before = {p: p.stat().st_mtime_ns for p in out.glob("runs/*.json")}
    pid = int(json.loads(next(iter(before)).read_text())["worker"].rpartition(":")[2])
    wait_for(lambda: not alive(pid))
    status, printed, _ = call("sweep", path, "--out", out, "--workers", 2, "--json")
    got = json.loads(printed)
    assert (status, got["skipped"], got["runs"], got["lost"]) == (0, 1, 6, 0)
    assert len(got["results"]) == 6
    assert before == {p: p.stat().st_mtime_ns for p in before}


# 0: the scheduler gives a run up when its worker dies, and we hand it in again; 3, the default: the
# scheduler does
@pytest.mark.slow
@pytest.mark.parametrize("dask_cluster", [0, 3], indirect=True)
def test_a_killed_worker_loses_its_runs_to_another(
    dask_cluster, spec_file, tmp_path, call, monkeypatch
):
    from distributed import Client

    address, workers = dask_cluster
    monkeypatch.setattr(far, "WAIT_SECONDS", PATIENCE)
    monkeypatch.setattr(far, "CONNECT_TIMEOUT_S", PATIENCE)
    path, out = spec_file("[grid]\nn_heads = [2, 4]\nlr = [0.001, 0.002]"), tmp_path / "out"
    sweep, done = sweep_of(path, out), []
    rows = sweep.collect(train_jobs(sweep.left, held(tmp_path), 1, address))
    reader = threading.Thread(target=lambda: done.extend(rows), daemon=True)
    with Client(address, timeout=PATIENCE, set_as_default=False) as monitor:
        monitor.wait_for_workers(2, timeout=PATIENCE)
        reader.start()
        wait_for(
            lambda: (tmp_path / f"begun-{workers['a'].pid}").exists()
        )  # and it does not end before `go`
        names = {a: w["name"] for a, w in monitor.scheduler_info(n_workers=-1)["workers"].items()}
        begun = {
            key[:12] for a, keys in monitor.processing().items() if names[a] == "a" for key in keys
        }
        workers["a"].kill()
        workers["a"].wait()
        (tmp_path / "go").touch()
        reader.join(PATIENCE)
    assert begun and {r["worker"].rpartition(":")[2] for r in done} == {str(workers["b"].pid)}
    assert Counter(r["id"] for r in done) == Counter(sweep.order)
    assert [r["id"] for r in table(out)] == sweep.order and {r["status"] for r in table(out)} == {
        "done"
    }
    # started again with one seed more, it trains that one only
    path.write_text(
        path.read_text().replace("seeds = [0, 1]", "seeds = [0, 1, 2]").replace("[2, 4]", "[4]")
    )
    status, printed, output = call("sweep", path, "--out", out, "--cluster", address, "--json")
    got = json.loads(printed)
    assert (status, output) == (0, "") and (got["runs"], got["skipped"], got["lost"]) == (6, 4, 0)
    # and when no worker is left it says so
    workers["b"].kill()
    with Client(address, timeout=PATIENCE, set_as_default=False) as monitor:
        wait_for(lambda: not monitor.nthreads())
    monkeypatch.setattr(far, "CONNECT_TIMEOUT_S", 0.1)  # none will come, however long one waits
    path.write_text(path.read_text().replace("seeds = [0, 1, 2]", "seeds = [4]"))
    status, printed, output = call("sweep", path, "--out", out, "--cluster", address)
    assert (status, printed, output) == (2, "", f"error: {address} — the cluster has no workers\n")


def held(folder):
    """A load_task by which a worker says that it has begun a run, and then waits for a file
    named `go`.
    """

    def load(ref):
        Path(folder, f"begun-{os.getpid()}").touch()
        while not Path(folder, "go").exists():
            time.sleep(0.02)
        return load_task(ref)

    return load


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# ── the command ────────────────────────────────────────────────────────────────────────────────
def test_the_command_prints_the_table(spec_file, tmp_path, call, monkeypatch):
    monkeypatch.setattr(sweeps, "train_jobs", lambda jobs, *_: here(jobs))
    path = spec_file("[grid]\nlr = [1e30, 0.001]", name="tiny.toml")
    status, printed, output = call("sweep", path)
    lines = printed.splitlines()
    assert (status, output) == (0, "") and lines[0].split()[3:6] == ["lr", "seed", "status"]
    assert "diverged" in printed and lines[-1].startswith(
        "4 runs, 0 skipped, 2 failed, 0 lost; in "
    )
    assert len(table(tmp_path / "tiny-sweep")) == 4
    got = json.loads(call("sweep", path, "--json")[1])
    assert got["skipped"] == got["runs"] == 4 and [r["lr"] for r in got["results"]] == [
        1e30,
        1e30,
        0.001,
        0.001,
    ]


def test_lost_runs_are_status_2(spec_file, call, monkeypatch):
    monkeypatch.setattr(sweeps, "train_jobs", lambda jobs, *_: (j.lost("gone") for j in jobs))
    status, _, output = call("sweep", spec_file())
    assert status == 2 and output.startswith("error: 2 runs are lost")


def test_bad_calls_are_one_line_and_status_2(spec_file, tmp_path, call, monkeypatch):
    monkeypatch.setattr(far, "WAIT_SECONDS", 0.5)
    path = spec_file()
    blocked = tmp_path / "file"
    blocked.write_text("")
    for words, says in [
        ((tmp_path / "no.toml",), "no.toml"),
        ((tmp_path,), str(tmp_path)),
        ((path, "--limit", 1), "--limit 2"),
        ((path, "--workers", 0), "workers"),
        ((path, "--workers", 2, "--cluster", "tcp://127.0.0.1:1"), "workers"),
        ((path, "--out", blocked), str(blocked)),
    ]:
        status, printed, output = call("sweep", *words)
        assert (status, printed) == (2, "") and says in output and output.count("\n") == 1, output


@pytest.mark.parametrize("mute", [False, True])
def test_a_cluster_that_is_not_there(spec_file, call, monkeypatch, mute):
    import socket

    pytest.importorskip("distributed")
    monkeypatch.setattr(far, "WAIT_SECONDS", 0.5)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        if mute:  # something that accepts and says nothing
            other.listen()
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        status, printed, output = call("sweep", spec_file(), "--cluster", address)
    assert (status, printed) == (2, "")
    assert (
        output.startswith(f"error: {address} — no Dask cluster there: ") and output.count("\n") == 1
    )
