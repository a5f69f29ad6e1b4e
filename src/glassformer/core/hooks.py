"""Hooks: functions (name, value) -> value that read or replace activations.

`replace_activations` creates a hook from a dict of functions; `record` stores all activations of a
run.
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
    """Return the names of all activations in order, by running a tiny model of the same kind."""
    config = model if isinstance(model, Config) else model.config
    present = set(required_shapes(config)) if isinstance(model, Config) else set(model.weights)
    small: dict[str, Any] = {"d_vocab": 1, "n_ctx": 1, "d_model": 2, "n_heads": 1, "d_head": 2}
    tiny = replace(config, **small, d_mlp=min(config.d_mlp, 1))
    weights = {n: np.ones(array_shapes(tiny)[n]) for n in present}
    cache = ActivationCache()
    with np.errstate(all="ignore"):  # a norm of equal numbers divides by 0
        forward(tiny, weights, np.zeros((1, 1), dtype=int), cache)
    return list(cache)


def replace_activations(model: Model, functions: Mapping[str, Callable[[Array], Array]]) -> Hook:
    """Return a hook that applies functions to activations, given by activation name."""
    if not isinstance(functions, Mapping) or not all(map(callable, functions.values())):
        expected = "expected a table of names and functions"
        raise GlassformerError(f"hook — {expected}, got {short_repr(functions)}")
    check_hook_names(model, functions)
    return lambda name, value: functions[name](value) if name in functions else value


def check_hook_names(model: Model, names: Iterable[str]) -> None:
    """Raise an error with similar names if a name is not an activation of the model."""
    known = hook_names(model)
    for name in names:
        if name not in known:
            similar = difflib.get_close_matches(name, known, 3, 0.4) or known[:3]
            hint = f"no such activation; similar: {', '.join(similar)}"
            raise GlassformerError(f"hook {name!r} — {hint}", code="not_found")


class ActivationCache(Displayable, dict[str, Array]):
    """Hook that stores all activations of a run.

    Keys are full names (`cache["blocks.0.attn.hook_pattern"]`) or short names: `cache["embed"]`,
    `cache["pattern", 0]`, `cache["scale", 0, "ln1"]`. A cache with a model also accepts component
    names: `cache["head 0.1"]` is an array [B,T,K].
    """

    def __init__(self, model: Model | None = None, endings: str | tuple[str, ...] = "") -> None:
        super().__init__()
        self.model, self.endings = model, endings
        self.tokens: Any = None  # input of the run, if known

    def __getitem__(self, key: Any) -> Array:
        try:
            return super().__getitem__(key)
        except TypeError:  # unhashable
            expected = "expected a name, or a name and a layer"
            raise GlassformerError(f"activation {short_repr(key)} — {expected}") from None

    def __missing__(self, key: Any) -> Array:
        if self.model and isinstance(key, str) and " " in key:
            component = components.find_component(self.model, key)
            if len(component.hooks) == 1:
                return self[component.hooks[0]][component.index_in_activation()]
            expected = f"the name of one of its activations, such as {component.hooks[0]}"
            raise GlassformerError(f"activation {key!r} — expected {expected}")
        short, *place = key if isinstance(key, tuple) and key else (key,)
        layer = f"blocks.{place[0]}." if place else ""
        in_layer = [n for n in self if n.endswith(f"hook_{short}") and n.startswith(layer)]
        in_layer = [n for n in in_layer if place or "." not in n]
        matches = [n for n in in_layer if len(place) < 2 or n.startswith(f"{layer}{place[1]}.")]
        if len(matches) == 1:
            return self[matches[0]]
        known = [n.rpartition("hook_")[2] for n in self]
        similar = in_layer or difflib.get_close_matches(str(short), known, 3, 0.4)
        problem = f"{'several' if matches else 'none'} of that name; similar: {similar[:3]}"
        if short in known and not place:
            problem = f'each layer has one: cache["{short}", 0]'
        raise GlassformerError(f"activation {short_repr(key)} — {problem}")

    def __repr__(self) -> str:
        names = ", ".join(list(self)[:3])
        return f"<ActivationCache: {len(self)} activations, {names}, …>"

    def __call__(self, name: str, value: Array) -> Array:
        if name.endswith(self.endings):
            self[name] = value
        return value


def record(
    model: Model, tokens: Array, last: int | None = None, endings: str | tuple[str, ...] = ""
) -> tuple[Array, ActivationCache]:
    """Run the model on tokens; return the logits and the activations whose names end in `endings`.

    By default, the cache has all activations.
    """
    cache = ActivationCache(model, endings)
    cache.tokens = tokens
    return model(tokens, hook=cache, last=last), cache
