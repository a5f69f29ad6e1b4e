"""Ground truth as data: which head, slot and neuron computes what, and from what.

Names come from the program's labels; everything else is derived from the weights (what can flow)
and measured on examples of the task (what does flow). Others can score their methods against it,
see grading.py. The schema is in docs/ground-truth.md; `VERSION` changes when it does.
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
from ..utils.argcheck import as_text
from ..utils.errors import GlassformerError, unknown_name_error
from ..utils.fileio import check_ending, write_atomically
from ..utils.limits import MAX_COMPARED_HEADS, MAX_SEED, check_int_range
from ..utils.numfmt import stable_argsort
from ..utils.results import Result, json_file
from . import wiring
from .wiring import Slots

FORMAT, VERSION = "glassformer-truth", 1
SHARP_ATTENTION = 0.99  # an attention weight from which a row looks at one position
MIN_LISTED_ATTENTION = 0.01  # mean attention weights below this are not listed
MIN_LOGIT_SHIFT = 1e-9  # a change of logits, relative to the largest, above rounding
JsonRecords = list[dict[str, Any]]


@dataclass(frozen=True)
class Edge(Result):
    """What the writer adds to the stream can be seen at the reader's port (see wiring.py)."""

    extra_json_fields = ("matters",)
    writer: str
    reader: str
    port: str
    via: dict[str, float]  # slot -> norm of writer's rows times reader's columns there
    # the largest change of an answer's logits if this edge is cut, relative to the largest logit
    shift: float
    changed: float  # the share of answer tokens that change then

    @property
    def matters(self) -> bool:
        return not self.shift <= MIN_LOGIT_SHIFT  # NaN matters


@dataclass(frozen=True)
class GroundTruth(Result):
    """What is known of a model. All of it is plain data."""

    model: str  # SHA-256
    ref: str
    task: str
    named: bool  # whether the slots have names; if not, the whole stream is one slot
    inputs: str  # what was measured on
    d_model: int
    parts: list[str]  # see wiring.py
    slots: JsonRecords
    heads: JsonRecords
    neurons: JsonRecords
    flow: JsonRecords  # part → slot and slot → part, MLPs as a whole
    needed: list[str]  # parts with a way to the logits
    idle: list[str]  # parts without one
    edges: list[Edge]  # part → part

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION} | super().to_json()

    def save(self, path: str | Path) -> Path:
        """Writes all of it as JSON."""
        check_ending(file := as_text(path, "path", "a path"), ".json")
        return write_atomically(file, json_file(self.to_json()))

    def __str__(self) -> str:
        count = {"slots": self.slots, "heads": self.heads, "neurons": self.neurons}
        there = ", ".join(f"{len(found):,} {what}" for what, found in count.items() if found)
        matter = sum(e.matters for e in self.edges)
        edges = f"{len(self.edges):,} edges, {matter:,} of which matter"
        name = self.ref or self.task or "model"
        return f"{name}: {there or 'nothing'}, {edges}; measured on {self.inputs}"

    def directions(self, slot: str) -> Any:
        """An orthonormal basis [n, D] of what is written to a slot."""
        found = next((s for s in self.slots if s["name"] == slot), None)
        if found is None:
            raise unknown_name_error("slot", slot, [s["name"] for s in self.slots])
        basis = np.zeros((len(found["basis"]), self.d_model))
        basis[:, found["start"] : found["stop"]] = found["basis"]
        return basis


def measure_ground_truth(model: Model, task: Task | None = None, *, seed: int = 0) -> GroundTruth:
    """What is known of a model; measured on examples of the task, or on random tokens without one.

    A model without slot names (a trained one) has a truth too: its stream is one slot, and `named`
    is False.
    """
    model = model.numpy()
    if task is not None:
        task.require(model.vocabulary)
    check_int_range("ground_truth — seed", seed, 0, MAX_SEED)
    check_int_range(
        "ground_truth — the number of heads",
        model.config.n_layers * model.config.n_heads,
        0,
        MAX_COMPARED_HEADS,
    )
    slots = named_slots(model)
    tokens, valid, asked, inputs = _examples(model, task, seed)
    with np.errstate(all="ignore"):  # a program may overflow where nobody asks
        logits, cache = record(model, tokens)
        edges = _edges(model, slots, tokens, asked, logits)
        heads = _heads(model, slots, cache, valid, asked)
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
    """The named slots, and what they leave over as "rest"; or one slot "stream"."""
    D, named = model.config.d_model, sorted(model.labels.slots.items(), key=lambda s: s[1])
    if not named:
        return parts.slots_or_stream(model)
    slots, end = Slots(), 0
    for name, (a, b) in [*named, ("", (D, D))]:
        if a < end:
            where = f"{name!r} begins at {a}, before another's end at {end}"
            raise GlassformerError(f"ground_truth — slots overlap: {where}")
        if a > end:
            slots[f"rest [{end}:{a}]"] = (end, a)
        if b > a:
            slots[name] = (a, b)
        end = b
    return slots


def _examples(model: Model, task: Task | None, seed: int) -> tuple[Any, Any, Any, str]:
    """Tokens to read, which are there, which have an answer after them ([B,T] each); in words."""
    rng, c = np.random.default_rng(seed), model.config
    T = min(c.n_ctx, 32) if task is None else task.batch(task.rows(0, 1))[0].shape[1]
    widest = T * max(c.d_mlp, c.d_vocab, c.n_heads * T, c.n_heads * c.d_head, c.d_model)
    n = int(np.clip(2**22 // widest, 8, 256))  # tens of megabytes
    if task is None:
        tokens = rng.integers(0, c.d_vocab, (n, T))
        everywhere = np.ones(tokens.shape, dtype=bool)
        return tokens, everywhere, everywhere, f"{n} rows of random tokens, seed {seed}"
    rows = np.concatenate([rng.permutation(task.edges())[: n // 4], task.sample(n, rng)])
    rows = rng.permutation(rows[task.defined(rows)])[:n]
    whole, answer = task.batch(rows)
    asked = answer[:, 1:]
    valid = np.cumsum(asked[:, ::-1], 1)[:, ::-1] > 0  # an answer is still to come
    inputs = f"{len(rows)} examples of {task.ref}, edge cases among them, seed {seed}"
    return whole[:, :-1], valid, asked, inputs


# ── what can flow, and what does ───────────────────────────────────────────────────────────────
def _edges(model: Model, slots: Slots, tokens: Array, asked: Array, logits: Array) -> list[Edge]:
    rows = slice(0, max(8, len(tokens) // 4))
    before = logits[rows][asked[rows]]  # n V
    size, found = max(float(np.abs(before).max()), 1e-300), []
    for writer, reader, port, via in wiring.find_edges(model, slots):
        tap = wiring.CutEdges(model, [(writer, reader, port)])
        after = model.logits(tokens[rows], tap)[asked[rows]]
        shift = float(np.abs(after - before).max() / size)
        changed = float((after.argmax(-1) != before.argmax(-1)).mean())
        found.append(Edge(writer, reader, port, via, shift, changed))
    return found


def _parts_reaching_logits(edges: list[Edge]) -> set[str]:
    """Parts from which edges lead to the logits."""
    needed, todo = {"unembed"}, ["unembed"]
    while todo:
        reader = todo.pop()
        new = {e.writer for e in edges if e.reader == reader} - needed
        needed |= new
        todo += new
    return needed


def _flow(model: Model, slots: Slots, cache: ActivationCache, valid: Array) -> JsonRecords:
    """Edges between parts and slots: the norm of the weights, and how much flows (_rms)."""
    flow = JsonRecords()

    def add(source: str, to: str, port: str, weights: Array, signal: Array) -> None:
        size = float(np.linalg.norm(weights))
        edge = {"from": source, "to": to, "port": port, "weight": size, "signal": _rms(signal)}
        flow.append(edge)

    for stage in wiring.sublayers(model):
        for r in stage.readers:
            seen = _stream_read_by(model, cache, stage)  # B T D
            for name, (a, b) in slots.items():
                if r.columns[a:b].any():
                    signal = (seen[..., a:b] @ r.W[a:b])[valid]
                    add(parts.slot_name(name), r.part, r.port, r.columns[a:b], signal)
        for x in stage.writers:
            wrote = np.broadcast_to(
                x.contribution(cache[x.hook]), (*valid.shape, model.config.d_model)
            )
            for name, (a, b) in slots.items():
                if x.rows[:, a:b].any():
                    add(
                        x.part, parts.slot_name(name), "out", x.rows[:, a:b], wrote[..., a:b][valid]
                    )
    return flow


def _stream_read_by(model: Model, cache: ActivationCache, stage: wiring.Sublayer) -> Any:
    """The stream as the parts of a stage read it, [B,T,D]."""
    if model.config.norm_first and model.config.norm != "none":
        at = Scope(model.weights, None) / stage.norm
        return apply_gain_and_bias(at, cache[f"{stage.norm}.hook_normalized"])
    return cache[stage.stream] if stage.stream else embedded_stream(cache)


def _rms(x: Array) -> float | None:
    """The root mean square of the norms of rows; None, for JSON, if it is not finite."""
    size = float(np.sqrt(np.mean(np.sum(np.square(x, dtype=np.float64), -1)))) if len(x) else 0.0
    return size if np.isfinite(size) else None


# ── one by one ─────────────────────────────────────────────────────────────────────────────────
def _slots(model: Model, slots: Slots) -> JsonRecords:
    stages, found = wiring.sublayers(model), []
    for name, (a, b) in slots.items():
        writers = [x for s in stages for x in s.writers if x.rows[:, a:b].any()]
        readers = [r.part for s in stages for r in s.readers if r.columns[a:b].any()]
        basis = np.zeros((0, b - a))
        if writers:
            rows = [x.rows[:, a:b] / np.abs(x.rows[:, a:b]).max() for x in writers]
            _, s, Vt = np.linalg.svd(np.concatenate(rows).astype(np.float64), full_matrices=False)
            basis = Vt[: int((s > 1e-9 * s[0]).sum())]
        found.append({
            "name": name, "start": a, "stop": b, "rank": len(basis), "basis": basis.tolist(),
            "written_by": [x.part for x in writers], "read_by": list(dict.fromkeys(readers)),
        })  # fmt: skip
    return found


def _heads(
    model: Model, slots: Slots, cache: ActivationCache, valid: Array, asked: Array
) -> JsonRecords:
    c, found = model.config, []
    for i, h in np.ndindex(c.n_layers, c.n_heads):
        used = asked if i == c.n_layers - 1 else valid  # where something may still come of it
        name, (W_Q, W_K, W_V, W_O) = parts.head_name(i, h), wiring.active_head_weights(model, i, h)
        found.append({
            "part": name, "name": parts.label_of(model, name), "query": _by_slot(W_Q, slots),
            "key": _by_slot(W_K, slots), "value": _by_slot(W_V, slots),
            "output": _by_slot(W_O.T, slots), "copies": _slot_products(W_V, W_O, slots),
            "matches": [] if c.positions == "rotary" else _slot_products(W_Q, W_K.T, slots),
            "attention": _attention_summary(cache[f"blocks.{i}.attn.hook_pattern"][:, h], used),
        })  # fmt: skip
    return found


def _by_slot(W: Array, slots: Slots) -> dict[str, float]:
    """Slot -> norm of the rows of W [D,n] there, where it is not 0."""
    return {name: float(np.linalg.norm(W[a:b])) for name, (a, b) in slots.items() if W[a:b].any()}


def _slot_products(left: Any, right: Any, slots: Slots) -> JsonRecords:
    """left [D,K] times right [K,D], by pairs of slots: which is copied to (or meets) which."""
    found = []
    for (source, (a, b)), (target, (p, q)) in product(slots.items(), repeat=2):
        size = float(np.linalg.norm(left[a:b] @ right[:, p:q]))
        most = float(np.linalg.norm(left[a:b]) * np.linalg.norm(right[:, p:q]))
        if size > wiring.rounding_tolerance(left) * most:
            found.append({"from": source, "to": target, "weight": size})
    return found


def _attention_summary(pattern: Array, used: Any) -> dict[str, Any]:
    """Where a head looks. pattern [B,T,S]; used [B,T]: the rows that count."""
    if not used.any():
        return {"kind": "unused", "fixed": True, "sharp": 0.0, "rows": []}
    choice = used.copy()
    choice[:, 0] &= not used[:, 1:].any()  # the first sees itself alone, which says nothing
    sharp = float((pattern[choice].max(-1) >= SHARP_ATTENTION).mean())
    listed, fixed = [], True
    for t in np.nonzero(used.any(0))[0]:
        mean = pattern[used[:, t], t].mean(0)  # S
        fixed &= bool(
            np.abs(pattern[used[:, t], t] - mean).max() < MIN_LISTED_ATTENTION
        )  # whatever the input
        top = [
            int(s) for s in stable_argsort(mean.round(9))[:16] if mean[s] >= MIN_LISTED_ATTENTION
        ]
        listed.append({"query": int(t), "keys": [[s, round(float(mean[s]), 6)] for s in top]})
    kind = (
        "hard" if sharp >= SHARP_ATTENTION else "soft" if sharp <= 1 - SHARP_ATTENTION else "mixed"
    )
    return {"kind": kind, "fixed": fixed, "sharp": sharp, "rows": listed}


def _neurons(model: Model, slots: Slots, cache: ActivationCache, valid: Array) -> JsonRecords:
    found = []
    for i in model.mlp_layers:
        ins, out = wiring.active_mlp_weights(model, i)
        fires = (np.abs(cache[f"blocks.{i}.mlp.hook_post"][valid]) > 1e-12).mean(0)  # F
        reads, writes = {}, {}
        for slot, (a, b) in slots.items():
            reads[slot] = np.sqrt(sum(np.square(W[a:b]).sum(0) for W in ins.values()))
            writes[slot] = np.linalg.norm(out[:, a:b], axis=1)
        for f in range(model.config.d_mlp):
            name = parts.neuron_name(i, f)
            found.append({
                "part": name, "name": parts.label_of(model, name),
                "reads": {n: float(x[f]) for n, x in reads.items() if x[f]},
                "writes": {n: float(x[f]) for n, x in writes.items() if x[f]},
                "fires": float(fires[f]),
            })  # fmt: skip
    return found
