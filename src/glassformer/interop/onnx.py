"""Export to ONNX: a file for any batch size and any length up to n_ctx.

The graph outputs logits and attention patterns. A `GraphTensor` refers to a tensor in the graph;
operations on it add nodes. To build the graph, the norms, activations, positions and MLP of
core/model.py run once on such tensors. Attention and its mask depend on the input length, which is
unknown until the graph runs, and are implemented here.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np

from ..core import backend
from ..core.backend import Array
from ..core.model import MASKS, NORMS, POSITIONS, Config, Model, Scope, Weights, affine, mlp
from ..registry import bridge
from ..utils.errors import GlassformerError
from ..utils.fileio import write_atomically

OPSET, IR_VERSION = 18, 10  # versions that most runtimes support


@bridge("onnx")
class OnnxBridge:
    """Export a model to ONNX and run the exported file with onnxruntime."""

    extra, needs, float32 = "onnx", ("onnx", "onnxruntime"), True
    files: frozenset[str] = frozenset()

    def check(self, model: Model) -> None:
        """Do nothing, because ONNX can represent every model."""

    def float32_limitation(self, model: Model) -> str:
        if model.config.activation == "gelu" and model.mlp_layers:
            return "onnxruntime has no gelu in float64 (activation), only gelu_new, silu and relu"
        return ""

    def write(self, model: Model, path: Path) -> list[str]:
        write_atomically(path, to_onnx(model, model.dtype))
        patterns = ", ".join(f"pattern_{i}" for i in range(model.config.n_layers))
        outputs = "logits [B,T,V]" + f" and {patterns} [B,H,T,T]" * bool(patterns)
        tokens = f"tokens [B,T], int64, T up to {model.config.n_ctx}"
        return [f"input: {tokens}; outputs in {model.dtype}: {outputs}"]

    def logits(self, path: Path, tokens: Array) -> Array:
        return inference_session(path).run(["logits"], {"tokens": np.asarray(tokens, np.int64)})[0]


def inference_session(file: str | Path | bytes) -> Any:
    """Return an onnxruntime session whose outputs are logits, pattern_0, pattern_1, …"""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # one thread is faster for small models
    source = file if isinstance(file, bytes) else str(file)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def to_onnx(model: Model, dtype: str = "float32") -> bytes:
    """Return a model as the bytes of an ONNX file. onnxruntime has no gelu kernel in float64."""
    if dtype not in ("float32", "float64"):
        raise GlassformerError(f"onnx: dtype: expected float32 or float64, got {dtype!r}")
    from onnx import TensorProto, checker, helper

    model = model.map(lambda w: backend.to_numpy(w).astype(dtype))
    c, graph = model.config, OnnxGraph(dtype)
    logits, patterns = build_graph(c, model.weights, graph)
    kind, info = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), helper.make_tensor_value_info
    square = ("batch", c.n_heads, "length", "length")
    outputs = [info("logits", kind, ("batch", "length", c.d_vocab))]
    outputs += [info(f"pattern_{i}", kind, square) for i in range(len(patterns))]
    for value, output in zip([logits, *patterns], outputs, strict=True):
        graph.nodes.append(helper.make_node("Identity", [value.name], [output.name]))
    tokens = info("tokens", TensorProto.INT64, ["batch", "length"])
    constants = list(graph.constants.values())
    body = helper.make_graph(graph.nodes, "glassformer", [tokens], outputs, constants)
    versions = {"opset_imports": [helper.make_opsetid("", OPSET)], "ir_version": IR_VERSION}
    file = helper.make_model(body, producer_name="glassformer", **versions)
    metadata = {"vocabulary": model.vocabulary.to_json(), "task": model.task, "config": asdict(c)}
    texts = {k: json.dumps(v, ensure_ascii=False) for k, v in metadata.items()}
    helper.set_model_props(file, texts)
    checker.check_model(file, full_check=True)
    return bytes(file.SerializeToString())


# ── the transformer, for an unknown length ─────────────────────────────────────────────────────
def build_graph(
    c: Config, weights: Weights, graph: "OnnxGraph"
) -> tuple["GraphTensor", list["GraphTensor"]]:
    """Add the model to a graph. Return the logits and the attention pattern of every layer."""
    patterns: dict[str, GraphTensor] = {}

    def hook(name: str, value: "GraphTensor") -> "GraphTensor":
        if name.endswith("hook_pattern"):
            patterns[name] = value
        return value

    at, W_E = Scope(weights, hook), weights["embed.W_E"]
    tokens = GraphTensor(graph, "tokens", (1, c.n_ctx))
    x = graph.add("Gather", W_E, tokens, shape=(1, c.n_ctx, c.d_model))  # B T D
    if embed := POSITIONS[c.positions].embed:
        x = x + GRAPH_NAMESPACE.as_dtype_of(x, embed(c, at, x, 0))
    for i in range(c.n_layers):
        scope = at / f"blocks.{i}"
        x = residual_block(c, scope / "ln1", x, attention, scope / "attn")
        if scope.get("mlp.W_out") is not None:
            x = residual_block(c, scope / "ln2", x, mlp, scope / "mlp")
    x = NORMS[c.norm](c, at / "ln_final", x) if c.norm_first else x
    logits = affine(x, W_E.T if c.tied else at["unembed.W_U"], at.get("unembed.b_U"))
    return logits, list(patterns.values())


def residual_block(
    c: Config, ln: Scope, x: "GraphTensor", part: Callable[[Config, Scope, Any], Any], at: Scope
) -> Any:
    norm = NORMS[c.norm]
    y: GraphTensor = x + part(c, at, norm(c, ln, x) if c.norm_first else x)
    return y if c.norm_first else norm(c, ln, y)


def attention(c: Config, at: Scope, x: "GraphTensor") -> "GraphTensor":
    norm, rotate, add = NORMS[c.norm], POSITIONS[c.positions].rotate, x.graph.add
    q, k, v = (affine(x, at[f"W_{n}"].swapaxes(0, 1), at.get(f"b_{n}")) for n in "QKV")  # B T H K
    if c.qk_norm:
        q, k = norm(c, at / "q_norm", q), norm(c, at / "k_norm", k)
    if rotate:
        q, k = (rotate(c, y, np.arange(c.n_ctx)) for y in (q, k))
    B, T, H, K = q.shape
    q, v = (add("Transpose", y, shape=(B, H, T, K), perm=[0, 2, 1, 3]) for y in (q, v))
    k = add("Transpose", k, shape=(B, H, K, T), perm=[0, 2, 3, 1])
    # onnxruntime rounds scalars to float32
    q = q * np.full(K, c.scale or c.d_head**-0.5, x.graph.dtype)
    scores = add("MatMul", q, k, shape=(B, H, T, T))
    pattern = at("hook_pattern", GRAPH_NAMESPACE.softmax(scores + attention_bias(c, x.graph)))
    z = add("MatMul", pattern, v, shape=q.shape)
    z = add("Transpose", z, shape=(B, T, H, K), perm=[0, 2, 1, 3])
    return GRAPH_NAMESPACE.affine(z, at["W_O"], at.get("b_O"))


def attention_bias(c: Config, graph: "OnnxGraph") -> "GraphTensor":
    """Return mask plus position bias, [1 or H,T,T], gathered from a table indexed by distance."""
    distances = np.arange(1 - c.n_ctx, c.n_ctx)[None]  # 1 2T-1
    bias = POSITIONS[c.positions].bias
    table = MASKS[c.mask](distances) + (bias(c, distances) if bias else 0)  # (H) 1 2T-1
    table = table.reshape(-1, distances.size).astype(graph.dtype)
    length = graph.add("Gather", graph.add("Shape", GraphTensor(graph, "tokens", ())), np.int64(1))
    positions = graph.add("Range", np.int64(0), length, np.int64(1), shape=(c.n_ctx,))
    rows = graph.add("Unsqueeze", positions, np.array([1]), shape=(c.n_ctx, 1))
    at = graph.add("Add", graph.add("Sub", rows, positions), np.int64(c.n_ctx - 1))
    return graph.add("Gather", table, at, shape=(len(table), c.n_ctx, c.n_ctx), axis=1)


# ── graph tensors ──────────────────────────────────────────────────────────────────────────────
class OnnxGraph:
    """The nodes and constants of an ONNX graph."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.constants: dict[tuple[Any, ...], Any] = {}

    def add(
        self, op: str, *inputs: Any, shape: tuple[int, ...] = (), **attributes: Any
    ) -> "GraphTensor":
        """Add a node and return its output, which has this shape for one input of length n_ctx."""
        from onnx import helper

        name = f"{op.lower()}_{len(self.nodes)}"
        names = [x.name if isinstance(x, GraphTensor) else self.constant(x) for x in inputs]
        self.nodes.append(helper.make_node(op, names, [name], **attributes))
        return GraphTensor(self, name, shape)

    def constant(self, value: Any) -> str:
        """Return the name of a constant. Python numbers get the graph's float type."""
        from onnx import numpy_helper

        value = np.asarray(value, self.dtype if isinstance(value, (int, float)) else None)
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self.constants:
            self.constants[key] = numpy_helper.from_array(value, f"c_{len(self.constants)}")
        return str(self.constants[key].name)


class GraphTensor:
    """A tensor of an ONNX graph; arithmetic operations add nodes to the graph."""

    def __init__(self, graph: OnnxGraph, name: str, shape: tuple[int, ...]) -> None:
        self.graph, self.name, self.shape = graph, name, shape

    def _binary_op(self, op: str, other: Any) -> "GraphTensor":
        shape = np.broadcast_shapes(self.shape, np.shape(other))
        return self.graph.add(op, self, other, shape=shape)

    __add__ = __radd__ = partialmethod(_binary_op, "Add")
    __mul__ = __rmul__ = partialmethod(_binary_op, "Mul")
    __sub__ = partialmethod(_binary_op, "Sub")
    __truediv__ = partialmethod(_binary_op, "Div")

    def __getitem__(self, key: Any) -> "GraphTensor":
        """Return x[..., a:b], the only form of indexing that model.py applies to activations."""
        a, b, _ = key[-1].indices(self.shape[-1])
        cut = np.array([a]), np.array([b]), np.array([-1])
        return self.graph.add("Slice", self, *cut, shape=(*self.shape[:-1], b - a))


class GraphNamespace:
    """The array operations of core/backend.py for graph tensors."""

    fused_norms: dict[str, Any] = {}  # noqa: RUF012 - read only

    def as_dtype_of(self, x: GraphTensor, table: Any) -> GraphTensor:
        """Return the first T rows of a table [n_ctx,…], where T is the length of the input."""
        if isinstance(table, GraphTensor):
            return table
        length = x.graph.add("Shape", GraphTensor(x.graph, "tokens", ()), start=1, end=2)
        cut = np.array([0]), length, np.array([0])
        return x.graph.add("Slice", table.astype(x.graph.dtype), *cut, shape=table.shape)

    def affine(self, x: GraphTensor, W: Any, b: Any) -> GraphTensor:
        n = len(x.shape) - 2
        inner, outer = math.prod(W.shape[:n]), math.prod(W.shape[n:])
        add, first, last = x.graph.add, x.shape[:2], W.shape[n:]
        if n != 1:
            x = add("Reshape", x, np.array([0, 0, inner]), shape=(*first, inner))
        y = add("MatMul", x, W.reshape(inner, outer), shape=(*first, outer))
        y = y if b is None else y + b.reshape(outer)
        if last == (outer,):
            return y
        return add("Reshape", y, np.array([0, 0, *last]), shape=(*first, *last))

    def concat(self, parts: list[GraphTensor], axis: int) -> GraphTensor:
        last = sum(p.shape[-1] for p in parts)
        return parts[0].graph.add("Concat", *parts, shape=(*parts[0].shape[:-1], last), axis=axis)

    def mean(self, x: GraphTensor) -> GraphTensor:
        return x.graph.add("ReduceMean", x, np.array([-1]), shape=(*x.shape[:-1], 1))

    def softmax(self, x: GraphTensor) -> GraphTensor:
        return x.graph.add("Softmax", x, shape=x.shape, axis=-1)

    def __getattr__(self, name: str) -> Callable[[GraphTensor], GraphTensor]:
        if name not in ("sqrt", "tanh", "relu"):
            raise AttributeError(name)
        return lambda x: x.graph.add(name.capitalize(), x, shape=x.shape)

    def gelu(self, x: GraphTensor) -> Any:
        return 0.5 * x * (1 + x.graph.add("Erf", x * 0.5**0.5, shape=x.shape))


GRAPH_NAMESPACE = GraphNamespace()
backend.NAMESPACES[GraphTensor] = GRAPH_NAMESPACE
