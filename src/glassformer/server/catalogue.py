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
from ..compiler.task import carried
from ..core.model import Model
from ..tasks.base import Task
from ..training.recipes import RECIPES
from ..utils.errors import GlassformerError
from ..utils.limits import REF
from .fs_sandbox import Fence

MODELS = (".safetensors", ".taotp", ".glass")
FILES = (*MODELS, ".csv", ".json", ".toml", ".py")  # that some option or other may name
RECIPE_NAMES = ["suited", *sorted(RECIPES)]  # the first is for tasks that name none
LISTED = 1_000  # files of a folder that are shown


class Shelf:
    """Refs from a page, as models and tasks."""

    def __init__(self, typed: Sequence[str], folders: Sequence[Path], fence: Fence) -> None:
        self.typed, self.folders, self.fence = list(typed), list(folders), fence
        user_modules.typed(self.typed)  # FILE.py:NAME: the file is run, since it was typed

    def model(self, ref: str) -> Model:
        """The model of a ref."""
        if ref in self.typed:
            with self.fence.lowered():
                return resolve.load(ref)
        self._check_text(ref)
        name, options = registry.split(ref)
        if name.endswith(MODELS):
            file, rest = self._file(name), ref[len(name) :]
            return self.settled(resolve.load(f"{file}{rest}"))
        if source_refs.is_named(ref):
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
            if own_task := carried(model):
                return own_task
            if not model.task:
                return resolve.load_task(model)  # which says what is wrong
            ref = model.task
        if ref in self.typed or (registry.FILE.match(ref) and registry.is_known("task", ref)):
            with self.fence.lowered():
                return resolve.load_task(ref)
        self._check_text(ref)
        name, options = registry.split(ref)
        if source_refs.is_named(ref):
            if name.endswith(".glass"):
                return source_refs.task(f"{self._file(name)}{ref[len(name) :]}")
            return source_refs.task(ref)
        self._check_options(ref, options)
        task: Task = registry.build("task", ref)
        return task

    def settled(self, model: Model) -> Model:
        """A model that came in a file or from the page: of a task that may not be named, none."""
        if not model.task or carried(model):
            return model
        try:
            self.task(model.task)
        except GlassformerError:
            return replace(model, task="")
        return model

    def names(self) -> dict[str, list[str]]:
        """All that can be named, to choose from."""
        return {
            "typed": self.typed, "programs": sorted(registry.entries("program")),
            "lang": source_refs.names(), "trained": resolve.trained(), "texts": taotp.examples(),
            "files": list(self._files()), "tasks": sorted(registry.entries("task")),
            "recipes": RECIPE_NAMES,
        }  # fmt: skip

    # ── files ──────────────────────────────────────────────────────────────────────────────────
    def _file(self, name: str, called: bool = True) -> Path:
        """A file of the folders given, wherever links lead, or one that comes with the package.
        `called`: it may be named as its folder calls it.
        """
        if name in resolve.trained():
            return resolve.TRAINED / name
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
        way_out = "the command line gives folders: glassformer open REF --folder FOLDER"
        raise GlassformerError(f"{name} — is in no folder that was given; {way_out}")

    def _files(self) -> Iterator[str]:
        for folder in self.folders:
            found = (f for f in sorted(folder.iterdir()) if f.suffix in MODELS and f.is_file())
            for _, file in zip(range(LISTED), found, strict=False):
                if Path(os.path.realpath(file)).is_relative_to(folder):
                    yield str(file)

    def _check_text(self, ref: str) -> None:
        if len(ref) > REF:
            raise GlassformerError(f"{ref[:60]}… — a ref has at most {REF:,} characters")
        if "\0" in ref:
            raise GlassformerError("ref — holds a null byte")
        if registry.FILE.match(ref):
            way_out = f"only what is typed on the command line does: glassformer open {ref}"
            raise GlassformerError(f"{ref} — would run a file; {way_out}")

    def _check_options(self, ref: str, options: dict[str, str]) -> None:
        for name, value in options.items():
            if value.endswith(FILES):
                try:
                    self._file(value, called=False)  # a program opens it by this very name
                except GlassformerError as e:
                    raise GlassformerError(f"{ref} — {name}={e}") from None
