"""The source of a compiled model as data: its text, its values as tables, and their codes.

The page interprets it (interpret.js), so that beside what a slot holds stands what it should hold,
for any text. Tables of more than LARGEST bytes stay here: then the page says what slots hold alone.
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

# kinds of values, as the page names them
KINDS: dict[type[Value], str] = {
    Token: "token", Position: "position", Map: "map", Sum: "sum", Select: "look",
    ThresholdCount: "tally",
}  # fmt: skip
MAX_TABLE_BYTES = 150_000  # bytes of all tables, in base64


def source_payload(model: Model) -> dict[str, Any] | None:
    """What a compiled model carries, for the page; None if it was not compiled."""
    if (told := embedded_entry(model)) is None:
        return None
    program, said = load_declaration(told)
    values = said.program.values
    # A copy of a value has a slot of its own and means the same: told by -1 - i.
    which = [i if i >= 0 else -1 - i for i, *_ in told["values"]]
    codes = [
        {"value": i, "time": said.sublayers[v], "start": s.start, "stop": s.stop, "name": v.name,
         "until": _reuse_time(said, v)}
        for i, (v, s) in zip(which, said.slots.items(), strict=True)
    ]  # fmt: skip
    kept, size = value_tables(said.program)
    return {
        "name": told["name"],
        "length": program.length,
        "codes": codes,
        "values": kept if size <= MAX_TABLE_BYTES else None,
        "domains": [list(map(format_element, v.domain)) for v in values],
        "problem": ""
        if size <= MAX_TABLE_BYTES
        else (
            f"The tables of this source take {size:,} bytes, more than the {MAX_TABLE_BYTES:,} that a page "
            "carries: only what slots hold is shown, not what they should hold."
        ),
    }


def _reuse_time(said: Declaration, v: Value) -> int | None:
    """When a slot is used again: as room for the sum that the head of a tally makes."""
    own = range(*said.slots[v].indices(2**31))
    uses = [
        said.sublayers[tally] - 1 for tally, room in said.average_slots.items()
        if max(own.start, room.start) < min(own.stop, room.stop)
    ]  # fmt: skip
    return min((time for time in uses if time > said.sublayers[v]), default=None)


def value_tables(program: Program) -> tuple[list[dict[str, Any]], int]:
    """Every value of a program as tables, each after those that it is made of; and their bytes."""
    number = {v: i for i, v in enumerate(program.values)}
    kept = [_value_table(v, number) for v in number]
    return kept, sum(map(_json_size, kept))


def _value_table(v: Value, number: dict[Value, int]) -> dict[str, Any]:
    """A value as tables of whole numbers; values that it is made of by their numbers."""
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
        {"here": None if t.query is None else number[t.query],
         "there": None if t.key is None else number[t.key], "table": encode_ints(t.table)}
        for t in v.predicates
    ]  # fmt: skip
    if isinstance(v, Select):
        order = []
        for sign, by in v.sort_keys:
            place = {d: i for i, d in enumerate(sorted(by.domain)[::sign])}
            order.append([number[by], encode_ints([place[d] for d in by.domain])])
        return out | {
            "tests": tests,
            "order": order,
            "value": number[v.value],
            "there": encode_ints([v.index[d] for d in v.value.domain]),
            "default": v.index[v.default],
        }
    terms = [number[each] for each, _ in v.terms]
    return out | {
        "tests": tests,
        "terms": terms,
        "rows": _sum_rows(v),
        "results": encode_ints(v.results),
    }


def _sum_rows(v: ThresholdCount) -> list[list[Any]]:
    """[what each position adds, cuts, what members of the terms add] for every sum that is put to
    tests: those that are alike but for their cut are one.
    """
    sums = np.column_stack([v.position_weights, *(weights for _, weights in v.terms)])
    _, first, which = np.unique(sums, axis=0, return_index=True, return_inverse=True)
    return [
        [
            int(v.position_weights[j]),
            encode_ints(np.ceil(v.thresholds[which.ravel() == i])),
            [encode_ints(w[j]) for _, w in v.terms],
        ]
        for i, j in enumerate(first.tolist())
    ]


def encode_ints(x: Any) -> dict[str, str]:
    """Whole numbers in as few bytes as will hold them all, flat."""
    flat = np.asarray(x).reshape(-1).astype(np.int64)
    low, high = (int(flat.min()), int(flat.max())) if flat.size else (0, 0)
    kinds = {"<i1": 2**7, "<i2": 2**15, "<i4": 2**31, "<f8": 2**53}
    kind = next(k for k, most in kinds.items() if -most <= low <= high < most)
    return {"of": kind[1:], "data": base64.b64encode(flat.astype(kind).tobytes()).decode()}


def _json_size(data: Any) -> int:
    if isinstance(data, dict):
        return sum(map(_json_size, data.values()))
    if isinstance(data, (list, tuple)):
        return sum(map(_json_size, data))
    return len(data) if isinstance(data, str) else 8
