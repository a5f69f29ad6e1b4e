"""Reference answers of the levels without a task in the registry.

TRUTHS maps a name to the domain of texts and a function from a text to its answer tokens. None
means that the text is outside the domain.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

Text = tuple[str, ...]
Truth = Callable[[Text], Sequence[str] | None]
Domain = Callable[[Sequence[str], int], Iterable[Text]]


def every(tokens: Sequence[str], length: int) -> Iterator[Text]:
    """All texts, shorter ones first."""
    for n in range(1, length + 1):
        yield from itertools.product(tokens, repeat=n)


def of(*these: str) -> Domain:
    """All texts of these tokens alone."""
    return lambda tokens, length: every([t for t in tokens if t in these], length)


def listed(tokens: Sequence[str], length: int) -> Iterator[Text]:
    """All lists of numbers, and a bar: the answer must find room, a number each and a point."""
    numbers = [t for t in tokens if t.isdecimal()]
    for text in every(numbers, (length - 1) // 2):
        yield (*text, "|")


def sums(tokens: Sequence[str], length: int) -> Iterator[Text]:
    """Two numbers of as many digits: 1 9 + 0 3 =. The sum and a point must find room."""
    digits = [t for t in tokens if t.isdecimal()]
    for n in range(1, (length - 3) // 3 + 1):
        for both in itertools.product(digits, repeat=2 * n):
            yield (*both[:n], "+", *both[n:], "=")


def pairs(tokens: Sequence[str], length: int) -> Iterator[Text]:
    """Keys and values in turn (a 1 b 0), and a key at the end that has a value."""
    keys = [t for t in tokens if not t.isdecimal()]
    values = [t for t in tokens if t.isdecimal()]
    for n in range(1, (length - 1) // 2 + 1):
        for text in itertools.product(*[keys, values] * n, keys):
            if text[-1] in text[:-1]:
                yield text


def yes(holds: bool) -> list[str]:
    return ["yes" if holds else "no"]


# ── answers that take more than a line ─────────────────────────────────────────────────────────
def last_letter(text: Text) -> list[str]:
    """The last token that is not a blank."""
    letters = [t for t in text if t != "_"]
    return [letters[-1] if letters else "_"]


def majority(text: Text) -> list[str] | None:
    ones, zeros = text.count("1"), text.count("0")
    return None if ones == zeros else ["1" if ones > zeros else "0"]


def most_frequent(text: Text) -> list[str]:
    """The most frequent token; among equally frequent ones, the one that occurred last."""
    return [text[max(range(len(text)), key=lambda i: (text.count(text[i]), i))]]


def distance(text: Text) -> list[str]:
    """The distance to the previous occurrence of the last token; 0 if there is none."""
    back = [i for i in range(1, len(text)) if text[-1 - i] == text[-1]]
    return [str(back[0] if back else 0)]


def depths(text: Text) -> list[int]:
    """Number of open brackets after each token, less the closed ones."""
    return list(itertools.accumulate(1 if t == "(" else -1 for t in text))


def balanced(text: Text) -> list[str]:
    """F: a bracket was closed that was not open. P: some are still open. T: balanced."""
    return ["F" if min(depths(text)) < 0 else "P" if depths(text)[-1] else "T"]


def depth(text: Text) -> list[str] | None:
    """The depth, for texts in which no bracket is closed that was not open."""
    return None if min(depths(text)) < 0 else [str(depths(text)[-1])]


def two_kinds(text: Text) -> list[str]:
    """`balanced` for two kinds of brackets: each must be closed by its own kind."""
    left: list[str] = []
    for t in text:
        if t in "([":
            left.append({"(": ")", "[": "]"}[t])
        elif not left or left.pop() != t:
            return ["F"]
    return ["P" if left else "T"]


def what_followed(text: Text) -> list[str]:
    """The token after the last token's previous occurrence; the token itself if it had none."""
    before = [i for i in range(len(text) - 1) if text[i] == text[-1]]
    return [text[before[-1] + 1] if before else text[-1]]


def looked_up(text: Text) -> list[str]:
    """The value of the last key; of a key given twice, the later value."""
    return [dict(zip(text[:-1:2], text[1::2], strict=True))[text[-1]]]


def once(text: Text) -> list[str] | None:
    """The only token that occurs once; None if there is not exactly one."""
    alone = [t for t in text if text.count(t) == 1]
    return alone if len(alone) == 1 else None


def added(text: Text) -> list[str]:
    """The sum, ones last, with one digit more than the numbers have."""
    n = text.index("+")
    total = int("".join(text[:n])) + int("".join(text[n + 1 : -1]))
    return [*str(total).zfill(n + 1), "."]


def added_ones_first(text: Text) -> list[str]:
    n = text.index("+")
    *ones_last, point = added((*text[:n][::-1], "+", *text[n + 1 : -1][::-1], "="))
    return [*ones_last[::-1], point]


AB, ROUND = of("a", "b"), of(*"()")
NEXT_LIGHT = {"red": "green", "green": "amber", "amber": "red"}
TRUTHS: dict[str, tuple[Truth, Domain]] = {
    # ── one token
    "traffic-light": (lambda text: [NEXT_LIGHT[text[-1]]], every),
    "next-of-ten": (lambda text: [str((int(text[-1]) + 1) % 10)], every),
    "last-squared": (lambda text: [str(int(text[-1]) ** 2 % 10)], every),
    "parity-of-place": (lambda text: ["odd" if len(text) % 2 else "even"], every),
    # ── looking back
    "one-back": (lambda text: [text[-2]] if len(text) > 1 else None, every),
    "two-back": (lambda text: [text[-3]] if len(text) > 2 else None, every),
    "first": (lambda text: [text[0]], every),
    "before-or-dash": (lambda text: [text[-2] if len(text) > 1 else "-"], every),
    "changed": (lambda text: yes(len(text) > 1 and text[-1] != text[-2]), every),
    "sum-of-two": (
        lambda text: [str(int(text[-1]) + int(text[-2]))] if len(text) > 1 else None,
        of(*"01234"),
    ),
    "last-letter": (last_letter, every),
    # ── the whole text
    "largest": (lambda text: [max(text, key=int)], every),
    "second-largest": (
        lambda text: [sorted(text, key=int)[-2]] if len(text) > 1 else None,
        every,
    ),
    "median": (lambda text: [sorted(text, key=int)[(len(text) - 1) // 2]], every),
    "seen": (lambda text: yes("x" in text), every),
    "again": (lambda text: yes(text[-1] in text[:-1]), every),
    "all-equal": (lambda text: yes(len(set(text)) == 1), every),
    "rising": (lambda text: yes(list(text) == sorted(text)), of(*"0123")),
    "palindrome": (lambda text: yes(text == text[::-1]), AB),
    # ── counting
    "how-many-a": (lambda text: [str(text.count("a"))], AB),
    "parity": (lambda text: [str(text.count("1") % 2)], every),
    "majority": (majority, every),
    "more-ones": (lambda text: ["1" if text.count("1") > text.count("0") else "0"], every),
    "how-often-this": (lambda text: [str(text.count(text[-1]))], every),
    "different": (lambda text: [str(len(set(text)))], every),
    "most-frequent": (most_frequent, every),
    "distance": (distance, of(*"012")),
    "sum-mod-5": (lambda text: [str(sum(map(int, text)) % 5)], every),
    # ── brackets
    "balanced": (balanced, ROUND),
    "depth": (depth, ROUND),
    "two-kinds": (two_kinds, of(*"()[]")),
    # ── finding
    "what-followed": (what_followed, every),
    "looked-up": (looked_up, pairs),
    "once": (once, every),
    # ── writing more than one token
    "copied": (lambda text: [*text[:-1], "."], listed),
    "backwards": (lambda text: [*text[-2::-1], "."], listed),
    "in-order": (lambda text: [*sorted(text[:-1], key=int), "."], listed),
    "each-once": (lambda text: [*sorted(set(text[:-1]), key=int), "."], listed),
    "counted-down": (
        lambda text: [*map(str, range(int(text[0]), -1, -1)), "."] if len(text) == 2 else None,
        listed,
    ),
    "added": (added, sums),
    "added-ones-first": (added_ones_first, sums),
}
