"""What is right, of levels that have no task in the registry: a text, and what comes after it.

Each is a few lines of Python over the texts of the tokens: what a level asks, and no way to build
it. A function that gives None says that a text is no question. Those that are asked about texts of
a form of their own (two numbers, a list and a bar) say which those are.
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


TRUTHS: dict[str, tuple[Truth, Domain]] = {}


def truth(domain: Domain = every) -> Callable[[Truth], Truth]:
    def add(f: Truth) -> Truth:
        TRUTHS[f.__name__.replace("_", "-")] = (f, domain)
        return f

    return add


def yes(holds: bool) -> list[str]:
    return ["yes" if holds else "no"]


# ── one token, and what it is ──────────────────────────────────────────────────────────────────
@truth()
def traffic_light(text: Text) -> list[str]:
    return [{"red": "green", "green": "amber", "amber": "red"}[text[-1]]]


@truth()
def next_of_ten(text: Text) -> list[str]:
    return [str((int(text[-1]) + 1) % 10)]


@truth()
def last_squared(text: Text) -> list[str]:
    return [str(int(text[-1]) ** 2 % 10)]


@truth()
def parity_of_place(text: Text) -> list[str]:
    return ["odd" if len(text) % 2 else "even"]


# ── looking back ───────────────────────────────────────────────────────────────────────────────
@truth()
def one_back(text: Text) -> list[str] | None:
    return [text[-2]] if len(text) > 1 else None


@truth()
def two_back(text: Text) -> list[str] | None:
    return [text[-3]] if len(text) > 2 else None


@truth()
def first(text: Text) -> list[str]:
    return [text[0]]


@truth()
def before_or_dash(text: Text) -> list[str]:
    return [text[-2] if len(text) > 1 else "-"]


@truth()
def changed(text: Text) -> list[str]:
    return yes(len(text) > 1 and text[-1] != text[-2])


@truth(of(*"01234"))
def sum_of_two(text: Text) -> list[str] | None:
    return [str(int(text[-1]) + int(text[-2]))] if len(text) > 1 else None


@truth()
def last_letter(text: Text) -> list[str]:
    letters = [t for t in text if t != "_"]
    return [letters[-1] if letters else "_"]


# ── the whole text ─────────────────────────────────────────────────────────────────────────────
@truth()
def largest(text: Text) -> list[str]:
    return [max(text, key=int)]


@truth()
def second_largest(text: Text) -> list[str] | None:
    return [sorted(text, key=int)[-2]] if len(text) > 1 else None


@truth()
def median(text: Text) -> list[str]:
    return [sorted(text, key=int)[(len(text) - 1) // 2]]


@truth()
def seen(text: Text) -> list[str]:
    return yes("x" in text)


@truth()
def again(text: Text) -> list[str]:
    return yes(text[-1] in text[:-1])


@truth()
def all_equal(text: Text) -> list[str]:
    return yes(len(set(text)) == 1)


@truth(of(*"0123"))
def rising(text: Text) -> list[str]:
    return yes(list(text) == sorted(text))


@truth(of("a", "b"))
def palindrome(text: Text) -> list[str]:
    return yes(text == text[::-1])


# ── counting ───────────────────────────────────────────────────────────────────────────────────
@truth(of("a", "b"))
def how_many_a(text: Text) -> list[str]:
    return [str(text.count("a"))]


@truth()
def parity(text: Text) -> list[str]:
    return [str(text.count("1") % 2)]


@truth()
def majority(text: Text) -> list[str] | None:
    ones, zeros = text.count("1"), text.count("0")
    return None if ones == zeros else ["1" if ones > zeros else "0"]


@truth()
def more_ones(text: Text) -> list[str]:
    return ["1" if text.count("1") > text.count("0") else "0"]


@truth()
def how_often_this(text: Text) -> list[str]:
    return [str(text.count(text[-1]))]


@truth()
def different(text: Text) -> list[str]:
    return [str(len(set(text)))]


@truth()
def most_frequent(text: Text) -> list[str]:
    """Of equals the one that stood there last."""
    found = max(range(len(text)), key=lambda i: (text.count(text[i]), i))
    return [text[found]]


@truth(of(*"012"))
def distance(text: Text) -> list[str]:
    """How far back the same token stood; 0 if never."""
    found = [i for i in range(1, len(text)) if text[-1 - i] == text[-1]]
    return [str(found[0] if found else 0)]


@truth()
def sum_mod_5(text: Text) -> list[str]:
    return [str(sum(map(int, text)) % 5)]


# ── brackets ───────────────────────────────────────────────────────────────────────────────────
@truth(of(*"()"))
def balanced(text: Text) -> list[str]:
    depth = [text[: i + 1].count("(") - text[: i + 1].count(")") for i in range(len(text))]
    return ["F" if min(depth) < 0 else "P" if depth[-1] else "T"]


@truth(of(*"()"))
def depth(text: Text) -> list[str] | None:
    """How deep one is, of texts in which nothing is closed that was not open."""
    so_far = [text[: i + 1].count("(") - text[: i + 1].count(")") for i in range(len(text))]
    return None if min(so_far) < 0 else [str(so_far[-1])]


@truth(of(*"()[]"))
def two_kinds(text: Text) -> list[str]:
    """Brackets of two kinds, each closed by its own."""
    left: list[str] = []
    for t in text:
        if t in "([":
            left.append({"(": ")", "[": "]"}[t])
        elif not left or left.pop() != t:
            return ["F"]
    return ["P" if left else "T"]


# ── finding ────────────────────────────────────────────────────────────────────────────────────
@truth()
def what_followed(text: Text) -> list[str]:
    """What came after this token, the last time; the token itself if there was no such time."""
    found = [i for i in range(len(text) - 1) if text[i] == text[-1]]
    return [text[found[-1] + 1] if found else text[-1]]


@truth(pairs)
def looked_up(text: Text) -> list[str]:
    keys = text[:-1:2]
    at = max(i for i, key in enumerate(keys) if key == text[-1])
    return [text[2 * at + 1]]


@truth()
def once(text: Text) -> list[str] | None:
    """The token that stands there once, where there is one such token only."""
    alone = [t for t in text if text.count(t) == 1]
    return alone if len(alone) == 1 else None


# ── writing more than one token ────────────────────────────────────────────────────────────────
@truth(listed)
def copied(text: Text) -> list[str]:
    return [*text[:-1], "."]


@truth(listed)
def backwards(text: Text) -> list[str]:
    return [*text[-2::-1], "."]


@truth(listed)
def in_order(text: Text) -> list[str]:
    return [*sorted(text[:-1], key=int), "."]


@truth(listed)
def each_once(text: Text) -> list[str]:
    return [*sorted(set(text[:-1]), key=int), "."]


@truth(listed)
def counted_down(text: Text) -> list[str] | None:
    return [*map(str, range(int(text[0]), -1, -1)), "."] if len(text) == 2 else None


@truth(sums)
def added(text: Text) -> list[str]:
    """Ones last, and one digit more than the numbers have."""
    n = text.index("+")
    total = int("".join(text[:n])) + int("".join(text[n + 1 : -1]))
    return [*str(total).zfill(n + 1), "."]


@truth(sums)
def added_ones_first(text: Text) -> list[str]:
    n = text.index("+")
    total = int("".join(text[:n][::-1])) + int("".join(text[n + 1 : -1][::-1]))
    return [*str(total).zfill(n + 1)[::-1], "."]
