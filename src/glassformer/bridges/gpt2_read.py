"""From GPT-2: a folder of `transformers` (config.json, model.safetensors). Nothing is executed.

A folder that is not the GPT-2 that we compute is refused by the name of the field that differs.
"""

from pathlib import Path
from typing import Any

import numpy as np

from .. import schema
from ..errors import GlassformerError, shown
from ..lang.compiler import KEY as COMPILED
from ..limits import REF, memory
from ..model import ACTIVATIONS, Config, Labels, Model
from ..records import read_bytes
from ..stored import CARRIED, finite, labels
from ..vocabulary import Vocabulary

KEY = "glassformer"  # in config.json: what GPT-2 has no word for
SAME = {"swish": "silu", "gelu_pytorch_tanh": "gelu_new"}  # other names for our activations
# Fields of config.json that change what GPT-2 computes, and the one value that we compute, too.
MUST_BE = {
    "model_type": "gpt2", "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False, "add_cross_attention": False, "is_encoder_decoder": False,
    "pruned_heads": {}, "quantization_config": None, "auto_map": None,
    "architectures": ["GPT2LMHeadModel"],
}  # fmt: skip
DEFAULTS: dict[str, Any] = {  # of the fields that are read
    "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12,
    "n_inner": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True, "tie_word_embeddings": True,
}  # fmt: skip
SIZE = schema.whole(1, 2**31 - 1)
CHECKS = {
    "vocab_size": SIZE, "n_positions": SIZE, "n_embd": SIZE, "n_layer": schema.whole(0, 10_000),
    "n_head": SIZE, "n_inner": schema.optional(schema.whole(0, 2**31 - 1)),
    "activation_function": schema.text(100), "layer_norm_epsilon": schema.finite,
    "scale_attn_weights": schema.boolean, "tie_word_embeddings": schema.boolean,
    KEY: schema.optional(schema.record(
        {"vocabulary": schema.mapping(schema.anything, 2)},
        {
            "task": schema.text(REF), "labels": schema.mapping(schema.small(10**8), 3),
            COMPILED: schema.small(CARRIED),
        },
    )),
}  # fmt: skip
HARMLESS = {  # for training, for generating, for other heads, or for the record
    "resid_pdrop", "embd_pdrop", "attn_pdrop", "initializer_range", "summary_type",
    "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout",
    "use_cache", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id",
    "decoder_start_token_id", "n_ctx", "_name_or_path", "_num_labels", "dtype", "torch_dtype",
    "transformers_version", "chunk_size_feed_forward", "id2label", "label2id", "is_decoder",
    "output_attentions", "output_hidden_states", "output_past", "problem_type", "return_dict",
    "task_specific_params", "gradient_checkpointing", "torchscript", "use_bfloat16", "prefix",
    "finetuning_task", "_attn_implementation_autoset", "cross_attention_hidden_size",
    "tie_encoder_decoder", "tokenizer_class",
}  # fmt: skip

# Their names, without "transformer.", and ours: of all arrays but those of blocks, then of a block.
OUTSIDE = {
    "wte.weight": "embed.W_E", "wpe.weight": "pos_embed.W_pos",
    "ln_f.weight": "ln_final.w", "ln_f.bias": "ln_final.b", "lm_head.weight": "unembed.W_U",
}  # fmt: skip
BLOCK = {
    "ln_1.weight": "ln1.w", "ln_1.bias": "ln1.b",
    "attn.c_attn.weight": "attn.W_QKV", "attn.c_attn.bias": "attn.b_QKV",
    "attn.c_proj.weight": "attn.W_O", "attn.c_proj.bias": "attn.b_O",
    "ln_2.weight": "ln2.w", "ln_2.bias": "ln2.b",
    "mlp.c_fc.weight": "mlp.W_in", "mlp.c_fc.bias": "mlp.b_in",
    "mlp.c_proj.weight": "mlp.W_out", "mlp.c_proj.bias": "mlp.b_out",
}  # fmt: skip


def array_names(c: Config) -> dict[str, str]:
    """Their name -> ours, of every array; a tied head has none."""
    found = dict(OUTSIDE)
    if c.tied:
        del found["lm_head.weight"]
    for i in range(c.n_layers):
        found |= {f"h.{i}.{theirs}": f"blocks.{i}.{ours}" for theirs, ours in BLOCK.items()}
    return found


def read(path: str | Path) -> Model:
    """The model in a GPT-2 folder, float32 or float64; what is not understood is refused."""
    path = Path(path)
    fields = _fields(path)
    arrays = _arrays(path)
    try:
        return _model(fields, arrays)
    except ValueError as e:
        raise GlassformerError(f"{path} — not a GPT-2 that can be read: {e}") from None
    except GlassformerError as e:
        raise GlassformerError(f"{path} — {e}") from None


def _model(fields: dict[str, Any], arrays: dict[str, Any]) -> Model:
    asked = DEFAULTS | {name: value for name, value in fields.items() if name in DEFAULTS}
    D, H, V, inner = asked["n_embd"], asked["n_head"], asked["vocab_size"], asked["n_inner"]
    if D % H:
        raise GlassformerError(f"n_head — {H} heads do not divide a width (n_embd) of {D}")
    name = asked["activation_function"]
    config = Config(
        d_vocab=V, n_ctx=asked["n_positions"], d_model=D, n_layers=asked["n_layer"], n_heads=H,
        d_mlp=4 * D if inner is None else inner, eps=asked["layer_norm_epsilon"],
        activation=SAME.get(name, name), scale=0.0 if asked["scale_attn_weights"] else 1.0,
        tied=asked["tie_word_embeddings"],
    )  # fmt: skip
    if config.n_layers > len(arrays):  # before all their names are made
        what = f"but model.safetensors has {len(arrays):,} arrays"
        raise GlassformerError(f"n_layer is {config.n_layers:,}, {what}")
    theirs, weights = array_names(config), dict[str, Any]()
    if missing := [n for n in theirs if n not in arrays]:
        raise GlassformerError(f"model.safetensors — has no {missing[0]}")
    if config.tied:
        arrays.pop("lm_head.weight", None)
    if foreign := [n for n in arrays if n not in theirs]:
        what = f"has {foreign[0]}, which is not of GPT-2 with this config"
        raise GlassformerError(f"model.safetensors — {what}")
    for name, ours in theirs.items():
        a = arrays[name]
        if ours.endswith("_QKV"):  # D 3HK -> 3 H D K, or 3HK -> 3 H K
            matrix = a.ndim == 2
            a = a.reshape(D, 3, H, -1).transpose(1, 2, 0, 3) if matrix else a.reshape(3, H, -1)
            weights |= {ours.replace("QKV", x): part for x, part in zip("QKV", a, strict=True)}
        elif ours.endswith("W_O"):
            weights[ours] = a.reshape(H, -1, D)
        else:
            weights[ours] = a.T if ours == "unembed.W_U" else a
    own = fields.get(KEY) or {}
    vocabulary = Vocabulary.from_json(own["vocabulary"]) if own else Vocabulary.numbers(V)
    given = labels(own["labels"], config) if "labels" in own else Labels()
    kind = np.result_type(np.float32, *(a.dtype for a in weights.values()))
    weights = {n: np.ascontiguousarray(a, kind) for n, a in weights.items()}
    made: dict[str, Any] = {"maker": "gpt2"} | {n: own[n] for n in (COMPILED,) if n in own}
    return Model(config, weights, vocabulary, own.get("task", ""), given, made)


def _fields(path: Path) -> dict[str, Any]:
    """config.json, refused by the name of the first field that we do not compute with."""
    file = path / "config.json"
    fields = schema.read_json(file)
    if not isinstance(fields, dict) or "model_type" not in fields:
        raise GlassformerError(f"{file} — has no model_type: not a folder of transformers")
    for name, only in MUST_BE.items():
        if fields.get(name, only) != only and (given := fields[name]) is not None:
            raise GlassformerError(f"{file} — {name} is {shown(given)}; only {only!r} can be read")
    if unknown := sorted(set(fields) - set(CHECKS) - HARMLESS - set(MUST_BE)):
        hint = "if it does not change what the model computes, remove it"
        name = shown(unknown[0]).strip("'")
        what = f"{name} is not a field of GPT-2 that is known here"
        raise GlassformerError(f"{file} — {what}; {hint}")
    for name, check in CHECKS.items():
        if name in fields:
            check(fields[name], f"{file} — {name}")
    activation, known = fields.get("activation_function", "gelu_new"), [*ACTIVATIONS, *SAME]
    if activation not in known:
        what = f"activation_function is {activation!r}; expected one of {', '.join(known)}"
        raise GlassformerError(f"{file} — {what}")
    return fields


def _arrays(path: Path) -> dict[str, Any]:
    """model.safetensors, names without "transformer." and without the mask of old versions."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    file = path / "model.safetensors"
    if not file.is_file():
        why = "no such file"
        for other in ("model.safetensors.index.json", "pytorch_model.bin"):
            if (path / other).exists():
                why = f"{other} is there, but only one safetensors file is read"
        raise GlassformerError(f"{file} — {why}; write the folder anew with save_pretrained")
    data = read_bytes(file, memory())
    try:
        found = load(data)
    except (SafetensorError, ValueError, KeyError, TypeError):
        what = "not a safetensors file of float32 or float16, or a damaged one"
        raise GlassformerError(f"{file} — {what}") from None
    masks = (".attn.bias", ".attn.masked_bias")
    held = {n: a for n, a in found.items() if not n.endswith(masks)}
    arrays = {n.removeprefix("transformer."): a for n, a in held.items()}
    for name, a in arrays.items():
        if a.dtype.kind != "f":
            raise GlassformerError(f"{file} — {name} is {a.dtype}; expected float32 or float16")
    finite(file, arrays)
    return arrays
