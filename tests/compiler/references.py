"""Reference implementations of the library's sources in plain Python."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from random import Random
from statistics import median_low
from typing import Any


@dataclass(frozen=True)
class Reference:
    """`prompts` draws a prompt; `written` returns the output after it."""

    prompts: Callable[[Random, Any], list[Any]]
    written: Callable[[list[Any], Any], list[Any]]
    each: bool = False  # whether every token of the prompt has an output


def numbers(o: Any) -> list[Any]:
    return list(range(o.vocab))


def draw(rng: Random, items: list[Any], low: int, high: int) -> list[Any]:
    """Draw items; sometimes of two kinds only, so that there are repeats."""
    if rng.random() < 0.3 and len(items) > 2:
        items = rng.sample(items, 2)
    return rng.choices(items, k=rng.randint(low, high))


def as_function(items: Any) -> Callable[[Any], list[Any]]:
    return items if callable(items) else lambda o: list(items)


def each(f: Callable[[list[Any]], Any], items: Any = numbers) -> Reference:
    """One output token after each token."""
    of = as_function(items)
    return Reference(lambda rng, o: draw(rng, of(o), o.length, o.length), lambda x, o: [f(x)], True)


def last(f: Callable[[Any], Any], items: Any = numbers) -> Reference:
    """A function of the last token."""
    return each(lambda x: f(x[-1]), items)


def listed(f: Callable[[list[Any]], list[Any]], items: Any = numbers, low: int = 0) -> Reference:
    """A list, a bar, and an output list."""
    of = as_function(items)
    return Reference(
        lambda rng, o: [*draw(rng, of(o), low, o.length), "|"], lambda x, o: [*f(x[:-1]), "."]
    )


def yes(condition: Any) -> str:
    return "yes" if condition else "no"


def part(x: Any) -> str:
    """Write a fraction as a decimal if it is finite."""
    x = Fraction(x)
    digits = f"{float(x):.10f}".rstrip("0").rstrip(".")
    return digits if Fraction(digits) == x else str(x)


def real(f: Callable[[Any], float], items: Any = lambda o: [str(x) for x in range(o.vocab)]) -> Any:
    def rounded(x: Any) -> str:
        return part(Fraction(math.floor(f(Fraction(x)) * 100 + Fraction(1, 2)), 100))

    return last(rounded, items)


# ── small helpers ──────────────────────────────────────────────────────────────────────────────
def balanced(x: list[str], opens: str, closes: str) -> bool:
    depth = 0
    for c in x:
        depth += (c == opens) - (c == closes)
        if depth < 0:
            return False
    return depth == 0


def dyck(x: list[str], pairs: dict[str, str]) -> str:
    stack = []
    for c in x:
        if c in pairs:
            stack.append(pairs[c])
        elif not stack or stack.pop() != c:
            return "F"
    return "P" if stack else "T"


def frequent(x: list[Any], but: Any = None) -> Any:
    """Return the most frequent item, the latest one if several."""
    count: Counter[Any] = Counter()
    ranked = []
    for i, c in enumerate(x):
        count[c] += 1
        if c != but:
            ranked.append((count[c], i, c))
    return max(ranked)[2] if ranked else "_"


def sort_by_frequency(x: list[Any]) -> list[Any]:
    often = Counter(x)
    return [*(often[c] for c in x), "|", *sorted(x, key=lambda c: -often[c])]


def by_frequency(x: list[Any]) -> list[Any]:
    often = Counter(x)
    first = [often[c] if c not in x[:i] else 0 for i, c in enumerate(x)]
    return [*first, "|", *sorted(dict.fromkeys(x), key=lambda c: -often[c])]


def double_histogram(x: list[Any]) -> list[int]:
    often = Counter(x)
    return [sum(n == often[c] for n in often.values()) for c in x]


def next_identical(x: list[Any]) -> list[Any]:
    return [x.index(c, i + 1) if c in x[i + 1 :] else "_" for i, c in enumerate(x)]


def induction(x: list[Any]) -> Any:
    followers = [b for a, b in pairwise(x) if a == x[-1]]
    return followers[-1] if followers else "_"


def key_value(x: list[Any]) -> Any:
    values = [b for a, b in pairwise(x) if a == x[-1] and a in list("abcdefgh")]
    return values[-1] if values and isinstance(values[-1], int) else "_"


def slide(x: list[Any]) -> list[Any]:
    return [next((c for c in x[i:] if c != "<"), 0) for i in range(len(x))]


def split_at(x: list[Any], left: bool) -> list[Any]:
    i = x.index("+")
    kept = x[:i] if left else x[i + 1 :]
    return [0] * (len(x) - len(kept)) + kept


def swapped(x: list[Any], start: int) -> list[Any]:
    x = list(x)
    for i in range(start, len(x) - 1, 2):
        x[i], x[i + 1] = x[i + 1], x[i]
    return x


def swap(x: list[Any], a: int, b: int) -> list[Any]:
    x = list(x)
    if max(a, b) < len(x):
        x[a], x[b] = x[b], x[a]
    return x


def oscillates(x: list[int]) -> bool:
    steps = [b - a for a, b in pairwise(x)]
    return all(steps) and all(a * b < 0 for a, b in pairwise(steps))


def prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, n))


def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def bounce(x: int) -> int:
    while not 2 <= x <= 7:
        x = 4 - x if x < 2 else 14 - x
    return x


def wrap(x: int) -> int:
    while x > 7:
        x -= 6
    while x < 2:
        x += 6
    return x


def ioi(x: list[str]) -> str:
    names = [c for c in x if c in ("Mary", "John", "Tom", "Ann")]
    often: Counter[str] = Counter()
    twice = None
    for c in names:
        often[c] += 1
        twice = c if often[c] > 1 else twice
    return next((c for c in reversed(names) if c != twice), "?")


# ── sums ───────────────────────────────────────────────────────────────────────────────────────
def digits(rng: Random, n: int) -> list[int]:
    return rng.choices([0, 9, rng.randint(0, 9), rng.randint(0, 9)], k=n)


def two_numbers(rng: Random, o: Any) -> list[Any]:
    n = rng.randint(1, o.length)
    return [*digits(rng, n), "+", *digits(rng, n), "="]


def hinted(x: list[Any]) -> list[Any]:
    return [y for pair in zip("abcdefghijklmnopqrst", x, strict=False) for y in pair]


def two_hinted(rng: Random, o: Any) -> list[Any]:
    n = rng.randint(1, o.length)
    return [*hinted(digits(rng, n)), "+", *hinted(digits(rng, n)), "="]


def added(x: list[Any], reverse: bool = False, hints: bool = False) -> list[Any]:
    i = x.index("+")
    a, b = ([c for c in part if isinstance(c, int)] for part in (x[:i], x[i + 1 :]))
    a, b = (d[::-1] if reverse else d for d in (a, b))
    total = sum(int("".join(map(str, d))) for d in (a, b))
    wide = len(a) if hints else len(a) + 1
    result = [int(c) for c in str(total % 10**wide).zfill(wide)]
    result = result[::-1] if reverse else result
    return [*(hinted(result) if hints else result), "."]


def count_up(x: list[Any]) -> list[Any]:
    return [*range(x[0], x[1] + 1), "."]


def two_ends(rng: Random, o: Any) -> list[Any]:
    a = rng.randrange(o.vocab)
    return [a, rng.randint(a, o.vocab - 1), "|"]


# ── machines ───────────────────────────────────────────────────────────────────────────────────
def counter_program(rng: Random, o: Any) -> list[Any]:
    n = rng.randint(1, o.size)
    kinds = ["a+", "b+", "a-", "b-", "go"]
    orders = rng.choices(kinds, [3, 2, 2, 2, 1], k=n)
    return [*(k if k[1] == "+" else f"{k}{rng.randint(0, n)}" for k in orders), "|"]


def counter_machine(x: list[Any], steps: int = 2000) -> list[Any]:
    program, counters, at = x[:-1], {"a": 0, "b": 0}, 0
    out: list[Any] = ["0"]
    for _ in range(steps):
        if at >= len(program):
            return [*out, "halt"]
        name, order, target = program[at][0], program[at][1], program[at][2:]
        if order == "+" or (order == "-" and counters[name]):
            counters[name] += 1 if order == "+" else -1
            at += 1
            out.append(str(at))
        else:
            at = int(target)
            out.append(f"{at}!")
    return out


def subleq_program(rng: Random, o: Any) -> list[Any]:
    n = 3 * rng.randint(1, min(o.limit // 3, 5))
    usual = [rng.randint(0, n - 1) for _ in range(n)]
    odd = [rng.choice([-1, rng.randint(-o.limit, o.limit), 0, 3]) for _ in range(n)]
    return [*(rng.choices([u, v], [4, 1])[0] for u, v in zip(usual, odd, strict=True)), "|"]


def subleq(x: list[Any], limit: int = 30, steps: int = 700) -> list[Any]:
    def wrapped(v: int) -> int:
        return (v + limit) % (2 * limit + 1) - limit

    memory = dict(enumerate(x[:-1]))
    at, out = 0, []
    for _ in range(steps):
        a, b = memory.get(at, 0), memory.get(at + 1, 0)
        memory[b] = wrapped(memory.get(b, 0) - memory.get(a, 0))
        out += [at, b, memory[b]]
        at = memory.get(at + 2, 0) if memory[b] <= 0 else wrapped(at + 3)
        if at < 0:
            return [*out, "halt"]
    return out


def automaton(x: list[Any], rule: int = 110, rows: int = 8) -> list[Any]:
    row, out = x[:-1], []
    for _ in range(rows):
        wide = [0, *row, 0]
        row = [
            rule >> (4 * a + 2 * b + c) & 1
            for a, b, c in zip(wide, wide[1:], wide[2:], strict=False)
        ]
        out += [*row, "|"]
    return [*out[:-1], "."]


# ── commands ───────────────────────────────────────────────────────────────────────────────────
def command(rng: Random, o: Any) -> list[Any]:
    def half() -> list[str]:
        how = rng.choice([[], [], ["opposite"], ["around"]])
        side = [*how, rng.choice(["left", "right"])]
        verb = rng.choice(["walk", "look", "run", "jump", "turn"])
        kept = side if verb == "turn" or rng.random() < 0.7 else []
        return [verb, *kept, *rng.choice([[], ["twice"], ["thrice"]])]

    return [*half(), *rng.choice([[], [rng.choice(["and", "after"]), *half()]]), "|"]


def scan(x: list[str]) -> list[str]:
    for link in ("and", "after"):
        if link in x:
            a, b = scan(x[: x.index(link)]), scan(x[x.index(link) + 1 :])
            return a + b if link == "and" else b + a
    if x[-1] in ("twice", "thrice"):
        return scan(x[:-1]) * (2 if x[-1] == "twice" else 3)
    verb, side = [] if x[0] == "turn" else [x[0].upper()], [x[-1].upper()]
    if len(x) == 1:
        return verb
    if "opposite" in x:
        return side * 2 + verb
    return (side + verb) * (4 if "around" in x else 1)


# ── the table ──────────────────────────────────────────────────────────────────────────────────
BITS = [0, 1]
LETTERS = list("abcd")
KINDS = [*"abc", 0, 1, 2]
WORDS = ["a", "i", "on", "to", "the", "one"]
THREE = [x + y + z for x in "abc" for y in "abc" for z in "abc"]
VERBS = ["glass", "lens", "level", "on"]
NAMES = ["Mary", "John", "Tom", "Ann", "and", "met", ".", "gave", "to"]
SIGNED = lambda o: list(range(1 - o.vocab, o.vocab))  # noqa: E731
FACES = {":)": "glad", ":D": "glad", ":(": "sad", ":'(": "sad", ":|": "neither", ":o": "neither"}
UPPER = {"glass": "GlAsS", "lens": "LeNs", "on": "On", "the": "ThE", "a": "A"}
VOWELS = {"glass": "0.25", "lens": "1/3", "banana": "1", "audio": "4", "the": "0.5", "sky": "0"}
GROUP = ["123", "132", "213", "231", "312", "321"]
TENTHS = lambda o: [part(Fraction(x, 10)) for x in range(-10, 11)]  # noqa: E731


def before(x: list[Any], otherwise: Any = None) -> Any:
    return x[-2] if len(x) > 1 else otherwise


REFERENCES: dict[str, Reference] = {
    "length": Reference(
        lambda r, o: [*draw(r, numbers(o), 0, o.length), "|"], lambda x, o: [len(x) - 1]
    ),
    "reverse": listed(lambda x: x[::-1]),
    "pair-balance": each(lambda x: part(Fraction(x.count("(") - x.count(")"), len(x))), "()x"),
    "shuffle-dyck-1": each(lambda x: yes(balanced(x, "(", ")")), "()"),
    "shuffle-dyck-2": each(lambda x: yes(balanced(x, "(", ")") and balanced(x, "{", "}")), "(){}"),
    "histogram": listed(lambda x: [x.count(c) for c in x]),
    "histogram-so-far": each(lambda x: x.count(x[-1])),
    "sort": listed(sorted),
    "sort-unique": listed(lambda x: sorted(set(x))),
    "sort-by-frequency": listed(sort_by_frequency),
    "by-frequency": listed(by_frequency),
    "share-of": each(lambda x: part(Fraction(x.count("x"), len(x))), "xyz"),
    "shift": each(lambda x: before(x, "_")),
    "detect-pattern": each(lambda x: yes("".join(x).endswith("abc")), "abcd"),
    "count-less-frequent": each(lambda x: sum(x.count(c) < 2 for c in x)),
    "count": each(lambda x: x.count("a"), "abcd"),
    "twice-minus-place": each(lambda x: 2 * x[-1] - len(x) + 1),
    "double-histogram": listed(double_histogram),
    "dyck-1": each(lambda x: dyck(x, {"(": ")"}), "()"),
    "dyck-2": each(lambda x: dyck(x, {"(": ")", "{": "}"}), "(){}"),
    "dyck-3": each(lambda x: dyck(x, {"(": ")", "{": "}", "[": "]"}), "(){}[]"),
    "has-seen": each(lambda x: yes(x[-1] in x[:-1])),
    "contains": each(lambda x: yes("a" in x), "abcd"),
    "larger-of-two": each(lambda x: max(x[-2:])),
    "smaller-of-two": each(lambda x: min(x[-2:])),
    "mean": each(lambda x: part(Fraction(sum(x), len(x)))),
    "value-at": each(lambda x: x[1] if len(x) > 1 else "_"),
    "first": each(lambda x: x[0]),
    "mark-first": each(lambda x: yes(x[-1] not in x[:-1])),
    "mark-last": listed(lambda x: [yes(c not in x[i + 1 :]) for i, c in enumerate(x)]),
    "since-first": each(lambda x: len(x) - 1 - x.index("a") if "a" in x else "_", "abcd"),
    "since-last": each(lambda x: x[::-1].index("a") if "a" in x else "_", "abcd"),
    "next-identical": listed(next_identical),
    "induction": each(induction),
    "key-value": each(key_value, lambda o: [*"abc", *range(o.vocab)]),
    "max": each(max),
    "min": each(min),
    "argmax": each(lambda x: x.index(max(x))),
    "argmin": each(lambda x: x.index(min(x))),
    "second-largest": each(lambda x: sorted(x)[-2] if len(x) > 1 else "_"),
    "cumulative-sum": each(sum),
    "first-place": each(lambda x: x.index(x[-1])),
    "last-place": each(
        lambda x: len(x) - 2 - x[-2::-1].index(x[-1]) if x[-1] in x[:-1] else "_"
    ),
    "index-select": each(lambda x: x[x[-1]] if x[-1] < len(x) else "_"),
    "first-true": each(lambda x: x.index(1) if 1 in x else "_", BITS),
    "first-index": each(lambda x: x.index("a") if "a" in x else "_", "abcd"),
    "most-frequent": each(frequent),
    "second-most-frequent": each(lambda x: frequent(x, frequent(x))),
    "binary-mode": each(lambda x: int(x.count(1) > x.count(0)), BITS),
    "count-up": Reference(two_ends, lambda x, o: count_up(x)),
    "copy": listed(lambda x: x),
    "copy-unique": Reference(
        lambda r, o: [*r.sample(numbers(o), r.randint(0, min(o.vocab, o.length))), "|"],
        lambda x, o: [*x[:-1], "."],
    ),
    "addition": Reference(two_numbers, lambda x, o: added(x)),
    "addition-reversed": Reference(two_numbers, lambda x, o: added(x, True)),
    "addition-hints": Reference(two_hinted, lambda x, o: added(x, False, True)),
    "addition-hints-reversed": Reference(two_hinted, lambda x, o: added(x, True, True)),
    "parity": each(lambda x: sum(x) % 2, BITS),
    "parity-steps": listed(lambda x: [sum(x[: i + 1]) % 2 for i in range(len(x))], BITS),
    "right-align": Reference(
        lambda r, o: [*(x := draw(r, numbers(o), 0, o.length)),
                      *["_"] * r.randint(0, o.length - len(x)), "|"],
        lambda x, o: [*[c for c in x if c == "_"], *[c for c in x[:-1] if c != "_"], "."],
    ),
    "split-left": Reference(
        lambda r, o: [*(x := draw(r, numbers(o), 0, o.length - 1)), "+",
                      *draw(r, numbers(o), 0, o.length - 1 - len(x)), "|"],
        lambda x, o: [*split_at(x[:-1], True), "."],
    ),
    "split-right": Reference(
        lambda r, o: [*(x := draw(r, numbers(o), 0, o.length - 1)), "+",
                      *draw(r, numbers(o), 0, o.length - 1 - len(x)), "|"],
        lambda x, o: [*split_at(x[:-1], False), "."],
    ),
    "slide": listed(slide, lambda o: [*range(o.vocab), "<", "<"]),
    "modular-addition": Reference(
        lambda r, o: r.choices(numbers(o), k=2), lambda x, o: [(x[0] + x[1]) % o.vocab]
    ),
    "group": each(
        lambda x: "".join(before(x, "123")[int(c) - 1] for c in x[-1]), GROUP
    ),
    "rotation-word": each(
        lambda x: yes(len(x) > 1 and len(x[-1]) == len(x[-2]) and x[-1] in x[-2] * 2), THREE
    ),
    "oscillates": each(lambda x: yes(oscillates(x))),
    "identity": last(lambda x: x),
    "palindrome-word": last(
        lambda x: yes(x in ("noon", "level", "stats", "wow", "a", "abba")),
        ["noon", "level", "stats", "wow", "a", "glass", "step", "on", "abba", "reverse"],
    ),
    "word-lengths-counted": listed(
        lambda x: [sum(len(w) == len(v) for w in x) for v in x], [*WORDS, "word", "lens"]
    ),
    "trend": each(
        lambda x: ["same", "up", "down"][(x[-1] > before(x, x[-1])) - (x[-1] < before(x, x[-1]))]
    ),
    "palindrome": listed(lambda x: [*x[::-1], yes(x == x[::-1])]),
    "rare-or-frequent": listed(
        lambda x: [["rare", "common", "frequent"][min(x.count(c), 3) - 1] for c in x]
    ),
    "drop-repeats": each(lambda x: "_" if before(x) == x[-1] else x[-1]),
    "spam": last(
        lambda x: "spam" if x in ("free", "winner", "offer", "click", "prize") else "fine",
        ["free", "winner", "offer", "click", "prize", "hello", "lens", "glass", "reader"],
    ),
    "unique": each(lambda x: "_" if x[-1] in x[:-1] else x[-1]),
    "sort-words": listed(lambda x: sorted(x, key=len), WORDS),
    "frequency-share": listed(
        lambda x: [part(Fraction(x.count(c), len(x))) for c in x],
        lambda o: list("abcdef"[: o.vocab]),
    ),
    "cascade": each(lambda x: x[-1] * len(x), "abcd"),
    "mirror-word": last(lambda x: x[::-1], [*VERBS, "a"]),
    "abbreviate": last(lambda x: x[0], ["glass", "lens", "gold", "on", "light"]),
    "in-range": last(lambda x: yes(3 <= x <= 6)),
    "anagram": last(
        lambda x: yes(Counter(x) == Counter("listen")),
        ["listen", "silent", "enlist", "tinsel", "inlets", "glisten", "lens", "banana", "sister"],
    ),
    "boundary": each(lambda x: yes(type(before(x, x[-1])) is not type(x[-1])), KINDS),
    "word-length-parity": last(
        lambda x: ["even", "odd"][len(x) % 2], ["glass", "lens", "a", "on", "the"]
    ),
    "vowel-ratio": last(VOWELS.get, VOWELS),
    "alternate-capitals": last(UPPER.get, UPPER),
    "sentiment": last(FACES.get, FACES),
    "mirror-word-except": last(
        lambda x: x if x in ("the", "and") else x[::-1], [*VERBS, "the", "and"]
    ),
    "kinds-alternate": each(
        lambda x: yes(all(type(a) is not type(b) for a, b in pairwise(x))), KINDS
    ),
    "sum-of-last-two": each(lambda x: sum(x[-2:])),
    "abs": last(abs, SIGNED),
    "fibonacci": last(fibonacci),
    "greater-counted": listed(lambda x: [sum(d > c for d in x) for c in x]),
    "rank": listed(lambda x: [sum(d < c for d in x) for c in x]),
    "double-first-half": listed(
        lambda x: [c * 2 if 2 * i < len(x) else c for i, c in enumerate(x)]
    ),
    "halve-second-half": listed(
        lambda x: [c if 2 * i < len(x) else part(Fraction(c, 2)) for i, c in enumerate(x)]
    ),
    "predecessor": last(lambda x: x - 1),
    "successor": last(lambda x: x + 1),
    "add-place": each(lambda x: x[-1] + len(x) - 1),
    "down-to-multiple": last(lambda x: x // 3 * 3),
    "up-to-multiple": last(lambda x: (x + 2) // 3 * 3),
    "is-fibonacci": last(lambda x: yes(x in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89))),
    "add-one-at-odd-places": each(lambda x: x[-1] + (len(x) - 1) % 2),
    "zero-every-third": each(lambda x: x[-1] if len(x) % 3 else 0),
    "zero-even-places": each(lambda x: 0 if len(x) % 2 else x[-1]),
    "mirror-first-half": listed(
        lambda x: [x[min(i, len(x) - 1 - i)] for i in range(len(x))]
    ),
    "factorial": last(math.factorial),
    "cube": last(lambda x: x**3),
    "square": last(lambda x: x**2),
    "double": last(lambda x: x + x),
    "triple": last(lambda x: x + x + x),
    "negate": last(lambda x: -x, SIGNED),
    "sign": last(lambda x: (x > 0) - (x < 0), SIGNED),
    "round": last(
        lambda x: math.floor(Fraction(x) + Fraction(1, 2)),
        lambda o: [part(Fraction(x, 4)) for x in range(4 * o.vocab)],
    ),
    "times-length": listed(lambda x: [c * len(x) for c in x]),
    "over-length": listed(lambda x: [part(Fraction(c, len(x))) for c in x]),
    "odd-places-reversed": listed(
        lambda x: [x[-1 - i] if i % 2 else c for i, c in enumerate(x)]
    ),
    "is-prime": last(lambda x: yes(prime(x))),
    "next-prime": last(lambda x: next(n for n in range(x + 1, 1000) if prime(n))),
    "prime-factors-counted": last(
        lambda x: sum(x % p == 0 for p in range(2, x + 1) if prime(p))
    ),
    "subtract": last(lambda x: x - 3),
    "median": each(median_low),
    "is-power-of-2": last(lambda x: yes(x in (1, 2, 4, 8, 16, 32, 64))),
    "threshold": last(lambda x: int(x > 4)),
    "mean-of-first-and-last": each(lambda x: part(Fraction(x[0] + x[-1], 2))),
    "is-increasing": each(lambda x: yes(all(a < b for a, b in pairwise(x)))),
    "is-decreasing": each(lambda x: yes(all(a > b for a, b in pairwise(x)))),
    "replace": last(lambda x: "d" if x == "a" else x, LETTERS),
    "zero-below": last(lambda x: x if x >= 4 else 0),
    "zero-if-less": each(lambda x: 0 if x[-1] < before(x, 0) else x[-1]),
    "swap-odd-pairs": listed(lambda x: swapped(x, 1)),
    "swap-pairs": listed(lambda x: swapped(x, 0)),
    "swap-places": listed(lambda x: swap(x, 1, 3)),
    "unique-or-zero": each(lambda x: 0 if x[-1] in x[:-1] else x[-1]),
    "over-max": listed(lambda x: [part(Fraction(c, max(*x, 1))) for c in x]),
    "sum-with-next": listed(lambda x: [a + b for a, b in pairwise([*x, 0])]),
    "difference-with-next": listed(lambda x: [a - b for a, b in pairwise([*x, 0])]),
    "product-with-next": listed(lambda x: [a * b for a, b in pairwise([*x, 1])]),
    "is-square": last(lambda x: yes(math.isqrt(x) ** 2 == x)),
    "bounce": last(bounce),
    "wrap": last(wrap),
    "clip": last(lambda x: sorted([2, x, 7])[1]),
    "keep-one-place": each(lambda x: x[1] if len(x) == 2 else 0),
    "any-two-equal": each(lambda x: yes(len(set(x)) < len(x))),
    "last-two-equal": each(lambda x: yes(before(x) == x[-1])),
    "zeros-between": each(lambda x: x[len(x) // 2] if len(x) % 2 else 0),
    "keep-last": listed(lambda x: [0] * (len(x) - 1) + x[-1:]),
    "reverse-if-sorted": listed(lambda x: x[::-1] if x == sorted(x) else x),
    "multiple-of-first": each(lambda x: yes(any(x[0] * n == x[-1] for n in range(100)))),
    "polynomial": each(
        lambda x: sum(c * x[0] ** n for n, c in enumerate(x[1:]))
    ),
    "swap-halves": listed(lambda x: x[len(x) // 2 :] + x[: len(x) // 2]),
    "swap-first-and-last": listed(
        lambda x: [x[-1], *x[1:-1], x[0]] if len(x) > 1 else x
    ),
    "divisible": last(lambda x: yes(x % 3 == 0)),
    "all-equal": each(lambda x: yes(len(set(x)) == 1)),
    "parities-alternate": each(lambda x: yes(all((a + b) % 2 for a, b in pairwise(x)))),
    "over-ratio": listed(
        lambda x: [part(Fraction(c * x[1], x[0])) for c in x],
        lambda o: list(range(1, o.vocab + 1)), 2,
    ),
    "all-multiples": each(lambda x: yes(all(c % 3 == 0 for c in x))),
    "ioi": each(ioi, NAMES),
    "sqrt": real(math.sqrt),
    "cube-root": real(math.cbrt),
    "cosh": real(math.cosh),
    "sinh": real(math.sinh),
    "tanh": real(math.tanh),
    "cos": real(math.cos),
    "sin": real(math.sin),
    "tan": real(math.tan),
    "arctan": real(math.atan),
    "exp": real(math.exp),
    "log10": real(math.log10, lambda o: [str(x) for x in range(1, o.vocab + 1)]),
    "arcsin": real(math.asin, TENTHS),
    "arccos": real(math.acos, TENTHS),
    "scan": Reference(command, lambda x, o: [*scan(x[:-1]), "."]),
    "counter-machine": Reference(counter_program, lambda x, o: counter_machine(x)),
    "subleq": Reference(subleq_program, lambda x, o: subleq(x, o.limit)),
    "rule-110": Reference(
        lambda r, o: [*draw(r, BITS, 1, o.length), "|"], lambda x, o: automaton(x, o.rule, o.rows)
    ),
}  # fmt: skip
