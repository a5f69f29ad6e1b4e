"""Taking a part out of a finished model: is the rest still right?

    tap = ablation(model, "head 0.1")                     a tap, for whatever runs the model
    ablate(model, task, "head 0.1").accuracy              the share of the domain that is still right
    for row in ablations(model, task, how="mean"): …      every head and every MLP in turn

Nothing is trained here: the weights stay as they are and the part's output is replaced while the model runs. (To train
again *without* a thing, and see whether it was needed at all, is training/ablations.py.) Three replacements:

- zero: the part says nothing;
- mean: it says, at each position, its mean over reference inputs: what does not depend on the input stays;
- resample: it says what it says on another input, drawn from the reference: all that is usual stays but this input.

A part is named by a word and a place; `find` knows them:

    head 0.1          what head 1 of layer 0 read (hook_z)
    attention 0       all that layer 0's attention wrote, its bias among it
    mlp 0             all that layer 0's MLP wrote
    neuron 0.17       neuron 17 of layer 0's MLP, after the activation
    position 3        what others read at position 3, in every layer; zero: nobody looks there
    slot carry        a named slot of the stream, wherever it is written or read
    dims 4:8          the same by numbers: dimensions 4, 5, 6, 7
"""

import importlib.util
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import arrays
from ...answers import EXHAUSTIVE, Score, score
from ...arrays import Array
from ...errors import GlassformerError
from ...model import Model, Tap
from ...tasks.base import Task

HOWS = ("zero", "mean", "resample")
REFERENCE = 1_000  # inputs that a mean is taken over, or a replacement drawn from
WORTH_TORCH = 50_000  # rows from which the time to import PyTorch is well spent


@dataclass(frozen=True)
class Part:
    """A part of a model: the activations that it is seen in, and where in them."""

    what: str
    hooks: tuple[str, ...]
    index: tuple[Any, ...] = ()  # in the axes after B and T
    position: int | None = None  # on the axis T; None: everywhere

    def place(self) -> tuple[Any, ...]:
        """Where the part is in an activation [B,T,…]."""
        return (slice(None), slice(None) if self.position is None else self.position, *self.index)


@dataclass(frozen=True)
class Ablated:
    """What is left of a model without one part."""

    what: str
    how: str
    score: Score
    name: str = ""  # what people call the part

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "how": self.how, "name": self.name} | self.score.to_json()

    def __str__(self) -> str:
        digits = " ".join(f"{100 * p:.1f}" for p in self.score.positions)
        return f"{' '.join(filter(None, (self.what, self.how))):<18} {self.score}; by answer token, %: {digits}"


def parts(model: Model) -> list[str]:
    """The names of all heads and MLPs, from the first layer to the last."""
    names = []
    for i in range(model.config.n_layers):
        names += [f"head {i}.{h}" for h in range(model.config.n_heads)]
        names += [f"mlp {i}"] * model.has_mlp(i)
    return names


def find(model: Model, what: str) -> Part:
    """The part that a name stands for; what cannot be found is answered with what there is."""
    c, slots = model.config, model.labels.slots
    word, _, place = what.strip().partition(" ")
    place = place.strip()
    layers = [f"blocks.{i}." for i in range(c.n_layers)]
    numbers = [int(x) for x in place.split(".")] if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", place) else []
    first = numbers[0] if numbers else 0
    at = layers[first] if first < len(layers) else ""
    mlp = bool(at) and at + "mlp.W_out" in model.weights
    if word == "head" and len(numbers) == 2 and at and numbers[1] < c.n_heads:
        return Part(what, (at + "attn.hook_z",), (numbers[1],))
    if word == "attention" and len(numbers) == 1 and at:
        return Part(what, (at + "hook_attn_out",))
    if word == "mlp" and len(numbers) == 1 and mlp:
        return Part(what, (at + "hook_mlp_out",))
    if word == "neuron" and len(numbers) == 2 and mlp and numbers[1] < c.d_mlp:
        return Part(what, (at + "mlp.hook_post",), (numbers[1],))
    if word == "position" and len(numbers) == 1 and layers and first < c.n_ctx:
        return Part(what, tuple(a + f"attn.hook_{x}" for a in layers for x in "kv"), position=first)
    span = slots.get(place) if word == "slot" else None
    if word == "dims" and (found := re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", place)):
        span = int(found[1]), int(found[2])
    if span and layers and 0 <= span[0] < span[1] <= c.d_model:
        stream = [a + f"hook_resid_{x}" for a in layers for x in ("pre", "mid", "post")]
        mid = [a + "hook_resid_mid" for a in layers if a + "mlp.W_out" not in model.weights]  # not there
        return Part(what, tuple(n for n in stream if n not in mid), (slice(*span),))
    raise GlassformerError(f"{what!r} — no such part; this model has {there_is(model)}")


def there_is(model: Model) -> str:
    """The names of a model's parts in a line."""
    c = model.config
    if not c.n_layers:
        return "no layers, and so no parts to take out"
    with_mlp = model.mlp_layers
    listed = [_range("head 0.0", f"{c.n_layers - 1}.{c.n_heads - 1}"), _range("attention 0", c.n_layers - 1)]
    if with_mlp:
        listed += [", ".join(f"mlp {i}" for i in with_mlp)]
        listed += [_range(f"neuron {with_mlp[0]}.0", f"{with_mlp[-1]}.{c.d_mlp - 1}")]
    listed += [_range("position 0", c.n_ctx - 1), *(f"slot {name}" for name in model.labels.slots)]
    return ", ".join([*listed, f"dims 0:{c.d_model} or a part of them"])


def _range(first: str, last: Any) -> str:
    return first if first.endswith(f" {last}") else f"{first} … {last}"


# ── the tap ────────────────────────────────────────────────────────────────────────────────────
def ablation(
    model: Model, what: str, how: str = "zero", reference: Any = None, rng: np.random.Generator | None = None
) -> Tap:
    """A tap that takes a part out. `reference` [B,T]: the tokens that mean and resample run the model on."""
    part = find(model, what)
    if how not in HOWS:
        raise GlassformerError(f"ablation {how!r} — expected one of {', '.join(HOWS)}")
    if how == "zero":
        if part.position is not None:
            position = part.position
            return lambda name, value: _hide(value, position) if name.endswith("hook_attn_scores") else value
        return lambda name, value: put(value, part.place(), 0) if name in part.hooks else value
    if reference is None or not len(reference):
        raise GlassformerError(f"ablation {how} — expected reference tokens [B,T] to run the model on, got none")
    if how == "resample" and rng is None:
        raise GlassformerError("ablation resample — needs a random generator: rng=np.random.default_rng(seed)")
    return _Instead(model, part, np.atleast_2d(arrays.numpy(reference)), rng if how == "resample" else None)


class _Instead:
    """A tap that puts, in the place of a part, its mean over a reference, or what it is on a row of it at random."""

    def __init__(self, model: Model, part: Part, reference: Any, rng: np.random.Generator | None) -> None:
        self.model, self.part, self.tokens, self.rng = model.numpy(), part, reference, rng
        self.length, self.drawn = 0, np.zeros(1, np.int64)
        self.seen: dict[int, dict[str, Any]] = {}  # by length: without a mask, what is to come matters too

    def reference(self) -> dict[str, Any]:
        if self.length not in self.seen:
            read, kept = self.tokens[:, : self.length], dict[str, Any]()
            if read.shape[1] < self.length:
                raise GlassformerError(f"ablation — the reference has {read.shape[1]} tokens, the input {self.length}")

            def keep(name: str, value: Array) -> Array:
                if name in self.part.hooks:
                    kept[name] = value
                return value

            with np.errstate(all="ignore"):
                self.model(read, tap=keep)
            self.seen[self.length] = {n: x if self.rng else x.mean(0, keepdims=True) for n, x in kept.items()}
        return self.seen[self.length]

    def __call__(self, name: str, value: Array) -> Array:
        if name == "hook_embed":  # a run begins: one row is drawn for all of it
            self.length = value.shape[1]
            if self.rng:
                self.drawn = self.rng.integers(len(self.tokens), size=len(value))
        position, n = self.part.position, value.shape[1]
        if name not in self.part.hooks or (position is not None and position >= n):
            return value
        new = self.reference()[name][self.drawn, self.length - n :]  # the last block may be asked for its end alone
        return put(value, self.part.place(), arrays.of(value).like(value, new[self.part.place()]))


def put(value: Array, place: Any, new: Any) -> Array:
    """A copy of value with something else in one place."""
    value = value.copy() if isinstance(value, np.ndarray) else value.clone()
    value[place] = new
    return value


def _hide(scores: Array, position: int) -> Array:
    """scores [B,H,T,S] with a key that nobody sees but those who see nothing else."""
    if position >= scores.shape[-1]:
        return scores
    hidden = put(scores, (..., position), -np.inf)
    alone = (hidden == -np.inf).all(-1)                                        # B H T
    return put(hidden, alone, scores[alone])


# ── what is left ───────────────────────────────────────────────────────────────────────────────
def ablate(
    model: Model, task: Task, what: str, how: str = "zero", rows: Any = None, seed: int = 0
) -> Score:
    """How right the model is without one part, over rows [B,…] or the domain. The reference are inputs of the task."""
    return score(fast(model, task, rows), task, rows, tap=_task_ablation(model, task, what, how, seed))


def ablations(
    model: Model, task: Task, how: str = "zero", rows: Any = None, whats: Sequence[str] = (), seed: int = 0
) -> Iterator[Ablated]:
    """The whole model first, then without each part (default: all heads and MLPs) in turn."""
    taps = {what: _task_ablation(model, task, what, how, seed) for what in whats or parts(model)}  # a typo, before work
    quick = fast(model, task, rows)
    yield Ablated("nothing", "", score(quick, task, rows))
    for what, tap in taps.items():
        yield Ablated(what, how, score(quick, task, rows, tap=tap), label(model, what))


def label(model: Model, what: str) -> str:
    """The name that people gave to a head or neuron, or ""."""
    word, _, place = what.partition(" ")
    named = {"head": model.labels.heads, "neuron": model.labels.neurons}.get(word, {})
    return named.get(place.strip(), "")


def reference_tokens(task: Task, n: int = REFERENCE, seed: int = 0) -> Any:
    """Tokens [n,T-1] of inputs of the task, drawn at random, as a model reads them."""
    rows = task.sample(n, np.random.default_rng(seed))
    return task.batch(rows[task.defined(rows)])[0][:, :-1]


def _task_ablation(model: Model, task: Task, what: str, how: str, seed: int) -> Tap:
    reference = None if how == "zero" else reference_tokens(task, seed=seed)
    return ablation(model, what, how, reference, np.random.default_rng(seed))


def fast(model: Model, task: Task, rows: Any) -> Model:
    """The model, as PyTorch's if that is there and there is much to do: three times as fast for trained models.

    Only float32: the margins of some hand-made float64 programs are as small as the order of a sum matters.
    """
    todo = len(rows) if rows is not None else task.size if task.size <= EXHAUSTIVE else task.worth_checking
    numpy = model.is_numpy
    if numpy and model.dtype == "float32" and todo >= WORTH_TORCH and importlib.util.find_spec("torch"):
        return model.torch()
    return model
