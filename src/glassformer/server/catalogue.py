"""The refs that a page may use: registered names, package files, command-line refs and folders.

Only command-line refs may execute a Python file.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from .. import registry, resolve, taotp, user_modules
from ..compiler import source_refs
from ..compiler.task import embedded_task
from ..core.model import Model
from ..tasks.base import Task
from ..training.recipes import RECIPES
from ..utils.argcheck import as_text
from ..utils.errors import GlassformerError
from ..utils.limits import MAX_REF_CHARACTERS
from .fs_sandbox import FileSandbox

MODEL_SUFFIXES = (".safetensors", ".taotp", ".glass")
# Option values with these suffixes are checked as files.
FILE_SUFFIXES = (*MODEL_SUFFIXES, ".csv", ".json", ".toml", ".py")
RECIPE_NAMES = ["auto", *sorted(RECIPES)]
MAX_LISTED_FILES = 1_000


class Catalogue:
    """Loads models and tasks from the refs that a page may use."""

    def __init__(self, typed: Sequence[str], folders: Sequence[Path], sandbox: FileSandbox) -> None:
        self.command_line_refs, self.folders, self.sandbox = list(typed), list(folders), sandbox
        user_modules.load_user_files(self.command_line_refs)  # this may execute FILE.py:NAME

    def model(self, ref: str) -> Model:
        """Return the model of a ref."""
        if ref in self.command_line_refs:
            with self.sandbox.suspended():
                return resolve.load(ref)
        self._check_ref(as_text(ref, "model"))
        name, options = registry.split_ref(ref)
        if name.endswith(MODEL_SUFFIXES):
            file, rest = self._file(name), ref[len(name) :]
            return self.without_unknown_task(resolve.load(f"{file}{rest}"))
        if registry.is_source_ref(ref):
            return resolve.load(ref)
        self._check_options(ref, options)
        if "/" in name or os.sep in name or "." in name:
            expected = "a program, lang/NAME, or a file that ends in .safetensors, .taotp or .glass"
            raise GlassformerError(f"{ref}: expected {expected}", code="not_found")
        model: Model = registry.build("program", ref)
        return model

    def task(self, ref: str, model: Model | None = None) -> Task:
        """Return the task of a ref, or the model's task without a ref."""
        if not ref and model:
            if own_task := embedded_task(model):
                return own_task
            if not model.task:
                return resolve.load_task(model)  # raises the appropriate error
            ref = model.task
        if ref in self.command_line_refs or (
            registry.FILE_REF.match(ref) and registry.is_registered("task", ref)
        ):
            with self.sandbox.suspended():
                return resolve.load_task(ref)
        self._check_ref(ref)
        name, options = registry.split_ref(ref)
        if registry.is_source_ref(ref):
            if name.endswith(".glass"):
                return source_refs.load_task(f"{self._file(name)}{ref[len(name) :]}")
            return source_refs.load_task(ref)
        self._check_options(ref, options)
        task: Task = registry.build("task", ref)
        return task

    def without_unknown_task(self, model: Model) -> Model:
        """Remove the task ref of an untrusted model unless a page may use it."""
        if not model.task or embedded_task(model):
            return model
        try:
            self.task(model.task)
        except GlassformerError:
            return replace(model, task="")
        return model

    def list_names(self) -> dict[str, list[str]]:
        """Return kind -> refs that the page may use."""
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
        """Return a file in the folders or the package; `called` also accepts names in folders."""
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
        problem = "not in a folder of the command line. Pass --folder FOLDER"
        raise GlassformerError(f"{name}: {problem}", code="not_found")

    def _model_files(self) -> Iterator[str]:
        for folder in self.folders:
            entries = sorted(folder.iterdir())
            files = (f for f in entries if f.suffix in MODEL_SUFFIXES and f.is_file())
            for file in islice(files, MAX_LISTED_FILES):
                if file.resolve().is_relative_to(folder):
                    yield str(file)

    def _check_ref(self, ref: str) -> None:
        if len(ref) > MAX_REF_CHARACTERS:
            problem = f"expected at most {MAX_REF_CHARACTERS:,} characters"
            raise GlassformerError(f"{ref[:60]}…: {problem}")
        if "\0" in ref:
            raise GlassformerError("ref: expected text without null bytes")
        if registry.FILE_REF.match(ref):
            problem = "executes a Python file. Pass it on the command line"
            raise GlassformerError(f"{ref}: {problem}")

    def _check_options(self, ref: str, options: dict[str, str]) -> None:
        for name, value in options.items():
            if value.endswith(FILE_SUFFIXES):
                try:
                    self._file(value, called=False)  # the program opens the path as written
                except GlassformerError as e:
                    raise GlassformerError(f"{ref}: {name}={e}") from None
