"""The notebooks: those of the guide are current, and all run."""

import ast
import contextlib
import importlib.util
import io
import json
import re
import shlex
from pathlib import Path

import pytest

from glassformer import load
from test_docs import folder as folder
from test_docs import glassformer, same

HERE = Path(__file__).parents[1] / "docs/notebooks"
NAMES = sorted(path.stem for path in HERE.glob("*.ipynb"))
CHAPTERS = sorted(path.stem for path in (HERE.parent / "guide").glob("[0-9]*.md"))
SCREEN = 20_000  # letters of a page, its pictures aside


def cells(name: str) -> list[dict]:
    return json.loads((HERE / f"{name}.ipynb").read_text("utf-8"))["cells"]


def codes(name: str) -> list[tuple[str, str, bool]]:
    """Source, output and slowness of each code cell."""
    return [
        (
            "".join(cell["source"]),
            "".join(line for output in cell["outputs"] for line in output["text"]),
            "slow" in cell["metadata"].get("tags", ()),
        )
        for cell in cells(name)
        if cell["cell_type"] == "code"
    ]


def value(source: str, space: dict) -> tuple[object, str]:
    """Return the value of a cell's last line, and its printed output."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(tree, "notebook", "exec"), space)
        got = eval(compile(ast.Expression(last.value), "notebook", "eval"), space) if last else None
    return got, out.getvalue()


def test_every_chapter_has_a_notebook():
    assert {*CHAPTERS, "start", "teacher"} == set(NAMES) and len(CHAPTERS) >= 7


def test_guide_notebooks_are_current():
    result = importlib.util.spec_from_file_location("make", HERE / "make.py")
    make = importlib.util.module_from_spec(result)
    result.loader.exec_module(make)
    for name, text in make.notebooks().items():
        written = (HERE / name).read_text("utf-8")
        assert written == text, f"{name} is old: run python docs/notebooks/make.py"


@pytest.mark.parametrize("name", NAMES)
def test_each_opens_with_one_install(name):
    pip = [i for i, (source, _, _) in enumerate(codes(name)) if "%pip install" in source]
    assert pip == [0]
    extras = re.search(r"\[([\w,-]+)\]", codes(name)[0][0])
    text = (HERE.parents[1] / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = ", text, re.MULTILINE) for extra in extras[1].split(","))


@pytest.mark.parametrize("name", NAMES)
def test_notebook_format(name):
    whole = json.loads((HERE / f"{name}.ipynb").read_text("utf-8"))
    assert (whole["nbformat"], whole["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in whole["cells"]]
    assert len(set(ids)) == len(ids) and len(json.dumps(whole)) < 60_000
    for source, _, _ in codes(name):
        if source.startswith("!"):  # there, these would be Python's
            assert not re.search(r"[{}$]", source), source


def run_all(name, work, monkeypatch, capsys, slow):
    """Run a notebook's cells in one process, with commands that write files (or all)."""
    space: dict[str, object] = {"__name__": "notebook"}
    for source, written, long in codes(name)[1:]:
        if long and not slow:
            continue
        if named := re.match(r"%%writefile (\S+)\n", source):
            (work / named[1]).write_text(source[named.end() :])
        elif source.startswith("!"):
            if slow or "--out" in source:
                got = glassformer(shlex.split(source)[1:], monkeypatch, capsys)
                assert same(written, got), f"{source}\nsays\n{written}\nthe command says\n{got}"
        else:
            got, printed = value(source, space)
            assert not written or same(written, printed), f"{source}\nprints\n{printed}"
            yield source, got


@pytest.mark.usefixtures("folder")
def test_start_notebook_runs(tmp_path, monkeypatch, capsys):
    assert list(run_all("start", tmp_path, monkeypatch, capsys, slow=False))


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", CHAPTERS)
def test_each_chapter_runs(name, tmp_path, monkeypatch, capsys):
    """Made from the guide's chapters, which tests/test_docs.py runs as they stand there, with all
    that takes long.
    """
    ran = list(run_all(name, tmp_path, monkeypatch, capsys, slow=False))
    assert ran or all(long or source.startswith("!") for source, _, long in codes(name)[1:])


# ── the teacher's ──────────────────────────────────────────────────────────────────────────────
@pytest.mark.usefixtures("folder")
@pytest.mark.slow
def test_teacher_notebook_has_five_pictures(tmp_path, monkeypatch, capsys):
    done = list(run_all("teacher", tmp_path, monkeypatch, capsys, slow=False))
    assert len(done) == 5
    for source, got in done:
        assert source.count("\n") < 4 and len(repr(got)) < 250, "no dump"
        if hasattr(got, "_repr_png_"):
            png, size = got._repr_png_()
            assert png.startswith(b"\x89PNG") and len(png) < 150_000
            assert size["width"] <= 900 and size["height"] <= 700, "a screen"
        else:
            page = re.sub(r"base64,[^\"]*", "", got._repr_html_())
            assert "<svg" in page and len(page) < SCREEN
    assert done[-1][1].holds, "the proof"


def test_claims_of_the_teacher_notebook():
    text = "".join("".join(cell["source"]) for cell in cells("teacher"))
    model = load("addition:digits=3,order=ones")
    assert f"its {sum(w.size for w in model.weights.values())} numbers" in text
    assert "u > 90" in model.labels.neurons["0.1"] and "just written" in model.labels.heads["0.1"]
