"""TransformerLens 4.x (`TransformerBridge`) and 3.9 (`HookedTransformer`): export and import.

Weight names and shapes equal Glassformer's, with these differences:
- scores are divided by sqrt(d_head), so any other scale is multiplied into W_Q and b_Q;
- absent biases and gains become zeros and ones;
- positions are a table (zeros without positions), or rotary with adjacent coordinates as pairs;
- all blocks have an MLP or none has. A gated MLP has no biases and activates W_gate (Glassformer's
  W_in).
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ..core import backend
from ..core.hooks import hook_names
from ..core.model import ACTIVATIONS, POSITIONS, Config, Model, Scope
from ..core.vocabulary import Vocabulary
from ..core.weight_shapes import array_shapes
from ..registry import bridge
from ..utils.errors import DAMAGED_FILE, GlassformerError
from ..utils.fileio import read_bytes
from ..utils.limits import available_memory
from ..utils.typed_json import read_json
from .common import check_supported, export_error, run_python_file, torch_logits
from .folder import ACTIVATION_ALIASES
from .parity import to_float32_if_safe
from .tokenizer import begin_token, build_tokenizer, has_tokenizer, stop_token_id

NORM_TYPES = {"layer": "LN", "rms": "RMS"}
LOAD_SCRIPT = '''"""Load this folder's model in TransformerLens 4.x or 3.9: `from load import model`.

`logits, cache = model.run_with_cache(TEXT)`; to_tokens, to_string and generate use its tokenizer.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast

here = Path(__file__).parent
described = json.loads((here / "config.json").read_text(encoding="utf-8"))
fields, vocabulary = described["transformer_lens"], described["vocabulary"]
fields["dtype"] = getattr(torch, fields["dtype"])
weights = load_file(here / "model.safetensors")
try:
    from transformer_lens import HookedTransformer, HookedTransformerConfig  # 3.9
except ImportError:
    from transformer_lens.config import TransformerBridgeConfig  # 4.x
    from transformer_lens.model_bridge import TransformerBridge
    from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint

    cfg = TransformerBridgeConfig(**fields)
    cfg.rotary_base = fields.get("rotary_base", cfg.rotary_base)  # the config truncates it
    model = TransformerBridge.boot_native(cfg, dtype=cfg.dtype)
    model.load_state_dict(convert_tl_checkpoint(weights, cfg), strict=True)
else:
    model = HookedTransformer(HookedTransformerConfig(**fields))
    model.load_state_dict(model.state_dict() | weights, strict=True)  # keeps its masks
model.eval()
if (here / "tokenizer.json").exists():
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(here / "tokenizer.json"))
    if described["stop"] is None:
        tokenizer.add_special_tokens({"eos_token": "<|endoftext|>"})
    else:  # a special token would also match inside other tokens
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(described["stop"])
    tokenizer.pad_token = tokenizer.eos_token
    model.tokenizer = tokenizer
'''  # noqa: E501


@bridge("transformer-lens")
class TransformerLensBridge:
    """Export to a folder with model.safetensors, config.json and load.py."""

    extra, needs, float32 = "transformer-lens", ("torch", "tokenizers", "transformer_lens"), True
    files = frozenset({"config.json", "load.py", "model.safetensors", "tokenizer.json"})

    def check(self, model: Model) -> None:
        c = model.config
        used = [n for n, w in model.numpy().weights.items() if w.any()]
        norm_biases = [n for n in used if _is_norm_array(n) and n.endswith(".b")]
        gated = {n.split(".")[1] for n in model.weights if n.endswith("mlp.W_gate")}
        mlp_biases = [n for n in used if ".mlp.b_" in n and gated]
        plain = [n for n in used if n.endswith("mlp.W_in") and n.split(".")[1] not in gated]
        if c.norm == "rms" and norm_biases:
            problem = "RMS norms have no bias. Fold it into the biases after the norm"
            raise export_error("transformer-lens", f"{norm_biases[0]}: {problem}")
        odd = c.positions == "rotary" and c.d_head < 2
        check_supported("transformer-lens", [
            (not c.norm_first and c.norm != "none", "norm_first: expected true, got false"),
            (c.positions == "alibi", "positions: TransformerLens has no alibi positions"),
            (odd, f"d_head: rotary positions need at least 2, got {c.d_head}"),
            (c.qk_norm, "qk_norm: TransformerLens has no norm of queries and keys"),
            (mlp_biases, f"{''.join(mlp_biases[:1])}: gated MLPs have no biases"),
            (gated and plain, "W_gate: expected in all MLPs or in none"),
        ])  # fmt: skip

    def float32_limitation(self, model: Model) -> str:
        c = model.config
        if c.norm == "rms" and any(map(_is_norm_array, model.weights)):
            return "TransformerLens computes RMS norms with gains in float32 (norm)"
        if c.positions == "rotary":
            return "TransformerLens rotates queries and keys by float32 angles (positions)"
        return ""

    def write(self, model: Model, path: Path) -> list[str]:
        from safetensors.numpy import save

        path.mkdir()
        (path / "model.safetensors").write_bytes(save(state_dict(model)))
        description = {
            "transformer_lens": config_fields(model), "vocabulary": model.vocabulary.to_json(),
            "stop": stop_token_id(model), "task": model.task,
        }  # fmt: skip
        text = json.dumps(description, indent=1, ensure_ascii=False) + "\n"
        (path / "config.json").write_text(text, encoding="utf-8")
        (path / "load.py").write_text(LOAD_SCRIPT, encoding="utf-8")
        if has_tokenizer(model.vocabulary):
            build_tokenizer(model.vocabulary, begin_token(model)).save(str(path / "tokenizer.json"))
        return export_notes(model)

    def logits(self, path: Path, tokens: Any) -> Any:
        return torch_logits(load_folder(path), tokens)

    def hooks(self, model: Model, path: Path, tokens: Any) -> dict[str, Any]:
        """Return TransformerLens's activations, without the differences in `export_notes`."""
        import torch

        c, order = model.config, np.argsort(adjacent_pair_order(model.config.d_head))
        with torch.no_grad():
            cache = load_folder(path).run_with_cache(torch.as_tensor(tokens))[1]
        names = (n for n in hook_names(model) if n in cache and not n.endswith("hook_attn_scores"))
        activations = {n: backend.to_numpy(cache[n]) for n in names}
        for n, a in activations.items():
            a = a / (c.scale * c.d_head**0.5) if n.endswith("hook_q") and c.scale else a
            rotated = n.endswith(("hook_q", "hook_k")) and c.positions == "rotary"
            activations[n] = a[..., order] if rotated else a
        return activations

    def read(self, path: Path) -> Model:
        cfg, weights, description = _read_files(path)
        vocabulary = Vocabulary.from_json(description["vocabulary"])
        return from_transformer_lens(weights, cfg, vocabulary, description["task"])


def _read_files(path: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the config fields, the weights and the whole config.json of an exported folder."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        description = read_json(path / "config.json")
        weights = load(read_bytes(path / "model.safetensors", available_memory()))
        return description["transformer_lens"], weights, description
    except (GlassformerError, ValueError, KeyError, TypeError, SafetensorError) as e:
        problem = f"expected an exported folder with config.json and model.safetensors: {e}"
        raise GlassformerError(f"{path}: {problem}", code=DAMAGED_FILE) from None


def export_notes(model: Model) -> list[str]:
    """Describe how activations of the exported model differ from the original, by name."""
    c = model.config
    notes = ["load.py loads it: from load import model"]
    if not has_tokenizer(model.vocabulary):
        notes.append(f"no tokenizer for the separator {model.vocabulary.sep!r}: use token ids")
    if c.n_layers:
        notes.append("4.x: hook_attn_scores is the pattern")
    if c.n_layers and c.scale and c.scale != c.d_head**-0.5:
        times = f"{c.scale * c.d_head**0.5:g}"
        notes.append(f"hook_q is ours times {times}: W_Q and b_Q include the attention scale")
    if c.positions == "rotary":
        order = "hook_q and hook_k have adjacent rotary pairs"
        notes.append(f"{order}; 4.x has no hook_rot_q and hook_rot_k")
    return notes


# ── export ─────────────────────────────────────────────────────────────────────────────────────
def config_fields(model: Model) -> dict[str, Any]:
    """Return fields for TransformerBridgeConfig (4.x) and HookedTransformerConfig (3.9)."""
    c, names = model.config, model.weights
    pre = "Pre" * (not any(map(_is_norm_array, names)))
    norm = None if c.norm == "none" else NORM_TYPES[c.norm] + pre
    fields = {
        "n_layers": c.n_layers, "d_model": c.d_model, "n_ctx": c.n_ctx, "d_head": c.d_head,
        "n_heads": c.n_heads, "d_vocab": c.d_vocab, "d_vocab_out": c.d_vocab,
        "d_mlp": max(c.d_mlp, 1), "act_fn": c.activation,
        "attn_only": not any(n.endswith("mlp.W_out") for n in names),
        "gated_mlp": any(n.endswith("mlp.W_gate") for n in names),
        "normalization_type": norm, "eps": c.eps,
        "attention_dir": "causal" if c.mask == "causal" else "bidirectional",
        "positional_embedding_type": "rotary" if c.positions == "rotary" else "standard",
        "init_weights": False, "default_prepend_bos": False, "tokenizer_prepends_bos": False,
        "device": "cpu", "dtype": model.dtype,
    }  # fmt: skip
    if c.positions == "rotary":
        base = int(c.base) if c.base == int(c.base) else c.base
        fields |= {"rotary_dim": c.d_head // 2 * 2, "rotary_base": base}
        fields["rotary_adjacent_pairs"] = True
    return fields


def state_dict(model: Model) -> dict[str, Any]:
    """Return {name: array} with every weight of the HookedTransformer."""
    TransformerLensBridge().check(model)
    c, cfg = model.config, config_fields(model)
    ours = {n: w.astype(np.float64) for n, w in model.numpy().weights.items() if w.size}
    if c.tied:
        ours["unembed.W_U"] = ours["embed.W_E"].T
    if c.positions == "sinusoidal":
        table = POSITIONS[c.positions].embed
        assert table
        ours["pos_embed.W_pos"] = table(c, Scope({}, None), np.zeros((1, c.n_ctx, 1)), 0)
    for n in ours:
        if c.scale and n.endswith(("W_Q", "b_Q")):
            ours[n] = ours[n] * (c.scale * c.d_head**0.5)
    _convert_blocks(c, ours, adjacent_pair_order(c.d_head) if c.positions == "rotary" else ...)
    full = {n: ours.get(n, blank) for n, blank in _default_arrays(c, cfg).items()}
    return {n: np.ascontiguousarray(w, model.dtype) for n, w in full.items()}


def _convert_blocks(c: Config, weights: dict[str, Any], order: Any) -> None:
    """Swap W_in and W_gate of gated MLPs, and order the coordinates of queries and keys."""
    for at in (f"blocks.{i}." for i in range(c.n_layers)):
        W_in, W_gate = f"{at}mlp.W_in", f"{at}mlp.W_gate"
        if W_gate in weights:
            weights[W_in], weights[W_gate] = weights[W_gate], weights[W_in]
        for name in (f"{at}attn.{n}" for n in ("W_Q", "b_Q", "W_K", "b_K")):
            if name in weights and order is not ...:
                weights[name] = weights[name][..., order]


def _default_arrays(c: Config, cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return {name: default} for all arrays of the HookedTransformer: zeros, or ones for gains."""
    gains = {"LN": (".w", ".b"), "RMS": (".w",)}.get(cfg["normalization_type"], ())
    absent = {"q_norm", "k_norm", "b_gate"}
    absent |= {"b_in", "b_out"} if cfg["gated_mlp"] else {"W_gate"}
    absent |= {"ln2", "mlp"} if cfg["attn_only"] else set()
    positions = "rotary" if c.positions == "rotary" else "learned"
    theirs = array_shapes(replace(c, tied=False, positions=positions, d_mlp=cfg["d_mlp"]))
    names = [n for n in theirs if not absent & {*n.split(".")}]
    names = [n for n in names if not _is_norm_array(n) or n.endswith(gains)]
    return {n: (np.ones if n.endswith(".w") else np.zeros)(theirs[n]) for n in names}


def adjacent_pair_order(d_head: int) -> Any:
    """Return the order of a head's coordinates that makes its rotary pairs adjacent."""
    n = d_head // 2
    pairs = np.stack([np.arange(n), np.arange(n, 2 * n)], axis=1).reshape(-1)
    return np.concatenate([pairs, np.arange(2 * n, d_head)])


def to_transformer_lens(model: Model) -> Any:
    """Return the model as a `TransformerBridge` of transformer-lens 4.x, with a tokenizer.

    As in `export`, it is in float32 if this is precise enough for the model, else in float64.

    Raises:
        GlassformerError: TransformerLens cannot represent the model.
    """
    TransformerLensBridge().check(model)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        TransformerLensBridge().write(to_float32_if_safe(model.numpy())[0], path)
        return load_folder(path)


def load_folder(path: Path) -> Any:
    """Return the TransformerLens model of an exported folder."""
    return run_python_file(path / "load.py")["model"]


def _is_norm_array(name: str) -> bool:
    return name.rsplit(".", 2)[-2] in ("ln1", "ln2", "ln_final")


# ── import ─────────────────────────────────────────────────────────────────────────────────────
# Fields that Glassformer does not support -> their neutral value.
UNSUPPORTED_FIELDS = {
    "n_key_value_heads": None, "attn_scores_soft_cap": -1.0, "output_logits_soft_cap": -1.0,
    "final_rms": False, "parallel_attn_mlp": False, "post_embedding_ln": False,
    "use_local_attn": False, "use_qk_norm": False, "scale_attn_by_inverse_layer_idx": False,
    "num_experts": None, "rmsnorm_uses_offset": False, "rope_scaling": None,
    "use_NTK_by_parts_rope": False, "use_yarn_rope": False,
    "use_normalization_before_and_after": False,
}  # fmt: skip
ACTIVATION_NAMES = {name: name for name in ACTIVATIONS} | ACTIVATION_ALIASES
BUFFER_SUFFIXES = (".mask", ".IGNORE", ".rotary_sin", ".rotary_cos")
# Suffix of a native (4.x) name -> Glassformer suffix; the first match is used.
KINDS = (("weight", "W"), ("bias", "b"))
NATIVE_SUFFIXES = {
    **{f".{x.lower()}.{end}": f".{w}_{x}" for end, w in KINDS for x in "QKVO"},
    **{f".mlp.{x}.{end}": f".mlp.{w}_{x}" for end, w in KINDS for x in ("in", "out", "gate")},
    "pos_embed.weight": "pos_embed.W_pos", "unembed.weight": "unembed.W_U",
    "unembed.bias": "unembed.b_U", "embed.weight": "embed.W_E", ".weight": ".w", ".bias": ".b",
}  # fmt: skip


def from_transformer_lens(
    source: Any, cfg: Any = None, vocabulary: Vocabulary | None = None, task: str = ""
) -> Model:
    """Convert a `TransformerBridge`, a `HookedTransformer`, or a state dict and cfg to a Model.

    Zero biases, unit gains and zero positions are dropped, and an unembedding equal to the
    embedding is tied. An exported model is thus restored unchanged, except for a folded attention
    scale.

    Args:
        source: The TransformerLens model, or its state dict.
        cfg: The config; required with a state dict.
        vocabulary: The vocabulary. Defaults to numbers from 0.
        task: Ref of the model's task.

    Raises:
        GlassformerError: A config field or weight is not supported.
    """
    state = source if isinstance(source, Mapping) else source.state_dict()
    fields = source.cfg if cfg is None else cfg
    fields = dict(fields if isinstance(fields, Mapping) else vars(fields))
    c = _to_config(fields)
    weights = {n: backend.to_numpy(w) for n, w in state.items() if not n.endswith(BUFFER_SUFFIXES)}
    native = "embed.weight" in weights  # version 4.x
    if native:
        weights = dict(_from_native(c, n, w) for n, w in weights.items())
    pairs = c.positions == "rotary" and (native or fields.get("rotary_adjacent_pairs"))
    _convert_blocks(c, weights, np.argsort(adjacent_pair_order(c.d_head)) if pairs else ...)
    arrays = {n: w for n, w in weights.items() if not _is_default(n, w)}
    gated = [n.replace("W_gate", "b_in") for n in arrays if n.endswith(".mlp.W_gate")]
    if odd := [n for n in gated if n in arrays]:
        raise _import_error(f"{odd[0]}: biases of gated MLPs are not supported")
    if c.positions == "learned" and (arrays["pos_embed.W_pos"] == 0).all():
        c = replace(c, positions="none")
        del arrays["pos_embed.W_pos"]
    if np.array_equal(arrays["unembed.W_U"], arrays["embed.W_E"].T):
        c = replace(c, tied=True)
        del arrays["unembed.W_U"]
    vocabulary = vocabulary or Vocabulary.numbers(c.d_vocab)
    return Model(c, arrays, vocabulary, task, provenance={"from": "transformer-lens"})


def _import_error(problem: str) -> GlassformerError:
    return GlassformerError(f"transformer-lens: {problem}", code="unsupported")


def _is_default(name: str, w: Any) -> bool:
    last = name.split(".")[-1]
    return bool((last[0] == "b" and (w == 0).all()) or (last == "w" and (w == 1).all()))


def _from_native(c: Config, name: str, w: Any) -> tuple[str, Any]:
    """Convert an array of a native bridge (4.x) to Glassformer's name and shape."""
    end, ours = next((e for e in NATIVE_SUFFIXES.items() if name.endswith(e[0])), ("", ""))
    name = name.removesuffix(end) + ours
    heads, last = (c.n_heads, c.d_head), name.split(".")[-1]
    if last in ("W_Q", "W_K", "W_V"):
        w = w.reshape(*heads, c.d_model).swapaxes(1, 2)  # H D K
    elif last == "W_O":
        w = w.T.reshape(*heads, c.d_model)  # H K D
    elif last in ("b_Q", "b_K", "b_V"):
        w = w.reshape(heads)
    elif last in ("W_in", "W_out", "W_gate", "W_U"):
        w = w.T
    return name, np.ascontiguousarray(w)


def _to_config(fields: Mapping[str, Any]) -> Config:

    def get(name: str, default: Any = None) -> Any:
        value = fields.get(name, default)
        return default if value is None else value

    norm = str(fields.get("normalization_type", "LN") or "none")
    norms = {"LN": "layer", "LNPRE": "layer", "RMS": "rms", "RMSPRE": "rms", "NONE": "none"}
    positions = get("positional_embedding_type", "standard")
    rotary, attn_only, act = positions == "rotary", get("attn_only", False), get("act_fn", "relu")
    d_head, vocab = int(fields["d_head"]), int(fields["d_vocab"])
    supported = {
        "normalization_type": norm.upper() in norms,
        "positional_embedding_type": positions in ("standard", "rotary"),
        "act_fn": attn_only or str(act) in ACTIVATION_NAMES,
        "d_vocab_out": get("d_vocab_out", vocab) in (-1, vocab),
        "rotary_dim": not rotary or get("rotary_dim", d_head) == d_head // 2 * 2,
    }
    for name, neutral in UNSUPPORTED_FIELDS.items():
        values = (None, neutral, False, 0)
        values += (fields["n_heads"],) if name == "n_key_value_heads" else ()
        supported[name] = fields.get(name) in values
    if refused := next((name for name, holds in supported.items() if not holds), ""):
        raise _import_error(f"{refused}={fields[refused]!r} is not supported")
    scale = 0.0 if get("use_attn_scale", True) else 1.0
    if not scale and get("attn_scale", -1.0) > 0 and get("attn_scale") != d_head**0.5:
        scale = 1 / float(fields["attn_scale"])
    sizes: Any = {name: int(fields[name]) for name in ("n_ctx", "d_model", "n_layers", "n_heads")}
    return Config(
        **sizes, d_vocab=vocab, d_head=d_head, d_mlp=0 if attn_only else int(fields["d_mlp"]),
        norm=norms[norm.upper()], eps=float(get("eps", 1e-5)), scale=scale,
        activation=ACTIVATION_NAMES.get(str(act), "relu"), base=float(get("rotary_base", 10_000.0)),
        positions="rotary" if rotary else "learned",
        mask="causal" if get("attention_dir", "causal") == "causal" else "none",
    )  # fmt: skip
