"""What the parts of a model are called: a name which one view prints, another takes.

    embed, pos_embed  what tokens and positions write to the stream before the first layer
    head 0.1          what head 1 of layer 0 read (hook_z)
    attention 0       all that layer 0's attention wrote, its bias among it
    mlp 0             all that layer 0's MLP wrote
    neuron 0.17       neuron 17 of layer 0's MLP, after the activation
    position 3        what others read at position 3, in every layer
    slot carry        a named slot of the stream, wherever it is written or read
    dims 4:8          the same by numbers: dimensions 4, 5, 6, 7
    unembed           the way from the stream to the logits

`find` knows them all, the name that people gave to a head or neuron, and spellings of old:
head:0.1, MLP 0. Biases are constants and no parts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..utils.errors import GlassformerError
from .model import POSITIONS, Model

# Kind -> the activation that it is seen in. {} is the layer; a second number indexes after B and T.
HOOK_OF_KIND = {
    "embed": "hook_embed", "pos_embed": "hook_pos_embed", "head": "blocks.{}.attn.hook_z",
    "attention": "blocks.{}.hook_attn_out", "mlp": "blocks.{}.hook_mlp_out",
    "neuron": "blocks.{}.mlp.hook_post",
}  # fmt: skip
WHOLE_STREAM = "stream"  # the one slot of a model whose slots have no names
NUMBER_PATTERN = "([0-9]{1,9})"
# ground_truth's word for what no slot has
SPAN_PATTERNS = {
    "dims": f"{NUMBER_PATTERN}:{NUMBER_PATTERN}",
    "slot": rf"rest \[{NUMBER_PATTERN}:{NUMBER_PATTERN}\]",
}


@dataclass(frozen=True)
class Component:
    """A part of a model: the activations that it is seen in, and where in them."""

    name: str
    kind: str
    hooks: tuple[str, ...] = ()
    index: tuple[Any, ...] = ()  # in the axes after B and T
    position: int | None = None  # on the axis T; None: everywhere

    def index_in_activation(self) -> tuple[Any, ...]:
        """Where the part is in an activation [B,T,…]."""
        return (slice(None), slice(None) if self.position is None else self.position, *self.index)


# ── how they are spelled ───────────────────────────────────────────────────────────────────────
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
    """A name as it is spelled today: "head:0.1" is "head 0.1", "MLP 0" is "mlp 0"."""
    kind, place = re.fullmatch(r"\s*([^\s:]*)[\s:]*(.*?)\s*", name, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{kind.lower()} {place}".strip()


def parse_name(name: str) -> tuple[str, tuple[int, ...]]:
    """The kind and the numbers of a name, if it has any: "head 0.1" -> ("head", (0, 1))."""
    kind, _, place = normalize_name(name).partition(" ")
    numbers = re.fullmatch(rf"{NUMBER_PATTERN}(?:\.{NUMBER_PATTERN})?", place)
    return kind, tuple(int(n) for n in numbers.groups() if n) if numbers else ()


# ── which there are ────────────────────────────────────────────────────────────────────────────
def head_names(model: Model) -> list[str]:
    """All heads, from the first layer to the last."""
    return [
        head_name(i, h) for i in range(model.config.n_layers) for h in range(model.config.n_heads)
    ]


def component_names(model: Model, embeddings: bool = False) -> list[str]:
    """All heads and MLPs in the order in which they write; `embeddings`: and both ends."""
    c, found = model.config, list[str]()
    for i in range(c.n_layers):
        found += [head_name(i, h) for h in range(c.n_heads)]
        found += [mlp_name(i)] * model.has_mlp(i)
    return [*_embeddings(model), *found, "unembed"] if embeddings else found


def slots_or_stream(model: Model) -> dict[str, tuple[int, int]]:
    """The named slots of the stream, or the whole stream as one."""
    return dict(model.labels.slots) or {WHOLE_STREAM: (0, model.config.d_model)}


def label_of(model: Model, name: str) -> str:
    """The name that people gave to a head or neuron, or ""."""
    kind, _, place = name.partition(" ")
    return _labels_by_kind(model).get(kind, {}).get(place, "")


def display_name(model: Model, name: str) -> str:
    """The name that people gave to a part, or else its own."""
    return label_of(model, name) or name


def find_component(model: Model, name: str) -> Component:
    """The part that a name stands for; what cannot be found is answered with what there is."""
    if found := _parse_component(model, normalize_name(name)):
        return found
    named = []
    for kind, labels in _labels_by_kind(model).items():
        named += [f"{kind} {at}" for at, label in labels.items() if label == name.strip()]
    if len(named) == 1 and (found := _parse_component(model, named[0])):
        return found
    if len(named) > 1:
        raise GlassformerError(f"{name!r} — the name of several parts: {', '.join(named)}")
    raise GlassformerError(f"{name!r} — no such part; this model has {describe_components(model)}")


def describe_components(model: Model) -> str:
    """The names of a model's parts in a line."""
    c, with_mlp = model.config, model.mlp_layers
    if not c.n_layers:
        return f"no layers, but {', '.join(_embeddings(model))} and unembed"
    last = c.n_layers - 1
    listed = [_range("head 0.0", f"{last}.{c.n_heads - 1}"), _range("attention 0", last)]
    if with_mlp:
        listed += map(mlp_name, with_mlp)
        listed.append(_range(neuron_name(with_mlp[0], 0), f"{with_mlp[-1]}.{c.d_mlp - 1}"))
    listed += [_range("position 0", c.n_ctx - 1), *map(slot_name, model.labels.slots)]
    listed.append(f"dims 0:{c.d_model} or a part of them")
    return ", ".join([*listed, *_embeddings(model), "unembed"])


def _parse_component(model: Model, name: str) -> Component | None:
    kind, numbers = parse_name(name)
    layers = range(model.config.n_layers)
    if kind in ("slot", "dims"):
        place = name.partition(" ")[2]
        span = slots_or_stream(model).get(place) if kind == "slot" else None
        if span is None and (found := re.fullmatch(SPAN_PATTERNS[kind], place)):
            span = int(found[1]), int(found[2])
        if span is None or not layers or not 0 <= span[0] < span[1] <= model.config.d_model:
            return None
        hooks = []
        for i in layers:
            ends = ("pre", "mid", "post") if model.has_mlp(i) else ("pre", "post")
            hooks += [f"blocks.{i}.hook_resid_{end}" for end in ends]
        return Component(name, kind, tuple(hooks), (slice(*span),))
    sizes = _index_limits(model).get(kind)
    if numbers:
        name = f"{kind} {'.'.join(map(str, numbers))}"  # head 0.1, were it written head 00.1
    if sizes is None or len(sizes) != len(numbers) or (not numbers and name != kind):
        return None
    if not all(n < size for n, size in zip(numbers, sizes, strict=True)):
        return None
    if kind in ("mlp", "neuron") and not model.has_mlp(numbers[0]):
        return None
    if kind == "unembed":
        return Component(name, kind)
    if kind == "position":
        read = tuple(f"blocks.{i}.attn.hook_{x}" for i in layers for x in "kv")
        return Component(name, kind, read, position=numbers[0])
    return Component(name, kind, (HOOK_OF_KIND[kind].format(*numbers),), numbers[1:])


def _index_limits(model: Model) -> dict[str, tuple[int, ...]]:
    """Kind -> below what each number of its name must be."""
    c, L = model.config, model.config.n_layers
    heads, neurons = (L, c.n_heads), (L, c.d_mlp)
    places = {"head": heads, "attention": (L,), "mlp": (L,), "neuron": neurons, "unembed": ()}
    return places | dict.fromkeys(_embeddings(model), ()) | {"position": (c.n_ctx if L else 0,)}


def _embeddings(model: Model) -> list[str]:
    return ["embed"] + ["pos_embed"] * (POSITIONS[model.config.positions].embed is not None)


def _labels_by_kind(model: Model) -> dict[str, Mapping[str, str]]:
    return {"head": model.labels.heads, "neuron": model.labels.neurons}


def _range(first: str, last: Any) -> str:
    return first if first.endswith(f" {last}") else f"{first} … {last}"
