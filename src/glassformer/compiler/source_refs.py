"""Sources by their names: `lang/sort:vocab=20,dtype=float32` of the library, or `mine.glass`.

The options of a source are those of its ref; `dtype` and `target` every source has. A file is read,
never executed, and no more of it than a source may have.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .. import registry
from ..utils.argcheck import as_text
from ..utils.errors import GlassformerError
from . import library
from .library import LIBRARY_PREFIX as LIBRARY_PREFIX
from .library import SOURCE_SUFFIX
from .task import SequenceTask, cached_task

if TYPE_CHECKING:  # finding a name takes no compiler
    from .driver import Compiled


@dataclass(frozen=True)
class SourceRef:
    """A source, and how it is to be compiled."""

    name: str  # without options
    text: str
    options: dict[str, Any]
    dtype: str = "float64"
    target: str = ""

    @property
    def task_ref(self) -> str:
        """The ref of what is right: for whatever float type."""
        return registry.format_ref(self.name, self.options)

    @property
    def ref(self) -> str:
        how = {"dtype": self.dtype, "target": self.target}
        usual = {"dtype": "float64", "target": ""}
        more = {name: value for name, value in how.items() if value != usual[name]}
        return registry.format_ref(self.name, self.options | more)


def library_refs() -> list[str]:
    """The refs of all sources that come with the package."""
    return [LIBRARY_PREFIX + name for name in library.source_paths()]


def is_source_ref(ref: str) -> bool:
    """Whether a ref names a source."""
    name = ref.partition(":")[0]
    return "\n" not in ref and (name.startswith(LIBRARY_PREFIX) or name.endswith(SOURCE_SUFFIX))


def resolve_source(ref: str) -> SourceRef:
    """The source of a ref, and its options."""
    name, options = registry.split_ref(ref)
    how = {key: options.pop(key) for key in ("dtype", "target") if key in options}
    return SourceRef(name, library.source_text(name), dict(options), **how)


def compile_source(
    source: str | os.PathLike[str], options: Mapping[str, Any] | None, dtype: str, target: str
) -> "Compiled":
    """Compile a text, the path of a .glass file, or a ref."""
    text = as_text(source, "source")
    is_ref = isinstance(source, os.PathLike) or is_source_ref(text)
    named = resolve_source(text) if is_ref else SourceRef("source", text, {})
    how = {name: value for name, value in (("dtype", dtype), ("target", target)) if value}
    return compile_ref(replace(named, options={**named.options, **(options or {})}, **how))


def source_options(source: SourceRef) -> dict[str, dict[str, Any]]:
    """The options of a source: what each is unless told otherwise, and from where to where."""
    from .frontend.parser import SourceReader

    return SourceReader(source.name, source.text, source.options).available_options()


def compile_ref(source: SourceRef) -> "Compiled":
    """The model of a source, which knows its refs, and its proof."""
    from .driver import compile

    try:
        made = compile(
            source.text, source.name, options=source.options, dtype=source.dtype,
            target=source.target, ref=source.ref,
        )  # fmt: skip
    except GlassformerError as e:
        if str(e).startswith(source.name):
            raise
        raise GlassformerError(f"{source.ref} — {e}") from None
    return replace(made, model=replace(made.model, task=source.task_ref))


def load_task(ref: str) -> SequenceTask:
    """The task of a source: what its program writes, on any text."""
    source = resolve_source(ref)
    return cached_task(source.text, source.name, source.options, source.task_ref)
