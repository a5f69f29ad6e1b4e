"""Who may import whom, and what importing costs."""

import ast
import subprocess
import sys
from pathlib import Path

import glassformer

ROOT = Path(glassformer.__file__).parent
# A room may import rooms of earlier levels; side by side, none imports another.
LEVELS = [
    {"errors"}, {"limits", "records"}, {"schema"}, {"vocabulary", "registry", "arrays", "dust"}, {"shapes"}, {"model"},
    {"stored"},
    {"tap", "count", "blueprint"}, {"tiny"}, {"checkpoint", "decode", "tasks", "craft", "taotp"},
    {"programs", "verify", "train"}, {"lens", "bridges"}, {"refs"}, {"runs"}, {"claims", "show"}, {"tour"}, {"cli"},
    {"__main__"},
]  # fmt: skip
TASKS_MAY_NOT = {"arrays", "shapes", "model", "tap", "checkpoint", "count", "blueprint", "decode", "craft", "taotp"}


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The rooms of this package that a file imports, wherever in the file."""
    package = ("glassformer", *path.relative_to(ROOT).parent.parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            target = [*base, *(node.module.split(".") if node.module else [])]
            found |= {[*target, alias.name][1] for alias in node.names}
    return found - {"__version__"}


def level(name: str) -> int:
    return next(i for i, names in enumerate(LEVELS) if name in names)


def test_data_goes_one_way():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        if path.name == "__init__.py" and path.parent == ROOT:
            continue
        for name in imported(path) - {room(path)}:
            typing_only = (room(path), name) == ("shapes", "model")
            if level(name) >= level(room(path)) and not typing_only:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
            if room(path) == "tasks" and name in TASKS_MAY_NOT:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong, wrong


def test_importing_needs_numpy_alone():
    heavy = (
        "torch", "matplotlib", "typer", "rich", "plotly", "transformers", "tokenizers", "transformer_lens", "onnx",
        "safetensors",
    )  # fmt: skip
    code = f"import sys, glassformer; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_running_a_program_needs_no_torch():
    code = "import sys, glassformer as gf; print(gf.run('hello-world').output, 'torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "Hello World! False"
