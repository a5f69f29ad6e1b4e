"""The exercises in the text language, solved: docs/exercises.md asks, and here are the answers.

Look only when yours is right, or will not be.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from glassformer import Model, check_puzzle, count, load, run, verify
from glassformer.puzzles import levels
from glassformer.taotp import parse

ROOT = Path(__file__).parents[1]

# Token j is said where the stream holds the code of j - 1.
COUNT = """
let n = 10
block_size: 16
slots: { token: 3 }
tok_emb: { token: ring(n) }
out_emb: { token: ring(n) * shift(-1 n) }
"""

# A flat ring has two numbers a point, and RMS norm does not mind.
SMALL = """
norm: rms
positions: none
block_size: 8
tok_emb: ring(10 10 2)
"""

# What is said depends on the place alone: its slot holds the code of the next token.
HELLO = """
tokens: ["<bos>" H e l o " " W r d "!" "<eos>"]
let code = ring(11)
slots: { token: 3  said: 3 }
tok_emb: { token: code }
pos_emb: { said: rows(code [1 2 3 3 4 5 6 4 7 3 8 9 10]) }
out_emb: { said: code }
"""

# Nobody's query depends on where he is: a bias asks for place 0.
FIRST = """
let T = 8
slots: { token: 3  place: 3  found: 3 }
tok_emb: { token: ring(5) }
pos_emb: { place: ring(T) }
layers: [{ heads: { "the first": {
  bQ: rows(ring(T) 0) * T * T   K: { place: eye(3) }
  V: { token: eye(3) }          P: { found: eye(3) }
}}}]
out_emb: { found: ring(5) }
"""

# After place p comes place p + 1, and that is to be as place p - 2.
THREES = """
let T = 16
slots: { token: 3  place: 3  found: 3 }
tok_emb: { token: ring(5) }
pos_emb: { place: ring(T) }
layers: [{ heads: { "two back": {
  Q: { place: shift(-2 T) * T * T }  K: { place: eye(3) }
  V: { token: eye(3) }               P: { found: eye(3) }
}}}]
out_emb: { found: ring(5) }
"""

# On half of a ring a token is the less like 0 the larger it is.
SMALLEST = """
let n = 20
let code = ring(n 2 * n)
block_size: 8
slots: { token: 3  found: 3 }
tok_emb: { token: code }
layers: [{ heads: { "the smallest so far": {
  bQ: [1e4]             K: { token: transpose(rows(code [0])) }
  V: { token: eye(3) }  P: { found: eye(3) }
}}}]
out_emb: { found: code }
"""

# 0 for an even number of ones, 1 for an odd one: a saw with a tooth for each pair.
PARITY = """
let n = 6
norm: none
block_size: n
slots: { bit: 1  share: 1  odd: 1 }
tok_emb: { bit: [[0] [1]] }
layers: [{
  heads: { "share of ones": { V: { bit: [[1]] }  P: { share: [[1]] } } }
  M1: { share: ones(1 n) * n }
  b1: -[0 1 2 3 4 5]
  M2: { odd: transpose([[1 -2 2 -2 2 -2]]) }
}]
out_emb: { odd: [[-1] [1]] }
out_bias: [0.5 -0.5]
"""

# Two things must be alike, so a key has room for two codes: this token's and the one before it.
BOTH = """
tokens: ["0" "1" "2" "<bos>"]  sep: " "
let T = 8
let code = ring(4)
let here = block([[eye(3) zeros(3 3)]])
let back = block([[zeros(3 3) eye(3)]])
slots: { token: 3  place: 3  before: 3  earlier: 3  found: 3 }
tok_emb: { token: code }
pos_emb: { place: ring(T) }
layers: [
  { heads: {
      "one back": { Q: { place: shift(-1 T) * T * T }  K: { place: eye(3) }
                    V: { token: eye(3) }               P: { before: eye(3) } }
      "two back": { Q: { place: shift(-2 T) * T * T }  K: { place: eye(3) }
                    V: { token: eye(3) }               P: { earlier: eye(3) } }
  }}
  { heads: { "after the same two": {
      Q: { token: here * 99  before: back * 99 }  K: { before: here  earlier: back }
      V: { token: eye(3) }                        P: { found: eye(3) }
  }}}
]
out_emb: { found: code }
"""

# Without a slot for what is found it is written over the token, a hundred times as loud.
NARROW = """
tokens: ["0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "+" "=" "<PAD>" "<EOS>"]
let n = 5
let loud = 100
let code = ring(14)
slots: { token: 3  place: 3 }
tok_emb: { token: code }
pos_emb: {
  place: block([[ring(2 * n)]     [zeros(1 3)]])
  token: block([[zeros(2 * n 3)]  [rows(code [13]) * loud * loud]])
}
layers: [{ heads: { mirror: {
  Q: { place: mirror(2 * n - 1, 2 * n) * 4 * n * n }  K: { place: eye(3) }
  V: { token: eye(3) }                                P: { token: eye(3) * loud }
}}}]
"""

VERIFIED = {
    "t2": (SMALL, "repeat-last:vocab=10"),
    "t3": (HELLO, "hello-world"),
    "t6": (SMALLEST, "min:vocab=20,length=3"),
    "t7": (PARITY, "lookup:table=parity-6"),
    "t8": (BOTH, "search:prefix=2,vocab=3,block=8,bos=true"),
    "t9": (NARROW, "reverse"),
}


def wrong(model: Model, task: Any) -> int:
    verdict = verify(model, task)
    assert verdict.checked > 0
    return verdict.wrong


@pytest.mark.parametrize("name", VERIFIED)
def test_verified(name: str) -> None:
    text, task = VERIFIED[name]
    assert wrong(parse(text), task) == 0


def test_t1_counts() -> None:
    model = parse(COUNT)
    assert run(model, "7", steps=5).output == "8 9 0 1 2"
    assert all(run(model, f"{i} {i}", steps=1).output == str((i + 1) % 10) for i in range(10))


def test_t2_has_twenty_numbers() -> None:
    assert count(parse(SMALL)).total == 20


def test_t3_from_any_token_with_small_numbers() -> None:
    model = parse(HELLO)
    assert max(abs(w).max() for w in model.weights.values()) <= 2
    names = {run(model, token, steps=12).output for token in model.vocabulary.tokens}
    assert names == {"Hello World!"}


def back(k: int) -> Any:
    """The task of docs/taotp.md, as it stands there."""
    document = (ROOT / "docs/taotp.md").read_text("utf-8")
    space: dict[str, Any] = {}
    exec(re.search(r"```python\n(# back\.py\n.*?)```", document, re.DOTALL)[1], space)  # type: ignore[index]
    return space["Back"](k=k)


def test_t4_says_the_first() -> None:
    model = parse(FIRST)
    assert wrong(model, back(5)) == 0  # five before the last of six
    assert run(model, "4 0", steps=1).output == run(model, "4 0 1 2 3 0 2 1", steps=1).output == "4"


def test_t5_goes_on_in_threes() -> None:
    model = parse(THREES)
    assert run(model, "1 2 3", steps=6).output == "1 2 3 1 2 3"
    assert wrong(model, back(2)) == 0


def test_t8_needs_both() -> None:
    """One code alone finds more than the place that is meant."""
    for half in ("token: here * 99", "before: back * 99"):
        assert wrong(parse(BOTH.replace(half, "")), VERIFIED["t8"][1]) > 0


def test_t9_is_as_small_as_the_programs_own() -> None:
    assert count(parse(NARROW)).total == count(load("reverse")).total


def test_parts_are_known_by_the_names_in_the_text() -> None:
    model = parse(BOTH)
    assert list(model.labels.slots) == ["token", "place", "before", "earlier", "found"]
    heads = {"0.0": "one back", "0.1": "two back", "1.0": "after the same two"}
    assert model.labels.heads == heads


EXERCISES = (ROOT / "docs/exercises.md").read_text("utf-8")
CHECKED = dict(re.findall(
    r"^\| T\.(\d) .* `glassformer puzzle check ([\w-]+) t\1\.taotp` \|$",
    EXERCISES, re.MULTILINE,
))  # fmt: skip
TEXTS = {
    "1": COUNT, "2": SMALL, "3": HELLO, "4": FIRST, "6": SMALLEST, "7": PARITY, "8": BOTH,
    "9": NARROW,
}  # fmt: skip


def test_every_exercise_that_has_a_level_names_it() -> None:
    """T.5 has none: no level goes on for ever."""
    assert CHECKED.keys() == TEXTS.keys()
    named = set(re.findall(r"glassformer puzzle check ([\w-]+) ", EXERCISES)) - {*CHECKED.values()}
    assert named == {"echo", "hel-word", "the-largest"} and named <= levels().keys()


@pytest.mark.parametrize(
    "n", [pytest.param(n, marks=[pytest.mark.slow] * (n == "9")) for n in TEXTS]
)
def test_its_level_takes_the_answer(n: str) -> None:
    assert check_puzzle(CHECKED[n], TEXTS[n]).passed


def test_every_exercise_is_solved() -> None:
    """And every solution has its question, and no words of the answer stand beside it."""
    section = EXERCISES[EXERCISES.index("## In the text language") :].partition("\n## ")[0]
    asked = re.findall(r"^\| T\.(\d+) \|", section, re.MULTILINE)
    assert asked == [str(i) for i in range(1, len(asked) + 1)] and len(asked) == 9
    solved = {n[5:7] for n in globals() if n.startswith("test_t")} | VERIFIED.keys()
    assert {f"t{n}" for n in asked} == solved
    for _, task in VERIFIED.values():
        assert f"{task}`" in section or f'"{task}"`' in section, task
    assert "layers:" not in section and "tok_emb:" not in section
