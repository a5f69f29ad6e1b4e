"""Import from a Llama folder of `transformers`. An unsupported field raises an error.

With grouped queries, each head gets a copy of its group's key and value weights. Llama's activated
`gate_proj` is Glassformer's W_in, and its `up_proj` is W_gate.
"""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from ..core.model import Config, Model
from ..core.vocabulary import Vocabulary
from ..utils.errors import GlassformerError, short_repr
from ..utils.typed_json import Finite, JsonObject, convert
from . import folder

REQUIRED_VALUES = {**folder.REQUIRED_VALUES, "model_type": "llama"}
REQUIRED_VALUES["architectures"] = ["LlamaForCausalLM"]
RopeFields = Annotated[dict[str, Any], Meta(max_length=2)]


class LlamaFields(JsonObject):
    """Supported fields of config.json and their defaults."""

    vocab_size: folder.Size = 32000
    hidden_size: folder.Size = 4096
    intermediate_size: folder.Size = 11008
    num_hidden_layers: folder.LayerCount = 32
    num_attention_heads: folder.Size = 32
    num_key_value_heads: folder.Size | None = None
    head_dim: folder.Size | None = None
    max_position_embeddings: folder.Size = 2048
    hidden_act: folder.ShortText = "silu"
    rms_norm_eps: Finite = 1e-6
    rope_theta: Finite = 10_000.0
    rope_parameters: RopeFields | None = None
    rope_scaling: RopeFields | None = None
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False


IGNORED_FIELDS = folder.IGNORED_FIELDS | {"attention_dropout", "pretraining_tp"}

# Llama name -> Glassformer name, outside blocks and within a block, without .weight or .bias.
GLOBAL_ARRAYS = {
    "model.embed_tokens.weight": "embed.W_E", "model.norm.weight": "ln_final.w",
    "lm_head.weight": "unembed.W_U",
}  # fmt: skip
NORM_ARRAYS = {"input_layernorm": "ln1.w", "post_attention_layernorm": "ln2.w"}
ATTENTION_ARRAYS = {f"self_attn.{x.lower()}_proj": f"attn.?_{x}" for x in "QKVO"}
MLP_ARRAYS = {f"mlp.{x}_proj": f"mlp.?_{y}" for x, y in zip(
    ("gate", "up", "down"), ("in", "gate", "out"), strict=True)}  # fmt: skip


def read_llama(path: str | Path) -> Model:
    """Return the model in a Llama folder, in float32 or float64. Its vocabulary is numbers."""
    path = Path(path)
    file, raw = path / "config.json", folder.read_config(path)
    fields = folder.check_fields(file, raw, "Llama", REQUIRED_VALUES, LlamaFields, IGNORED_FIELDS)
    act = folder.parse_activation(file, "hidden_act", fields.hidden_act)
    base = _rotary_base(file, fields)
    arrays = folder.read_arrays(path, ("rotary_emb.inv_freq",))
    return folder.build_or_refuse(path, "Llama", lambda: _build_model(fields, act, base, arrays))


def _rotary_base(file: Path, fields: LlamaFields) -> float:
    """Return the rotary base from rope_parameters or from older fields."""
    base = fields.rope_theta
    ropes = {"rope_parameters": fields.rope_parameters, "rope_scaling": fields.rope_scaling}
    for name, rope in ropes.items():
        settings = dict(rope or {})
        kind = settings.pop("rope_type", settings.pop("type", "default"))
        base = settings.pop("rope_theta", base)
        if kind != "default" or settings:
            problem = f"{name}: expected rope_type 'default', got {short_repr(rope)}"
            raise GlassformerError(f"{file}: {problem}", code="unsupported")
        base = convert(base, Finite, f"{file}: {name}")
    return base


def _build_model(fields: LlamaFields, act: str, base: float, arrays: dict[str, Any]) -> Model:
    D, H = fields.hidden_size, fields.num_attention_heads
    G, K = fields.num_key_value_heads or H, fields.head_dim or D // H
    if H % G:
        raise GlassformerError(f"num_key_value_heads: expected a divisor of {H}, got {G}")
    if K % 2:
        raise GlassformerError(f"head_dim: expected an even number for rotary pairs, got {K}")
    config = Config(
        d_vocab=fields.vocab_size, n_ctx=fields.max_position_embeddings, d_model=D,
        n_layers=fields.num_hidden_layers, n_heads=H, d_head=K,
        d_mlp=fields.intermediate_size, norm="rms", eps=fields.rms_norm_eps, activation=act,
        positions="rotary", base=base, tied=fields.tie_word_embeddings,
    )  # fmt: skip
    folder.check_layer_count("num_hidden_layers", config.n_layers, len(arrays))
    theirs = _array_names(config, fields.attention_bias, fields.mlp_bias)
    if config.tied:
        arrays.pop("lm_head.weight", None)
    folder.check_arrays(arrays, theirs, "Llama")
    weights = {ours: _convert_array(ours, arrays[name], H, G, K) for name, ours in theirs.items()}
    vocabulary = Vocabulary.numbers(config.d_vocab)
    return Model(config, folder.to_common_dtype(weights), vocabulary, provenance={"maker": "llama"})


def _array_names(c: Config, attention_bias: bool, mlp_bias: bool) -> dict[str, str]:
    """Return {Llama name: Glassformer name} for every array."""
    names = {n: ours for n, ours in GLOBAL_ARRAYS.items() if not (c.tied and n == "lm_head.weight")}
    block = {f"{n}.weight": ours for n, ours in NORM_ARRAYS.items()}
    for part, bias in ((ATTENTION_ARRAYS, attention_bias), (MLP_ARRAYS, mlp_bias)):
        block |= {f"{n}.weight": ours.replace("?", "W") for n, ours in part.items()}
        block |= {f"{n}.bias": ours.replace("?", "b") for n, ours in part.items() if bias}
    for i in range(c.n_layers):
        names |= {f"model.layers.{i}.{n}": f"blocks.{i}.{ours}" for n, ours in block.items()}
    return names


def _convert_array(name: str, a: Any, H: int, G: int, K: int) -> Any:
    """Convert a Llama array [out,in] to Glassformer's shape."""
    last = name.rpartition(".")[2]
    if last in ("W_Q", "W_K", "W_V"):
        a = a.reshape(-1, K, a.shape[-1]).swapaxes(1, 2)  # H D K, or G D K
    elif last in ("b_Q", "b_K", "b_V"):
        a = a.reshape(-1, K)
    elif last == "W_O":
        a = a.T.reshape(H, K, -1)
    elif last in ("W_in", "W_gate", "W_out", "W_U"):
        a = a.T
    return np.repeat(a, H // G, axis=0) if last[2:] in ("K", "V") else a
