"""The library: each source against plain Python, and the canon against the library."""

import re
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from compiler.references import REFERENCES
from glassformer import GlassformerError
from glassformer.compiler import emitted, library, read, run
from glassformer.compiler.ir import Map

NAMES = list(library.source_paths())
MEMORY = 4_000_000  # numbers in one of the interpreter's arrays

# What RASP-like compilers are measured by, as the `canon:` lines of the sources spell it.
CANON = {
    "Tracr": "length, reverse, pair_balance, shuffle_dyck, shuffle_dyck2, hist, sort_unique, sort, "
    "sort_freq, frac_prevs, shift_by, detect_pattern, count_less_freq, count, nary_sequencemap",
    "RASP": "hist, hist without BOS, reverse, sort, hist2, sort by most frequent, dyck1 PTF, "
    "dyck2 PTF, dyck3 PTF, selector_width, has_focus, count, contains, max, min, average, "
    "load_from_location, shift, mark_first_instance, mark_last_instance, select_from_first, "
    "select_from_last, select_next_identical, long_addition, rover",
    "Transformer Programs": "reverse, hist, double_hist, sort, most_freq, dyck1, dyck2, induction",
    "RASP-L": "shift_right, cumsum, where, mask, maximum, minimum, argmax, argmin, num_prev, "
    "has_seen, firsts, lasts, index_select, first_true, mode, binary_mode, induct, induct_kqv, "
    "induct_prev, count, copy of unique tokens, copy with repeats, sort, addition forward, "
    "addition reversed, addition forward with index hints, addition reversed with index hints, "
    "parity, parity with a scratchpad",
    "Transformer Puzzles": "first value, value at index, shift, right-align, split left, "
    "split right, minimum, first index, slide, adder",
    "ALTA": "parity, parity relative, parity sum mod 2, addition, sort_unique, SUBLEQ, SCAN",
    "Compact Proofs": "max-of-K, argmax-of-K, second max, sorted list, induction heads, "
    "modular addition p = 113, modular addition p = 59, group operations",
    "InterpBench": ", ".join(str(n) for n in range(1, 132) if n not in (16, 27)) + ", ioi",
}


def canon(line):
    """ "Tracr hist; InterpBench 7, 47" as pairs."""
    for whole in filter(str.strip, line.split(";")):
        where = max((c for c in CANON if whole.strip().startswith(f"{c} ")), key=len, default="")
        assert where, line
        for item in whole.strip().removeprefix(where).split(", "):
            yield where, item.strip()


def options_of(name, **wanted):
    """The options of a source: what is wanted of them, as near as it goes, and the defaults."""
    text = library.source_paths()[name].read_text("utf-8")
    found = {o: [int(n) for n in args.split(", ")]
             for o, args in re.findall(r"^(\w+) = option\((\d[\d, ]*)\)", text, re.M)}  # fmt: skip
    return {o: min(max(wanted.get(o, d), least), most) for o, (d, least, most) in found.items()}


def numbered(program, things):
    index = {str(t): i for i, t in enumerate(program.tokens)}
    return [index[str(t)] for t in things]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.some(3)
def test_examples(name):
    program = library.load(name)
    assert len(program.examples) >= 2
    for prompt, answer in program.examples.items():
        written = run(program, numbered(program, prompt.split()))
        assert " ".join(str(program.tokens[i]) for i in written) == answer, prompt


@pytest.mark.parametrize("size", ["small", "default"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.some(9)
def test_source_is_its_reference(name, size):
    """At every position of random prompts with their answers; behind them stands anything, which
    must not matter and must not be ambiguous either.
    """
    options = options_of(name, vocab=4, length=4) if size == "small" and "machine" not in name \
        and name != "subleq" else options_of(name)  # fmt: skip
    program, reference, o = (
        library.load(name, options),
        REFERENCES[name],
        SimpleNamespace(**options),
    )
    block, rng = program.length, Random(name)
    many = max(5, min(300, MEMORY // block**2))
    texts, wanted = np.full((many, block), -1), np.full((many, block), -1)
    for i in range(many):
        prompt = reference.prompts(rng, o)
        if reference.each:
            answers = [reference.written(prompt[: t + 1], o)[0] for t in range(len(prompt))]
            text, start = prompt, 0
        else:
            answers = reference.written(prompt, o)
            text, start = [*prompt, *answers[:-1]], len(prompt) - 1
        text = numbered(program, text)[:block]
        answers = numbered(program, answers)[: block - start]
        texts[i] = text + rng.choices(range(len(program.tokens)), k=block - len(text))
        wanted[i, start : start + len(answers)] = answers
    asked, found = wanted >= 0, emitted(program, texts)
    wrong = np.argwhere(asked & (found != wanted))
    for i, t in wrong[:1]:
        text, right, got = (
            [program.tokens[j] for j in x]
            for x in (texts[i, : t + 1], wanted[i, t : t + 1], found[i, t : t + 1])
        )
        pytest.fail(f"{name} {options}: after {text} expected {right}, got {got}")
    assert asked.sum() >= many


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.some(6)
def test_any_text_has_a_meaning(name):
    options = options_of(name, vocab=4, length=4)
    program = library.load(name, options)
    rng = np.random.default_rng(0)
    B = max(2, min(500, MEMORY // program.length**2))
    texts = rng.integers(len(program.tokens), size=(B, program.length))
    assert emitted(program, texts).shape == texts.shape


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.some(11)
def test_options_go_as_far_as_they_say(name):
    for much in (0, 10**6):
        assert library.load(name, options_of(name, vocab=much, length=much)).tokens


def test_each_source_has_a_reference_and_a_sentence():
    assert len(NAMES) > 100
    assert sorted(REFERENCES) == NAMES
    for name in NAMES:
        about = library.describe(name)
        assert about.endswith(".") and "canon" not in about and 10 < len(about) < 300, name


def test_canon_is_in_the_library_or_refused():
    lines = {n: re.findall(r"^canon: (.*)$", p.read_text("utf-8"), re.M)
             for n, p in library.source_paths().items()}  # fmt: skip
    found = [pair for said in lines.values() for line in said for pair in canon(line)]
    refused = [
        line.split(": ", 1) for line in (library.LIBRARY_DIR / "REFUSALS").read_text().splitlines()
    ]
    assert all(reason for _, reason in refused)
    found += [pair for name, _ in refused for pair in canon(name)]
    whole = {(where, item) for where, items in CANON.items() for item in items.split(", ")}
    assert set(found) == whole


@pytest.mark.parametrize(
    ("name", "options", "prompt", "steps"),
    [  # 1, 2, 4, 8 … in turn in a and b; from 100 down to 0
        ("counter-machine", {"length": 900}, "a+ a-5 b+ b+ go1 b-1 a+ go5 |", 890),
        ("subleq", {"length": 650, "limit": 100}, "7 8 -1 6 6 0 0 1 100 |", 3 * 199),
        ("rule-110", {"length": 40, "rows": 20}, "0 " * 39 + "1 |", 41 * 20 - 1),
    ],
)
def test_machines_run_for_hundreds_of_steps(name, options, prompt, steps):
    options = options_of(name, **options)
    program, o = library.load(name, options), SimpleNamespace(**options)
    things = [int(t) if t.lstrip("-").isdecimal() else t for t in prompt.split()]
    text = numbered(program, [*things, *REFERENCES[name].written(things, o)])
    written = emitted(program, np.array([text[: program.length]]))[0, len(things) - 1 :]
    assert written[:steps].tolist() == text[len(things) :][:steps] and len(written) >= steps


def test_load_refuses_what_is_not_there():
    with pytest.raises(GlassformerError, match="did you mean sort"):
        library.load("sorts")
    with pytest.raises(GlassformerError, match="vocab must be from 2 to 100, got 1"):
        library.load("sort", {"vocab": 1})
    assert len(library.load("sort", {"vocab": "20", "length": "20"}).tokens) == 22


# ── what the library asks of the language ──────────────────────────────────────────────────────
def test_block_is_how_long_a_text_may_be():
    body = "length = option(3)\ntokens = [0, 1]\n{}emit = token if position % 2 else 1"
    assert read(body.format("")).length == 3
    assert read(body.format("block = 2 * length\n")).length == 6
    assert read(body.format("block = 2 * length\n"), options={"length": 5}).length == 10
    with pytest.raises(GlassformerError, match=r"block must be a whole number from 1 to 1,000"):
        read(body.format("block = 400 * length\n"))
    with pytest.raises(GlassformerError, match="`block` must be assigned before `position`"):
        read("length = 3\ntokens = [0]\na = position + 1\nblock = 6\nemit = 0")


def test_nth_of_a_share_of_all():
    body = "tokens = [*range(9)]\nlength = 9\nemit = nth(token, {}, default=0)"
    text, found = [8, 1, 6, 3, 5, 7, 4, 2], {}
    for n in ("count() / 2", "count() / 4", "(count() + 4) / 4", "count()"):
        found[n] = run(read(body.format(n)), text)
    assert found == {"count() / 2": [4], "count() / 4": [2], "(count() + 4) / 4": [3],
                     "count()": [8]}  # fmt: skip
    for n in ("count() / 0", "count() / token", "count() / 1.5"):
        with pytest.raises(GlassformerError, match="`nth` can be divided by a whole number"):
            read(body.format(n))


def test_a_value_is_not_taken_apart_and_kept_whole_as_well():
    """`x == nothing` and `x` in one table would be two things that know nothing of each other."""
    program = read(
        "tokens = [*range(6)]\nlength = 4\n"
        "x = only(token, position == here.position - 1)\n"
        "emit = 0 if x == nothing or position == 3 else 5 - x"
    )
    assert isinstance(program.emit, Map) and sorted(program.emit.table.shape) == [2, 7]
    assert [run(program, t) for t in ([4], [4, 1], [1, 1, 1, 1])] == [[0], [1], [0]]
