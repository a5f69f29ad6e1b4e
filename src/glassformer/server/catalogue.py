"""What a page may name: what is registered, what comes with the package, what was typed on the
command line, and files of the folders given there. A file of Python runs only if it was typed.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from .. import registry, resolve, taotp, user_modules
from ..compiler import source_refs
from ..compiler.task import embedded_task
from ..core.model import Model
from ..tasks.base import Task
from ..training.recipes import RECIPES
from ..utils.errors import GlassformerError
from ..utils.limits import MAX_REF_CHARACTERS
from .fs_sandbox import FileSandbox

MODEL_SUFFIXES = (".safetensors", ".taotp", ".glass")
FILE_SUFFIXES = (
    *MODEL_SUFFIXES,
    ".csv",
    ".json",
    ".toml",
    ".py",
)  # that some option or other may name
RECIPE_NAMES = ["auto", *sorted(RECIPES)]  # the first is for tasks that name none
MAX_LISTED_FILES = 1_000  # files of a folder that are shown


class Catalogue:
    """Refs from a page, as models and tasks."""

    def __init__(self, typed: Sequence[str], folders: Sequence[Path], fence: FileSandbox) -> None:
        self.command_line_refs, self.folders, self.sandbox = list(typed), list(folders), fence
        user_modules.load_user_files(
            self.command_line_refs
        )  # FILE.py:NAME: the file is run, since it was typed

    def model(self, ref: str) -> Model:
        """The model of a ref."""
        if ref in self.command_line_refs:
            with self.sandbox.suspended():
                return resolve.load(ref)
        self._check_ref(ref)
        name, options = registry.split_ref(ref)
        if name.endswith(MODEL_SUFFIXES):
            file, rest = self._file(name), ref[len(name) :]
            return self.without_unknown_task(resolve.load(f"{file}{rest}"))
        if source_refs.is_source_ref(ref):
            return resolve.load(ref)
        self._check_options(ref, options)
        if "/" in name or os.sep in name or "." in name:
            expected = "a program, lang/NAME, or a file that ends in .safetensors, .taotp or .glass"
            raise GlassformerError(f"{ref} — expected {expected}")
        model: Model = registry.build("program", ref)
        return model

    def task(self, ref: str, model: Model | None = None) -> Task:
        """The task of a ref; without one, the model's own."""
        if not ref and model:
            if own_task := embedded_task(model):
                return own_task
            if not model.task:
                return resolve.load_task(model)  # which says what is wrong
            ref = model.task
        if ref in self.command_line_refs or (
            registry.FILE_REF.match(ref) and registry.is_registered("task", ref)
        ):
            with self.sandbox.suspended():
                return resolve.load_task(ref)
        self._check_ref(ref)
        name, options = registry.split_ref(ref)
        if source_refs.is_source_ref(ref):
            if name.endswith(".glass"):
                return source_refs.load_task(f"{self._file(name)}{ref[len(name) :]}")
            return source_refs.load_task(ref)
        self._check_options(ref, options)
        task: Task = registry.build("task", ref)
        return task

    def without_unknown_task(self, model: Model) -> Model:
        """A model that came in a file or from the page: of a task that may not be named, none."""
        if not model.task or embedded_task(model):
            return model
        try:
            self.task(model.task)
        except GlassformerError:
            return replace(model, task="")
        return model

    def list_names(self) -> dict[str, list[str]]:
        """All that can be named, to choose from."""
        return {
            "typed": self.command_line_refs,
            "programs": sorted(registry.entries("program")),
            "lang": source_refs.library_refs(),
            "trained": resolve.trained_models(),
            "texts": taotp.examples(),
            "files": list(self._model_files()),
            "tasks": sorted(registry.entries("task")),
            "recipes": RECIPE_NAMES,
        }

    # ── files ──────────────────────────────────────────────────────────────────────────────────
    def _file(self, name: str, called: bool = True) -> Path:
        """A file of the folders given, wherever links lead, or one that comes with the package.
        `called`: it may be named as its folder calls it.
        """
        if name in resolve.trained_models():
            return resolve.TRAINED_FOLDER / name
        if name in taotp.examples():
            return taotp.EXAMPLES / name
        with suppress(OSError, ValueError):
            real = Path(os.path.realpath(name))
            if any(real.is_relative_to(folder) for folder in self.folders):
                return real
            for folder in self.folders if called else ():
                real = Path(os.path.realpath(folder / name))
                if real.is_relative_to(folder) and real.is_file():
                    return real
        way_out = "the command line gives folders: glassformer studio REF --folder FOLDER"
        raise GlassformerError(f"{name} — is in no folder that was given; {way_out}")

    def _model_files(self) -> Iterator[str]:
        for folder in self.folders:
            found = (
                f for f in sorted(folder.iterdir()) if f.suffix in MODEL_SUFFIXES and f.is_file()
            )
            for _, file in zip(range(MAX_LISTED_FILES), found, strict=False):
                if Path(os.path.realpath(file)).is_relative_to(folder):
                    yield str(file)

    def _check_ref(self, ref: str) -> None:
        if len(ref) > MAX_REF_CHARACTERS:
            raise GlassformerError(
                f"{ref[:60]}… — a ref has at most {MAX_REF_CHARACTERS:,} characters"
            )
        if "\0" in ref:
            raise GlassformerError("ref — holds a null byte")
        if registry.FILE_REF.match(ref):
            way_out = f"only what is typed on the command line does: glassformer studio {ref}"
            raise GlassformerError(f"{ref} — would run a file; {way_out}")

    def _check_options(self, ref: str, options: dict[str, str]) -> None:
        for name, value in options.items():
            if value.endswith(FILE_SUFFIXES):
                try:
                    self._file(value, called=False)  # a program opens it by this very name
                except GlassformerError as e:
                    raise GlassformerError(f"{ref} — {name}={e}") from None
