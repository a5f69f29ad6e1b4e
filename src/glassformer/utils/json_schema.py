"""What JSON must look like, said as data: types and sizes, checked before anything is built of it.

    HEADER = record({"format": exactly(1), "task": text(1_000)}, may={"seeds": listing(SEED, 10)})
    HEADER(json.loads(...), "header")  # "header.format must be 1, got null"

A check is a function of a value and of where it stands: it returns nothing, or raises an error.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from .errors import DAMAGED, GlassformerError, shown
from .fileio import read_bytes
from .limits import many

Check = Callable[[Any, str], None]


def read_json(path: str | Path, what: str = "not JSON", finite: bool = True) -> Any:
    """What a JSON file holds; `what` is said if it is none. `finite`: no NaN, nothing infinite."""
    return parse_json(read_bytes(path), path, what, finite)


def parse_json(
    data: bytes | str, path: str | Path, what: str = "not JSON", finite: bool = True
) -> Any:
    """The same of what was read from a file already."""
    options: dict[str, Any] = {"parse_float": _float, "parse_constant": _float} if finite else {}
    try:
        return json.loads(data if isinstance(data, str) else data.decode(), **options)
    except RecursionError:
        reason = "it is nested too deeply"
    except UnicodeDecodeError as e:
        reason = f"{e.reason} at byte {e.start:,}, expected UTF-8"
    except ValueError as e:  # bad JSON, and whole numbers of more digits than Python takes
        reason = str(e)
    raise GlassformerError(f"{path} — {what}: {reason}", code=DAMAGED)


def _float(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def refuse(where: str, expected: str, got: Any) -> NoReturn:
    found = "null" if got is None else shown(got)
    raise GlassformerError(f"{where or 'it'} must be {expected}, got {found}")


def that(good: Callable[[Any], bool], expected: str) -> Check:
    """What is good, or else is said to be expected."""
    return lambda value, where: None if good(value) else refuse(where, expected, value)


def anything(value: Any, where: str) -> None:
    """What someone else looks at."""


def whole(least: int, most: int) -> Check:
    """A whole number in a range."""
    expected = f"a whole number from {least:,} to {many(most)}"
    return that(lambda value: type(value) is int and least <= value <= most, expected)


def exactly(wanted: Any) -> Check:
    """This value and no other."""
    return that(lambda value: type(value) is type(wanted) and value == wanted, json.dumps(wanted))


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= 2**1000


def _is_sha256(value: Any) -> bool:
    return type(value) is str and re.fullmatch("[0-9a-f]{64}", value) is not None


# A number may be NaN or infinite: JSON as Python writes it has these.
number = that(lambda value: type(value) is float or _is_finite(value), "a number")
finite = that(_is_finite, "a finite number")
boolean = that(lambda value: type(value) is bool, "true or false")
sha256 = that(_is_sha256, "a SHA-256 of 64 hexadecimal digits")


def text(most: int) -> Check:
    """A text of so many characters at most."""

    def check(value: Any, where: str) -> None:
        if type(value) is not str:
            refuse(where, "a text", value)
        if len(value) > most:
            got = f"{value[:40]}… ({len(value):,})"
            refuse(where, f"a text of at most {most:,} characters", got)

    return check


def optional(inner: Check) -> Check:
    """That, or null."""
    return lambda value, where: None if value is None else inner(value, where)


def listing(each: Check, most: int, least: int = 0) -> Check:
    """A list of so many such values."""

    def check(value: Any, where: str) -> None:
        if type(value) is not list:
            refuse(where, "a list", value)
        if not least <= len(value) <= most:
            count = f"{least:,}" if least == most else f"{least:,} to {most:,}"
            raise GlassformerError(f"{where} must be a list of {count} values, got {len(value):,}")
        for i, item in enumerate(value):
            each(item, f"{where}[{i}]")

    return check


def mapping(each: Check, most: int) -> Check:
    """An object with so many names of its own choice at most, and such values."""

    def check(value: Any, where: str) -> None:
        if type(value) is not dict:
            refuse(where, "an object", value)
        if (n := len(value)) > most:
            raise GlassformerError(f"{where} must have at most {most:,} entries, got {n:,}")
        for name, item in value.items():
            text(1_000)(name, f"a name in {where}")
            each(item, f"{where}.{name if name.isprintable() else shown(name)}")

    return check


def record(must: Mapping[str, Check], may: Mapping[str, Check] | None = None) -> Check:
    """An object with these fields, and no others."""
    known = {**must, **(may or {})}

    def check(value: Any, where: str) -> None:
        if type(value) is not dict:
            refuse(where, "an object", value)
        for name, each in known.items():  # in this order: a format that is not ours is said first
            if name in value:
                each(value[name], f"{where}.{name}" if where else name)
            elif name in must:
                raise GlassformerError(f"{where or 'it'} has no {name}")
        if unknown := [name for name in value if name not in known]:
            wanted = f"expected {', '.join(known)} and no more"
            raise GlassformerError(f"{where or 'it'} has {shown(unknown[0])}; {wanted}")

    return check


def small(most: int) -> Check:
    """Any value, of so many characters at most when written, and not nested deeply."""

    def check(value: Any, where: str) -> None:
        if _depth(value) > 20:
            raise GlassformerError(f"{where} is nested more than 20 deep")
        if len(json.dumps(value)) > most:
            must = f"must have at most {most:,} characters when written"
            raise GlassformerError(f"{where} {must}, got more")

    return check


def _depth(value: Any, most: int = 21) -> int:
    """How deep lists and objects are nested, up to `most`."""
    if most <= 0 or not isinstance(value, (list, dict)):
        return 0
    inside = value.values() if isinstance(value, dict) else value
    return 1 + max((_depth(v, most - 1) for v in inside), default=0)


# ── what checkpoints and GPT-2 folders both hold ───────────────────────────────────────────────
LABEL = text(1_000)
LABELS = record({
    "slots": mapping(listing(whole(0, 2**31 - 1), 2, 2), 100_000),
    "heads": mapping(LABEL, 100_000),
    "neurons": mapping(LABEL, 1_000_000),
})  # fmt: skip
