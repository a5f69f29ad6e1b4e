"""Obfuscated copies of a model: the same function with names removed and another basis and order.

The key of a copy maps claims about the copy back to the original, where they can be scored.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from ..compiler.task import task_name
from ..core import components
from ..core.checkpoint import digest, to_bytes
from ..core.model import Labels, Model
from ..lens.embeddings import position_table
from ..parametrizations.rotated import rotate as rotate_stream
from ..parametrizations.rotated import rotation_fixing_ones
from ..tasks.base import Task
from ..utils.errors import GlassformerError, ascii_name, short_repr, value_error
from ..utils.fileio import check_ending, write_together
from ..utils.limits import MAX_NOISE, MAX_OBFUSCATED_D_MODEL, MAX_SEED, check_int_range
from ..utils.results import Displayable, json_file, to_jsonable
from ..utils.typed_json import Finite, Name, Ref, Seed, Sha256, check_small, convert, read_json

FORMAT, VERSION = "glassformer-key", 1
COMPARED_ROWS = 1_000  # a copy is compared on 1,000 sampled rows and up to 1,000 edge cases
Index = Annotated[int, Meta(ge=0, le=2**31 - 1)]
IndexLists = Annotated[
    list[Annotated[list[Index], Meta(max_length=10_000_000)]], Meta(max_length=10_000)
]
# Matrix M [D,D]: a row x of the original's stream becomes x @ M in the copy.
Basis = Annotated[
    list[Annotated[list[Finite], Meta(max_length=MAX_OBFUSCATED_D_MODEL)]],
    Meta(min_length=1, max_length=MAX_OBFUSCATED_D_MODEL),
]
TokenCount = Annotated[int, Meta(ge=0, le=10**12)]
LOGIT_TIE = 1e-9  # relative difference below which two logits of a random input are tied
# norm -> (module, suffix of the W_ and b_ arrays) of its readers
NORM_READERS = {
    "ln1": [("attn", "Q"), ("attn", "K"), ("attn", "V")],
    "ln2": [("mlp", "in"), ("mlp", "gate")],
    "ln_final": [("unembed", "U")],
}
# module -> array -> its axis of heads or neurons
SHUFFLED_AXES = {
    "attn": dict.fromkeys(("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"), 0),
    "mlp": dict.fromkeys(("W_in", "b_in", "W_gate", "b_gate"), -1) | {"W_out": 0},
}


@dataclass(frozen=True)
class ObfuscationKey(Displayable):
    """Record of an obfuscation, which maps claims about the copy back to the original."""

    original: Sha256  # SHA-256 digests of both models
    copy: Sha256
    ref: Ref  # ref of the original, if known
    task: Ref
    seed: Seed
    noise: Finite
    basis: Basis
    heads: IndexLists  # by layer: for each head of the copy, its index in the original
    neurons: IndexLists  # by layer: for each neuron of the copy, its index; [] without MLP
    # descriptions of other differences, such as folded gains or an untied unembedding
    changes: Annotated[list[Name], Meta(max_length=10_000)]
    checked: TokenCount  # answer tokens on which the copy was compared
    changed: TokenCount  # compared answer tokens that differ between copy and original
    difference: float  # largest logit difference, relative to the largest logit
    # names removed from the copy
    labels: Annotated[dict[Name, Any], Meta(max_length=3)]

    @property
    def faithful(self) -> bool:
        return self.changed == 0

    def __str__(self) -> str:
        same = f"{self.changed:,} of {self.checked:,} answer tokens differ from the original's"
        return f"{same}, logits by at most {self.difference:.1e} of the largest"

    def original_part(self, name: str) -> str:
        """Return the original's name of a part of the copy, such as "head 0.1" for "head 0.2"."""
        kind, at = components.parse_name(name)
        table = {"head": self.heads, "neuron": self.neurons}.get(kind)
        if table is None:
            return components.normalize_name(name)
        try:
            layer, index = at
            return f"{kind} {layer}.{table[layer][index]}"
        except (ValueError, IndexError):
            raise GlassformerError(f"{name}: expected {kind} LAYER.INDEX of the copy") from None

    def original_edges(self, claimed: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
        """Translate edges (writer, reader, …) of the copy to the part names of the original."""
        return [(self.original_part(e[0]), self.original_part(e[1]), *e[2:]) for e in claimed]

    def original_directions(self, directions: Any) -> Any:
        """Return directions [..., D] of the copy's stream in the original's basis."""
        return np.asarray(directions, dtype=float) @ np.array(self.basis).T

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **asdict(self), "faithful": self.faithful}

    @classmethod
    def from_json(cls, value: Any) -> "ObfuscationKey":
        name = value.get("format") if isinstance(value, Mapping) else value
        if name != FORMAT:
            raise value_error("key:", f"format {FORMAT}", name)
        if type(version := value.get("version")) is not int or version != VERSION:
            raise value_error("key:", f"version {VERSION}", version)
        convert(value.get("faithful", True), bool, "key.faithful")
        header = ("format", "version", "faithful")
        key = convert({n: v for n, v in value.items() if n not in header}, cls, "key")
        for name, names in key.labels.items():
            check_small(names, f"key.labels.{short_repr(name)}", 10**8)
        if any(len(row) != len(key.basis) for row in key.basis):
            raise GlassformerError("key.basis: expected a square matrix")
        return key


@dataclass(frozen=True)
class ObfuscatedModel(Displayable):
    """An obfuscated copy and its key: `copy, key = obfuscate(model)`."""

    model: Model
    key: ObfuscationKey

    def __iter__(self) -> Iterator[Any]:
        return iter((self.model, self.key))

    def save(self, out: str | Path, key: str | Path) -> None:
        """Write the copy as a checkpoint and the key as JSON, both files or neither."""
        check_ending(out, ".safetensors")
        check_ending(key, ".json")
        key_file = json_file(self.key.to_json())
        write_together({Path(out): to_bytes(self.model), Path(key): key_file})

    def __str__(self) -> str:
        return "\n".join([f"copy of {self.key.ref or 'a model'}: {self.key}", *self.key.changes])


def read_key(path: str | Path) -> ObfuscationKey:
    """Read the key of an obfuscated copy from a JSON file.

    Raises:
        GlassformerError: the file cannot be read or does not contain a valid key.
    """
    value = read_json(path, finite=False)  # the difference may be infinite
    try:
        return ObfuscationKey.from_json(value)
    except GlassformerError as e:
        raise GlassformerError(f"{path}: {e}") from None


def obfuscate(
    model: Model,
    seed: int = 0,
    *,
    rotate: bool = True,
    shuffle: bool = True,
    noise: float = 0.0,
    task: Task | None = None,
) -> ObfuscatedModel:
    """Return a copy of a model that computes the same function, and its key.

    `gf.obfuscate` documents the arguments. With LayerNorm, the basis keeps the ones vector. Heads
    and neurons are permuted within their layer; without `rotate`, also the dimensions of the
    stream. Noise is normal, with a standard deviation relative to the root mean square of its
    array. The copy is compared with the original on examples of the task, or on random tokens.

    Raises:
        GlassformerError: `noise`, `seed` or the model's size is out of range, the gains of a
            post-norm cannot be folded, or rounding changes an answer although `noise` is 0.
    """
    if not 0 <= noise <= MAX_NOISE:
        raise value_error("noise:", f"a number from 0 to {MAX_NOISE:g}", noise)
    check_int_range("obfuscate — d_model", model.config.d_model, 1, MAX_OBFUSCATED_D_MODEL)
    check_int_range("obfuscate — seed", seed, 0, MAX_SEED)
    original = model.numpy()
    rng = np.random.default_rng(seed)
    D, dtype = original.config.d_model, original.dtype
    copy = replace(original, labels=Labels(), provenance={}, parametrization="", theta={})
    copy, changes, M = copy.astype("float64"), list[str](), np.eye(D)
    if rotate or shuffle:
        copy = _fold_axis_aligned_parts(copy, changes)
        if not rotate:
            M = np.eye(D)[rng.permutation(D)]
        elif copy.config.norm == "layer":
            M = rotation_fixing_ones(D, rng)
        else:
            M = np.linalg.qr(rng.normal(size=(D, D)))[0]
        copy = rotate_stream(copy, M)
    copy, heads, neurons = _shuffle_heads_and_neurons(copy, rng, shuffle, changes)
    if noise:
        noisy = {
            n: w + noise * np.sqrt(np.mean(w * w)) * rng.normal(size=w.shape)
            for n, w in copy.weights.items()
            if w.size
        }
        copy = replace(copy, weights={**copy.weights, **noisy})
    copy = copy.astype(dtype)
    checked, changed, difference = compare_logits(original, copy, task)
    if changed and not noise:
        hint = "; shuffle without rotating it (rotate=False, --no-rotate)" if rotate else ""
        tokens = f"{changed:,} of {checked:,} answer tokens"
        reason = f"since the weights differ much in magnitude{hint}"
        raise GlassformerError(f"obfuscate: rounding in {dtype} changes {tokens}, {reason}")
    key = ObfuscationKey(
        original=digest(original), copy=digest(copy),
        ref=ascii_name(model.provenance.get("ref", "")), task=task_name(model), seed=seed,
        noise=noise, basis=M.tolist(), heads=heads, neurons=neurons,
        changes=changes, checked=checked, changed=changed, difference=difference,
        labels=to_jsonable(model.labels),
    )  # fmt: skip
    return ObfuscatedModel(copy, key)


def compare_logits(
    original: Model, copy: Model, task: Task | None = None, seed: int = 0
) -> tuple[int, int, float]:
    """Return the numbers of compared and changed answer tokens, and the largest logit difference.

    The difference is relative to the largest logit.
    """
    rng = np.random.default_rng(seed)
    if task is None:
        tokens = rng.integers(0, original.config.d_vocab, (100, min(original.config.n_ctx, 32)))
        answers, tie = np.ones(tokens.shape, dtype=bool), LOGIT_TIE
    else:
        edges = rng.permutation(task.edges())[:COMPARED_ROWS]
        rows = np.concatenate([edges, task.sample(COMPARED_ROWS, rng)])
        whole, answer = task.batch(rows[task.defined(rows)])
        tokens, answers, tie = whole[:, :-1], answer[:, 1:], 0.0
    with np.errstate(all="ignore"):  # non-finite logits count as changed
        a, b = (m.logits(tokens)[answers].astype(np.float64) for m in (original, copy))  # n V
        size = max(float(np.abs(a).max()), 1e-300)
        chosen = a[np.arange(len(a)), b.argmax(-1)]  # original logits of the copy's choices
        same = (chosen >= a.max(-1) - tie * size) & np.isfinite(b).all(-1)
        return len(a), int((~same).sum()), float(np.abs(a - b).max() / size)


def _shuffle_heads_and_neurons(
    model: Model, rng: np.random.Generator, shuffle: bool, changes: list[str]
) -> tuple[Model, list[list[int]], list[list[int]]]:
    """Return the model with heads and neurons permuted, and their original indices by layer."""
    c, w = model.config, dict(model.weights)
    shuffle_heads = shuffle and c.positions != "alibi"
    if shuffle and not shuffle_heads:
        changes.append("heads keep their order: the slope of ALiBi depends on their index")
    orders: dict[str, list[list[int]]] = {"attn": [], "mlp": []}
    for i in range(c.n_layers):
        n_neurons = c.d_mlp if model.has_mlp(i) else 0
        for module, n, permute in (("attn", c.n_heads, shuffle_heads), ("mlp", n_neurons, shuffle)):
            order = rng.permutation(n) if permute else np.arange(n)
            orders[module].append(order.tolist())
            for name, axis in SHUFFLED_AXES[module].items():
                if n and (full := f"blocks.{i}.{module}.{name}") in w:
                    w[full] = w[full].take(order, axis)
    return replace(model, weights=w), orders["attn"], orders["mlp"]


def _fold_axis_aligned_parts(model: Model, changes: list[str]) -> Model:
    """Replace sinusoidal positions by a table; fold norm gains and biases into their readers."""
    c, w = model.config, dict(model.weights)
    if c.positions == "sinusoidal":
        w["pos_embed.W_pos"] = position_table(model)
        c = replace(c, positions="learned")
        changes.append("sinusoidal positions are a table")
    norms = sorted({n.rpartition(".")[0] for n in w if n.rsplit(".", 2)[-2] in NORM_READERS})
    if c.norm == "none":  # without norms these arrays are unused
        w = {n: x for n, x in w.items() if n.rpartition(".")[0] not in norms}
        norms = []
    if norms and not c.norm_first:
        raise GlassformerError(f"obfuscate: gains of a post-norm cannot be folded: {norms[0]}")
    for ln in norms:
        gain, bias = w.pop(f"{ln}.w", None), w.pop(f"{ln}.b", None)
        if ln == "ln_final" and c.tied:
            w["unembed.W_U"] = w["embed.W_E"].T
            c = replace(c, tied=False)
            changes.append("the unembedding is no longer tied: the gains before it are folded in")
        block, dot, kind = ln.rpartition(".")
        for module, name in NORM_READERS[kind]:
            W, b = (f"{block}{dot}{module}.{x}_{name}" for x in "Wb")
            if W not in w:
                continue
            if bias is not None:
                w[b] = bias @ w[W] + w.get(b, 0.0)
            if gain is not None:
                w[W] = w[W] * gain[:, None]  # [..., D, x]
        changes.append(f"the gains of {ln} are folded into its readers")
    return replace(model, config=c, weights=w)
