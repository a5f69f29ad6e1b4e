"""Claims on the training in *How a Transformer Learns Addition* and the mod-113 report.

Long runs are not repeated: the claims read histories in runs/. The first line of each history is
the command that created it.
"""

import json
import math
from typing import Any

from ..resolve import load_task
from ..training.recipe import Recipe
from ..training.recipes import find_recipe
from . import Claim
from .measures import read_run_file

LOGGED_LOSSES = {
    1: 6.3898, 10: 1.5362, 20: 1.3470, 30: 1.3448, 40: 1.3444, 50: 1.3447, 60: 1.1524, 70: 0.9603,
    150: 0.9591,
}  # fmt: skip
STEPS_PER_EPOCH = 98  # 50,000 rows in batches of 512


def read_history(name: str) -> list[dict[str, Any]]:
    """Return the evaluations of a recorded run."""
    return [json.loads(line) for line in read_run_file(f"{name}.jsonl").splitlines()[1:]]


def first_perfect(name: str) -> int:
    """Return the epoch of the first evaluation of a run with an accuracy of 100 %."""
    return (
        next(int(e["step"]) for e in read_history(name) if e["accuracy"] == 1.0) // STEPS_PER_EPOCH
    )


def loss_floor(unlearned_digits: int = 0) -> float:
    """Return the minimum loss while this number of answer digits is not learned."""
    entropy = load_task("addition:order=ones").entropy_floor()
    assert entropy is not None
    return entropy + unlearned_digits * math.log(10) / 12


def array_sizes(r: Recipe) -> dict[str, int]:
    task = load_task("addition:order=ones")
    config = r.config(len(task.vocabulary), 13)
    return {name: math.prod(shape) for name, shape in r.weight_shapes(config).items()}


def component_sizes() -> str:
    sizes = array_sizes(find_recipe("book"))
    parts = ("embed.", "pos_embed.", "blocks.0.attn.", "blocks.0.mlp.", "blocks.0.ln", "ln_final.")
    found = [sum(n for name, n in sizes.items() if name.startswith(p)) for p in parts]
    return ", ".join(f"{n:,}" for n in found)


def overlap() -> float:
    from ..training.data import TrainingData

    return TrainingData(load_task("addition:order=ones"), find_recipe("book")).overlap()


def max_plateau_distance() -> float:
    floors = [loss_floor(k) for k in range(4)]
    return max(
        min(abs(loss - f) for f in floors) for epoch, loss in LOGGED_LOSSES.items() if epoch > 1
    )


def accuracy_near_floors() -> str:
    steps = []
    for k in (3, 1, 0):
        near = sorted(
            e["accuracy"] for e in read_history("book") if abs(e["loss"] - loss_floor(k)) < 0.01
        )
        steps.append(f"{round(near[len(near) // 2], 1 if k == 1 else 3):g} at {loss_floor(k):.2f}")
    return ", ".join(steps)


def ablation_accuracy(name: str) -> float:
    """Return the test accuracy of an ablation of the book's recipe (seed 0, 150 epochs)."""
    return float(json.loads(read_run_file("ablations-book.json"))["accuracy"][name])


def no_mask_accuracies() -> str:
    forced, free = map(ablation_accuracy, ("no-mask, teacher-forced", "no-mask"))
    return f"{forced:.0%}, {free:.2%}".replace("%", " %")


CLAIMS = [
    Claim("book-3.1-parameters", "chapter 3.1", "17,760 parameters", "holds", 17_760,
          lambda: sum(array_sizes(find_recipe("book")).values())),
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
]  # fmt: skip
