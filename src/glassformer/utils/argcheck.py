"""How a call is read: which argument is which, and whether each is what the annotations say.

Python itself says both, in words about functions; these are about what the caller typed.
"""

import collections.abc
import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .errors import GlassformerError, did_you_mean, shown
from .limits import LISTED, count

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
PLAIN: dict[Any, tuple[type, ...]] = {
    int: (int, np.integer), float: (int, float, np.number), bool: (bool, np.bool_),
    Path: (os.PathLike,),
}  # fmt: skip
WORDS: dict[Any, tuple[str, str]] = {  # one, and several
    int: ("a whole number", "whole numbers"), float: ("a number", "numbers"),
    str: ("a text", "texts"), bool: ("True or False", "True or False"), Path: ("a path", "paths"),
    os.PathLike: ("a path", "paths"),
    np.random.Generator: ("a generator (np.random.default_rng(seed))", "generators"),
    collections.abc.Sequence: ("a list", "lists"), collections.abc.Mapping: ("a table", "tables"),
    collections.abc.Callable: ("a function", "functions"),
}  # fmt: skip


def bound(
    what: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any],
    may_lack: Iterable[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """The arguments of a call by their names; an error if they do not fit the signature."""
    takes = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    places = [p.name for p in takes if p.kind is not p.KEYWORD_ONLY]
    if len(args) > len(places):
        few = ", ".join(places) or "nothing"
        raise GlassformerError(f"{what} — takes {few} by position, got {len(args)} arguments")
    given = dict(zip(places, args, strict=False))
    for name in kwargs:
        if name in given:
            raise GlassformerError(f"{what} — {name} is given twice")
        if name not in signature.parameters and len(takes) == len(signature.parameters):
            hint = did_you_mean(name, [p.name for p in takes], 1, 0.6, "it takes")
            if "ref" in signature.parameters:
                hint += ". Options are part of the ref: 'addition:digits=3'"
            raise GlassformerError(f"{what} — unexpected keyword {name!r}; {hint}")
    given |= kwargs
    needed = [p.name for p in takes if p.default is p.empty and p.name not in may_lack]
    if missing := [name for name in needed if name not in given]:
        lacking = " and ".join(missing)
        raise GlassformerError(f"{what} — without {lacking}: it needs {', '.join(needed)}")
    return given


def text_of(ref: Any, what: str, expected: str = "a ref or a path") -> str:
    """A ref or a path as text; an error if it is none."""
    if isinstance(ref, (str, os.PathLike)):
        with suppress(Exception):  # whatever someone's own kind of path may raise
            if (text := os.fsdecode(ref)) or "ref" not in expected:
                return text
    raise GlassformerError(f"{what} — expected {expected}, got {shown(ref)}")


def attribute(value: Any, name: str) -> Any:
    """Return an attribute of any object; None if it is missing or raises an exception."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def check_types(what: str, hints: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuses a value that is not what its annotation says."""
    for name, value in given.items():
        if hints.get(name, Any) is not Any and (n := count(value)) > LISTED:
            many = f"at most {LISTED:,} values, got {n:,}"
            raise GlassformerError(f"{what} — {name}: expected {many}")
        if not fits(value, hints.get(name, Any)):
            ours = isinstance(hints[name], type) and hints[name] not in WORDS
            must = f"{name}: expected" if ours else f"{name} must be"
            raise GlassformerError(f"{what} — {must} {in_words(hints[name])}, got {shown(value)}")


def check_function(what: str, f: Any, form: str) -> None:
    """Refuses what cannot be called like this: check_function("map", f, "(array) -> array")."""
    if not _takes(f, form.partition(")")[0].count(",") + 1):
        raise GlassformerError(f"{what} — expected a function {form}, got {shown(f)}")


def _takes(f: Any, n: int) -> bool:
    """Whether something can be called with so many arguments, as far as it says."""
    try:
        inspect.signature(f).bind(*range(n))
    except ValueError:  # of some that are not written in Python nobody knows
        return callable(f)
    except Exception:  # TypeError, or any exception of the caller's object
        return False
    return True


def checked(kinds: bool = True) -> Callable[[type[T]], type[T]]:
    """A class whose arguments are read like this: by name, and by type if wanted."""

    def decorate(cls: type[T]) -> type[T]:
        init: Any = cls.__init__
        signature, hints = inspect.signature(cls), dict[str, Any]()

        @functools.wraps(init)
        def read(self: Any, *args: Any, **kwargs: Any) -> None:
            given = bound(cls.__name__, signature, args, kwargs)
            if kinds:
                hints.update(hints or typing.get_type_hints(cls))
                check_types(cls.__name__, hints, given)
            init(self, *args, **kwargs)

        cls.__init__ = read  # type: ignore[method-assign]
        return cls

    return decorate


def checked_method(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method so that the types of its arguments are checked."""
    signature, hints = inspect.signature(method), dict[str, Any]()

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        given = bound(method.__name__, signature, args, kwargs)
        hints.update(hints or typing.get_type_hints(method))
        check_types(method.__name__, hints, given)
        return method(*args, **kwargs)

    return call


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says, as far as that is about plain things."""
    if hint is Any:
        return True
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (types.UnionType, typing.Union):
        return any(fits(value, one) for one in inner)
    if kind is typing.Literal:
        return isinstance(value, str) and value in inner
    if kind in PLAIN:
        return isinstance(value, PLAIN[kind]) and (kind is bool or not isinstance(value, bool))
    if kind is collections.abc.Sequence:
        listed = isinstance(value, collections.abc.Sequence) and not isinstance(value, (str, bytes))
        row = listed or attribute(value, "ndim") == 1  # an array's, or a tensor's
        return row and all(fits(x, one) for one in inner for x in value)
    if kind is collections.abc.Mapping and isinstance(value, Mapping) and inner:
        return all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    if kind is tuple and inner:
        alike = isinstance(value, (tuple, list)) and len(value) == len(inner)
        return alike and all(map(fits, value, inner))
    if kind is collections.abc.Callable:
        known = inner and isinstance(inner[0], list)
        return _takes(value, len(inner[0])) if known else callable(value)
    return not isinstance(kind, type) or isinstance(value, kind)


def in_words(hint: Any, several: bool = False) -> str:
    """What an annotation says, of one value or of several."""
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (types.UnionType, typing.Union):
        return " or ".join(in_words(one, several) for one in inner if one is not type(None))
    if kind is typing.Literal:
        return "one of " + ", ".join(map(str, inner))
    if kind is collections.abc.Mapping and Any not in inner:
        return f"a table of {in_words(inner[0])} and {in_words(inner[1])} each"
    if kind is tuple and inner:
        return f"({', '.join(in_words(one) for one in inner)})"
    if kind is collections.abc.Callable and inner and isinstance(inner[0], list):
        return f"{WORDS[kind][several]} of {len(n := inner[0])} argument{'s' * (len(n) != 1)}"
    name = getattr(kind, "__name__", kind)
    words = WORDS.get(kind, (f"a {name}", f"{name}s"))[several]
    listed = kind is collections.abc.Sequence and inner
    return f"{words} of {in_words(inner[0], True)}" if listed else words
