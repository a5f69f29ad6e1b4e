"""Ground truth of a model: the slots each head and neuron reads and writes, and the edges.

Names come from the labels of the model. All other fields are derived from the weights (the
possible flow) or measured on examples (the actual flow). docs/ground-truth.md documents the
schema. Increase `VERSION` when the schema changes.
"""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ..compiler.task import task_name
from ..core import components as parts
from ..core.backend import Array
from ..core.checkpoint import digest
from ..core.hooks import ActivationCache, record
from ..core.model import Model, Scope, apply_gain_and_bias
from ..lens.stream import embedded_stream
from ..tasks.base import Task
from ..utils.argcheck import as_text, validate_method
from ..utils.errors import GlassformerError, unknown_name_error
from ..utils.fileio import check_ending, write_atomically
from ..utils.limits import MAX_COMPARED_HEADS, MAX_SEED, check_int_range
from ..utils.numfmt import stable_argsort
from ..utils.results import Result, json_file
from . import wiring
from .wiring import Slots

FORMAT, VERSION = "glassformer-truth", 1
SHARP_ATTENTION = 0.99  # a row with a weight of at least this attends to one position
MIN_LISTED_ATTENTION = 0.01  # smallest mean attention weight in the report
MIN_LOGIT_SHIFT = 1e-9  # smaller logit changes, relative to the largest logit, are rounding
JsonRecords = list[dict[str, Any]]


@dataclass(frozen=True)
class Edge(Result):
    """An edge of the circuit: the output of `writer` affects `port` of `reader` (see wiring.py)."""

    extra_json_fields = ("matters",)
    writer: str
    reader: str
    port: str
    via: dict[str, float]  # slot -> norm of the product of both parts' weights in that slot
    shift: float  # largest logit change when the edge is cut, relative to the largest logit
    changed: float  # share of answer tokens that change when the edge is cut

    @property
    def matters(self) -> bool:
        return not self.shift <= MIN_LOGIT_SHIFT  # NaN matters


@dataclass(frozen=True)
class GroundTruth(Result):
    """The known circuit of a model: slots, heads, neurons and edges, as JSON-serializable data."""

    model: str  # SHA-256 digest of the model
    ref: str
    task: str
    named: bool  # whether the model names its slots; otherwise the stream is one slot
    inputs: str  # description of the measured inputs
    d_model: int
    parts: list[str]  # names of the parts, as defined in wiring.py
    slots: JsonRecords
    heads: JsonRecords
    neurons: JsonRecords
    flow: JsonRecords  # edges part → slot and slot → part; an MLP is one part
    needed: list[str]  # parts with a path to the logits
    idle: list[str]  # parts without a path to the logits
    edges: list[Edge]  # edges between parts

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION} | super().to_json()

    def save(self, path: str | Path) -> Path:
        """Write the ground truth as JSON."""
        check_ending(file := as_text(path, "path", "a path"), ".json")
        return write_atomically(file, json_file(self.to_json()))

    def __str__(self) -> str:
        kinds = {"slots": self.slots, "heads": self.heads, "neurons": self.neurons}
        counts = [f"{len(records):,} {kind}" for kind, records in kinds.items() if records]
        matter = sum(e.matters for e in self.edges)
        counts.append(f"{len(self.edges):,} edges ({matter:,} matter)")
        name = self.ref or self.task or "model"
        return f"{name}: {', '.join(counts)}; measured on {self.inputs}"

    @validate_method
    def directions(self, slot: str) -> Any:
        """Return an orthonormal basis [n, D] of the subspace written to a slot."""
        slots = {s["name"]: s for s in self.slots}
        if slot not in slots:
            raise unknown_name_error("slot", slot, list(slots))
        s = slots[slot]
        basis = np.zeros((len(s["basis"]), self.d_model))
        basis[:, s["start"] : s["stop"]] = s["basis"]
        return basis


def measure_ground_truth(model: Model, task: Task | None = None, *, seed: int = 0) -> GroundTruth:
    """Return the ground truth of a model. `gf.ground_truth` documents the arguments.

    Without slot names, as in a trained model, the stream is one slot.

    Raises:
        GlassformerError: the task has another vocabulary, slots overlap, or there are too many
            heads.
    """
    model = model.numpy()
    if task is not None:
        task.require(model.vocabulary)
    check_int_range("ground_truth — seed", seed, 0, MAX_SEED)
    n_heads = model.config.n_layers * model.config.n_heads
    check_int_range("ground_truth — number of heads", n_heads, 0, MAX_COMPARED_HEADS)
    slots = named_slots(model)
    tokens, valid, answers, inputs = _examples(model, task, seed)
    with np.errstate(all="ignore"):  # programs may overflow at positions without an answer
        logits, cache = record(model, tokens)
        edges = _edges(model, slots, tokens, answers, logits)
        heads = _heads(model, slots, cache, valid, answers)
        neurons, flow = _neurons(model, slots, cache, valid), _flow(model, slots, cache, valid)
    needed, names = _parts_reaching_logits(edges), parts.component_names(model, embeddings=True)
    return GroundTruth(
        model=digest(model), ref=model.name if model.provenance.get("ref") else "",
        task=task_name(model),
        named=bool(model.labels.slots), inputs=inputs, d_model=model.config.d_model, parts=names,
        slots=_slots(model, slots), heads=heads, neurons=neurons, flow=flow, edges=edges,
        needed=[p for p in names if p in needed], idle=[p for p in names if p not in needed],
    )  # fmt: skip


def named_slots(model: Model) -> Slots:
    """Return the named slots, with the gaps between them as "rest […]", or one slot "stream"."""
    D, named = model.config.d_model, sorted(model.labels.slots.items(), key=lambda s: s[1])
    if not named:
        return parts.slots_or_stream(model)
    slots, end = Slots(), 0
    for name, (a, b) in [*named, ("", (D, D))]:
        if a < end:
            raise GlassformerError(f"slot {name!r}: expected a start from {end}, got {a} (overlap)")
        if a > end:
            slots[f"rest [{end}:{a}]"] = (end, a)
        if b > a:
            slots[name] = (a, b)
        end = b
    return slots


def _examples(model: Model, task: Task | None, seed: int) -> tuple[Any, Any, Any, str]:
    """Return tokens, two masks of positions [B,T], and a description of the inputs.

    The first mask selects positions with an answer token anywhere after them. The second selects
    positions directly before an answer token. Without a task both masks select every position.
    """
    rng, c = np.random.default_rng(seed), model.config
    T = min(c.n_ctx, 32) if task is None else task.batch(task.rows(0, 1))[0].shape[1]
    widest = T * max(c.d_mlp, c.d_vocab, c.n_heads * T, c.n_heads * c.d_head, c.d_model)
    n = int(np.clip(2**22 // widest, 8, 256))  # limits activations to tens of megabytes
    if task is None:
        tokens = rng.integers(0, c.d_vocab, (n, T))
        everywhere = np.ones(tokens.shape, dtype=bool)
        return tokens, everywhere, everywhere, f"{n} rows of random tokens, seed {seed}"
    rows = np.concatenate([rng.permutation(task.edges())[: n // 4], task.sample(n, rng)])
    rows = rng.permutation(rows[task.defined(rows)])[:n]
    whole, answer = task.batch(rows)
    answers = answer[:, 1:]
    valid = np.cumsum(answers[:, ::-1], 1)[:, ::-1] > 0  # an answer token follows
    inputs = f"{len(rows)} examples of {task.ref}, edge cases among them, seed {seed}"
    return whole[:, :-1], valid, answers, inputs


# ── edges and flow ─────────────────────────────────────────────────────────────────────────────
def _edges(model: Model, slots: Slots, tokens: Array, answers: Array, logits: Array) -> list[Edge]:
    rows = slice(0, max(8, len(tokens) // 4))
    before = logits[rows][answers[rows]]  # n V
    size, edges = max(float(np.abs(before).max()), 1e-300), []
    for writer, reader, port, via in wiring.find_edges(model, slots):
        cut = wiring.CutEdges(model, [(writer, reader, port)])
        after = model.logits(tokens[rows], cut)[answers[rows]]
        shift = float(np.abs(after - before).max() / size)
        changed = float((after.argmax(-1) != before.argmax(-1)).mean())
        edges.append(Edge(writer, reader, port, via, shift, changed))
    return edges


def _parts_reaching_logits(edges: list[Edge]) -> set[str]:
    needed, n = {"unembed"}, 0
    while len(needed) > n:
        n = len(needed)
        needed |= {e.writer for e in edges if e.reader in needed}
    return needed


def _flow(model: Model, slots: Slots, cache: ActivationCache, valid: Array) -> JsonRecords:
    """Return the edges between parts and slots, with weight norms and the RMS of the signal."""
    flow = JsonRecords()

    def add(source: str, to: str, port: str, weights: Array, signal: Array) -> None:
        sizes = {"weight": float(np.linalg.norm(weights)), "signal": _rms(signal)}
        flow.append({"from": source, "to": to, "port": port, **sizes})

    for sublayer in wiring.sublayers(model):
        for r in sublayer.readers:
            stream = _stream_read_by(model, cache, sublayer)  # B T D
            for name, (a, b) in slots.items():
                if r.columns[a:b].any():
                    signal = (stream[..., a:b] @ r.W[a:b])[valid]
                    add(parts.slot_name(name), r.part, r.port, r.columns[a:b], signal)
        for x in sublayer.writers:
            output = x.contribution(cache[x.hook])
            output = np.broadcast_to(output, (*valid.shape, model.config.d_model))
            for name, (a, b) in slots.items():
                if x.rows[:, a:b].any():
                    signal = output[..., a:b][valid]
                    add(x.part, parts.slot_name(name), "out", x.rows[:, a:b], signal)
    return flow


def _stream_read_by(model: Model, cache: ActivationCache, sublayer: wiring.Sublayer) -> Any:
    """Return the stream [B,T,D] that a sublayer reads, after the norm in a pre-norm model."""
    if model.config.norm_first and model.config.norm != "none":
        at = Scope(model.weights, None) / sublayer.norm
        return apply_gain_and_bias(at, cache[f"{sublayer.norm}.hook_normalized"])
    return cache[sublayer.stream] if sublayer.stream else embedded_stream(cache)


def _rms(x: Array) -> float | None:
    """Return the root mean square of the row norms, or None if it is not finite (for JSON)."""
    size = float(np.sqrt(np.mean(np.sum(np.square(x, dtype=np.float64), -1)))) if len(x) else 0.0
    return size if np.isfinite(size) else None


# ── slots, heads and neurons ───────────────────────────────────────────────────────────────────
def _slots(model: Model, slots: Slots) -> JsonRecords:
    sublayers, records = wiring.sublayers(model), []
    for name, (a, b) in slots.items():
        writers = [x for s in sublayers for x in s.writers if x.rows[:, a:b].any()]
        readers = [r.part for s in sublayers for r in s.readers if r.columns[a:b].any()]
        basis = np.zeros((0, b - a))
        if writers:
            rows = [x.rows[:, a:b] / np.abs(x.rows[:, a:b]).max() for x in writers]
            _, s, Vt = np.linalg.svd(np.concatenate(rows).astype(np.float64), full_matrices=False)
            basis = Vt[: int((s > 1e-9 * s[0]).sum())]
        records.append({
            "name": name, "start": a, "stop": b, "rank": len(basis), "basis": basis.tolist(),
            "written_by": [x.part for x in writers], "read_by": list(dict.fromkeys(readers)),
        })  # fmt: skip
    return records


def _heads(
    model: Model, slots: Slots, cache: ActivationCache, valid: Array, answers: Array
) -> JsonRecords:
    c, records = model.config, []
    for i, h in np.ndindex(c.n_layers, c.n_heads):
        used = answers if i == c.n_layers - 1 else valid  # positions that can affect an answer
        name, (W_Q, W_K, W_V, W_O) = parts.head_name(i, h), wiring.active_head_weights(model, i, h)
        records.append({
            "part": name, "name": parts.label_of(model, name), "query": _by_slot(W_Q, slots),
            "key": _by_slot(W_K, slots), "value": _by_slot(W_V, slots),
            "output": _by_slot(W_O.T, slots), "copies": _slot_products(W_V, W_O, slots),
            "matches": [] if c.positions == "rotary" else _slot_products(W_Q, W_K.T, slots),
            "attention": _attention_summary(cache[f"blocks.{i}.attn.hook_pattern"][:, h], used),
        })  # fmt: skip
    return records


def _by_slot(W: Array, slots: Slots) -> dict[str, float]:
    """Return the nonzero norms of the rows of W [D,n], by slot."""
    return {name: float(np.linalg.norm(W[a:b])) for name, (a, b) in slots.items() if W[a:b].any()}


def _slot_products(left: Any, right: Any, slots: Slots) -> JsonRecords:
    """Return the nonzero norms of left [D,K] @ right [K,D], by pair of slots."""
    records = []
    for (source, (a, b)), (target, (p, q)) in product(slots.items(), repeat=2):
        if size := wiring.product_norm(left[a:b], right[:, p:q]):
            records.append({"from": source, "to": target, "weight": size})
    return records


def _attention_summary(pattern: Array, used: Any) -> dict[str, Any]:
    """Summarize the attention pattern [B,T,S] of a head at the `used` positions [B,T]."""
    if not used.any():
        return {"kind": "unused", "fixed": True, "sharp": 0.0, "rows": []}
    choice = used.copy()
    choice[:, 0] &= not used[:, 1:].any()  # the first position can only attend to itself
    sharp = float((pattern[choice].max(-1) >= SHARP_ATTENTION).mean())
    listed, fixed = [], True
    for t in np.nonzero(used.any(0))[0]:
        mean = pattern[used[:, t], t].mean(0)  # S
        fixed &= bool(np.abs(pattern[used[:, t], t] - mean).max() < MIN_LISTED_ATTENTION)
        top = stable_argsort(mean.round(9))[:16].tolist()
        keys = [[s, round(float(mean[s]), 6)] for s in top if mean[s] >= MIN_LISTED_ATTENTION]
        listed.append({"query": int(t), "keys": keys})
    kind = "hard" if sharp >= SHARP_ATTENTION else "mixed"
    kind = "soft" if sharp <= 1 - SHARP_ATTENTION else kind
    return {"kind": kind, "fixed": fixed, "sharp": sharp, "rows": listed}


def _neurons(model: Model, slots: Slots, cache: ActivationCache, valid: Array) -> JsonRecords:
    records = []
    for i in model.mlp_layers:
        ins, out = wiring.active_mlp_weights(model, i)
        fires = (np.abs(cache[f"blocks.{i}.mlp.hook_post"][valid]) > 1e-12).mean(0)  # F
        reads, writes = {}, {}
        for slot, (a, b) in slots.items():
            reads[slot] = np.sqrt(sum(np.square(W[a:b]).sum(0) for W in ins.values()))
            writes[slot] = np.linalg.norm(out[:, a:b], axis=1)
        for f in range(model.config.d_mlp):
            name = parts.neuron_name(i, f)
            records.append(
                {
                    "part": name,
                    "name": parts.label_of(model, name),
                    "reads": {n: float(x[f]) for n, x in reads.items() if x[f]},
                    "writes": {n: float(x[f]) for n, x in writes.items() if x[f]},
                    "fires": float(fires[f]),
                }
            )
    return records
