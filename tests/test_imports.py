"""Who may import whom, and what importing costs."""

import ast
import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import glassformer

ROOT = Path(glassformer.__file__).parent
# A room may import rooms of earlier levels; side by side, none imports another.
LEVELS = [
    {"errors"}, {"limits", "records", "cluster", "telling"}, {"calls", "schema"},
    {"vocabulary", "registry", "arrays", "dust", "finding"}, {"shapes", "tokenwise"}, {"model"},
    {"stored", "parts"}, {"tap", "counting", "blueprints", "tasks", "craft"},
    {"checkpoint", "decoding", "lang", "taotp"},
    {"answers"}, {"trials"}, {"programs", "verification", "training"}, {"proof", "lens", "bridges"},
    {"ground_truth", "adderboard"},
    {"refs"}, {"runs", "own"}, {"published", "show", "puzzles"}, {"page"}, {"walk", "serve"},
    {"coerce"}, {"api"}, {"cli"}, {"__main__"},
]  # fmt: skip
ROOMS = set().union(*LEVELS)
TASKS_MAY_NOT = {
    "arrays", "shapes", "tokenwise", "model", "parts", "tap", "checkpoint", "counting",
    "blueprints", "decoding", "craft",
}  # fmt: skip


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path, package: tuple[str, ...]) -> set[str]:
    """The rooms of this package that a file imports, wherever in the file: relatively, by full
    name, by a string.
    """
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            target = [*base, *(node.module.split(".") if node.module else [])]
            found += [[*target, alias.name] for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = re.fullmatch(r"(glassformer)?\.(\w+)[\w.]*(:\w+)?", node.value)
            found += [["glassformer", named[2]]] if named and named[2] in ROOMS else []
    return {name[1] for name in found if name[0] == "glassformer" and len(name) > 1} - {
        "__version__"
    }


def test_the_test_sees_every_way_to_import(tmp_path):
    ways = (
        "from .. import a1; from ..a2 import x; import glassformer.a3.y; from glassformer.a4 "
        "import z"
    )
    strings = (
        'import_module(".lens", package); BRIDGE = "glassformer.proof.search:PROVE"; "a sentence. '
        'lens"'
    )
    file = tmp_path / "x.py"
    file.write_text(f"{ways}\n{strings}\n")
    assert imported(file, ("glassformer", "tasks")) == {"a1", "a2", "a3", "a4", "lens", "proof"}


def level(name: str) -> int:
    return next(i for i, names in enumerate(LEVELS) if name in names)


def test_data_goes_one_way():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        if path.name == "__init__.py" and path.parent == ROOT:
            continue
        for name in imported(path, ("glassformer", *path.relative_to(ROOT).parent.parts)) - {
            room(path)
        }:
            typing_only = (room(path), name) == ("shapes", "model")
            if level(name) >= level(room(path)) and not typing_only:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
            if room(path) == "tasks" and name in TASKS_MAY_NOT:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong, wrong


def test_importing_needs_numpy_alone():
    heavy = (
        "torch", "matplotlib", "typer", "rich", "transformers", "tokenizers",
        "transformer_lens", "onnx",
        "safetensors", "fastapi", "uvicorn", "pydantic",
    )  # fmt: skip
    code = f"import sys, glassformer; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_running_a_program_needs_no_torch():
    code = (
        "import sys, glassformer as gf; print(gf.run('hello-world').output, 'torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "Hello World! False"


def test_running_a_program_reads_no_other():
    code = (
        "import sys, glassformer as gf; gf.run('addition:digits=2', '1+2');"
        "print(*(f'glassformer.{room}.{name}' in sys.modules for room in ('programs', 'tasks')"
        "for name in ('addition', 'sort')))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["True", "False", "True", "False"]


def test_training_loads_no_compiler():
    """It takes a second, which is longer than a small task takes to learn."""
    code = (
        "import sys, glassformer as gf; print(gf.fit('hello-world').status, 'torch._dynamo' in "
        "sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "exact False"


def test_no_name_at_the_top_is_both_a_thing_and_a_module():
    modules = {m.name for m in pkgutil.iter_modules(glassformer.__path__)}
    assert not modules & {*glassformer.__all__, "list", "open"}
    assert {*glassformer.__all__, "list", "open"} <= set(dir(glassformer))
    assert all(getattr(glassformer, name).__name__ == name for name in glassformer.__all__)


def test_a_command_reads_no_other():
    code = (
        "import sys; sys.argv = ['glassformer', 'count', 'min']; from glassformer.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "rooms = 'cli.count', 'cli.train', 'ground_truth'\n"
        "print(*(f'glassformer.{room}' in sys.modules for room in rooms))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1].split() == ["True", "False", "False"]


def test_the_command_run_imports_no_compiler():
    code = (
        "import sys; sys.argv = ['glassformer', 'run', 'addition:digits=3', '127+458']\n"
        "from glassformer.cli import main\ntry: main()\nexcept SystemExit: pass\n"
        "ours = [m for m in sys.modules if m.startswith('glassformer')]\n"
        "print(len(ours), *ours)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    answer, count, *modules = out.stdout.split()
    assert answer == "0585" and int(count) < 60
    for name in (
        "lang.compiler",
        "lang.source",
        "training",
        "show",
        "lens",
        "proof",
        "verification",
    ):
        assert f"glassformer.{name}" not in modules


def test_a_door_opens_its_own_room_only():
    code = (
        "import sys, glassformer as gf; gf.record(gf.load('min'), '6 2 7');"
        "rooms = 'lang.compiler', 'lens', 'proof', 'bridges', 'training', 'verification', 'show'\n"
        "print([room for room in rooms if f'glassformer.{room}' in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_what_a_type_checker_reads_is_what_is_there():
    """The plain imports of __init__.py, and what a name gives at run time."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    lines = [n for n in block.body if isinstance(n, ast.ImportFrom) and n.level and n.module]
    read = {alias.asname: (node.module, alias.name) for node in lines for alias in node.names}
    assert {*read, "list", "compile", "open"} == {*glassformer.__all__, "list", "compile", "open"}
    for name, (module, there) in read.items():
        found = import_module(f"glassformer.{module}")
        assert getattr(glassformer, name) is getattr(found, there)
