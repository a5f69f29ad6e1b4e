"""Sources by their names: `lang/sort:vocab=20,dtype=float32` of the library, or `mine.glass`.

The options of a source are those of its ref; `dtype` and `target` every source has. A file is read,
never executed, and no more of it than a source may have.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .. import registry
from ..utils.argcheck import text_of
from ..utils.errors import GlassformerError
from . import library
from .library import FILE
from .library import LIBRARY as LIBRARY
from .task import Texts, again

if TYPE_CHECKING:  # finding a name takes no compiler
    from .driver import Compiled


@dataclass(frozen=True)
class Named:
    """A source, and how it is to be compiled."""

    name: str  # without options
    text: str
    options: dict[str, Any]
    dtype: str = "float64"
    target: str = ""

    @property
    def task(self) -> str:
        """The ref of what is right: for whatever float type."""
        return registry.written(self.name, self.options)

    @property
    def ref(self) -> str:
        how = {"dtype": self.dtype, "target": self.target}
        usual = {"dtype": "float64", "target": ""}
        more = {name: value for name, value in how.items() if value != usual[name]}
        return registry.written(self.name, self.options | more)


def names() -> list[str]:
    """The refs of all sources that come with the package."""
    return [LIBRARY + name for name in library.sources()]


def is_named(ref: str) -> bool:
    """Whether a ref names a source."""
    name = ref.partition(":")[0]
    return "\n" not in ref and (name.startswith(LIBRARY) or name.endswith(FILE))


def find(ref: str) -> Named:
    """The source of a ref, and its options."""
    name, options = registry.split(ref)
    how = {key: options.pop(key) for key in ("dtype", "target") if key in options}
    return Named(name, library.source_text(name), dict(options), **how)


def compile_source(
    source: str | os.PathLike[str], options: Mapping[str, Any] | None, dtype: str, target: str
) -> "Compiled":
    """Compile a text, the path of a .glass file, or a ref."""
    text = text_of(source, "source")
    is_ref = isinstance(source, os.PathLike) or is_named(text)
    named = find(text) if is_ref else Named("source", text, {})
    how = {name: value for name, value in (("dtype", dtype), ("target", target)) if value}
    return build(replace(named, options={**named.options, **(options or {})}, **how))


def options(source: Named) -> dict[str, dict[str, Any]]:
    """The options of a source: what each is unless told otherwise, and from where to where."""
    from .frontend.parser import Reader

    return Reader(source.name, source.text, source.options).offered()


def build(source: Named) -> "Compiled":
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
    return replace(made, model=replace(made.model, task=source.task))


def task(ref: str) -> Texts:
    """The task of a source: what its program writes, on any text."""
    source = find(ref)
    return again(source.text, source.name, source.options, source.task)
