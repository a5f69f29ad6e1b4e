"""What a program means: every value at every position of some texts.

This file is the definition. The compiler is held to it by tests, and the certificate by proof.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..utils.errors import GlassformerError
from .ir import Ints, Map, Position, Predicate, Program, Select, Sum, ThresholdCount, Token, Value
from .literals import format_element

Trace = dict[Value, Ints]  # indices into each value's domain, [B,T]


def trace(program: Program, tokens: Ints) -> Trace:
    """tokens [B,T], numbers of the program's tokens -> {value: index of its member, [B,T]}."""
    tokens = np.asarray(tokens)
    most = len(program.tokens)
    if tokens.ndim != 2 or not 1 <= tokens.shape[1] <= program.length:
        got = f"{tokens.shape[-1]:,}" if tokens.ndim == 2 else f"an array of shape {tokens.shape}"
        raise GlassformerError(f"text — expected 1 to {program.length} tokens, got {got}")
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < most:
        raise GlassformerError(
            f"text — expected tokens from 0 to {most - 1}, got {tokens.min()} to {tokens.max()}"
        )
    out: Trace = {}
    for value in program.values:
        out[value] = evaluate_value(value, tokens, out)
    return out


def evaluate_value(value: Value, tokens: Ints, out: Trace) -> Ints:
    """A value at all positions, where those that it is made of are known."""
    found: Ints = _EVALUATORS[type(value)](value, tokens, out)
    return found


def emitted(program: Program, tokens: Ints) -> Ints:
    """The number of the token that the program emits after each position, [B,T]."""
    number = np.array([program.tokens.index(d) for d in program.emit.domain])
    return number[trace(program, tokens)[program.emit]]


def run(program: Program, tokens: Sequence[int]) -> list[int]:
    """What the program writes after a text: up to the end token, or as far as a text may be long;
    one token where there is no end token.
    """
    text, said = [int(t) for t in tokens], []
    while True:
        said.append(int(emitted(program, np.array([text]))[0, -1]))
        if program.end is None or program.tokens[said[-1]] == program.end:
            return said
        text.append(said[-1])
        if len(text) > program.length:
            return said


def _token(value: Token, tokens: Ints, out: Trace) -> Ints:
    return value.table[tokens]


def _position(value: Position, tokens: Ints, out: Trace) -> Ints:
    return np.broadcast_to(value.table[: tokens.shape[1]], tokens.shape)


def _map(value: Map, tokens: Ints, out: Trace) -> Ints:
    found = value.table[tuple(out[a] for a in value.args)]
    if (found < 0).any():
        raise GlassformerError(f"{value.name} — a combination that was said never to be")
    return np.broadcast_to(found, tokens.shape)


def _sum(value: Sum, tokens: Ints, out: Trace) -> Ints:
    return value.result_indices([out[a] for a in value.args])


def matching_positions(tests: Sequence[Predicate], tokens: Ints, out: Trace) -> Any:
    """Which positions [B, here, there] a look may see and finds: never those that are to come."""
    B, T = tokens.shape
    found = np.broadcast_to(np.tril(np.ones((T, T), bool)), (B, T, T))
    zero = np.zeros((B, T), int)
    for test in tests:
        here, there = (zero if v is None else out[v] for v in (test.query, test.key))
        found = found & test.table[here[:, :, None], there[:, None, :]]
    return found


def _select(value: Select, tokens: Ints, out: Trace) -> Ints:
    found = matching_positions(value.predicates, tokens, out)  # B T S
    good = np.broadcast_to(value.priority(out), tokens.shape)[:, None, :]
    there = np.array([value.index[d] for d in value.value.domain])[out[value.value]]  # B S
    best = np.where(found, good, -1).argmax(-1)
    chosen = found & (good == np.where(found, good, -1).max(-1, keepdims=True))
    low = np.where(chosen, there[:, None], len(value)).min(-1)
    high = np.where(chosen, there[:, None], -1).max(-1)
    if (high > low).any():
        b, t = (int(i[0]) for i in np.nonzero(high > low))
        two = " and ".join(format_element(value.domain[i]) for i in (low[b, t], high[b, t]))
        raise GlassformerError(
            f"{value.name} — two positions are equally good and hold {two}; order them"
        )
    member = np.take_along_axis(there, best, 1)
    return np.where(found.any(-1), member, value.index[value.default])


def _threshold_count(value: ThresholdCount, tokens: Ints, out: Trace) -> Ints:
    found = matching_positions(value.predicates, tokens, out) if value.predicates else None
    passed = np.zeros(tokens.shape, int)
    for each, cut, rows in _threshold_groups(value):
        one = np.full(tokens.shape, each)
        for (v, _), weights in zip(value.terms, rows, strict=True):
            one = one + weights[out[v]]
        total = one.cumsum(-1) if found is None else (found * one[:, None, :]).sum(-1)
        passed += (total[..., None] > cut).sum(-1)
    return value.results[passed]


def _threshold_groups(value: ThresholdCount) -> Any:
    """(each, cuts, weights) for every row of tests that are alike but for their cut."""
    groups: dict[bytes, list[int]] = {}
    for j in range(len(value.thresholds)):
        key = value.position_weights[j].tobytes() + b"".join(w[j].tobytes() for _, w in value.terms)
        groups.setdefault(key, []).append(j)
    for js in groups.values():
        yield (
            value.position_weights[js[0]],
            value.thresholds[js],
            [w[js[0]] for _, w in value.terms],
        )


_EVALUATORS: dict[type[Value], Any] = {
    Token: _token,
    Position: _position,
    Map: _map,
    Sum: _sum,
    Select: _select,
    ThresholdCount: _threshold_count,
}
