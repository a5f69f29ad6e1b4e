"""Resolve refs to models and tasks: "addition:digits=3", "runs/a.safetensors", "hello.taotp",
"lang/sort", "mine.glass", "mine.py:round".
"""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from weakref import WeakKeyDictionary

from . import registry
from .core.model import PROVENANCE_KEY, Model
from .tasks import validation
from .tasks.base import Task
from .utils.argcheck import as_text
from .utils.errors import GlassformerError, ascii_name

# Trained models in the package. The README in this folder describes their training.
TRAINED_FOLDER = Path(__file__).parent / "trained"
TRAINED_DESCRIPTIONS = {
    "adder-3.safetensors": "Sums of three digits, ones first; 17,760 parameters, all sums right.",
    "book-3.safetensors": "Sums of three digits by the recipe of the book; all sums right.",
    "reverse-5.safetensors": "Five symbols backwards; 17,728 parameters, all inputs right.",
    "grok-113.safetensors": "Addition modulo 113, grokked: 226,816 parameters; see the guide.",
    "adder-10-7p.safetensors": "Sums of ten digits from 7 numbers, fitted; proved for all 10^20.",
    "adder-10-34p.safetensors": "Sums of ten digits from 34 numbers, fitted; proved for all 10^20.",
    "adder-coupled.safetensors": "Trained on ten digits; proved for all pairs of a hundred.",
}


def trained_models() -> list[str]:
    """Return the names of the trained models in the package, which `load` accepts."""
    return sorted(file.name for file in TRAINED_FOLDER.glob("*.safetensors"))


def load(ref: str | os.PathLike[str]) -> Model:
    """Load the model of a ref or a path.

    This is a program with options, a checkpoint, a text program, a source (which is compiled), or a
    folder in the format of transformers (GPT-2, Llama).
    """
    ref = as_text(ref, "model")
    if registry.FILE_REF.match(ref):
        user_model: Model = registry.build("program", ref)
        return user_model
    name = registry.ref_head(ref)  # a file name may occur in the options of a program
    if ref.endswith(".safetensors") and (name == ref or name not in registry.entries("program")):
        from .core.checkpoint import load as load_checkpoint

        in_package = ref in trained_models() and not os.path.exists(ref)
        return load_checkpoint(TRAINED_FOLDER / ref if in_package else ref)
    if ref.endswith(".taotp"):
        from .taotp import read

        return check_task_vocabulary(ref, read(ref))
    if registry.is_source_ref(ref):
        from .compiler import source_refs

        return source_refs.compile_ref(source_refs.resolve_source(ref)).model
    if os.path.isfile(os.path.join(ref, "config.json")):  # written by `export --to gpt2`
        from .interop.folder import read_folder as read_folder

        return read_folder(ref)
    if "/" in name or "." in name or os.path.exists(ref):
        expected = (
            "expected a program, or a file that ends in .safetensors, .taotp or .glass, or a "
            "folder of transformers, or mine.py:NAME"
        )
        raise GlassformerError(f"{ref if len(ref) <= 200 else ref[:199] + '…'} — {expected}")
    if f"{name}.safetensors" in trained_models() and name not in registry.entries("program"):
        raise GlassformerError(f"{ref} — no such program; the trained model is {name}.safetensors")
    model: Model = registry.build("program", ref)
    return model


def check_task_vocabulary(ref: str, model: Model) -> Model:
    """Return the model of a text program. Raise an error if its task has another vocabulary.

    A missing task is not an error here; functions that need the task raise the error.
    """
    task = None
    with suppress(GlassformerError):
        task = task_if_known(model)
    if task and task.vocabulary != model.vocabulary:
        raise GlassformerError(
            f"{ref} — expected the tokens of its task {task.ref}, {task.vocabulary}; got "
            f"{model.vocabulary}"
        )
    return model


# Cache: model -> (origin of its task, the task). Copies of a model have no entry.
_TASK_CACHE: "WeakKeyDictionary[Model, tuple[registry.Entry | str | None, Task]]" = (
    WeakKeyDictionary()
)


def _task_origin(model: Model) -> registry.Entry | str | None:
    """Return the registry entry of a model's task.

    For a compiled model, this is the current name of its source, whose file may have changed.
    """
    if PROVENANCE_KEY in model.provenance:
        from .compiler.task import task_name

        return task_name(model)
    return registry.REGISTRY["task"].get(registry.ref_head(model.task))


def model_task(model: Model) -> Task:
    """Return the task of a model.

    It is resolved once per model, and again if its name was registered again (by a notebook cell
    run twice or a changed file).
    """
    if (cached := _TASK_CACHE.get(model)) and cached[0] == _task_origin(model):
        return cached[1]
    if PROVENANCE_KEY in model.provenance:
        from .compiler.task import embedded_task

        task: Task | None = embedded_task(model)
        assert task is not None
    elif not model.task:
        raise GlassformerError(f"{model.name} — has no task; pass task=… (--task …)")
    else:
        task = _load_task_from_file(model.task)
        if not registry.FILE_REF.match(model.task):  # the lookup requires the exact FILE.py:NAME
            task.ref = ascii_name(task.ref)
    _TASK_CACHE[model] = _task_origin(model), task
    return task


def load_task(ref: str | Model) -> Task:
    """Return the task of a ref, or the task of a model."""
    if isinstance(ref, Model):
        return model_task(ref)
    ref = as_text(ref, "task")
    if registry.is_source_ref(ref):
        from .compiler import source_refs

        return source_refs.load_task(ref)
    task: Task = registry.build("task", ref)
    validation.check_attributes(task)
    return task


def _load_task_from_file(ref: str) -> Task:
    """Return the task of a ref that a file contains. Errors show the ref in ASCII."""
    try:
        return load_task(ref)
    except GlassformerError as e:
        if ascii_name(ref) == ref:
            raise
        name = registry.ref_head(ref)
        raise GlassformerError(str(e).replace(name, ascii_name(name)), code=e.code) from None


def task_if_known(model: Model) -> Task | None:
    """Return the task of a model.

    Returns None if the model has no task, or if the task is in a file that the user did not pass.
    """
    in_file = registry.FILE_REF.match(model.task)
    unknown = not model.task or (in_file and not registry.is_registered("task", model.task))
    return None if unknown and PROVENANCE_KEY not in model.provenance else model_task(model)


def common_task(a: Model, b: Model) -> Task:
    """Return the common task of two models, or raise an error."""
    from .compiler.task import embedded_task, same_program, task_name

    source_a, source_b = embedded_task(a), embedded_task(b)
    if source_a and source_b:
        same = same_program(source_a, source_b)
    else:
        same = _shortest_ref(a.task) == _shortest_ref(b.task)
    if a.task and same:
        return model_task(a)
    names = " and ".join(task_name(m) or "no task" for m in (a, b))
    raise GlassformerError(
        f"compare — expected two models of one task, got {names}; "
        "pass task=… (--task …) to compare them on one task"
    )


def _shortest_ref(ref: str) -> str:
    """Return a task ref without default options, such as addition for addition:digits=3."""
    try:
        entry = registry.find("task", registry.ref_head(ref))
    except GlassformerError:
        return ref
    defaults = {name: option.default for name, option in entry.options.items()}
    return entry.ref(defaults | entry.parse(registry.split_ref(ref, entry.options)[1]))


def with_task(model: Model, ref: str) -> Model:
    """Return the model with another task.

    An embedded source is dropped unless it is the program of that task, because the model would
    otherwise be checked against that source.
    """
    from .compiler.task import embedded_task, same_program

    task, source_task = load_task(ref), embedded_task(model)
    task.require(model.vocabulary)
    provenance = dict(model.provenance)
    if source_task and not same_program(source_task, task):
        del provenance[PROVENANCE_KEY]
    return replace(model, task=task.ref, provenance=provenance)


def verdict_task(model: Model, ref: str) -> Task:
    """Return the task named in a saved verdict: the model's task if the names are equal."""
    task = task_if_known(model)
    return task if task and task.ref == ref else _load_task_from_file(ref)
