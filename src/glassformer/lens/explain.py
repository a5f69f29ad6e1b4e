"""Explanation of a model's next token for one input by heads, slots and neurons.

In pre-norm models, the logits are linear in the components' outputs, given the final norm's scale,
so the margin over the runner-up is a sum of contributions.
"""

from dataclasses import dataclass, field

import numpy as np

from ..compiler.slot_readout import ValueReading, read_slots, text_start
from ..core import components
from ..core.backend import Array
from ..core.hooks import ActivationCache, record
from ..core.model import Model
from ..utils.errors import GlassformerError
from ..utils.numfmt import (
    format_number,
    format_percent,
    negligible_fraction,
    stable_argsort,
    zero_negligible,
)
from ..utils.results import Displayable, Result
from .logits import head_outputs, logit_difference_shares
from .slot_origins import erased_slots, slot_origins
from .stream import embedded_stream

MIN_LISTED_ATTENTION = 0.01
LAST_POSITION = slice(-1, None)
MIN_CODE_COSINE = 0.999  # minimum cosine between a slot and the code of a token or position
SUM_TOLERANCE = 6e-5  # rounding error of a float32 sum, relative to the largest share


@dataclass(frozen=True)
class HeadReading(Displayable):
    """The attention and the output of one head at the last position."""

    layer: int
    head: int
    name: str
    read: list[tuple[int, str, float]]  # (position, token, weight), largest first
    wrote: dict[str, float]  # slot -> norm of the head's output in the slot
    first: int = 0  # index of position 0, which follows <bos> in compiled models

    def __str__(self) -> str:
        read = describe_read(self.read, first_position=self.first)
        return f"{self.name}: attends to {read}; writes to {', '.join(self.wrote)}"


@dataclass(frozen=True)
class SlotContent(Displayable):
    """The content of one named slot of the stream."""

    name: str
    values: list[float]
    means: str = ""  # the token or position with this code
    erased: bool = False  # whether the values are only what is left of larger ones

    def __str__(self) -> str:
        values = [format_number(v) for v in self.values[:8]] + ["…"] * (len(self.values) > 8)
        means = "  (erased)" if self.erased else f"  = {self.means}" if self.means else ""
        return f"    {self.name}: {' '.join(values)}{means}"


@dataclass(frozen=True)
class LayerExplanation(Displayable):
    """One layer at the last position: heads, neurons, and the stream after it."""

    heads: list[HeadReading]
    slots: list[SlotContent]
    neurons: list[tuple[str, float]]  # (name, activation), largest first
    n_neurons: int
    n_fired: int


@dataclass(frozen=True)
class Explanation(Result):
    """The predicted token, its margin, and the contributions of heads, neurons and slots."""

    tokens: list[str]
    winner: str
    runner_up: str
    margin: float
    top: list[tuple[str, float]]
    layers: list[LayerExplanation]
    shares: list[tuple[str, float]]  # (component, contribution to the margin)
    slots: list[SlotContent] = field(default_factory=list)  # slots before the first layer
    # for compiled models: each value as decoded from its slot and as computed by the interpreter
    values: list[ValueReading] = field(default_factory=list)

    def __str__(self) -> str:
        lead = f"it leads {self.runner_up} by {format_number(self.margin)}"
        lines = [f"After {' '.join(self.tokens)} comes {self.winner}: {lead}."]
        if self.values:
            lines += ["Values of the source at this position, and the component that writes each:"]
            lines += [*map(str, self.values), ""]
        lines += ["Stream at the last position after the embedding:", *map(str, self.slots)]
        for i, layer in enumerate(self.layers):
            lines += ["", f"Layer {i}", *[f"  {h}" for h in layer.heads]]
            if not layer.heads:
                lines.append("  no head writes anything")
            if layer.n_neurons:
                strongest = ", ".join(f"{name} ({format_number(a)})" for name, a in layer.neurons)
                fired = f"{layer.n_fired:,} of {layer.n_neurons:,} neurons active"
                lines.append(f"  {fired}; strongest: {strongest or 'none'}")
            lines += ["  Stream after the layer:", *map(str, layer.slots)]
        if self.shares:
            by_size = [self.shares[i] for i in stable_argsort([abs(s) for _, s in self.shares])]
            lines += ["", "Shares of the margin"]
            lines += [f"  {format_number(s):>12}  {name}" for name, s in by_size]
            total, largest = sum(s for _, s in self.shares), max(abs(s) for _, s in self.shares)
            # Rounding errors are large when large contributions cancel.
            if abs(total - self.margin) <= SUM_TOLERANCE * largest:
                total = self.margin
            lines.append(f"  {format_number(total):>12}  total")
        return "\n".join(lines)


def describe_read(
    read: list[tuple[int, str, float]], max_items: int = 8, first_position: int = 0
) -> str:
    """Format attention weights as text: "3 at 2 (14%), 9 at 4 (14%) and 5 more"."""
    items = []
    for s, token, weight in read[:max_items]:
        place = f" at {s - first_position}" if s >= first_position else ""
        items.append(f"{token}{place} ({format_percent(weight)})")
    more = f" and {len(read) - max_items} more" if len(read) > max_items else ""
    return (", ".join(items) or "everything a little") + more


def explain(model: Model, tokens: Array) -> Explanation:
    """Explain the model's prediction of the token after `tokens` [T]."""
    model = model.numpy()
    logits, cache = record(model, np.asarray(tokens)[None])
    last = logits[0, -1]
    if not np.isfinite(last).all():
        raise GlassformerError("explain: expected finite logits, got NaN or infinity")
    first = int(last.argmax())
    order = [first, *(int(i) for i in stable_argsort(last)[:6] if i != first)][:5]
    second = order[min(1, len(order) - 1)]
    names, zero = [model.vocabulary[int(t)] for t in tokens], text_start(model, tokens)
    slots = _SlotReader(model, cache, zero)
    best = [model.vocabulary[i] for i in order]
    return Explanation(
        tokens=names, winner=model.vocabulary[first], runner_up=model.vocabulary[second],
        margin=float(last[first] - last[second]),
        top=list(zip(best, zero_negligible(last[order]).astype(float).tolist(), strict=True)),
        layers=[
            _explain_layer(model, cache, i, names, zero, slots)
            for i in range(model.config.n_layers)
        ],
        shares=_margin_shares(model, cache, first, second),
        slots=slots.contents("embed", embedded_stream(cache)[0, -1]),
        values=read_slots(model, tokens, lambda time: _stream_after(cache, time)),
    )  # fmt: skip


def _stream_after(cache: ActivationCache, time: int) -> Array:
    """Return the last position's stream after `time` alternating attention and MLP sublayers."""
    if time == 0:
        return embedded_stream(cache)[0, -1]
    at = f"blocks.{(time - 1) // 2}.hook_resid_"
    # a layer without an MLP has no hook_resid_mid
    where = "mid" if time % 2 and f"{at}mid" in cache else "post"
    return cache[at + where][0, -1]


def _explain_layer(
    model: Model, cache: ActivationCache, i: int, tokens: list[str], first_position: int,
    slots: "_SlotReader",
) -> LayerExplanation:  # fmt: skip
    c, at = model.config, f"blocks.{i}."
    heads = []
    wrote = head_outputs(model, cache, i, LAST_POSITION)[0, 0]  # H D
    for h in range(c.n_heads):
        pattern = cache[at + "attn.hook_pattern"][0, h, -1]  # S
        mixed = pattern @ np.abs(cache[at + "attn.hook_v"][0, :, h])  # K
        # D: upper bound, without cancellation
        might = mixed @ np.abs(model.weights[at + "attn.W_O"][h])
        if np.linalg.norm(wrote[h]) <= negligible_fraction(wrote) * np.linalg.norm(might):
            continue
        listed = pattern >= MIN_LISTED_ATTENTION * (1 - negligible_fraction(pattern))
        order = [int(s) for s in stable_argsort(pattern.round(6)) if listed[s]]
        read = [(s, tokens[s], float(pattern[s])) for s in order]
        name = components.display_name(model, components.head_name(i, h))
        heads.append(HeadReading(i, h, name, read, _written_slots(model, wrote[h]), first_position))
    neurons, active = [], np.zeros(0)
    if at + "mlp.hook_post" in cache:
        active = zero_negligible(cache[at + "mlp.hook_post"][0, -1])  # F
        for j in stable_argsort(np.abs(active))[:8]:
            if abs(active[j]) > 1e-12:
                name = components.display_name(model, components.neuron_name(i, j))
                neurons.append((name, float(active[j])))
    sublayer = components.mlp_name(i) if model.has_mlp(i) else components.attention_name(i)
    contents = slots.contents(sublayer, cache[at + "hook_resid_post"][0, -1])
    n_active = int((np.abs(active) > 1e-12).sum())
    return LayerExplanation(heads, contents, neurons, len(active), n_active)


def _written_slots(model: Model, x: Array) -> dict[str, float]:
    """Return slot -> norm of the vector in that slot, for slots with non-negligible norms."""
    slots = components.slots_or_stream(model).items()
    sizes = {name: float(np.linalg.norm(x[a:b])) for name, (a, b) in slots}
    negligible = negligible_fraction(x) * max(sizes.values(), default=0.0)
    return {name: s for name, s in sizes.items() if s > negligible}


class _SlotReader:
    """Reads the slots of the last position, by the codes of the slots that they come from."""

    def __init__(self, model: Model, cache: ActivationCache, first_position: int) -> None:
        self.model, self.first_position = model, first_position
        self.slots = components.slots_or_stream(model)
        spans = list(self.slots.values())
        self.origins = slot_origins(model, cache, spans)
        self.erased = dict(erased_slots(model, cache, spans))

    def contents(self, sublayer: str, x: Array) -> list[SlotContent]:
        # tolerance for rounding errors of the whole stream
        x = np.where(np.abs(x) <= 16 * np.finfo(x.dtype).eps * np.abs(x).max(), 0, x)
        spans, contents = list(self.slots.values()), []
        for i, (name, (a, b)) in enumerate(self.slots.items()):
            start, stop = spans[self.origins[sublayer][-1, i]]
            if stop - start != b - a:
                start, stop = a, b
            erased = bool(self.erased[sublayer][-1, i])
            means = ""
            if not erased:
                means = _matching_code(self.model, x[a:b], start, stop, self.first_position)
            contents.append(SlotContent(name, zero_negligible(x[a:b]).tolist(), means, erased))
        return contents


def _matching_code(model: Model, part: Array, a: int, b: int, first_position: int) -> str:
    """Return the token, or else the position, whose embedding in a:b uniquely matches `part`."""
    size = np.linalg.norm(part)
    if b - a < 2 or size == 0:
        return ""
    for name, label in (("embed.W_E", "the code of {!r}"), ("pos_embed.W_pos", "position {}")):
        if name not in model.weights:
            continue
        rows = model.weights[name][:, a:b]
        norms = np.linalg.norm(rows, axis=1)
        if not norms.all():
            continue
        cosine = rows @ part / (norms * size)
        best = stable_argsort(cosine)[:2]
        i = int(best[0])
        unique = len(best) == 1 or cosine[i] - cosine[best[1]] > 1e-9
        if unique and cosine[i] > MIN_CODE_COSINE:
            return label.format(model.vocabulary[i] if name == "embed.W_E" else i - first_position)
    return ""


def _margin_shares(
    model: Model, cache: ActivationCache, first: int, second: int
) -> list[tuple[str, float]]:
    if not model.config.norm_first:
        return []
    pair = np.array([[first]]), np.array([[second]])
    shares = logit_difference_shares(model, cache, *pair, positions=LAST_POSITION)
    sizes = zero_negligible([s[0, 0] for _, s in shares]).tolist()
    return [(name, size) for (name, _), size in zip(shares, sizes, strict=True)]
