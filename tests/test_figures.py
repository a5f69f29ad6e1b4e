"""The figures of the documents: all are used, and current."""

import contextlib
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer import inspect as gf_inspect
from glassformer import load, load_task
from glassformer.cli.entry import load_commands as every_command
from glassformer.lens.inspect import VIEWS, inspect
from glassformer.plotting.inspect import inspection_figures
from glassformer.plotting.style import save
from glassformer.training.recipes import find_recipe
from glassformer.utils.errors import GlassformerError

HERE = Path(__file__).parents[1] / "docs/figures"
sys.path.insert(0, str(HERE))
import current  # noqa: E402

BROWSER = {f"explained-{name}.png" for name in ("add", "trained", "grokking", "sort")}
ALONE = BROWSER  # drawn by a browser, with the page of a chapter
IN_README = {"page.png"}
GALLERY = (HERE.parent / "gallery.md").read_text()


def test_pictures_match_their_numbers():
    """Each picture was drawn together with its entry in numbers.json."""
    there = {str(p.relative_to(HERE)) for p in HERE.rglob("*.png")}
    assert there - ALONE == set(current.recorded())
    for name, result in current.recorded().items():
        seal = hashlib.sha256((HERE / name).read_bytes()).hexdigest()
        assert seal == result["sha256"], f"{name} was not drawn with its numbers"


@pytest.mark.parametrize(
    "script",
    ["book_run.py", "twelve_heads.py", *(pytest.param(f"{name}.py", marks=pytest.mark.slow)
                      for name in ("inside", "gallery", "modular_addition", "compiled", "page"))],
)  # fmt: skip
@pytest.mark.slow
def test_figures_are_current(script):
    done = subprocess.run(
        [sys.executable, HERE / script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert "is current" in done.stdout


def test_grok_seen_script(tmp_path):
    """A small run keeps some models as float16, and the whole history."""
    import grok_seen

    grok_seen.make(tmp_path, kept=(0, 4), steps=4, evaluate_every=2, d_mlp=8)
    rows = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["kind"] == "evaluation"] == [2, 4]
    names = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert names == ["step-000000.safetensors", "step-000004.safetensors"]
    assert {str(load(tmp_path / n).weights["embed.W_E"].dtype) for n in names} == {"float16"}
    shipped = load(grok_seen.FOLDER / f"step-{grok_seen.KEPT[-1]:06}.safetensors").provenance
    wanted = find_recipe("grok-seen").override(grok_seen.SETTINGS).to_json()
    assert {k: v for k, v in wanted.items() if shipped["recipe"][k] != v} == {}


def test_differences_are_detected():
    before = {"words": ["a"], "rows": [[1.0, 2.0]]}
    assert not current.differs({"words": ["a"], "rows": [[1.0, 2.01]]}, before)
    assert current.differs({"words": ["b"], "rows": [[1.0, 2.0]]}, before)
    assert current.differs({"words": ["a"], "rows": [[1.0, 2.2]]}, before)
    assert current.differs({"words": ["a"], "rows": [[1.0]]}, before)


def test_the_gallery_shows_each_picture_with_a_sentence_and_a_command():
    entries = re.findall(r"!\[[^\]]+\]\((\S+)\)\n\*([^*]+\.)\*\n`(.+)`\n", GALLERY)
    assert len(entries) == GALLERY.count("![") > 20
    commands = {c.name for c in every_command()}
    for picture, _, command in entries:
        assert (HERE.parent / picture).exists(), picture
        words = command.split()
        assert (
            words[1] in commands
            if words[0] == "glassformer"
            else (HERE.parent.parent / words[1]).exists()
        )
        assert "--only" not in words or words[words.index("--only") + 1] in VIEWS, command
    shown = {p.removeprefix("figures/") for p, _, _ in entries}
    left = {
        *ALONE,
        *IN_README,
        "compiled_codes.png",
        "compiled_errors.png",
        "compiled_follows.png",
        "modular_right.png",
    }
    names = {str(p.relative_to(HERE)) for p in HERE.rglob("*.png")}
    assert names - shown - {"gallery/positions-similarity.png"} == left  # in their chapters


ENTRIES = [
    (picture, " ".join(caption.split()), command)
    for picture, caption, command in re.findall(
        r"!\[[^\]]+\]\((\S+)\)\n\*([^*]+\.)\*\n`(.+)`\n", GALLERY
    )
]
INSPECTED = [
    (Path(p).relative_to("figures").as_posix(), caption, command.split())
    for p, caption, command in ENTRIES
    if command.startswith("glassformer inspect ") and " REF " not in command
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "caption", "command"), INSPECTED, ids=[e[0] for e in INSPECTED])
def test_a_command_of_the_gallery_draws_its_picture(name, caption, command):
    """With the words, bars, lines and maps of the picture, unless the caption says which part."""
    options = dict(zip(command[3::2], command[4::2], strict=True))
    model = load(command[2])
    task = load_task(model)
    text = options.get("--input")
    prompt = task.prompt(text) if text else None
    only, before = [options["--only"]], options.get("--before")
    rows = task.sample_or_all(500)
    views = gf_inspect(model, task, rows, prompt, only, before=before)
    contents = []
    for draw in inspection_figures(views).values():
        with contextlib.suppress(GlassformerError):  # not drawn for two models: the command says so
            contents.append(current.contents_of(draw()))
    wanted = current.recorded()[name]
    is_same = [
        set(found["words"]) - TITLES == set(wanted["words"]) - TITLES
        and [len(row) for row in found["rows"]] == [len(row) for row in wanted["rows"]]
        for found in contents
    ]
    assert any(is_same) != ("The command draws" in caption), name


TITLES = {"tokens: principal components", "The numbers of grok-113"}


def test_captions_say_what_a_command_draws_if_not_all():
    assert sum("The command draws" in caption for _, caption, _ in ENTRIES) == 3


@pytest.mark.slow
@pytest.mark.parametrize("ref", ["adder-3.safetensors", "modular-addition:p=23,variant=pizza"])
def test_every_figure_can_be_svg(ref, tmp_path):
    model = load(ref)
    task = load_task(model)
    for name, draw in inspection_figures(inspect(model, task, task.sample_or_all(100))).items():
        assert b"<svg" in save(draw(), tmp_path / f"{name}.svg").read_bytes()[:2_000], name
