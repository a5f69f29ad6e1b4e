"""To GPT-2 as `transformers` has it: a folder with config.json, model.safetensors and tokenizer.json.

GPT-2 is a causal pre-LN transformer with a table of positions, whose heads together are exactly as wide as the stream:
- biases, gains, MLPs and positions are always there: zeros and ones stand for those that a model has not;
- scores are divided by the root of the (padded) head size, so another scale goes into W_Q and b_Q;
- where n_head does not divide the width, or heads are wider together, the stream is REPEATED until it fits: the norm
  of [x x] is the norm of x, twice, which zeros beside x would spoil. Blocks read the first copy and write to all;
- there is no bias of the head: it is a row of an untied one that reads a constant 1, put in the second copy's place.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import GlassformerError
from ..model import POSITIONS, Config, Model, Place
from ..registry import bridge
from .common import library, task_of, trial
from .gpt2_read import KEY, read
from .tokens import tokenizer

INSTEAD = "--to torch and --to onnx can represent it"


@bridge("gpt2")
class GPT2:
    extra, needs, float32 = "gpt2", ("torch", "tokenizers", "transformers"), True

    def check(self, model: Model) -> None:
        if why := refusal(model):
            raise GlassformerError(f"--to gpt2 — {why}")

    def write(self, model: Model, path: Path) -> list[str]:
        torch, lib = library("torch"), library("transformers")
        settings, arrays, notes = convert(model)
        task = task_of(model)
        stop = None if task is None else task.stop
        ends = {"bos_token_id": None, "eos_token_id": stop, "pad_token_id": stop}
        with quiet():
            net = lib.GPT2LMHeadModel(lib.GPT2Config(**settings, **ends, **{KEY: _own(model)}))
            net.load_state_dict({n: torch.tensor(a) for n, a in arrays.items()}, strict=True)
            net.generation_config = lib.GenerationConfig(do_sample=False, **ends, **_steps(model))
            net.save_pretrained(path)
            end = {} if stop is None else dict.fromkeys(("eos_token", "pad_token"), model.vocabulary[stop])
            made = lib.PreTrainedTokenizerFast(
                tokenizer_object=tokenizer(model.vocabulary), clean_up_tokenization_spaces=False,
                model_max_length=model.config.n_ctx, model_input_names=["input_ids", "attention_mask"], **end,
            )  # fmt: skip
            made.save_pretrained(path)
        return notes

    def logits(self, path: Path, tokens: Any) -> Any:
        torch, lib = library("torch"), library("transformers")
        with quiet(), torch.no_grad():
            net = lib.AutoModelForCausalLM.from_pretrained(path, local_files_only=True, dtype=torch.float32).eval()
            parts = torch.as_tensor(tokens).split(256)
            return np.concatenate([net(input_ids=p, use_cache=False).logits.numpy() for p in parts])

    def read(self, path: Path) -> Model:
        return read(path)



# ── there ──────────────────────────────────────────────────────────────────────────────────────
def refusal(model: Model) -> str:
    """Why GPT-2 cannot be this model, and what to do; "" if it can."""
    c = model.config
    reasons = [
        (c.norm == "none", "GPT-2 normalises before every block; this model has no norm"),
        (c.norm == "rms", "GPT-2 has LayerNorm, this model RMSNorm; build or train it with norm=layer"),
        (not c.norm_first, "GPT-2 normalises before attention and MLP, this model after (norm_first=false)"),
        (c.positions == "rotary", "GPT-2 has a table of positions, this model turns queries and keys (rotary)"),
        (c.positions == "alibi", "GPT-2 has a table of positions, this model biases scores (alibi)"),
        (c.mask != "causal", f"GPT-2 sees the past alone, this model has mask={c.mask}"),
        (c.qk_norm, "GPT-2 does not normalise queries and keys, this model does (qk_norm)"),
        (any("gate" in n for n in model.weights), "GPT-2 has no gated MLP, this model does (W_gate)"),
        (model.vocabulary.sep not in ("", " "), f"its tokens have {model.vocabulary.sep!r} between them, not a space"),
    ]
    return next((f"{why}; {INSTEAD}" for holds, why in reasons if holds), "")


def convert(model: Model, dtype: str = "float32") -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Fields of GPT2Config, arrays of GPT2LMHeadModel by name, notes."""
    c, w = model.config, model.weights
    bias = w.get("unembed.b_U")
    bias = None if bias is None or not bias.any() else bias
    r = repeats(c, bias is not None)
    D, F, H = r * c.d_model, max(c.d_mlp, 1), c.n_heads if c.n_layers else 1
    tied, notes = c.tied and bias is None, []
    if r > 1:
        heads = f"it must hold {H} head{'s' * (H > 1)} of {c.d_head}, side by side and all of it"
        why = heads if repeats(c, False) == r else "the bias of its head needs room"
        notes.append(f"the stream of {c.d_model} is repeated {r} times, to {D}: {why}")
    if c.n_layers and c.d_head != D // H:
        notes.append(f"heads of {c.d_head} are padded with zeros to {D // H}")
    if bias is not None:
        untied = ", and is untied" if c.tied else ""
        notes.append(f"GPT-2's head has no bias: it reads a constant of the last norm instead{untied}")
    notes.append(f"GPT-2 reads at most {c.n_ctx} tokens: it has no positions beyond")

    def tiled(x: Any) -> Any:
        return np.concatenate([x] * r, -1)

    def norm(place: str) -> tuple[Any, Any]:
        return tiled(w.get(f"{place}.w", np.ones(c.d_model))), tiled(w.get(f"{place}.b", np.zeros(c.d_model)))

    out: dict[str, Any] = {"transformer.wte.weight": tiled(w["embed.W_E"])}
    out["transformer.wpe.weight"] = tiled(_positions(model))
    for i in range(c.n_layers):
        at, to = f"blocks.{i}.", f"transformer.h.{i}."
        out[to + "ln_1.weight"], out[to + "ln_1.bias"] = norm(at + "ln1")
        out[to + "ln_2.weight"], out[to + "ln_2.bias"] = norm(at + "ln2")
        W, b = _attention_in(c, w, at + "attn.", D // H)
        out[to + "attn.c_attn.weight"], out[to + "attn.c_attn.bias"] = _first(W, D), b
        W_O = _grow(w[at + "attn.W_O"], 1, D // H).reshape(D, c.d_model)       # H K D -> HK D
        out[to + "attn.c_proj.weight"] = tiled(W_O)
        out[to + "attn.c_proj.bias"] = tiled(w.get(at + "attn.b_O", np.zeros(c.d_model)))
        W_in, b_in = w.get(at + "mlp.W_in", np.zeros((c.d_model, 0))), w.get(at + "mlp.b_in", np.zeros(0))
        W_out, b_out = w.get(at + "mlp.W_out", np.zeros((0, c.d_model))), w.get(at + "mlp.b_out", np.zeros(c.d_model))
        out[to + "mlp.c_fc.weight"] = _first(_grow(W_in, 1, F), D)
        out[to + "mlp.c_fc.bias"] = _grow(b_in, 0, F)
        out[to + "mlp.c_proj.weight"], out[to + "mlp.c_proj.bias"] = tiled(_grow(W_out, 0, F)), tiled(b_out)
    gain, shift = norm("ln_final")
    head = out["transformer.wte.weight"]
    if tied:
        gain, shift = gain / r, shift / r  # the head sums over all copies
    else:
        head = _grow(w["embed.W_E"] if c.tied else w["unembed.W_U"].T, 1, D)   # V D: the first copy alone
        if bias is not None:
            gain[c.d_model], shift[c.d_model] = 0, 1
            head[:, c.d_model] = bias
    out |= {"transformer.ln_f.weight": gain, "transformer.ln_f.bias": shift, "lm_head.weight": head}
    settings = {
        "vocab_size": c.d_vocab, "n_positions": c.n_ctx, "n_embd": D, "n_layer": c.n_layers, "n_head": H, "n_inner": F,
        "activation_function": c.activation, "layer_norm_epsilon": float(c.eps), "tie_word_embeddings": tied,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
    }  # fmt: skip
    return settings, {n: np.ascontiguousarray(a, dtype=dtype) for n, a in out.items()}, notes


def repeats(c: Config, bias: bool) -> int:
    """How many copies of the stream make it wide enough for the heads, and a width that they divide."""
    r = 2 if bias else 1
    while c.n_layers and (r * c.d_model % c.n_heads or r * c.d_model // c.n_heads < c.d_head):
        r += 1
    return r


def _attention_in(c: Config, w: Any, at: str, size: int) -> tuple[Any, Any]:
    """c_attn: Q, K and V side by side, in each the heads side by side, each padded to `size`."""
    zeros = np.zeros((c.n_heads, c.d_head))
    parts, biases = [], []
    for n in "QKV":
        factor = (c.scale or c.d_head**-0.5) * math.sqrt(size) if n == "Q" else 1.0
        W, b = w[f"{at}W_{n}"] * factor, w.get(f"{at}b_{n}", zeros) * factor
        parts.append(_grow(W, 2, size).transpose(1, 0, 2).reshape(c.d_model, -1))  # H D K -> D HK
        biases.append(_grow(b, 1, size).reshape(-1))
    return np.concatenate(parts, 1), np.concatenate(biases)


def _first(W: Any, D: int) -> Any:
    """W [d,n] -> [D,n]: what reads the first copy of the stream."""
    return _grow(W, 0, D)


def _grow(x: Any, axis: int, size: int) -> Any:
    """x with zeros after it along an axis, up to a size; always a new array."""
    return np.pad(x, [(0, size - n if a == axis else 0) for a, n in enumerate(x.shape)])


def _positions(model: Model) -> Any:
    c = model.config
    none = np.zeros((c.n_ctx, c.d_model))
    embed = POSITIONS[c.positions].embed
    return none if embed is None else embed(c, Place(model.weights, None), none[None], 0)


def _steps(model: Model) -> dict[str, int]:
    """How many tokens `generate` should add, where all answers are of one length or end by themselves."""
    batch, task = trial(model), task_of(model)
    lengths = batch.asked.sum(1)
    fixed = batch.known and task is not None and (task.stop is not None or lengths.min() == lengths.max())
    return {"max_new_tokens": int(lengths.max())} if fixed else {}


def _own(model: Model) -> dict[str, Any]:
    return {"vocabulary": model.vocabulary.to_json(), "task": model.task, "labels": asdict(model.labels)}


@contextmanager
def quiet() -> Iterator[None]:
    """transformers' progress bars and hints are not for people who asked for one line."""
    logging = library("transformers.utils.logging")
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()

