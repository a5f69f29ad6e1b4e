"""The documents are run: transcripts, Python blocks, text programs, counts and the notebook say
what really comes out.

In a document, in order and in one folder:
- a block ```taotp (or ```glass, ```python) whose first line is `# NAME.taotp…` is saved as that
  file;
- a block ```python is run, all of them in one namespace; a ```text block right after it is what it
  prints;
- in any other block, a line `$ glassformer …` is run, and the lines up to the next `$` are what it
  prints.
A line `…` stands for any lines, none included. A block after a line `<!-- slow -->` is run with the
slow tests only.
"""

import ast
import contextlib
import importlib
import inspect
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import glassformer as package
from glassformer import compiler, craft, load, registry, resolve
from glassformer.cli.entry import load_commands, main
from glassformer.compiler import library
from glassformer.core.param_count import count
from glassformer.lens.inspect import VIEWS
from glassformer.training.recipes import RECIPES
from helpers import check_once, prove_once

ROOT = Path(__file__).parents[1]
RUN = [
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "index",
            "programs",
            "how-it-works",
            "reference",
            "taotp",
            "booklet-names",
            "ground-truth",
            "proof",
            "beyond",
            "contest",
            "language",
            "compiler",
            "walk-throughs",
            "puzzles",
            "open",
        )
    ),
]
GUIDE = (
    "01-start",
    "02-train",
    "03-looking-inside",
    "04-modular-addition",
    "05-transformer-lens",
    "06-proof",
    "07-compile",
    "08-yours",
)
RUN += [f"docs/guide/{name}.md" for name in GUIDE]
RUN += [
    f"docs/explained/{name}.md" for name in ("160-numbers", "trained-adder", "grokking", "sort")
]
LINKED = [p.relative_to(ROOT).as_posix() for g in ("*.md", "docs/**/*.md") for p in ROOT.glob(g)]
SLOW = "<!-- slow -->\n"
LONG = {
    "docs/proof.md", "docs/ground-truth.md", "docs/beyond.md", "docs/guide/02-train.md",
    "docs/guide/04-modular-addition.md", "docs/guide/05-transformer-lens.md",
    "docs/guide/06-proof.md",
}  # fmt: skip
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in. What documents register is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("glassformer.proof.requests.find_proof", prove_once)
    monkeypatch.setattr("glassformer.leaderboard.table.prove", prove_once)
    monkeypatch.setattr("glassformer.verification.verifier.verify_events", check_once)
    for kind in list(
        registry.REGISTRY
    ):  # with all that is there: what a document adds is then its own
        monkeypatch.setitem(registry.REGISTRY, kind, dict(registry.entries(kind)))
    shelves = [(shelf, dict(shelf)) for shelf in (VIEWS, RECIPES)]
    yield tmp_path
    for shelf, before in shelves:
        shelf.clear()
        shelf.update(before)


def glassformer(words: list[str], monkeypatch, capsys) -> str:
    """Return the output of a command, from both streams."""
    monkeypatch.setattr(sys, "argv", ["glassformer", *words])
    with pytest.raises(SystemExit):
        main()
    got = capsys.readouterr()
    return got.out + got.err


def printed(code: str, space: dict[str, object]) -> str:
    """Return the output of Python code."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "document", "exec"), space)
    return out.getvalue()


def same(written: str, got: str) -> bool:
    """Whether an output is what is written, white space at the ends of lines aside."""

    def lines(text: str) -> list[str]:
        return [line.rstrip() for line in text.strip().splitlines()]

    parts = ["(?:.*\n)*?" if line == "…" else re.escape(line) + "\n" for line in lines(written)]
    return re.fullmatch("".join(parts), "".join(line + "\n" for line in lines(got))) is not None


def transcript(block: str) -> list[tuple[str, str]]:
    """The commands after `$`, each with the lines below it."""
    result = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    return [(command, output) for command, output in result if command.startswith("glassformer ")]


@pytest.mark.parametrize("name", [name for name in RUN if name not in LONG])
def test_document(name, folder, monkeypatch, capsys, slow=False):
    space: dict[str, object] = {"__name__": "document"}
    output, end = None, 0  # what the Python block just before printed, and where it ended
    text = (ROOT / name).read_text()
    for block in FENCE.finditer(text):
        language, body = block.groups()
        if not slow and text[: block.start()].endswith(SLOW):
            continue
        named = re.match(r"# ([\w-]+\.(?:taotp|glass|py))", body)
        if language in ("taotp", "glass", "python") and named:
            (folder / named.group(1)).write_text(body)
        elif language == "python":
            output, end = printed(body, space), block.end()
        elif language == "text" and output is not None and not text[end : block.start()].strip():
            assert same(body, output), f"{name} says\n{body}\nPython says\n{output}"
        else:
            for command, written in transcript(body):
                got = glassformer(shlex.split(command)[1:], monkeypatch, capsys)
                assert same(written, got), (
                    f"{name}: $ {command}\nsays\n{written}\nthe command says\n{got}"
                )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in RUN if name in LONG or SLOW in (ROOT / name).read_text()]
)
def test_document_with_what_takes_long(name, folder, monkeypatch, capsys):
    test_document(name, folder, monkeypatch, capsys, slow=True)


COUNTED = re.findall(r"`([\w-]+:?[^`\s]*)` ([\d,]+)", (ROOT / "docs/programs.md").read_text())


@pytest.mark.parametrize("ref,number", COUNTED)
def test_counts_of_the_programs(ref, number):
    assert count(load(ref)).total == int(number.replace(",", ""))


CANON = re.findall(
    r"^\| `([\w-]+)` \| .* \| \d+ \| (\d+|–) \| (\d+|–) \| ([\d,]+|–) \| [p–]",
    (ROOT / "docs/canon.md").read_text(),
    re.MULTILINE,
)


def test_the_canon_is_complete():
    assert [name for name, *_ in CANON] == list(library.source_paths())


SMALL = [row for row in CANON if 1 < len(row[-1]) < 6]  # the others take their time


@pytest.mark.parametrize("name,layers,width,parameters", SMALL[::12])
def test_sizes_of_the_canon(name, layers, width, parameters):
    model = compiler.compile(library.source_paths()[name].read_text("utf-8"), name).model
    output = tuple(int(x.replace(",", "")) for x in (layers, width, parameters))
    assert (model.config.n_layers, model.config.d_model, count(model).total) == output


@pytest.mark.parametrize("which", ["tour", "test"])
def test_the_readme_has_its_two_commands(which):
    command = rf"<!-- {which} command -->\n```\npython -m venv .* && .venv/bin/\w+.*\n```\n"
    assert re.search(command, (ROOT / "README.md").read_text())


def test_the_programs_have_a_table_of_counts():
    assert len(COUNTED) > 20


@pytest.mark.parametrize("name", sorted(LINKED))
def test_links(name):
    page = ROOT / name
    targets = re.findall(r"\]\(([^)#\s]+)[^)\s]*\)", FENCE.sub("", page.read_text()))
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


def test_the_reference_is_complete():
    text = (ROOT / "docs/reference.md").read_text()
    wanted = [f"`{name}" for name in craft.__all__ if name != "Neurons"] + ["`Neurons` with"]
    wanted += [f"`gf.{name}" for name in [*package.__all__, "list"]]
    wanted += [f"| `{c.name or c.callback.__name__}" for c in load_commands()]
    assert not [w for w in wanted if w not in text]


@pytest.mark.parametrize("written,got,agree", [
    ("a\n…\nd", "a\nb\nc\nd", True), ("a\n…\nd", "a\nd", True), ("a\n…", "b\nc", False), ("a",
    "a  \n", True),
    ("a", "a\nb", False), ("", "", True), ("1.5", "125", False), ("a\n\nb", "a\nb", False),
])  # fmt: skip
def test_same(written, got, agree):
    assert same(written, got) is agree


SCRIPTS = sorted([*ROOT.glob("docs/figures/*.py"), *ROOT.glob("benchmarks/*.py")])


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_scripts_ask_for_what_is_there(path):
    """Nobody runs them at every change: each name that they take from the package must be there."""
    tree, modules = ast.parse(path.read_text()), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("glassformer"):
            for alias in node.names:
                with contextlib.suppress(ImportError):  # a module, which may not be imported yet
                    importlib.import_module(f"{node.module}.{alias.name}")
                result = getattr(importlib.import_module(node.module), alias.name)
                modules[alias.asname or alias.name] = result
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = modules.get(node.value.id)
            assert owner is None or not inspect.ismodule(owner) or hasattr(owner, node.attr), (
                f"{path.name}:{node.lineno}: {node.value.id}.{node.attr}"
            )


def test_what_is_said_of_trained_adders_is_one_thing():
    """In the list of trained models and in the table of adders: proved or not."""
    rows = re.findall(r"^\| `\S+\.safetensors` .*$", (ROOT / "docs/adders.md").read_text(), re.M)
    by_name = {row.split("`")[1]: "| proved" in row for row in rows}
    assert by_name and by_name == {
        name: "; proved for all" in resolve.TRAINED_DESCRIPTIONS[name] for name in by_name
    }


def test_the_tables_of_trained_tasks_are_those_of_their_runs(tmp_path):
    table, page = tmp_path / "trained.md", (ROOT / "docs/trained.md").read_text()
    table.write_text(page)
    script = ROOT / "benchmarks/tasks.py"
    words = [sys.executable, script, ROOT / "benchmarks/trained.jsonl", "--table", table]
    subprocess.run(words, check=True)
    assert table.read_text() == page
    named = set(re.findall(r"^\| `([a-z-]+)` \|", page, re.M))
    assert set(package.list("tasks")) <= named, "each of them is in one of the tables"
    script = ROOT / "benchmarks/moduli.py"
    words = [sys.executable, script, ROOT / "benchmarks/moduli.jsonl", "--table", table]
    subprocess.run(words, check=True)
    assert table.read_text() == page
