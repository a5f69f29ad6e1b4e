"""Chapter 3 of the booklet, *Lookup Table*."""

import numpy as np

from ..craft import ring, shift_matrix
from . import claim
from .measures import SHIFTS, checked, counted, largest, spaced

SHORT = "at a vocabulary of 10 and a block of 5, which has no room for a prefix"


def book(entries: int, vocab: int, more: str = "") -> str:
    return f"lookup:entries={entries},vocab={vocab},variant=book{more}"


def share(ref: str) -> float:
    """How much of its table a model has right."""
    verdict = checked(ref)
    return 1 - verdict.wrong / verdict.checked


@claim("booklet-3.1-hardness", where="section 3.1",
       says="a factor of 1,000,000 in the query makes attention hard", verdict="roughly",
       records=1_000, note="the largest power of ten of positions where it does")  # fmt: skip
def hardness() -> int:
    hard = []
    for n in (10, 100, 1_000, 10_000, 100_000):
        scores = 1e6 / np.sqrt(3) * ring(n)[:3] @ ring(n)[1]  # of a position and its two neighbours
        hard += [n] if 1 / np.exp(scores - scores[1]).sum() > 0.999 else []
    return max(hard)


@claim("booklet-3.2-shift-system", where="section 3.2, figure 3.1",
       says="solving for three points gives the shift", verdict="wrong", records=2,
       note="the rank of the three points: it works by luck with rounding")  # fmt: skip
def shift_system() -> int:
    anchors = np.concatenate([ring(1, phase=t) for t in range(3)])
    return int(np.linalg.matrix_rank(anchors))


@claim("booklet-3.2-shift", where="section 3.2",
       says="evenly spaced points on the ring are linearly shiftable", verdict="holds",
       records=(0, 1e-12), note="the largest error of the closed form, 100 positions")  # fmt: skip
def shift() -> float:
    points = ring(100)
    return max(
        largest(points @ shift_matrix(k, 100) - np.roll(points, -k, axis=0)) for k in range(100)
    )


@claim("booklet-3.5-untied", where="section 3.5.1",
       says="untied, 100 dimensions, 1,000 entries: ≈ 100 % right", verdict="roughly",
       records=(0.99, 1.0), note="mean over 5 tables; few are perfect")  # fmt: skip
def untied() -> float:
    return float(
        np.mean([share(f"lookup:entries=1000,vocab=1000,seed={s},variant=hash") for s in range(5)])
    )


@claim("booklet-3.7-parameters-10", where="section 3.7", says="10 entries: 1,408 parameters",
       verdict="misleading", records=1_408,
       note=f"{SHORT}; 9,328 at a vocabulary of 1,000")  # fmt: skip
def parameters_10() -> int:
    return counted(book(10, 10)).booklet


@claim("booklet-3.7-parameters-100", where="section 3.7", says="100 entries: 3,588 parameters",
       verdict="misleading", records=3_588,
       note=f"{SHORT}; 16,458 at a vocabulary of 1,000")  # fmt: skip
def parameters_100() -> int:
    return counted(book(100, 10)).booklet


@claim("booklet-3.7-parameters-1000", where="section 3.7", says="1,000 entries: 22,308 parameters",
       verdict="misleading", records=22_308,
       note=f"{SHORT}, and that table is not learned; 54,978 at a vocabulary of 1,000")  # fmt: skip
def parameters_1000() -> int:
    return counted(book(1000, 10)).booklet


@claim("booklet-3.7-parameters-vocabulary", where="section 3.7",
       says="the counts are for vocabularies of 10 to 1,000", verdict="wrong",
       records="9,328 16,458 54,978", note="at a vocabulary of 1,000")  # fmt: skip
def parameters_vocabulary() -> str:
    return spaced(counted(book(n, 1000)).booklet for n in (10, 100, 1000))


@claim("booklet-3.7-nonzero", where="section 3.7", says="283, 733 and 5,033 parameters are not 0",
       verdict="roughly", records="286 736 5,036", note=SHIFTS)  # fmt: skip
def nonzero() -> str:
    return spaced(counted(book(n, 10)).nonzero for n in (10, 100, 1000))


@claim("booklet-3.7-learned", where="section 3.7",
       says="d_model 8, 13 and 33 hold 10, 100 and 1,000 entries, 100 %", verdict="holds",
       records=0,
       note="wrong entries, at vocabularies of 10 (not for 1,000 entries), 100 and "
            "1,000")  # fmt: skip
def learned() -> int:
    sizes = [(n, v) for n in (10, 100, 1000) for v in (10, 100, 1000) if (n, v) != (1000, 10)]
    return sum(checked(book(n, v)).wrong for n, v in sizes)


@claim("booklet-3.7-cap", where="section 3.7, exercise 3.9",
       says="1,000 entries from 10 tokens: at most ~20 % right", verdict="roughly",
       records=(0.2, 0.33),
       note="logits are sums over positions: no number of dimensions holds such a "
            "table")  # fmt: skip
def cap() -> float:
    return share(book(1000, 10))


@claim("booklet-3.7.1-text", where="section 3.7.1",
       says="1,000 6-grams, 1,540 words: 23K parameters, all right", verdict="holds",
       records=23_478, slow=True,
       note="a random table of that size instead of the text; 0 if not all are right")  # fmt: skip
def text() -> int:
    ref = book(1000, 1540, ",dims=10")
    return counted(ref).booklet if share(ref) == 1 else 0
