"""Claims of chapter 5 of the booklet, min and sort.

For the results that the chapter attributes to fp32, NumPy had computed in float64.
"""

import numpy as np

from ..core.model import Model, forward
from ..core.param_count import ParameterCount, count
from ..programs.extremes import book_extreme
from ..programs.sort_book import powerpoint_sort
from ..tasks.extremes import Min
from ..tasks.sort import Sort
from ..verification import verify
from . import Claim
from .measures import cached_count


def nonzero_outside_embedding(c: ParameterCount) -> int:
    """Return the number of nonzero parameters outside the token embedding."""
    return c.nonzero - c.nonzero_embedding


def min_parameters() -> str:
    a, b = (cached_count(f"min:vocab={n},variant=book").total for n in (10, 1000))
    slope = (b - a) // 990
    return f"{slope}n + {a - 10 * slope}"


def _wrong_min(model: Model, triples: int) -> int:
    """Return the number of random triples on which the model is wrong."""
    vocab = len(model.vocabulary)
    rows = np.random.default_rng(0).integers(0, vocab, (triples, 3))
    return verify(model, Min(vocab=vocab, length=3), rows=rows).wrong


def first_wrong_vocab() -> int:
    for vocab in range(1_000, 20_000, 2_000):
        model, task = book_extreme("min", vocab, block=3), Min(vocab=vocab, length=3)
        if verify(model, task, rows=np.array([[1, 1, 0]])).wrong:
            return vocab
    return 0


def run_printed_sort() -> str:
    query = np.zeros((1, 6, 6))
    try:
        query[3:, :3] = np.eye(3)
    except ValueError:
        return "raises ValueError"
    return "runs"


def _wrong_sort(vocab: int, dtype: str = "float64") -> int:
    """Return the number of wrong answers of the booklet's sort on 300 lists.

    Ties go to the first logit.
    """
    model, task = (
        powerpoint_sort(vocab, vocab - 1).astype(dtype),
        Sort(vocab=vocab, length=vocab - 1),
    )
    wrong = 0
    for row in task.sample(300, np.random.default_rng(0)):
        tokens, answer = task.batch(row[None])
        with np.errstate(all="ignore"):
            said = forward(model.config, model.weights, tokens[:, :-1]).argmax(-1)
        wrong += bool((said != tokens[:, 1:])[answer[:, 1:]].any())
    return wrong


def max_robust_vocab() -> int:
    good = 26
    while not verify(powerpoint_sort(good + 1, good), Sort(good + 1, good), sample=300).wrong:
        good += 1
    return good


CLAIMS = [
    Claim("booklet-5.1-min-parameters", "section 5.1", "6n + 39 parameters", "holds", "6n + 39",
          min_parameters),
    Claim("booklet-5.1-min-nonzero", "section 5.1", "11 not 0, except the token embedding", "holds",
          11, lambda: nonzero_outside_embedding(cached_count("min:vocab=10,variant=book"))),
    Claim("booklet-5.3-min-random", "exercise 5.2",
          "robust for tens of thousands of numbers, in fp32", "roughly", 0,
          lambda: _wrong_min(book_extreme("min", 20_000, block=3), 2_000),
          "wrong of 2,000 random triples of 20,000 numbers, in float64"),
    Claim("booklet-5.3-min-float32", "exercise 5.2",
          "robust for tens of thousands of numbers, in fp32", "wrong", (1_000, 2_000),
          lambda: _wrong_min(book_extreme("min", 20_000, block=3).astype("float32"), 2_000),
          "wrong of the same triples in float32: neighbours round to the same logits"),
    Claim("booklet-5.3-min-adversarial", "exercise 5.2", "robust for tens of thousands of numbers",
          "misleading", 5_000, first_wrong_vocab,
          "the first of 1,000, 3,000, 5,000 … numbers at which the triple 1 1 0 is wrong, in "
          "float64"),
    Claim("booklet-fig-5.5-runs", "figure 5.5", "the code builds SORT", "wrong",
          "raises ValueError", run_printed_sort,
          "the index of the head is missing: Q has the axes head, stream, key"),
    Claim("booklet-5.2-sort-28", "section 5.2.1", "still robust for up to 28 numbers", "roughly",
          (0, 120), lambda: _wrong_sort(28),
          "wrong of 300 lists in float64; the last scores are a bit apart: none or a third, as "
          "sums happen to round"),
    Claim("booklet-5.2-sort-28-margin", "section 5.2.1", "still robust for up to 28 numbers",
          "misleading", (26, 28), max_robust_vocab,
          "the largest vocabulary at which the right logit is larger than all others, in 300 "
          "lists; rounding decides beyond 26"),
    Claim("booklet-5.2-sort-29", "section 5.2.1", "28 is the limit", "holds", (30, 300),
          lambda: _wrong_sort(29), "wrong of 300 lists at 29, in float64"),
    Claim("booklet-5.2-sort-float32", "section 5.2.1", "up to 28 numbers in fp32", "wrong", 300,
          lambda: _wrong_sort(10, "float32"),
          "wrong of 300 lists of up to 9 numbers: the square of 1e20 overflows in layer norm, and "
          "every answer is 0"),
    Claim("booklet-5.2.2-sort-nonzero", "section 5.2.2", "166 parameters that are not 0", "wrong",
          184, lambda: count(powerpoint_sort(28, 27)).nonzero, "166 is the token embedding alone"),
    Claim("booklet-5.2.2-sort-outside", "section 5.2.2", "18 not 0 outside the token embedding",
          "holds", 18, lambda: nonzero_outside_embedding(count(powerpoint_sort(28, 27)))),
    Claim("booklet-5.3-sort-33", "exercise 5.1", "a slight change supports 33 tokens", "holds", 0,
          lambda: (verify(powerpoint_sort(33, 32, ratio=0.6, aim=0.45), Sort(33, 32),
          sample=1_000).wrong),
          "wrong of 1,000 lists with ratio 0.6 and q at 0.45 of the way; 35 tokens were measured"),
]  # fmt: skip
