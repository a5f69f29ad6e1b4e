"""From Llama: a folder of `transformers` (config.json, model.safetensors). Nothing is executed.

Our transformer is one already: RMS norms, rotary positions, a gated MLP. Where several heads share
keys and values (grouped queries), each gets a copy of them. Their gate is activated and their `up`
is not: our W_in and W_gate. A field that we do not compute with is refused by its name.
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

REQUIRED_VALUES = folder.REQUIRED_VALUES | {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
}
RopeFields = Annotated[dict[str, Any], Meta(max_length=2)]


class LlamaFields(JsonObject):
    """Supported fields of config.json, with their defaults."""

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

# Their names and ours: of all arrays but those of blocks, then of a block, without .weight or .bias
GLOBAL_ARRAYS = {
    "model.embed_tokens.weight": "embed.W_E", "model.norm.weight": "ln_final.w",
    "lm_head.weight": "unembed.W_U",
}  # fmt: skip
NORM_ARRAYS = {"input_layernorm": "ln1.w", "post_attention_layernorm": "ln2.w"}
ATTENTION_ARRAYS = {f"self_attn.{x.lower()}_proj": f"attn.?_{x}" for x in "QKVO"}
MLP_ARRAYS = {
    "mlp.gate_proj": "mlp.?_in",
    "mlp.up_proj": "mlp.?_gate",
    "mlp.down_proj": "mlp.?_out",
}


def read_llama(path: str | Path) -> Model:
    """The model in a Llama folder, float32 or float64, its tokens as numbers."""
    path = Path(path)
    file, given = path / "config.json", folder.read_config(path)
    fields = folder.check_fields(file, given, "Llama", REQUIRED_VALUES, LlamaFields, IGNORED_FIELDS)
    act, base = (
        folder.parse_activation(file, "hidden_act", fields.hidden_act),
        _rotary_base(file, fields),
    )
    found = folder.read_arrays(path, ("rotary_emb.inv_freq",))
    try:
        return _build_model(fields, act, base, found)
    except ValueError as e:
        raise GlassformerError(f"{path} — not a Llama that can be read: {e}") from None
    except GlassformerError as e:
        raise GlassformerError(f"{path} — {e}") from None


def _rotary_base(file: Path, fields: LlamaFields) -> float:
    """Of the rotary angles: in rope_parameters, or in older folders beside rope_scaling."""
    base = fields.rope_theta
    ropes = {"rope_parameters": fields.rope_parameters, "rope_scaling": fields.rope_scaling}
    for name, rope in ropes.items():
        given = dict(rope or {})
        kind = given.pop("rope_type", given.pop("type", "default"))
        base = given.pop("rope_theta", base)
        if kind != "default" or given:
            only = "only rope_type 'default' can be read"
            raise GlassformerError(f"{file} — {name} is {short_repr(rope)}; {only}")
        base = convert(base, Finite, f"{file} — {name}")
    return base


def _build_model(fields: LlamaFields, act: str, base: float, found: dict[str, Any]) -> Model:
    D, H = fields.hidden_size, fields.num_attention_heads
    G, K = fields.num_key_value_heads or H, fields.head_dim or D // H
    if H % G:
        raise GlassformerError(f"num_key_value_heads — {G} do not divide {H} heads")
    if K % 2:
        raise GlassformerError(f"head_dim — {K} is odd: rotary positions turn pairs")
    config = Config(
        d_vocab=fields.vocab_size, n_ctx=fields.max_position_embeddings, d_model=D,
        n_layers=fields.num_hidden_layers, n_heads=H, d_head=K,
        d_mlp=fields.intermediate_size, norm="rms", eps=fields.rms_norm_eps, activation=act,
        positions="rotary", base=base, tied=fields.tie_word_embeddings,
    )  # fmt: skip
    if config.n_layers > len(found):  # before all their names are made
        what = f"but model.safetensors has {len(found):,} arrays"
        raise GlassformerError(f"num_hidden_layers is {config.n_layers:,}, {what}")
    theirs = _array_names(config, fields.attention_bias, fields.mlp_bias)
    if config.tied:
        found.pop("lm_head.weight", None)
    folder.check_arrays(found, theirs, "Llama")
    weights = {ours: _convert_array(ours, found[name], H, G, K) for name, ours in theirs.items()}
    words = Vocabulary.numbers(config.d_vocab)
    return Model(config, folder.to_common_dtype(weights), words, provenance={"maker": "llama"})


def _array_names(c: Config, attention_bias: bool, mlp_bias: bool) -> dict[str, str]:
    """Their name -> ours, of every array; a tied head has none."""
    names = {n: ours for n, ours in GLOBAL_ARRAYS.items() if not (c.tied and n == "lm_head.weight")}
    block = {f"{n}.weight": ours for n, ours in NORM_ARRAYS.items()}
    for part, bias in ((ATTENTION_ARRAYS, attention_bias), (MLP_ARRAYS, mlp_bias)):
        block |= {f"{n}.weight": ours.replace("?", "W") for n, ours in part.items()}
        block |= {f"{n}.bias": ours.replace("?", "b") for n, ours in part.items() if bias}
    for i in range(c.n_layers):
        names |= {f"model.layers.{i}.{n}": f"blocks.{i}.{ours}" for n, ours in block.items()}
    return names


def _convert_array(name: str, a: Any, H: int, G: int, K: int) -> Any:
    """Their array [out,in] in our shape."""
    last = name.rpartition(".")[2]
    if last in ("W_Q", "W_K", "W_V"):
        a = a.reshape(-1, K, a.shape[-1]).swapaxes(1, 2)  # H D K, or fewer heads
    elif last in ("b_Q", "b_K", "b_V"):
        a = a.reshape(-1, K)
    elif last == "W_O":
        a = a.T.reshape(H, K, -1)
    elif last in ("W_in", "W_gate", "W_out", "W_U"):
        a = a.T
    return np.repeat(a, H // G, axis=0) if last[2:] in ("K", "V") else a
