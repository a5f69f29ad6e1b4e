"""A folder of `transformers`: config.json and model.safetensors, read and looked at. Nothing in it
is executed. Which families are known: gpt2_read.py and llama_read.py.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from msgspec import Meta

from ..core.checkpoint_format import check_finite
from ..core.model import ACTIVATIONS, Model
from ..utils.errors import GlassformerError, short_repr
from ..utils.fileio import read_bytes
from ..utils.limits import available_memory
from ..utils.typed_json import JsonObject, convert, read_json

T = TypeVar("T", bound=JsonObject)
Size = Annotated[int, Meta(ge=1, le=2**31 - 1)]
LayerCount = Annotated[int, Meta(ge=0, le=10_000)]
ShortText = Annotated[str, Meta(max_length=100)]

ACTIVATION_ALIASES = {
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_new",
}  # other names for our activations
# Of any family, and what we compute too: the one value that can be read.
REQUIRED_VALUES: dict[str, Any] = {
    "add_cross_attention": False, "is_encoder_decoder": False, "pruned_heads": {},
    "quantization_config": None, "auto_map": None,
}  # fmt: skip
IGNORED_FIELDS = {  # for training, for generating, for other heads, or for the record
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
    """The model in a folder, whatever family it is of."""
    from . import gpt2_read, llama_read

    is_llama = read_config(Path(path))["model_type"] == "llama"
    return llama_read.read_llama(path) if is_llama else gpt2_read.read_gpt2(path)


def read_config(path: Path) -> dict[str, Any]:
    """config.json."""
    file = path / "config.json"
    fields = read_json(file)
    if not isinstance(fields, dict) or "model_type" not in fields:
        raise GlassformerError(f"{file} — has no model_type: not a folder of transformers")
    return fields


def check_fields(
    file: Path, fields: Mapping[str, Any], family: str, required: Mapping[str, Any],
    record_type: type[T], ignored: Collection[str],
) -> T:  # fmt: skip
    """Return the fields of `kind`. An unknown field outside `harmless` is an error."""
    known = set(record_type.__struct_fields__)
    for name, only in required.items():
        if fields.get(name, only) != only and (given := fields[name]) is not None:
            raise GlassformerError(
                f"{file} — {name} is {short_repr(given)}; only {only!r} can be read"
            )
    if unknown := sorted(set(fields) - known - set(ignored) - set(required)):
        hint = "if it does not change what the model computes, remove it"
        name = short_repr(unknown[0]).strip("'")
        what = f"{name} is not a field of {family} that is known here"
        raise GlassformerError(f"{file} — {what}; {hint}")
    try:
        return convert(
            {name: value for name, value in fields.items() if name in known}, record_type
        )
    except GlassformerError as e:
        raise GlassformerError(f"{file} — {e}") from None


def parse_activation(file: Path, field: str, name: str) -> str:
    """Return the glassformer name of an activation in config.json."""
    if name not in (known := [*ACTIVATIONS, *ACTIVATION_ALIASES]):
        what = f"{field} is {name!r}; expected one of {', '.join(known)}"
        raise GlassformerError(f"{file} — {what}")
    return ACTIVATION_ALIASES.get(name, name)


def read_arrays(path: Path, ignored_suffixes: tuple[str, ...]) -> dict[str, Any]:
    """model.safetensors, but for what ends so; bfloat16, which NumPy has not, as float32."""
    from safetensors import SafetensorError, deserialize

    file = path / "model.safetensors"
    if not file.is_file():
        why = "no such file"
        for other in ("model.safetensors.index.json", "pytorch_model.bin"):
            if (path / other).exists():
                why = f"{other} is there, but only one safetensors file is read"
        raise GlassformerError(f"{file} — {why}; write the folder anew with save_pretrained")
    try:
        held = deserialize(read_bytes(file, available_memory()))  # type: ignore[no-untyped-call]
    except (SafetensorError, ValueError, KeyError, TypeError):
        raise GlassformerError(f"{file} — not a safetensors file, or a damaged one") from None
    found = {}
    for name, given in held:
        if name.endswith(ignored_suffixes):
            continue
        if (kind := given["dtype"]) not in DTYPES:
            raise GlassformerError(f"{file} — {name} is {kind}; expected {', '.join(DTYPES)}")
        a = np.frombuffer(given["data"], DTYPES[kind]).reshape(given["shape"])
        found[name] = (a.astype("<u4") << 16).view("<f4") if kind == "BF16" else a
    check_finite(file, found)
    return found


def check_arrays(arrays: Mapping[str, Any], expected: Collection[str], family: str) -> None:
    """Refuses by its name what is missing, or is there and has no place."""
    if missing := [n for n in expected if n not in arrays]:
        raise GlassformerError(f"model.safetensors — has no {missing[0]}")
    if foreign := [n for n in arrays if n not in expected]:
        what = f"has {foreign[0]}, which is not of {family} with this config"
        raise GlassformerError(f"model.safetensors — {what}")


def to_common_dtype(weights: Mapping[str, Any]) -> dict[str, Any]:
    """float64 if any is, else float32."""
    kind = np.result_type(np.float32, *(a.dtype for a in weights.values()))
    return {n: np.ascontiguousarray(a, kind) for n, a in weights.items()}
