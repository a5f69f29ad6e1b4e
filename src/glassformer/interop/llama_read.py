"""From Llama: a folder of `transformers` (config.json, model.safetensors). Nothing is executed.

Our transformer is one already: RMS norms, rotary positions, a gated MLP. Where several heads share
keys and values (grouped queries), each gets a copy of them. Their gate is activated and their `up`
is not: our W_in and W_gate. A field that we do not compute with is refused by its name.
"""

from pathlib import Path
from typing import Any

import numpy as np

from ..core.model import Config, Model
from ..core.vocabulary import Vocabulary
from ..utils import json_schema
from ..utils.errors import GlassformerError, shown
from . import folder

MUST_BE = folder.MUST_BE | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
SIZE = json_schema.whole(1, 2**31 - 1)
CHECKS = {
    "vocab_size": SIZE, "hidden_size": SIZE, "intermediate_size": SIZE,
    "num_hidden_layers": json_schema.whole(0, 10_000), "num_attention_heads": SIZE,
    "num_key_value_heads": json_schema.optional(SIZE), "head_dim": json_schema.optional(SIZE),
    "max_position_embeddings": SIZE, "hidden_act": json_schema.text(100),
    "rms_norm_eps": json_schema.finite, "rope_theta": json_schema.finite,
    "rope_parameters": json_schema.optional(json_schema.mapping(json_schema.anything, 2)),
    "rope_scaling": json_schema.optional(json_schema.mapping(json_schema.anything, 2)),
    "attention_bias": json_schema.boolean, "mlp_bias": json_schema.boolean,
    "tie_word_embeddings": json_schema.boolean,
}  # fmt: skip
DEFAULTS: dict[str, Any] = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": None, "head_dim": None,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "attention_bias": False,
    "mlp_bias": False, "tie_word_embeddings": False,
}  # fmt: skip
HARMLESS = folder.HARMLESS | {"attention_dropout", "pretraining_tp"}

# Their names and ours: of all arrays but those of blocks, then of a block, without .weight or .bias
OUTSIDE = {
    "model.embed_tokens.weight": "embed.W_E", "model.norm.weight": "ln_final.w",
    "lm_head.weight": "unembed.W_U",
}  # fmt: skip
NORMS = {"input_layernorm": "ln1.w", "post_attention_layernorm": "ln2.w"}
ATTENTION = {f"self_attn.{x.lower()}_proj": f"attn.?_{x}" for x in "QKVO"}
MLP = {"mlp.gate_proj": "mlp.?_in", "mlp.up_proj": "mlp.?_gate", "mlp.down_proj": "mlp.?_out"}


def read(path: str | Path) -> Model:
    """The model in a Llama folder, float32 or float64, its tokens as numbers."""
    path = Path(path)
    fields = folder.config(path)
    file = path / "config.json"
    folder.check_fields(file, fields, "Llama", MUST_BE, CHECKS, HARMLESS)
    act, base = folder.activation(file, fields, "hidden_act", "silu"), _base(file, fields)
    found = folder.arrays(path, ("rotary_emb.inv_freq",))
    try:
        return _model(DEFAULTS | fields, act, base, found)
    except ValueError as e:
        raise GlassformerError(f"{path} — not a Llama that can be read: {e}") from None
    except GlassformerError as e:
        raise GlassformerError(f"{path} — {e}") from None


def _base(file: Path, fields: dict[str, Any]) -> float:
    """Of the rotary angles: in rope_parameters, or in older folders beside rope_scaling."""
    base = fields.get("rope_theta", 10_000.0)
    for name in ("rope_parameters", "rope_scaling"):
        given = dict(fields.get(name) or {})
        kind = given.pop("rope_type", given.pop("type", "default"))
        base = given.pop("rope_theta", base)
        if kind != "default" or given:
            only = "only rope_type 'default' can be read"
            raise GlassformerError(f"{file} — {name} is {shown(fields[name])}; {only}")
        json_schema.finite(base, f"{file} — {name}")
    return float(base)


def _model(asked: dict[str, Any], act: str, base: float, found: dict[str, Any]) -> Model:
    D, H = asked["hidden_size"], asked["num_attention_heads"]
    G, K = asked["num_key_value_heads"] or H, asked["head_dim"] or D // H
    if H % G:
        raise GlassformerError(f"num_key_value_heads — {G} do not divide {H} heads")
    if K % 2:
        raise GlassformerError(f"head_dim — {K} is odd: rotary positions turn pairs")
    config = Config(
        d_vocab=asked["vocab_size"], n_ctx=asked["max_position_embeddings"], d_model=D,
        n_layers=asked["num_hidden_layers"], n_heads=H, d_head=K,
        d_mlp=asked["intermediate_size"], norm="rms", eps=asked["rms_norm_eps"], activation=act,
        positions="rotary", base=base, tied=asked["tie_word_embeddings"],
    )  # fmt: skip
    if config.n_layers > len(found):  # before all their names are made
        what = f"but model.safetensors has {len(found):,} arrays"
        raise GlassformerError(f"num_hidden_layers is {config.n_layers:,}, {what}")
    theirs = _array_names(config, asked["attention_bias"], asked["mlp_bias"])
    if config.tied:
        found.pop("lm_head.weight", None)
    folder.check_arrays(found, theirs, "Llama")
    weights = {ours: _as_ours(ours, found[name], H, G, K) for name, ours in theirs.items()}
    words = Vocabulary.numbers(config.d_vocab)
    return Model(config, folder.of_one_type(weights), words, provenance={"maker": "llama"})


def _array_names(c: Config, attention_bias: bool, mlp_bias: bool) -> dict[str, str]:
    """Their name -> ours, of every array; a tied head has none."""
    names = {n: ours for n, ours in OUTSIDE.items() if not (c.tied and n == "lm_head.weight")}
    block = {f"{n}.weight": ours for n, ours in NORMS.items()}
    for part, bias in ((ATTENTION, attention_bias), (MLP, mlp_bias)):
        block |= {f"{n}.weight": ours.replace("?", "W") for n, ours in part.items()}
        block |= {f"{n}.bias": ours.replace("?", "b") for n, ours in part.items() if bias}
    for i in range(c.n_layers):
        names |= {f"model.layers.{i}.{n}": f"blocks.{i}.{ours}" for n, ours in block.items()}
    return names


def _as_ours(name: str, a: Any, H: int, G: int, K: int) -> Any:
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
