"""Read config.json and model.safetensors of a `transformers` folder without executing code.

The supported families are in gpt2_read.py and llama_read.py.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from msgspec import Meta

from ..core.checkpoint_format import check_finite
from ..core.model import ACTIVATIONS, Model
from ..utils.errors import DAMAGED_FILE, GlassformerError, short_repr
from ..utils.fileio import read_bytes
from ..utils.limits import available_memory
from ..utils.typed_json import JsonObject, convert, read_json

T = TypeVar("T", bound=JsonObject)
Size = Annotated[int, Meta(ge=1, le=2**31 - 1)]
LayerCount = Annotated[int, Meta(ge=0, le=10_000)]
ShortText = Annotated[str, Meta(max_length=100)]

ACTIVATION_ALIASES = {"swish": "silu", "gelu_pytorch_tanh": "gelu_new"}
# Fields of all families that change the computation, and their only supported value.
REQUIRED_VALUES: dict[str, Any] = {
    "add_cross_attention": False, "is_encoder_decoder": False, "pruned_heads": {},
    "quantization_config": None, "auto_map": None,
}  # fmt: skip
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


def read_folder(path: str | Path) -> Model:
    """Return the model in a folder of a supported family."""
    from . import gpt2_read, llama_read

    is_llama = read_config(Path(path))["model_type"] == "llama"
    return llama_read.read_llama(path) if is_llama else gpt2_read.read_gpt2(path)


def read_config(path: Path) -> dict[str, Any]:
    """Return the fields of config.json."""
    file = path / "config.json"
    fields = read_json(file)
    if not isinstance(fields, dict) or "model_type" not in fields:
        raise GlassformerError(f"{file}: expected a transformers folder, got no model_type")
    return fields


def check_fields(
    file: Path, fields: Mapping[str, Any], family: str, required: Mapping[str, Any],
    record_type: type[T], ignored: Collection[str],
) -> T:  # fmt: skip
    """Return the fields as a `record_type`.

    An unknown field that is not in `ignored` raises an error.
    """
    names = set(record_type.__struct_fields__)
    for name, only in required.items():
        if fields.get(name, only) != only and (value_ := fields[name]) is not None:
            problem = f"{name}: expected {only!r}, got {short_repr(value_)}"
            raise GlassformerError(f"{file}: {problem}", code="unsupported")
    if unknown := sorted(set(fields) - names - set(ignored) - set(required)):
        name = short_repr(unknown[0]).strip("'")
        problem = f"{name} is not a supported field of {family}; remove it if it has no effect"
        raise GlassformerError(f"{file}: {problem}", code="unsupported")
    try:
        return convert({n: value for n, value in fields.items() if n in names}, record_type)
    except GlassformerError as e:
        raise GlassformerError(f"{file}: {e}") from None


def parse_activation(file: Path, field: str, name: str) -> str:
    """Return Glassformer's name of an activation function in config.json."""
    if name not in (names := [*ACTIVATIONS, *ACTIVATION_ALIASES]):
        problem = f"{field}: expected one of {', '.join(names)}, got {name!r}"
        raise GlassformerError(f"{file}: {problem}", code="unsupported")
    return ACTIVATION_ALIASES.get(name, name)


def read_arrays(path: Path, ignored_suffixes: tuple[str, ...]) -> dict[str, Any]:
    """Read the arrays of model.safetensors, converting bfloat16 to float32."""
    from safetensors import SafetensorError, deserialize

    file = path / "model.safetensors"
    if not file.is_file():
        names = ("model.safetensors.index.json", "pytorch_model.bin")
        other = [f" (only {name})" for name in names if (path / name).exists()]
        hint = "save the model as one safetensors file"
        problem = f"no such file{''.join(other[:1])}; {hint}"
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


def check_arrays(arrays: Mapping[str, Any], expected: Collection[str], family: str) -> None:
    """Raise an error that names the missing or unexpected arrays, if any."""
    if missing := [n for n in expected if n not in arrays]:
        raise GlassformerError(f"model.safetensors: missing {missing[0]}", code=DAMAGED_FILE)
    if foreign := [n for n in arrays if n not in expected]:
        problem = f"unexpected {foreign[0]} for {family} with this config"
        raise GlassformerError(f"model.safetensors: {problem}", code="unsupported")


def build_or_refuse(path: Path, family: str, build: Callable[[], Model]) -> Model:
    """Return `build()`; add the name of the folder to its errors."""
    try:
        return build()
    except ValueError as e:
        problem = f"not a supported {family} model: {e}"
        raise GlassformerError(f"{path}: {problem}", code="unsupported") from None
    except GlassformerError as e:
        raise GlassformerError(f"{path}: {e}") from None


def check_layer_count(field: str, n_layers: int, n_arrays: int) -> None:
    """Raise an error if there are more layers than arrays, before generating array names."""
    if n_layers > n_arrays:
        problem = f"{n_layers:,} layers, but model.safetensors has {n_arrays:,} arrays"
        raise GlassformerError(f"{field}: {problem}", code=DAMAGED_FILE)


def to_common_dtype(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Convert all arrays to float64 if any array is float64, otherwise to float32."""
    kind = np.result_type(np.float32, *(a.dtype for a in weights.values()))
    return {n: np.ascontiguousarray(a, kind) for n, a in weights.items()}
