"""Writers and readers of the residual stream, and the edges between them.

A *part* is "embed", "pos_embed", "head LAYER.HEAD", "mlp LAYER" or "unembed" (components.py). Parts
read through *ports*: a head through "q", "k" and "v", an MLP through "in" (and "gate"), the
unembedding through "logits". An *edge* (writer, reader, port) exists if the port of the reader
depends on the writer's contribution to the stream.

Every part affects the scale of a norm. This dependence is not counted as an edge: edges are cut at
a fixed scale. The mean that LayerNorm subtracts is counted, under the slot name "(mean)": a writer
whose rows do not sum to 0 affects every reader whose columns do not sum to 0.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ..core import components
from ..core.backend import Array
from ..core.model import POSITIONS, Model
from ..lens.embeddings import position_table
from ..tasks.base import Rows
from ..utils.errors import GlassformerError
from ..utils.limits import check_memory

MEAN = "(mean)"
Slots = dict[str, tuple[int, int]]  # slot name -> (start, stop) in the stream


@dataclass(frozen=True)
class StreamWriter:
    """A part that adds to the residual stream, with its weights and activation."""

    part: str
    rows: Array  # [n, D]: directions that the part can add; rows without effect are 0
    hook: str  # activation from which the part's output is computed
    W: Array = None  # [n, D]: maps the activation to the output; None means the identity
    head: int | None = None  # head index into an activation [B,T,H,n]

    def contribution(self, value: Array) -> Array:
        """Return the output [B,T,D] or [T,D] of the part for a value of its activation."""
        value = value if self.head is None else value[:, :, self.head]
        return value if self.W is None else value @ self.W


@dataclass(frozen=True)
class StreamReader:
    """A port through which a part reads the residual stream."""

    part: str
    port: str
    W: Array  # [D, n]: weights after the norm; weights without effect are 0
    gain: Array  # [D, 1]: gain of the norm before the part
    hook: str  # activation that holds the output of the port
    unmasked: Array = None  # W before zeroing; None if the activation is the port's input
    head: int | None = None  # head index into an activation [B,T,H,n]

    @cached_property
    def columns(self) -> Any:
        """Weights [D, n] of the port, with the gain of the norm folded in."""
        return self.gain * self.W


@dataclass(frozen=True)
class Sublayer:
    """Parts that read the same stream before any of them writes: attention or MLP of one layer."""

    readers: list[StreamReader]
    writers: list[StreamWriter]
    norm: str = ""  # weight prefix of its norm (after the sublayer in a post-norm model)
    stream: str = ""  # activation that holds the stream of the readers, or ""


def sublayers(model: Model) -> list[Sublayer]:
    """Return the sublayers of a model: embeddings, attention and MLPs, and unembedding."""
    c, w = model.config, model.weights
    first = [StreamWriter("embed", w["embed.W_E"], "hook_embed")]
    if (table := position_table(model)) is not None:
        first.append(StreamWriter("pos_embed", table, "hook_pos_embed"))
    out = [Sublayer([], first)]
    for i in range(c.n_layers):
        at = f"blocks.{i}."
        gain = _gain(model, at + "ln1")
        readers, writers = list[StreamReader](), list[StreamWriter]()
        for h in range(c.n_heads):
            *reads, writes = active_head_weights(model, i, h)
            name, W_O = components.head_name(i, h), w[at + "attn.W_O"][h]
            for port, W in zip("qkv", reads, strict=True):
                full = w[f"{at}attn.W_{port.upper()}"][h]
                readers.append(StreamReader(name, port, W, gain, f"{at}attn.hook_{port}", full, h))
            writers.append(StreamWriter(name, writes, at + "attn.hook_z", W_O, h))
        out.append(Sublayer(readers, writers, at + "ln1", at + "hook_resid_pre"))
        if model.has_mlp(i):
            ins, outs = active_mlp_weights(model, i)
            gain = _gain(model, at + "ln2")
            name, readers = components.mlp_name(i), []
            for port, W in ins.items():
                hook = at + {"in": "mlp.hook_pre", "gate": "mlp.hook_pre_linear"}[port]
                readers.append(StreamReader(name, port, W, gain, hook, w[f"{at}mlp.W_{port}"]))
            writer = StreamWriter(name, outs, at + "mlp.hook_post", w[at + "mlp.W_out"])
            out.append(Sublayer(readers, [writer], at + "ln2", at + "hook_resid_mid"))
    norm = "ln_final" if c.norm_first else ""
    stream = f"blocks.{c.n_layers - 1}.hook_resid_post" if c.n_layers else ""
    hook = "ln_final.hook_normalized" if norm and c.norm != "none" else stream
    last = StreamReader("unembed", "logits", model.W_U, _gain(model, norm), hook)
    return [*out, Sublayer([last], [], norm, stream)]


def active_head_weights(model: Model, layer: int, head: int) -> tuple[Any, Any, Any, Any]:
    """Return W_Q, W_K, W_V [D,K] and W_O [K,D] of a head, with 0 in dimensions without effect.

    A query dimension has an effect if the keys differ in it, a key dimension if a query uses it, a
    value dimension if W_O reads it, and an output dimension if W_V or b_V fills it.
    """
    c, w, at = model.config, model.weights, f"blocks.{layer}.attn."
    W_Q, W_K, W_V, W_O = (w[f"{at}W_{x}"][head] for x in "QKVO")
    none = np.zeros((c.n_heads, c.d_head))
    b_Q, b_K, b_V = (w.get(f"{at}b_{x}", none)[head] for x in "QKV")
    asks, differs = (W_Q != 0).any(0) | (b_Q != 0), (W_K != 0).any(0)  # K
    # rotations mix pairs of dimensions, and a constant key differs by position
    if POSITIONS[c.positions].rotate:
        n = c.d_head // 2
        differs |= b_K != 0
        for mask in (asks, differs):
            mask[:n] |= mask[n : 2 * n]
            mask[n : 2 * n] |= mask[:n]
    if c.qk_norm:  # all dimensions share a scale
        asks[:], differs[:] = asks.any(), differs.any()
    written, has_value = (W_O != 0).any(1), (W_V != 0).any(0) | (b_V != 0)  # K
    return W_Q * differs, W_K * asks, W_V * written, W_O * has_value[:, None]


def active_mlp_weights(model: Model, layer: int) -> tuple[dict[str, Any], Any]:
    """Return {"in": W_in [D,F], "gate": W_gate} and W_out [F,D], with 0 for neurons without effect.

    Every activation function maps 0 to 0, so a neuron without weights and bias never fires.
    """
    w, at = model.weights, f"blocks.{layer}.mlp."
    ports = [p for p in ("in", "gate") if f"{at}W_{p}" in w]
    written, fires = (w[at + "W_out"] != 0).any(1), np.ones(model.config.d_mlp, dtype=bool)  # F
    for port in ports:
        bias = w.get(f"{at}b_{port}")
        fires &= (w[f"{at}W_{port}"] != 0).any(0) | (False if bias is None else bias != 0)
    return {p: w[f"{at}W_{p}"] * (written & fires) for p in ports}, w[at + "W_out"] * fires[:, None]


def _gain(model: Model, norm: str) -> Any:
    """Return the gain [D,1] of the norm before a reader. The gain is 1 in a post-norm model."""
    c, ones = model.config, np.ones(model.config.d_model)
    before = c.norm_first and c.norm != "none"
    return (model.weights.get(norm + ".w", ones) if before else ones)[:, None]


def possible_edges(model: Model) -> list[tuple[str, str, str]]:
    """Return every edge (writer, reader, port) that the architecture allows."""
    edges, writers = list[tuple[str, str, str]](), list[str]()
    for sublayer in sublayers(model):
        edges += [(writer, r.part, r.port) for r in sublayer.readers for writer in writers]
        writers += [x.part for x in sublayer.writers]
    return edges


SizedEdge = tuple[str, str, str, dict[str, float]]  # writer, reader, port, {slot: size}


def find_edges(model: Model, slots: Slots) -> list[SizedEdge]:
    """Return all edges (writer, reader, port) of a model, with their sizes by slot."""
    c, edges, writers = model.config, list[SizedEdge](), list[StreamWriter]()
    mean = c.norm == "layer" and c.norm_first
    for sublayer in sublayers(model):
        new, now = list[SizedEdge](), sublayer.writers
        for reader in sublayer.readers:
            for writer in writers:
                if via := edge_sizes(writer.rows, reader.columns, slots, mean):
                    new.append((writer.part, reader.part, reader.port, via))
        if not _has_constants(model):
            new, fed = _drop_unfed_edges(new)
            now = [x for x in now if not sublayer.readers or x.part in fed]
        edges += new
        writers += now
        if sublayer.norm and not c.norm_first and c.norm != "none":
            gain = model.weights.get(sublayer.norm + ".w", 1.0)
            if c.norm == "layer":
                writers = [replace(x, rows=x.rows - x.rows.mean(1, keepdims=True)) for x in writers]
            writers = [replace(x, rows=x.rows * gain) for x in writers]
    return edges


def _has_constants(model: Model) -> bool:
    """Return whether a bias may give an output to a part without incoming edges."""
    biases = [n for n in model.weights if n.rpartition(".")[2].startswith("b")]
    return any(model.weights[n].any() for n in biases if n != "unembed.b_U")


def _drop_unfed_edges(new: list[SizedEdge]) -> tuple[list[SizedEdge], set[str]]:
    """Drop q edges without k edges and vice versa; also return the parts that still have input."""
    ports: dict[str, set[str]] = {}
    for _, reader, port, _ in new:
        ports.setdefault(reader, set()).add(port)
    kept = [e for e in new if e[2] not in "qk" or {"q", "k"} <= ports[e[1]]]
    return kept, {part for part, used in ports.items() if used & {"v", "in", "logits"}}


def edge_sizes(rows: Rows, columns: Any, slots: Slots, mean: bool) -> dict[str, float]:
    """Return the nonzero norms of rows [n,D] @ columns [D,m], restricted to each slot."""
    via, n = {}, columns.shape[1]
    for name, (a, b) in slots.items():
        check_memory(f"edges — {len(rows):,} by {n:,} numbers", 8 * len(rows) * n)
        if size := product_norm(rows[:, a:b], columns[a:b]):
            via[name] = size
    if mean:
        out, into = rows.sum(1), columns.sum(0)
        out[np.abs(out) <= rounding_tolerance(rows) * np.abs(rows).sum(1)] = 0
        into[np.abs(into) <= rounding_tolerance(rows) * np.abs(columns).sum(0)] = 0
        if (size := _norm(out) * _norm(into) / rows.shape[1]) > 0:
            via[MEAN] = size
    return via


def product_norm(left: Array, right: Array) -> float:
    """Return the norm of left @ right, or 0 if it is attributed to rounding."""
    size = _norm(left @ right)
    return size if size > rounding_tolerance(left) * (_norm(left) * _norm(right)) else 0.0


def rounding_tolerance(x: Array) -> float:
    """Return the relative size below which a product of two factors is attributed to rounding."""
    return float(64 * np.finfo(x.dtype).eps)


def _norm(x: Array) -> float:
    return float(np.linalg.norm(x))


class CutEdges:
    """Hook that cuts edges of the circuit: model(tokens, hook=CutEdges(model, edges)).

    At each port, the current outputs of the cut writers are subtracted, at the scale of the norm
    before the port. Biases stay.
    """

    def __init__(self, model: Model, edges: Iterable[tuple[str, str, str]]) -> None:
        self.model = model.numpy()
        self.normed = model.config.norm_first and model.config.norm != "none"
        self.writers_to_cut: dict[tuple[str, str], list[str]] = {}  # reader, port -> writers
        self.contributions: dict[str, Any] = {}  # part -> its contribution to the stream [B,T,D]
        self.scale: Any = 1.0  # scale of the norm before the next port
        allowed = {*possible_edges(model)}
        for edge in edges:
            writer, reader = map(components.normalize_name, edge[:2])
            if (writer, reader, edge[2]) not in allowed:
                where = f"edge {writer} → {reader}, {edge[2]}"
                raise GlassformerError(f"{where}: expected a writer, a later reader and its port")
            self.writers_to_cut.setdefault((reader, edge[2]), []).append(writer)
        self.actions = self._actions_by_hook()

    def __call__(self, name: str, value: Any) -> Any:
        return self.actions[name](value) if name in self.actions else value

    def _actions_by_hook(self) -> dict[str, Callable[[Any], Any]]:
        """Map activation names to functions that record an output or a scale, or cut ports."""
        at: dict[str, Callable[[Any], Any]] = {}
        for sublayer in sublayers(self.model):
            at[sublayer.norm + ".hook_scale"] = partial(self._on_scale, sublayer.norm)
            for hook in {x.hook for x in sublayer.writers}:
                at[hook] = partial(self._on_write, [x for x in sublayer.writers if x.hook == hook])
            for hook in {r.hook for r in sublayer.readers}:
                readers = [r for r in sublayer.readers if r.hook == hook]
                at[hook] = partial(self._on_read, readers, sublayer.norm)
        return at

    def _on_write(self, writers: list[StreamWriter], value: Array) -> Array:
        self.contributions |= {x.part: x.contribution(value) for x in writers}
        last = not self.normed and not self.model.config.n_layers  # no later activation to cut at
        cut = last and writers[0].part in self.writers_to_cut.get(("unembed", "logits"), ())
        return value * 0 if cut else value

    def _on_scale(self, norm: str, value: Any) -> Any:
        self.scale = value
        if not self.model.config.norm_first:
            outputs = self.contributions.items()
            self.contributions = {part: self._apply_norm(norm, x) for part, x in outputs}
        return value

    def _on_read(self, readers: list[StreamReader], norm: str, value: Any) -> Any:
        value = value.copy()
        for r in readers:
            if writers := self.writers_to_cut.get((r.part, r.port)):
                if r.unmasked is None:
                    value -= self._contribution_at(writers, "")  # the gain is applied later
                else:
                    port = value if r.head is None else value[:, :, r.head]
                    port -= self._contribution_at(writers, norm) @ r.unmasked
        return value

    def _contribution_at(self, writers: list[str], norm: str) -> Any:
        """Return the summed outputs [B,T,D] of the writers, as they appear after a norm."""
        output = sum(self.contributions[part] for part in writers)
        return self._apply_norm(norm, output) if self.normed else output

    def _apply_norm(self, norm: str, x: Array) -> Any:
        x = x - x.mean(-1, keepdims=True) if self.model.config.norm == "layer" else x
        return x / self.scale * self.model.weights.get(norm + ".w", 1.0)
