"""CONTRIBUTING.md says where things go: each place is there, and what is put there is found by
its name.
"""

import re
import sys
from pathlib import Path

import pytest

import glassformer as gf
from glassformer import registry
from glassformer.cli.entry import load_commands
from test_imports import LAYERS

ROOT = Path(gf.__file__).parent
TEXT = (ROOT.parents[1] / "CONTRIBUTING.md").read_text()
TABLE = re.findall(r"^\| (an? [^|]+?) \| (.+?) \| (.+?) \|$", TEXT, re.MULTILINE)


def test_every_place_is_there():
    assert len(TABLE) == 13
    for what, how, example in TABLE:
        places = re.findall(r"`([\w/]+(?:\.py|/))`", how + example)
        assert places and all(
            (ROOT / place).exists() for place in places if not place.startswith("tests")
        ), what


def test_who_imports_whom_is_as_written():
    text = (ROOT.parents[1] / "docs/how-it-works.md").read_text()
    table = text[text.index("| packages | contents |") :].split("\n\n")[0].split("\n")[2:]
    written = [set(re.findall(r"`(\w+)`", row.split("|")[1])) for row in table]
    assert written == LAYERS


def test_a_command_is_a_file_of_its_name():
    for command in load_commands():
        assert command.callback.__module__ == f"glassformer.cli.{command.name.replace('-', '_')}"


IMPORTS = "import glassformer as gf\nfrom glassformer import Model, parametrizations, registry\n"
FILES = {
    "program": "def made(n: int = 2) -> Model:",
    "task": "class made(gf.Task):",
    "parametrization": "class made(parametrizations.Parametrization):",
    "bridge": "class made:",
}


@pytest.mark.parametrize("kind", FILES)
def test_what_is_in_a_room_is_found(kind, tmp_path, monkeypatch):
    """A file with a decorated thing, and nothing else, in a room of its own."""
    room = tmp_path / f"a_room_of_{kind}s"
    room.mkdir()
    (room / "__init__.py").write_text("")
    (room / "anything.py").write_text(
        f'{IMPORTS}@registry.{kind}("mine")\n{FILES[kind]}\n    "What it is."\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(registry.REGISTRY, kind, dict(registry.entries(kind)))
    monkeypatch.setitem(
        registry.PACKAGES_BY_KIND, kind, (*registry.PACKAGES_BY_KIND[kind], room.name)
    )
    assert "mine" in gf.list(f"{kind}s") and registry.find(kind, "mine").help == "What it is."
    for module in (f"{room.name}.anything", room.name):
        sys.modules.pop(module)
