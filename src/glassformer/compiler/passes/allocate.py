"""Where in the stream everything stands.

The first three numbers are the base: one direction is 1 everywhere but at the beginning of the
text, another only there. Then a slot for each value, then room for the sums that heads bring to the
neurons of the same layer; in the last layer they may lie over what nobody reads any more.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..certify import Declaration
from ..ir import (
    Map,
    Position,
    Program,
    Select,
    Sum,
    ThresholdCount,
    Token,
    Value,
    make_names_unique,
)
from .encode import Codes, Encoder, UnencodableSum
from .schedule import Sublayers, count_layers, schedule

BASE_DIMS = slice(0, 3)
# (value here, value there) that are compared -> a copy of the second, for this alone
ValueCopies = dict[tuple[Value, Value], Value]


@dataclass
class CountReadout:
    """What a flat head brings to the neurons of a tally: averages of numbers over what matches and
    the beginning of the text. Test j is passed where scale[j]·(average `of[j]`) + each[j]·(1 − b)
    − cut[j]·b is positive, b being the weight of the beginning.
    """

    weights: Any  # [n, members of all terms]: the numbers of what is there
    bos: Any  # [n]: the number of the beginning
    average_of_test: Any  # [J]
    scale_of_test: Any  # [J]
    has_bos_average: bool  # the beginning's weight is one of the averages, the last


@dataclass
class Plan:
    """What the passes have decided so far."""

    program: Program
    codes: Codes
    sublayers: Sublayers
    slots: dict[Value, slice]
    average_slots: dict[ThresholdCount, slice]
    readouts: dict[ThresholdCount, CountReadout]
    hosts: dict[Value, Value]  # values without a slot, and what they are read off
    indicator_of: dict[
        Value, tuple[Value, int]
    ]  # values that are true for one member of another only
    copies: ValueCopies
    materialized: frozenset[Sum]  # sums that neurons make although a look could do without
    width: int

    @property
    def n_layers(self) -> int:
        return count_layers(self.sublayers)

    @property
    def declaration(self) -> Declaration:
        codes = {v: self.codes[v] for v in self.slots}
        same = {v: v for v in self.program.values}
        return Declaration(
            self.program, same, codes, self.sublayers, self.slots, self.average_slots
        )

    def computed_at(self, sublayer: int) -> list[Value]:
        return [v for v, t in self.sublayers.items() if t == sublayer]


def make_plan(program: Program, finely_coded: frozenset[str] = frozenset()) -> Plan:
    """`fine`: names of values that are told apart more finely than size alone asks for."""
    codes, twins, made = encode_values(program, finely_coded)
    make_names_unique([*program.values, *twins.values()])
    times = schedule(program, made) | dict.fromkeys(twins.values(), 0)
    hosts = find_hosts(program, codes)
    pins = find_indicators(program, hosts)
    times = {v: t for v, t in times.items() if v not in hosts and v not in pins}
    slots, room, carried, at = {}, {}, {}, 3
    for v in times:
        slots[v] = slice(at, at + codes[v].shape[1])
        at = slots[v].stop
    last = 2 * count_layers(times)
    for v in times:
        if isinstance(v, ThresholdCount):
            carried[v] = make_readout(v)
            n = len(carried[v].bos)
            over = None if carried[v].has_bos_average else v.terms[0][0]
            dead = over is not None and over in slots and not _read_by_neurons(over, v, times)
            if times[v] == last and dead and slots[over].stop - slots[over].start >= n + 1:  # type: ignore[index]
                room[v] = slice(slots[over].start, slots[over].start + n + 1)  # type: ignore[index]
            else:
                room[v] = slice(at, at + n + 1)
                at += n + 1
    return Plan(program, codes, times, slots, room, carried, hosts, pins, twins, made, at)


def encode_values(
    program: Program, finely_coded: frozenset[str] = frozenset()
) -> tuple[Codes, ValueCopies, frozenset[Sum]]:
    """The codes, the twins among what they are of, and the sums that neurons make although a look
    could do without: where it could not tell what is nothing.
    """
    made: frozenset[Sum] = frozenset()
    while True:
        encoder = Encoder(program, finely_coded, made)
        try:
            return encoder.make_codes(), encoder.copies, made
        except UnencodableSum as e:
            left = {t.query for t in encoder.position_lookups.values()} & {*e.sums}
            if not left:
                raise
            made |= {next(s for s in e.sums if s in left)}


def find_hosts(program: Program, codes: Codes) -> dict[Value, Value]:
    """Functions of the token (or the position) that can be read off another such value: off one
    that has a simplex for a code, any function can.
    """
    simple = [v for v in program.values if isinstance(v, (Token, Position))]
    hosts = [v for v in simple if codes[v].shape[1] == len(v) > 2]
    named = {
        side
        for v in program.values
        if isinstance(v, (Select, ThresholdCount))
        for t in v.predicates
        if t.query is not None
        for side in t.args
    } | {a for v in program.values if isinstance(v, Map) for a in v.args}
    partial = {
        a for v in program.values if isinstance(v, Sum) and v.has_non_numbers for a in v.args
    }
    named |= {a for a in partial if np.isnan(a.numeric_domain).any()}
    out: dict[Value, Value] = {}
    for v in simple:
        for w in hosts:
            free = v not in named and v is not program.emit and v not in out
            if free and w is not v and w not in out and member_given(v, w) is not None:
                out[v] = w
    return out


def find_indicators(program: Program, hosts: dict[Value, Value]) -> dict[Value, tuple[Value, int]]:
    """Conditions on the token there that hold for one member of a value in the stream: that member
    is looked for, and the condition needs no slot.
    """
    flags: dict[Value, bool] = {}
    for v in program.values:
        tests = v.predicates if isinstance(v, (Select, ThresholdCount)) else ()
        alone = {t.key for t in tests if t.query is None and t.table.sum() == 1 and t.key}
        others = {a for a in v.args if a not in alone}
        others |= {side for t in tests if t.query is not None for side in t.args}
        if isinstance(v, Select):
            others |= {v.value, *(o for _, o in v.sort_keys)}
        if isinstance(v, ThresholdCount):
            others |= {x for x, _ in v.terms}
        for flag in alone:
            flags.setdefault(flag, True)
        for other in others:
            flags[other] = False
    out: dict[Value, tuple[Value, int]] = {}
    for flag, only in flags.items():
        if not only or flag in hosts or len(flag) != 2 or not isinstance(flag, (Token, Position)):
            continue
        for w in program.values:
            if w is flag or w in hosts or flags.get(w) or len(w) < 3:
                continue
            members = member_given(flag, w)
            if members is not None:
                true = flag.index.get(True, -1)
                at = np.flatnonzero(members == true)
                if len(at) == 1:
                    out[flag] = (w, int(at[0]))
                    break
    return out


def member_given(v: Value, w: Value) -> Any:
    """Which member v is for each member of w, if that says it; else None."""
    if type(v) is not type(w) or not isinstance(v, (Token, Position)):
        return None
    if len(set(zip(v.table.tolist(), w.table.tolist(), strict=True))) > len(w):  # type: ignore
        return None
    out = np.zeros(len(w), int)
    out[w.table] = v.table  # type: ignore[attr-defined]
    return out


def _read_by_neurons(value: Value, count: ThresholdCount, sublayers: Sublayers) -> bool:
    """Whether a value is read by neurons of the layer in which a tally is made."""
    mlp = [
        v
        for v, t in sublayers.items()
        if t == sublayers[count] and not isinstance(v, (ThresholdCount, Select))
    ]
    shared = [
        v
        for v, t in sublayers.items()
        if isinstance(v, ThresholdCount) and t == sublayers[count] and v is not count
    ]
    return any(value in v.args for v in mlp) or any(
        v.terms and v.terms[0][0] is value for v in shared
    )


def make_readout(v: ThresholdCount) -> CountReadout:
    """The averages that a tally needs: one for each kind of row among its weights, and the weight
    of the beginning, unless each test has an average of its own, where the beginning can be what
    it is compared with.
    """
    J = len(v.thresholds)
    weights = np.concatenate([w for _, w in v.terms], 1) if v.terms else np.zeros((J, 0))
    rows: list[Any] = []
    of, scale = np.zeros(J, int), np.zeros(J)
    for j, row in enumerate(weights):
        if not row.any():
            continue
        for i, known in enumerate(rows):
            factor = row @ known / (known @ known)
            if np.array_equal(row, factor * known):
                of[j], scale[j] = i, factor
                break
        else:
            of[j], scale[j] = len(rows), 1.0
            rows.append(row.astype(float))
    single = len(rows) == J and not v.position_weights.any()
    begin = -v.thresholds / scale if single else np.append(np.zeros(len(rows)), 1.0)
    if not single:
        rows = [*rows, np.zeros(weights.shape[1])]
    stacked = np.stack(rows) if rows else np.zeros((0, weights.shape[1]))
    return CountReadout(stacked, begin, of, scale, not single)
