"""Chapter 5 of the booklet: min and sort. Where it says fp32, NumPy had computed in float64."""

import numpy as np

from ..counting import count
from ..model import Model, forward
from ..programs.extremes import book
from ..programs.sort_book import by_points
from ..tasks.extremes import Min
from ..tasks.sort import Sort
from ..verification import verify
from . import claim
from .measures import counted


@claim("booklet-5.1-min-parameters", where="section 5.1", says="6n + 39 parameters",
       verdict="holds", records="6n + 39")  # fmt: skip
def min_parameters() -> str:
    a, b = (counted(f"min:vocab={n},variant=book").total for n in (10, 1000))
    slope = (b - a) // 990
    return f"{slope}n + {a - 10 * slope}"


@claim("booklet-5.1-min-nonzero", where="section 5.1", says="11 not 0, except the token embedding",
       verdict="holds", records=11)  # fmt: skip
def min_nonzero() -> int:
    c = counted("min:vocab=10,variant=book")
    return c.nonzero - c.nonzero_embedding


def _wrong_min(model: Model, triples: int) -> int:
    """How many random triples the model gets wrong."""
    vocab = len(model.vocabulary)
    rows = np.random.default_rng(0).integers(0, vocab, (triples, 3))
    return verify(model, Min(vocab=vocab, length=3), rows=rows).wrong


@claim("booklet-5.3-min-random", where="exercise 5.2",
       says="robust for tens of thousands of numbers, in fp32", verdict="roughly", records=0,
       note="wrong of 2,000 random triples of 20,000 numbers, in float64")  # fmt: skip
def min_random() -> int:
    return _wrong_min(book("min", 20_000, block=3), 2_000)


@claim("booklet-5.3-min-float32", where="exercise 5.2",
       says="robust for tens of thousands of numbers, in fp32", verdict="wrong",
       records=(1_000, 2_000),
       note="wrong of the same triples in float32: neighbours round to the same "
            "logits")  # fmt: skip
def min_float32() -> int:
    return _wrong_min(book("min", 20_000, block=3).astype("float32"), 2_000)


@claim("booklet-5.3-min-adversarial", where="exercise 5.2",
       says="robust for tens of thousands of numbers", verdict="misleading", records=5_000,
       note="the first of 1,000, 3,000, 5,000 … numbers at which the triple 1 1 0 is wrong, in "
            "float64")  # fmt: skip
def min_adversarial() -> int:
    for vocab in range(1_000, 20_000, 2_000):
        if verify(
            book("min", vocab, block=3), Min(vocab=vocab, length=3), rows=np.array([[1, 1, 0]])
        ).wrong:
            return vocab
    return 0


@claim("booklet-fig-5.5-runs", where="figure 5.5", says="the code builds SORT", verdict="wrong",
       records="raises ValueError",
       note="the index of the head is missing: Q has the axes head, stream, key")  # fmt: skip
def sort_runs() -> str:
    query = np.zeros((1, 6, 6))
    try:
        query[3:, :3] = np.eye(3)
    except ValueError:
        return "raises ValueError"
    return "runs"


def _wrong_sort(vocab: int, dtype: str = "float64", lists: int = 300) -> int:
    """Wrong lists of the booklet's sort, decoded its way: the first of equal logits wins."""
    model, task = by_points(vocab, vocab - 1).astype(dtype), Sort(vocab=vocab, length=vocab - 1)
    wrong = 0
    for row in task.sample(lists, np.random.default_rng(0)):
        tokens, answer = task.batch(row[None])
        with np.errstate(all="ignore"):
            said = forward(model.config, model.weights, tokens[:, :-1]).argmax(-1)
        wrong += bool((said != tokens[:, 1:])[answer[:, 1:]].any())
    return wrong


@claim("booklet-5.2-sort-28", where="section 5.2.1", says="still robust for up to 28 numbers",
       verdict="roughly", records=(0, 120),
       note="wrong of 300 lists in float64; the last scores are a bit apart: none or a third, as "
            "sums happen to round")  # fmt: skip
def sort_28() -> int:
    return _wrong_sort(28)


@claim("booklet-5.2-sort-28-margin", where="section 5.2.1",
       says="still robust for up to 28 numbers", verdict="misleading", records=(26, 28),
       note="the largest vocabulary at which the right logit is larger than all others, in 300 "
            "lists; rounding decides beyond 26")  # fmt: skip
def sort_margin() -> int:
    good = 26
    while (
        verify(by_points(good + 1, good), Sort(vocab=good + 1, length=good), sample=300).wrong == 0
    ):
        good += 1
    return good


@claim("booklet-5.2-sort-29", where="section 5.2.1", says="28 is the limit", verdict="holds",
       records=(30, 300), note="wrong of 300 lists at 29, in float64")  # fmt: skip
def sort_29() -> int:
    return _wrong_sort(29)


@claim("booklet-5.2-sort-float32", where="section 5.2.1", says="up to 28 numbers in fp32",
       verdict="wrong", records=300,
       note="wrong of 300 lists of up to 9 numbers: the square of 1e20 overflows in layer norm, "
            "and every answer is 0")  # fmt: skip
def sort_float32() -> int:
    return _wrong_sort(10, "float32")


@claim("booklet-5.2.2-sort-nonzero", where="section 5.2.2", says="166 parameters that are not 0",
       verdict="wrong", records=184, note="166 is the token embedding alone")  # fmt: skip
def sort_nonzero() -> int:
    return count(by_points(28, 27)).nonzero


@claim("booklet-5.2.2-sort-outside", where="section 5.2.2",
       says="18 not 0 outside the token embedding", verdict="holds", records=18)  # fmt: skip
def sort_outside() -> int:
    c = count(by_points(28, 27))
    return c.nonzero - c.nonzero_embedding


@claim("booklet-5.3-sort-33", where="exercise 5.1", says="a slight change supports 33 tokens",
       verdict="holds", records=0,
       note="wrong of 1,000 lists with ratio 0.6 and q at 0.45 of the way; 35 tokens were "
            "measured")  # fmt: skip
def sort_33() -> int:
    model = by_points(33, 32, ratio=0.6, aim=0.45)
    return verify(model, Sort(vocab=33, length=32), sample=1_000).wrong
