"""Helpers for tests of compiled models: sources, texts, and comparison with the interpreter."""

import itertools
from dataclasses import replace
from functools import cache

import numpy as np

from glassformer import GlassformerError
from glassformer.compiler import compile, emitted, library, recheck
from glassformer.compiler.driver import PROVENANCE_KEY

SMALL = {  # sources with few texts, so that tests can run all of them
    "reverse": (
        'tokens = ["a", "b", "|"]\nlength = 5\nbar = latest(position, token == "|")\n'
        'emit = only(token, position == 2 * here.bar - here.position - 1, default="|")'
    ),
    "often": "tokens = [0, 1, 2, 3, 4]\nlength = 4\nemit = count(token == here.token)",
    "most": (
        "tokens = [0, 1, 2]\nlength = 5\noften = count(token == here.token)\n"
        "emit = best(token, most=(often, position), default=0)"
    ),
    "brackets": (
        'tokens = [*"()PTF"]\nlength = 4\ndepth = count(token == "(") - count(token == ")")\n'
        'emit = "F" if any(depth < 0) else "T" if depth == 0 else "P"'
    ),
    "after": (
        "tokens = [0, 1, 2]\nlength = 5\nbefore = only(token, position == here.position - 1)\n"
        "emit = latest(token, before == here.token, default=0)"
    ),
    "table": (
        "tokens = [0, 1, 2]\nlength = 5\nbefore = only(token, position == here.position - 1, "
        "default=0)\nfirst = first(token, default=0)\nemit = (2 * token * before + first) % 3"
    )
    .replace("first =", "start =")
    .replace("+ first)", "+ start)"),
    "third": "tokens = [0, 1, 2]\nlength = 5\nemit = nth(token, 2, default=0)",
    "share": (
        'tokens = ["a", "b", "c"]\nlength = 5\nemit = "a" if share(token == "b") > 1/2 else "c"'
    ),
}


@cache
def small(name, dtype="float64", target=""):
    return compile(SMALL[name], name, dtype=dtype, target=target)


@cache
def built(name, dtype="float64", target="", **options):
    text = library.source_paths()[name].read_text("utf-8")
    return compile(text, name, options=options, dtype=dtype, target=target)


def texts(program, many, rng):
    """Return texts of full length: random, constant, alternating, sorted, and of two tokens."""
    V, T = len(program.tokens), program.length
    rows = rng.integers(V, size=(max(many, 1), T))
    part = max(1, many // 12)
    a, b = rng.integers(V, size=(2, part, 1))
    rows[:part] = a
    rows[part : 2 * part] = np.where(np.arange(T) % 2, a, b)[: len(rows[part : 2 * part])]
    rows[2 * part : 3 * part].sort(1)
    rows[3 * part : 4 * part] = -np.sort(-rows[3 * part : 4 * part], 1)
    ends = np.where((np.arange(T) == 0) | (np.arange(T) == T - 1), a, b)
    rows[4 * part : 5 * part] = ends[: len(rows[4 * part : 5 * part])]
    rows[5 * part : 7 * part] %= 2
    for row in rows[7 * part : 9 * part]:  # a token that occurs once
        row[rng.integers(T)] = rng.choice([V - 1, V - 2]) if V > 1 else 0
    return rows


@cache
def every(V, T):
    return np.array(list(itertools.product(range(V), repeat=T)))


def said(model, tokens):
    """Return the index of the token that a model predicts at each position; -2 for ties and NaN."""
    with np.errstate(all="ignore"):
        logits = model.logits(np.insert(tokens + 1, 0, 0, axis=1))[:, 1:]
    best = logits.argmax(-1)
    top = np.take_along_axis(logits, best[..., None], -1)
    return np.where((logits >= top).sum(-1) == 1, best - 1, -2)


def right(model, program, tokens):
    return bool((said(model, tokens) == emitted(program, tokens)).all())


def changed(model, weights=None, entry=None, **config):
    """Return a model with other weights, another declaration or config."""
    provenance = {
        **model.provenance,
        PROVENANCE_KEY: {**model.provenance[PROVENANCE_KEY], **(entry or {})},
    }
    return replace(
        model, weights={**model.weights, **(weights or {})}, provenance=provenance,
        config=replace(model.config, **config),
    )  # fmt: skip


def proved(model):
    """Whether the certificate of a model can be rechecked."""
    try:
        recheck(model)
    except GlassformerError:
        return False
    return True
