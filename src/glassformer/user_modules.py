"""Things of your own: FILE.py:NAME, wherever a ref is typed.

To type such a ref runs that file, as `python FILE.py` does. A ref that merely stands in a
checkpoint, a certificate or a sweep is never typed: it is looked up among what was, and runs
nothing.
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

MAX_SOURCE_BYTES = 10_000_000  # bytes
MAX_LISTED_NAMES = 8  # names in a message
LOADED_FILES: dict[
    str, tuple[ModuleType, tuple[int, int]]
] = {}  # file as typed -> module, time and size


def load_user_files(refs: Any) -> Any:
    """What was given. If it is FILE.py:NAME the file was run, and its NAME can be found from now
    on.
    """
    for text in refs if isinstance(refs, (list, tuple)) else [refs]:
        ref = os.fspath(text) if isinstance(text, os.PathLike) else text
        if isinstance(ref, str) and (found := registry.FILE_REF.match(ref)):
            _register_from_file(*found.group("file", "name"))
        elif isinstance(ref, str) and (found := registry.FILE_WITHOUT_NAME.match(ref)):
            raise _missing_name_error(found["file"])
    return refs


def rebuild_in_worker(kind: str, ref: str, source_digest: str = "") -> Any:
    """What was typed in another process of this run: tasks travel to workers by their ref, and no
    other file of that name is run in its place.
    """
    file = registry.FILE_REF.match(ref)
    if (
        file
        and source_digest
        and _digest(read_text(Path(file["file"]), MAX_SOURCE_BYTES)) != source_digest
    ):
        raise GlassformerError(f"{file['file']} — is another file here than where it was typed")
    return registry.build(kind, load_user_files(ref))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def load_task_with_file(file_ref: str, ref: str) -> Task:
    """A task by its ref, in whatever process, of a run for which this file was typed."""
    load_user_files(file_ref)
    return resolve.load_task(ref)


def _register_from_file(file: str, name: str) -> None:
    from .lens.inspect import VIEWS
    from .training.recipe import Recipe
    from .training.recipes import RECIPES

    module, full = _run_file(file, [*registry.REGISTRY.values(), RECIPES, VIEWS]), f"{file}:{name}"
    if name.startswith("_") or not hasattr(module, name):
        names = [n for n, thing in vars(module).items() if _is_defined_in(thing, module)]
        raise unknown_name_error(f"thing in {file}", name, names)
    thing = getattr(module, name)
    if isinstance(thing, type) and issubclass(thing, Task):
        if full not in registry.REGISTRY["task"]:
            registry.task(name)(thing)
        thing.__reduce__ = _reduce_to_ref  # type: ignore[method-assign, assignment]
    elif isinstance(thing, type) and issubclass(thing, Parametrization):
        if full not in registry.REGISTRY["parametrization"]:
            registry.parametrization(name)(thing)
    elif isinstance(thing, Recipe):
        RECIPES[full] = replace(thing, name=full)
    elif isinstance(thing, Model):
        made = replace(thing, provenance={"maker": "program", **thing.provenance, "ref": full})
        _register_instance("program", full, lambda: made)
    elif isinstance(thing, Task):
        thing.ref = full
        _register_instance("task", full, lambda: thing)
    elif callable(thing) and not isinstance(thing, type):
        if full not in registry.REGISTRY["program"] and full not in VIEWS:
            registry.program(name)(thing)
    else:
        wanted = "expected a task, a program, a parametrization, a recipe or a view"
        raise GlassformerError(f"{full} — {wanted}, got {short_repr(thing)}")


def _missing_name_error(file: str) -> GlassformerError:
    """The error for FILE.py without a name: what stands in the file, which is read and not run."""
    try:
        tree = ast.parse(read_text(Path(file), MAX_SOURCE_BYTES))
        ast.unparse(tree)  # nested too deeply for this below
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
    told = []
    for what, names in ("its tasks are", tasks), ("it also has" if tasks else "it has", others):
        if some := [f"{file}:{n}" for n in names if n[0] != "_"]:
            listed = ", ".join(some[:MAX_LISTED_NAMES]) + " …" * (len(some) > MAX_LISTED_NAMES)
            told.append(f"{what} {listed}")
    there = "; ".join(told) or "it has neither a class nor a function"
    return GlassformerError(f"{file} — expected a name of something in it, FILE.py:NAME; {there}")


def _reduce_to_ref(task: Any) -> tuple[Any, ...]:
    """How pickle sends a task to another process."""
    return rebuild_in_worker, ("task", task.ref, registry.file_digest(task.ref))


def _register_instance(kind: str, ref: str, build: Callable[[], Any]) -> None:
    registry.REGISTRY[kind][ref] = Entry(kind, ref, {}, "", build)


def _is_defined_in(thing: Any, module: ModuleType) -> bool:
    made_here = getattr(thing, "__module__", "") == module.__name__ and callable(thing)
    return made_here or isinstance(thing, (Model, Task))


def _run_file(file: str, registries: list[dict[str, Any]]) -> ModuleType:
    """The file as a module, run once, and again when it was changed: all it put on the shelves
    goes then.
    """
    path = Path(file)
    text = read_text(path, MAX_SOURCE_BYTES)
    at = path.stat()
    stamp = (at.st_mtime_ns, at.st_size)
    if file in LOADED_FILES and LOADED_FILES[file][1] == stamp:
        return LOADED_FILES[file][0]
    name = (
        f"own_{path.stem}_{len(LOADED_FILES)}"
        if file not in LOADED_FILES
        else LOADED_FILES[file][0].__name__
    )
    for shelf in registries:
        for old in [n for n in shelf if n.startswith(f"{file}:")]:
            del shelf[old]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    registry.MODULE_FILES[name] = file
    sys.modules[name] = module
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.append(folder)  # what stands beside it can be imported, and hides nothing
    try:
        exec(compile(text, str(path), "exec"), vars(module))
    except GlassformerError as e:
        raise GlassformerError(f"{file} — {e}") from None
    except (Exception, SystemExit) as e:
        raise GlassformerError(f"{file}{_error_line(e, path)} — {type(e).__name__}: {e}") from None
    LOADED_FILES[file] = module, stamp
    registry.FILE_DIGESTS[file] = _digest(text)
    return module


def _error_line(error: BaseException, path: Path) -> str:
    """:12, if the error comes from line 12 of the file."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f":{line}" if line else ""
