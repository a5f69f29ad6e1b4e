"""What tests of the command line share."""

import gc
import sys

import pytest

from glassformer.cli import main


def pytest_collection_finish():
    """What imports left behind stays: looking through it again and again takes a twentieth of
    the time.
    """
    gc.collect()
    gc.freeze()


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
