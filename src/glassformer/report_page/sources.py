"""Conversion of a compiled model's source to data for the page: value tables and slot codes.

The page interprets it (web/interpret.js) to show the right value of each slot for any input.
Tables of more than MAX_TABLE_BYTES are left out.
"""

import base64
from typing import Any

import numpy as np

from ..compiler.certify import Declaration
from ..compiler.driver import load_declaration
from ..compiler.ir import Map, Position, Program, Select, Sum, ThresholdCount, Token, Value
from ..compiler.literals import format_element
from ..compiler.task import embedded_entry
from ..core.model import Model

# Class of a value -> name of a function in web/interpret.js.
KINDS: dict[type[Value], str] = {
    Token: "token", Position: "position", Map: "map", Sum: "sum", Select: "select",
    ThresholdCount: "count",
}  # fmt: skip
MAX_TABLE_BYTES = 150_000  # total size of all tables in base64


def source_payload(model: Model) -> dict[str, Any] | None:
    """Return the source of a compiled model as data, or None for other models."""
    if (data := embedded_entry(model)) is None:
        return None
    program, declaration = load_declaration(data)
    values = declaration.program.values
    # The number -1 - i denotes a copy of value i in a separate slot.
    indices = [i if i >= 0 else -1 - i for i, *_ in data["values"]]
    codes = [
        {"value": i, "time": declaration.sublayers[v], "start": s.start, "stop": s.stop,
         "until": _reuse_time(declaration, v)}
        for i, (v, s) in zip(indices, declaration.slots.items(), strict=True)
    ]  # fmt: skip
    tables, size = value_tables(declaration.program)
    size_text = f"The tables of this source take {size:,} bytes, more than {MAX_TABLE_BYTES:,}"
    problem = f"{size_text}: slots are shown without the interpreter's values."
    return {
        "length": program.length, "codes": codes,
        "values": tables if size <= MAX_TABLE_BYTES else None,
        "domains": [list(map(format_element, v.domain)) for v in values],
        "problem": problem if size > MAX_TABLE_BYTES else "",
    }  # fmt: skip


def _reuse_time(declaration: Declaration, v: Value) -> int | None:
    """Return the time at which the average of a counting head overwrites a slot, or None."""
    dimensions = range(*declaration.slots[v].indices(2**31))
    uses = [
        declaration.sublayers[tally] - 1 for tally, slot in declaration.average_slots.items()
        if max(dimensions.start, slot.start) < min(dimensions.stop, slot.stop)
    ]  # fmt: skip
    return min((time for time in uses if time > declaration.sublayers[v]), default=None)


def value_tables(program: Program) -> tuple[list[dict[str, Any]], int]:
    """Return all values of a program as tables, in dependency order, and their size in bytes."""
    number = {v: i for i, v in enumerate(program.values)}
    values = [_value_table(v, number) for v in number]
    return values, sum(map(_json_size, values))


def _value_table(v: Value, number: dict[Value, int]) -> dict[str, Any]:
    """Return a value as integer tables. Its arguments are given as indices of values."""
    out: dict[str, Any] = {"name": v.name, "size": len(v), "kind": KINDS[type(v)]}
    if isinstance(v, (Token, Position)):
        return out | {"table": encode_ints(v.table)}
    args = {"args": [number[a] for a in v.args]}
    if isinstance(v, Map):
        return out | args | {"table": encode_ints(v.table)}
    if isinstance(v, Sum):
        numbers = [[None if np.isnan(x) else int(x) for x in a.numeric_domain] for a in v.args]
        return out | args | {
            "factors": list(v.coefficients), "constant": v.constant, "low": v.low,
            "numbers": numbers, "table": encode_ints(v.table), "otherwise": v.fallback_index,
        }  # fmt: skip
    assert isinstance(v, (Select, ThresholdCount))
    tests = [
        {"query": None if t.query is None else number[t.query],
         "key": None if t.key is None else number[t.key], "table": encode_ints(t.table)}
        for t in v.predicates
    ]  # fmt: skip
    if isinstance(v, Select):
        order = []
        for sign, by in v.sort_keys:
            place = {d: i for i, d in enumerate(sorted(by.domain)[::sign])}
            order.append([number[by], encode_ints([place[d] for d in by.domain])])
        return out | {
            "tests": tests, "order": order, "value": number[v.value],
            "members": encode_ints([v.index[d] for d in v.value.domain]),
            "default": v.index[v.default],
        }  # fmt: skip
    terms = [number[term] for term, _ in v.terms]
    results = encode_ints(v.results)
    return out | {"tests": tests, "terms": terms, "rows": _sum_rows(v), "results": results}


def _sum_rows(v: ThresholdCount) -> list[list[Any]]:
    """Return [position weight, thresholds, term weights] for every distinct sum."""
    sums = np.column_stack([v.position_weights, *(weights for _, weights in v.terms)])
    _, first, groups = np.unique(sums, axis=0, return_index=True, return_inverse=True)
    rows = []
    for i, j in enumerate(first.tolist()):
        thresholds = encode_ints(np.ceil(v.thresholds[groups.ravel() == i]))
        weights = [encode_ints(w[j]) for _, w in v.terms]
        rows.append([int(v.position_weights[j]), thresholds, weights])
    return rows


def encode_ints(x: Any) -> dict[str, str]:
    """Encode flattened integers in base64, using the smallest integer type that fits."""
    flat = np.asarray(x).reshape(-1).astype(np.int64)
    low, high = (int(flat.min()), int(flat.max())) if flat.size else (0, 0)
    kinds = {"<i1": 2**7, "<i2": 2**15, "<i4": 2**31, "<f8": 2**53}
    kind = next(k for k, limit in kinds.items() if -limit <= low <= high < limit)
    return {"of": kind[1:], "data": base64.b64encode(flat.astype(kind).tobytes()).decode()}


def _json_size(data: Any) -> int:
    if isinstance(data, dict):
        return sum(map(_json_size, data.values()))
    if isinstance(data, (list, tuple)):
        return sum(map(_json_size, data))
    return len(data) if isinstance(data, str) else 8
