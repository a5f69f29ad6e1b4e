"""User files as refs of the form FILE.py:NAME.

Passing such a ref executes the file, as `python FILE.py` does. Refs read from checkpoints,
certificates or sweep specs never execute code; only registered names are looked up.
"""

import ast
import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from . import registry, resolve
from .core.model import Model
from .parametrizations.base import Parametrization
from .registry import Entry
from .tasks.base import Task
from .utils.errors import GlassformerError, short_repr, unknown_name_error
from .utils.fileio import read_text

MAX_SOURCE_BYTES = 10_000_000
MAX_LISTED_NAMES = 8  # number of names listed in a message
LOADED_FILES: dict[str, tuple[ModuleType, tuple[int, int]]] = {}  # path -> module, (mtime, size)


def load_user_files(refs: Any) -> Any:
    """Execute the files of refs FILE.py:NAME and register their names. Return `refs`."""
    for value in refs if isinstance(refs, (list, tuple)) else [refs]:
        ref = os.fspath(value) if isinstance(value, os.PathLike) else value
        if isinstance(ref, str) and (match := registry.FILE_REF.match(ref)):
            _register_from_file(*match.group("file", "name"))
        elif isinstance(ref, str) and (match := registry.FILE_WITHOUT_NAME.match(ref)):
            raise _missing_name_error(match["file"])
    return refs


def rebuild_in_worker(kind: str, ref: str, source_digest: str = "") -> Any:
    """Rebuild an object in another process of this run.

    Tasks are sent by ref. A file with this name but different content is not executed.
    """
    match = registry.FILE_REF.match(ref)
    if match and source_digest:
        file = match["file"]
        if _digest(read_text(Path(file), MAX_SOURCE_BYTES)) != source_digest:
            expected = "the content of the process that sent the object"
            raise GlassformerError(f"{file} — expected {expected}, got another file")
    return registry.build(kind, load_user_files(ref))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def load_task_with_file(file_ref: str, ref: str) -> Task:
    """Return the task of a ref, in any process, after executing the file of `file_ref`."""
    load_user_files(file_ref)
    return resolve.load_task(ref)


def _register_from_file(file: str, name: str) -> None:
    from .lens.inspect import VIEWS
    from .training.recipe import Recipe
    from .training.recipes import RECIPES

    ref, module = f"{file}:{name}", _run_file(file, [*registry.REGISTRY.values(), RECIPES, VIEWS])
    if name.startswith("_") or not hasattr(module, name):
        names = [n for n, value in vars(module).items() if _is_defined_in(value, module)]
        raise unknown_name_error(f"name in {file}", name, names)
    value = getattr(module, name)
    if isinstance(value, type) and issubclass(value, Task):
        if ref not in registry.REGISTRY["task"]:
            registry.task(name)(value)
        value.__reduce__ = _reduce_to_ref  # type: ignore[method-assign, assignment]
    elif isinstance(value, type) and issubclass(value, Parametrization):
        if ref not in registry.REGISTRY["parametrization"]:
            registry.parametrization(name)(value)
    elif isinstance(value, Recipe):
        RECIPES[ref] = replace(value, name=ref)
    elif isinstance(value, Model):
        model = replace(value, provenance={"maker": "program", **value.provenance, "ref": ref})
        _register_instance("program", ref, lambda: model)
    elif isinstance(value, Task):
        value.ref = ref
        _register_instance("task", ref, lambda: value)
    elif callable(value) and not isinstance(value, type):
        if ref not in registry.REGISTRY["program"] and ref not in VIEWS:
            registry.program(name)(value)
    else:
        expected = "expected a task, a program, a parametrization, a recipe or a view"
        raise GlassformerError(f"{ref} — {expected}, got {short_repr(value)}")


def _missing_name_error(file: str) -> GlassformerError:
    """Return the error for FILE.py without a name.

    The message lists names in the file, which is parsed but not executed.
    """
    try:
        tree = ast.parse(read_text(Path(file), MAX_SOURCE_BYTES))
        ast.unparse(tree)  # raises an error here for too deep nesting
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return GlassformerError(f"{file} — expected a file of Python, and FILE.py:NAME")
    tasks, others = list[str](), list[str]()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
            (tasks if bases & {"Task", *tasks} else others).append(node.name)
        elif isinstance(node, ast.FunctionDef):
            others.append(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            others += [x.id for x in node.targets if isinstance(x, ast.Name)]
    lists = []
    for label, names in ("tasks", tasks), ("other names" if tasks else "names", others):
        if public := [f"{file}:{n}" for n in names if n[0] != "_"]:
            more = " …" * (len(public) > MAX_LISTED_NAMES)
            lists.append(f"{label}: {', '.join(public[:MAX_LISTED_NAMES])}{more}")
    contents = "; ".join(lists) or "it defines no class and no function"
    return GlassformerError(f"{file} — expected FILE.py:NAME; {contents}")


def _reduce_to_ref(task: Any) -> tuple[Any, ...]:
    """Pickle a task by its ref."""
    return rebuild_in_worker, ("task", task.ref, registry.file_digest(task.ref))


def _register_instance(kind: str, ref: str, build: Callable[[], Any]) -> None:
    registry.REGISTRY[kind][ref] = Entry(kind, ref, {}, "", build)


def _is_defined_in(value: Any, module: ModuleType) -> bool:
    own = getattr(value, "__module__", "") == module.__name__ and callable(value)
    return own or isinstance(value, (Model, Task))


def _run_file(file: str, registries: list[dict[str, Any]]) -> ModuleType:
    """Execute a file as a module, once per version.

    All objects registered by an older version are removed.
    """
    path = Path(file)
    text = read_text(path, MAX_SOURCE_BYTES)
    stat = path.stat()
    version = (stat.st_mtime_ns, stat.st_size)
    loaded, loaded_version = LOADED_FILES.get(file, (None, None))
    if loaded and loaded_version == version:
        return loaded
    name = loaded.__name__ if loaded else f"own_{path.stem}_{len(LOADED_FILES)}"
    for entries in registries:
        for old in [n for n in entries if n.startswith(f"{file}:")]:
            del entries[old]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    registry.MODULE_FILES[name] = file
    sys.modules[name] = module
    if (folder := str(path.resolve().parent)) not in sys.path:
        # appended, so that modules next to the file do not shadow other modules
        sys.path.append(folder)
    try:
        exec(compile(text, str(path), "exec"), vars(module))
    except GlassformerError as e:
        raise GlassformerError(f"{file} — {e}") from None
    except (Exception, SystemExit) as e:
        raise GlassformerError(f"{file}{_error_line(e, path)} — {type(e).__name__}: {e}") from None
    LOADED_FILES[file] = module, version
    registry.FILE_DIGESTS[file] = _digest(text)
    return module


def _error_line(error: BaseException, path: Path) -> str:
    """Return ":12" if the error was raised in line 12 of the file, else ""."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f":{line}" if line else ""
