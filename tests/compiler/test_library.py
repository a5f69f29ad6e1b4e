"""The library: each source against plain Python, and the canon against the library."""

import re
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from compiler.references import REFERENCES
from glassformer.compiler import emitted, library, read, run
from glassformer.compiler.ir import Map
from helpers import raises

NAMES = list(library.source_paths())
MAX_ARRAY = 4_000_000  # numbers in one of the interpreter's arrays

# Programs in the literature on RASP-like compilers, as in the `canon:` lines of the sources.
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
    """Split "Tracr hist; InterpBench 7, 47" into pairs."""
    for whole in filter(str.strip, line.split(";")):
        where = max((c for c in CANON if whole.strip().startswith(f"{c} ")), key=len, default="")
        assert where, line
        for item in whole.strip().removeprefix(where).split(", "):
            yield where, item.strip()


def options_of(name, **wanted):
    """Return the wanted options of a source, moved into their ranges, and the defaults."""
    text = library.source_paths()[name].read_text("utf-8")
    options = {o: [int(n) for n in args.split(", ")]
             for o, args in re.findall(r"^(\w+) = option\((\d[\d, ]*)\)", text, re.M)}  # fmt: skip
    return {o: min(max(wanted.get(o, d), low), high) for o, (d, low, high) in options.items()}


def numbered(program, tokens):
    index = {str(t): i for i, t in enumerate(program.tokens)}
    return [index[str(t)] for t in tokens]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.some(3)
def test_examples(name):
    program = library.load(name)
    assert len(program.examples) >= 2
    for prompt, answer in program.examples.items():
        output = run(program, numbered(program, prompt.split()))
        assert " ".join(str(program.tokens[i]) for i in output) == answer, prompt


@pytest.mark.parametrize("size", ["small", "default"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.some(9)
def test_source_agrees_with_its_reference(name, size):
    """At every position of random prompts and answers. Random tokens after them must not matter."""
    options = options_of(name, vocab=4, length=4) if size == "small" and "machine" not in name \
        and name != "subleq" else options_of(name)  # fmt: skip
    program, reference, o = (
        library.load(name, options),
        REFERENCES[name],
        SimpleNamespace(**options),
    )
    block, rng = program.length, Random(name)
    many = max(5, min(300, MAX_ARRAY // block**2))
    texts, expected = np.full((many, block), -1), np.full((many, block), -1)
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
        expected[i, start : start + len(answers)] = answers
    mask, output = expected >= 0, emitted(program, texts)
    wrong = np.argwhere(mask & (output != expected))
    for i, t in wrong[:1]:
        text, right, got = (
            [program.tokens[j] for j in x]
            for x in (texts[i, : t + 1], expected[i, t : t + 1], output[i, t : t + 1])
        )
        pytest.fail(f"{name} {options}: after {text} expected {right}, got {got}")
    assert mask.sum() >= many


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.some(6)
def test_any_text_can_be_interpreted(name):
    options = options_of(name, vocab=4, length=4)
    program = library.load(name, options)
    rng = np.random.default_rng(0)
    B = max(2, min(500, MAX_ARRAY // program.length**2))
    texts = rng.integers(len(program.tokens), size=(B, program.length))
    assert emitted(program, texts).shape == texts.shape


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.some(11)
def test_the_ends_of_the_option_ranges(name):
    for n in (0, 10**6):
        assert library.load(name, options_of(name, vocab=n, length=n)).tokens


def test_each_source_has_a_reference_and_a_sentence():
    assert len(NAMES) > 100
    assert sorted(REFERENCES) == NAMES
    for name in NAMES:
        about = library.describe(name)
        assert about.endswith(".") and "canon" not in about and 10 < len(about) < 300, name


def test_canon_is_in_the_library_or_refused():
    lines = {n: re.findall(r"^canon: (.*)$", p.read_text("utf-8"), re.M)
             for n, p in library.source_paths().items()}  # fmt: skip
    pairs = [pair for texts in lines.values() for text in texts for pair in canon(text)]
    refused = [
        line.split(": ", 1) for line in (library.LIBRARY_DIR / "REFUSALS").read_text().splitlines()
    ]
    assert all(reason for _, reason in refused)
    pairs += [pair for name, _ in refused for pair in canon(name)]
    expected = {(where, item) for where, items in CANON.items() for item in items.split(", ")}
    assert set(pairs) == expected


@pytest.mark.parametrize(
    ("name", "options", "prompt", "steps"),
    [  # 1, 2, 4, 8, … alternately in a and b; from 100 down to 0
        ("counter-machine", {"length": 900}, "a+ a-5 b+ b+ go1 b-1 a+ go5 |", 890),
        ("subleq", {"length": 650, "limit": 100}, "7 8 -1 6 6 0 0 1 100 |", 3 * 199),
        ("rule-110", {"length": 40, "rows": 20}, "0 " * 39 + "1 |", 41 * 20 - 1),
    ],
)
def test_machines_run_for_hundreds_of_steps(name, options, prompt, steps):
    options = options_of(name, **options)
    program, o = library.load(name, options), SimpleNamespace(**options)
    start = [int(t) if t.lstrip("-").isdecimal() else t for t in prompt.split()]
    text = numbered(program, [*start, *REFERENCES[name].written(start, o)])
    output = emitted(program, np.array([text[: program.length]]))[0, len(start) - 1 :]
    assert output[:steps].tolist() == text[len(start) :][:steps] and len(output) >= steps


def test_load_refuses_unknown_names_and_options():
    with raises("not_found", "sorts", "sort"):
        library.load("sorts")
    with raises("bad_source", "vocab", "2", "100", "1"):
        library.load("sort", {"vocab": 1})
    assert len(library.load("sort", {"vocab": "20", "length": "20"}).tokens) == 22


# ── what the library needs of the language ─────────────────────────────────────────────────────
def test_block_is_the_maximum_length_of_a_text():
    body = "length = option(3)\ntokens = [0, 1]\n{}emit = token if position % 2 else 1"
    assert read(body.format("")).length == 3
    assert read(body.format("block = 2 * length\n")).length == 6
    assert read(body.format("block = 2 * length\n"), options={"length": 5}).length == 10
    with raises("bad_source", "block", "1,000", "1200"):
        read(body.format("block = 400 * length\n"))
    with raises("bad_source", "`block`", "`position`"):
        read("length = 3\ntokens = [0]\na = position + 1\nblock = 6\nemit = 0")


def test_nth_of_a_share_of_all():
    body = "tokens = [*range(9)]\nlength = 9\nemit = nth(token, {}, default=0)"
    text = [8, 1, 6, 3, 5, 7, 4, 2]
    for n, output in [
        ("count() / 2", [4]), ("count() / 4", [2]), ("(count() + 4) / 4", [3]), ("count()", [8]),
    ]:  # fmt: skip
        assert run(read(body.format(n)), text) == output
    for n in ("count() / 0", "count() / token", "count() / 1.5"):
        with raises("bad_source", "`nth`", "1,000"):
            read(body.format(n))


def test_a_table_has_a_value_or_its_parts():
    """`x == nothing` and `x` as two axes of a table would have impossible combinations."""
    program = read(
        "tokens = [*range(6)]\nlength = 4\n"
        "x = only(token, position == here.position - 1)\n"
        "emit = 0 if x == nothing or position == 3 else 5 - x"
    )
    assert isinstance(program.emit, Map) and sorted(program.emit.table.shape) == [2, 7]
    assert [run(program, t) for t in ([4], [4, 1], [1, 1, 1, 1])] == [[0], [1], [0]]
