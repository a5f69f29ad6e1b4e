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

from .errors import GlassformerError, did_you_mean, short_repr
from .limits import MAX_LISTED_VALUES, count_values

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
PLAIN_TYPES: dict[Any, tuple[type, ...]] = {
    int: (int, np.integer), float: (int, float, np.number), bool: (bool, np.bool_),
    Path: (os.PathLike,),
}  # fmt: skip
TYPE_NAMES: dict[Any, tuple[str, str]] = {  # one, and several
    int: ("a whole number", "whole numbers"), float: ("a number", "numbers"),
    str: ("a text", "texts"), bool: ("True or False", "True or False"), Path: ("a path", "paths"),
    os.PathLike: ("a path", "paths"),
    np.random.Generator: ("a generator (np.random.default_rng(seed))", "generators"),
    collections.abc.Sequence: ("a list", "lists"), collections.abc.Mapping: ("a table", "tables"),
    collections.abc.Callable: ("a function", "functions"),
}  # fmt: skip


def bind_arguments(
    function: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any],
    optional: Iterable[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """The arguments of a call by their names; an error if they do not fit the signature."""
    takes = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    places = [p.name for p in takes if p.kind is not p.KEYWORD_ONLY]
    if len(args) > len(places):
        few = ", ".join(places) or "nothing"
        raise GlassformerError(f"{function} — takes {few} by position, got {len(args)} arguments")
    given = dict(zip(places, args, strict=False))
    for name in kwargs:
        if name in given:
            raise GlassformerError(f"{function} — {name} is given twice")
        if name not in signature.parameters and len(takes) == len(signature.parameters):
            hint = did_you_mean(name, [p.name for p in takes], 1, 0.6, "it takes")
            if "ref" in signature.parameters:
                hint += ". Options are part of the ref: 'addition:digits=3'"
            raise GlassformerError(f"{function} — unexpected keyword {name!r}; {hint}")
    given |= kwargs
    needed = [p.name for p in takes if p.default is p.empty and p.name not in optional]
    if missing := [name for name in needed if name not in given]:
        lacking = " and ".join(missing)
        raise GlassformerError(f"{function} — without {lacking}: it needs {', '.join(needed)}")
    return given


def as_text(ref: Any, label: str, expected: str = "a ref or a path") -> str:
    """A ref or a path as text; an error if it is none."""
    if isinstance(ref, (str, os.PathLike)):
        with suppress(Exception):  # whatever someone's own kind of path may raise
            if (text := os.fsdecode(ref)) or "ref" not in expected:
                return text
    raise GlassformerError(f"{label} — expected {expected}, got {short_repr(ref)}")


def attribute(value: Any, name: str) -> Any:
    """Return an attribute of any object; None if it is missing or raises an exception."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def check_types(function: str, hints: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Refuses a value that is not what its annotation says."""
    for name, value in arguments.items():
        if hints.get(name, Any) is not Any and (n := count_values(value)) > MAX_LISTED_VALUES:
            many = f"at most {MAX_LISTED_VALUES:,} values, got {n:,}"
            raise GlassformerError(f"{function} — {name}: expected {many}")
        if not matches_annotation(value, hints.get(name, Any)):
            ours = isinstance(hints[name], type) and hints[name] not in TYPE_NAMES
            must = f"{name}: expected" if ours else f"{name} must be"
            raise GlassformerError(
                f"{function} — {must} {describe_annotation(hints[name])}, got {short_repr(value)}"
            )


def check_function(label: str, f: Any, form: str) -> None:
    """Refuses what cannot be called like this: check_function("map", f, "(array) -> array")."""
    if not _accepts_arguments(f, form.partition(")")[0].count(",") + 1):
        raise GlassformerError(f"{label} — expected a function {form}, got {short_repr(f)}")


def _accepts_arguments(f: Any, n: int) -> bool:
    """Whether something can be called with so many arguments, as far as it says."""
    try:
        inspect.signature(f).bind(*range(n))
    except ValueError:  # of some that are not written in Python nobody knows
        return callable(f)
    except Exception:  # TypeError, or any exception of the caller's object
        return False
    return True


def validate_init(check_kinds: bool = True) -> Callable[[type[T]], type[T]]:
    """A class whose arguments are read like this: by name, and by type if wanted."""

    def decorate(cls: type[T]) -> type[T]:
        init: Any = cls.__init__
        signature, hints = inspect.signature(cls), dict[str, Any]()

        @functools.wraps(init)
        def read(self: Any, *args: Any, **kwargs: Any) -> None:
            given = bind_arguments(cls.__name__, signature, args, kwargs)
            if check_kinds:
                hints.update(hints or typing.get_type_hints(cls))
                check_types(cls.__name__, hints, given)
            init(self, *args, **kwargs)

        cls.__init__ = read  # type: ignore[method-assign]
        return cls

    return decorate


def validate_method(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method so that the types of its arguments are checked."""
    signature, hints = inspect.signature(method), dict[str, Any]()

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        given = bind_arguments(method.__name__, signature, args, kwargs)
        hints.update(hints or typing.get_type_hints(method))
        check_types(method.__name__, hints, given)
        return method(*args, **kwargs)

    return call


def matches_annotation(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says, as far as that is about plain things."""
    if hint is Any:
        return True
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (types.UnionType, typing.Union):
        return any(matches_annotation(value, one) for one in inner)
    if kind is typing.Literal:
        return isinstance(value, str) and value in inner
    if kind in PLAIN_TYPES:
        return isinstance(value, PLAIN_TYPES[kind]) and (
            kind is bool or not isinstance(value, bool)
        )
    if kind is collections.abc.Sequence:
        listed = isinstance(value, collections.abc.Sequence) and not isinstance(value, (str, bytes))
        row = listed or attribute(value, "ndim") == 1  # an array's, or a tensor's
        return row and all(matches_annotation(x, one) for one in inner for x in value)
    if kind is collections.abc.Mapping and isinstance(value, Mapping) and inner:
        return all(
            matches_annotation(k, inner[0]) and matches_annotation(v, inner[1])
            for k, v in value.items()
        )
    if kind is tuple and inner:
        alike = isinstance(value, (tuple, list)) and len(value) == len(inner)
        return alike and all(map(matches_annotation, value, inner))
    if kind is collections.abc.Callable:
        known = inner and isinstance(inner[0], list)
        return _accepts_arguments(value, len(inner[0])) if known else callable(value)
    return not isinstance(kind, type) or isinstance(value, kind)


def describe_annotation(hint: Any, plural: bool = False) -> str:
    """What an annotation says, of one value or of several."""
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (types.UnionType, typing.Union):
        return " or ".join(
            describe_annotation(one, plural) for one in inner if one is not type(None)
        )
    if kind is typing.Literal:
        return "one of " + ", ".join(map(str, inner))
    if kind is collections.abc.Mapping and Any not in inner:
        return (
            f"a table of {describe_annotation(inner[0])} and {describe_annotation(inner[1])} each"
        )
    if kind is tuple and inner:
        return f"({', '.join(describe_annotation(one) for one in inner)})"
    if kind is collections.abc.Callable and inner and isinstance(inner[0], list):
        return f"{TYPE_NAMES[kind][plural]} of {len(n := inner[0])} argument{'s' * (len(n) != 1)}"
    name = getattr(kind, "__name__", kind)
    words = TYPE_NAMES.get(kind, (f"a {name}", f"{name}s"))[plural]
    listed = kind is collections.abc.Sequence and inner
    return f"{words} of {describe_annotation(inner[0], True)}" if listed else words
