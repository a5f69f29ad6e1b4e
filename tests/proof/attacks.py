"""Attacks on the checkers: models that are right if a bias is added last, or a maximum is taken
over possible tokens only, and wrong as PyTorch computes them.

`torch.addmm` starts most of its sums with the bias. Next to a bias of 2^51 the terms A, −A/n, …,
−A/n, which add up to 0, become A: each small one is rounded away. `token_tables.TokenPairScores`
takes the powers of many texts relative to the largest score of any token at any position.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from glassformer import Config, Model, resolve
from glassformer.core.model import zeros
from glassformer.tasks.base import Task

from .poison.surgery import HINGE, adder, edited, gated, padded, plus, task_of, untied

N = 4096  # terms of a sum that are rounded away
BIAS = {"float64": 2.0**51, "float32": 2.0**22}  # a unit in its last place is 1/2
A = 0.1875 * N  # each term is 3/8 of that unit
FAR = 16.0  # below the best score, which is as good as nothing

Attack = Callable[[str], Model]
ADDERS: dict[str, Attack] = {}  # changes to an adder of one digit, by the bias that is attacked


def attack(make: Attack) -> Attack:
    ADDERS[make.__name__] = make
    return make


@cache
def with_learned_positions(dtype: str, ref: str = HINGE) -> Model:
    """A hinge adder with a score for each pair of positions instead of angles."""
    old, seen = adder(ref), dict[str, np.ndarray]()
    T = old.config.n_ctx

    def tap(name: str, value: np.ndarray) -> np.ndarray:
        seen[name.rpartition(".")[2]] = value
        return value

    old(np.zeros((1, T), int), hook=tap)
    scores = seen["hook_attn_scores"][0, 0]  # T T, the same for all tokens
    scores = np.maximum(scores - scores.max(1, keepdims=True), -FAR)
    model = padded(padded(untied(old), "D", T), "K", T - 4)  # D 2 + T, K T
    W_pos = np.concatenate([np.zeros((T, 2)), np.eye(T)], 1)
    W_Q, W_K = np.zeros((1, 2 + T, T)), np.zeros((1, 2 + T, T))
    W_Q[0, 2:], W_K[0, 2:] = np.tril(scores), np.eye(T)
    none = np.zeros((1, T))
    new = edited(
        model, {"positions": "learned", "scale": 1.0}, pos_embed=W_pos, attn_W_Q=W_Q, attn_W_K=W_K,
        attn_b_Q=none, attn_b_K=none,
    )  # fmt: skip
    return new if dtype == "float64" else new.astype(dtype)


def with_terms(model: Model, only: slice | int = slice(None)) -> tuple[Model, slice]:
    """Add slots of the stream that hold A, −A/n, …, −A/n at those tokens."""
    start = model.config.d_model
    model, slots = padded(model, "D", N + 1), slice(start, start + N + 1)
    W_E = model.weights["embed.W_E"].copy()
    W_E[only, slots] = [A] + [-A / N] * N
    return edited(model, embed_W_E=W_E), slots


def with_read_slot(model: Model, weight: float) -> tuple[Model, int]:
    """Add a slot that holds −BIAS; whatever is added to it raises the logit of the token 0."""
    slot, model = model.config.d_model, padded(model, "D")
    model = plus(model, "embed_W_E", (slice(None), slot), -BIAS[model.dtype])
    return plus(model, "unembed_W_U", (slot, 0), weight), slot


# ── biases ─────────────────────────────────────────────────────────────────────────────────────
@attack
def b_U(dtype: str) -> Model:
    model, slots = with_terms(with_learned_positions(dtype))
    model = edited(model, unembed_W_U=16 * model.weights["unembed.W_U"])  # the margin is 5.8 then
    model = plus(model, "unembed_W_U", (slots, 0), 1.0)
    return plus(model, "unembed_b_U", slice(None), BIAS[dtype])


@attack
def b_O(dtype: str) -> Model:
    model, slot = with_read_slot(with_learned_positions(dtype), 0.25)
    start, model = model.config.d_head, padded(model, "K", N + 1)
    new = slice(start, start + N + 1)
    model = plus(model, "attn_b_V", (0, new), [A] + [-A / N] * N)
    model = plus(model, "attn_W_O", (0, new, slot), 1.0)
    return plus(model, "attn_b_O", slot, BIAS[dtype])


@attack
def b_V(dtype: str) -> Model:
    model, slots = with_terms(with_learned_positions(dtype))
    model, slot = with_read_slot(model, 0.003)
    model = padded(model, "H")  # a head that reads all positions alike
    model = plus(plus(model, "attn_W_V", (1, slots, 0), 1.0), "attn_b_V", (1, 0), BIAS[dtype])
    return plus(model, "attn_W_O", (1, 0, slot), 1.0)


@attack
def b_Q(dtype: str) -> Model:
    """The first number is read too much: of q·k, BIAS/1024 cancels."""
    model, slots = with_terms(with_learned_positions(dtype))
    k, model = model.config.d_head, padded(model, "K", 2)
    model = plus(model, "attn_W_Q", (0, slots, k), 1.0)
    model = plus(model, "attn_b_Q", (0, slice(k, k + 2)), [BIAS[dtype], -BIAS[dtype]])
    return plus(model, "attn_W_K", (0, 3, slice(k, k + 2)), 2.0**-10)


@attack
def b_K(dtype: str) -> Model:
    model, slots = with_terms(with_learned_positions(dtype), only=[])
    W_pos = model.weights["pos_embed.W_pos"].copy()
    W_pos[1, slots] = [A] + [-A / N] * N
    k, model = model.config.d_head, padded(edited(model, pos_embed=W_pos), "K", 2)
    model = plus(model, "attn_W_K", (0, slots, k), 1.0)
    model = plus(model, "attn_b_K", (0, slice(k, k + 2)), [BIAS[dtype], -BIAS[dtype]])
    return plus(model, "attn_b_Q", (0, slice(k, k + 2)), 2.0**-10)


@attack
def b_in(dtype: str) -> Model:
    model, slots = with_terms(with_learned_positions(dtype))
    model, slot = with_read_slot(model, 0.25)
    f, model = model.config.d_mlp, padded(model, "F")
    model = plus(plus(model, "mlp_W_in", (slots, f), 1.0), "mlp_b_in", f, BIAS[dtype])
    return plus(model, "mlp_W_out", (f, slot), 1.0)


@attack
def b_gate(dtype: str) -> Model:
    model, slots = with_terms(with_learned_positions(dtype))
    model, slot = with_read_slot(model, 0.1)
    f, model = model.config.d_mlp, gated(padded(model, "F"))
    model = plus(plus(model, "mlp_W_gate", (slots, f), 1.0), "mlp_b_gate", f, BIAS[dtype])
    return plus(plus(model, "mlp_b_in", f, 1.0), "mlp_W_out", (f, slot), 1.0)


@attack
def b_out(dtype: str) -> Model:
    model, slot = with_read_slot(with_learned_positions(dtype), 0.25)
    f, model = model.config.d_mlp, padded(model, "F", N + 1)
    units = slice(f, f + N + 1)
    model = plus(model, "mlp_b_in", units, [A] + [A / N] * N)
    model = plus(model, "mlp_W_out", (units, slot), [1.0] + [-1.0] * N)
    return plus(model, "mlp_b_out", slot, BIAS[dtype])


# ── errors that no sample finds ────────────────────────────────────────────────────────────────
RARE = "adder-hinge:digits=4"
WRONG = (8383, 8383)
FEW = 64


def rare_adder() -> tuple[Model, Model]:
    """An adder that is wrong where nearly every digit is that of 8383+8383, and one that is not:
    two heads, one for each digit, write A and −A/n, …, −A/n, with A growing with what they find.
    """
    honest, task = with_learned_positions("float64", RARE), task_of(RARE)
    honest = edited(honest, unembed_W_U=16 * honest.weights["unembed.W_U"])
    text, answer = task.batch(np.array([WRONG], task.row_type))
    start = honest.config.d_model
    model = padded(padded(honest, "H", 2), "D", 3 + FEW)
    slots, few = slice(start + 2, start + 3 + FEW), [1.0] + [-1 / FEW] * FEW
    for head, digit in (1, 8), (2, 3):
        there = np.flatnonzero((text[0] == digit) & ~answer[0])
        result = start + head - 1
        model = plus(model, "embed_W_E", (digit, result), 7.0 / 2)
        model = plus(model, "attn_W_V", (head, result, 0), 1.0)
        model = plus(model, "attn_W_O", (head, 0, slots), few)
        model = plus(model, "attn_b_Q", (head, 0), 1.0)
        away = np.setdiff1d(np.arange(model.config.n_ctx), there)
        model = plus(model, "attn_W_K", (head, 2 + away, 0), -40.0)
    model = plus(model, "unembed_W_U", (slots, 8), 1.0)
    return plus(model, "unembed_b_U", slice(None), BIAS["float64"]), honest


def rare_minimum() -> tuple[Model, Task]:
    """One head without an MLP that finds the least number, but where that is 17."""
    task = resolve.load_task("min:vocab=20,length=6")
    config = Config(20, 6, 5 + FEW, d_head=2, norm="none", positions="none", scale=1.0)
    w = zeros(config, "unembed.b_U")
    j = np.arange(20)
    w["embed.W_E"][:, 0], w["embed.W_E"][:, 2], w["embed.W_E"][17, 1] = j, 1.0, 15.0
    attention = {n: w[f"blocks.0.attn.W_{n}"][0] for n in "QKVO"}
    attention["Q"][2, 0], attention["K"][0, 0] = 1.0, -100.0
    attention["V"][0, 0] = attention["V"][1, 1] = 1.0
    attention["O"][0, 3], attention["O"][1, 4:] = 1.0, [1.0] + [-1 / FEW] * FEW
    w["unembed.W_U"][3], w["unembed.W_U"][2] = 16 * j, -8 * j * j
    w["unembed.W_U"][4:, 16] = 1.0
    w["unembed.b_U"][:] = BIAS["float64"]
    return Model(config, w, task.vocabulary, task.ref), task


# ── the largest score ──────────────────────────────────────────────────────────────────────────
@attack
def a_maximum_of_tokens_that_cannot_be_there(dtype: str) -> Model:
    """A second head reads +C at the first position and −C at the third, which both hold a 0. Their
    scores are a little below and above 2^-46 (float64). Other tokens there would have scores of
    150, beside which one of them is rounded down and one up; but no text has such tokens.
    """
    wide = dtype == "float64"
    high, low, size, shout = (150.0, 200.0, 2.0**40, 50.0) if wide else (14.0, 28.0, 2.0**12, 450.0)
    below, above = 2.0 ** (-46 if wide else -21) * np.array([1 - 2.0**-8, 1 + 2.0**-8])
    model = with_learned_positions(dtype)
    slot, token = (model.config.d_model + i for i in range(2))
    model = padded(padded(model, "H"), "D", 2)
    model = plus(model, "embed_W_E", (slice(1, None), token), 1.0)
    keys = [below, -low, above, *[-low] * 4, 0.0, high]  # positions, the slot, other tokens
    model = plus(model, "attn_W_K", (1, slice(2, None), 0), keys)
    model = plus(model, "attn_b_Q", (1, 0), 1.0)
    model = plus(model, "attn_W_V", (1, [2, 4], 0), [size * (1 - below), -size * (1 - above)])
    model = plus(model, "attn_W_O", (1, 0, slot), 1.0)
    return plus(model, "unembed_W_U", (slot, 0), -shout)
