"""Binding and type checks of the arguments of public functions. Errors name the wrong argument."""

import collections.abc
import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .errors import GlassformerError, did_you_mean, short_repr
from .limits import MAX_LISTED_VALUES, attribute, count_values

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
    collections.abc.Sequence: ("a list", "lists"), collections.abc.Mapping: ("a dict", "dicts"),
    collections.abc.Callable: ("a function", "functions"),
}  # fmt: skip


def bind_arguments(
    function: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by name. Raise an error if they do not fit the signature."""
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
    required = [p.name for p in parameters if p.default is p.empty]
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


def check_types(function: str, hints: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Raise an error if an argument does not match its annotation."""
    for name, value in arguments.items():
        n, matches, hint = 1, False, hints.get(name, Any)
        with suppress(Exception):  # The caller's object may raise any exception.
            n = 1 if hint is Any else count_values(value)
            matches = n <= MAX_LISTED_VALUES and matches_annotation(value, hint)
        if n > MAX_LISTED_VALUES:
            limit = f"at most {MAX_LISTED_VALUES:,} values, got {n:,}"
            raise GlassformerError(f"{function} — {name}: expected {limit}")
        if not matches:
            is_class = isinstance(hints[name], type) and hints[name] not in TYPE_NAMES
            must = f"{name}: expected" if is_class else f"{name} must be"
            wanted, got = describe_annotation(hints[name]), short_repr(value)
            raise GlassformerError(f"{function} — {must} {wanted}, got {got}")


def check_function(label: str, f: Any, form: str) -> None:
    """Raise an error if `f` does not accept the arguments of `form`, such as "(a, b) -> array"."""
    if not _accepts_arguments(f, form.partition(")")[0].count(",") + 1):
        raise GlassformerError(f"{label} — expected a function {form}, got {short_repr(f)}")


def _accepts_arguments(f: Any, n: int) -> bool:
    """Return whether `f`, or any callable without a signature, may take n positional arguments."""
    try:
        inspect.signature(f).bind(*range(n))
    except ValueError:  # Some builtins have no signature.
        return callable(f)
    except Exception:  # The caller's object may raise any exception.
        return False
    return True


def validate_init(check_kinds: bool = True) -> Callable[[type[T]], type[T]]:
    """Return a class decorator: the constructor checks argument names, and types if wanted."""

    def decorate(cls: type[T]) -> type[T]:
        cls.__init__ = _with_checks(cls.__init__, cls.__name__, check_kinds)  # type: ignore[method-assign]
        return cls

    return decorate


def validate_method(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method to check its arguments."""
    return _with_checks(method, method.__name__)


def _with_checks(method: Callable[P, R], name: str, check_kinds: bool = True) -> Callable[P, R]:
    signature, hints = inspect.signature(method), dict[str, Any]()
    signature = signature.replace(parameters=[*signature.parameters.values()][1:])  # no self

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        arguments = bind_arguments(name, signature, args[1:], kwargs)
        if check_kinds:
            hints.update(hints or typing.get_type_hints(method))
            check_types(name, hints, arguments)
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
        is_bool = isinstance(value, bool)
        return isinstance(value, PLAIN_TYPES[kind]) and (kind is bool or not is_bool)
    if kind is collections.abc.Sequence:
        is_list = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
        is_row = is_list or attribute(value, "ndim") == 1  # an array or a tensor
        return is_row and all(matches_annotation(x, one) for one in inner for x in value)
    if kind is collections.abc.Mapping and isinstance(value, Mapping) and inner:
        return all(all(map(matches_annotation, item, inner)) for item in value.items())
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
        choices = (one for one in inner if one is not type(None))
        return " or ".join(describe_annotation(one, plural) for one in choices)
    if kind is typing.Literal:
        return "one of " + ", ".join(map(str, inner))
    if kind is collections.abc.Mapping and Any not in inner:
        keys, values = (describe_annotation(one, True) for one in inner)
        return f"a dict from {keys} to {values}"
    if kind is tuple and inner:
        return f"({', '.join(map(describe_annotation, inner))})"
    if kind is collections.abc.Callable and inner and isinstance(inner[0], list):
        return f"{TYPE_NAMES[kind][plural]} of {len(n := inner[0])} argument{'s' * (len(n) != 1)}"
    name = getattr(kind, "__name__", kind)
    noun = TYPE_NAMES.get(kind, (f"a {name}", f"{name}s"))[plural]
    has_items = kind is collections.abc.Sequence and inner
    return f"{noun} of {describe_annotation(inner[0], True)}" if has_items else noun
