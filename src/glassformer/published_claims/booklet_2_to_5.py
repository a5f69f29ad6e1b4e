"""Claims of chapters 2 to 5 of the booklet: Hello World, look-up tables, search, min and sort.

For the results that chapter 5 attributes to fp32, NumPy had computed in float64.
"""

from itertools import product

import numpy as np

from ..core.model import Model, forward
from ..core.param_count import ParameterCount, count
from ..craft import ring, shift_matrix
from ..generate import run
from ..programs.extremes import book_extreme
from ..programs.sort_book import powerpoint_sort
from ..tasks.extremes import Min
from ..tasks.sort import Sort
from ..verification import Verdict, verify
from . import Claim
from .measures import SHIFTS_NOTE, cached_count, cached_model, join_numbers, max_abs, verify_own


# ── chapter 2, Hello World ───────────────────────────────────────────────────────────────────────
def run_simpleformer() -> str:
    model = cached_model("hello-world:variant=simpleformer")
    return f"{run(model).output} in {model.config.d_model}"


# ── chapter 3, look-up tables ────────────────────────────────────────────────────────────────────
SHORT_NOTE = "at a vocabulary of 10 and a block of 5, which has no room for a prefix"


def book_ref(entries: int, vocab: int, more: str = "") -> str:
    return f"lookup:entries={entries},vocab={vocab},variant=book{more}"


def share_right(ref: str) -> float:
    """Return the fraction of its table on which a model is right."""
    verdict = verify_own(ref)
    return 1 - verdict.wrong / verdict.checked


def max_hard_positions() -> int:
    hard = []
    for n in (10, 100, 1_000, 10_000, 100_000):
        # the scores of a position and its two neighbors
        scores = 1e6 / np.sqrt(3) * ring(n)[:3] @ ring(n)[1]
        hard += [n] if 1 / np.exp(scores - scores[1]).sum() > 0.999 else []
    return max(hard)


def shift_error() -> float:
    f = ring(100)
    return max(max_abs(f @ shift_matrix(k, 100) - np.roll(f, -k, axis=0)) for k in range(100))


def untied_share_right() -> float:
    refs = [f"lookup:entries=1000,vocab=1000,seed={s},variant=hash" for s in range(5)]
    return float(np.mean([share_right(ref) for ref in refs]))


def wrong_entries() -> int:
    sizes = {*product((10, 100, 1000), repeat=2)} - {(1000, 10)}
    return sum(verify_own(book_ref(n, v)).wrong for n, v in sizes)


def text_parameters() -> int:
    ref = book_ref(1000, 1540, ",dims=10")
    return cached_count(ref).booklet if share_right(ref) == 1 else 0


# ── chapter 4, search ────────────────────────────────────────────────────────────────────────────
# (prefix, vocabulary, maximum length) of each alphabet
SMALL_SIZES = [(2, 2, 10), (3, 2, 11), (2, 3, 8), (3, 3, 9), (2, 4, 6)]
LONG_REF = "search:prefix=10,vocab=1000,block=100,variant=book"
SHORT_REF = "search:prefix=3,vocab=10,block=100,variant=book"


def verify_all_texts(variant: str) -> list[Verdict]:
    """Return a verdict on all sequences for each of a few small alphabets."""
    refs = [f"search:prefix={p},vocab={v},block={n + 1}" for p, v, n in SMALL_SIZES]
    return [verify_own(f"{ref},variant={variant}") for ref in refs]


def nonzero_counts(ref: str) -> str:
    c = cached_count(ref)
    return join_numbers([c.nonzero, c.nonzero - c.nonzero_arrays["embed.W_E"]])


def wrong_without_bos() -> float:
    verdicts = verify_all_texts("book")
    return sum(v.wrong for v in verdicts) / sum(v.checked for v in verdicts)


# ── chapter 5, min and sort ──────────────────────────────────────────────────────────────────────
def nonzero_outside_embedding(c: ParameterCount) -> int:
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
        return "runs"
    except ValueError:
        return "raises ValueError"


def _wrong_sort(vocab: int, dtype: str = "float64") -> int:
    """Return the number of wrong answers of the booklet's sort on 300 lists; first logits win."""
    model, task = powerpoint_sort(vocab, vocab - 1).astype(dtype), Sort(vocab, vocab - 1)
    wrong = 0
    for row in task.sample(300, np.random.default_rng(0)):
        tokens, answer = task.batch(row[None])
        with np.errstate(all="ignore"):
            outputs = forward(model.config, model.weights, tokens[:, :-1]).argmax(-1)
        wrong += bool((outputs != tokens[:, 1:])[answer[:, 1:]].any())
    return wrong


def max_robust_vocab() -> int:
    good = 26
    while not verify(powerpoint_sort(good + 1, good), Sort(good + 1, good), sample=300).wrong:
        good += 1
    return good


CLAIMS = [
    Claim("booklet-2.4-parameters", "section 2.4", "72 parameters", "holds", 72,
          lambda: cached_count("hello-world:variant=book").total),
    Claim("booklet-2.4-ascii", "section 2.4", "807 parameters with ASCII", "holds", 807,
          lambda: cached_count("hello-world:variant=book,tokenizer=ascii").total),
    Claim("booklet-2.4-prints", "figure 2.9", "prints Hello World!", "holds", "Hello World!",
          lambda: run(cached_model("hello-world:variant=book")).output),
    Claim("booklet-2.1-simpleformer", "figure 2.4", "two dimensions are enough without layer norm",
          "holds", "Hello World! in 2", run_simpleformer),
    Claim("booklet-3.1-hardness", "section 3.1",
          "a factor of 1,000,000 in the query makes attention hard", "roughly", 1_000,
          max_hard_positions, "the largest power of ten of positions where it does"),
    Claim("booklet-3.2-shift-system", "section 3.2, figure 3.1",
          "solving for three points gives the shift", "wrong", 2,
          lambda: int(np.linalg.matrix_rank([ring(1, phase=t)[0] for t in range(3)])),
          "the rank of the three points: it works by luck with rounding"),
    Claim("booklet-3.2-shift", "section 3.2",
          "evenly spaced points on the ring are linearly shiftable", "holds", (0, 1e-12),
          shift_error, "the largest error of the closed form, 100 positions"),
    Claim("booklet-3.5-untied", "section 3.5.1",
          "untied, 100 dimensions, 1,000 entries: ≈ 100 % right", "roughly", (0.99, 1.0),
          untied_share_right, "mean over 5 tables; few are perfect"),
    Claim("booklet-3.7-parameters-10", "section 3.7", "10 entries: 1,408 parameters", "misleading",
          1_408, lambda: cached_count(book_ref(10, 10)).booklet,
          f"{SHORT_NOTE}; 9,328 at a vocabulary of 1,000"),
    Claim("booklet-3.7-parameters-100", "section 3.7", "100 entries: 3,588 parameters",
          "misleading", 3_588, lambda: cached_count(book_ref(100, 10)).booklet,
          f"{SHORT_NOTE}; 16,458 at a vocabulary of 1,000"),
    Claim("booklet-3.7-parameters-1000", "section 3.7", "1,000 entries: 22,308 parameters",
          "misleading", 22_308, lambda: cached_count(book_ref(1000, 10)).booklet,
          f"{SHORT_NOTE}, and that table is not learned; 54,978 at a vocabulary of 1,000"),
    Claim("booklet-3.7-parameters-vocabulary", "section 3.7",
          "the counts are for vocabularies of 10 to 1,000", "wrong", "9,328 16,458 54,978",
          lambda: join_numbers(cached_count(book_ref(n, 1000)).booklet for n in (10, 100, 1000)),
          "at a vocabulary of 1,000"),
    Claim("booklet-3.7-nonzero", "section 3.7", "283, 733 and 5,033 parameters are not 0",
          "roughly", "286 736 5,036",
          lambda: join_numbers(cached_count(book_ref(n, 10)).nonzero for n in (10, 100, 1000)),
          SHIFTS_NOTE),
    Claim("booklet-3.7-learned", "section 3.7",
          "d_model 8, 13 and 33 hold 10, 100 and 1,000 entries, 100 %", "holds", 0, wrong_entries,
          "wrong entries, at vocabularies of 10 (not for 1,000 entries), 100 and 1,000"),
    Claim("booklet-3.7-cap", "section 3.7, exercise 3.9",
          "1,000 entries from 10 tokens: at most ~20 % right", "roughly", (0.2, 0.33),
          lambda: share_right(book_ref(1000, 10)),
          "logits are sums over positions: no number of dimensions holds such a table"),
    Claim("booklet-3.7.1-text", "section 3.7.1",
          "1,000 6-grams, 1,540 words: 23K parameters, all right", "holds", 23_478, text_parameters,
          "a random table of that size instead of the text; 0 if not all are right", slow=True),
    Claim("booklet-4.3-parameters-10", "section 4.3",
          "prefix 10, vocabulary 1,000: 123,486 parameters", "holds", 123_486,
          lambda: cached_count(LONG_REF).booklet,
          "ours has 21,851 and makes no mistakes at the start"),
    Claim("booklet-4.3-parameters-3", "section 4.3", "prefix 3, vocabulary 10: 4,800 parameters",
          "holds", 4_800, lambda: cached_count(SHORT_REF).booklet,
          "ours has 1,579 and makes no mistakes at the start"),
    Claim("booklet-4.3-nonzero-10", "section 4.3",
          "30,734 are not 0, 735 of these not in the token embedding", "roughly", "30,742 743",
          lambda: nonzero_counts(LONG_REF), SHIFTS_NOTE),
    Claim("booklet-4.3-nonzero-3", "section 4.3",
          "535 are not 0, 446 of these not in the token embedding", "roughly", "538 449",
          lambda: nonzero_counts(SHORT_REF), SHIFTS_NOTE),
    Claim("booklet-4-right", "chapter 4", "search finds what followed the only earlier occurrence",
          "wrong", (0.01, 0.06), wrong_without_bos,
          "share wrong over all texts of small alphabets: before the start heads see token 0"),
    Claim("booklet-4-right-bos", "chapter 4", "(not said) the same with <bos> before the text",
          "holds", 0, lambda: sum(v.wrong for v in verify_all_texts("bos")),
          "wrong answers over all texts of small alphabets"),
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
          lambda: verify(powerpoint_sort(33, 32, ratio=0.6, aim=0.45), Sort(33, 32),
                         sample=1_000).wrong,
          "wrong of 1,000 lists with ratio 0.6 and q at 0.45 of the way; 35 tokens were measured"),
]  # fmt: skip
