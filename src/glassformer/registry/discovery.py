"""Where what a ref names is found: in the rooms, and in packages that announce theirs."""

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

# Kind -> packages whose files register such things when imported.
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
    """What a ref names: "addition:digits=3" is the entry addition, built with these options."""
    entry = find(kind, ref_head(ref))
    return entry.build(**entry.parse(split_ref(ref, entry.options)[1]))


def entries(kind: str) -> dict[str, Entry]:
    """All that is registered of a kind."""
    built_in_names(kind)
    for name in entry_points_of(kind):
        with contextlib.suppress(GlassformerError):  # one that is broken hides no other
            load_entry_point(kind, name)
    return REGISTRY[kind]


def built_in_names(kind: str) -> set[str]:
    """The names of a kind that are the package's own: nobody else can give them."""
    rooms = tuple(f"{room}." for room in PACKAGES_BY_KIND.get(kind, ()))
    for file in _module_names(kind):
        importlib.import_module(file)
    return {n for n, e in REGISTRY[kind].items() if e.build.__module__.startswith(rooms)}


def find(kind: str, name: str) -> Entry:
    """The entry of a name, or an error with the nearest names."""
    known, likely = REGISTRY[kind], "." + name.replace("-", "_")
    if name not in known:  # most stand in a file of their name, and the others need not be read
        for file in sorted(_module_names(kind), key=lambda file: not file.endswith(likely)):
            importlib.import_module(file)
            if name in known:
                break
        else:
            load_entry_point(kind, name)
    if name not in known:
        raise _unknown_entry_error(kind, name)
    return known[name]


@functools.cache
def entry_points_of(kind: str) -> dict[str, Any]:
    """What installed packages have of a kind, by name: entry points of `glassformer.tasks`, …"""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=f"glassformer.{kind}s")}


def load_entry_point(kind: str, name: str) -> Any:
    """What a package announces under this name: imported and, unless it sees to that itself,
    registered. None if none does.
    """
    if not (point := entry_points_of(kind).get(name)):
        return None
    try:
        thing = point.load()
    except Exception as e:
        where = f"{point.value} of {getattr(point.dist, 'name', 'a package')}"
        problem = f"{type(e).__name__}: {e}"
        raise GlassformerError(f"{name} — {where} cannot be imported: {problem}") from None
    register: dict[str, Any] = {
        "task": task,
        "program": program,
        "parametrization": parametrization,
        "bridge": bridge,
    }
    if kind in register and name not in REGISTRY[kind]:
        register[kind](name)(thing)
    return thing


def _unknown_entry_error(kind: str, name: str) -> GlassformerError:
    if other := next((k for k, known in REGISTRY.items() if k != kind and name in known), ""):
        return GlassformerError(f"{name} — is a {other}; expected a {kind}")
    if (file := FILE_REF.match(name)) and file["file"] in FILE_DIGESTS:  # the file was executed
        raise GlassformerError(f"{name} — expected a {kind}, that is something else in the file")
    if file:
        why = "is in a file, and only a ref that you type runs one"
        return GlassformerError(f"{name} — {why}: pass it ({kind}={name!r}, --{kind} {name})")
    return unknown_name_error(kind, name, sorted(REGISTRY[kind]), 3)


def is_registered(kind: str, ref: str) -> bool:
    """Whether what a ref names is registered by now."""
    return ref_head(ref) in REGISTRY[kind]


def _module_names(kind: str) -> Iterator[str]:
    for room in PACKAGES_BY_KIND.get(kind, ()):
        for module in pkgutil.iter_modules(importlib.import_module(room).__path__):
            yield f"{room}.{module.name}"
