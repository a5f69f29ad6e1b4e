"""Models that look right and are not: no checker may ever pass one.

Each is a right adder of one digit with a dose of something. A harmless dose leaves it right, and is
proved, so it is the dose that is refused and not the place where it was put. A harmful one makes
the model wrong, or not finite, on some input when it is run: in the model's own arithmetic,
whatever exact arithmetic would say.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from glassformer import Model, Vocabulary, record

from .surgery import (
    HINGE,
    LAYER,
    ONES,
    adder,
    ballasted,
    edited,
    gated,
    mirrored,
    normed,
    padded,
    plus,
    qk_normed,
    quiet,
    small_norm,
    task_of,
    untied,
)

TYPES = ("float64", "float32")
MOST = {t: float(np.finfo(t).max) for t in TYPES}


@dataclass(frozen=True)
class Poison:
    make: Callable[[float], Model]
    bad: float
    good: float | None  # None: there is no harmless dose of it
    ref: str  # the right adder that it is made from


POISONS: dict[str, Poison] = {}


def poison(bad=1.0, good=None, ref=HINGE, types=TYPES, name=""):
    """Registers a function (dtype, dose) -> Model. Doses may be functions of the type."""

    def add(make):
        for dtype in types:
            doses = [d(dtype) if callable(d) else d for d in (bad, good)]
            key = f"{name or make.__name__}, {dtype}"
            assert key not in POISONS
            POISONS[key] = Poison(partial(make, dtype), *doses, ref)
        return make

    return add


def share(x):
    """That share of the largest number of a type."""
    return lambda dtype: x * MOST[dtype]


def root(x):
    """That multiple of the root of the largest number of a type."""
    return lambda dtype: x * MOST[dtype] ** 0.5


# ── overflow: in a norm ────────────────────────────────────────────────────────────────────────
@poison(2.0**130, 2.0**60, types=["float32"])
def eps_beyond_the_type(dtype, eps):
    return normed(adder(HINGE, dtype), eps)


@poison(2.0**130, 2.0**60, types=["float32"])
def eps_beyond_the_type_in_layer_norm(dtype, eps):
    return normed(adder(HINGE, dtype), eps, "layer")


@poison(2.0**130, 2.0**60, types=["float32"])
def eps_beyond_the_type_in_a_norm_after_the_sum(dtype, eps):
    return normed(adder(HINGE, dtype), eps, first=False)


@poison(2.0**130, 2.0**60, types=["float32"])
def eps_beyond_the_type_on_q_and_k(dtype, eps):
    return qk_normed(adder(HINGE, dtype), eps)


@poison(root(1.1), 2.0**30)
def a_square_that_overflows(dtype, weight):
    return ballasted(adder(HINGE, dtype), weight)


@poison(root(0.8), 2.0**30)
def squares_whose_sum_overflows(dtype, weight):
    return ballasted(adder(HINGE, dtype), weight, n=2)


@poison(root(0.9), root(2.0**-20))
def a_mean_that_overflows_with_eps(dtype, weight):
    return ballasted(adder(HINGE, dtype), weight, eps=weight * weight)


@poison(share(0.9), 2.0**30, types=["float64"])
def a_sum_for_the_mean_that_overflows(dtype, weight):
    model = mirrored(ballasted(adder(HINGE, dtype), 2.0**30, n=2))
    at = [model.config.d_model // 2 - 1, -1]
    W_E = model.weights["embed.W_E"].copy()
    W_E[:, at] *= weight / 2.0**30
    gain = model.weights["blocks.0.ln1.w"] * 0 + np.sqrt(
        (2 * 2.0**60 + 2 * min(weight, 2.0**500) ** 2) / len(W_E[0])
    )
    return edited(model, {"norm": "layer"}, embed_W_E=W_E, ln1_w=gain, ln2_w=gain, ln_final_w=gain)


def norms_of_unread_slots():
    for n in ("ln1", "ln2", "ln_final"):

        @poison(share(0.95), 1.0, name=f"gain of {n} on a slot that nobody reads")
        def gain(dtype, dose, n=n):
            return plus(small_norm(dtype), f"{n}_w", (-1,), dose)

        @poison(share(0.6), 1.0, name=f"gain and bias of {n} on a slot that nobody reads")
        def bias(dtype, dose, n=n):
            return plus(plus(small_norm(dtype), f"{n}_w", (-1,), dose), f"{n}_b", (-1,), dose)


norms_of_unread_slots()


@poison(share(0.95), 1.0)
def gain_of_q_norm_on_an_entry_that_no_key_has(dtype, dose):
    model = plus(qk_normed(padded(adder(HINGE, dtype), "K"), 2.0**60), "attn_b_Q", (0, -1), 2.0**31)
    undone = (2.0**60 + 2.0**62 / 5) ** 0.5  # of five entries one is 2^31
    return plus(plus(model, "attn_q_norm_w", (slice(None),), undone), "attn_q_norm_w", (-1,), dose)


# ── overflow: what is multiplied by 0 afterwards ───────────────────────────────────────────────
def projections():
    for n in "QKV":

        @poison(share(0.95), 1.0, name=f"W_{n} into an entry that nobody reads")
        def project(dtype, dose, n=n):
            # So the ballast is read as √3
            model = plus(padded(small_norm(dtype), "K"), "ln1_w", (-1,), 1.0)
            return plus(model, f"attn_W_{n}", (0, -1, -1), dose)

        @poison(share(0.6), 1.0, name=f"W_{n} and b_{n} into an entry that nobody reads")
        def with_bias(dtype, dose, n=n):
            model = plus(padded(ballasted(adder(HINGE, dtype)), "K"), "ln1_w", (-1,), 2.0**30)
            return plus(plus(model, f"attn_W_{n}", (0, -1, -1), dose), f"attn_b_{n}", (0, -1), dose)


projections()


@poison(share(0.95), 1.0)
def W_in_of_a_unit_that_nobody_reads(dtype, dose):
    model = plus(padded(small_norm(dtype), "F"), "ln2_w", (-1,), 1.0)
    return plus(model, "mlp_W_in", (-1, -1), dose)


@poison(share(0.95), 1.0)
def W_gate_of_a_unit_that_is_off(dtype, dose):
    model = plus(gated(padded(small_norm(dtype), "F")), "ln2_w", (-1,), 1.0)
    return plus(model, "mlp_W_gate", (-1, -1), dose)


@poison(root(1.1), 1.0)
def a_gate_times_a_unit_that_nobody_reads(dtype, dose):
    model = gated(padded(adder(HINGE, dtype), "F"))
    return plus(plus(model, "mlp_b_in", (-1,), dose), "mlp_b_gate", (-1,), dose)


@poison(share(0.9), 1.0)
def W_O_into_a_slot_that_nobody_reads(dtype, dose):
    model = plus(padded(padded(adder(HINGE, dtype), "K"), "D"), "attn_b_V", (0, -1), 2.0)
    return plus(model, "attn_W_O", (0, -1, -1), dose)


@poison(share(0.6), 1.0)
def W_O_and_b_O_into_a_slot_that_nobody_reads(dtype, dose):
    model = plus(padded(padded(adder(HINGE, dtype), "K"), "D"), "attn_b_V", (0, -1), 1.0)
    return plus(plus(model, "attn_W_O", (0, -1, -1), dose), "attn_b_O", (-1,), dose)


@poison(share(0.6), 1.0)
def the_stream_and_b_O_in_a_slot_that_nobody_reads(dtype, dose):
    model = untied(padded(adder(HINGE, dtype), "D"))
    return plus(plus(model, "embed_W_E", (slice(None), -1), dose), "attn_b_O", (-1,), dose)


@poison(share(0.9), 1.0)
def W_out_into_a_slot_that_nobody_reads(dtype, dose):
    model = plus(padded(padded(adder(HINGE, dtype), "F"), "D"), "mlp_b_in", (-1,), 2.0)
    return plus(model, "mlp_W_out", (-1, -1), dose)


@poison(share(0.6), 1.0)
def the_stream_and_b_out_in_a_slot_that_nobody_reads(dtype, dose):
    model = untied(padded(adder(HINGE, dtype), "D"))
    return plus(plus(model, "embed_W_E", (slice(None), -1), dose), "mlp_b_out", (-1,), dose)


@poison(share(0.6), 0.0, ref=LAYER)
def an_embedding_and_a_position_that_overflow(dtype, dose):
    model = adder(LAYER, dtype)
    for array, w in (
        ("embed_W_E", model.weights["embed.W_E"]),
        ("pos_embed", model.weights["pos_embed.W_pos"]),
    ):
        model = plus(model, array, (slice(None), slice(2)), w[:, :2] + dose)
    return model


# ── overflow: scores and logits ────────────────────────────────────────────────────────────────
@poison(root(1.1), 1.0)
def a_score_that_overflows_for_every_key(dtype, dose):
    model = padded(adder(HINGE, dtype), "K")
    return plus(plus(model, "attn_b_Q", (0, -1), dose), "attn_b_K", (0, -1), dose)


@poison(root(1.1), 1.0)
def a_score_that_overflows_in_a_head_that_writes_nothing(dtype, dose):
    model = padded(adder(HINGE, dtype), "H")
    return plus(plus(model, "attn_b_Q", (-1, 0), dose), "attn_b_K", (-1, 0), dose)


@poison(share(0.9), 1.0)
def a_value_that_overflows_in_a_head_that_writes_nothing(dtype, dose):
    model = plus(padded(padded(adder(HINGE, dtype), "H"), "D"), "embed_W_E", (slice(None), -1), 2.0)
    return plus(untied(model), "attn_W_V", (-1, -1, 0), dose)


@poison(root(0.7), 1.0)
def a_score_that_overflows_by_its_scale(dtype, dose):
    model = padded(adder(HINGE, dtype), "K")
    model = edited(model, {"scale": 4.0}, attn_W_Q=model.weights["blocks.0.attn.W_Q"] / 4,
                   attn_b_Q=model.weights["blocks.0.attn.b_Q"] / 4)  # fmt: skip
    return plus(plus(model, "attn_b_Q", (0, -1), dose), "attn_b_K", (0, -1), dose)


@poison(root(1.1), 1.0, ref=LAYER)
def a_score_of_two_terms_that_cancel(dtype, dose):
    model = padded(adder(LAYER, dtype), "K", 2)
    for head in range(model.config.n_heads):
        model = plus(
            plus(model, "attn_b_Q", (head, [-2, -1]), dose),
            "attn_b_K",
            (head, [-2, -1]),
            [dose, -dose],
        )
    return model


@poison(share(0.9), 1.0)
def a_rotation_that_overflows(dtype, dose):
    model = adder(HINGE, dtype)
    return plus(model, "attn_b_Q", (0, [0, 2]), dose)  # the pair of entries that no key has


@poison(share(0.9), 1.0)
def logits_that_all_overflow(dtype, dose):
    model = plus(untied(padded(adder(HINGE, dtype), "D")), "embed_W_E", (slice(None), -1), 2.0)
    return plus(model, "unembed_W_U", (-1, slice(None)), dose)


@poison(share(0.9), 1.0)
def logits_of_two_terms_that_cancel(dtype, dose):
    model = plus(
        untied(padded(adder(HINGE, dtype), "D", 2)), "embed_W_E", (slice(None), [-2, -1]), 2.0
    )
    return plus(
        plus(model, "unembed_W_U", (-2, slice(None)), dose), "unembed_W_U", (-1, slice(None)), -dose
    )


@poison(share(0.9), 1.0)
def a_rivals_logit_of_minus_infinity(dtype, dose):
    model = plus(untied(padded(adder(HINGE, dtype), "D")), "embed_W_E", (slice(None), -1), 1.0)
    return plus(
        plus(model, "unembed_W_U", (-1, slice(None)), -dose), "unembed_b_U", (slice(None),), -dose
    )


@poison(root(1.1), 2.0**-20, ref=LAYER, types=["float64"])
def a_score_behind_the_mask(dtype, dose):
    """At the first row that answers, the scores of the keys after it overflow. Decoded token by
    token it is right.
    """
    model = mirrored(adder(LAYER, dtype))
    size, T = model.config.d_model, model.config.n_ctx
    model = padded(padded(model, "D", 3 * size), "K")
    gain = np.full(4 * size, 0.5)  # a variance over four times as many slots is a quarter
    model = edited(model, ln1_w=gain, ln_final_w=gain)
    row = T - 2  # of two tokens to produce, the first; the key behind it is the last position's
    for position, slots in ((row, [-4, -3]), (row + 1, [-2, -1])):
        model = plus(model, "pos_embed", (position, slots), [2.0**-10, -(2.0**-10)])
    scale = (
        2.0**10
        * np.abs(model.weights["embed.W_E"][0] + model.weights["pos_embed.W_pos"][row]).max()
    )
    return plus(
        plus(model, "attn_W_Q", (0, -4, -1), dose * scale), "attn_W_K", (0, -2, -1), dose * scale
    )


# ── underflow and subnormals ───────────────────────────────────────────────────────────────────
@poison(lambda t: 2.0**-600 if t == "float64" else 2.0**-110, 2.0**-10)
def squares_that_underflow(dtype, factor):
    return quiet(ballasted(adder(HINGE, dtype), 2.0**20), factor)


@poison(lambda t: 2.0**-600 if t == "float64" else 2.0**-110, 2.0**-10)
def eps_that_underflows_with_the_squares(dtype, factor):
    return quiet(normed(adder(HINGE, dtype), 2.0**40), factor)


@poison(lambda t: 2.0**-600 if t == "float64" else 2.0**-110, 2.0**-10)
def a_variance_that_underflows(dtype, factor):
    return quiet(normed(adder(HINGE, dtype), 2.0**40, "layer"), factor)


@poison(lambda t: 2.0**-1040 if t == "float64" else 2.0**-140, 2.0**-10, ref=LAYER)
def a_stream_of_subnormals(dtype, factor):
    return edited(quiet(untied(adder(LAYER, dtype)), factor), {"eps": 0.0})


@poison(lambda t: 2.0**-1082 if t == "float64" else 2.0**-157, 2.0**-100)
def a_head_of_subnormals(dtype, factor):
    model = untied(adder(HINGE, dtype))
    return edited(model, unembed_W_U=(model.weights["unembed.W_U"] * factor).astype(dtype))


@poison(0.0, 2.0**-10)
def a_row_that_is_divided_by_zero(dtype, dose):
    """Digit 0 stands at 0, and eps is 0 too."""
    model = normed(adder(HINGE, dtype), 2.0**40)
    model = untied(model) if model.config.tied else model
    if dose:
        return model
    return plus(edited(model, {"eps": 0.0}), "embed_W_E", (0,), 0.0)


# ── not finite ─────────────────────────────────────────────────────────────────────────────────
def entries():
    places = {
        "embed_W_E": (3, 0), "attn_W_Q": (0, 0, 0), "attn_b_Q": (0, 0), "attn_W_K": (0, 0, 0),
        "attn_W_V": (0, 0, 0),
        "attn_W_O": (0, 0, 0), "attn_b_O": (0,), "mlp_W_in": (0, 0), "mlp_b_in": (0,),
        "mlp_W_out": (0, 0),
        "unembed_W_U": (0, 7), "unembed_b_U": (4,), "ln1_w": (0,), "ln1_b": (1,), "ln2_w": (1,),
        "ln_final_w": (0,),
    }  # fmt: skip
    for array, where in places.items():
        for value in (np.nan, np.inf):

            @poison(value, None, types=["float64"], name=f"{value} in {array}")
            def entry(dtype, dose, array=array, where=where):
                return plus(untied(normed(adder(HINGE, dtype), 2.0**40)), array, where, dose)


entries()


@poison(np.nan, 0.0)
def nan_in_a_slot_that_nobody_reads(dtype, dose):
    return plus(untied(padded(adder(HINGE, dtype), "D")), "embed_W_E", (slice(None), -1), dose)


@poison(-np.inf, -1.0, ref=ONES, types=["float64"])
def minus_infinity_for_a_token_that_never_comes(dtype, dose):
    return plus(adder(ONES, dtype), "unembed_b_U", (-2,), dose)


# ── ties, and less than rounding ───────────────────────────────────────────────────────────────
@poison(1.0, 0.0)
def two_digits_with_one_output(dtype, dose):
    model = untied(adder(HINGE, dtype))
    W = model.weights["unembed.W_U"]
    return plus(model, "unembed_W_U", (slice(None), 4), (1 - dose) * W[:, 4] + dose * W[:, 3])


@poison(1.0, 0.0)
def two_digits_with_one_embedding(dtype, dose):
    model = untied(adder(HINGE, dtype))
    W = model.weights["embed.W_E"]
    return plus(model, "embed_W_E", (7,), (1 - dose) * W[7] + dose * W[8])


@poison(0.0, 1.0)
def a_head_of_zeros(dtype, dose):
    model = untied(adder(HINGE, dtype))
    return edited(model, unembed_W_U=model.weights["unembed.W_U"] * dose)


@poison(lambda t: 2.0**60 if t == "float64" else 2.0**30, 2.0**-6)
def a_bias_that_absorbs_the_logits(dtype, dose):
    return plus(untied(adder(HINGE, dtype)), "unembed_b_U", (slice(None),), dose)


@poison(lambda t: 2.0**70 if t == "float64" else 2.0**40, 2.0**-6)
def a_stream_that_absorbs_what_is_written(dtype, dose):
    model = untied(adder(HINGE, dtype))
    return edited(model, mlp_b_out=np.full(model.config.d_model, dose))


@poison(1.0 + 1e-6, 0.9)
def a_rival_that_just_wins_once(dtype, dose):
    return biased(dtype, dose)


@poison(1.0, 0.9)
def a_rival_that_just_ties_once(dtype, dose):
    return biased(dtype, dose)


def biased(dtype, dose):
    """The least lead of a carry over 0 on any input, or a share of it, given to 0 as a bias."""
    model, task = untied(adder(HINGE, dtype)), task_of(HINGE)
    tokens = task.batch(task.rows(0, task.size))[0]
    # The last answer digit: 0 or 1
    logits = np.asarray(model(tokens[:, :-1])[:, -1:], np.float64)[:, 0]
    lead = float((logits[:, 1] - logits[:, 0])[tokens[:, -1] == 1].min())
    return plus(model, "unembed_b_U", (0,), lead * dose)


# ── odd configs ────────────────────────────────────────────────────────────────────────────────
def odd_configs():
    changes = {
        "another scale": {"scale": 0.01}, "another base": {"base": 3.0}, "base 0": {"base": 0.0},
        "no positions": {"positions": "none"}, "sinusoidal positions": {"positions": "sinusoidal"},
        "alibi": {"positions": "alibi"}, "a slope that floods": {"positions": "alibi",
        "slope": 1e308},
        "a norm": {"norm": "rms"}, "a layer norm": {"norm": "layer"}, "much eps": {"norm": "rms",
        "eps": 1e300},
        "q and k normed": {"norm": "rms", "qk_norm": True},
        "a norm after the sum": {"norm": "rms", "norm_first": False},
    }  # fmt: skip
    for name, change in changes.items():

        @poison(types=["float64"], name=f"config: {name}")
        def odd(dtype, dose, change=change):
            return edited(adder(HINGE, dtype), change)


odd_configs()


@poison(types=["float64"], name="config: learned positions that are all 0")
def no_learned_positions(dtype, dose):
    model = adder(HINGE, dtype)
    zero = np.zeros((model.config.n_ctx, model.config.d_model))
    return replace(
        model,
        config=replace(model.config, positions="learned"),
        weights={**model.weights, "pos_embed.W_pos": zero},
    )


@poison(types=["float64"], name="config: no layer")
def no_layer(dtype, dose):
    model = untied(adder(HINGE, dtype))
    kept = {n: w for n, w in model.weights.items() if not n.startswith("blocks.")}
    return replace(model, config=replace(model.config, n_layers=0), weights=kept)


@poison(types=["float64"], name="config: a second layer that does the same again")
def two_layers(dtype, dose):
    model = adder(HINGE, dtype)
    again = {
        n.replace("blocks.0", "blocks.1"): w
        for n, w in model.weights.items()
        if n.startswith("blocks.")
    }
    return replace(
        model, config=replace(model.config, n_layers=2), weights={**model.weights, **again}
    )


@poison(types=["float64"], name="config: no MLP")
def no_mlp(dtype, dose):
    model = adder(HINGE, dtype)
    kept = {n: w for n, w in model.weights.items() if ".mlp." not in n}
    return replace(model, config=replace(model.config, d_mlp=0), weights=kept)


@poison(types=["float64"], name="digits in another order")
def other_vocabulary(dtype, dose):
    return replace(adder(HINGE, dtype), vocabulary=Vocabulary("1023456789"))


@poison(types=["float64"], ref=LAYER, name="weights of half precision")
def half_precision(dtype, dose):
    return adder(LAYER, dtype).astype("float16")


# ── beyond the checkers' own numbers ───────────────────────────────────────────────────────────
@poison(bad=11_350.0, ref="adder-hinge:digits=2", types=["float64"])
def scores_beyond_extended_precision(dtype, dose):
    """One sum of 10,000 is wrong: 87+87, the only one where all four digits have scores of -dose.
    Then a fifth key at 5 - dose wins, that the others drown otherwise: by e^-11350, which an
    extended float still holds, but no square.
    """
    base, task = adder("adder-hinge:digits=2", dtype), task_of("adder-hinge:digits=2")
    T, spots, row, trigger = base.config.n_ctx, [1, 2, 5, 6], 8, [7, 8, 7, 8]
    # Positions of fixed tokens: where the new head looks in other rows, and what must not win
    rest, hidden = 0, 3
    assert (task.batch(np.array([[87, 87]]))[0][0, spots] == trigger).all()
    D = 2 + T + 11  # the adder's two slots, one a position, two a spot, and three
    place, pair, level, idle, value = (
        np.arange(2, 2 + T),
        2 + T + 2 * np.arange(4),
        D - 3,
        D - 2,
        D - 1,
    )
    E, P = np.zeros((10, D)), np.zeros((T, D))
    E[:, :2], P[np.arange(T), place] = base.weights["embed.W_E"], 1
    E[trigger, pair] = -dose  # counts at its spot, and is rounded away elsewhere
    P[:, pair], P[:, pair + 1] = -(2.0**75), 2.0**75
    P[spots, pair] = P[spots, pair + 1] = 0
    P[:, level], P[spots, level], P[hidden, level] = -dose - 20, 0, 5 - dose
    P[:, idle], P[rest, idle], P[hidden, value] = -1000, 0, 1e-27
    Q, K, V, out = *np.zeros((3, 2, D, T)), np.zeros((2, T, D))
    scores = record(base, np.zeros((1, T), int))[1]["blocks.0.attn.hook_attn_scores"][0, 0]
    # The adder's own head
    Q[0, place], K[0, place, np.arange(T)] = (np.where(np.isfinite(scores), scores, 0), 1)
    V[0, 1, 0], out[0, 0, 1] = 1, base.weights["blocks.0.attn.W_O"][0, 0, 1]
    Q[1, place, 5], Q[1, place[row], :6] = 1, [1, 1, 1, 1, 1, 0]
    K[1, pair, np.arange(4)] = K[1, pair + 1, np.arange(4)] = K[1, level, 4] = K[1, idle, 5] = 1
    V[1, value, 0], out[1, 0, 1] = 1, 3e29
    wide = padded(padded(untied(base), "D", D - 2), "H")
    blocks = {n: w for n, w in wide.weights.items() if ".attn." not in n or n.endswith("b_O")}
    blocks |= {"embed.W_E": E, "pos_embed.W_pos": P}
    blocks |= {f"blocks.0.attn.W_{n}": w for n, w in zip("QKVO", (Q, K, V, out), strict=True)}
    return replace(wide, config=replace(wide.config, d_head=T, positions="learned"), weights=blocks)
