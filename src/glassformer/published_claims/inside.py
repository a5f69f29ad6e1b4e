"""Claims on the activations of the adder of *How a Transformer Learns Addition*.

The model is the book's, with 17,760 parameters, trained with the recipe `fast`; it is in the
package. Attention fractions are means over 2,000 sums and over the query positions of the answer;
ablations use 4,000 sums. It is one of five runs, seeds 0 … 4, which are all right on their 10,000
test sums; the notes list the differences between the runs.
"""

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
from ..verification.evaluation import Score
from . import Claim
from .measures import cached_model, join_percents

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
    return perturb(
        adder_and_task()[0], cached_model("addition:digits=3,order=ones"), adder_and_task()[1]
    )


@cache
def ablate_head(layer: int) -> Score:
    """Return the score with a layer's head replaced by its mean at each position.

    The mean keeps the part of the output that does not depend on the sum.
    """
    return ablate(*adder_and_task(), f"head {layer}.0", "mean", rows=sample_sums(4_000))


def entropy_difference() -> float:
    model, task = adder_and_task()
    tokens, answer = task.batch(np.array([[123, 456], [999, 1]]))
    bits = entropy(attention_patterns(model, tokens[:, :-1]))[1, :, 0][:, answer[0, 1:]].mean(1)
    return float(bits[1] - bits[0])


def predicted_share(found: PredictionAgreement | None) -> float:
    assert found
    return found.foretold[0]


CLAIMS = [
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
          lambda: join_percents(alignment(*adder_and_task("book-3"),
          sample_sums(2_000)).mean_share("aligned").ravel()),
          "the share of attention on the column by layer, in our run of its recipe: the second "
          "aligns"),
    Claim("book-7.4-rank", "chapter 7.4",
          "trained matrices have an effective rank much lower than nominal", "misleading",
          (15.5, 17.0),
          lambda: min(r.effective
          for r in matrix_ranks(adder_and_task("book-3")[0]) if "blocks" in r.name),
          "the lowest effective rank of hidden matrices, of 32, in our run of its recipe; "
          "largest: 25"),
    Claim("book-7.4-truncation", "chapter 7.4",
          "the task does not require all that the weights could say", "holds", (0.98, 1.0),
          lambda: truncation(*adder_and_task("book-3"), [20], sample_sums(2_000))[0].accuracy,
          "the share still right with hidden matrices cut from rank 32 to 20; with rank 16 it is "
          "0.74"),
]  # fmt: skip
