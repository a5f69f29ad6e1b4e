"""Where in the stream everything stands.

The first three numbers are the base: one direction is 1 everywhere but at the beginning of the
text, another only there. Then a slot for each value, then room for the sums that heads bring to the
neurons of the same layer; in the last layer they may lie over what nobody reads any more.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..certify import Declaration
from ..ir import Look, Map, Position, Program, Sum, Tally, Token, Value, tell_apart
from .encode import Codes, Encoder, Unsayable
from .schedule import Times, layers, schedule

BASE = slice(0, 3)
# (value here, value there) that are compared -> a copy of the second, for this alone
Twins = dict[tuple[Value, Value], Value]


@dataclass
class Carried:
    """What a flat head brings to the neurons of a tally: averages of numbers over what matches and
    the beginning of the text. Test j is passed where scale[j]·(average `of[j]`) + each[j]·(1 − b)
    − cut[j]·b is positive, b being the weight of the beginning.
    """

    rows: Any  # [n, members of all terms]: the numbers of what is there
    begin: Any  # [n]: the number of the beginning
    of: Any  # [J]
    scale: Any  # [J]
    own: bool  # the beginning's weight is one of the averages, the last


@dataclass
class Plan:
    """What the passes have decided so far."""

    program: Program
    codes: Codes
    times: Times
    slots: dict[Value, slice]
    room: dict[Tally, slice]
    carried: dict[Tally, Carried]
    hosts: dict[Value, Value]  # values without a slot, and what they are read off
    pins: dict[Value, tuple[Value, int]]  # values that are true for one member of another only
    twins: Twins
    summed: frozenset[Sum]  # sums that neurons make although a look could do without
    width: int

    @property
    def layers(self) -> int:
        return layers(self.times)

    @property
    def declaration(self) -> Declaration:
        codes = {v: self.codes[v] for v in self.slots}
        same = {v: v for v in self.program.values}
        return Declaration(self.program, same, codes, self.times, self.slots, self.room)

    def made(self, time: int) -> list[Value]:
        return [v for v, t in self.times.items() if t == time]


def plan(program: Program, fine: frozenset[str] = frozenset()) -> Plan:
    """`fine`: names of values that are told apart more finely than size alone asks for."""
    codes, twins, made = encoded(program, fine)
    tell_apart([*program.values, *twins.values()])
    times = schedule(program, made) | dict.fromkeys(twins.values(), 0)
    hosts = hosted(program, codes)
    pins = pinned(program, hosts)
    times = {v: t for v, t in times.items() if v not in hosts and v not in pins}
    slots, room, carried, at = {}, {}, {}, 3
    for v in times:
        slots[v] = slice(at, at + codes[v].shape[1])
        at = slots[v].stop
    last = 2 * layers(times)
    for v in times:
        if isinstance(v, Tally):
            carried[v] = carry(v)
            n = len(carried[v].begin)
            over = None if carried[v].own else v.terms[0][0]
            dead = over is not None and over in slots and not _read_later(over, v, times)
            if times[v] == last and dead and slots[over].stop - slots[over].start >= n + 1:  # type: ignore[index]
                room[v] = slice(slots[over].start, slots[over].start + n + 1)  # type: ignore[index]
            else:
                room[v] = slice(at, at + n + 1)
                at += n + 1
    return Plan(program, codes, times, slots, room, carried, hosts, pins, twins, made, at)


def encoded(
    program: Program, fine: frozenset[str] = frozenset()
) -> tuple[Codes, Twins, frozenset[Sum]]:
    """The codes, the twins among what they are of, and the sums that neurons make although a look
    could do without: where it could not tell what is nothing.
    """
    made: frozenset[Sum] = frozenset()
    while True:
        encoder = Encoder(program, fine, made)
        try:
            return encoder.codes(), encoder.twins, made
        except Unsayable as e:
            left = {t.here for t in encoder.addresses.values()} & {*e.sums}
            if not left:
                raise
            made |= {next(s for s in e.sums if s in left)}


def hosted(program: Program, codes: Codes) -> dict[Value, Value]:
    """Functions of the token (or the position) that can be read off another such value: off one
    that has a simplex for a code, any function can.
    """
    simple = [v for v in program.values if isinstance(v, (Token, Position))]
    hosts = [v for v in simple if codes[v].shape[1] == len(v) > 2]
    named = {
        side
        for v in program.values
        if isinstance(v, (Look, Tally))
        for t in v.tests
        if t.here is not None
        for side in t.args
    } | {a for v in program.values if isinstance(v, Map) for a in v.args}
    partial = {a for v in program.values if isinstance(v, Sum) and v.partial for a in v.args}
    named |= {a for a in partial if np.isnan(a.numbers).any()}
    out: dict[Value, Value] = {}
    for v in simple:
        for w in hosts:
            free = v not in named and v is not program.emit and v not in out
            if free and w is not v and w not in out and follows(v, w) is not None:
                out[v] = w
    return out


def pinned(program: Program, hosts: dict[Value, Value]) -> dict[Value, tuple[Value, int]]:
    """Conditions on the token there that hold for one member of a value in the stream: that member
    is looked for, and the condition needs no slot.
    """
    flags: dict[Value, bool] = {}
    for v in program.values:
        tests = v.tests if isinstance(v, (Look, Tally)) else ()
        alone = {t.there for t in tests if t.here is None and t.table.sum() == 1 and t.there}
        others = {a for a in v.args if a not in alone}
        others |= {side for t in tests if t.here is not None for side in t.args}
        if isinstance(v, Look):
            others |= {v.value, *(o for _, o in v.order)}
        if isinstance(v, Tally):
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
            members = follows(flag, w)
            if members is not None:
                true = flag.index.get(True, -1)
                at = np.flatnonzero(members == true)
                if len(at) == 1:
                    out[flag] = (w, int(at[0]))
                    break
    return out


def follows(v: Value, w: Value) -> Any:
    """Which member v is for each member of w, if that says it; else None."""
    if type(v) is not type(w) or not isinstance(v, (Token, Position)):
        return None
    if len(set(zip(v.table.tolist(), w.table.tolist(), strict=True))) > len(w):  # type: ignore
        return None
    out = np.zeros(len(w), int)
    out[w.table] = v.table  # type: ignore[attr-defined]
    return out


def _read_later(over: Value, by: Tally, times: Times) -> bool:
    """Whether a value is read by neurons of the layer in which a tally is made."""
    mlp = [v for v, t in times.items() if t == times[by] and not isinstance(v, (Tally, Look))]
    shared = [
        v for v, t in times.items() if isinstance(v, Tally) and t == times[by] and v is not by
    ]
    return any(over in v.args for v in mlp) or any(
        v.terms and v.terms[0][0] is over for v in shared
    )


def carry(v: Tally) -> Carried:
    """The averages that a tally needs: one for each kind of row among its weights, and the weight
    of the beginning, unless each test has an average of its own, where the beginning can be what
    it is compared with.
    """
    J = len(v.cut)
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
    single = len(rows) == J and not v.each.any()
    begin = -v.cut / scale if single else np.append(np.zeros(len(rows)), 1.0)
    if not single:
        rows = [*rows, np.zeros(weights.shape[1])]
    stacked = np.stack(rows) if rows else np.zeros((0, weights.shape[1]))
    return Carried(stacked, begin, of, scale, not single)
