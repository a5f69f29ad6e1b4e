"""Claims of *How a Transformer Learns Addition* on its training and the activations of its adder.

Chapters 3, 4 and 7 were at hand. They refer to chapters 2 and 5, which were not: what is quoted
from chapter 5 could not be checked against the source, and its claims say so.

Long runs are not repeated: their histories are read from runs/, where the first line of each is the
command that created it. Each is one run of the book's recipe, and its claims say so. Statements
about what a trained model does are counted over many runs (over_seeds.py) of the book's model with
17,760 parameters and the recipe `fast`, since one run of the book's recipe takes minutes. Attention
fractions are means over 2,000 sums and over the query positions of the answer; ablations use 4,000
sums, with the head at its mean.
"""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..lens.rank import RANK_MEASURES, hidden_rank_ranges, truncation
from ..resolve import load_task
from ..training.recipes import find_recipe
from . import Claim
from .measures import cached_model, join_percents, read_run_file
from .over_seeds import AdderMeasurements, Condition, Run, over_runs, read_runs, value_range

# ── training ─────────────────────────────────────────────────────────────────────────────────────
NOT_AT_HAND = "(not among the sources at hand)"
LOGGED_LOSSES = (1.5362, 1.3470, 1.3448, 1.3444, 1.3447, 1.1524, 0.9603, 0.9591)  # from epoch 10
STEPS_PER_EPOCH = 98  # 50,000 rows in batches of 512


def read_history(name: str) -> list[dict[str, Any]]:
    """Return the evaluations of a recorded run."""
    return [json.loads(line) for line in read_run_file(f"{name}.jsonl").splitlines()[1:]]


def first_perfect(name: str) -> int:
    """Return the epoch of the first evaluation of a run with an accuracy of 100 %."""
    step = next(int(e["step"]) for e in read_history(name) if e["accuracy"] == 1.0)
    return step // STEPS_PER_EPOCH


def loss_floor(unlearned_digits: int = 0) -> float:
    """Return the minimum loss while this number of answer digits is not learned."""
    entropy = load_task("addition:order=ones").entropy_floor()
    assert entropy is not None
    return entropy + unlearned_digits * math.log(10) / 12


def array_sizes() -> dict[str, int]:
    recipe = find_recipe("book")
    config = recipe.config(len(load_task("addition:order=ones").vocabulary), 13)
    return {name: math.prod(shape) for name, shape in recipe.weight_shapes(config).items()}


def component_sizes() -> str:
    sizes = array_sizes()
    parts = ("embed.", "pos_embed.", "blocks.0.attn.", "blocks.0.mlp.", "blocks.0.ln", "ln_final.")
    totals = [sum(n for name, n in sizes.items() if name.startswith(p)) for p in parts]
    return ", ".join(f"{n:,}" for n in totals)


def overlap() -> float:
    from ..training.data import TrainingData

    return TrainingData(load_task("addition:order=ones"), find_recipe("book")).overlap()


def max_plateau_distance() -> float:
    floors = [loss_floor(k) for k in range(4)]
    return max(min(abs(loss - floor) for floor in floors) for loss in LOGGED_LOSSES)


def accuracy_near_floors() -> str:
    steps = []
    for k, floor in ((k, loss_floor(k)) for k in (3, 1, 0)):
        near = sorted(e["accuracy"] for e in read_history("book") if abs(e["loss"] - floor) < 0.01)
        steps.append(f"{round(near[len(near) // 2], 1 if k == 1 else 3):g} at {floor:.2f}")
    return ", ".join(steps)


def ablation_accuracy(name: str) -> float:
    """Return the test accuracy of an ablation of the book's recipe (seed 0, 150 epochs)."""
    return float(json.loads(read_run_file("ablations-book.json"))["accuracy"][name])


def no_mask_accuracies() -> str:
    forced, free = map(ablation_accuracy, ("no-mask, teacher-forced", "no-mask"))
    return f"{forced:.0%}, {free:.2%}".replace("%", " %")


# ── activations ──────────────────────────────────────────────────────────────────────────────────
WHERE = "chapter 4.1"
HALF_RANK = 16  # of 32


def of_adders(condition: Condition) -> dict[str, Any]:
    """Return the measure of a claim over the runs of the recipe `fast`."""
    return over_runs("adder", condition)


def adder_range(measure: Callable[[Run], float]) -> str:
    """Return the range of a measure over the runs, for a note."""
    return f"least … median … largest: {value_range('adder', measure)}"


def share_on_column_in_own_run() -> str:
    own = AdderMeasurements(cached_model("book-3.safetensors"))
    return join_percents(own.attention_share("aligned", layer) for layer in (0, 1))


def own_rank_ranges() -> str:
    ranges = hidden_rank_ranges(cached_model("book-3.safetensors"))
    return ", ".join(f"{name} {low:.0f}–{high:.0f}" for name, (low, high) in ranges.items())


def low_rank_runs() -> str:
    """Return, by measure, the number of runs in which every hidden matrix has at most half rank."""
    runs = read_runs("adder")
    return ", ".join(
        f"{name}: {sum(r['ranks'][name][1] <= HALF_RANK for r in runs)}" for name in RANK_MEASURES
    )


def own_truncation() -> float:
    own = AdderMeasurements(cached_model("book-3.safetensors"))
    return truncation(own.model, own.task, [20], own.sample(2_000))[0].accuracy


CLAIMS = [
    Claim("book-3.1-parameters", "chapter 3.1", "17,760 parameters", "holds", 17_760,
          lambda: sum(array_sizes().values())),
    Claim("book-3.1-components", "chapter 3.1",
          "448, 416; a block 4,096, 4,192, 128; final norm 64", "holds",
          "448, 416, 4,096, 4,192, 128, 64", component_sizes),
    Claim("book-3.2-unseen", "chapter 3.2",
          "10,000 test pairs, drawn apart from the 50,000 to train on", "misleading", (0.04, 0.058),
          overlap, "the share of test pairs that were trained on: both are drawn with replacement"),
    Claim("book-3.3-plateaus", "chapter 3.3, log",
          "loss stays at 1.536, 1.345, 1.152, 0.960 for epochs", "holds", (0.0, 0.004),
          max_plateau_distance,
          "the largest distance to a floor (5+k)·ln10/12, k = 3, 2, 1, 0 answer digits unlearned"),
    Claim("book-3.3-staircase", "chapter 3.3",
          "accuracy sits near zero, then jumps: a phase transition", "misleading",
          "0.001 at 1.54, 0.1 at 1.15, 1 at 0.96", accuracy_near_floors,
          "our run's median accuracy near each floor: digits are learned one by one, 10^-k",
          runs=1),
    Claim("book-3.3-memorises", "chapters 3.3, 7.5",
          "the model memorises the training data first, then groks", "wrong", (0.0, 0.03),
          lambda: max(float(e["train_accuracy"] - e["accuracy"]) for e in read_history("book")),
          "the most by which training accuracy was ever ahead of test accuracy in our run of its "
          "recipe", runs=1),
    Claim("book-3.3-success", "chapter 3.3, log", "100 % at epoch 70 (another run: 40) of 150",
          "holds", 53, lambda: first_perfect("book"),
          "the first epoch at 100 % in our run of its recipe, seed 0", runs=1),
    Claim("book-3.3-last-loss", "chapter 3.3, log", "0.9591 at epoch 150", "holds", (0.958, 0.961),
          lambda: float(read_history("book")[-1]["loss"]),
          "the floor is 0.9594: at the very end a little is memorised", runs=1),
    Claim("book-5-baseline", f"chapter 5, table {NOT_AT_HAND}",
          "baseline: 100 % within 150 epochs", "roughly", 0.1005,
          lambda: ablation_accuracy("baseline"),
          "this run of the recipe has one digit unlearned at the end; another (book-3.3-success) "
          "was at 100 % from epoch 53. Of five plain loops, seeds 0 … 4, four succeed, at epochs "
          "16 to 141", runs=1),
    Claim("book-5-no-positions", f"chapter 5 {NOT_AT_HAND}",
          "without positions it cannot tell columns apart (table: 96.5 %)", "wrong", 0.9207,
          lambda: ablation_accuracy("no-positions"), "the causal mask lets it count what it sees",
          runs=1),
    Claim("book-5-no-mask", f"chapter 5, table {NOT_AT_HAND}",
          "no mask: 100 % teacher-forced, 0.0 % autoregressive", "holds", "100 %, 0.06 %",
          no_mask_accuracies, runs=1),
    Claim("book-5-one-layer", f"chapter 5, table {NOT_AT_HAND}", "one layer: 10.2 %", "holds",
          0.0758, lambda: ablation_accuracy("one-layer"),
          "one layer is enough, see `prove addition:digits=10,order=ones`; this budget does not "
          "find it", runs=1),
    Claim("book-5-reverse", f"chapter 5 {NOT_AT_HAND}",
          "reversal of 5 digits is at 100 % by epoch 10", "holds", 3,
          lambda: first_perfect("reverse"), "the first epoch at 100 % in our run", runs=1),
    Claim("book-5-reverse-loss", f"chapter 5 {NOT_AT_HAND}", "reversal ends at a loss of 0.8358",
          "holds", (0.835, 0.839), lambda: float(read_history("reverse")[-1]["loss"]),
          "the floor is 4·ln10/11 = 0.8373", runs=1),
    Claim("book-3.3-memorises-runs", "chapters 3.3, 7.5",
          "the model memorises the training data first, then groks", "wrong",
          "0 of 20 runs [0 %, 17 %]",
          **of_adders(lambda r: r["train_lead"] > 0.1),
          note="training accuracy was ever 10 points ahead of test accuracy, recipe fast; the "
          "lead, " + adder_range(lambda r: r["train_lead"])),
    Claim("book-3.3-at-once-runs", "chapter 3.3",
          "a phase transition: the algorithm is there at once", "wrong", "0 of 20 runs [0 %, 17 %]",
          **of_adders(lambda r: len({*r["learned_at"][:4]}) == 1),
          note="all four digits reached 99 % at one evaluation (of every 20 steps), recipe fast"),
    Claim("book-3.3-success-runs", "chapter 3.3, log", "100 % within 150 epochs", "varies",
          "15 of 20 runs [51 %, 91 %]",
          **over_runs("book-loop", lambda r: r["right"]),
          note="10,000 of 10,000 test sums were right after an epoch, in plain PyTorch loops of "
          "the recipe: ten seeds, each with two kernels of PyTorch"),
    Claim("book-4.1-columns", WHERE, "layer 1 aligns columns: each output looks at its two digits",
          "varies", "19 of 20 runs [75 %, 100 %]", **of_adders(lambda r: r["aligned"][0] > 0.5),
          note="more than half of layer 1's attention is on a and b of the column; the share, "
          + adder_range(lambda r: r["aligned"][0])),
    Claim("book-4.1-columns-second", WHERE,
          "the layers divide the labour: layer 2 does something else", "varies",
          "17 of 20 runs [62 %, 97 %]",
          **of_adders(lambda r: r["aligned"][1] < 0.5),
          note="less than half of layer 2's attention is on a and b of the column; the share, "
          + adder_range(lambda r: r["aligned"][1])),
    Claim("book-4.1-carries", WHERE, "layer 2 looks at what decides the carry", "varies",
          "14 of 20 runs [46 %, 88 %]",
          **of_adders(lambda r: r["carry"][1] > 0.5),
          note="more than half of its attention is on the digits of the column below and the digit "
          "just written; the share, " + adder_range(lambda r: r["carry"][1])),
    Claim("book-4.1-carries-second", WHERE, "layer 2 propagates carries", "varies",
          "7 of 20 runs [15 %, 59 %]",
          **of_adders(lambda r: np.mean(r["moves_carry"][1][:2]) > 0.5),
          note="tens and hundreds: interchanging layer 2's head moves the carry and nothing else "
          "in most cases; how often, " + adder_range(lambda r: np.mean(r["moves_carry"][1][:2]))),
    Claim("book-4.1-carries-first", WHERE, "layer 1 is for columns", "varies",
          "13 of 20 runs [41 %, 85 %]",
          **of_adders(lambda r: np.mean(r["moves_both"][0]) + np.mean(r["moves_carry"][0][:2])
                      < 0.5),
          note="tens and hundreds: interchanging layer 1's head moves the carry, alone or with the "
          "column, in fewer than half of the cases"),
    Claim("book-4.1-carries-last", WHERE, "layer 2 propagates carries: into the last digit",
          "varies", "11 of 20 runs [32 %, 77 %]",
          **of_adders(lambda r: r["moves_carry"][1][-1] > 0.5),
          note="interchanging layer 2's head moves the last digit in most cases; how often, "
          + adder_range(lambda r: r["moves_carry"][1][-1])),
    Claim("book-4.1-cascade", WHERE, "999+001 shows more complex layer-2 patterns than 123+456",
          "varies", "8 of 20 runs [19 %, 64 %]", **of_adders(lambda r: r["cascade_bits"] > 0),
          note="the entropy of layer 2's answer rows is larger; by how many bits, "
          + adder_range(lambda r: r["cascade_bits"])),
    Claim("book-4.1-own-row", WHERE,
          "position 8, the ones digit itself, looks at the ones digits of both numbers", "varies",
          "1 of 20 runs [0 %, 25 %]", **of_adders(lambda r: r["ideal_map"] > 0.5),
          note="more than half of layer 1's attention is on the map that the book asks for, which "
          "is a row late: a digit is decided a row above; the share, "
          + adder_range(lambda r: r["ideal_map"])),
    Claim("book-7.8-first", "chapter 7.8", "remove a component and see what breaks: layer 1's head",
          "holds", "20 of 20 runs [83 %, 100 %]", **of_adders(lambda r: r["without_head"][0] < 0.5),
          note="fewer than half of the sums are right without it; the share, "
          + adder_range(lambda r: r["without_head"][0])),
    Claim("book-7.8-second", "chapter 7.8",
          "remove a component and see what breaks: layer 2's head", "holds",
          "20 of 20 runs [83 %, 100 %]",
          **of_adders(lambda r: r["without_head"][1] < 0.5),
          note="fewer than half of the sums are right without it; the share, "
          + adder_range(lambda r: r["without_head"][1])),
    Claim("book-7.8-ones", "chapter 7.8", "the second layer is there for carries", "wrong",
          "0 of 20 runs [0 %, 17 %]",
          **of_adders(lambda r: r["ones_without_head"][1] > 0.99),
          note="the ones digits, which have no carry, stay right without layer 2's head; the share "
          "of them, " + adder_range(lambda r: r["ones_without_head"][1])),
    Claim("book-7.3-similar", "chapter 7.3",
          "the trained model finds a solution similar to the hand-coded one", "holds",
          "20 of 20 runs [83 %, 100 %]",
          **of_adders(lambda r: r["swaps"]["question"] > 0.5),
          note="a digit of the question is swapped under an answer already written: the hand-made "
          "adder predicts most of the answers that change; the share, "
          + adder_range(lambda r: r["swaps"]["question"])),
    Claim("book-7.3-not-identical", "chapter 7.3", "similar, but not identical", "holds",
          "20 of 20 runs [83 %, 100 %]",
          **of_adders(lambda r: r["swaps"]["written"] < 0.95),
          note="with a digit of the written answer swapped, the hand-made adder predicts fewer "
          "than 95 %; the share, " + adder_range(lambda r: r["swaps"]["written"])),
    Claim("book-4.1-columns-own-recipe", WHERE,
          "layer 1 aligns columns, layer 2 propagates carries", "wrong", "27%, 70%",
          share_on_column_in_own_run,
          "the share of attention on the column by layer, in our run of its recipe: the second "
          "aligns", runs=1),
    Claim("book-7.4-rank", "chapter 7.4",
          "trained matrices have an effective rank much lower than nominal", "roughly",
          "entropy of s 16–25, entropy of s² 6–15, stable rank 2–6, 90 % of the energy 6–14",
          own_rank_ranges,
          "the book does not say which rank: least and largest of the hidden matrices, of 32, in "
          "our run of its recipe; lower by each measure, much lower by all but the first", runs=1),
    Claim("book-7.4-rank-runs", "chapter 7.4",
          "trained matrices have an effective rank much lower than nominal", "misleading",
          "entropy of s: 0, entropy of s²: 0, stable rank: 20, 90 % of the energy: 0",
          low_rank_runs,
          "in how many of 20 runs of the recipe fast all hidden matrices have at most half of "
          "their rank, 16; its optimizer Muon keeps ranks high", runs=len(read_runs("adder"))),
    Claim("book-7.4-truncation", "chapter 7.4",
          "the task does not require all that the weights could say", "holds", (0.98, 1.0),
          own_truncation,
          "the share still right with hidden matrices cut from rank 32 to 20; with rank 16 it is "
          "0.74", runs=1),
    Claim("book-7.4-truncation-runs", "chapter 7.4",
          "the task does not require all that the weights could say", "wrong",
          "0 of 20 runs [0 %, 17 %]",
          **of_adders(lambda r: r["cut_to_rank"]["20"] > 0.9),
          note="more than 90 % still right with hidden matrices cut from rank 32 to 20, recipe "
          "fast; the share, " + adder_range(lambda r: r["cut_to_rank"]["20"])),
]  # fmt: skip
