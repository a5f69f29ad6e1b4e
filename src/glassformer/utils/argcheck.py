"""Binding and type checks of the arguments of public functions. Errors name the wrong argument."""

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
TYPE_NAMES: dict[Any, tuple[str, str]] = {  # singular and plural
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
    """Return the arguments of a call by name.

    Raises:
        GlassformerError: If the arguments do not fit the signature.
    """
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    if len(args) > len(positional):
        names = ", ".join(positional) or "nothing"
        raise GlassformerError(f"{function} — takes {names} by position, got {len(args)} arguments")
    bound = dict(zip(positional, args, strict=False))
    for name in kwargs:
        if name in bound:
            raise GlassformerError(f"{function}() got multiple values for argument {name!r}")
        if name not in signature.parameters and len(parameters) == len(signature.parameters):
            hint = did_you_mean(name, [p.name for p in parameters], 1, 0.6, "it takes")
            if "ref" in signature.parameters:
                hint += ". Options are part of the ref: 'addition:digits=3'"
            raise GlassformerError(f"{function} — unexpected keyword {name!r}; {hint}")
    bound |= kwargs
    required = [p.name for p in parameters if p.default is p.empty and p.name not in optional]
    if missing := [repr(name) for name in required if name not in bound]:
        noun = "argument" + "s" * (len(missing) > 1)
        raise GlassformerError(f"{function}() missing required {noun}: {' and '.join(missing)}")
    return bound


def as_text(ref: Any, label: str, expected: str = "a ref or a path") -> str:
    """Return a ref or a path as a string. Raise an error for other types."""
    if isinstance(ref, (str, os.PathLike)):
        with suppress(Exception):  # A caller's path class may raise any exception.
            if (text := os.fsdecode(ref)) or "ref" not in expected:
                return text
    raise GlassformerError(f"{label} — expected {expected}, got {short_repr(ref)}")


def attribute(value: Any, name: str) -> Any:
    """Return an attribute of an object, or None if it is missing or raises an exception."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def check_types(function: str, hints: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Raise an error if an argument does not match its annotation."""
    for name, value in arguments.items():
        if hints.get(name, Any) is not Any and (n := count_values(value)) > MAX_LISTED_VALUES:
            limit = f"at most {MAX_LISTED_VALUES:,} values, got {n:,}"
            raise GlassformerError(f"{function} — {name}: expected {limit}")
        if not matches_annotation(value, hints.get(name, Any)):
            is_class = isinstance(hints[name], type) and hints[name] not in TYPE_NAMES
            must = f"{name}: expected" if is_class else f"{name} must be"
            raise GlassformerError(
                f"{function} — {must} {describe_annotation(hints[name])}, got {short_repr(value)}"
            )


def check_function(label: str, f: Any, form: str) -> None:
    """Raise an error if `f` does not accept the arguments of `form`.

    `form` is a string such as "(array) -> array".
    """
    if not _accepts_arguments(f, form.partition(")")[0].count(",") + 1):
        raise GlassformerError(f"{label} — expected a function {form}, got {short_repr(f)}")


def _accepts_arguments(f: Any, n: int) -> bool:
    """Return whether `f` can be called with `n` positional arguments.

    A callable without a known signature is accepted.
    """
    try:
        inspect.signature(f).bind(*range(n))
    except ValueError:  # Some builtins have no signature.
        return callable(f)
    except Exception:  # The caller's object may raise any exception.
        return False
    return True


def validate_init(check_kinds: bool = True) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that checks the constructor's arguments.

    The constructor checks argument names and, with `check_kinds`, types.
    """

    def decorate(cls: type[T]) -> type[T]:
        init: Any = cls.__init__
        signature, hints = inspect.signature(cls), dict[str, Any]()

        @functools.wraps(init)
        def read(self: Any, *args: Any, **kwargs: Any) -> None:
            arguments = bind_arguments(cls.__name__, signature, args, kwargs)
            if check_kinds:
                hints.update(hints or typing.get_type_hints(cls))
                check_types(cls.__name__, hints, arguments)
            init(self, *args, **kwargs)

        cls.__init__ = read  # type: ignore[method-assign]
        return cls

    return decorate


def validate_method(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method to check the types of its arguments."""
    signature, hints = inspect.signature(method), dict[str, Any]()

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        arguments = bind_arguments(method.__name__, signature, args, kwargs)
        hints.update(hints or typing.get_type_hints(method))
        check_types(method.__name__, hints, arguments)
        return method(*args, **kwargs)

    return call


def matches_annotation(value: Any, hint: Any) -> bool:
    """Return whether a value matches an annotation. Unsupported annotations always match."""
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
        is_list = isinstance(value, collections.abc.Sequence) and not isinstance(
            value, (str, bytes)
        )
        is_row = is_list or attribute(value, "ndim") == 1  # an array or a tensor
        return is_row and all(matches_annotation(x, one) for one in inner for x in value)
    if kind is collections.abc.Mapping and isinstance(value, Mapping) and inner:
        return all(
            matches_annotation(k, inner[0]) and matches_annotation(v, inner[1])
            for k, v in value.items()
        )
    if kind is tuple and inner:
        same_length = isinstance(value, (tuple, list)) and len(value) == len(inner)
        return same_length and all(map(matches_annotation, value, inner))
    if kind is collections.abc.Callable:
        has_signature = inner and isinstance(inner[0], list)
        return _accepts_arguments(value, len(inner[0])) if has_signature else callable(value)
    return not isinstance(kind, type) or isinstance(value, kind)


def describe_annotation(hint: Any, plural: bool = False) -> str:
    """Return a description of an annotation, such as "a list of whole numbers"."""
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
    noun = TYPE_NAMES.get(kind, (f"a {name}", f"{name}s"))[plural]
    has_items = kind is collections.abc.Sequence and inner
    return f"{noun} of {describe_annotation(inner[0], True)}" if has_items else noun
