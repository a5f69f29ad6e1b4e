"""Names of a model's components, which all views print and accept.

    embed, pos_embed  token and position embeddings
    head 0.1          head 1 of layer 0, its output before W_O (hook_z)
    attention 0       the output of layer 0's attention, with its bias
    mlp 0             the output of layer 0's MLP
    neuron 0.17       neuron 17 of layer 0's MLP, after the activation function
    position 3        keys and values at position 3, in every layer
    slot carry        a named slot of the residual stream
    dims 4:8          dimensions 4 to 7 of the residual stream
    unembed           the map from the residual stream to the logits

`find_component` also accepts labels of heads and neurons and the older spellings head:0.1 and
MLP 0. Biases are not components.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..utils.errors import GlassformerError
from .model import POSITIONS, Model

# Kind -> name of its activation. {} is the layer; a second number indexes the axis after B and T.
HOOK_OF_KIND = {
    "embed": "hook_embed", "pos_embed": "hook_pos_embed", "head": "blocks.{}.attn.hook_z",
    "attention": "blocks.{}.hook_attn_out", "mlp": "blocks.{}.hook_mlp_out",
    "neuron": "blocks.{}.mlp.hook_post",
}  # fmt: skip
WHOLE_STREAM = "stream"  # the only slot of a model without named slots
NUMBER_PATTERN = "([0-9]{1,9})"
# "rest [4:8]" is the name in circuits/ of dimensions outside all slots
SPAN_PATTERNS = {
    "dims": f"{NUMBER_PATTERN}:{NUMBER_PATTERN}",
    "slot": rf"rest \[{NUMBER_PATTERN}:{NUMBER_PATTERN}\]",
}


@dataclass(frozen=True)
class Component:
    """Component of a model, with its activations and its index in them."""

    name: str
    kind: str
    hooks: tuple[str, ...] = ()
    index: tuple[Any, ...] = ()  # index in the axes after B and T
    position: int | None = None  # None for all positions

    def index_in_activation(self) -> tuple[Any, ...]:
        """Return the component's index in an activation [B,T,…]."""
        return (slice(None), slice(None) if self.position is None else self.position, *self.index)


# ── names ──────────────────────────────────────────────────────────────────────────────────────
def head_name(layer: int, index: int) -> str:
    return f"head {layer}.{index}"


def attention_name(layer: int) -> str:
    return f"attention {layer}"


def mlp_name(layer: int) -> str:
    return f"mlp {layer}"


def neuron_name(layer: int, index: int) -> str:
    return f"neuron {layer}.{index}"


def slot_name(name: str) -> str:
    return f"slot {name}"


def normalize_name(name: str) -> str:
    """Convert older spellings of a name, such as "head:0.1" to "head 0.1"."""
    kind, place = re.fullmatch(r"\s*([^\s:]*)[\s:]*(.*?)\s*", name, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{kind.lower()} {place}".strip()


def parse_name(name: str) -> tuple[str, tuple[int, ...]]:
    """Split a component name into kind and numbers: "head 0.1" -> ("head", (0, 1))."""
    kind, _, place = normalize_name(name).partition(" ")
    numbers = re.fullmatch(rf"{NUMBER_PATTERN}(?:\.{NUMBER_PATTERN})?", place)
    return kind, tuple(int(n) for n in numbers.groups() if n) if numbers else ()


# ── the components of a model ──────────────────────────────────────────────────────────────────
def head_names(model: Model) -> list[str]:
    """Return the names of all heads in the order of layers."""
    c = model.config
    return [head_name(i, h) for i in range(c.n_layers) for h in range(c.n_heads)]


def component_names(model: Model, embeddings: bool = False) -> list[str]:
    """Return the names of all heads and MLPs in order, optionally with embeddings and unembed."""
    c, names = model.config, list[str]()
    for i in range(c.n_layers):
        names += [head_name(i, h) for h in range(c.n_heads)]
        names += [mlp_name(i)] * model.has_mlp(i)
    return [*_embeddings(model), *names, "unembed"] if embeddings else names


def slots_or_stream(model: Model) -> dict[str, tuple[int, int]]:
    """Return the named slots of the residual stream, or the whole stream as one slot."""
    return dict(model.labels.slots) or {WHOLE_STREAM: (0, model.config.d_model)}


def label_of(model: Model, name: str) -> str:
    """Return the label of a head or neuron, or "" if it has none."""
    kind, _, index = name.partition(" ")
    return _labels_by_kind(model).get(kind, {}).get(index, "")


def display_name(model: Model, name: str) -> str:
    """Return the label of a component, or its name if it has no label."""
    return label_of(model, name) or name


def find_component(model: Model, name: str) -> Component:
    """Return the component with a name or label; raise an error that lists all if unknown."""
    if component := _parse_component(model, normalize_name(name)):
        return component
    matches = []
    for kind, labels in _labels_by_kind(model).items():
        matches += [f"{kind} {index}" for index, label in labels.items() if label == name.strip()]
    if len(matches) == 1 and (component := _parse_component(model, matches[0])):
        return component
    if len(matches) > 1:
        raise GlassformerError(f"{name!r} — the name of several components: {', '.join(matches)}")
    hint = f"no such component; this model has {describe_components(model)}"
    raise GlassformerError(f"{name!r} — {hint}", code="not_found")


def describe_components(model: Model) -> str:
    """Return a line that lists the names of all components."""
    c, mlp_layers = model.config, model.mlp_layers
    if not c.n_layers:
        return f"no layers, but {', '.join(_embeddings(model))} and unembed"
    last_layer = c.n_layers - 1
    names = [_range("head 0.0", f"{last_layer}.{c.n_heads - 1}"), _range("attention 0", last_layer)]
    if mlp_layers:
        names += map(mlp_name, mlp_layers)
        names.append(_range(neuron_name(mlp_layers[0], 0), f"{mlp_layers[-1]}.{c.d_mlp - 1}"))
    names += [_range("position 0", c.n_ctx - 1), *map(slot_name, model.labels.slots)]
    names.append(f"dims 0:{c.d_model} or a part of them")
    return ", ".join([*names, *_embeddings(model), "unembed"])


def _parse_component(model: Model, name: str) -> Component | None:
    kind, numbers = parse_name(name)
    layers = range(model.config.n_layers)
    if kind in ("slot", "dims"):
        text = name.partition(" ")[2]
        span = slots_or_stream(model).get(text) if kind == "slot" else None
        if span is None and (match := re.fullmatch(SPAN_PATTERNS[kind], text)):
            span = int(match[1]), int(match[2])
        if span is None or not layers or not 0 <= span[0] < span[1] <= model.config.d_model:
            return None
        hooks = []
        for i in layers:
            ends = ("pre", "mid", "post") if model.has_mlp(i) else ("pre", "post")
            hooks += [f"blocks.{i}.hook_resid_{end}" for end in ends]
        return Component(name, kind, tuple(hooks), (slice(*span),))
    sizes = _index_limits(model).get(kind)
    if numbers:
        name = f"{kind} {'.'.join(map(str, numbers))}"  # drops leading zeros
    if sizes is None or len(sizes) != len(numbers) or (not numbers and name != kind):
        return None
    if not all(n < size for n, size in zip(numbers, sizes, strict=True)):
        return None
    if kind in ("mlp", "neuron") and not model.has_mlp(numbers[0]):
        return None
    if kind == "unembed":
        return Component(name, kind)
    if kind == "position":
        keys_and_values = tuple(f"blocks.{i}.attn.hook_{x}" for i in layers for x in "kv")
        return Component(name, kind, keys_and_values, position=numbers[0])
    return Component(name, kind, (HOOK_OF_KIND[kind].format(*numbers),), numbers[1:])


def _index_limits(model: Model) -> dict[str, tuple[int, ...]]:
    """Return the exclusive limits of the numbers in component names, by kind."""
    c, L = model.config, model.config.n_layers
    heads, neurons = (L, c.n_heads), (L, c.d_mlp)
    limits = {"head": heads, "attention": (L,), "mlp": (L,), "neuron": neurons, "unembed": ()}
    return limits | dict.fromkeys(_embeddings(model), ()) | {"position": (c.n_ctx if L else 0,)}


def _embeddings(model: Model) -> list[str]:
    return ["embed"] + ["pos_embed"] * (POSITIONS[model.config.positions].embed is not None)


def _labels_by_kind(model: Model) -> dict[str, Mapping[str, str]]:
    return {"head": model.labels.heads, "neuron": model.labels.neurons}


def _range(first: str, last: Any) -> str:
    return first if first.endswith(f" {last}") else f"{first} … {last}"
