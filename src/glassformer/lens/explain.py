"""Why does the next token win? By head, slot and neuron name, for one input.

Everything here is read off one run with a tap. The logits are linear in what each part wrote to the
stream once the last norm's scale is known, so the margin over the runner-up is a sum over parts:
`shares` lists them.
"""

from dataclasses import dataclass, field

import numpy as np

from ..compiler.slot_readout import ValueReading, read_slots
from ..compiler.slot_readout import text_start as begins
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
from .stream import embedded_stream

MIN_LISTED_ATTENTION = 0.01  # attention weights below this are not listed
LAST_POSITION = slice(-1, None)  # the position that is explained
MIN_CODE_COSINE = 0.999  # cosine from which a slot is said to hold the code of a token or position
SUM_TOLERANCE = 6e-5  # of the largest share: what a sum of shares may be off by in float32


@dataclass(frozen=True)
class HeadReading(Displayable):
    """What one head did at the last position."""

    layer: int
    head: int
    name: str
    read: list[tuple[int, str, float]]  # position, token, attention weight; the strongest first
    wrote: dict[str, float]  # slot -> size of what was written there
    first: int = 0  # the position that is called 0: of a compiled model the one after <bos>

    def __str__(self) -> str:
        read = describe_read(self.read, first_position=self.first)
        return f"{self.name}: read {read}; wrote to {', '.join(self.wrote)}"


@dataclass(frozen=True)
class SlotContent(Displayable):
    """What one named slot of the stream holds."""

    name: str
    values: list[float]
    means: str = ""  # the token or position whose code this is

    def __str__(self) -> str:
        values = [format_number(v) for v in self.values[:8]] + ["…"] * (len(self.values) > 8)
        means = f"  = {self.means}" if self.means else ""
        return f"    {self.name}: {' '.join(values)}{means}"


@dataclass(frozen=True)
class LayerExplanation(Displayable):
    """One layer at the last position: heads, neurons, and the stream at the end."""

    heads: list[HeadReading]
    slots: list[SlotContent]
    neurons: list[tuple[str, float]]  # name and activation of those that fired, the strongest first
    n_neurons: int
    n_fired: int


@dataclass(frozen=True)
class Explanation(Result):
    """Why the next token wins."""

    tokens: list[str]
    winner: str
    runner_up: str
    margin: float
    top: list[tuple[str, float]]
    layers: list[LayerExplanation]
    shares: list[tuple[str, float]]  # part of the model -> its share of the margin
    slots: list[SlotContent] = field(default_factory=list)  # before the first layer
    # of a compiled model: what each value is here, beside what the interpreter says
    values: list[ValueReading] = field(default_factory=list)

    def __str__(self) -> str:
        beats = f"its logit beats that of {self.runner_up} by {format_number(self.margin)}"
        lines = [f"After {' '.join(self.tokens)} comes {self.winner}: {beats}."]
        if self.values:
            lines += ["The values of its source here, and the part after which each is there:"]
            lines += [*map(str, self.values), ""]
        lines += ["At first, the last position's stream holds:", *map(str, self.slots)]
        for i, layer in enumerate(self.layers):
            lines += ["", f"Layer {i}", *[f"  {h}" for h in layer.heads]]
            if not layer.heads:
                lines.append("  no head wrote anything")
            if layer.n_neurons:
                strongest = ", ".join(f"{name} ({format_number(a)})" for name, a in layer.neurons)
                fired = f"{layer.n_fired:,} of {layer.n_neurons:,} neurons fired"
                lines.append(f"  {fired}; strongest: {strongest or 'none'}")
            lines += ["  Then the stream holds:", *map(str, layer.slots)]
        if self.shares:
            by_size = [self.shares[i] for i in stable_argsort([abs(s) for _, s in self.shares])]
            lines += ["", "Where the margin comes from"]
            lines += [f"  {format_number(s):>12}  {name}" for name, s in by_size]
            total, largest = sum(s for _, s in self.shares), max(abs(s) for _, s in self.shares)
            # large shares that cancel sum to it but for rounding
            if abs(total - self.margin) <= SUM_TOLERANCE * largest:
                total = self.margin
            lines.append(f"  {format_number(total):>12}  in all")
        return "\n".join(lines)


def describe_read(
    read: list[tuple[int, str, float]], max_items: int = 8, first_position: int = 0
) -> str:
    """What a head read: "3 at 2 (14%), 9 at 4 (14%) and 5 more"."""
    at = [
        f" at {s - first_position}" if s >= first_position else "" for s, _, _ in read[:max_items]
    ]
    both = zip(read, at, strict=False)
    shown = ", ".join(f"{token}{where} ({format_percent(w)})" for (_, token, w), where in both)
    more = f" and {len(read) - max_items} more" if len(read) > max_items else ""
    return (shown or "everything a little") + more


def explain(model: Model, tokens: Array) -> Explanation:
    """Explains the token that the model puts after `tokens` [T]."""
    model = model.numpy()
    logits, cache = record(model, np.asarray(tokens)[None])
    last = logits[0, -1]
    if not np.isfinite(last).all():
        raise GlassformerError("explain — the logits are not finite")
    first = int(last.argmax())  # what decoding says, by however little
    order = [first, *(int(i) for i in stable_argsort(last)[:6] if i != first)][:5]
    second = order[min(1, len(order) - 1)]
    words, zero = [model.vocabulary[int(t)] for t in tokens], begins(model, tokens)
    names = [model.vocabulary[i] for i in order]
    return Explanation(
        tokens=words, winner=model.vocabulary[first], runner_up=model.vocabulary[second],
        margin=float(last[first] - last[second]),
        top=list(zip(names, zero_negligible(last[order]).astype(float).tolist(), strict=True)),
        layers=[_explain_layer(model, cache, i, words, zero) for i in range(model.config.n_layers)],
        shares=_margin_shares(model, cache, first, second),
        slots=_slot_contents(model, embedded_stream(cache)[0, -1], zero),
        values=read_slots(model, tokens, lambda time: _stream_after(cache, time)),
    )  # fmt: skip


def _stream_after(cache: ActivationCache, time: int) -> Array:
    """The last position's stream: at first, or after heads and neurons by turns."""
    if time == 0:
        return embedded_stream(cache)[0, -1]
    at = f"blocks.{(time - 1) // 2}.hook_resid_"
    where = "mid" if time % 2 and f"{at}mid" in cache else "post"  # without neurons all is one
    return cache[at + where][0, -1]


def _explain_layer(
    model: Model, cache: ActivationCache, i: int, words: list[str], first_position: int
) -> LayerExplanation:
    c, at = model.config, f"blocks.{i}."
    heads = []
    wrote = head_outputs(model, cache, i, LAST_POSITION)[0, 0]  # H D
    for h in range(c.n_heads):
        pattern = cache[at + "attn.hook_pattern"][0, h, -1]  # S
        mixed = pattern @ np.abs(cache[at + "attn.hook_v"][0, :, h])  # K
        might = mixed @ np.abs(model.weights[at + "attn.W_O"][h])  # D: had nothing cancelled
        if np.linalg.norm(wrote[h]) <= negligible_fraction(wrote) * np.linalg.norm(might):
            continue
        listed = pattern >= MIN_LISTED_ATTENTION * (1 - negligible_fraction(pattern))
        order = [int(s) for s in stable_argsort(pattern.round(6)) if listed[s]]
        read = [(s, words[s], float(pattern[s])) for s in order]
        name = components.display_name(model, components.head_name(i, h))
        heads.append(HeadReading(i, h, name, read, _written_slots(model, wrote[h]), first_position))
    neurons, fired, n = [], np.zeros(0), 0
    if at + "mlp.hook_post" in cache:
        fired = zero_negligible(cache[at + "mlp.hook_post"][0, -1])  # F
        n = len(fired)
        strongest = stable_argsort(np.abs(fired))[:8]
        loud = [j for j in strongest if abs(fired[j]) > 1e-12]
        neurons = [
            (components.display_name(model, components.neuron_name(i, j)), float(fired[j]))
            for j in loud
        ]
    after = cache[at + "hook_resid_post"][0, -1]
    slots = _slot_contents(model, after, first_position)
    return LayerExplanation(heads, slots, neurons, n, int((np.abs(fired) > 1e-12).sum()))


def _written_slots(model: Model, x: Array) -> dict[str, float]:
    """Slot -> size of a vector there, for slots that it touches."""
    sizes = {
        name: float(np.linalg.norm(x[a:b]))
        for name, (a, b) in components.slots_or_stream(model).items()
    }
    least = negligible_fraction(x) * max(sizes.values(), default=0.0)
    return {name: s for name, s in sizes.items() if s > least}


def _slot_contents(model: Model, x: Array, first_position: int) -> list[SlotContent]:
    # next to the whole stream …
    x = np.where(np.abs(x) <= 16 * np.finfo(x.dtype).eps * np.abs(x).max(), 0, x)
    return [
        SlotContent(
            name, zero_negligible(x[a:b]).tolist(), _matching_code(model, x, a, b, first_position)
        )
        for name, (a, b) in components.slots_or_stream(model).items()
    ]


def _matching_code(model: Model, x: Array, a: int, b: int, first_position: int) -> str:
    """The one token, or else position, whose embedding points the same way in this slot."""
    part = x[a:b]
    size = np.linalg.norm(part)
    if b - a < 2 or size == 0:
        return ""
    for name, what in (("embed.W_E", "the code of {!r}"), ("pos_embed.W_pos", "position {}")):
        if name not in model.weights:
            continue
        rows = model.weights[name][:, a:b]
        norms = np.linalg.norm(rows, axis=1)
        if not norms.all():
            continue
        cosine = rows @ part / (norms * size)
        best = stable_argsort(cosine)[:2]
        if cosine[best[0]] > MIN_CODE_COSINE and (
            len(best) == 1 or cosine[best[0]] - cosine[best[1]] > 1e-9
        ):
            i = int(best[0])
            return what.format(model.vocabulary[i] if name == "embed.W_E" else i - first_position)
    return ""


def _margin_shares(
    model: Model, cache: ActivationCache, first: int, second: int
) -> list[tuple[str, float]]:
    """Part -> its share of logit[first] - logit[second] at the last position. Pre-norm only."""
    if not model.config.norm_first:
        return []
    pair = np.array([[first]]), np.array([[second]])
    found = logit_difference_shares(model, cache, *pair, positions=LAST_POSITION)
    sizes = zero_negligible([s[0, 0] for _, s in found]).tolist()
    return [(name, size) for (name, _), size in zip(found, sizes, strict=True)]
