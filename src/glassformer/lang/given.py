"""What people give as a source: a text, a path, or a ref (`gf.compile`, the command compile)."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..calls import text_of
from .compiler import Compiled
from .named import Named, build, find, is_named


def compile_(
    source: str | os.PathLike[str], *, options: Mapping[str, Any] | None = None, dtype: str = "",
    target: str = "",
) -> Compiled:  # fmt: skip
    """A source made into a model that is proved to do what it says: a text, the path of a .glass
    file, or a ref (lang/sort:vocab=20).

    >>> gf.compile("tokens = [*'ab']; length = 9; emit = first(token, default='a')").model

    `options`: of the source. `target`: "gpt2" for a model that GPT-2 can be as it stands.
    """
    text = text_of(source, "source")
    is_ref = isinstance(source, os.PathLike) or is_named(text)
    found = find(text) if is_ref else Named("source", text, {})
    how = {name: value for name, value in (("dtype", dtype), ("target", target)) if value}
    return build(replace(found, options={**found.options, **(options or {})}, **how))
