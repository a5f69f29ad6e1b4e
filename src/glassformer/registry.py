"""What can be named (programs, tasks, blueprints, bridges), with options from signatures, and where
it is found.

A decorator registers a builder. Its typed parameters are the options, its docstring's first
paragraph the help:

    @program("min", float32=True)
    def minimum(vocab: Annotated[int, Between(2, 1_000_000)] = 10) -> Model:
        '''The smallest number read so far.'''
"""

import contextlib
import difflib
import functools
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from .calls import bound
from .errors import GlassformerError, Named, did_you_mean, no_such, shown
from .limits import REF

T = TypeVar("T")


@dataclass(frozen=True)
class Between:
    """The range of a number; in an annotation: Annotated[int, Between(1, 12)]."""

    low: float
    high: float


@dataclass(frozen=True)
class Option:
    """One option of a builder."""

    name: str
    kind: type
    default: Any
    choices: tuple[str, ...] = ()
    range: Between | None = None

    @property
    def expected(self) -> str:
        if self.choices:
            return "one of " + ", ".join(self.choices)
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        between = f" from {self.range.low:,} to {self.range.high:,}" if self.range else ""
        return words[self.kind] + between

    def parse(self, text: str) -> Any:
        """The value of a text from the command line."""
        try:
            if self.kind is bool:
                return {"true": True, "false": False}[text.lower()]
            if self.kind is int and not re.fullmatch(r"[+-]?[0-9_]{1,18}", text):
                raise ValueError
            return self.check(self.kind(text))
        except (ValueError, KeyError):
            raise self._refusal(text) from None

    def check(self, value: Any) -> Any:
        """The value itself, if the option can have it."""
        if self.kind is float and type(value) is int and abs(value) < 2**1000:
            value = float(value)
        good = type(value) is self.kind and (not self.choices or value in self.choices)
        if not good or (self.range and not self.range.low <= value <= self.range.high):
            raise self._refusal(value)
        if isinstance(value, str) and len(value) > REF:
            must = f"must have at most {REF:,} characters"
            raise GlassformerError(f"{self.name} {must}, got {len(value):,}")
        return value

    def _refusal(self, value: Any) -> GlassformerError:
        near = difflib.get_close_matches(value, self.choices, 1) if type(value) is str else []
        hint = f"; did you mean {near[0]}?" if near else ""
        return GlassformerError(f"{self.name} must be {self.expected}, got {shown(value)}{hint}")


@dataclass(frozen=True)
class Entry:
    """Something that can be named in a ref."""

    kind: str
    name: str
    options: Mapping[str, Option]
    help: str
    build: Callable[..., Any]

    def parse(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Option values from texts; an error names the whole ref's head."""
        values = {}
        for name, text in texts.items():
            given = f"{self.name}:{name}={text}"
            if name not in self.options:
                raise self._unknown(given, name)
            try:
                values[name] = self.options[name].parse(text)
            except GlassformerError as e:
                if unknown := re.search(
                    r",([A-Za-z_]\w*)=", text
                ):  # no part of it, as `split` had it
                    raise self._unknown(given, unknown[1]) from None
                raise GlassformerError(f"{given} — {e}") from None
        return values

    def _unknown(self, given: str, name: str) -> GlassformerError:
        hint = did_you_mean(name, self.options, 1, 0.6, "it has")
        return GlassformerError(f"{given} — {self.name} has no option {name!r}; {hint}")

    def to_json(self) -> dict[str, Any]:
        known = self.options.items()
        options = {n: {"default": o.default, "expected": o.expected} for n, o in known}
        return {"name": self.name, "help": self.help, "options": options}

    def ref(self, values: Mapping[str, Any]) -> str:
        """The shortest ref with these values: options at their defaults are left out."""
        return written(self.name, {n: v for n, v in values.items() if v != self.options[n].default})


# FILE.py:NAME, with options or without. Such a file is run when it is typed: see own.py.
FILE = re.compile(r"(?P<file>.+?\.py):(?P<name>\w+)(?=:|$)")
FILES: dict[str, str] = {}  # module -> the file, as it was typed
REGISTRY: dict[str, dict[str, Entry]] = {"program": {}, "task": {}, "blueprint": {}, "bridge": {}}
# Kind -> packages whose files register such things when imported; __init__.py fills it.
ROOMS: dict[str, tuple[str, ...]] = {}


def entries(kind: str) -> dict[str, Entry]:
    """All that is registered of a kind."""
    for file in _files(kind):
        importlib.import_module(file)
    for name in announced(kind):
        with contextlib.suppress(GlassformerError):  # one that is broken hides no other
            take_in(kind, name)
    return REGISTRY[kind]


def find(kind: str, name: str) -> Entry:
    """The entry of a name, or an error with the nearest names."""
    known, likely = REGISTRY[kind], "." + name.replace("-", "_")
    if name not in known:  # most stand in a file of their name, and the others need not be read
        for file in sorted(_files(kind), key=lambda file: not file.endswith(likely)):
            importlib.import_module(file)
            if name in known:
                break
        else:
            take_in(kind, name)
    if name not in known:
        raise _unknown(kind, name)
    return known[name]


@functools.cache
def announced(kind: str) -> dict[str, Any]:
    """What installed packages have of a kind, by name: entry points of `glassformer.tasks`, …"""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=f"glassformer.{kind}s")}


def take_in(kind: str, name: str) -> Any:
    """What a package announces under this name: imported and, unless it sees to that itself,
    registered. None if none does.
    """
    if not (point := announced(kind).get(name)):
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
        "blueprint": blueprint,
        "bridge": bridge,
    }
    if kind in register and name not in REGISTRY[kind]:
        register[kind](name)(thing)
    return thing


def _unknown(kind: str, name: str) -> GlassformerError:
    if other := next((k for k, known in REGISTRY.items() if k != kind and name in known), ""):
        return GlassformerError(f"{name} — is a {other}; expected a {kind}")
    if FILE.match(name):
        why = "is in a file, and only a ref that you type runs one"
        return GlassformerError(f"{name} — {why}: pass it, as in --{kind} {name}")
    return no_such(kind, name, sorted(REGISTRY[kind]), 3)


def is_known(kind: str, ref: str) -> bool:
    """Whether what a ref names is registered by now."""
    return head(ref) in REGISTRY[kind]


def head(ref: str) -> str:
    """A ref without its options: addition, or mine.py:Vote."""
    found = FILE.match(ref)
    return found[0] if found else ref.partition(":")[0]


def full_name(name: str, thing: Any) -> str:
    """FILE.py:NAME for what stands in such a file; else the name that it is given."""
    file = FILES.get(getattr(thing, "__module__", ""))
    return f"{file}:{thing.__name__}" if file else name


def _files(kind: str) -> Iterator[str]:
    for room in ROOMS.get(kind, ()):
        for module in pkgutil.iter_modules(importlib.import_module(room).__path__):
            yield f"{room}.{module.name}"


def build(kind: str, ref: str) -> Any:
    """What a ref names: "addition:digits=3" is the entry addition, built with these options."""
    entry = find(kind, head(ref))
    return entry.build(**entry.parse(split(ref, entry.options)[1]))


def split(ref: str, known: Any = None) -> tuple[str, dict[str, str]]:
    """A ref's name and option texts.

    >>> split('hello-world:message="Hello, World!",variant=book')
    ('hello-world', {'message': 'Hello, World!', 'variant': 'book'})

    A comma that no option name follows belongs to the value, since shells eat quotes.
    """
    if len(ref) > 4 * REF:
        most = f"a ref has at most {4 * REF:,} characters"
        raise GlassformerError(f"{ref[:60]}… — {most}, got {len(ref):,}")
    name = head(ref)
    rest = ref[len(name) + 1 :]
    options, at = dict[str, str](), 0
    while at < len(rest):
        found = re.compile(r"([A-Za-z_]\w*)=").match(rest, at)
        if not found:
            before = name + ":" + rest[:at]
            expected = f"expected option=value after {before!r}"
            raise GlassformerError(f"{ref} — {expected}, got {rest[at:]!r}")
        key, at = found.group(1), found.end()
        quoted = re.compile(r'"((?:[^"\\]|\\.)*)"(?=,|$)').match(rest, at)
        if quoted:
            value, at = re.sub(r"\\(.)", r"\1", quoted.group(1)), quoted.end()
        else:
            commas = re.compile(r",(?=([A-Za-z_]\w*)=)").finditer(rest, at)
            ends = (c.start() for c in commas if known is None or c.group(1) in known)
            end = next(ends, len(rest))
            value, at = rest[at:end], end
        if key in options:
            raise GlassformerError(f"{ref} — option {key} is given twice")
        options[key] = value
        at += 1  # the comma
    return name, options


def task(name: str) -> Callable[[type[T]], type[T]]:
    """Registers a Task class. Its instances know their `ref`."""
    return _class("task", name)


def blueprint(name: str) -> Callable[[type[T]], type[T]]:
    """Registers a Blueprint class. Its instances know their `ref`."""
    return _class("blueprint", name)


def bridge(name: str) -> Callable[[type[T]], type[T]]:
    """Registers a Bridge class: the way to another library."""
    return _class("bridge", name)


def _class(kind: str, name: str) -> Callable[[type[T]], type[T]]:
    _check_name(kind, name)

    def decorate(cls: type[T]) -> type[T]:
        if not isinstance(cls, type):
            raise GlassformerError(f"{name} — expected a class below @{kind}, got {shown(cls)}")
        original = _no_options if cls.__init__ is object.__init__ else cls.__init__
        full = full_name(name, cls)
        entry = Entry(kind, full, _options(original, skip=1), _gist(cls), cls)

        @functools.wraps(original)
        def checked(self: Any, *args: Any, **kwargs: Any) -> None:
            values = _bind(entry, original, args, kwargs, skip=1)
            original(self, **values)
            self.ref = entry.ref(values)

        cls.__init__ = checked  # type: ignore[method-assign]
        _add(entry)
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
    _check_name("program", name)
    fault = "" if float32 else "its constants need float64"
    why_not = float32 if callable(float32) else lambda values: fault

    def decorate(build: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.isfunction(build):
            wanted = "expected a function below @program"
            raise GlassformerError(f"{name} — {wanted}, got {shown(build)}")
        options, full = _options(build), full_name(name, build)
        own = "dtype" in options
        if not own:
            options["dtype"] = Option("dtype", str, "float64", ("float64", "float32"))

        @functools.wraps(build)
        def checked(*args: Any, **kwargs: Any) -> Any:
            dtype = "float64" if own else options["dtype"].check(kwargs.pop("dtype", "float64"))
            values = _bind(entry, build, args, kwargs)
            ref = entry.ref(values if own else values | {"dtype": dtype})
            try:
                if dtype == "float32" and (why := why_not(values)):
                    raise GlassformerError(f"not right in float32: {why}")
                model = build(**values)
            except GlassformerError as e:
                if isinstance(e, Named) and e.name == full:
                    raise
                raise Named(full, f"{ref} — {e}") from None
            if not hasattr(model, "provenance"):
                raise Named(full, f"{ref} — a program returns a Model, got {shown(model)}")
            made = replace(model, provenance={"maker": "program", "ref": ref, **model.provenance})
            return made.astype("float32") if dtype == "float32" else made

        entry = Entry("program", full, options, _gist(build), checked)
        _add(entry)
        return checked

    return decorate


def _check_name(kind: str, name: Any) -> None:
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]{1,100}", name):
        wanted = f"expected a name, as in @{kind}('vote')"
        raise GlassformerError(f"{kind} — {wanted}, got {shown(name)}")


def _add(entry: Entry) -> None:
    there = REGISTRY[entry.kind].get(entry.name)
    if there and _origin(there) != _origin(entry):  # the same again is a notebook cell run twice
        where = f"{_origin(there)[0]} already"
        raise GlassformerError(f"{entry.name} — there is a {entry.kind} of that name in {where}")
    REGISTRY[entry.kind][entry.name] = entry


def _origin(entry: Entry) -> tuple[str, str]:
    return entry.build.__module__, entry.build.__qualname__


def _bind(
    entry: Entry, build: Callable[..., Any], args: Any, kwargs: Any, skip: int = 0
) -> dict[str, Any]:
    """All option values of a call, checked."""
    signature = inspect.signature(build)
    options = list(signature.parameters.values())[skip:]
    given = bound(entry.name, signature.replace(parameters=options), args, kwargs)
    try:
        return {o.name: entry.options[o.name].check(given.get(o.name, o.default)) for o in options}
    except GlassformerError as e:
        raise Named(entry.name, f"{entry.name} — {e}") from None


def _options(build: Callable[..., Any], skip: int = 0) -> dict[str, Option]:
    hints, options = typing.get_type_hints(build, include_extras=True), {}
    for p in list(inspect.signature(build).parameters.values())[skip:]:
        this = f"{build.__qualname__.removesuffix('.__init__')} — option {p.name}"
        if p.name not in hints or p.default is p.empty:
            lacks = "a type" if p.name not in hints else "a default"
            raise GlassformerError(f"{this} needs {lacks}, as in {p.name}: int = 3")
        kind, range_, choices = hints[p.name], None, ()
        if typing.get_origin(kind) is typing.Annotated:
            kind, *notes = typing.get_args(kind)
            range_ = next((n for n in notes if isinstance(n, Between)), None)
        if typing.get_origin(kind) is typing.Literal:
            kind, choices = str, typing.get_args(kind)
        if kind not in (int, float, bool, str):
            wanted = f"expected int, float, bool, str or a Literal of texts, got {shown(kind)}"
            raise GlassformerError(f"{this} has a type that a ref cannot give; {wanted}")
        options[p.name] = Option(p.name, kind, p.default, choices, range_)
    return options


def _gist(documented: Any) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())


def written(name: str, values: Mapping[str, Any]) -> str:
    """A ref with these options, as `split` reads it."""
    parts = [f"{n}={_text(v)}" for n, v in values.items()]
    return ":".join([name, ",".join(parts)] if parts else [name])


def _text(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if not re.search(r'[,:="\s\\]', text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
