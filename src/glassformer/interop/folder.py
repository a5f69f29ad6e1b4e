"""Read GPT-2 and Llama folders of `transformers`: config.json and model.safetensors.

No code is executed, and an unsupported field raises an error. If heads of a Llama share keys and
values, each head gets a copy of the weights. Llama's activated `gate_proj` is Glassformer's W_in,
and its `up_proj` is W_gate.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import UNSET, Meta

from ..core.checkpoint_format import MAX_PROVENANCE_CHARS, check_finite, parse_labels
from ..core.model import ACTIVATIONS, PROVENANCE_KEY, Config, Labels, Model
from ..core.vocabulary import Vocabulary
from ..utils.errors import DAMAGED_FILE, GlassformerError, short_repr
from ..utils.fileio import read_bytes
from ..utils.limits import available_memory
from ..utils.typed_json import Finite, JsonObject, Ref, check_small, convert, read_json

CONFIG_KEY = "glassformer"  # key of Glassformer's entry in config.json
ACTIVATION_ALIASES = {"swish": "silu", "gelu_pytorch_tanh": "gelu_new"}
# Fields that change the computation, and their only supported value.
REQUIRED_VALUES: dict[str, Any] = {
    **dict.fromkeys(("add_cross_attention", "is_encoder_decoder"), False),
    **dict.fromkeys(("quantization_config", "auto_map")),
    "pruned_heads": {},
}
IGNORED_FIELDS = {  # fields without effect on the logits
    "initializer_range", "use_cache", "bos_token_id", "eos_token_id", "pad_token_id",
    "sep_token_id", "decoder_start_token_id", "_name_or_path", "_num_labels", "dtype",
    "torch_dtype", "transformers_version", "chunk_size_feed_forward", "id2label", "label2id",
    "is_decoder", "output_attentions", "output_hidden_states", "problem_type", "return_dict",
    "task_specific_params", "gradient_checkpointing", "torchscript", "use_bfloat16", "prefix",
    "finetuning_task", "_attn_implementation_autoset", "cross_attention_hidden_size",
    "tie_encoder_decoder", "tokenizer_class",
}  # fmt: skip
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
# Array names of GPT-2 (without "transformer.") and Llama -> Glassformer's, for the whole model and
# for a block.
GPT2_ARRAYS = {
    "wte.weight": "embed.W_E", "wpe.weight": "pos_embed.W_pos",
    "ln_f.weight": "ln_final.w", "ln_f.bias": "ln_final.b", "lm_head.weight": "unembed.W_U",
}  # fmt: skip
GPT2_BLOCK = {
    "ln_1.weight": "ln1.w", "ln_1.bias": "ln1.b",
    "attn.c_attn.weight": "attn.W_QKV", "attn.c_attn.bias": "attn.b_QKV",
    "attn.c_proj.weight": "attn.W_O", "attn.c_proj.bias": "attn.b_O",
    "ln_2.weight": "ln2.w", "ln_2.bias": "ln2.b",
    "mlp.c_fc.weight": "mlp.W_in", "mlp.c_fc.bias": "mlp.b_in",
    "mlp.c_proj.weight": "mlp.W_out", "mlp.c_proj.bias": "mlp.b_out",
}  # fmt: skip
LLAMA_ARRAYS = {
    "model.embed_tokens.weight": "embed.W_E", "model.norm.weight": "ln_final.w",
    "lm_head.weight": "unembed.W_U",
}  # fmt: skip
LLAMA_NORMS = {"input_layernorm.weight": "ln1.w", "post_attention_layernorm.weight": "ln2.w"}
LLAMA_MLP = (("gate", "in"), ("up", "gate"), ("down", "out"))

Size = Annotated[int, Meta(ge=1, le=2**31 - 1)]
LayerCount = Annotated[int, Meta(ge=0, le=10_000)]
ShortText = Annotated[str, Meta(max_length=100)]
RopeFields = Annotated[dict[str, Any], Meta(max_length=2)]


class OwnFields(JsonObject):
    """Glassformer's entry of config.json, under CONFIG_KEY."""

    vocabulary: dict[str, Any]  # checked by Vocabulary.from_json
    task: Ref = ""
    labels: Any = UNSET  # checked by `parse_labels`
    compiled: Any = UNSET  # source of a compiled model, see compiler/embedded_source.py


class Gpt2Fields(JsonObject):
    """Supported fields of a GPT-2's config.json and their defaults."""

    family: ClassVar[str] = "GPT-2"
    required: ClassVar[dict[str, Any]] = REQUIRED_VALUES | {
        **dict.fromkeys(("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"), False),
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
    }
    ignored: ClassVar[set[str]] = IGNORED_FIELDS | {
        "resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_type", "summary_use_proj",
        "summary_activation", "summary_proj_to_labels", "summary_first_dropout", "n_ctx",
        "output_past",
    }  # fmt: skip
    buffers: ClassVar[tuple[str, ...]] = (".attn.bias", ".attn.masked_bias")  # of old versions

    vocab_size: Size = 50257
    n_positions: Size = 1024
    n_embd: Size = 768
    n_layer: LayerCount = 12
    n_head: Size = 12
    n_inner: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    activation_function: ShortText = "gelu_new"
    layer_norm_epsilon: Finite = 1e-5
    scale_attn_weights: bool = True
    tie_word_embeddings: bool = True
    glassformer: OwnFields | None = None

    def config(self) -> Config:
        D, H = self.n_embd, self.n_head
        if D % H:
            raise GlassformerError(f"n_head: expected a divisor of n_embd={D}, got {H}")
        return Config(
            d_vocab=self.vocab_size, n_ctx=self.n_positions, d_model=D, n_layers=self.n_layer,
            n_heads=H, d_mlp=4 * D if self.n_inner is None else self.n_inner,
            activation=_activation("activation_function", self.activation_function),
            eps=self.layer_norm_epsilon, scale=0.0 if self.scale_attn_weights else 1.0,
            tied=self.tie_word_embeddings,
        )  # fmt: skip

    def array_names(self, c: Config) -> dict[str, str]:
        return gpt2_array_names(c)

    def convert(self, c: Config, name: str, a: Any) -> dict[str, Any]:
        """Convert a GPT-2 array to Glassformer's arrays."""
        D, H = c.d_model, c.n_heads
        if name.endswith("_QKV"):  # D 3HK -> 3 H D K, or 3HK -> 3 H K
            matrix = a.ndim == 2
            a = a.reshape(D, 3, H, -1).transpose(1, 2, 0, 3) if matrix else a.reshape(3, H, -1)
            return {name.replace("QKV", x): part for x, part in zip("QKV", a, strict=True)}
        if name.endswith("W_O"):
            return {name: a.reshape(H, -1, D)}
        return {name: a.T if name == "unembed.W_U" else a}


class LlamaFields(JsonObject):
    """Supported fields of a Llama's config.json and their defaults."""

    family: ClassVar[str] = "Llama"
    required: ClassVar[dict[str, Any]] = REQUIRED_VALUES | {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"]
    }  # fmt: skip
    ignored: ClassVar[set[str]] = IGNORED_FIELDS | {"attention_dropout", "pretraining_tp"}
    buffers: ClassVar[tuple[str, ...]] = ("rotary_emb.inv_freq",)
    glassformer: ClassVar[None] = None

    vocab_size: Size = 32000
    hidden_size: Size = 4096
    intermediate_size: Size = 11008
    num_hidden_layers: LayerCount = 32
    num_attention_heads: Size = 32
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    max_position_embeddings: Size = 2048
    hidden_act: ShortText = "silu"
    rms_norm_eps: Finite = 1e-6
    rope_theta: Finite = 10_000.0
    rope_parameters: RopeFields | None = None
    rope_scaling: RopeFields | None = None
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False

    def config(self) -> Config:
        D, H = self.hidden_size, self.num_attention_heads
        G, K = self.num_key_value_heads or H, self.head_dim or D // H
        if H % G:
            raise GlassformerError(f"num_key_value_heads: expected a divisor of {H}, got {G}")
        if K % 2:
            raise GlassformerError(f"head_dim: expected an even number for rotary pairs, got {K}")
        return Config(
            d_vocab=self.vocab_size, n_ctx=self.max_position_embeddings, d_model=D,
            n_layers=self.num_hidden_layers, n_heads=H, d_head=K, d_mlp=self.intermediate_size,
            norm="rms", eps=self.rms_norm_eps, tied=self.tie_word_embeddings,
            activation=_activation("hidden_act", self.hidden_act),
            positions="rotary", base=self._rotary_base(),
        )  # fmt: skip

    def _rotary_base(self) -> float:
        base = self.rope_theta
        for name in ("rope_parameters", "rope_scaling"):
            settings = dict(rope := getattr(self, name) or {})
            kind = settings.pop("rope_type", settings.pop("type", "default"))
            base = settings.pop("rope_theta", base)
            if kind != "default" or settings:
                problem = f"{name}: expected rope_type 'default', got {short_repr(rope)}"
                raise GlassformerError(problem, code="unsupported")
            base = convert(base, Finite, name)
        return base

    def array_names(self, c: Config) -> dict[str, str]:
        block = dict(LLAMA_NORMS)
        for end, W, biases in (("weight", "W", (True, True)),
                               ("bias", "b", (self.attention_bias, self.mlp_bias))):  # fmt: skip
            if biases[0]:
                block |= {f"self_attn.{x.lower()}_proj.{end}": f"attn.{W}_{x}" for x in "QKVO"}
            if biases[1]:
                block |= {f"mlp.{x}_proj.{end}": f"mlp.{W}_{ours}" for x, ours in LLAMA_MLP}
        return _array_names(c, LLAMA_ARRAYS, "model.layers.", block)

    def convert(self, c: Config, name: str, a: Any) -> dict[str, Any]:
        """Convert a Llama array [out,in] to Glassformer's shape."""
        last, H, K = name.rpartition(".")[2], c.n_heads, c.d_head
        if last in ("W_Q", "W_K", "W_V"):
            a = a.reshape(-1, K, a.shape[-1]).swapaxes(1, 2)  # H D K, or G D K
        elif last in ("b_Q", "b_K", "b_V"):
            a = a.reshape(-1, K)
        elif last == "W_O":
            a = a.T.reshape(H, K, -1)
        elif last in ("W_in", "W_gate", "W_out", "W_U"):
            a = a.T
        G = self.num_key_value_heads or H
        return {name: np.repeat(a, H // G, axis=0) if last[2:] in ("K", "V") else a}


Fields = Gpt2Fields | LlamaFields


def read_folder(path: str | Path) -> Model:
    """Return the model in a GPT-2 or Llama folder, in float32 or float64."""
    file, arrays_file = Path(path) / "config.json", Path(path) / "model.safetensors"
    raw = read_json(file)
    if not isinstance(raw, dict) or "model_type" not in raw:
        raise GlassformerError(f"{file}: expected a transformers folder, got no model_type")
    kind: type[Fields] = LlamaFields if raw["model_type"] == "llama" else Gpt2Fields
    with _errors_in(file, kind.family):
        fields = _parse_fields(raw, kind)
        config = fields.config()
    arrays = _read_arrays(arrays_file, kind.buffers)
    with _errors_in(Path(path), kind.family):
        return _build_model(fields, config, arrays)


@contextmanager
def _errors_in(path: Path, family: str) -> Iterator[None]:
    """Add a path to the errors raised in the context."""
    try:
        yield
    except ValueError as e:
        problem = f"not a supported {family} model: {e}"
        raise GlassformerError(f"{path}: {problem}", code="unsupported") from None
    except GlassformerError as e:
        raise GlassformerError(f"{path}: {e}", code=e.code) from None


def _parse_fields(raw: dict[str, Any], kind: type[Fields]) -> Fields:
    """Return the fields of config.json. An unknown field raises an error unless it is ignored."""
    names = {*kind.__struct_fields__}
    for name, only in kind.required.items():
        if raw.get(name, only) not in (only, None):
            problem = f"{name}: expected {only!r}, got {short_repr(raw[name])}"
            raise GlassformerError(problem, code="unsupported")
    if unknown := sorted({*raw} - names - kind.ignored - {*kind.required}):
        name = short_repr(unknown[0]).strip("'")
        problem = f"{name} is not a supported field of {kind.family}"
        raise GlassformerError(f"{problem}; remove it if it has no effect", code="unsupported")
    return convert({name: value for name, value in raw.items() if name in names}, kind)


def _activation(field: str, name: str) -> str:
    if name not in (names := [*ACTIVATIONS, *ACTIVATION_ALIASES]):
        problem = f"{field}: expected one of {', '.join(names)}, got {name!r}"
        raise GlassformerError(problem, code="unsupported")
    return ACTIVATION_ALIASES.get(name, name)


def gpt2_array_names(c: Config) -> dict[str, str]:
    """Return {GPT-2 name: Glassformer name} for every array."""
    return _array_names(c, GPT2_ARRAYS, "h.", GPT2_BLOCK)


def _array_names(
    c: Config, names: Mapping[str, str], layers: str, block: Mapping[str, str]
) -> dict[str, str]:
    names = {n: ours for n, ours in names.items() if not (c.tied and ours == "unembed.W_U")}
    for i in range(c.n_layers):
        names |= {f"{layers}{i}.{n}": f"blocks.{i}.{ours}" for n, ours in block.items()}
    return names


def _read_arrays(file: Path, ignored_suffixes: tuple[str, ...]) -> dict[str, Any]:
    """Read the arrays of model.safetensors, converting bfloat16 to float32."""
    from safetensors import SafetensorError, deserialize

    if not file.is_file():
        others = ("model.safetensors.index.json", "pytorch_model.bin")
        other = next((f" (only {n})" for n in others if file.with_name(n).exists()), "")
        problem = f"no such file{other}; save the model as one safetensors file"
        raise GlassformerError(f"{file}: {problem}", code="not_found")
    try:
        tensors = deserialize(read_bytes(file, available_memory()))  # type: ignore[no-untyped-call]
    except (SafetensorError, ValueError, KeyError, TypeError):
        raise GlassformerError(f"{file}: not a valid safetensors file", code=DAMAGED_FILE) from None
    arrays = {}
    for name, tensor in tensors:
        if name.endswith(ignored_suffixes):
            continue
        if (dtype := tensor["dtype"]) not in DTYPES:
            problem = f"{name}: expected {', '.join(DTYPES)}, got {dtype}"
            raise GlassformerError(f"{file}: {problem}", code="unsupported")
        a = np.frombuffer(tensor["data"], DTYPES[dtype]).reshape(tensor["shape"])
        arrays[name] = (a.astype("<u4") << 16).view("<f4") if dtype == "BF16" else a
    check_finite(file, arrays)
    return arrays


def _build_model(fields: Fields, c: Config, arrays: dict[str, Any]) -> Model:
    if c.n_layers > len(arrays):  # checked before names are generated
        problem = f"{c.n_layers:,} layers, but model.safetensors has {len(arrays):,} arrays"
        raise GlassformerError(problem, code=DAMAGED_FILE)
    arrays = {name.removeprefix("transformer."): a for name, a in arrays.items()}
    if c.tied:
        arrays.pop("lm_head.weight", None)
    names = fields.array_names(c)
    if missing := [n for n in names if n not in arrays]:
        raise GlassformerError(f"model.safetensors: missing {missing[0]}", code=DAMAGED_FILE)
    if foreign := [n for n in arrays if n not in names]:
        problem = f"unexpected {foreign[0]} for {fields.family} with this config"
        raise GlassformerError(f"model.safetensors: {problem}", code="unsupported")
    weights = dict[str, Any]()
    for name, ours in names.items():
        weights |= fields.convert(c, ours, arrays[name])
    # float64 if any array is float64, otherwise float32
    dtype = np.result_type(np.float32, *(a.dtype for a in weights.values()))
    weights = {n: np.ascontiguousarray(a, dtype) for n, a in weights.items()}
    vocabulary, task, labels = Vocabulary.numbers(c.d_vocab), "", Labels()
    provenance: dict[str, Any] = {"maker": fields.required["model_type"]}
    if own := fields.glassformer:
        vocabulary, task = Vocabulary.from_json(own.vocabulary), own.task
        labels = Labels() if own.labels is UNSET else parse_labels(own.labels, c)
        if own.compiled is not UNSET:
            check_small(own.compiled, f"{CONFIG_KEY}.compiled", MAX_PROVENANCE_CHARS)
            provenance[PROVENANCE_KEY] = own.compiled
    return Model(c, weights, vocabulary, task, labels, provenance)
