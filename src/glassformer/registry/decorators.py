"""What enters a class or a function in the registry: @program, @task, @parametrization, @bridge."""

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from ..utils.argcheck import bind_arguments
from ..utils.errors import GlassformerError, NamedError, short_repr
from .entry import Entry, add_entry, qualified_name
from .options import Option, options_from_signature

T = TypeVar("T")


def task(name: str) -> Callable[[type[T]], type[T]]:
    """Registers a Task class. Its instances know their `ref`."""
    return _class_decorator("task", name)


def parametrization(name: str) -> Callable[[type[T]], type[T]]:
    """Registers a Parametrization class. Its instances know their `ref`."""
    return _class_decorator("parametrization", name)


def bridge(name: str) -> Callable[[type[T]], type[T]]:
    """Registers a Bridge class: the way to another library."""
    return _class_decorator("bridge", name)


def _class_decorator(kind: str, name: str) -> Callable[[type[T]], type[T]]:
    check_entry_name(kind, name)

    def decorate(cls: type[T]) -> type[T]:
        if not isinstance(cls, type):
            raise GlassformerError(
                f"{name} — expected a class below @{kind}, got {short_repr(cls)}"
            )
        original = _no_options if cls.__init__ is object.__init__ else cls.__init__
        full = qualified_name(name, cls)
        entry = Entry(
            kind, full, options_from_signature(original, skip=1), _first_paragraph(cls), cls
        )

        @functools.wraps(original)
        def checked(self: Any, *args: Any, **kwargs: Any) -> None:
            values = _option_values(entry, original, args, kwargs, skip=1)
            original(self, **values)
            exact: Any = self.__class__  # what derives from it has no name yet
            if exact is cls:
                self.ref = entry.ref(values)

        cls.__init__ = checked  # type: ignore[method-assign]
        add_entry(entry)
        return cls

    return decorate


def _no_options(self: Any) -> None:
    pass


def program(
    name: str, float32: bool | Callable[[dict[str, Any]], str] = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function that returns a Model whose weights were set by hand.

    `float32` says whether the weights, cast, are right in float32: a bool, or a function of the
    options that returns "" (right) or why not. A builder that has a `dtype` parameter sees to it
    alone.
    """
    check_entry_name("program", name)
    fault = "" if float32 else "its constants need float64"
    why_not = float32 if callable(float32) else lambda values: fault

    def decorate(build: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.isfunction(build):
            wanted = "expected a function below @program"
            raise GlassformerError(f"{name} — {wanted}, got {short_repr(build)}")
        options, full = options_from_signature(build), qualified_name(name, build)
        own = "dtype" in options
        if not own:
            options["dtype"] = Option("dtype", str, "float64", ("float64", "float32"))

        @functools.wraps(build)
        def checked(*args: Any, **kwargs: Any) -> Any:
            dtype = "float64" if own else options["dtype"].check(kwargs.pop("dtype", "float64"))
            values = _option_values(entry, build, args, kwargs)
            ref = entry.ref(values if own else values | {"dtype": dtype})
            try:
                if dtype == "float32" and (why := why_not(values)):
                    raise GlassformerError(f"not right in float32: {why}")
                model = build(**values)
            except GlassformerError as e:
                if isinstance(e, NamedError) and e.name == full:
                    raise
                raise NamedError(full, f"{ref} — {e}") from None
            if not hasattr(model, "provenance"):
                raise NamedError(
                    full, f"{ref} — a program returns a Model, got {short_repr(model)}"
                )
            made = replace(model, provenance={"maker": "program", "ref": ref, **model.provenance})
            return made.astype("float32") if dtype == "float32" else made

        entry = Entry("program", full, options, _first_paragraph(build), checked)
        add_entry(entry)
        return checked

    return decorate


def is_entry_name(name: Any) -> bool:
    """Whether something can be the name of something, and is no longer ref."""
    return isinstance(name, str) and bool(re.fullmatch(r"[\w-]{1,100}", name))


def check_entry_name(kind: str, name: Any) -> None:
    """Refuses what is no name of something that can be named."""
    if not is_entry_name(name):
        wanted = f"expected a name, as in @{kind}('vote')"
        raise GlassformerError(f"{kind} — {wanted}, got {short_repr(name)}")


def _option_values(
    entry: Entry, build: Callable[..., Any], args: Any, kwargs: Any, skip: int = 0
) -> dict[str, Any]:
    """All option values of a call, checked."""
    signature = inspect.signature(build)
    options = list(signature.parameters.values())[skip:]
    given = bind_arguments(entry.name, signature.replace(parameters=options), args, kwargs)
    try:
        return {o.name: entry.options[o.name].check(given.get(o.name, o.default)) for o in options}
    except GlassformerError as e:
        raise NamedError(entry.name, f"{entry.name} — {e}") from None


def _first_paragraph(documented: Any) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())
