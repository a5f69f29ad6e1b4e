"""Rules of imports between packages, and the cost of importing."""

import ast
import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import glassformer

ROOT = Path(glassformer.__file__).parent
# A package imports from earlier layers. Within a layer it imports only the neighbors in PAIRS.
LAYERS = [
    {"utils"},
    {"core", "registry"},
    {"tasks", "craft", "parametrizations"},
    {"programs", "compiler", "taotp"},
    {"verification", "training", "proof", "lens"},
    {"interop", "resolve", "generate", "user_modules", "coerce"}
    | {"plotting", "notebook", "circuits"},
    {"report_page", "server", "leaderboard", "puzzles", "published_claims", "guided_tour"},
    {"api", "cli"},
]
PAIRS = {
    ("parametrizations", "craft"): "fixed positions are an encoding",
    ("core", "registry"): "a checkpoint names its parametrization, a count its options",
    ("training", "verification"): "accuracy and margins while training",
    ("proof", "verification"): "a proof is held against runs of the model",
    ("taotp", "programs"): "the names of the booklet",
    ("lens", "verification"): "views show margins and accuracies",
    ("resolve", "interop"): "a ref may be a folder in GPT-2 or Llama format",
    ("generate", "resolve"): "the task of a model reads the input text",
    ("user_modules", "resolve"): "FILE.py:NAME is a ref",
    ("plotting", "generate"): "figures of a run",
    ("notebook", "resolve"): "a display looks up the task of its model",
    ("notebook", "generate"): "the display of a run",
    ("notebook", "plotting"): "one set of colors",
    ("server", "report_page"): "the server serves the page",
    ("server", "puzzles"): "the page has puzzles",
    ("guided_tour", "report_page"): "the tour ends with a page",
    ("guided_tour", "published_claims"): "the tour measures some claims",
    ("coerce", "resolve"): "an argument may be a ref",
    ("coerce", "generate"): "an argument may be an input text",
    ("coerce", "user_modules"): "an argument may be FILE.py:NAME",
    ("plotting", "coerce"): "gf.show functions take what public functions take",
    ("cli", "api"): "a command calls a public function",
}
UPWARD = {
    # A checkpoint with theta expands it and compares, so it builds the parametrization: lazily.
    ("core", "parametrizations"),
    # A request reaches the same function as a Python call, in a process of its own.
    ("server", "api"),
}
# Imports by a name that is computed, which the rules above cannot see.
COMPUTED = {
    "__init__.py": "public names, on first use",
    "cli/entry.py": "the module of a command",
    "compiler/__init__.py": "its public names, on first use",
    "interop/common.py": "the library of a bridge",
    "interop/inline.py": "the modules whose source it copies",
    "published_claims/__init__.py": "its modules of claims",
    "registry/discovery.py": "tasks, programs, parametrizations, interop, leaderboard",
    "utils/results.py": "notebook.html, for _repr_html_",
    "utils/worker_main.py": "the handlers of a worker process",
}
PACKAGES = set().union(*LAYERS)


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path, package: tuple[str, ...]) -> set[str]:
    """The rooms of this package that a file imports, wherever in the file: relatively, by full
    name, by a string.
    """
    results = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            target = [*base, *(node.module.split(".") if node.module else [])]
            results += [[*target, alias.name] for alias in node.names]
        elif isinstance(node, ast.Import):
            results += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = re.fullmatch(r"(glassformer)?\.(\w+)[\w.]*(:\w+)?", node.value)
            results += [["glassformer", named[2]]] if named and named[2] in PACKAGES else []
    return {name[1] for name in results if name[0] == "glassformer" and len(name) > 1} - {
        "__version__"
    }


def test_the_test_sees_every_way_to_import(tmp_path):
    ways = (
        "from .. import a1; from ..a2 import x; import glassformer.a3.y; from glassformer.a4 "
        "import z"
    )
    strings = (
        'import_module(".lens", package); BRIDGE = "glassformer.proof.prove:PROVE"; "a sentence. '
        'lens"'
    )
    file = tmp_path / "x.py"
    file.write_text(f"{ways}\n{strings}\n")
    assert imported(file, ("glassformer", "tasks")) == {"a1", "a2", "a3", "a4", "lens", "proof"}


def test_imports_by_a_computed_name_are_listed():
    found = set()
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (isinstance(node, ast.Call) and node.args
                    and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")
                    and not isinstance(node.args[0], ast.Constant)):  # fmt: skip
                found.add(path.relative_to(ROOT).as_posix())
    assert found == {*COMPUTED}


def layer(name: str) -> int:
    return next(i for i, names in enumerate(LAYERS) if name in names)


def test_a_package_imports_earlier_layers_only():
    wrong, used = [], set()
    for path in sorted(ROOT.rglob("*.py")):
        if path.parent == ROOT and path.name in ("__init__.py", "__main__.py"):
            continue
        package = package_of(path)
        for name in imported(path, ("glassformer", *path.relative_to(ROOT).parent.parts)):
            if name == package or layer(name) < layer(package):
                continue
            pair = (package, name)
            used.add(pair)
            if pair not in UPWARD and (pair not in PAIRS or layer(name) != layer(package)):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
            if (name, package) in used:
                wrong.append(f"{package} and {name} import each other")
    assert not wrong, wrong
    assert used == {*PAIRS, *UPWARD}, {*PAIRS, *UPWARD} - used
    assert len(LAYERS) == 8


# What a command may import besides api, coerce, utils and its neighbors: to print a result.
PRINTS = {
    "ablation_study": {"plotting.figures.bars", "training.events"},
    "adderboard": {"leaderboard.protocol", "leaderboard.table"},
    "common": {"__version__", "plotting.style"},  # every --figure
    "compare": {"plotting.figures.interventions"},
    "compile": {"core"},  # the digest of a model
    "count": {"core.param_count"},  # names of the counts, in their order
    "entry": {"training.recipe"},  # "--lr is a field of the recipe: --set lr=…"
    "export": {"interop"},
    "inspect": {"plotting.inspect", "plotting.style"},
    # the descriptions of what `api.list_` names
    "list": {"compiler", "puzzles", "puzzles.level",
             "published_claims", "registry", "resolve", "training.recipe", "training.recipes"},
    "prove": {"proof", "proof.accuracy"},
    "puzzle": {"puzzles", "puzzles.level"},  # the title of a level, and names of its scores
    # --interpret interprets a source that is not compiled; the trace is printed in words
    "run": {"compiler.slot_readout", "generate", "lens.explain"},
    "train": {"plotting.figures.curves", "tasks.token_layout", "training.events",
              "training.full_domain_phase", "training.loss_floor", "training.run_file",
              "training.ui.terminal", "verification.counts"},
    "verify": {"verification.verdict"},
}  # fmt: skip


def runtime_imports(tree):
    """The modules that a file of cli/ imports, but for type checkers, from outside cli/."""
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 2 and id(node) not in skipped:
            yield from [node.module] if node.module else (alias.name for alias in node.names)


def test_a_command_calls_the_public_functions_only():
    """Parsing and printing: what works and what checks is in api.py."""
    by_name = {}
    for path in sorted((ROOT / "cli").glob("*.py")):
        modules = {*runtime_imports(ast.parse(path.read_text()))} - {"api", "coerce"}
        if modules := {m for m in modules if m.partition(".")[0] != "utils"}:
            by_name[path.stem] = modules
    assert by_name == PRINTS


def test_tasks_know_no_transformer():
    for path in sorted((ROOT / "tasks").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 2:
                known = node.module in ("core.vocabulary", "registry")
                assert known or node.module.startswith("utils."), (
                    f"{path.name} imports {node.module}"
                )


def test_importing_needs_numpy_alone():
    heavy = (
        "torch", "matplotlib", "typer", "rich", "transformers", "tokenizers",
        "transformer_lens", "onnx",
        "safetensors", "fastapi", "uvicorn", "pydantic", "msgspec",
    )  # fmt: skip
    code = f"import sys, glassformer; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_running_a_program_needs_no_torch_and_no_msgspec():
    code = (
        "import sys, glassformer as gf; print(gf.run('hello-world').output, "
        "{'torch', 'msgspec'} & {*sys.modules})"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "Hello World! set()"


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
    assert not modules & {*glassformer.__all__, "list", "compile"}
    assert {*glassformer.__all__, "list", "compile"} <= set(dir(glassformer))
    assert all(getattr(glassformer, name).__name__ == name for name in glassformer.__all__)


def test_a_command_reads_no_other():
    code = (
        "import sys; sys.argv = ['glassformer', 'count', 'min']; from glassformer.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "rooms = 'cli.count', 'cli.train', 'circuits'\n"
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
    for name in ("compiler", "training", "plotting", "lens", "proof", "verification"):
        assert f"glassformer.{name}" not in modules


@pytest.mark.parametrize("call", [
    "gf.prove('addition:digits=1')", "gf.report('addition:digits=1')",
    "gf.fit('hello-world', 'fast', steps=1)", "gf.explain('min', '6 2 7')",
])  # fmt: skip
def test_the_compiler_is_imported_for_compiled_models_only(call):
    code = (
        f"import sys, glassformer as gf; {call}; print([name for name in ('compiler.driver',"
        " 'compiler.frontend', 'plotting') if f'glassformer.{name}' in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_door_opens_its_own_room_only():
    code = (
        "import sys, glassformer as gf; gf.record(gf.load('min'), '6 2 7');"
        "rooms = 'compiler', 'lens', 'proof', 'interop', 'training', 'plotting'\n"
        "print([room for room in rooms if f'glassformer.{room}' in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_what_a_type_checker_reads_is_what_is_there():
    """The plain imports of __init__.py, and what a name gives at run time."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    lines = [n for n in block.body if isinstance(n, ast.ImportFrom) and n.level and n.module]
    constant = next(node for node in tree.body if isinstance(node, ast.Assign))
    assert not isinstance(constant.value, ast.Constant), "Jedi would skip the block"
    read = {alias.asname: (node.module, alias.name) for node in lines for alias in node.names}
    assert {*read, "list", "compile", "open"} == {*glassformer.__all__, "list", "compile", "open"}
    for name, (module, there) in read.items():
        result = import_module(f"glassformer.{module}")
        assert getattr(glassformer, name) is getattr(result, there)
