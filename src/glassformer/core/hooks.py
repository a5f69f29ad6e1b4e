"""Hooks: functions (name, value) -> value that read or replace activations.

`replace_activations` makes one from a dict of functions; `record` keeps all activations of a run.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..utils.errors import GlassformerError, short_repr
from ..utils.results import Displayable
from . import components
from .backend import Array
from .model import Config, Hook, Model, forward
from .weight_shapes import array_shapes, required_shapes


def hook_names(model: Model | Config) -> list[str]:
    """Return the names of all activations in order, from a run of a tiny model of the same kind."""
    config = model if isinstance(model, Config) else model.config
    present = set(required_shapes(config)) if isinstance(model, Config) else set(model.weights)
    small: dict[str, Any] = {"d_vocab": 1, "n_ctx": 1, "d_model": 2, "n_heads": 1, "d_head": 2}
    tiny = replace(config, **small, d_mlp=min(config.d_mlp, 1))
    weights = {n: np.ones(array_shapes(tiny)[n]) for n in present}
    seen = ActivationCache()
    with np.errstate(all="ignore"):  # a norm of equal numbers divides by 0
        forward(tiny, weights, np.zeros((1, 1), dtype=int), seen)
    return list(seen)


def replace_activations(model: Model, functions: Mapping[str, Callable[[Array], Array]]) -> Hook:
    """Return a hook that applies functions to the activations they are named for."""
    if not isinstance(functions, Mapping) or not all(map(callable, functions.values())):
        raise GlassformerError(
            f"on — expected a table of names and functions, got {short_repr(functions)}"
        )
    check_hook_names(model, functions)
    return lambda name, value: functions[name](value) if name in functions else value


def check_hook_names(model: Model, names: Iterable[str]) -> None:
    """Raise an error with similar names if a name is not an activation of the model."""
    known = hook_names(model)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3, 0.4) or known[:3]
            none = f"no such activation in this model; near: {', '.join(near)}"
            raise GlassformerError(f"hook {name!r} — {none}", code="not_found")


class ActivationCache(Displayable, dict[str, Array]):
    """A hook that keeps all activations.

    Keys are full names (`cache["blocks.0.attn.hook_pattern"]`) or short ones: `cache["embed"]`,
    `cache["pattern", 0]`, `cache["scale", 0, "ln1"]`. With a model, names of components work too:
    `cache["head 0.1"]` is [B,T,K].
    """

    def __init__(self, model: Model | None = None) -> None:
        super().__init__()
        self.model = model
        self.tokens: Any = None  # the input, if known

    def __getitem__(self, key: Any) -> Array:
        try:
            return super().__getitem__(key)
        except TypeError:  # unhashable
            wanted = "expected a name, or a name and a layer"
            raise GlassformerError(f"activation {short_repr(key)} — {wanted}") from None

    def __missing__(self, key: Any) -> Array:
        if self.model and isinstance(key, str) and " " in key:
            part = components.find_component(self.model, key)
            if len(part.hooks) == 1:
                return self[part.hooks[0]][part.index_in_activation()]
            several = f"in {len(part.hooks)} activations: {', '.join(part.hooks[:3])}, …"
            raise GlassformerError(f"activation {key!r} — {several}")
        short, *where = key if isinstance(key, tuple) and key else (key,)
        layer = f"blocks.{where[0]}." if where else ""
        inside = [n for n in self if n.endswith(f"hook_{short}") and n.startswith(layer)]
        inside = [n for n in inside if where or "." not in n]
        found = [n for n in inside if len(where) < 2 or n.startswith(f"{layer}{where[1]}.")]
        if len(found) == 1:
            return self[found[0]]
        known = [n.rpartition("hook_")[2] for n in self]
        near = inside or difflib.get_close_matches(str(short), known, 3, 0.4)
        several = f"{'several' if found else 'none'} of that name; near: {near[:3]}"
        if short in known and not where:  # in the blocks
            several = f'each layer has one: cache["{short}", 0]'
        raise GlassformerError(f"activation {short_repr(key)} — {several}")

    def __repr__(self) -> str:
        return f"<Record: {len(self)} activations, {', '.join(list(self)[:3])}, …>"

    def __call__(self, name: str, value: Array) -> Array:
        self[name] = value
        return value


def record(model: Model, tokens: Array, last: int | None = None) -> tuple[Array, ActivationCache]:
    """Return the logits and all activations of a run."""
    cache = ActivationCache(model)
    cache.tokens = tokens
    return model(tokens, hook=cache, last=last), cache
