"""Disguised copies of a model: the same function, with the answer no longer lying in the open.

A program's stream has a slot for every thing, its heads and neurons stand in order, and all have
names. `disguise` turns the basis of the stream, shuffles heads and neurons, may add noise, and
takes the names away. The Key has what is needed to undo this: with it, whatever somebody found in
the copy is said of the original, and can be scored.
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
from ..parametrizations.rotated import rotate as turned
from ..parametrizations.rotated import rotation_fixing_ones
from ..tasks.base import Task
from ..utils.errors import GlassformerError, ascii_name, short_repr
from ..utils.fileio import check_ending, write_together
from ..utils.limits import MAX_NOISE, MAX_OBFUSCATED_D_MODEL, MAX_SEED, check_int_range
from ..utils.results import Displayable, json_file, to_jsonable
from ..utils.typed_json import Finite, Name, Ref, Seed, Sha256, check_small, convert, read_json

FORMAT, VERSION = "glassformer-key", 1
COMPARED_ROWS = (
    1_000  # of a task, on which a copy is compared with its original; and as many edge cases
)
Index = Annotated[int, Meta(ge=0, le=2**31 - 1)]
IndexLists = Annotated[
    list[Annotated[list[Index], Meta(max_length=10_000_000)]], Meta(max_length=10_000)
]
# M [D,D]: a row x of the original's stream is x @ M in the copy
Basis = Annotated[
    list[Annotated[list[Finite], Meta(max_length=MAX_OBFUSCATED_D_MODEL)]],
    Meta(min_length=1, max_length=MAX_OBFUSCATED_D_MODEL),
]
TokenCount = Annotated[int, Meta(ge=0, le=10**12)]
LOGIT_TIE = 1e-9  # without a task: logits as near as this, relative to the largest, are alike
# Norm -> what reads it, the W_ and b_ of these.
NORM_READERS = {
    "ln1": [("attn", "Q"), ("attn", "K"), ("attn", "V")],
    "ln2": [("mlp", "in"), ("mlp", "gate")],
    "ln_final": [("unembed", "U")],
}


@dataclass(frozen=True)
class ObfuscationKey(Displayable):
    """Record of a disguise, which maps findings in the copy back to the original."""

    original: Sha256  # SHA-256 of the models
    copy: Sha256
    ref: Ref  # ref of the original, if known
    task: Ref
    seed: Seed
    noise: Finite
    basis: Basis
    heads: IndexLists  # layer -> for each head of the copy, its index in the original
    neurons: IndexLists  # the same for neurons; [] where a layer has none
    # other differences: folded gains, an untied head, …
    changes: Annotated[list[Name], Meta(max_length=10_000)]
    checked: TokenCount  # answer tokens on which the copy was compared
    changed: TokenCount  # of these, tokens where the copy answers differently
    difference: float  # the largest difference of logits, relative to the largest logit
    # the removed names
    labels: Annotated[dict[Name, Any], Meta(max_length=3)]

    @property
    def faithful(self) -> bool:
        return self.changed == 0

    def __str__(self) -> str:
        same = f"{self.changed:,} of {self.checked:,} answer tokens differ from the original's"
        return f"{same}, logits by at most {self.difference:.1e} of the largest"

    def original_part(self, name: str) -> str:
        """The original's part for a part of the copy: "head 0.2" -> "head 0.1"."""
        kind, at = components.parse_name(name)
        table = {"head": self.heads, "neuron": self.neurons}.get(kind)
        if table is None:
            return components.normalize_name(name)
        try:
            layer, index = at
            return f"{kind} {layer}.{table[layer][index]}"
        except (ValueError, IndexError):
            expected = f"expected {kind} LAYER.INDEX"
            raise GlassformerError(f"{name} — the copy has no such {kind}; {expected}") from None

    def original_edges(self, claimed: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
        """Edges (from, to, …) that were found in the copy, between the original's parts."""
        return [(self.original_part(e[0]), self.original_part(e[1]), *e[2:]) for e in claimed]

    def original_directions(self, directions: Any) -> Any:
        """Directions [..., D] of the copy's stream, as directions of the original's."""
        return np.asarray(directions, dtype=float) @ np.array(self.basis).T

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **asdict(self), "faithful": self.faithful}

    @classmethod
    def from_json(cls, value: Any) -> "ObfuscationKey":
        if not isinstance(value, Mapping) or value.get("format") != FORMAT:
            raise GlassformerError("key — not the key of a disguised model")
        if type(version := value.get("version")) is not int or version != VERSION:
            raise GlassformerError(f"key — version {short_repr(version)}; this one reads {VERSION}")
        convert(value.get("faithful", True), bool, "key.faithful")
        about = ("format", "version", "faithful")
        key = convert({n: v for n, v in value.items() if n not in about}, cls, "key")
        for name, names in key.labels.items():
            check_small(names, f"key.labels.{short_repr(name)}", 10**8)
        if any(len(row) != len(key.basis) for row in key.basis):
            raise GlassformerError("key — its basis is not square")
        return key


@dataclass(frozen=True)
class ObfuscatedModel(Displayable):
    """A copy that hides how it works, and the key to it: `copy, key = disguise(model)`."""

    model: Model
    key: ObfuscationKey

    def __iter__(self) -> Iterator[Any]:
        return iter((self.model, self.key))

    def save(self, out: str | Path, key: str | Path) -> None:
        """Writes both, the copy as a checkpoint and the key as JSON; or neither."""
        check_ending(out, ".safetensors")
        check_ending(key, ".json")
        told = json_file(self.key.to_json())
        write_together({Path(out): to_bytes(self.model), Path(key): told})

    def __str__(self) -> str:
        return "\n".join([f"a copy of {self.key.ref or 'a model'}: {self.key}", *self.key.changes])


def read_key(path: str | Path) -> ObfuscationKey:
    """The key that a file holds."""
    found = read_json(path, finite=False)  # a difference may be infinite
    try:
        return ObfuscationKey.from_json(found)
    except GlassformerError as e:
        raise GlassformerError(f"{path} — {e}") from None


def obfuscate(
    model: Model, seed: int = 0, *, rotate: bool = True, shuffle: bool = True, noise: float = 0.0,
    task: Task | None = None,
) -> ObfuscatedModel:  # fmt: skip
    """A copy that computes the same, without names and in another basis, and the key to it.

    `rotate`: the stream is written in a random orthogonal basis (under LayerNorm, one that keeps
    the ones vector). `shuffle`: heads and neurons are permuted within their layer; without
    `rotate`, so are the stream's coordinates. `noise`: normal noise on every weight, as a share of
    the root mean square of its array. `task`: the copy is compared with its original on examples of
    it (else on random tokens). If it was to be the same function, and rounding makes a difference,
    there is no copy but an error that says so.
    """
    if not 0 <= noise <= MAX_NOISE:
        raise GlassformerError(f"noise — expected a number from 0 to {MAX_NOISE:g}, got {noise}")
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
        copy = turned(copy, M)
    copy, heads, neurons = _shuffle_heads_and_neurons(copy, rng, shuffle, changes)
    if noise:
        full = {n: w for n, w in copy.weights.items() if w.size}
        sizes = {n: noise * np.sqrt(np.mean(w * w)) for n, w in full.items()}
        noisy = {n: w + sizes[n] * rng.normal(size=w.shape) for n, w in full.items()}
        copy = replace(copy, weights={**copy.weights, **noisy})
    copy = copy.astype(dtype)
    checked, changed, difference = compare_logits(original, copy, task)
    if changed and not noise:
        shuffled = "it can be shuffled, without rotating it (rotate=False, --no-rotate)"
        raise GlassformerError(
            f"obfuscate — the copy is not the same function in {dtype}: {changed:,} of {checked:,} "
            "answer tokens change, since its numbers are of too different sizes to be mixed; "
            + (shuffled if rotate else "it has no copy")
        )
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
    """Answer tokens compared, how many the copy chooses otherwise, and how far logits differ."""
    rng = np.random.default_rng(seed)
    if task is None:
        tokens = rng.integers(0, original.config.d_vocab, (100, min(original.config.n_ctx, 32)))
        asked, tie = np.ones(tokens.shape, dtype=bool), LOGIT_TIE
    else:
        rows = np.concatenate(
            [rng.permutation(task.edges())[:COMPARED_ROWS], task.sample(COMPARED_ROWS, rng)]
        )
        whole, answer = task.batch(rows[task.defined(rows)])
        tokens, asked, tie = whole[:, :-1], answer[:, 1:], 0.0
    with np.errstate(all="ignore"):  # what is not finite counts as changed
        a, b = (m.logits(tokens)[asked].astype(np.float64) for m in (original, copy))  # n V
        size = max(float(np.abs(a).max()), 1e-300)
        chosen = a[np.arange(len(a)), b.argmax(-1)]  # in the original, what the copy chooses
        same = (chosen >= a.max(-1) - tie * size) & np.isfinite(b).all(-1)
        return len(a), int((~same).sum()), float(np.abs(a - b).max() / size)


def _shuffle_heads_and_neurons(
    model: Model, rng: np.random.Generator, shuffle: bool, changes: list[str]
) -> tuple[Model, list[list[int]], list[list[int]]]:
    """The model with heads and neurons permuted; new index -> old index, by layer."""
    c, w = model.config, dict(model.weights)
    heads, neurons = [], []
    tied_to_place = c.positions == "alibi"  # the slope of a head is a matter of its index
    if shuffle and tied_to_place:
        changes.append("heads keep their order: alibi gives each a slope by its index")
    for i in range(c.n_layers):
        at = f"blocks.{i}."
        mixed = shuffle and not tied_to_place
        order = rng.permutation(c.n_heads) if mixed else np.arange(c.n_heads)
        for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
            if (full := f"{at}attn.{name}") in w:
                w[full] = w[full][order]  # H first
        heads.append([int(h) for h in order])
        there = c.d_mlp if model.has_mlp(i) else 0
        order = rng.permutation(there) if shuffle else np.arange(there)
        for name in ("W_in", "b_in", "W_gate", "b_gate", "W_out"):
            if there and (full := f"{at}mlp.{name}") in w:
                w[full] = w[full][order] if name == "W_out" else w[full][..., order]  # F
        neurons.append([int(f) for f in order])
    return replace(model, weights=w), heads, neurons


# ── what is tied to the axes of the stream ─────────────────────────────────────────────────────
def _fold_axis_aligned_parts(model: Model, changes: list[str]) -> Model:
    """The same function without sinusoids; gains and biases of norms are in what reads them."""
    c, w = model.config, dict(model.weights)
    if c.positions == "sinusoidal":
        w["pos_embed.W_pos"] = position_table(model)
        c = replace(c, positions="learned")
        changes.append("sinusoidal positions became a table")
    norms = sorted({n.rpartition(".")[0] for n in w if n.rsplit(".", 2)[-2] in NORM_READERS})
    if c.norm == "none":  # nobody reads what is there
        w = {n: x for n, x in w.items() if n.rpartition(".")[0] not in norms}
        norms = []
    if norms and not c.norm_first:
        why = "gains of norms after the sum are part of the stream's axes"
        raise GlassformerError(f"obfuscate — {norms[0]}: {why}")
    for ln in norms:
        gain, bias = w.pop(f"{ln}.w", None), w.pop(f"{ln}.b", None)
        if ln == "ln_final" and c.tied:
            w["unembed.W_U"] = w["embed.W_E"].T
            c = replace(c, tied=False)
            changes.append("the head is no longer tied: the gains before it are in it")
        place, dot, kind = ln.rpartition(".")
        for room, name in NORM_READERS[kind]:
            W, b = (f"{place}{dot}{room}.{x}_{name}" for x in "Wb")
            if W not in w:
                continue
            if bias is not None:
                w[b] = bias @ w[W] + w.get(b, 0.0)
            if gain is not None:
                w[W] = w[W] * gain[:, None]  # [..., D, x]
        changes.append(f"{ln}'s gains are in what reads it")
    return replace(model, config=c, weights=w)
