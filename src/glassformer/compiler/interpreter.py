"""The interpreter: the element of every value at every position of a batch of input sequences.

This module defines the meaning of a program. Tests compare the compiler with it; certificates prove
agreement.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..utils.errors import GlassformerError
from .ir import Ints, Map, Position, Predicate, Program, Select, Sum, ThresholdCount, Token, Value
from .literals import format_element

Trace = dict[Value, Ints]  # indices into each value's domain, [B,T]


def trace(program: Program, tokens: Ints) -> Trace:
    """Interpret a batch of input sequences.

    Args:
        program: The program.
        tokens: Indices into the program's tokens, [B,T].

    Returns:
        For every value, in order of evaluation, the indices of its elements [B,T].

    Raises:
        GlassformerError: For an invalid shape or token index.
    """
    tokens = np.asarray(tokens)
    if tokens.ndim != 2 or not 1 <= tokens.shape[1] <= program.length:
        got = f"{tokens.shape[-1]:,}" if tokens.ndim == 2 else f"an array of shape {tokens.shape}"
        raise GlassformerError(f"text — expected 1 to {program.length} tokens, got {got}")
    largest = len(program.tokens) - 1
    if tokens.size and not 0 <= tokens.min() <= tokens.max() <= largest:
        got = f"{tokens.min()} to {tokens.max()}"
        raise GlassformerError(f"text — expected tokens from 0 to {largest}, got {got}")
    out: Trace = {}
    for value in program.values:
        out[value] = evaluate_value(value, tokens, out)
    return out


def evaluate_value(value: Value, tokens: Ints, out: Trace) -> Ints:
    """Return the element indices [B,T] of a value, given its arguments in `out`."""
    indices: Ints = _EVALUATORS[type(value)](value, tokens, out)
    return indices


def emitted(program: Program, tokens: Ints) -> Ints:
    """Return the tokens that a program emits after each position of a batch of input sequences.

    Args:
        program: The program.
        tokens: Indices into the program's tokens, [B,T].

    Returns:
        Indices of the emitted tokens, [B,T].
    """
    number = np.array([program.tokens.index(d) for d in program.emit.domain])
    return number[trace(program, tokens)[program.emit]]


def run(program: Program, tokens: Sequence[int]) -> list[int]:
    """Generate tokens up to the end token or the maximum sequence length.

    Args:
        program: The program. Without an end token, it writes one token.
        tokens: Token indices of the input sequence.

    Returns:
        Indices of the generated tokens.
    """
    text, output = [int(t) for t in tokens], []
    while True:
        output.append(int(emitted(program, np.array([text]))[0, -1]))
        if program.end is None or program.tokens[output[-1]] == program.end:
            return output
        text.append(output[-1])
        if len(text) > program.length:
            return output


def _token(value: Token, tokens: Ints, out: Trace) -> Ints:
    return value.table[tokens]


def _position(value: Position, tokens: Ints, out: Trace) -> Ints:
    return np.broadcast_to(value.table[: tokens.shape[1]], tokens.shape)


def _map(value: Map, tokens: Ints, out: Trace) -> Ints:
    indices = value.table[tuple(out[a] for a in value.args)]
    if (indices < 0).any():
        raise GlassformerError(f"{value.name} — a combination without a table entry occurs")
    return np.broadcast_to(indices, tokens.shape)


def _sum(value: Sum, tokens: Ints, out: Trace) -> Ints:
    return value.result_indices([out[a] for a in value.args])


def matching_positions(predicates: Sequence[Predicate], tokens: Ints, out: Trace) -> Any:
    """Return the mask [B, query, key] of matching positions; keys after the query never match."""
    B, T = tokens.shape
    matches = np.broadcast_to(np.tril(np.ones((T, T), bool)), (B, T, T))
    zero = np.zeros((B, T), int)
    for p in predicates:
        query, key = (zero if v is None else out[v] for v in (p.query, p.key))
        matches = matches & p.table[query[:, :, None], key[:, None, :]]
    return matches


def _select(value: Select, tokens: Ints, out: Trace) -> Ints:
    matches = matching_positions(value.predicates, tokens, out)  # B T S
    priority = np.broadcast_to(value.priority(out), tokens.shape)[:, None, :]
    priority = np.where(matches, priority, -1)
    candidates = np.array([value.index[d] for d in value.value.domain])[out[value.value]]  # B S
    chosen = matches & (priority == priority.max(-1, keepdims=True))
    low = np.where(chosen, candidates[:, None], len(value)).min(-1)
    high = np.where(chosen, candidates[:, None], -1).max(-1)
    if (high > low).any():
        b, t = (int(i[0]) for i in np.nonzero(high > low))
        two = " and ".join(format_element(value.domain[i]) for i in (low[b, t], high[b, t]))
        raise GlassformerError(f"{value.name} — two equally good positions hold {two}; order them")
    selected = np.take_along_axis(candidates, priority.argmax(-1), 1)
    return np.where(matches.any(-1), selected, value.index[value.default])


def _threshold_count(value: ThresholdCount, tokens: Ints, out: Trace) -> Ints:
    matches = matching_positions(value.predicates, tokens, out) if value.predicates else None
    passed = np.zeros(tokens.shape, int)
    for js in _threshold_groups(value):
        addend = np.full(tokens.shape, value.position_weights[js[0]])
        for v, weights in value.terms:
            addend = addend + weights[js[0]][out[v]]
        if matches is None:
            total = addend.cumsum(-1)
        else:
            total = (matches * addend[:, None, :]).sum(-1)
        passed += (total[..., None] > value.thresholds[js]).sum(-1)
    return value.results[passed]


def _threshold_groups(value: ThresholdCount) -> list[list[int]]:
    """Group the thresholds that are compared with the same sum."""
    groups: dict[bytes, list[int]] = {}
    for j, weight in enumerate(value.position_weights):
        key = weight.tobytes() + b"".join(w[j].tobytes() for _, w in value.terms)
        groups.setdefault(key, []).append(j)
    return list(groups.values())


_EVALUATORS: dict[type[Value], Any] = {
    Token: _token, Position: _position, Map: _map, Sum: _sum, Select: _select,
    ThresholdCount: _threshold_count,
}  # fmt: skip
