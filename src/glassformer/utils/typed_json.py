"""Typed JSON files: read, parse and convert; invalid data raises a GlassformerError.

A format is a JsonObject or a dataclass, used for reading and writing. Its annotations set limits:

    class Report(JsonObject):
        step: Annotated[int, Meta(ge=0, le=10**9)]
        digits: Annotated[list[Finite], Meta(max_length=10_000)]

    report = convert(read_json("r.json"), Report)  # "digits[0]: expected float, got 'x'"

Importing this module imports msgspec. A module that every command imports must import it lazily.
"""

import json
import math
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, overload

import msgspec
from msgspec import Meta

from .errors import DAMAGED_FILE, GlassformerError, short_repr
from .fileio import read_bytes
from .limits import MAX_REF_CHARACTERS, MAX_SEED

T = TypeVar("T")

# In strict mode msgspec accepts an int as a float, but not a bool as a number or a fraction as an
# int. A float without limits may be NaN or infinite.
Finite = Annotated[float, Meta(ge=-(2.0**1000), le=2.0**1000)]
Count = Annotated[int, Meta(ge=0)]
Seed = Annotated[int, Meta(ge=0, le=MAX_SEED)]
Name = Annotated[str, Meta(max_length=1_000)]
Ref = Annotated[str, Meta(max_length=MAX_REF_CHARACTERS)]
Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Setting = Ref | bool | int | float | None
Settings = Annotated[dict[Name, Setting], Meta(max_length=200)]  # of a recipe


class JsonObject(msgspec.Struct, forbid_unknown_fields=True):
    """Base class of JSON objects with a fixed set of fields; unknown fields are errors."""


def read_json(path: str | Path, label: str = "not JSON", finite: bool = True) -> Any:
    """Read a JSON file; `label` and `finite` are as in `parse_json`."""
    return parse_json(read_bytes(path), path, label, finite)


def parse_json(
    data: bytes | str, path: str | Path, label: str = "not JSON", finite: bool = True
) -> Any:
    """Parse a JSON string; with `finite`, NaN and infinities are errors.

    Error messages start with `path` and `label`.
    """
    options: dict[str, Any] = {"parse_float": _float, "parse_constant": _float} if finite else {}
    try:
        return json.loads(data if isinstance(data, str) else data.decode(), **options)
    except RecursionError:
        reason = "it is nested too deeply"
    except UnicodeDecodeError as e:
        reason = f"{e.reason} at byte {e.start:,}, expected UTF-8"
    except ValueError as e:  # invalid JSON, or an int with too many digits
        reason = str(e)
    raise GlassformerError(f"{path} — {label}: {reason}", code=DAMAGED_FILE)


def _float(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


@overload
def convert(value: Any, kind: type[T], where: str = "") -> T: ...
@overload
def convert(value: Any, kind: Any, where: str = "") -> Any: ...
def convert(value: Any, kind: Any, where: str = "") -> Any:
    """Convert a parsed JSON value to a JsonObject, a dataclass or an annotation.

    A nested type must be a JsonObject, since msgspec ignores unknown fields of a nested dataclass.
    Errors start with `where`, the path of the value.
    """
    known = {f.name for f in fields(kind)} if is_dataclass(kind) else set()
    try:
        if known and isinstance(value, dict) and (unknown := sorted(value.keys() - known)):
            problem = f"{where or 'it'}: unknown field {short_repr(unknown[0])}"
        else:
            return msgspec.convert(value, kind)
    except msgspec.ValidationError as e:
        problem = _explain(str(e), value, where)
    except UnicodeEncodeError as e:  # A field name has a lone surrogate.
        problem = f"{where or 'it'}: unknown name {short_repr(e.object)}"
    except RecursionError:
        problem = f"{where or 'it'}: nested too deeply"
    raise GlassformerError(problem, code=DAMAGED_FILE)


def _explain(message: str, value: Any, where: str) -> str:
    """Return a message of msgspec rewritten as path, expected type and actual value."""
    parts = re.fullmatch(r"(.*) - at (`key` in )?`\$([^`]*)`", message, re.DOTALL)
    reason, is_key, path = parts.groups() if parts else (message, None, "")
    reason = reason.replace("Object missing required field", "has no")
    if reason.startswith(unknown := "Object contains unknown field `"):
        reason = f"unknown field {short_repr(reason[len(unknown) : -1])}"
    elif reason.startswith(("Expected", "Invalid")) and not is_key and "[...]" not in path:
        for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
            value = value[name or int(index)]
        expected = "expected another value" if reason.startswith("Invalid") else reason
        reason = f"{expected.partition(', got `')[0]}, got {short_repr(value)}"
    elif is_key:
        reason += " as a name"
    reason = reason[:1].lower() + reason[1:200].replace("`", "")
    return f"{(where + path).lstrip('.') or 'it'}: {reason}"


def check_small(value: Any, where: str, max_characters: int) -> None:
    """Raise an error if a JSON value is more than 20 levels deep or too long as a string."""
    if _depth(value) > 20:
        raise GlassformerError(f"{where}: nested more than 20 deep")
    if len(json.dumps(value)) > max_characters:
        raise GlassformerError(f"{where}: expected at most {max_characters:,} characters")


def _depth(value: Any, max_depth: int = 21) -> int:
    """Return the nesting depth of lists and objects, at most `max_depth`."""
    if max_depth <= 0 or not isinstance(value, (list, dict)):
        return 0
    inside = value.values() if isinstance(value, dict) else value
    return 1 + max((_depth(v, max_depth - 1) for v in inside), default=0)
