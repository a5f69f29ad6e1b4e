"""What tests of the command line share."""

import sys

import pytest

from glassformer.cli import main


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
