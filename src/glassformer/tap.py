"""Looking inside: which activations have names, and taps that read or replace them.

A tap is a function (name, value) -> value. `on` makes one from a table and knows a typo when it sees
one; `record` keeps every named activation of a run.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from .arrays import Array
from .errors import GlassformerError
from .model import Config, Model, Tap, forward
from .shapes import required, shapes


def hook_names(model: Model | Config) -> list[str]:
    """The names of all activations that a tap sees, in order: found by running a tiny twin of the model."""
    config = model if isinstance(model, Config) else model.config
    present = set(required(config)) if isinstance(model, Config) else set(model.weights)
    tiny = replace(config, d_vocab=1, n_ctx=1, d_model=2, n_heads=1, d_head=2, d_mlp=min(config.d_mlp, 1))
    sizes = shapes(tiny)
    names: list[str] = []

    def note(name: str, value: Array) -> Array:
        names.append(name)
        return value

    with np.errstate(all="ignore"):  # a tiny row of equal numbers has no variance
        forward(tiny, {n: np.ones(sizes[n]) for n in present}, np.zeros((1, 1), dtype=int), note)
    return names


def on(model: Model, table: Mapping[str, Callable[[Array], Array]]) -> Tap:
    """A tap that replaces each named activation by a function of it. Unknown names are errors."""
    check_names(model, table)
    return lambda name, value: table[name](value) if name in table else value


def check_names(model: Model, names: Iterable[str]) -> None:
    """Raises if a name is not an activation of the model, and says which names come near."""
    known = hook_names(model)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3, 0.4) or known[:3]
            raise GlassformerError(f"hook {name!r} — no such activation in this model; near: {', '.join(near)}")


class Record(dict[str, Array]):
    """A tap that keeps every activation it sees."""

    def __call__(self, name: str, value: Array) -> Array:
        self[name] = value
        return value


def record(model: Model, tokens: Array, last: int | None = None) -> tuple[Array, Record]:
    """Logits, and every named activation of the run."""
    cache = Record()
    return model(tokens, tap=cache, last=last), cache
