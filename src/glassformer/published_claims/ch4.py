"""Claims of chapter 4 of the booklet, *Search*."""

from ..verification import Verdict
from . import Claim
from .measures import SHIFTS_NOTE, cached_count, join_numbers, verify_own_task

# (prefix, vocabulary, maximum length) of each alphabet
SMALL_SIZES = [(2, 2, 10), (3, 2, 11), (2, 3, 8), (3, 3, 9), (2, 4, 6)]
LONG_REF = "search:prefix=10,vocab=1000,block=100,variant=book"
SHORT_REF = "search:prefix=3,vocab=10,block=100,variant=book"


def verify_all_texts(variant: str) -> list[Verdict]:
    """Return a verdict on all sequences for each of a few small alphabets."""
    refs = [f"search:prefix={p},vocab={v},block={n + 1}" for p, v, n in SMALL_SIZES]
    return [verify_own_task(f"{ref},variant={variant}") for ref in refs]


def nonzero_counts(ref: str) -> str:
    c = cached_count(ref)
    return join_numbers([c.nonzero, c.nonzero - c.nonzero_arrays["embed.W_E"]])


def wrong_without_bos() -> float:
    verdicts = verify_all_texts("book")
    return sum(v.wrong for v in verdicts) / sum(v.checked for v in verdicts)


CLAIMS = [
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
]  # fmt: skip
