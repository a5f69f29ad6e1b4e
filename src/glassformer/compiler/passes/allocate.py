"""Allocate slots of the residual stream.

The first three dimensions are the base, which has one direction that is constant after <bos> and
one direction that is nonzero only at <bos>. They are followed by a slot for each value, and by
slots for the averages that heads write for neurons of the same layer. In the last layer, averages
may overwrite a value that no later component reads.
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
# (query value, key value) of an equality test -> copy of the key value used only by this test
ValueCopies = dict[tuple[Value, Value], Value]


@dataclass
class CountReadout:
    """The averages that a uniform head writes for the neurons of a count.

    Test j passes where scale[j]·average[j] + position_weights[j]·(1 − b) − thresholds[j]·b > 0, for
    the weight b of <bos>.
    """

    weights: Any  # [n, members of all terms]
    bos: Any  # [n]: contribution of <bos> to each average
    average_of_test: Any  # [J]: index of the average that test j reads
    scale_of_test: Any  # [J]: factor of this average
    has_bos_average: bool  # whether the last average is the weight of <bos>


@dataclass
class Plan:
    """The codes, sublayers and slots of all values, chosen before any weights are computed."""

    program: Program
    codes: Codes
    sublayers: Sublayers
    slots: dict[Value, slice]
    average_slots: dict[ThresholdCount, slice]
    readouts: dict[ThresholdCount, CountReadout]
    hosts: dict[Value, Value]  # value without a slot -> value whose slot determines it
    indicator_of: dict[
        Value, tuple[Value, int]
    ]  # flag -> (value, its only member for which the flag is True)
    copies: ValueCopies
    materialized: frozenset[Sum]  # position sums that neurons compute instead of a lookup
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
        return [v for v, s in self.sublayers.items() if s == sublayer]


def make_plan(program: Program, finely_coded: frozenset[str] = frozenset()) -> Plan:
    """Choose codes, sublayers and slots; values named in `finely_coded` get larger gaps."""
    codes, copies, materialized = encode_values(program, finely_coded)
    make_names_unique([*program.values, *copies.values()])
    hosts = find_hosts(program, codes)
    indicator_of = find_indicators(program, hosts)
    sublayers = schedule(program, materialized) | dict.fromkeys(copies.values(), 0)
    sublayers = {v: s for v, s in sublayers.items() if v not in hosts and v not in indicator_of}
    slots, average_slots, readouts, end = {}, {}, {}, BASE_DIMS.stop
    for v in sublayers:
        slots[v] = slice(end, end + codes[v].shape[1])
        end = slots[v].stop
    last = 2 * count_layers(sublayers)
    for v in sublayers:
        if not isinstance(v, ThresholdCount):
            continue
        readouts[v] = make_readout(v)
        width, start = len(readouts[v].bos) + 1, end
        if sublayers[v] == last and not readouts[v].has_bos_average:
            x = v.terms[0][0]
            wide = x in slots and slots[x].stop - slots[x].start >= width
            if wide and not _read_by_neurons(x, v, sublayers):
                start = slots[x].start
        average_slots[v] = slice(start, start + width)
        end = max(end, start + width)
    return Plan(
        program, codes, sublayers, slots, average_slots, readouts, hosts, indicator_of, copies,
        materialized, end,
    )  # fmt: skip


def encode_values(
    program: Program, finely_coded: frozenset[str] = frozenset()
) -> tuple[Codes, ValueCopies, frozenset[Sum]]:
    """Return codes, copies of values, and the position sums that neurons must compute.

    A sum is added to the third result if `nothing` among its terms has no suitable number
    otherwise.
    """
    materialized: frozenset[Sum] = frozenset()
    while True:
        encoder = Encoder(program, finely_coded, materialized)
        try:
            return encoder.make_codes(), encoder.copies, materialized
        except UnencodableSum as e:
            looked_up = {t.query for t in encoder.position_lookups.values()}
            chosen = [s for s in e.sums if s in looked_up][:1]
            if not chosen:
                raise
            materialized |= {*chosen}


def find_hosts(program: Program, codes: Codes) -> dict[Value, Value]:
    """Map functions of the token or position to a value of the same kind that determines them.

    Any function can be read linearly from a value with a simplex code, so it needs no slot.
    """
    values = program.values
    simple = [v for v in values if isinstance(v, (Token, Position))]
    hosts = [v for v in simple if codes[v].shape[1] == len(v) > 2]
    selectors = [v for v in values if isinstance(v, (Select, ThresholdCount))]
    need_slot = {x for v in selectors for t in v.predicates if t.query is not None for x in t.args}
    need_slot |= {a for v in values if isinstance(v, Map) for a in v.args} | {program.emit}
    partial = {a for v in values if isinstance(v, Sum) and v.has_non_numbers for a in v.args}
    need_slot |= {a for a in partial if np.isnan(a.numeric_domain).any()}
    out: dict[Value, Value] = {}
    for v in simple:
        if v in need_slot:
            continue
        for w in hosts:
            if w is not v and w not in out and member_given(v, w) is not None:
                out[v] = w
                break
    return out


def find_indicators(program: Program, hosts: dict[Value, Value]) -> dict[Value, tuple[Value, int]]:
    """Map flags that only select keys to the one member of another value that sets them.

    A head can match this member directly, so the flag needs no slot.
    """
    flags, others = set[Value](), set[Value]()
    for v in program.values:
        tests = v.predicates if isinstance(v, (Select, ThresholdCount)) else ()
        alone = {t.key for t in tests if t.query is None and t.table.sum() == 1 and t.key}
        flags |= alone
        others |= {a for a in v.args if a not in alone}
        others |= {x for t in tests if t.query is not None for x in t.args}
        if isinstance(v, Select):
            others |= {v.value, *(o for _, o in v.sort_keys)}
        if isinstance(v, ThresholdCount):
            others |= {x for x, _ in v.terms}
    flags -= others
    out: dict[Value, tuple[Value, int]] = {}
    for flag in flags:
        if flag in hosts or len(flag) != 2 or not isinstance(flag, (Token, Position)):
            continue
        for w in program.values:
            if w in hosts or w in flags or len(w) < 3:
                continue
            members = member_given(flag, w)
            holds: Any = (
                [] if members is None else np.flatnonzero(members == flag.index.get(True, -1))
            )
            if len(holds) == 1:
                out[flag] = (w, int(holds[0]))
                break
    return out


def member_given(v: Value, w: Value) -> Any:
    """Return the member of v for each member of w, or None if v is not a function of w."""
    if type(v) is not type(w) or not isinstance(v, (Token, Position)):
        return None
    assert isinstance(w, (Token, Position))
    if len(set(zip(v.table.tolist(), w.table.tolist(), strict=True))) > len(w):
        return None
    out = np.zeros(len(w), int)
    out[w.table] = v.table
    return out


def _read_by_neurons(value: Value, count: ThresholdCount, sublayers: Sublayers) -> bool:
    """Return whether other neurons in the layer of a count read `value`."""
    for v, s in sublayers.items():
        if s == sublayers[count] and v is not count:
            read = [x for x, _ in v.terms[:1]] if isinstance(v, ThresholdCount) else v.args
            if value in read:
                return True
    return False


def make_readout(v: ThresholdCount) -> CountReadout:
    """Choose the averages of a count: one for each set of parallel weight rows.

    The weight of <bos> is another average, unless each test has a separate average, to which <bos>
    can contribute the threshold.
    """
    J = len(v.thresholds)
    weights = np.concatenate([w for _, w in v.terms], 1) if v.terms else np.zeros((J, 0))
    rows: list[Any] = []
    average_of, scale = np.zeros(J, int), np.zeros(J)
    for j, row in enumerate(weights):
        if not row.any():
            continue
        for i, other in enumerate(rows):
            factor = row @ other / (other @ other)
            if np.array_equal(row, factor * other):
                average_of[j], scale[j] = i, factor
                break
        else:
            average_of[j], scale[j] = len(rows), 1.0
            rows.append(row.astype(float))
    if len(rows) == J and not v.position_weights.any():
        stacked = np.array(rows).reshape(J, weights.shape[1])
        return CountReadout(stacked, -v.thresholds / scale, average_of, scale, False)
    bos = np.append(np.zeros(len(rows)), 1.0)
    return CountReadout(np.stack([*rows, np.zeros(weights.shape[1])]), bos, average_of, scale, True)
