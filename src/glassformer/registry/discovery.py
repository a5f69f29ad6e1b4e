"""Lookup of registered names in this package and in the entry points of other packages."""

import contextlib
import functools
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

from ..utils.errors import GlassformerError, unknown_name_error
from .decorators import bridge, parametrization, program, task
from .entry import FILE_DIGESTS, REGISTRY, Entry
from .ref_syntax import FILE_REF, ref_head, split_ref

# Kind -> packages whose modules register entries of that kind when imported.
PACKAGES_BY_KIND = {
    kind: tuple(f"{__package__.partition('.')[0]}.{package}" for package in packages)
    for kind, packages in {
        "task": ("tasks",),
        "program": ("programs", "programs.adders"),
        "parametrization": ("parametrizations", "programs.adders"),
        "bridge": ("interop", "leaderboard"),
    }.items()
}


def build(kind: str, ref: str) -> Any:
    """Build the object of a ref; "addition:digits=3" builds the entry addition with digits=3."""
    entry = find(kind, ref_head(ref))
    return entry.build(**entry.parse(split_ref(ref, entry.options)[1]))


def entries(kind: str) -> dict[str, Entry]:
    """Return all entries of a kind by name, including entry points of installed packages."""
    built_in_names(kind)
    for name in entry_points_of(kind):
        with contextlib.suppress(GlassformerError):  # skip broken entry points
            load_entry_point(kind, name)
    return REGISTRY[kind]


def built_in_names(kind: str) -> set[str]:
    """Return the names of all entries of a kind that this package defines."""
    packages = tuple(f"{package}." for package in PACKAGES_BY_KIND.get(kind, ()))
    for file in _module_names(kind):
        importlib.import_module(file)
    return {n for n, e in REGISTRY[kind].items() if e.build.__module__.startswith(packages)}


def find(kind: str, name: str) -> Entry:
    """Return the entry of a name; raise an error with similar names if there is none."""
    entries, likely = REGISTRY[kind], "." + name.replace("-", "_")
    if name not in entries:  # the module with a similar name usually defines the entry
        for file in sorted(_module_names(kind), key=lambda file: not file.endswith(likely)):
            importlib.import_module(file)
            if name in entries:
                break
        else:
            load_entry_point(kind, name)
    if name not in entries:
        raise _unknown_entry_error(kind, name)
    return entries[name]


@functools.cache
def entry_points_of(kind: str) -> dict[str, Any]:
    """Return the entry points of installed packages in the group `glassformer.<kind>s` by name."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=f"glassformer.{kind}s")}


def load_entry_point(kind: str, name: str) -> Any:
    """Import an entry point, register it unless it registers itself, and return it, or None."""
    if not (point := entry_points_of(kind).get(name)):
        return None
    try:
        builder = point.load()
    except Exception as e:
        where = f"{point.value} of {getattr(point.dist, 'name', 'a package')}"
        problem = f"{type(e).__name__}: {e}"
        raise GlassformerError(f"{name} — {where} cannot be imported: {problem}") from None
    register: dict[str, Any] = {
        "task": task, "program": program, "parametrization": parametrization, "bridge": bridge,
    }  # fmt: skip
    if kind in register and name not in REGISTRY[kind]:
        register[kind](name)(builder)
    return builder


def _unknown_entry_error(kind: str, name: str) -> GlassformerError:
    if other := next((k for k, entries in REGISTRY.items() if k != kind and name in entries), ""):
        return GlassformerError(f"{name} — is a {other}; expected a {kind}")
    if (file := FILE_REF.match(name)) and file["file"] in FILE_DIGESTS:  # already executed
        raise GlassformerError(f"{name} — expected a {kind}, got another object of the file")
    if file:
        rule = "only refs passed by the user execute a file"
        hint = f"pass {kind}={name!r} (--{kind} {name})"
        return GlassformerError(f"{name} — {rule}; {hint}")
    return unknown_name_error(kind, name, sorted(REGISTRY[kind]), 3)


def is_registered(kind: str, ref: str) -> bool:
    """Return whether the name of a ref is already registered."""
    return ref_head(ref) in REGISTRY[kind]


def _module_names(kind: str) -> Iterator[str]:
    for package in PACKAGES_BY_KIND.get(kind, ()):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            yield f"{package}.{module.name}"
