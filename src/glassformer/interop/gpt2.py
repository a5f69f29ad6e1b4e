"""Export to a GPT-2 folder of `transformers`: config.json, model.safetensors, tokenizer.json.

GPT-2 is a causal pre-LN transformer with learned positions and n_heads * d_head = d_model:
- absent biases, gains, MLPs and positions become zeros and ones;
- scores are divided by sqrt(padded d_head), so any other scale is multiplied into W_Q and b_Q;
- if n_heads does not divide d_model, or the heads are wider, the stream is repeated, because
  LayerNorm([x x]) consists of two copies of LayerNorm(x), unlike LayerNorm([x 0]). Blocks read the
  first copy and write to all;
- an unembedding bias becomes a row of an untied unembedding that reads a 1 in the second copy.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.model import POSITIONS, PROVENANCE_KEY, Config, Model, Scope
from ..core.weight_shapes import array_axes, array_shapes
from ..registry import bridge
from .common import check_supported, import_library, torch_logits
from .folder import CONFIG_KEY, gpt2_array_names, read_folder
from .parity import matching_task, parity_batch
from .tokenizer import begin_token, build_tokenizer, has_tokenizer, stop_token_id

NamedValues = dict[str, Any]


@bridge("gpt2")
class Gpt2Bridge:
    extra, needs, float32 = "gpt2", ("torch", "tokenizers", "transformers"), True
    files = frozenset({
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json",
    })  # fmt: skip

    def check(self, model: Model) -> None:
        c, sep = model.config, model.vocabulary.sep
        gated, tokens = any("gate" in n for n in model.weights), has_tokenizer(model.vocabulary)
        rotated = c.positions in ("rotary", "alibi")
        check_supported("gpt2", [
            (c.norm != "layer", f"norm: expected layer, got {c.norm}"),
            (not c.norm_first, "norm_first: expected true, got false"),
            (rotated, f"positions: GPT-2 has no {c.positions} positions"),
            (c.mask != "causal", f"mask: expected causal, got {c.mask}"),
            (c.qk_norm, "qk_norm: GPT-2 does not normalize queries and keys"),
            (gated, "W_gate: GPT-2 has no gated MLP"),
            (not tokens, f"token separator: expected a space, got {sep!r}"),
        ])  # fmt: skip

    def write(self, model: Model, path: Path) -> list[str]:
        torch, lib = import_library("torch"), import_library("transformers")
        settings, arrays, notes = to_gpt2(model, model.dtype)
        words, stop, begin = model.vocabulary, stop_token_id(model), begin_token(model)
        ends = {"eos_token_id": stop, "pad_token_id": stop}
        ends["bos_token_id"] = words.encode(begin)[0] if begin else None
        end_tokens = {} if stop is None else dict.fromkeys(("eos_token", "pad_token"), words[stop])
        with silence_transformers():
            config = lib.GPT2Config(**settings, **ends, **{CONFIG_KEY: _own_fields(model)})
            net = lib.GPT2LMHeadModel(config).to(getattr(torch, model.dtype))
            net.load_state_dict({n: torch.tensor(a) for n, a in arrays.items()}, strict=True)
            lengths = _generation_length(model)
            net.generation_config = lib.GenerationConfig(do_sample=False, **ends, **lengths)
            net.save_pretrained(path)
            tokenizer = lib.PreTrainedTokenizerFast(
                tokenizer_object=build_tokenizer(words, begin),
                clean_up_tokenization_spaces=False, model_max_length=model.config.n_ctx,
                model_input_names=["input_ids", "attention_mask"], **end_tokens,
            )  # fmt: skip
            tokenizer.save_pretrained(path)
        return notes + _rounding_notes(model)

    def logits(self, path: Path, tokens: Any) -> Any:
        load = import_library("transformers").AutoModelForCausalLM.from_pretrained
        with silence_transformers():
            net = load(path, local_files_only=True, dtype="auto").eval()
            return torch_logits(lambda part: net(input_ids=part, use_cache=False).logits, tokens)

    def float32_limitation(self, model: Model) -> str:
        """Return "", because PyTorch computes in the float type of the weights."""
        return ""

    read = staticmethod(read_folder)


# ── conversion ─────────────────────────────────────────────────────────────────────────────────
def to_gpt2(model: Model, dtype: str = "float32") -> tuple[NamedValues, NamedValues, list[str]]:
    """Return the fields of GPT2Config, the arrays of GPT2LMHeadModel by name, and notes."""
    c, bias = model.config, model.weights.get("unembed.b_U")
    bias = None if bias is None or not bias.any() else bias
    r, tied = stream_copies(c, bias is not None), c.tied and bias is None
    D, F, H = r * c.d_model, max(c.d_mlp, 1), c.n_heads if c.n_layers else 1
    ours = _padded_weights(model, r, {"D": D, "K": D // H, "F": F})
    if tied:
        ours["unembed.W_U"] = ours["embed.W_E"].T
        for gain in ("ln_final.w", "ln_final.b"):
            ours[gain] = ours[gain] / r  # the tied unembedding sums all copies
    elif bias is not None:
        ours["ln_final.w"][c.d_model], ours["ln_final.b"][c.d_model] = 0, 1
        ours["unembed.W_U"][c.d_model] = bias
    out = {}
    for theirs, name in gpt2_array_names(replace(c, tied=False)).items():
        if name.endswith("_QKV"):  # concatenated heads, and Q, K and V
            a = np.concatenate([_merge_heads(ours[name.replace("QKV", x)]) for x in "QKV"], -1)
        else:
            a = ours[name].reshape(D, D) if name.endswith("W_O") else ours[name]
        out[theirs] = a.T if theirs == "lm_head.weight" else a
    arrays = {n if n == "lm_head.weight" else f"transformer.{n}": a for n, a in out.items()}
    settings = {
        "vocab_size": c.d_vocab, "n_positions": c.n_ctx, "n_embd": D, "n_layer": c.n_layers,
        "n_head": H, "n_inner": F, "activation_function": c.activation,
        "layer_norm_epsilon": float(c.eps), "tie_word_embeddings": tied,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
    }  # fmt: skip
    notes = _notes(c, r, H, bias is not None, PROVENANCE_KEY in model.provenance)
    return settings, {n: np.ascontiguousarray(a, dtype=dtype) for n, a in arrays.items()}, notes


def _padded_weights(model: Model, r: int, sizes: dict[str, int]) -> dict[str, Any]:
    """Return GPT-2 arrays by Glassformer name, padded to `sizes`, with r stream copies.

    Outputs are written to all copies and inputs are read from the first copy. Padding is zero.
    """
    full, c = replace(model.config, tied=False, positions="learned"), model.config
    weights, table = dict(model.weights), np.zeros((c.n_ctx, c.d_model))
    embed = POSITIONS[c.positions].embed
    weights["pos_embed.W_pos"] = embed(c, Scope(weights, None), table[None], 0) if embed else table
    if c.tied:
        weights["unembed.W_U"] = weights["embed.W_E"].T
    out = {}
    for name, shape in array_shapes(full).items():
        w = weights.get(name, (np.ones if name.endswith(".w") else np.zeros)(shape))
        w = w * ((c.scale or c.d_head**-0.5) * math.sqrt(sizes["K"])) if name.endswith("_Q") else w
        axes = array_axes(full)[name].rstrip("?")
        if axes[-1] == "D":  # an output
            w = np.concatenate([w] * r, -1)
        missing = [sizes.get(axis, n) - n for axis, n in zip(axes, w.shape, strict=True)]
        out[name] = np.pad(w, [(0, n) for n in missing])
    return out


def _merge_heads(w: Any) -> Any:
    """Concatenate the heads of an array: H D K -> D HK, H K -> HK."""
    return w.transpose(1, 0, 2).reshape(w.shape[1], -1) if w.ndim == 3 else w.reshape(-1)


def _notes(c: Config, r: int, H: int, bias: bool, compiled: bool) -> list[str]:
    D, notes = r * c.d_model, []
    if r > 1:
        reason = f"to fit {H} head{'s' * (H > 1)} of {c.d_head}"
        reason = reason if stream_copies(c, False) == r else "for the unembedding bias"
        notes.append(f"the stream of {c.d_model} is repeated {r} times, to {D}, {reason}")
    if c.n_layers and c.d_head != D // H:
        notes.append(f"heads of {c.d_head} are padded with zeros to {D // H}")
    if bias:
        untied = ", and is untied" * c.tied
        notes.append(f"the unembedding bias becomes a row that reads a constant{untied}")
    if compiled and r > 1:
        notes.append("the exported model is not proved; compile with target=gpt2 for a proof")
    elif compiled:
        notes.append("the exported model is the proved one: glassformer prove reads the folder")
    return [*notes, f"context length: {c.n_ctx} tokens"]


def stream_copies(c: Config, bias: bool) -> int:
    """Return the smallest number of copies of the stream that fits the heads."""
    r = 2 if bias else 1
    while c.n_layers and (r * c.d_model % c.n_heads or r * c.d_model // c.n_heads < c.d_head):
        r += 1
    return r


def _rounding_notes(model: Model) -> list[str]:
    """Return a note if rounding logits to float32 in `generate` changes greedy tokens."""
    batch = parity_batch(model)
    logits = model.logits(batch.tokens)
    best, rounded = logits.argmax(-1), logits.astype("float32").argmax(-1)
    if not (n := int((best != rounded)[batch.answer_mask].sum())):
        return []
    effect = f"which changes {n:,} of {int(batch.answer_mask.sum()):,} greedy tokens"
    return [f"generate rounds logits to float32, {effect}; use model(…).logits.argmax(-1)"]


def _generation_length(model: Model) -> dict[str, int]:
    """Return max_new_tokens if answers have a fixed length or a stop token."""
    batch, task = parity_batch(model), matching_task(model)
    lengths = batch.answer_mask.sum(1)
    ends = task is not None and (task.stop is not None or lengths.min() == lengths.max())
    return {"max_new_tokens": int(lengths.max())} if batch.has_task and ends else {}


def _own_fields(model: Model) -> dict[str, Any]:
    fields = {"vocabulary": model.vocabulary.to_json(), "labels": asdict(model.labels)}
    compiled = {n: source for n, source in model.provenance.items() if n == PROVENANCE_KEY}
    return fields | {"task": model.task} | compiled


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Suppress the progress bars and hints of transformers in this context."""
    logging = import_library("transformers.utils.logging")
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
