"""Decorators that register builders: @program, @task, @parametrization and @bridge."""

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
    """Register a Task class under a name; instances get the attribute `ref`."""
    return _class_decorator("task", name)


def parametrization(name: str) -> Callable[[type[T]], type[T]]:
    """Register a Parametrization class under a name; instances get the attribute `ref`."""
    return _class_decorator("parametrization", name)


def bridge(name: str) -> Callable[[type[T]], type[T]]:
    """Register a Bridge class, which exports models to another library, under a name."""
    return _class_decorator("bridge", name)


def _class_decorator(kind: str, name: str) -> Callable[[type[T]], type[T]]:
    check_entry_name(kind, name)

    def decorate(cls: type[T]) -> type[T]:
        if not isinstance(cls, type):
            got = short_repr(cls)
            raise GlassformerError(f"{name} — expected a class below @{kind}, got {got}")
        original = _no_options if cls.__init__ is object.__init__ else cls.__init__
        options = options_from_signature(original, skip=1)
        entry = Entry(kind, qualified_name(name, cls), options, _first_paragraph(cls), cls)

        @functools.wraps(original)
        def checked(self: Any, *args: Any, **kwargs: Any) -> None:
            values = _option_values(entry, original, args, kwargs, skip=1)
            original(self, **values)
            own_class: Any = self.__class__  # subclasses are not registered
            if own_class is cls:
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
    """Register a function that returns a Model with weights set by hand.

    Args:
        name: Name of the program.
        float32: Whether the model is right with its weights cast to float32. Either a bool, or a
            function of the options that returns "" or the reason why it is not. A builder with a
            `dtype` parameter casts its weights itself.
    """
    check_entry_name("program", name)
    fault = "" if float32 else "its constants need float64"
    float32_fault = float32 if callable(float32) else lambda values: fault

    def decorate(build: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.isfunction(build):
            expected = "expected a function below @program"
            raise GlassformerError(f"{name} — {expected}, got {short_repr(build)}")
        options, full = options_from_signature(build), qualified_name(name, build)
        has_dtype = "dtype" in options
        if not has_dtype:
            options["dtype"] = Option("dtype", str, "float64", ("float64", "float32"))

        @functools.wraps(build)
        def checked(*args: Any, **kwargs: Any) -> Any:
            default = "float64"
            dtype = default if has_dtype else options["dtype"].check(kwargs.pop("dtype", default))
            values = _option_values(entry, build, args, kwargs)
            ref = entry.ref(values if has_dtype else values | {"dtype": dtype})
            try:
                if dtype == "float32" and (reason := float32_fault(values)):
                    raise GlassformerError(f"not right in float32: {reason}")
                model = build(**values)
            except GlassformerError as e:
                if isinstance(e, NamedError) and e.name == full:
                    raise
                raise NamedError(full, f"{ref} — {e}") from None
            if not hasattr(model, "provenance"):
                raise NamedError(full, f"{ref} — expected a Model, got {short_repr(model)}")
            provenance = {"maker": "program", "ref": ref, **model.provenance}
            model = replace(model, provenance=provenance)
            return model.astype("float32") if dtype == "float32" else model

        entry = Entry("program", full, options, _first_paragraph(build), checked)
        add_entry(entry)
        return checked

    return decorate


def is_entry_name(name: Any) -> bool:
    """Return whether a value is a valid entry name; a ref with options is not."""
    return isinstance(name, str) and bool(re.fullmatch(r"[\w-]{1,100}", name))


def check_entry_name(kind: str, name: Any) -> None:
    """Raise an error if a name is not a valid entry name."""
    if not is_entry_name(name):
        expected = f"expected a name, as in @{kind}('vote')"
        raise GlassformerError(f"{kind} — {expected}, got {short_repr(name)}")


def _option_values(
    entry: Entry, build: Callable[..., Any], args: Any, kwargs: Any, skip: int = 0
) -> dict[str, Any]:
    """Bind and check the arguments of a builder call; return the option values by name."""
    signature = inspect.signature(build)
    options = list(signature.parameters.values())[skip:]
    bound = bind_arguments(entry.name, signature.replace(parameters=options), args, kwargs)
    try:
        return {o.name: entry.options[o.name].check(bound.get(o.name, o.default)) for o in options}
    except GlassformerError as e:
        raise NamedError(entry.name, f"{entry.name} — {e}") from None


def _first_paragraph(builder: Any) -> str:
    """Return the first paragraph of a builder's docstring as one line."""
    return " ".join((inspect.getdoc(builder) or "").split("\n\n")[0].split())
