"""Import from a GPT-2 folder of `transformers`. An unsupported field raises an error."""

from pathlib import Path
from typing import Annotated, Any

from msgspec import UNSET, Meta

from ..compiler.embedded_source import PROVENANCE_KEY as COMPILED
from ..core.checkpoint_format import MAX_PROVENANCE_CHARS, parse_labels
from ..core.model import Config, Labels, Model
from ..core.vocabulary import Vocabulary
from ..utils.errors import GlassformerError
from ..utils.typed_json import Finite, JsonObject, Ref, check_small
from . import folder

CONFIG_KEY = "glassformer"  # key of Glassformer's entry in config.json
# Fields of config.json that change GPT-2's computation, and their only supported value.
REQUIRED_VALUES = folder.REQUIRED_VALUES | {
    "model_type": "gpt2", "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False, "architectures": ["GPT2LMHeadModel"],
}  # fmt: skip


class OwnFields(JsonObject):
    """Glassformer's entry of config.json, under CONFIG_KEY."""

    vocabulary: dict[str, Any]  # checked by Vocabulary.from_json
    task: Ref = ""
    labels: Any = UNSET  # checked by `labels`
    compiled: Any = UNSET  # source of a compiled model, see compiler/embedded_source.py


class Gpt2Fields(JsonObject):
    """Supported fields of config.json and their defaults."""

    vocab_size: folder.Size = 50257
    n_positions: folder.Size = 1024
    n_embd: folder.Size = 768
    n_layer: folder.LayerCount = 12
    n_head: folder.Size = 12
    n_inner: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    activation_function: folder.ShortText = "gelu_new"
    layer_norm_epsilon: Finite = 1e-5
    scale_attn_weights: bool = True
    tie_word_embeddings: bool = True
    glassformer: OwnFields | None = None


IGNORED_FIELDS = folder.IGNORED_FIELDS | {
    "resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_type", "summary_use_proj",
    "summary_activation", "summary_proj_to_labels", "summary_first_dropout", "n_ctx",
    "output_past",
}  # fmt: skip
MASK_SUFFIXES = (".attn.bias", ".attn.masked_bias")  # buffers written by old versions

# GPT-2 name, without "transformer." -> Glassformer name, outside blocks and within a block.
GLOBAL_ARRAYS = {
    "wte.weight": "embed.W_E", "wpe.weight": "pos_embed.W_pos",
    "ln_f.weight": "ln_final.w", "ln_f.bias": "ln_final.b", "lm_head.weight": "unembed.W_U",
}  # fmt: skip
BLOCK_ARRAYS = {
    "ln_1.weight": "ln1.w", "ln_1.bias": "ln1.b",
    "attn.c_attn.weight": "attn.W_QKV", "attn.c_attn.bias": "attn.b_QKV",
    "attn.c_proj.weight": "attn.W_O", "attn.c_proj.bias": "attn.b_O",
    "ln_2.weight": "ln2.w", "ln_2.bias": "ln2.b",
    "mlp.c_fc.weight": "mlp.W_in", "mlp.c_fc.bias": "mlp.b_in",
    "mlp.c_proj.weight": "mlp.W_out", "mlp.c_proj.bias": "mlp.b_out",
}  # fmt: skip


def array_names(c: Config) -> dict[str, str]:
    """Return {GPT-2 name: Glassformer name} for every array."""
    names = dict(GLOBAL_ARRAYS)
    if c.tied:
        del names["lm_head.weight"]
    for i in range(c.n_layers):
        names |= {f"h.{i}.{theirs}": f"blocks.{i}.{ours}" for theirs, ours in BLOCK_ARRAYS.items()}
    return names


def read_gpt2(path: str | Path) -> Model:
    """Return the model in a GPT-2 folder, in float32 or float64."""
    path = Path(path)
    file, raw = path / "config.json", folder.read_config(path)
    fields = folder.check_fields(file, raw, "GPT-2", REQUIRED_VALUES, Gpt2Fields, IGNORED_FIELDS)
    act = folder.parse_activation(file, "activation_function", fields.activation_function)
    loaded = folder.read_arrays(path, MASK_SUFFIXES)
    arrays = {n.removeprefix("transformer."): a for n, a in loaded.items()}
    return folder.build_or_refuse(path, "GPT-2", lambda: _build_model(fields, act, arrays))


def _build_model(fields: Gpt2Fields, act: str, arrays: dict[str, Any]) -> Model:
    D, H, V, inner = fields.n_embd, fields.n_head, fields.vocab_size, fields.n_inner
    if D % H:
        raise GlassformerError(f"n_head: expected a divisor of n_embd={D}, got {H}")
    config = Config(
        d_vocab=V, n_ctx=fields.n_positions, d_model=D, n_layers=fields.n_layer, n_heads=H,
        d_mlp=4 * D if inner is None else inner, eps=fields.layer_norm_epsilon,
        activation=act, scale=0.0 if fields.scale_attn_weights else 1.0,
        tied=fields.tie_word_embeddings,
    )  # fmt: skip
    folder.check_layer_count("n_layer", config.n_layers, len(arrays))
    theirs, weights = array_names(config), dict[str, Any]()
    if config.tied:
        arrays.pop("lm_head.weight", None)
    folder.check_arrays(arrays, theirs, "GPT-2")
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
    weights = folder.to_common_dtype(weights)
    provenance: dict[str, Any] = {"maker": "gpt2"}
    if (own := fields.glassformer) is None:
        return Model(config, weights, Vocabulary.numbers(V), provenance=provenance)
    if own.compiled is not UNSET:
        check_small(own.compiled, f"{CONFIG_KEY}.compiled", MAX_PROVENANCE_CHARS)
        provenance[COMPILED] = own.compiled
    model_labels = Labels() if own.labels is UNSET else parse_labels(own.labels, config)
    vocabulary = Vocabulary.from_json(own.vocabulary)
    return Model(config, weights, vocabulary, own.task, model_labels, provenance)
