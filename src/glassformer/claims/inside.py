"""What the book *How a Transformer Learns Addition* says about the inside of its trained adder,
measured.

The model is the book's, 17,760 parameters, trained by the recipe `fast`; it comes with the package.
Shares of attention are means over 2,000 sums and over the rows that ask for the answer; ablations
are over 4,000 sums. It is one of five runs, seeds 0 … 4, all right on their 10,000 test sums: what
differs between them is in the notes.
"""

from functools import cache
from typing import Any

import numpy as np

from ..answers import Score
from ..lens.attention import Alignment, alignment, entropy, patterns
from ..lens.interventions.ablate import ablate
from ..lens.interventions.patch import Interchange, interchange
from ..lens.interventions.perturb import Perturbed, perturb
from ..lens.rank import ranks, truncation
from ..model import Model
from ..refs import load_task
from ..tasks.base import Task
from . import claim
from .measures import made, percents

WHERE = "chapter 4.1"


def adder(name: str = "adder-3") -> tuple[Model, Task]:
    return made(f"{name}.safetensors"), load_task("addition:order=ones")


def sums(n: int) -> Any:
    return adder()[1].sample(n, np.random.default_rng(0))


@cache
def aligned() -> Alignment:
    return alignment(*adder(), sums(2_000))


def share_on(places: str, layer: int) -> float:
    """The share of a layer's attention on such places."""
    return float(aligned().mean(places)[layer, 0])


@cache
def carried(layer: int) -> Interchange:
    return interchange(*adder(), f"head {layer}.0", 200)


@cache
def swapped() -> Perturbed:
    return perturb(adder()[0], made("addition:digits=3,order=ones"), adder()[1])


@cache
def without(layer: int) -> Score:
    """A head's output is its mean at each position: what does not depend on the sum stays."""
    return ablate(*adder(), f"head {layer}.0", "mean", rows=sums(4_000))


@claim("book-4.1-columns", where=WHERE,
       says="layer 1 aligns columns: each output looks at its two digits", verdict="holds",
       records=(0.88, 0.92),
       note="the share of layer 1's attention on a and b of the column; over 5 seeds 0.78 … "
            "0.92")  # fmt: skip
def columns() -> float:
    return share_on("aligned", 0)


@claim("book-4.1-columns-second", where=WHERE,
       says="the layers divide the labour: layer 2 does something else", verdict="holds",
       records=(0.06, 0.11),
       note="the share of layer 2's attention on a and b of the column; over 5 seeds 0.08 … "
            "0.32")  # fmt: skip
def columns_second() -> float:
    return share_on("aligned", 1)


@claim("book-4.1-carries", where=WHERE, says="layer 2 looks at what decides the carry",
       verdict="holds", records=(0.64, 0.69),
       note="the share of its attention on the digits of the column below and the digit just "
            "written; over 5 seeds 0.43 … 0.73, layer 1's is 0.08 … 0.28")  # fmt: skip
def carries() -> float:
    return share_on("carry", 1)


@claim("book-4.1-carries-second", where=WHERE, says="layer 2 propagates carries", verdict="roughly",
       records=(0.78, 0.94),
       note="tens and hundreds: how often interchanging layer 2's head moves the carry and nothing "
            "else. Over 5 seeds 0.16 … 0.86; in two it is below 0.3, and layer 1's head has read "
            "the carry already")  # fmt: skip
def carries_second() -> float:
    return float(np.mean(carried(1).share("carry")[:2]))


@claim("book-4.1-carries-first", where=WHERE, says="layer 1 is for columns", verdict="roughly",
       records=(0.0, 0.05),
       note="tens and hundreds: how often interchanging layer 1's head moves the column and its "
            "carry at once; over 5 seeds 0.01 … 0.74")  # fmt: skip
def carries_first() -> float:
    return float(np.mean(carried(0).share("both")))


@claim("book-4.1-carries-last", where=WHERE, says="layer 2 propagates carries: into the last digit",
       verdict="roughly", records=(0.94, 1.0),
       note="how often interchanging layer 2's head moves it; over 5 seeds 0.04 … 1, layer 1's at "
            "0.04")  # fmt: skip
def carries_last() -> float:
    return carried(1).share("carry")[-1]


@claim("book-4.1-cascade", where=WHERE,
       says="999+001 shows more complex layer-2 patterns than 123+456", verdict="misleading",
       records=(0.03, 0.08),
       note="entropy of layer 2's answer rows, the one less the other, in bits; over 5 seeds -0.44 "
            "… 0.32")  # fmt: skip
def cascade() -> float:
    model, task = adder()
    tokens, answer = task.batch(np.array([[123, 456], [999, 1]]))
    bits = entropy(patterns(model, tokens[:, :-1]))[1, :, 0][:, answer[0, 1:]].mean(1)
    return float(bits[1] - bits[0])


@claim("book-2-ideal-map", where="chapters 2, 4",
       says="the row of each output digit looks at its own column", verdict="wrong",
       records=(0.03, 0.06),
       note="the share of layer 1's attention on the book's ideal map, which is a row late: the "
            "digit is decided a row above, where the share is 0.90")  # fmt: skip
def ideal_map() -> float:
    return share_on("late", 0)


@claim("book-7.8-first", where="chapter 7.8",
       says="remove a component and see what breaks: layer 1's head", verdict="holds",
       records=(0.0, 0.003), note="the share of sums that are right without it")  # fmt: skip
def without_first() -> float:
    return without(0).accuracy


@claim("book-7.8-second", where="chapter 7.8",
       says="remove a component and see what breaks: layer 2's head", verdict="holds",
       records=(0.34, 0.41),
       note="the share of sums that are right without it; over 5 seeds 0.08 … 0.38")  # fmt: skip
def without_second() -> float:
    return without(1).accuracy


@claim("book-7.8-ones", where="chapter 7.8", says="the second layer is there for carries",
       verdict="misleading", records=(0.87, 0.93),
       note="the share of ones digits right without layer 2's head: they have no carry, so it does "
            "more")  # fmt: skip
def without_ones() -> float:
    return without(1).positions[0]


@claim("book-7.3-similar", where="chapter 7.3",
       says="the trained model finds a solution similar to the hand-coded one", verdict="holds",
       records=(0.91, 0.97),
       note="a digit of the question is swapped under an answer already written: of its answers "
            "that change, the share that the hand-made adder foretells")  # fmt: skip
def similar() -> float:
    found = swapped().question
    assert found
    return found.foretold[0]


@claim("book-7.3-not-identical", where="chapter 7.3", says="similar, but not identical",
       verdict="holds", records=(0.77, 0.87),
       note="the same with a digit of the written answer swapped; over 5 seeds 0.76 … "
            "0.82")  # fmt: skip
def not_identical() -> float:
    found = swapped().written
    assert found
    return found.foretold[0]


# ── the book's own recipe, run here with seed 0 ────────────────────────────────────────────────
@claim("book-4.1-columns-own-recipe", where=WHERE,
       says="layer 1 aligns columns, layer 2 propagates carries", verdict="misleading",
       records="27%, 70%",
       note="the share of attention on the column by layer, in our run of its recipe: the second "
            "aligns")  # fmt: skip
def columns_own_recipe() -> str:
    return percents(alignment(*adder("book-3"), sums(2_000)).mean("aligned").ravel())


@claim("book-7.4-rank", where="chapter 7.4",
       says="trained matrices have an effective rank much lower than nominal", verdict="misleading",
       records=(15.5, 17.0),
       note="the lowest effective rank of hidden matrices, of 32, in our run of its recipe; "
            "largest: 25")  # fmt: skip
def effective_rank() -> float:
    return min(r.effective for r in ranks(adder("book-3")[0]) if "blocks" in r.name)


@claim("book-7.4-truncation", where="chapter 7.4",
       says="the task does not require all that the weights could say", verdict="holds",
       records=(0.98, 1.0),
       note="the share still right with hidden matrices cut from rank 32 to 20; with rank 16 it is "
            "0.74")  # fmt: skip
def truncated() -> float:
    return truncation(*adder("book-3"), [20], sums(2_000))[0].accuracy
