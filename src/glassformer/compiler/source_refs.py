"""Sources by ref: `lang/sort:vocab=20,dtype=float32` from the library, or the file `mine.glass`.

A ref accepts the options of its source, `dtype` and `target`. A file is never executed.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .. import registry
from ..utils.argcheck import as_text
from ..utils.errors import GlassformerError
from . import library
from .task import SequenceTask, cached_task

if TYPE_CHECKING:  # finding a source needs no compiler
    from .driver import Compiled

DEFAULTS = {"dtype": "float64", "target": ""}


@dataclass(frozen=True)
class SourceRef:
    """A source with values for its options and the compiler's options."""

    name: str  # name of the source, without options
    text: str
    options: dict[str, Any]
    dtype: str = DEFAULTS["dtype"]
    target: str = DEFAULTS["target"]

    @property
    def task_ref(self) -> str:
        """The ref of the task, which is independent of dtype and target."""
        return registry.format_ref(self.name, self.options)

    @property
    def ref(self) -> str:
        settings = {key: getattr(self, key) for key in DEFAULTS}
        changed = {key: value for key, value in settings.items() if value != DEFAULTS[key]}
        return registry.format_ref(self.name, self.options | changed)


def library_refs() -> list[str]:
    """Return the refs of the sources in the package."""
    return [registry.LIBRARY_PREFIX + name for name in library.source_paths()]


def resolve_source(ref: str) -> SourceRef:
    """Read the source that a ref names, and parse the options in the ref."""
    name, options = registry.split_ref(ref)
    settings = {key: options.pop(key) for key in DEFAULTS if key in options}
    return SourceRef(name, library.source_text(name), dict(options), **settings)


def compile_source(
    source: str | os.PathLike[str], options: Mapping[str, Any] | None, dtype: str, target: str
) -> "Compiled":
    """Compile the text of a source, the path of a .glass file, or a ref."""
    text = as_text(source, "source")
    is_ref = isinstance(source, os.PathLike) or registry.is_source_ref(text)
    ref = resolve_source(text) if is_ref else SourceRef("source", text, {})
    settings = {key: value for key, value in (("dtype", dtype), ("target", target)) if value}
    return compile_ref(replace(ref, options={**ref.options, **(options or {})}, **settings))


def source_options(source: SourceRef) -> dict[str, dict[str, Any]]:
    """Return the default and the range of each option of a source."""
    from .frontend.parser import SourceReader

    return SourceReader(source.name, source.text, source.options).available_options()


def compile_ref(source: SourceRef) -> "Compiled":
    """Compile a source to a model that records the refs of the source and its task."""
    from .driver import compile

    try:
        compiled = compile(
            source.text,
            source.name,
            options=source.options,
            dtype=source.dtype,
            target=source.target,
            ref=source.ref,
        )
    except GlassformerError as e:
        if str(e).startswith(source.name):
            raise
        raise GlassformerError(f"{source.ref} — {e}") from None
    return replace(compiled, model=replace(compiled.model, task=source.task_ref))


def load_task(ref: str) -> SequenceTask:
    """Return the task of a source: continue any input sequence with the program's output."""
    source = resolve_source(ref)
    return cached_task(source.text, source.name, source.options, source.task_ref)
