"""Chapter 4 of the booklet, *Search*."""

from ..verification import Verdict
from . import claim
from .measures import SHIFTS, checked, counted, spaced

# prefix, vocabulary, longest text
SMALL = [(2, 2, 10), (3, 2, 11), (2, 3, 8), (3, 3, 9), (2, 4, 6)]
LONG = "search:prefix=10,vocab=1000,block=100,variant=book"
SHORT = "search:prefix=3,vocab=10,block=100,variant=book"


def over_every_text(variant: str) -> list[Verdict]:
    """A verdict for each of a few small alphabets, over all texts."""
    return [
        checked(f"search:prefix={p},vocab={v},block={n + 1},variant={variant}") for p, v, n in SMALL
    ]


def not_zero(ref: str) -> str:
    c = counted(ref)
    return spaced([c.nonzero, c.nonzero - c.nonzero_arrays["embed.W_E"]])


@claim("booklet-4.3-parameters-10", where="section 4.3",
       says="prefix 10, vocabulary 1,000: 123,486 parameters", verdict="holds", records=123_486,
       note="ours has 21,851 and makes no mistakes at the start")  # fmt: skip
def parameters_10() -> int:
    return counted(LONG).booklet


@claim("booklet-4.3-parameters-3", where="section 4.3",
       says="prefix 3, vocabulary 10: 4,800 parameters", verdict="holds", records=4_800,
       note="ours has 1,579 and makes no mistakes at the start")  # fmt: skip
def parameters_3() -> int:
    return counted(SHORT).booklet


@claim("booklet-4.3-nonzero-10", where="section 4.3",
       says="30,734 are not 0, 735 of these not in the token embedding", verdict="roughly",
       records="30,742 743", note=SHIFTS)  # fmt: skip
def nonzero_10() -> str:
    return not_zero(LONG)


@claim("booklet-4.3-nonzero-3", where="section 4.3",
       says="535 are not 0, 446 of these not in the token embedding", verdict="roughly",
       records="538 449", note=SHIFTS)  # fmt: skip
def nonzero_3() -> str:
    return not_zero(SHORT)


@claim("booklet-4-right", where="chapter 4",
       says="search finds what followed the only earlier occurrence", verdict="wrong",
       records=(0.01, 0.06),
       note="share wrong over all texts of small alphabets: before the start heads see token "
            "0")  # fmt: skip
def wrong_without_bos() -> float:
    verdicts = over_every_text("book")
    return sum(v.wrong for v in verdicts) / sum(v.checked for v in verdicts)


@claim("booklet-4-right-bos", where="chapter 4",
       says="(not said) the same with <bos> before the text", verdict="holds", records=0,
       note="wrong answers over all texts of small alphabets")  # fmt: skip
def wrong_with_bos() -> int:
    return sum(v.wrong for v in over_every_text("bos"))
