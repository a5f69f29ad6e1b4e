"""Refs: how models and tasks are named. "addition:digits=3", "runs/a.safetensors",
"hello.taotp", "lang/sort", "mine.glass", "mine.py:round".
"""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from weakref import WeakKeyDictionary

from . import registry
from .compiler import source_refs
from .compiler.embedded_source import PROVENANCE_KEY
from .compiler.task import embedded_task, same_program, task_name
from .core.model import Model
from .tasks import validation
from .tasks.base import Task
from .utils.argcheck import as_text
from .utils.errors import GlassformerError, ascii_name

# Models that come with the package; the README there says how each was made.
TRAINED_FOLDER = Path(__file__).parent / "trained"
TRAINED_DESCRIPTIONS = {
    "adder-3.safetensors": "Sums of three digits, ones first; 17,760 parameters, all sums right.",
    "book-3.safetensors": "Sums of three digits by the recipe of the book; all sums right.",
    "reverse-5.safetensors": "Five symbols backwards; 17,728 parameters, all inputs right.",
    "grok-113.safetensors": "Addition modulo 113, grokked: 226,816 parameters; see the guide.",
    "adder-10-7p.safetensors": "Sums of ten digits from 7 numbers, fitted; proved for all 10^20.",
    "adder-10-34p.safetensors": "Sums of ten digits from 34 numbers, fitted; proved for all 10^20.",
    "adder-coupled.safetensors": "Trained on ten digits; proved for all pairs of a hundred.",
}  # what they are, in a sentence each


def trained_models() -> list[str]:
    """The trained models that come with the package; `load` takes their names."""
    return sorted(file.name for file in TRAINED_FOLDER.glob("*.safetensors"))


def load(ref: str | os.PathLike[str]) -> Model:
    """The model that a ref or a path names: a program with options, a checkpoint, a text
    program, a source (which is compiled) or a folder of transformers (GPT-2, Llama).
    """
    ref = as_text(ref, "model")
    if registry.FILE_REF.match(ref):
        own: Model = registry.build("program", ref)
        return own
    if not ref:
        raise GlassformerError("model — expected a program or a file, got ''", code="not_found")
    name = registry.ref_head(ref)  # after a name, an option of a program may name a file, too
    if ref.endswith(".safetensors") and (name == ref or name not in registry.entries("program")):
        from .core.checkpoint import load as load_checkpoint

        known = ref in trained_models() and not os.path.exists(ref)
        return load_checkpoint(TRAINED_FOLDER / ref if known else ref)
    if ref.endswith(".taotp"):
        from .taotp import read

        return check_task_vocabulary(ref, read(ref))
    if source_refs.is_source_ref(ref):
        return source_refs.compile_ref(source_refs.resolve_source(ref)).model
    if os.path.isfile(
        os.path.join(ref, "config.json")
    ):  # a folder that `export --to gpt2` or transformers wrote
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
    """The model of a text that people write by hand; an error if it names a task of other tokens.

    A task that cannot be found is not missed here: whoever needs it says so.
    """
    task = None
    with suppress(GlassformerError):
        task = task_if_known(model)
    if task and task.vocabulary != model.vocabulary:
        wants = f"its task {task.ref} has {task.vocabulary}"
        raise GlassformerError(f"{ref} — {wants}; its tokens are {model.vocabulary}")
    return model


# Cache: model -> (where its task comes from, the task). A copy of a model is another key, so
# `replace` and pickles start without an entry.
_TASK_CACHE: "WeakKeyDictionary[Model, tuple[registry.Entry | str | None, Task]]" = (
    WeakKeyDictionary()
)


def _task_origin(model: Model) -> registry.Entry | str | None:
    """The registry entry of a model's task; for a compiled model, how its source is named now: a
    file of that name may have changed.
    """
    if PROVENANCE_KEY in model.provenance:
        return task_name(model)
    return registry.REGISTRY["task"].get(registry.ref_head(model.task))


def model_task(model: Model) -> Task:
    """Return a model's own task. It is resolved once per model, and again after a task of that
    name is registered again: a notebook cell run twice, a changed file.
    """
    if (known := _TASK_CACHE.get(model)) and known[0] == _task_origin(model):
        return known[1]
    task: Task | None = embedded_task(model)
    if task is None and not model.task:
        raise GlassformerError(f"{model.name} — knows no task; name one (task=…, --task …)")
    if task is None:
        task = load_task(model.task)
        if not registry.FILE_REF.match(model.task):  # later lookups need the exact FILE.py:NAME
            task.ref = ascii_name(task.ref)
    _TASK_CACHE[model] = _task_origin(model), task
    return task


def load_task(ref: str | Model) -> Task:
    """Return the task of a ref, or a model's own task."""
    if isinstance(ref, Model):
        return model_task(ref)
    ref = as_text(ref, "task")
    if source_refs.is_source_ref(ref):
        return source_refs.load_task(ref)
    found: Task = registry.build("task", ref)
    validation.check_attributes(found)
    return found


def task_if_known(model: Model) -> Task | None:
    """Return a model's own task; None if it has none, or if the task is in a file that the user
    did not pass.
    """
    in_file = registry.FILE_REF.match(model.task)
    unknown = not model.task or (in_file and not registry.is_registered("task", model.task))
    return None if unknown and PROVENANCE_KEY not in model.provenance else model_task(model)


def common_task(a: Model, b: Model) -> Task:
    """Return the common task of two models, or raise an error."""
    own, other = embedded_task(a), embedded_task(b)
    if a.task and (
        same_program(own, other)
        if own and other
        else _shortest_ref(a.task) == _shortest_ref(b.task)
    ):
        return model_task(a)
    names = " and ".join(task_name(m) or "no task" for m in (a, b))
    raise GlassformerError(
        f"compare — expected two models of one task, got {names}; "
        "if both can do a third one, name it (task=…, --task …)"
    )


def _shortest_ref(ref: str) -> str:
    """Return a task's ref without default options: addition for addition:digits=3."""
    try:
        entry = registry.find("task", registry.ref_head(ref))
    except GlassformerError:
        return ref
    defaults = {name: option.default for name, option in entry.options.items()}
    return entry.ref(defaults | entry.parse(registry.split_ref(ref, entry.options)[1]))


def with_task(model: Model, ref: str) -> Model:
    """The model with another task than its own. A source that it carries stays only if it is the
    program of that task: otherwise the model would still be judged by that source.
    """
    task, own = load_task(ref), embedded_task(model)
    task.require(model.vocabulary)
    provenance = dict(model.provenance)
    if own and not same_program(own, task):
        del provenance[PROVENANCE_KEY]
    return replace(model, task=task.ref, provenance=provenance)


def verdict_task(model: Model, ref: str) -> Task:
    """The task that a saved verdict of a model names: the model's own, if that is its name."""
    own = task_if_known(model)
    return own if own and own.ref == ref else load_task(ref)
