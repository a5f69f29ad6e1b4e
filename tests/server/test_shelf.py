"""What a page may name, and the fence behind it: nothing outside the folders given is ever read."""

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
from server.conftest import ADDER, GLASS, TAOTP

HERE = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def apart(monkeypatch):
    """What is typed is registered: forgotten after each test."""
    for kind in list(registry.REGISTRY):
        monkeypatch.setitem(registry.REGISTRY, kind, dict(registry.entries(kind)))


@pytest.fixture
def shelf(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    return Catalogue([ADDER], [folder], FileSandbox([folder]))


@pytest.mark.parametrize(
    "ref", [ADDER, "min:vocab=5", "lang/reverse", "adder-3.safetensors", "figure-8.2.taotp"]
)
def test_names_of_the_package_are_found(shelf, ref):
    assert shelf.model(ref).weights


@pytest.mark.parametrize("name", ["mine.glass", "mine.taotp", "mine.safetensors"])
def test_files_of_a_folder_are_found(shelf, folder, name):
    by_path, by_name = shelf.model(str(folder / name)), shelf.model(f"{folder.name}/{name}")
    assert gf.core.checkpoint.digest(by_path) == gf.core.checkpoint.digest(by_name)
    assert gf.core.checkpoint.digest(by_path) == gf.core.checkpoint.digest(shelf.model(name))
    assert str(folder / name) in shelf.names()["files"]


def test_a_link_that_leads_out_is_not_listed(shelf):
    assert not [name for name in shelf.names()["files"] if "link" in name]


OUTSIDE = [
    "link.glass", "way/secret.glass", "way/secret.safetensors", "../outside0/secret.glass",
    "../outside0/secret.safetensors", "mine.glass/../../outside0/secret.glass", "nothing.glass/",
]  # fmt: skip


@pytest.mark.parametrize("name", ["link.glass", "way/secret.glass", "../outside0/secret.glass"])
def test_nor_are_they_found_by_how_a_folder_calls_them(shelf, name):
    with pytest.raises(GlassformerError, match="is in no folder that was given"):
        shelf.model(name)


@pytest.mark.parametrize("name", OUTSIDE)
def test_files_elsewhere_are_refused(shelf, folder, name):
    with pytest.raises(
        GlassformerError, match=r"is in no folder that was given|expected a program"
    ):
        shelf.model(f"{folder}/{name}")


@pytest.mark.parametrize(
    "ref",
    ["/etc/passwd", "/etc/x.glass", "~/x.glass", "x.glass", "x.safetensors", ".", "..", "", "/",
     "a/b", "//x.taotp", "\0.glass", "x" * 50_000, "x" * 50_000 + ".glass", "gpt2", "config.json",
     "%2e%2e/x.glass"],
)  # fmt: skip
def test_what_is_no_name_is_refused(shelf, ref):
    with pytest.raises(GlassformerError):
        shelf.model(ref)
    with pytest.raises(GlassformerError):
        shelf.task(ref)


def test_a_file_of_python_is_not_run_unless_it_was_typed(shelf, folder, tmp_path):
    for ref in (f"{folder}/mine.py:NAME", "mine.py:NAME", f"{folder}/mine.py:NAME:x=1"):
        with pytest.raises(GlassformerError, match="would run a file"):
            shelf.model(ref)
        with pytest.raises(GlassformerError, match="would run a file"):
            shelf.task(ref)
    file = tmp_path / "own.py"
    file.write_text("import glassformer as gf\nmine = gf.load('min:vocab=4')\n")
    typed = Catalogue([f"{file}:mine"], [], FileSandbox([]))
    assert typed.model(f"{file}:mine").config.d_vocab == 4
    with pytest.raises(GlassformerError, match="would run a file"):
        typed.model(f"{file}:other")


def test_a_folder_of_a_models_name_is_no_model(shelf, folder, monkeypatch):
    (folder / "min").mkdir(exist_ok=True)
    (folder / "min" / "config.json").write_text("{}")
    monkeypatch.chdir(folder)
    assert shelf.model("min:vocab=5").provenance["maker"] == "program"
    (folder / "min" / "config.json").unlink()
    (folder / "min").rmdir()


def test_an_option_that_names_a_file_is_looked_at(shelf, folder):
    outside = next(folder.parent.glob("outside*"))
    for load in (shelf.model, shelf.task):
        with pytest.raises(GlassformerError, match=r"table=.* is in no folder"):
            load(f"lookup:table={outside}/secret.csv")
    table = folder / "table.csv"
    table.write_text("a,b\nb,a\n")
    assert shelf.task(f"lookup:table={table}").size
    with pytest.raises(GlassformerError, match=r"table=.* is in no folder"):
        shelf.task("lookup:table=table.csv")  # which would be one of the folder that we are in


def test_a_task_that_a_model_names_is_looked_at(shelf, folder):
    outside = next(folder.parent.glob("outside*"))
    text = f'{TAOTP}task: "{outside}/secret.glass"\n'
    assert shelf.settled(gf.taotp.parse(text)).task == ""
    assert shelf.settled(gf.load(ADDER)).task == ADDER


# ── the fence, in a process of its own: it cannot be taken away again ──────────────────────────
FENCED = """
import json, os, socket, subprocess, sys
from pathlib import Path
from glassformer.server.fs_sandbox import Fence
inside, outside = map(Path, sys.argv[1:])
fence = Fence([inside])
fence.raise_()
def tries(work):
    try:
        work()
    except PermissionError as e:
        return str(e)
    except Exception as e:
        return type(e).__name__
    return "done"
def lowered():
    with fence.lowered():
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
    "append": lambda: open(inside / "mine.glass",
    "a"),
    "create": lambda: os.open(inside / "new", os.O_CREAT | os.O_WRONLY),
    "remove": lambda: os.remove(inside / "mine.glass"),
    "start": lambda: subprocess.run(["true"]),
    "system": lambda: os.system("true"),
    "connect": lambda: socket.create_connection(("127.0.0.1", 9)),
    "import": lambda: __import__("colorsys"),
    "numpy": lambda: __import__("numpy.polynomial"),
    "lowered": lowered,
    "again": lambda: (outside / "secret.csv").read_text(),
}
print(json.dumps({name: tries(f) for name, f in work.items()}))
"""  # fmt: skip


def test_the_fence_holds(folder):
    outside = next(folder.parent.glob("outside*"))
    environment = os.environ | {"PYTHONPATH": str(HERE / "src")}
    command = [sys.executable, "-c", FENCED, str(folder), str(outside)]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(out.stdout)
    free = {"inside", "import", "numpy", "lowered"}
    assert {name for name, said in found.items() if said == "done"} == free, found
    assert all("[Errno 13]" in said for name, said in found.items() if name not in free), found
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
        said = served.wrong(ref=ref)
        assert "secret_name" not in said and ("no folder" in said or "expected a program" in said)
    assert "would run a file" in served.wrong(ref=f"{folder}/mine.py:NAME")
    assert served.model(ref=f"{folder}/mine.glass")["title"].endswith("mine.glass")


def test_a_checkpoint_that_names_a_file_reads_none(served, folder, monkeypatch):
    """Behind the shelf stands the fence: a sealed file whose parametrization names another."""
    import base64
    from dataclasses import replace

    outside = next(folder.parent.glob("outside*"))
    model = replace(gf.load(ADDER), parametrization=f"lora:base={outside}/secret.safetensors")
    monkeypatch.setattr("glassformer.core.checkpoint.check_theta", lambda *_: None)
    said = served.wrong(checkpoint=base64.b64encode(to_bytes(model)).decode())
    assert "it is in none of the folders that were given" in said
