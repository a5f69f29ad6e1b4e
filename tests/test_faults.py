"""Every write and many allocations of a command fail once, in turn: one line and status 2, and
nothing is lost.

A run without faults counts the calls; then each of them is made to fail in a run of its own (in the
quick suite some, and of allocations at most 40). What stood at the place that is written to is
there afterwards, or the new thing is, whole; and nothing else is left beside it.
"""

import builtins
import errno
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from glassformer import GlassformerError, load
from glassformer.cli.entry import main
from glassformer.core import checkpoint

TASK = "addition:digits=1,order=ones"
TINY = {
    "n_layers": 1,
    "d_model": 8,
    "d_mlp": 8,
    "steps": 4,
    "evaluate_every": 2,
    "data": "draw",
    "train_rows": 20,
    "test_rows": 10,
}
SET = [word for n, v in TINY.items() for word in ("--set", f"{n}={v}")]
SPEC = f'task = "{TASK}"\nrecipe = "fast"\nmodels = true\n[set]\n' + "".join(
    f"{n} = {json.dumps(v)}\n" for n, v in TINY.items()
)
OLD = b"what was there before"
ERRORS = (errno.ENOSPC, errno.EROFS, errno.EIO)


# ── faults ─────────────────────────────────────────────────────────────────────────────────────
class Faults:
    """Counts calls, and makes one of them fail."""

    def __init__(self, at: int = -1, error: BaseException | None = None) -> None:
        self.at, self.error, self.names = at, error, list[str]()

    def tick(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) - 1 == self.at and self.error:
            raise self.error

    def around(
        self, name: str, call: Callable, when: Callable[..., bool] = lambda *a, **o: True
    ) -> Callable:
        def called(*args, **options):
            if when(*args, **options):
                self.tick(name)
            return call(*args, **options)

        return called

    def open(
        self,
        file,
        mode="r",
        buffering=-1,
        encoding=None,
        errors=None,
        newline=None,
        closefd=True,
        opener=None,
    ):
        if not set(mode) & set("wax+"):
            return REAL_OPEN(file, mode, buffering, encoding, errors, newline, closefd, opener)
        if not isinstance(file, int):
            self.tick("open")
        raw = Raw(file, mode.replace("b", "").replace("t", ""), closefd, opener)
        raw.faults = self
        if buffering == 0:
            return raw
        return (
            io.BufferedWriter(raw)
            if "b" in mode
            else io.TextIOWrapper(io.BufferedWriter(raw), encoding or "utf-8")
        )


REAL_OPEN = open


class Raw(io.FileIO):
    faults: Faults

    def write(self, data):
        self.faults.tick("write")
        return super().write(data)

    def truncate(self, size=None):
        self.faults.tick("truncate")
        return super().truncate(size)


def writing(path, flags, *args, **options) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


@contextmanager
def failing_writes(faults: Faults) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", faults.around("open", os.open, writing))
        for name in ("fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "fchmod", "chmod"):
            patch.setattr(os, name, faults.around(name, getattr(os, name)))
        patch.setattr(builtins, "open", faults.open)
        patch.setattr(io, "open", faults.open)
        patch.setattr(sys.stdout, "write", faults.around("stdout", sys.stdout.write))
        patch.setattr(sys.stdout, "flush", faults.around("stdout", sys.stdout.flush))
        yield


ALLOCATING = (
    "zeros", "empty", "ones", "full", "zeros_like", "concatenate", "stack", "array", "arange",
    "where", "einsum",
    "ascontiguousarray", "unique", "take", "repeat", "tile",
)  # fmt: skip


@contextmanager
def failing_memory(faults: Faults) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ALLOCATING:
            patch.setattr(np, name, faults.around(name, getattr(np, name)))
        if torch := sys.modules.get("torch"):
            for name in ("tensor", "zeros", "empty", "stack"):
                patch.setattr(torch, name, faults.around(f"torch.{name}", getattr(torch, name)))
        yield


# ── commands ───────────────────────────────────────────────────────────────────────────────────
def is_model(path: Path) -> None:
    checkpoint.load(path)


def is_json(path: Path) -> None:
    json.loads(path.read_text(encoding="utf-8"))


def is_page(path: Path) -> None:
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>")


def is_python(path: Path) -> None:
    compile(path.read_text(encoding="utf-8"), str(path), "exec")


def is_table(path: Path) -> None:
    assert path.read_text().startswith("id,task,recipe,") and path.read_bytes().endswith(b"\n")


def is_history(path: Path) -> None:
    assert path.read_bytes().endswith(b"\n") or not path.read_bytes()
    [json.loads(line) for line in path.read_text().splitlines()]


def is_anything(path: Path) -> None:
    pass


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]
    files: dict[str, Callable[[Path], None]]  # what it writes, where something else stood before
    may_stay: tuple[str, ...] = ()  # what a run that failed leaves to go on with, and folders


COMMANDS = {
    "export": Command(("export", "add-digit", "--to", "safetensors", "--out", "a.safetensors"),
                      {"a.safetensors": is_model}),
    "export torch": Command(("export", "adder-3.safetensors", "--to", "torch", "--out", "a.py"),
                            {"a.py": is_python, "a.pt": is_anything}),
    "train": Command(("train", TASK, "--out", "a.safetensors", "--history", "h.jsonl", *SET),
                     {"a.safetensors": is_model, "h.jsonl": is_history}, ("a.run.safetensors",)),
    "verify": Command(("verify", "add-digit", "--workers", "1", "--out", "v.json"),
    {"v.json": is_json},
                      ("v.json.journal",)),
    "prove": Command(("prove", "addition:digits=1", "--method", "certificate", "--out", "c.json"),
    {"c.json": is_json}),
    "report": Command(("report", "add-digit", "--out", "r.html"), {"r.html": is_page}),
    "inspect": Command(("inspect", "repeat-last:vocab=3", "--out", "d", "--only", "tokens,ranks",
    "--figures", "svg"),
                       {"d/inspection.json": is_json}, ("d",)),
    "sweep": Command(("sweep", "s.toml", "--out", "d"), {"d/results.csv": is_table}, ("d", "d/runs",
    "s.toml")),
    "disguise": Command(("obfuscate", "add-digit", "--out", "a.safetensors", "--key", "k.json"),
                        {"a.safetensors": is_model, "k.json": is_json}),
}  # fmt: skip


@pytest.fixture
def attempt(tmp_path, monkeypatch, capsys):
    """attempt(command, faults, failing) -> (status, stderr, folder), in a folder of its own."""
    monkeypatch.setattr(
        "glassformer.training.studies.sweep.train_jobs",
        lambda jobs, task, *_: (work(j, task) for j in jobs),
    )
    n = 0

    def run(command: Command, faults: Faults, failing):
        nonlocal n
        folder = tmp_path / str(n := n + 1)
        for name in command.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(OLD)
        if "s.toml" in command.words:
            (folder / "s.toml").write_text(SPEC)
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["glassformer", *command.words])
        capsys.readouterr()
        with failing(faults), pytest.raises(SystemExit) as end:
            main()
        return end.value.code, capsys.readouterr().err, folder

    def work(job, task):
        from glassformer.training.studies.sweep import train_job

        return train_job(task, job)

    return run


def check(
    command: Command, faults: Faults, usual: int, status: int, err: str, folder: Path
) -> None:
    output = (
        f"{faults.names[faults.at]} number {faults.at} with {faults.error!r}: status {status}, "
        f"{err!r}"
    )
    there = {str(p.relative_to(folder)) for p in folder.rglob("*")}
    assert "Traceback" not in err and "defect" not in err, output
    if status == usual:
        assert "error: " not in err, output
        assert all((folder / n).read_bytes() != OLD for n in command.files), (
            f"not written: {output}"
        )
    else:
        lines = err.splitlines()
        assert status == 2 and lines[-1].startswith("error: ") and err.count("error: ") == 1, output
    for name, is_whole in command.files.items():
        path = folder / name
        if path.read_bytes() != OLD:
            try:
                is_whole(path)
            except (AssertionError, ValueError, SyntaxError, GlassformerError) as e:
                raise AssertionError(f"{name} is not whole: {e}; {output}") from e
    if faults.names[faults.at] not in ("unlink", "rmdir"):
        left = {n for n in there if ".glassformer." in n or n.endswith(".tmp")}
        assert not left, f"{left} left: {output}"
    extra = {n for n in there - {*command.files, *command.may_stay} if ".glassformer." not in n}
    assert status == usual or command.words[0] in ("sweep", "inspect") or not extra, (
        f"{extra} left: {output}"
    )


def inject(
    attempt, name: str, failing, errors: tuple[BaseException, ...], most: int | None
) -> None:
    command = COMMANDS[name]
    attempt(command, Faults(), failing)  # what is imported and cached when it is first used
    counted = Faults()
    usual, err, folder = attempt(command, counted, failing)
    assert usual in (0, 1) and "error" not in err, err
    for file, is_whole in command.files.items():
        is_whole(folder / file)
    n = len(counted.names)
    assert n > 3, "nothing to fail"
    chosen = (
        range(n)
        if most is None or n <= most
        else sorted({round(i * (n - 1) / (most - 1)) for i in range(most)})
    )
    for at in chosen:
        faults = Faults(at, errors[at % len(errors)])
        status, err, folder = attempt(command, faults, failing)
        if len(faults.names) > at:
            check(command, faults, usual, status, err, folder)


def disk() -> tuple[OSError, ...]:
    return tuple(OSError(n, os.strerror(n)) for n in ERRORS)


@pytest.mark.parametrize("name", ["export", "train", "verify", "prove", "sweep", "disguise"])
@pytest.mark.some(3)
def test_every_write_fails_once(attempt, name):
    if name in ("train", "sweep"):
        pytest.importorskip("torch")
    inject(attempt, name, failing_writes, disk(), most=None if name == "export" else 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_single_write_fails_once(attempt, name):
    pytest.importorskip({"report": "numpy", "inspect": "matplotlib"}.get(name, "torch"))
    inject(attempt, name, failing_writes, disk(), most=None)


@pytest.mark.parametrize("name", ["export", "train", "verify", "prove", "disguise"])
@pytest.mark.some(3)
def test_memory_ends(attempt, name):
    if name == "train":
        pytest.importorskip("torch")
    inject(attempt, name, failing_memory, (MemoryError(),), most=6)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(COMMANDS))
def test_memory_ends_anywhere(attempt, name):
    inject(
        attempt,
        name,
        failing_memory,
        (MemoryError(), MemoryError("Unable to allocate 8 EiB")),
        most=40,
    )


# ── what other libraries write ─────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "to,name", [("torch", "x.py"), ("onnx", "x.onnx"), ("safetensors", "x.safetensors")]
)
def test_a_file_that_may_not_grow(tmp_path, capsys, monkeypatch, to, name):
    only_so_large(tmp_path, capsys, monkeypatch, to, name, "add-digit")


@pytest.mark.slow
@pytest.mark.parametrize("to", ["gpt2", "transformer-lens"])
def test_a_folder_whose_files_may_not_grow(tmp_path, capsys, monkeypatch, to):
    only_so_large(tmp_path, capsys, monkeypatch, to, "x", "reverse")


def only_so_large(tmp_path, capsys, monkeypatch, to, name, ref):
    """A true limit of the system, which code in other languages meets as well."""
    resource = pytest.importorskip("resource")
    for library in {
        "torch": ["torch"],
        "onnx": ["onnx", "onnxruntime"],
        "gpt2": ["transformers"],
    }.get(to, []):
        pytest.importorskip(library)
    load(ref)
    monkeypatch.setattr(
        sys, "argv", ["glassformer", "export", ref, "--to", to, "--out", str(tmp_path / name)]
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
    try:
        with pytest.raises(SystemExit) as end:
            main()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    err = capsys.readouterr().err
    assert end.value.code == 2 and "cannot be written" in err and err.count("\n") == 1, err
    assert list(tmp_path.iterdir()) == []
