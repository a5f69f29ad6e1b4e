"""Claims of *How a Transformer Learns Addition* on its training and the activations of its adder.

Long runs are not repeated: their histories are read from runs/, where the first line of each is the
command that created it. Activations are those of the book's model with 17,760 parameters, trained
with the recipe `fast`, which is in the package. Attention fractions are means over 2,000 sums and
over the query positions of the answer; ablations use 4,000 sums. The model is one of five runs,
seeds 0 … 4, which are all right on their 10,000 test sums; the notes list the differences.
"""

import json
import math
from functools import cache
from typing import Any

import numpy as np

from ..core.model import Model
from ..lens.attention import Alignment, alignment, attention_patterns, entropy
from ..lens.interventions.ablate import ablate
from ..lens.interventions.patch import Interchange, interchange
from ..lens.interventions.perturb import PerturbationComparison, PredictionAgreement, perturb
from ..lens.rank import matrix_ranks, truncation
from ..resolve import load_task
from ..tasks.base import Task
from ..training.recipes import find_recipe
from ..verification.evaluation import Score
from . import Claim
from .measures import cached_model, join_percents, read_run_file

# ── training ─────────────────────────────────────────────────────────────────────────────────────
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


def adder_and_task(name: str = "adder-3") -> tuple[Model, Task]:
    return cached_model(f"{name}.safetensors"), load_task("addition:order=ones")


def sample_sums(n: int) -> Any:
    return adder_and_task()[1].sample(n, np.random.default_rng(0))


@cache
def cached_alignment() -> Alignment:
    return alignment(*adder_and_task(), sample_sums(2_000))


def attention_share(places: str, layer: int) -> float:
    """Return the fraction of a layer's attention on the given places."""
    return float(cached_alignment().mean_share(places)[layer, 0])


@cache
def head_interchange(layer: int) -> Interchange:
    return interchange(*adder_and_task(), f"head {layer}.0", 200)


@cache
def swap_digits() -> PerturbationComparison:
    model, task = adder_and_task()
    return perturb(model, cached_model("addition:digits=3,order=ones"), task)


@cache
def ablate_head(layer: int) -> Score:
    """Return the score with a layer's head replaced by its mean at each position."""
    return ablate(*adder_and_task(), f"head {layer}.0", "mean", rows=sample_sums(4_000))


def entropy_difference() -> float:
    model, task = adder_and_task()
    tokens, answer = task.batch(np.array([[123, 456], [999, 1]]))
    bits = entropy(attention_patterns(model, tokens[:, :-1]))[1, :, 0][:, answer[0, 1:]].mean(1)
    return float(bits[1] - bits[0])


def predicted_share(agreement: PredictionAgreement | None) -> float:
    assert agreement
    return agreement.predicted[0]


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
          "our run's median accuracy near each floor: digits are learned one by one, 10^-k"),
    Claim("book-3.3-memorises", "chapters 3.3, 7.5",
          "the model memorises the training data first, then groks", "wrong", (0.0, 0.03),
          lambda: max(float(e["train_accuracy"] - e["accuracy"]) for e in read_history("book")),
          "the most by which training accuracy was ever ahead of test accuracy in our run of its "
          "recipe"),
    Claim("book-3.3-success", "chapter 3.3, log", "100 % at epoch 70 (another run: 40) of 150",
          "holds", 53, lambda: first_perfect("book"),
          "the first epoch at 100 % in our run of its recipe, seed 0"),
    Claim("book-3.3-last-loss", "chapter 3.3, log", "0.9591 at epoch 150", "holds", (0.958, 0.961),
          lambda: float(read_history("book")[-1]["loss"]),
          "the floor is 0.9594: at the very end a little is memorised"),
    Claim("book-5-baseline", "chapter 5, table", "baseline: 100 % within 150 epochs", "roughly",
          0.1005, lambda: ablation_accuracy("baseline"),
          "this run of the recipe has one digit unlearned at the end; another (book-3.3-success) "
          "was at 100 % from epoch 53. Of five plain loops, seeds 0 … 4, four succeed, at epochs "
          "16 to 141"),
    Claim("book-5-no-positions", "chapter 5",
          "without positions it cannot tell columns apart (table: 96.5 %)", "wrong", 0.9207,
          lambda: ablation_accuracy("no-positions"), "the causal mask lets it count what it sees"),
    Claim("book-5-no-mask", "chapter 5, table",
          "no mask: 100 % teacher-forced, 0.0 % autoregressive", "holds", "100 %, 0.06 %",
          no_mask_accuracies),
    Claim("book-5-one-layer", "chapter 5, table", "one layer: 10.2 %", "holds", 0.0758,
          lambda: ablation_accuracy("one-layer"),
          "one layer is enough, see `prove addition:digits=10,order=ones`; this budget does not "
          "find it"),
    Claim("book-5-reverse", "chapter 5", "reversal of 5 digits is at 100 % by epoch 10", "holds", 3,
          lambda: first_perfect("reverse"), "the first epoch at 100 % in our run"),
    Claim("book-5-reverse-loss", "chapter 5", "reversal ends at a loss of 0.8358", "holds",
          (0.835, 0.839), lambda: float(read_history("reverse")[-1]["loss"]),
          "the floor is 4·ln10/11 = 0.8373"),
    Claim("report-1-accuracy", "section 1",
          "3 layers, addition mod 113: 100 % on held-out pairs after 50 epochs", "holds", 1.0,
          lambda: float(read_history("mod113-3x4")[-1]["accuracy"]),
          "of the 2,554 pairs that were not trained on, at epoch 50 of our run"),
    Claim("book-4.1-columns", WHERE, "layer 1 aligns columns: each output looks at its two digits",
          "holds", (0.88, 0.92), lambda: attention_share("aligned", 0),
          "the share of layer 1's attention on a and b of the column; over 5 seeds 0.78 … 0.92"),
    Claim("book-4.1-columns-second", WHERE,
          "the layers divide the labour: layer 2 does something else", "holds", (0.06, 0.11),
          lambda: attention_share("aligned", 1),
          "the share of layer 2's attention on a and b of the column; over 5 seeds 0.08 … 0.32"),
    Claim("book-4.1-carries", WHERE, "layer 2 looks at what decides the carry", "holds",
          (0.64, 0.69), lambda: attention_share("carry", 1),
          "the share of its attention on the digits of the column below and the digit just "
          "written; over 5 seeds 0.43 … 0.73, layer 1's is 0.08 … 0.28"),
    Claim("book-4.1-carries-second", WHERE, "layer 2 propagates carries", "roughly", (0.78, 0.94),
          lambda: float(np.mean(head_interchange(1).explanation_shares("carry")[:2])),
          "tens and hundreds: how often interchanging layer 2's head moves the carry and nothing "
          "else. Over 5 seeds 0.16 … 0.86; in two it is below 0.3, and layer 1's head has read "
          "the carry already"),
    Claim("book-4.1-carries-first", WHERE, "layer 1 is for columns", "roughly", (0.0, 0.05),
          lambda: float(np.mean(head_interchange(0).explanation_shares("both"))),
          "tens and hundreds: how often interchanging layer 1's head moves the column and its "
          "carry at once; over 5 seeds 0.01 … 0.74"),
    Claim("book-4.1-carries-last", WHERE, "layer 2 propagates carries: into the last digit",
          "roughly", (0.94, 1.0), lambda: head_interchange(1).explanation_shares("carry")[-1],
          "how often interchanging layer 2's head moves it; over 5 seeds 0.04 … 1, layer 1's at "
          "0.04"),
    Claim("book-4.1-cascade", WHERE, "999+001 shows more complex layer-2 patterns than 123+456",
          "misleading", (0.03, 0.08), entropy_difference,
          "entropy of layer 2's answer rows, the one less the other, in bits; over 5 seeds -0.44 "
          "… 0.32"),
    Claim("book-2-ideal-map", "chapters 2, 4",
          "the row of each output digit looks at its own column", "wrong", (0.03, 0.06),
          lambda: attention_share("late", 0),
          "the share of layer 1's attention on the book's ideal map, which is a row late: the "
          "digit is decided a row above, where the share is 0.90"),
    Claim("book-7.8-first", "chapter 7.8", "remove a component and see what breaks: layer 1's head",
          "holds", (0.0, 0.003), lambda: ablate_head(0).accuracy,
          "the share of sums that are right without it"),
    Claim("book-7.8-second", "chapter 7.8",
          "remove a component and see what breaks: layer 2's head", "holds", (0.34, 0.41),
          lambda: ablate_head(1).accuracy,
          "the share of sums that are right without it; over 5 seeds 0.08 … 0.38"),
    Claim("book-7.8-ones", "chapter 7.8", "the second layer is there for carries", "misleading",
          (0.87, 0.93), lambda: ablate_head(1).positions[0],
          "the share of ones digits right without layer 2's head: they have no carry, so it does "
          "more"),
    Claim("book-7.3-similar", "chapter 7.3",
          "the trained model finds a solution similar to the hand-coded one", "holds", (0.91, 0.97),
          lambda: predicted_share(swap_digits().question),
          "a digit of the question is swapped under an answer already written: of its answers "
          "that change, the share that the hand-made adder foretells"),
    Claim("book-7.3-not-identical", "chapter 7.3", "similar, but not identical", "holds",
          (0.77, 0.87), lambda: predicted_share(swap_digits().written),
          "the same with a digit of the written answer swapped; over 5 seeds 0.76 … 0.82"),
    Claim("book-4.1-columns-own-recipe", WHERE,
          "layer 1 aligns columns, layer 2 propagates carries", "misleading", "27%, 70%",
          lambda: join_percents(alignment(*adder_and_task("book-3"), sample_sums(2_000))
                                .mean_share("aligned").ravel()),
          "the share of attention on the column by layer, in our run of its recipe: the second "
          "aligns"),
    Claim("book-7.4-rank", "chapter 7.4",
          "trained matrices have an effective rank much lower than nominal", "misleading",
          (15.5, 17.0),
          lambda: min(r.effective for r in matrix_ranks(cached_model("book-3.safetensors"))
                      if "blocks" in r.name),
          "the lowest effective rank of hidden matrices, of 32, in our run of its recipe; "
          "largest: 25"),
    Claim("book-7.4-truncation", "chapter 7.4",
          "the task does not require all that the weights could say", "holds", (0.98, 1.0),
          lambda: truncation(*adder_and_task("book-3"), [20], sample_sums(2_000))[0].accuracy,
          "the share still right with hidden matrices cut from rank 32 to 20; with rank 16 it is "
          "0.74"),
]  # fmt: skip
