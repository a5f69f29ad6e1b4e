"""Claims of chapter 3 of the booklet, *Lookup Table*."""

import numpy as np

from ..craft import ring, shift_matrix
from . import Claim
from .measures import SHIFTS_NOTE, cached_count, join_numbers, max_abs, verify_own_task

SHORT_NOTE = "at a vocabulary of 10 and a block of 5, which has no room for a prefix"


def book_ref(entries: int, vocab: int, more: str = "") -> str:
    return f"lookup:entries={entries},vocab={vocab},variant=book{more}"


def share_right(ref: str) -> float:
    """Return the fraction of its table on which a model is right."""
    verdict = verify_own_task(ref)
    return 1 - verdict.wrong / verdict.checked


def max_hard_positions() -> int:
    hard = []
    for n in (10, 100, 1_000, 10_000, 100_000):
        scores = (
            1e6 / np.sqrt(3) * ring(n)[:3] @ ring(n)[1]
        )  # scores of a position and its neighbors
        hard += [n] if 1 / np.exp(scores - scores[1]).sum() > 0.999 else []
    return max(hard)


def shift_system_rank() -> int:
    anchors = np.concatenate([ring(1, phase=t) for t in range(3)])
    return int(np.linalg.matrix_rank(anchors))


def shift_error() -> float:
    f = ring(100)
    return max(max_abs(f @ shift_matrix(k, 100) - np.roll(f, -k, axis=0)) for k in range(100))


def untied_share_right() -> float:
    refs = [f"lookup:entries=1000,vocab=1000,seed={s},variant=hash" for s in range(5)]
    return float(np.mean([share_right(ref) for ref in refs]))


def wrong_entries() -> int:
    sizes = [(n, v) for n in (10, 100, 1000) for v in (10, 100, 1000) if (n, v) != (1000, 10)]
    return sum(verify_own_task(book_ref(n, v)).wrong for n, v in sizes)


def text_parameters() -> int:
    ref = book_ref(1000, 1540, ",dims=10")
    return cached_count(ref).booklet if share_right(ref) == 1 else 0


CLAIMS = [
    Claim("booklet-3.1-hardness", "section 3.1",
          "a factor of 1,000,000 in the query makes attention hard", "roughly", 1_000,
          max_hard_positions, "the largest power of ten of positions where it does"),
    Claim("booklet-3.2-shift-system", "section 3.2, figure 3.1",
          "solving for three points gives the shift", "wrong", 2, shift_system_rank,
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
]  # fmt: skip
