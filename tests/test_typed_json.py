"""Accepted and refused inputs of `convert`: types, sizes and fields of all file formats."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from glassformer import GlassformerError
from glassformer.utils.typed_json import (
    Count,
    Finite,
    JsonObject,
    Name,
    Sha256,
    check_small,
    convert,
)
from helpers import raises


class Item(JsonObject):
    count: Count
    scores: dict[Name, list[Finite]] = {}  # noqa: RUF012 - msgspec copies it


class File(JsonObject):
    items: Annotated[list[Item], Meta(max_length=2)]
    kind: Literal["x"] = "x"


@dataclass(frozen=True)
class Plain:
    name: Name
    margin: float = 0.0


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def test_what_fits_is_converted():
    file = convert({"items": [{"count": 1, "scores": {"a": [1, 2.5]}}], "kind": "x"}, File)
    assert file == File([Item(1, {"a": [1.0, 2.5]})], "x")
    assert convert({"name": "\ud800", "margin": math.inf}, Plain) == Plain("\ud800", math.inf)
    assert math.isnan(convert({"name": "", "margin": math.nan}, Plain).margin)
    assert convert(10**400, Count) == 10**400


@pytest.mark.parametrize("value,kind,path", [
    (True, Count, ""), (1.0, Count, ""), (-1, Count, ""), (-(10**400), Count, ""),
    ("1", Count, ""), (None, Count, ""), (True, Finite, ""), (math.nan, Finite, ""),
    (math.inf, Finite, ""), (1e302, Finite, ""), (10**400, Finite, ""),
    (10**400, float, ""),
    ("f" * 63, Sha256, ""), ("f" * 64 + "\n", Sha256, ""), ("F" * 64, Sha256, ""),
    (True, Literal[1], ""), (1.0, Literal[1], ""), (2, Literal[1], ""),
    ("x" * 1_001, Name, ""), ([1], File, ""), ({}, File, ""),
    ({"items": [{"count": 1}] * 3}, File, "items"), ({"items": [{}]}, File, "items[0]"),
    ({"items": [{"count": 1}, {"count": "\x1b[31m\n"}]}, File, "items[1].count"),
    ({"items": [{"count": 1, "scores": {"a": [1, "x"]}}]}, File, "items[0].scores[...][1]"),
    ({"items": [{"count": 1, "scores": {"a" * 1_001: []}}]}, File, "items[0].scores"),
    ({"items": [{"count": 1, "more": 1}]}, File, "items[0]"),
    ({"items": [], "\x1b\n" + "x" * 10**6: 1}, File, ""),
    ({"items": [], "\ud800": 1}, File, ""),
    ({"items": [], "kind": "y" * 10**6}, File, "kind"),
    ({"items": [], "kind": "\ud800"}, File, ""),
    ({"name": "", "more": 1}, Plain, ""), ({"name": "", "\ud800": 1}, Plain, ""),
    (nested(10_000), list[list[Count]], "[0][0]"),
])  # fmt: skip
def test_what_does_not_fit_is_one_line_with_its_path(value, kind, path):
    for where in ("", "file"):
        with pytest.raises(GlassformerError) as error:
            convert(value, kind, where)
        message = str(error.value)
        dot = "." if where and path[:1] not in ("", "[") else ""
        assert message.startswith(f"{where}{dot}{path}: " if where or path else "it: ")
        assert message.isprintable() and len(message) < 400


def test_sizes_of_free_values():
    check_small(nested(19), "it", 100)
    for value in (nested(20), nested(10_000), "x" * 99):
        with raises("bad_argument"):
            check_small(value, "it", 100)
