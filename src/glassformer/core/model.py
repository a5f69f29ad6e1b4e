"""The transformer: computes logits from a Config, named weight arrays and tokens.

Shapes: B batch, T positions, S keys, D d_model, H heads, K d_head, F d_mlp, V vocabulary.
"""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from ..utils.argcheck import check_function, validate_init
from ..utils.errors import TORCH_MISSING, GlassformerError, ascii_name, short_repr
from ..utils.limits import as_integers, check_int_range
from ..utils.results import Displayable, attribute_error
from . import backend, token_tables
from .backend import Array
from .vocabulary import Vocabulary
from .weight_shapes import check_weights, describe_model
from .weight_shapes import zeros as zeros

Weights = Mapping[str, Array]
Hook = Callable[[str, Array], Array]

MAX_FINITE = {  # largest finite number of each float type
    "float64": float(np.finfo(np.float64).max), "float32": float(np.finfo(np.float32).max),
    "float16": float(np.finfo(np.float16).max), "bfloat16": 2.0**127 * (2 - 2**-7),
}  # fmt: skip
PROVENANCE_KEY = "compiled"  # entry of a compiled model's provenance, an EmbeddedSource
_INT32 = 2**31 - 1
MAX_CONFIG_VALUES = {"n_layers": 10_000, "n_ctx": 2**24}  # other sizes are limited by _INT32


@validate_init(check_kinds=False)
@dataclass(frozen=True)
class Config(Displayable):
    """Sizes of a transformer and the types of its norm, activation, positions and mask."""

    d_vocab: int
    n_ctx: int
    d_model: int
    n_layers: int = 1
    n_heads: int = 1
    d_head: int = 0  # any size; 0 selects d_model // n_heads
    d_mlp: int = 0
    norm: str = "layer"  # a name in NORMS
    norm_first: bool = True  # pre-LN if True, else post-LN (after the residual sum)
    eps: float = 1e-5  # added to the variance
    activation: str = "gelu"  # a name in ACTIVATIONS; gated if the weights have W_gate
    positions: str = "learned"  # a name in POSITIONS
    base: float = 10_000.0  # base of rotary and sinusoidal frequencies
    slope: float = 1.0  # factor of ALiBi's slopes 2^(-8h/H)
    mask: str = "causal"  # a name in MASKS
    scale: float = 0.0  # factor of q·k; 0 selects 1/sqrt(d_head)
    qk_norm: bool = False  # whether to normalize the q and k of every head
    tied: bool = False  # whether the unembedding is the transposed token embedding

    def __post_init__(self) -> None:
        if type(self.d_head) is type(self.d_model) is type(self.n_heads) is int and not self.d_head:
            object.__setattr__(self, "d_head", self.d_model // max(self.n_heads, 1))
        choices: dict[str, Mapping[str, Any]] = {
            "norm": NORMS, "activation": ACTIVATIONS, "positions": POSITIONS, "mask": MASKS,
        }  # fmt: skip
        problems = []
        for f in fields(self):
            name, value, expected = f.name, getattr(self, f.name), ""
            low, high = int(name not in ("n_layers", "d_mlp")), MAX_CONFIG_VALUES.get(name, _INT32)
            if name in choices and not (isinstance(value, str) and value in choices[name]):
                expected = f"one of {', '.join(choices[name])}"
            elif f.type is int and (type(value) is not int or value < low):
                expected = f"a whole number from {low}"
            elif f.type is int and value > high:
                expected = f"at most {high:,}"
            elif f.type is float and not (
                type(value) in (int, float) and 0 <= value <= MAX_FINITE["float64"]
            ):
                expected = "a finite number from 0"
            elif f.type is bool and type(value) is not bool:
                expected = "true or false"
            elif f.type is float and type(value) is int and value > 2**53:
                object.__setattr__(
                    self, name, float(value)
                )  # NumPy and PyTorch accept only 64 bits
            if expected:
                problems.append(f"{name} must be {expected}, got {short_repr(value)}")
        if not problems and self.positions == "sinusoidal" and self.d_model % 2:
            problems = [f"sinusoidal positions need an even d_model, got {self.d_model}"]
        if problems:
            raise GlassformerError("config — " + "; ".join(problems))

    def __str__(self) -> str:
        parts = [f"{self.n_layers} layer{'s' * (self.n_layers != 1)}", f"d_model {self.d_model}"]
        if self.n_layers:
            parts += [f"{self.n_heads} head{'s' * (self.n_heads > 1)} of {self.d_head}"]
            parts += [f"scale {self.scale:g}"] * bool(self.scale) + ["QK-norm"] * self.qk_norm
            parts += [f"MLP {self.d_mlp} {self.activation}" if self.d_mlp else "no MLP"]
        order = "pre" if self.norm_first else "post"
        parts += ["no norm" if self.norm == "none" else f"{self.norm} norm ({order})"]
        parts += ["no positions" if self.positions == "none" else f"{self.positions} positions"]
        parts += [f"mask {self.mask}", "tied" if self.tied else "untied"]
        return ", ".join([*parts, f"{self.d_vocab} tokens", f"block {self.n_ctx}"])


class Scope:
    """View of weights and hook below a path.

    scope["W_Q"] returns a weight; scope("hook_q", q) calls the hook on an activation.
    """

    def __init__(self, weights: Weights, hook: Hook | None, path: str = "") -> None:
        self.weights, self.hook, self.path = weights, hook, path

    def __truediv__(self, name: str) -> "Scope":
        return Scope(self.weights, self.hook, f"{self.path}{name}.")

    def __getitem__(self, name: str) -> Array:
        return self.weights[self.path + name]

    def get(self, name: str) -> Array | None:
        return self.weights.get(self.path + name)

    def __call__(self, name: str, value: Array) -> Array:
        return value if self.hook is None else self.hook(self.path + name, value)


# fmt: off
def forward(
    c: Config, weights: Weights, tokens: Array, hook: Hook | None = None, start: int = 0,
    last: int | None = None,
) -> Array:
    """Return the logits [B,T,V] of tokens [B,T], or [B,last,V] of the last positions only.

    `start` is the position of tokens[:, 0]. With a key-value cache (decoding.py), it is above 0.
    """
    at = Scope(weights, hook)
    W_E = at["embed.W_E"]
    x = at("hook_embed", token_tables.embed(W_E, tokens, may_share=hook is None and c.n_layers > 0))
    if embed := POSITIONS[c.positions].embed:
        x = x + at("hook_pos_embed", embed(c, at, x, start))                   # B T D
    for i in range(c.n_layers):
        x = block(c, at / f"blocks.{i}", x, last if i == c.n_layers - 1 else None)
    x = x if last is None else x[:, -last:]
    x = NORMS[c.norm](c, at / "ln_final", x) if c.norm_first else x
    return affine(x, W_E.mT if c.tied else at["unembed.W_U"], at.get("unembed.b_U"))


def block(c: Config, at: Scope, x: Array, last: int | None) -> Array:
    x = at("hook_resid_pre", x)                                                # B T D
    attend = partial(attention, c, at / "attn", last=last)
    x = residual(c, at / "ln1", x, lambda y: at("hook_attn_out", attend(y)))
    if at.get("mlp.W_out") is not None:
        x = at("hook_resid_mid", x)
        x = residual(c, at / "ln2", x, lambda y: at("hook_mlp_out", mlp(c, at / "mlp", y)))
    return at("hook_resid_post", x)


def residual(c: Config, ln: Scope, x: Array, f: Callable[[Array], Array]) -> Array:
    norm = NORMS[c.norm]
    y = f(norm(c, ln, x) if c.norm_first else x)
    y = x[:, -y.shape[1] :] + y
    return y if c.norm_first else norm(c, ln, y)


def attention(c: Config, at: Scope, x: Array, last: int | None) -> Array:
    xp, positions, norm = backend.backend_for(x), POSITIONS[c.positions], NORMS[c.norm]
    asking = x if last is None else x[:, -last:]
    q = at("hook_q", affine(asking, at["W_Q"].swapaxes(0, 1), at.get("b_Q")))  # B T H K
    k = at("hook_k", affine(x, at["W_K"].swapaxes(0, 1), at.get("b_K")))       # B S H K
    v = at("hook_v", affine(x, at["W_V"].swapaxes(0, 1), at.get("b_V")))       # B S H K
    if c.qk_norm:
        q, k = norm(c, at / "q_norm", q), norm(c, at / "k_norm", k)
    T, S = q.shape[1], k.shape[1]  # S > T if `last` or a key-value cache is used
    at_q, at_k = np.arange(S - T, S), np.arange(S)  # positions of queries and keys
    if rotate := positions.rotate:
        q, k = at("hook_rot_q", rotate(c, q, at_q)), at("hook_rot_k", rotate(c, k, at_k))
    scores = xp.scores(q, k) * (c.scale or c.d_head**-0.5)                     # B H T S
    distance = at_q[:, None] - at_k                                            # T S
    if bias := positions.bias:
        scores = scores + xp.as_dtype_of(scores, bias(c, distance))
    scores = at("hook_attn_scores", scores + xp.as_dtype_of(scores, MASKS[c.mask](distance)))
    pattern = at("hook_pattern", xp.softmax(scores))                           # B H T S
    z = at("hook_z", xp.attend(pattern, v))                                    # B T H K
    return affine(z, at["W_O"], at.get("b_O"))                                 # B T D


def mlp(c: Config, at: Scope, x: Array) -> Array:
    pre = at("hook_pre", affine(x, at["W_in"], at.get("b_in")))                # B T F
    post = ACTIVATIONS[c.activation](backend.backend_for(x), pre)
    if (W_gate := at.get("W_gate")) is not None:
        post = post * at("hook_pre_linear", affine(x, W_gate, at.get("b_gate")))
    return affine(at("hook_post", post), at["W_out"], at.get("b_out"))


def affine(x: Array, W: Array, b: Array | None) -> Array:
    return backend.backend_for(x).affine(x, W, b)


# fmt: on
# ── norms ──────────────────────────────────────────────────────────────────────────────────────
def rms_norm(c: Config, at: Scope, x: Array) -> Array:
    xp = backend.backend_for(x)
    scale = at("hook_scale", xp.sqrt(xp.mean(x * x) + c.eps))
    return apply_gain_and_bias(at, at("hook_normalized", x / scale))


def apply_gain_and_bias(at: Scope, x: Array) -> Array:
    """Multiply x by the norm's gain and add its bias, if present."""
    w, b = at.get("w"), at.get("b")
    x = x if w is None else x * w
    return x if b is None else x + b


def layer_norm(c: Config, at: Scope, x: Array) -> Array:
    if at.hook is None and (
        fused := backend.backend_for(x).fused_norms.get("layer")
    ):  # a fused norm calls no hooks
        return fused(x, at.get("w"), at.get("b"), c.eps)
    return rms_norm(c, at, x - backend.backend_for(x).mean(x))


Norm = Callable[[Config, Scope, Array], Array]
NORMS: dict[str, Norm] = {"layer": layer_norm, "rms": rms_norm, "none": lambda c, at, x: x}


# ── activations ────────────────────────────────────────────────────────────────────────────────
def gelu_new(xp: Any, x: Array) -> Array:
    return 0.5 * x * (1 + xp.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x)))


ACTIVATIONS: dict[str, Callable[[Any, Array], Array]] = {
    "relu": lambda xp, x: xp.relu(x),
    "gelu": lambda xp, x: xp.gelu(x),
    "gelu_new": gelu_new,
    "silu": lambda xp, x: 0.5 * x * (1 + xp.tanh(0.5 * x)),  # tanh cannot overflow
}


# ── positions: added to the stream or to the scores, or used to rotate q and k ─────────────────
@dataclass(frozen=True)
class Positions:
    embed: Callable[[Config, Scope, Array, int], Array] | None = None
    rotate: Callable[[Config, Array, Array], Array] | None = None
    bias: Callable[[Config, Array], Array] | None = None


def learned(c: Config, at: Scope, x: Array, start: int) -> Array:
    return at["pos_embed.W_pos"][start : start + x.shape[1]]  # T D


def sinusoidal(c: Config, at: Scope, x: Array, start: int) -> Array:
    a = angles(c, np.arange(start, start + x.shape[1]), c.d_model // 2)  # T D/2
    table = np.stack([np.sin(a), np.cos(a)], axis=-1)  # T D/2 2
    return backend.backend_for(x).as_dtype_of(x, table.reshape(-1, c.d_model))  # T D


def rotary(c: Config, x: Array, positions: Array) -> Array:
    xp, n = backend.backend_for(x), x.shape[-1] // 2
    a = angles(c, positions, n)[:, None]  # T 1 K/2
    cos, sin = xp.as_dtype_of(x, np.cos(a)), xp.as_dtype_of(x, np.sin(a))
    u, v, odd = x[..., :n], x[..., n : 2 * n], x[..., 2 * n :]
    return xp.concat([u * cos - v * sin, v * cos + u * sin, odd], -1)


def angles(c: Config, positions: Array, n: int) -> Array:
    return positions[:, None] * c.base ** (-np.arange(n) / max(n, 1))


def alibi(c: Config, distance: Array) -> Array:
    slopes = c.slope * 2.0 ** (-8 * np.arange(1, c.n_heads + 1) / c.n_heads)
    return -slopes[:, None, None] * np.abs(distance)  # H T S


POSITIONS = {
    "learned": Positions(embed=learned),
    "none": Positions(),
    "sinusoidal": Positions(embed=sinusoidal),
    "rotary": Positions(rotate=rotary),
    "alibi": Positions(bias=alibi),
}

# ── masks: added to a score, as a function of the distance from query to key ───────────────────
MASKS: dict[str, Callable[[Array], Array]] = {
    "causal": lambda distance: np.where(distance >= 0, 0.0, -math.inf),
    "none": lambda distance: np.zeros_like(distance, dtype=float),
}


# ── the Model: config, weights, vocabulary, labels ─────────────────────────────────────────────
@validate_init()
@dataclass(frozen=True)
class Labels(Displayable):
    """Labels of slots [start, stop), heads ("layer.head") and neurons ("layer.neuron")."""

    slots: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    heads: Mapping[str, str] = field(default_factory=dict)
    neurons: Mapping[str, str] = field(default_factory=dict)


@validate_init()
@dataclass(frozen=True, eq=False)
class Model(Displayable):
    """Immutable transformer with its weights. `dataclasses.replace` and `map` return copies."""

    config: Config
    weights: Weights
    vocabulary: Vocabulary
    task: str = ""  # ref of the task
    labels: Labels = field(default_factory=Labels)
    provenance: Mapping[str, Any] = field(default_factory=dict)  # origin of the weights
    parametrization: str = ""  # ref of the parametrization that maps theta to the weights
    theta: Weights = field(default_factory=dict)

    def __post_init__(self) -> None:
        weights = {n: _frozen_copy(n, w) for n, w in self.weights.items()}
        weights = check_weights(self.config, weights)
        if (n := len(self.vocabulary)) != (d_vocab := self.config.d_vocab):
            raise GlassformerError(
                f"model — expected d_vocab={n} as in the vocabulary, got {d_vocab}"
            )
        dtypes = {name: backend.dtype_name(w) for name, w in weights.items()}
        dtype = dtypes["embed.W_E"]
        if mixed := [f"{name} as {other}" for name, other in dtypes.items() if other != dtype]:
            got = f"got embed.W_E as {dtype} and {mixed[0]}"
            raise GlassformerError(f"model — expected arrays of one type, {got}")
        for name in ("eps", "base", "slope", "scale"):
            if (value := getattr(self.config, name)) > MAX_FINITE.get(dtype, math.inf):
                got = f"got {value:g}; {dtype} ends at {MAX_FINITE[dtype]:.3g}"
                raise GlassformerError(f"config — {name} must be finite in the model's type, {got}")
        object.__setattr__(self, "weights", MappingProxyType(weights))
        object.__setattr__(self, "theta", {n: _frozen_copy(n, t) for n, t in self.theta.items()})

    def __reduce__(self) -> Any:
        # copy and pickle cannot handle MappingProxyType
        values = (getattr(self, f.name) for f in fields(self))
        return Model, tuple(dict(x) if isinstance(x, Mapping) else x for x in values)

    @property
    def name(self) -> str:
        """Ref of the model or its task in ASCII, quoted if it contains spaces, else "model"."""
        name = ascii_name(self.provenance.get("ref") or self.task or "model")
        return repr(name) if " " in name else name

    def __call__(self, tokens: Any, hook: Hook | None = None, last: int | None = None) -> Array:
        """Return the logits [B,T,V] of tokens [B,T], or [T,V] of tokens [T] or of a string.

        Args:
            tokens: Token numbers, or a string in the model's vocabulary.
            hook: Function (name, value) -> value that is called with every activation.
            last: Number of last positions to return logits for; None returns all positions.

        Example:
            >>> import glassformer as gf
            >>> gf.load("min:vocab=10")([6, 2, 7]).argmax(-1)
            array([6, 2, 2])
        """
        tokens, hook = self.to_tokens(tokens), None if hook is None else shape_checked_hook(hook)
        check_last(last, tokens)
        batch = tokens if tokens.ndim == 2 else tokens[None]
        logits = forward(self.config, self.weights, batch, hook, last=last)
        return logits if tokens.ndim == 2 else logits[0]

    def logits(
        self, tokens: Any, hook: Hook | None = None, last: int | None = None, start: int = 0
    ) -> Any:
        """Return the logits of tokens [B,T] as a NumPy array, without warnings and gradients.

        An integer array [B,T] is used without checks; all other inputs are checked first.
        """
        if getattr(tokens, "ndim", 0) != 2 or "int" not in backend.dtype_name(tokens):
            tokens = check_tokens(self.config, self.to_tokens(tokens), start)
            if tokens.ndim != 2:
                expected = "expected shape [B,T]; model(tokens) takes [T], and a text, too"
                raise GlassformerError(f"tokens — {expected}, got {list(tokens.shape)}")
        xp = backend.backend_for(W_E := self.weights["embed.W_E"])
        with xp.no_grad(inference=hook is None):
            tokens = xp.to_device_of(W_E, tokens)
            return backend.to_numpy(forward(self.config, self.weights, tokens, hook, start, last))

    def to_tokens(self, tokens: Any) -> Array:
        """Check tokens or a string and return an array of the model's array type."""
        if isinstance(tokens, str):
            tokens = self.vocabulary.encode(tokens)
            if "compiled" in self.provenance and tokens[:1] != [0]:
                tokens = [0, *tokens]  # compiled models expect <bos> first
        W_E = self.weights["embed.W_E"]
        return backend.backend_for(W_E).to_device_of(W_E, check_tokens(self.config, tokens))

    # ── weights and conversions ────────────────────────────────────────────────────────────────
    @property
    def is_numpy(self) -> bool:
        return isinstance(self.weights["embed.W_E"], np.ndarray)

    def numpy(self) -> "Model":
        """Return the model with its weights converted to NumPy arrays."""
        return self if self.is_numpy else self.map(backend.to_numpy)

    def has_mlp(self, layer: int) -> bool:
        return f"blocks.{layer}.mlp.W_out" in self.weights

    @property
    def mlp_layers(self) -> list[int]:
        return [i for i in range(self.config.n_layers) if self.has_mlp(i)]

    @property
    def W_U(self) -> Array:
        """Unembedding matrix [D,V], whether tied or not."""
        return self.weights["embed.W_E"].T if self.config.tied else self.weights["unembed.W_U"]

    def __getattr__(self, name: str) -> Array:
        """Return weights by short name: `model.W_E`, or `model.W_Q` [layers,H,D,K]."""
        weights = vars(self).get("weights", {}) if name.startswith(("W_", "b_")) else {}
        arrays = [w for n, w in weights.items() if n.rpartition(".")[2] == name]
        if not arrays:
            raise attribute_error(self, name, "model")
        if name in ("W_E", "W_pos", "b_U"):
            return arrays[0]
        if len(arrays) < self.config.n_layers:
            raise AttributeError(f"not every layer has {name}; take it from model.weights")
        return backend.backend_for(arrays[0]).stack(arrays)

    @property
    def dtype(self) -> str:
        """Float type of the weights, such as "float64"."""
        return backend.dtype_name(self.weights["embed.W_E"])

    def map(self, f: Callable[[Array], Array]) -> "Model":
        """Return the model with `f` applied to every array, as in `model.map(torch.from_numpy)`."""
        check_function("map", f, "(array) -> array")
        weights, theta = (
            {n: f(w) for n, w in arrays.items()} for arrays in (self.weights, self.theta)
        )
        return replace(self, weights=weights, theta=theta)

    def astype(self, dtype: str) -> "Model":
        """Return the model with weights of another float type."""
        kind = float_type(dtype)
        if not self.is_numpy:
            return self.map(lambda w: w.to(getattr(sys.modules["torch"], kind)))
        if kind == "bfloat16":
            raise GlassformerError(
                "model — NumPy does not support bfloat16; use model.torch('bfloat16')"
            )
        with np.errstate(over="ignore"):  # callers check for infinities
            return self.map(lambda w: w.astype(kind))

    def torch(self, dtype: str = "", device: str = "cpu") -> "Model":
        """Return the model with PyTorch weights. `dtype` defaults to the model's float type."""
        try:
            import torch
        except ModuleNotFoundError:
            raise GlassformerError(f"model — {TORCH_MISSING}") from None
        is_default = isinstance(dtype, str) and not dtype
        kind = getattr(torch, float_type(self.dtype if is_default else dtype))
        try:
            return self.map(lambda w: torch.tensor(backend.to_numpy(w), dtype=kind, device=device))
        except (RuntimeError, TypeError, ValueError, AssertionError) as e:
            reason = str(e).partition("\n")[0]
            message = f"model — not on device {short_repr(device)}: {reason}"
            raise GlassformerError(message) from None

    def __str__(self) -> str:
        return describe_model(self)

    def __repr__(self) -> str:
        size = sum(math.prod(w.shape) for w in self.weights.values())
        return f"<Model {self.name}: {size:,} parameters, {self.config}>"


def _frozen_copy(name: str, w: Any) -> Array:
    """Check a weight and return it as a read-only float array, copied if it is writable."""
    expected = f"weights — {short_repr(name)}: expected"
    if isinstance(w, (list, tuple, int, float)):
        try:
            w = np.array(w, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise GlassformerError(f"{expected} numbers, in rows of one length") from None
    if not hasattr(w, "dtype") or not hasattr(w, "shape"):
        raise GlassformerError(f"{expected} an array, got {short_repr(w)}")
    dtype = backend.dtype_name(w)
    if dtype not in MAX_FINITE and (isinstance(w, np.ndarray) or hasattr(w, "detach")):
        raise GlassformerError(f"{expected} floats ({', '.join(MAX_FINITE)}), got {dtype}")
    if isinstance(w, np.ndarray) and (w.flags.writeable or type(w) is not np.ndarray):
        w = np.array(w)  # also copies views of memory-mapped files
        w.setflags(write=False)
    return w


def float_type(dtype: Any) -> str:
    """Return the name of a model's float type, from a name or a NumPy or PyTorch dtype."""
    try:
        is_dtype = isinstance(dtype, str) or type(dtype).__name__ == "dtype"
        name = str(dtype if is_dtype else np.dtype(dtype)).removeprefix("torch.")
    except Exception:  # np.dtype may raise any exception for an arbitrary object
        name = ""
    if name not in MAX_FINITE:
        expected = f"expected one of {', '.join(MAX_FINITE)}"
        raise GlassformerError(f"model — dtype: {expected}, got {short_repr(dtype)}")
    return name


def check_tokens(c: Config, tokens: Any, start: int = 0) -> Array:
    """Return tokens as an array [B,T] or [T]; raise an error if they do not fit the config."""
    tokens = as_integers("tokens", tokens)
    if tokens.ndim not in (1, 2) or not tokens.shape[-1]:
        expected = "expected shape [B,T] or [T] with T from 1"
        raise GlassformerError(f"tokens — {expected}, got {list(tokens.shape)}")
    if not isinstance(start, (int, np.integer)):
        raise GlassformerError(f"start — expected a position, got {short_repr(start)}")
    if start < 0 or start + tokens.shape[-1] > c.n_ctx:
        text = f"{tokens.shape[-1]} tokens" + (f" from position {start} on" if start else "")
        raise GlassformerError(f"tokens — expected positions below n_ctx={c.n_ctx}, got {text}")
    low, high = (int(tokens.min()), int(tokens.max())) if tokens.shape[0] else (0, 0)
    if low < 0 or high >= c.d_vocab:
        token = low if low < 0 else high
        raise GlassformerError(f"token {token} — expected a number from 0 to {c.d_vocab - 1}")
    return tokens


def check_last(last: int | None, tokens: Array) -> None:
    """Raise an error unless `last` is None or a valid number of positions of the tokens."""
    if last is not None:
        check_int_range("last", last, 1, tokens.shape[-1])


def shape_checked_hook(hook: Hook) -> Hook:
    """Return a hook that raises an error if the wrapped hook returns another shape or no floats.

    A hook may only add positions, as a key-value cache does.
    """
    check_function("hook", hook, "(name, value) -> value")

    def checked(name: str, value: Array) -> Array:
        new, old_shape = hook(name, value), tuple(value.shape)
        shape = tuple(getattr(new, "shape", ()))
        if shape != old_shape and (
            shape[:1] + shape[2:] != old_shape[:1] + old_shape[2:] or shape[1:2] < old_shape[1:2]
        ):
            got = list(shape) if hasattr(new, "shape") else short_repr(new)
            must = f"must keep its shape {list(old_shape)}"
            raise GlassformerError(f"hook — {name} {must}, got {got}")
        if "float" not in (dtype := backend.dtype_name(new)):
            raise GlassformerError(f"hook — {name} must be floats, got {dtype}")
        return new

    return checked
