"""The source of a compiled model as data: its text, its values as tables, and their codes.

The page interprets it (interpret.js), so that beside what a slot holds stands what it should hold,
for any text. Tables of more than LARGEST bytes stay here: then the page says what slots hold alone.
"""

import base64
from typing import Any

import numpy as np

from ..compiler.certify import Declaration
from ..compiler.driver import declared
from ..compiler.ir import Look, Map, Position, Program, Sum, Tally, Token, Value
from ..compiler.literals import spelled
from ..compiler.task import embedded
from ..core.model import Model

LARGEST = 150_000  # bytes of all tables, in base64


def source(model: Model) -> dict[str, Any] | None:
    """What a compiled model carries, for the page; None if it was not compiled."""
    if (told := embedded(model)) is None:
        return None
    program, said = declared(told)
    values = said.program.values
    # A copy of a value has a slot of its own and means the same: told by -1 - i.
    which = [i if i >= 0 else -1 - i for i, *_ in told["values"]]
    codes = [
        {"value": i, "time": said.times[v], "start": s.start, "stop": s.stop, "name": v.name,
         "until": _until(said, v)}
        for i, (v, s) in zip(which, said.slots.items(), strict=True)
    ]  # fmt: skip
    kept, size = tables(said.program)
    return {
        "name": told["name"], "length": program.length, "codes": codes,
        "values": kept if size <= LARGEST else None,
        "domains": [list(map(spelled, v.domain)) for v in values],
        "problem": "" if size <= LARGEST else (
            f"The tables of this source take {size:,} bytes, more than the {LARGEST:,} that a page "
            "carries: only what slots hold is shown, not what they should hold."
        ),
    }  # fmt: skip


def _until(said: Declaration, v: Value) -> int | None:
    """When a slot is used again: as room for the sum that the head of a tally makes."""
    own = range(*said.slots[v].indices(2**31))
    uses = [
        said.times[tally] - 1 for tally, room in said.room.items()
        if max(own.start, room.start) < min(own.stop, room.stop)
    ]  # fmt: skip
    return min((time for time in uses if time > said.times[v]), default=None)


def tables(program: Program) -> tuple[list[dict[str, Any]], int]:
    """Every value of a program as tables, each after those that it is made of; and their bytes."""
    number = {v: i for i, v in enumerate(program.values)}
    kept = [_value(v, number) for v in number]
    return kept, sum(map(_size, kept))


def _value(v: Value, number: dict[Value, int]) -> dict[str, Any]:
    """A value as tables of whole numbers; values that it is made of by their numbers."""
    out: dict[str, Any] = {"name": v.name, "size": len(v), "kind": type(v).__name__.lower()}
    if isinstance(v, (Token, Position)):
        return out | {"table": ints(v.table)}
    args = {"args": [number[a] for a in v.args]}
    if isinstance(v, Map):
        return out | args | {"table": ints(v.table)}
    if isinstance(v, Sum):
        numbers = [[None if np.isnan(x) else int(x) for x in a.numbers] for a in v.args]
        return out | args | {
            "factors": list(v.coefficients), "constant": v.constant, "low": v.low,
            "numbers": numbers, "table": ints(v.table), "otherwise": v.otherwise,
        }  # fmt: skip
    assert isinstance(v, (Look, Tally))
    tests = [
        {"here": None if t.here is None else number[t.here],
         "there": None if t.there is None else number[t.there], "table": ints(t.table)}
        for t in v.tests
    ]  # fmt: skip
    if isinstance(v, Look):
        order = []
        for sign, by in v.order:
            place = {d: i for i, d in enumerate(sorted(by.domain)[::sign])}
            order.append([number[by], ints([place[d] for d in by.domain])])
        return out | {
            "tests": tests, "order": order, "value": number[v.value],
            "there": ints([v.index[d] for d in v.value.domain]), "default": v.index[v.default],
        }  # fmt: skip
    terms = [number[each] for each, _ in v.terms]
    return out | {"tests": tests, "terms": terms, "rows": _rows(v), "results": ints(v.results)}


def _rows(v: Tally) -> list[list[Any]]:
    """[what each position adds, cuts, what members of the terms add] for every sum that is put to
    tests: those that are alike but for their cut are one.
    """
    sums = np.column_stack([v.each, *(weights for _, weights in v.terms)])
    _, first, which = np.unique(sums, axis=0, return_index=True, return_inverse=True)
    return [
        [int(v.each[j]), ints(np.ceil(v.cut[which.ravel() == i])), [ints(w[j]) for _, w in v.terms]]
        for i, j in enumerate(first.tolist())
    ]


def ints(x: Any) -> dict[str, str]:
    """Whole numbers in as few bytes as will hold them all, flat."""
    flat = np.asarray(x).reshape(-1).astype(np.int64)
    low, high = (int(flat.min()), int(flat.max())) if flat.size else (0, 0)
    kinds = {"<i1": 2**7, "<i2": 2**15, "<i4": 2**31, "<f8": 2**53}
    kind = next(k for k, most in kinds.items() if -most <= low <= high < most)
    return {"of": kind[1:], "data": base64.b64encode(flat.astype(kind).tobytes()).decode()}


def _size(data: Any) -> int:
    if isinstance(data, dict):
        return sum(map(_size, data.values()))
    if isinstance(data, (list, tuple)):
        return sum(map(_size, data))
    return len(data) if isinstance(data, str) else 8
