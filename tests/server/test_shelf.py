"""The catalogue and the file sandbox: no file outside the user's folders is ever read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import glassformer as gf
from glassformer import registry
from glassformer.core.checkpoint import to_bytes
from glassformer.server.catalogue import Catalogue
from glassformer.server.fs_sandbox import FileSandbox
from glassformer.utils.errors import GlassformerError
from helpers import raises
from server.conftest import ADDER, GLASS, TAOTP

HERE = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def restored_registry(monkeypatch):
    """Unregister the refs of a test."""
    for kind in list(registry.REGISTRY):
        monkeypatch.setitem(registry.REGISTRY, kind, dict(registry.entries(kind)))


@pytest.fixture
def catalogue(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    return Catalogue([ADDER], [folder], FileSandbox([folder]))


@pytest.mark.parametrize(
    "ref", [ADDER, "min:vocab=5", "lang/reverse", "adder-3.safetensors", "figure-8.2.taotp"]
)
def test_names_of_the_package_are_found(catalogue, ref):
    assert catalogue.model(ref).weights


@pytest.mark.parametrize("name", ["mine.glass", "mine.taotp", "mine.safetensors"])
def test_files_of_a_folder_are_found(catalogue, folder, name):
    by_path, by_name = catalogue.model(str(folder / name)), catalogue.model(f"{folder.name}/{name}")
    assert gf.core.checkpoint.digest(by_path) == gf.core.checkpoint.digest(by_name)
    assert gf.core.checkpoint.digest(by_path) == gf.core.checkpoint.digest(catalogue.model(name))
    assert str(folder / name) in catalogue.list_names()["files"]


def test_a_link_out_of_the_folder_is_not_listed(catalogue):
    assert not [name for name in catalogue.list_names()["files"] if "link" in name]


OUTSIDE = [
    "link.glass", "way/secret.glass", "way/secret.safetensors", "../outside0/secret.glass",
    "../outside0/secret.safetensors", "mine.glass/../../outside0/secret.glass", "nothing.glass/",
]  # fmt: skip


@pytest.mark.parametrize("name", ["link.glass", "way/secret.glass", "../outside0/secret.glass"])
def test_files_outside_are_not_found_by_relative_names(catalogue, name):
    with raises("not_found", name):
        catalogue.model(name)


@pytest.mark.parametrize("name", OUTSIDE)
def test_files_elsewhere_are_refused(catalogue, folder, name):
    with raises("not_found", name):
        catalogue.model(f"{folder}/{name}")


@pytest.mark.parametrize(
    "ref",
    ["/etc/passwd", "/etc/x.glass", "~/x.glass", "x.glass", "x.safetensors", ".", "..", "", "/",
     "a/b", "//x.taotp", "\0.glass", "x" * 50_000, "x" * 50_000 + ".glass", "gpt2", "config.json",
     "%2e%2e/x.glass"],
)  # fmt: skip
def test_invalid_names_are_refused(catalogue, ref):
    with pytest.raises(GlassformerError):
        catalogue.model(ref)
    with pytest.raises(GlassformerError):
        catalogue.task(ref)


def test_a_python_file_runs_only_from_the_command_line(catalogue, folder, tmp_path):
    for ref in (f"{folder}/mine.py:NAME", "mine.py:NAME", f"{folder}/mine.py:NAME:x=1"):
        with raises("bad_argument", ref):
            catalogue.model(ref)
        with raises("bad_argument", ref):
            catalogue.task(ref)
    file = tmp_path / "own.py"
    file.write_text("import glassformer as gf\nmine = gf.load('min:vocab=4')\n")
    typed = Catalogue([f"{file}:mine"], [], FileSandbox([]))
    assert typed.model(f"{file}:mine").config.d_vocab == 4
    with raises("bad_argument", "own.py:other"):
        typed.model(f"{file}:other")


def test_a_folder_with_the_name_of_a_model_is_ignored(catalogue, folder, monkeypatch):
    (folder / "min").mkdir(exist_ok=True)
    (folder / "min" / "config.json").write_text("{}")
    monkeypatch.chdir(folder)
    assert catalogue.model("min:vocab=5").provenance["maker"] == "program"
    (folder / "min" / "config.json").unlink()
    (folder / "min").rmdir()


def test_an_option_that_names_a_file_is_checked(catalogue, folder):
    outside = next(folder.parent.glob("outside*"))
    for load in (catalogue.model, catalogue.task):
        with raises("not_found", f"table={outside}/secret.csv"):
            load(f"lookup:table={outside}/secret.csv")
    table = folder / "table.csv"
    table.write_text("a,b\nb,a\n")
    assert catalogue.task(f"lookup:table={table}").size
    with raises("not_found", "table=table.csv"):
        catalogue.task("lookup:table=table.csv")  # relative to the current folder


def test_the_task_of_a_model_is_checked(catalogue, folder):
    outside = next(folder.parent.glob("outside*"))
    text = f'{TAOTP}task: "{outside}/secret.glass"\n'
    assert catalogue.without_unknown_task(gf.taotp.parse(text)).task == ""
    assert catalogue.without_unknown_task(gf.load(ADDER)).task == ADDER


# ── the sandbox, in a process of its own: it is permanent ──────────────────────────────────────
SANDBOXED = """
import json, os, socket, subprocess, sys
from pathlib import Path
from glassformer.server.fs_sandbox import FileSandbox
inside, outside = map(Path, sys.argv[1:])
sandbox = FileSandbox([inside])
sandbox.activate()
def tries(work):
    try:
        work()
    except PermissionError as e:
        return str(e)
    except Exception as e:
        return type(e).__name__
    return "done"
def suspended():
    with sandbox.suspended():
        (outside / "secret.csv").read_text()
work = {
    "inside": lambda: (inside / "mine.glass").read_text(),
    "link": lambda: (inside / "link.glass").read_text(),
    "way": lambda: (inside / "way" / "secret.csv").read_text(),
    "outside": lambda: (outside / "secret.csv").read_text(),
    "dots": lambda: open(f"{inside}/../{outside.name}/secret.csv"),
    "bytes": lambda: open(os.fsencode(outside / "secret.csv")),
    "os": lambda: os.open(outside / "secret.csv", os.O_RDONLY),
    "passwd": lambda: open("/etc/passwd"),
    "write": lambda: (inside / "new.glass").write_text("x"),
    "append": lambda: open(inside / "mine.glass", "a"),
    "create": lambda: os.open(inside / "new", os.O_CREAT | os.O_WRONLY),
    "remove": lambda: os.remove(inside / "mine.glass"),
    "start": lambda: subprocess.run(["true"]),
    "system": lambda: os.system("true"),
    "connect": lambda: socket.create_connection(("127.0.0.1", 9)),
    "import": lambda: __import__("colorsys"),
    "numpy": lambda: __import__("numpy.polynomial"),
    "suspended": suspended,
    "again": lambda: (outside / "secret.csv").read_text(),
}
print(json.dumps({name: tries(f) for name, f in work.items()}))
"""  # fmt: skip


def test_the_sandbox_allows_only_its_folders(folder):
    outside = next(folder.parent.glob("outside*"))
    environment = os.environ | {"PYTHONPATH": str(HERE / "src")}
    command = [sys.executable, "-c", SANDBOXED, str(folder), str(outside)]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    data = json.loads(out.stdout)
    free = {"inside", "import", "numpy", "suspended"}
    assert {name for name, output in data.items() if output == "done"} == free, data
    assert all("[Errno 13]" in output for name, output in data.items() if name not in free), data
    assert (folder / "mine.glass").read_text() == GLASS and not (folder / "new").exists()


# ── through the server ─────────────────────────────────────────────────────────────────────────
def test_the_server_reads_nothing_elsewhere(served, folder):
    outside = next(folder.parent.glob("outside*"))
    for ref in (
        f"{outside}/secret.glass",
        f"{folder}/link.glass",
        f"{folder}/way/secret.glass",
        "/etc/passwd",
    ):
        answer = served.model(ref=ref)
        assert answer["code"] == "not_found" and "secret_name" not in str(answer)
    assert served.model(ref=f"{folder}/mine.py:NAME")["code"] == "bad_argument"
    assert served.model(ref=f"{folder}/mine.glass")["title"].endswith("mine.glass")


def test_a_checkpoint_that_names_a_file_reads_none(served, folder, monkeypatch):
    """The sandbox backs up the catalogue: a sealed file whose parametrization names a file."""
    import base64
    from dataclasses import replace

    outside = next(folder.parent.glob("outside*"))
    model = replace(gf.load(ADDER), parametrization=f"lora:base={outside}/secret.safetensors")
    monkeypatch.setattr("glassformer.core.checkpoint.check_theta", lambda *_: None)
    data = base64.b64encode(to_bytes(model)).decode()
    answer = served.model(checkpoint=data)
    assert answer["code"] == "file_error" and "secret.safetensors" in answer["problem"]
