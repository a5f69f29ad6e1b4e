"""Reference answers of the levels without a task in the registry.

REFERENCE_ANSWERS maps a name to a function from a question to its answer tokens and to the domain
of questions. The function returns None if a question is outside the domain.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

Text = tuple[str, ...]
AnswerFunction = Callable[[Text], Sequence[str] | None]
Domain = Callable[[Sequence[str], int], Iterable[Text]]


def all_texts(tokens: Sequence[str], length: int) -> Iterator[Text]:
    """Yield all token sequences up to a length, shortest first."""
    for n in range(1, length + 1):
        yield from itertools.product(tokens, repeat=n)


def texts_of(*these: str) -> Domain:
    """Return the domain of all sequences of the given tokens."""
    return lambda tokens, length: all_texts([t for t in tokens if t in these], length)


def number_lists(tokens: Sequence[str], length: int) -> Iterator[Text]:
    """Yield all lists of numbers followed by a bar, with room for an answer of equal length."""
    numbers = [t for t in tokens if t.isdecimal()]
    for text in all_texts(numbers, (length - 1) // 2):
        yield (*text, "|")


def digit_sums(tokens: Sequence[str], length: int) -> Iterator[Text]:
    """Yield sums of two numbers of equally many digits: 1 9 + 0 3 =.

    The length leaves room for the answer and a point.
    """
    digits = [t for t in tokens if t.isdecimal()]
    for n in range(1, (length - 3) // 3 + 1):
        for both in itertools.product(digits, repeat=2 * n):
            yield (*both[:n], "+", *both[n:], "=")


def key_value_lists(tokens: Sequence[str], length: int) -> Iterator[Text]:
    """Yield sequences of keys and values (a 1 b 0), followed by a key that has a value."""
    keys = [t for t in tokens if not t.isdecimal()]
    values = [t for t in tokens if t.isdecimal()]
    for n in range(1, (length - 1) // 2 + 1):
        for text in itertools.product(*[keys, values] * n, keys):
            if text[-1] in text[:-1]:
                yield text


def yes_or_no(holds: bool) -> list[str]:
    return ["yes" if holds else "no"]


# ── answers that take more than a line ─────────────────────────────────────────────────────────
def last_letter(text: Text) -> list[str]:
    """Return the last token that is not a blank."""
    letters = [t for t in text if t != "_"]
    return [letters[-1] if letters else "_"]


def majority(text: Text) -> list[str] | None:
    ones, zeros = text.count("1"), text.count("0")
    return None if ones == zeros else ["1" if ones > zeros else "0"]


def most_frequent(text: Text) -> list[str]:
    """Return the most frequent token; among equally frequent tokens, the last one."""
    return [text[max(range(len(text)), key=lambda i: (text.count(text[i]), i))]]


def distance(text: Text) -> list[str]:
    """Return the distance to the previous occurrence of the last token; 0 if there is none."""
    back = [i for i in range(1, len(text)) if text[-1 - i] == text[-1]]
    return [str(back[0] if back else 0)]


def open_brackets(text: Text) -> list[int]:
    """Return the number of opened minus closed brackets after each token."""
    return list(itertools.accumulate(1 if t == "(" else -1 for t in text))


def balanced(text: Text) -> list[str]:
    """Return T if the brackets are balanced, P if some are still open, F otherwise."""
    return ["F" if min(open_brackets(text)) < 0 else "P" if open_brackets(text)[-1] else "T"]


def depth(text: Text) -> list[str] | None:
    """Return the depth of the brackets, or None if a bracket is closed that was not open."""
    return None if min(open_brackets(text)) < 0 else [str(open_brackets(text)[-1])]


def balanced_two_kinds(text: Text) -> list[str]:
    """Return the answer of `balanced` for two kinds of brackets, each closed by its kind."""
    left: list[str] = []
    for t in text:
        if t in "([":
            left.append({"(": ")", "[": "]"}[t])
        elif not left or left.pop() != t:
            return ["F"]
    return ["P" if left else "T"]


def token_after_previous(text: Text) -> list[str]:
    """Return the token after the previous occurrence of the last token.

    Return the last token itself if it has no previous occurrence.
    """
    before = [i for i in range(len(text) - 1) if text[i] == text[-1]]
    return [text[before[-1] + 1] if before else text[-1]]


def look_up(text: Text) -> list[str]:
    """Return the value of the last key; for a repeated key, the later value."""
    return [dict(zip(text[:-1:2], text[1::2], strict=True))[text[-1]]]


def unique_token(text: Text) -> list[str] | None:
    """Return the only token that occurs once, or None unless there is exactly one."""
    single = [t for t in text if text.count(t) == 1]
    return single if len(single) == 1 else None


def add_numbers(text: Text) -> list[str]:
    """Return the sum, ones last, with one digit more than the numbers."""
    n = text.index("+")
    total = int("".join(text[:n])) + int("".join(text[n + 1 : -1]))
    return [*str(total).zfill(n + 1), "."]


def add_ones_first(text: Text) -> list[str]:
    n = text.index("+")
    *ones_last, point = add_numbers((*text[:n][::-1], "+", *text[n + 1 : -1][::-1], "="))
    return [*ones_last[::-1], point]


AB_TEXTS, ROUND_BRACKETS = texts_of("a", "b"), texts_of(*"()")
NEXT_LIGHT = {"red": "green", "green": "amber", "amber": "red"}
REFERENCE_ANSWERS: dict[str, tuple[AnswerFunction, Domain]] = {
    # ── one token
    "traffic-light": (lambda text: [NEXT_LIGHT[text[-1]]], all_texts),
    "next-of-ten": (lambda text: [str((int(text[-1]) + 1) % 10)], all_texts),
    "last-squared": (lambda text: [str(int(text[-1]) ** 2 % 10)], all_texts),
    "parity-of-place": (lambda text: ["odd" if len(text) % 2 else "even"], all_texts),
    # ── looking back
    "one-back": (lambda text: [text[-2]] if len(text) > 1 else None, all_texts),
    "two-back": (lambda text: [text[-3]] if len(text) > 2 else None, all_texts),
    "first": (lambda text: [text[0]], all_texts),
    "before-or-dash": (lambda text: [text[-2] if len(text) > 1 else "-"], all_texts),
    "changed": (lambda text: yes_or_no(len(text) > 1 and text[-1] != text[-2]), all_texts),
    "sum-of-two": (
        lambda text: [str(int(text[-1]) + int(text[-2]))] if len(text) > 1 else None,
        texts_of(*"01234"),
    ),
    "last-letter": (last_letter, all_texts),
    # ── the whole text
    "largest": (lambda text: [max(text, key=int)], all_texts),
    "second-largest": (
        lambda text: [sorted(text, key=int)[-2]] if len(text) > 1 else None,
        all_texts,
    ),
    "median": (lambda text: [sorted(text, key=int)[(len(text) - 1) // 2]], all_texts),
    "seen": (lambda text: yes_or_no("x" in text), all_texts),
    "again": (lambda text: yes_or_no(text[-1] in text[:-1]), all_texts),
    "all-equal": (lambda text: yes_or_no(len(set(text)) == 1), all_texts),
    "rising": (lambda text: yes_or_no(list(text) == sorted(text)), texts_of(*"0123")),
    "palindrome": (lambda text: yes_or_no(text == text[::-1]), AB_TEXTS),
    # ── counting
    "how-many-a": (lambda text: [str(text.count("a"))], AB_TEXTS),
    "parity": (lambda text: [str(text.count("1") % 2)], all_texts),
    "majority": (majority, all_texts),
    "more-ones": (lambda text: ["1" if text.count("1") > text.count("0") else "0"], all_texts),
    "how-often-this": (lambda text: [str(text.count(text[-1]))], all_texts),
    "different": (lambda text: [str(len(set(text)))], all_texts),
    "most-frequent": (most_frequent, all_texts),
    "distance": (distance, texts_of(*"012")),
    "sum-mod-5": (lambda text: [str(sum(map(int, text)) % 5)], all_texts),
    # ── brackets
    "balanced": (balanced, ROUND_BRACKETS),
    "depth": (depth, ROUND_BRACKETS),
    "two-kinds": (balanced_two_kinds, texts_of(*"()[]")),
    # ── finding
    "what-followed": (token_after_previous, all_texts),
    "looked-up": (look_up, key_value_lists),
    "once": (unique_token, all_texts),
    # ── writing more than one token
    "copied": (lambda text: [*text[:-1], "."], number_lists),
    "backwards": (lambda text: [*text[-2::-1], "."], number_lists),
    "in-order": (lambda text: [*sorted(text[:-1], key=int), "."], number_lists),
    "each-once": (lambda text: [*sorted(set(text[:-1]), key=int), "."], number_lists),
    "counted-down": (
        lambda text: [*map(str, range(int(text[0]), -1, -1)), "."] if len(text) == 2 else None,
        number_lists,
    ),
    "added": (add_numbers, digit_sums),
    "added-ones-first": (add_ones_first, digit_sums),
}
