"""Fixtures of all tests: the command line as a call, a real browser, a real cluster."""

import gc
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import settings

from browser import launched
from glassformer import registry
from glassformer.cli.entry import main
from helpers import shelf, wait_for

if sys.dont_write_bytecode:
    # Not beside the sources, then, but not again and again either: rewriting asserts takes half of
    # the time of collecting, and every process that a test starts would compile the package anew.
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache/compiled")
    sys.dont_write_bytecode = False
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


settings.register_profile("any machine", deadline=None)  # no test measures time
settings.load_profile("any machine")


def pytest_collection_finish():
    """Exclude the objects made by imports from garbage collection, which saves 5 % of the time."""
    gc.collect()
    gc.freeze()


SHORT = 8  # values of a parameter: so few that each is among the quick cases


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """`@pytest.mark.some(n)`: of a test's cases every n-th is quick, the first one too, and those
    with a value of a short list (a float type, a command) which no other had; others are slow.
    """
    tests = defaultdict(list)
    for item in items:
        if item.get_closest_marker("some"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        n = cases[0].get_closest_marker("some").args[0]
        given = [case.callspec.indices.items() for case in cases]
        lengths = Counter(name for name, _ in set().union(*given))
        short = {name for name, most in lengths.items() if most <= SHORT}
        had = {pair for values in given[::n] for pair in values}
        for i, (case, values) in enumerate(zip(cases, given, strict=True)):
            new = {pair for pair in values if pair[0] in short} - had
            had |= new
            if i % n and not new:
                case.add_marker("slow")


@pytest.fixture(scope="session", autouse=True)
def _shelf(tmp_path_factory):
    """The processes of one run share what takes seconds: see `once` in helpers.py."""
    if "PYTEST_XDIST_WORKER" in os.environ:  # else the folder above is that of other runs too
        shelf[:] = [tmp_path_factory.getbasetemp().parent / "once"]
        shelf[0].mkdir(exist_ok=True)


@pytest.fixture(scope="module", autouse=True)
def _own_things():
    """Unregister the refs FILE.py:NAME of a test file, as other test files list the registry and
    the order of files varies.
    """
    yield
    for shelf_of_kind in registry.REGISTRY.values():
        for name in [name for name in shelf_of_kind if registry.FILE_REF.match(name)]:
            del shelf_of_kind[name]


@pytest.fixture
def call(monkeypatch, capsys):
    """call("run", "hello-world") -> (exit status, stdout, stderr)."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["glassformer", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        got = capsys.readouterr()
        return end.value.code, got.out, got.err

    return run


@pytest.fixture(scope="module")  # no longer: while Playwright runs, nothing else may have a loop
def chromium():
    """A real Chromium."""
    with launched() as browser:
        yield browser


@pytest.fixture
def dask_cluster(tmp_path, request):
    """(address, worker processes by name): a scheduler and two workers, started as one would.

    Its parameter: how many deaths of its worker the scheduler lets a piece of work survive.
    """
    pytest.importorskip("distributed")
    result = tmp_path / "scheduler.json"
    env = os.environ | {
        "OMP_NUM_THREADS": "1",
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(request.param),
    }
    started = []

    def start(what, *words):
        with open(tmp_path / "log.txt", "a") as log:
            words = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard", *words]
            started.append(subprocess.Popen(words, env=env, stdout=log, stderr=log, cwd=tmp_path))
        return started[-1]

    try:
        start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", result)
        wait_for(lambda: result.exists() and result.stat().st_size)
        address = json.loads(result.read_text())["address"]
        one_thread = (address, "--no-nanny", "--nthreads", "1", "--host", "127.0.0.1", "--name")
        yield address, {name: start("worker", *one_thread, name) for name in ("a", "b")}
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()
