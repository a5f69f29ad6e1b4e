"""The exercises of chapter 8, in code: programs written as numbers."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from glassformer import Model, decode
from glassformer.core.param_count import count
from glassformer.taotp import EXAMPLES, parse, read


def says(model: Model, start: str = "<bos>") -> str:
    """Return the output of a program after one token, up to <eos>."""
    out = decode(model, [model.vocabulary.index(start)], model.config.n_ctx)
    return model.vocabulary.decode(out[1:]).partition("<eos>")[0]


def wrong(model: Model, truth: Any, longest: int) -> int:
    """On how many inputs of up to so many numbers the last output is not the truth."""
    bad = 0
    for length in range(1, longest + 1):
        rows = np.array(list(product(range(model.config.d_vocab), repeat=length)))
        bad += int((model(rows, last=1)[:, -1].argmax(-1) != truth(rows, axis=1)).sum())
    return bad


def test_8_1_a_program_of_whole_numbers() -> None:
    """MAX over {0, 1, 2}: right on every input that fits its block, with 16 numbers that are
    not zero.
    """
    model = read("max.taotp")
    assert wrong(model, np.max, 8) == 0
    assert count(model).nonzero == 16
    assert all((w == np.round(w)).all() for w in model.weights.values())


@pytest.mark.parametrize("scale", ["1e-3", "1", "1e6"])
def test_8_2_larger_or_smaller_positions_change_nothing(scale: str) -> None:
    """Prediction: as long as positions dwarf tokens, the final norm takes their size away again."""
    assert says(read("figure-8.2.taotp")) == "Hello World!"
    assert says(
        changed(
            "  [  648030.1 -1412611.7   764581.5]   # <eos>\n]",
            f"[648030.1 -1412611.7 764581.5]] * {scale}",
        )
    ) == ("Hello World!")


def test_8_2_two_positions_exchanged() -> None:
    """Prediction: positions are what is said, so exchanging two exchanges two letters."""
    h, w = "1412611.7  -648030.1  -764581.5", "-267641.6  1336432.9 -1068791.2"
    assert says(changed(h, "?", w, h, "?", w)) == "Wello Horld!"


def test_8_2_positions_as_small_as_tokens() -> None:
    """Prediction: the token just read now weighs as much as the one to say; the norm finds what
    lies between.
    """
    last = "  [  648030.1 -1412611.7   764581.5]   # <eos>\n]"
    model = changed(last, "[648030.1 -1412611.7 764581.5]] * 1e-6")
    names, n = model.vocabulary.tokens, 11
    for start, name in enumerate(
        names
    ):  # H is token 1: between token s and 1 on the ring lies (s + 1) / 2
        there = (1 - start + n // 2) % n - n // 2  # the shorter way round
        between = {(start + there // 2) % n, (start - (-there // 2)) % n}
        assert int(model([start])[-1].argmax()) in between, name
    assert says(model) != "Hello World!"


def changed(*pairs: str) -> Model:
    """Figure 8.2 with texts replaced by others, each found once."""
    text = (EXAMPLES / "figure-8.2.taotp").read_text("utf-8")
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert text.count(old) == 1
        text = text.replace(old, new)
    return parse(text)


def test_8_3_is_min_spoilt_by_rounding() -> None:
    """It computes the minimum; one decimal is too few for it, two are enough."""
    printed, repaired = read("figure-8.3.taotp"), read("min.taotp")
    assert wrong(printed, np.min, 3) == 3_272
    assert wrong(repaired, np.min, 3) == 0
    rows = np.random.default_rng(0).integers(0, 20, (2_000, 8))
    assert (repaired(rows)[:, -1].argmax(-1) == rows.min(1)).all()


def test_8_3_only_the_head_is_wrong() -> None:
    """As printed, the smallest number gets all attention; but cut embeddings differ in length, and
    the head, a dot product, prefers the longer of two neighbours: eight numbers are never said.
    """
    model, seen = read("figure-8.3.taotp"), dict[str, Any]()
    rows = np.array(list(product(range(20), repeat=3)))
    model(rows, hook=lambda name, x: seen.setdefault(name, x))
    pattern = seen["blocks.0.attn.hook_pattern"][:, 0, -1]  # B S
    mass = np.where(rows == rows.min(1, keepdims=True), pattern, 0).sum(1)
    assert mass.min() > 0.999
    names = set(model(np.arange(20)[:, None])[:, 0].argmax(-1).tolist())
    assert set(range(20)) - names == {1, 4, 6, 8, 11, 13, 15, 18}
    longer = np.linalg.norm(model.weights["embed.W_E"], axis=1)
    assert all(longer[n] < max(longer[n - 1], longer[n + 1]) for n in set(range(20)) - names)


def test_8_4_compact_inputs() -> None:
    """Defaults for norms, layers, positions and the rest: the same program in a tenth of the
    text.
    """
    long = (
        '{"tok_emb": [[1, -1, 0], [1, 0, -1], [0, 1, -1]], "out_emb": [[1, -1, 0], [1, 0, -1], [0, '
        "1, -1]],"
        '"pos_emb": [[0, 0, 0], [0, 0, 0]], "layers": [{"Q": [[[0, 0, 0], [0, 0, 0], [0, 0, 0]]],'
        '"K": [[[0, 0, 0], [0, 0, 0], [0, 0, 0]]], "V": [[[1, 0, 0], [0, 1, 0], [0, 0, 1]]],'
        '"P": [[[5, 0, 0], [0, 5, 0], [0, 0, 5]]], "M1": [[], [], []], "b1": [], "M2": [], "b2": '
        "[0, 0, 0],"
        '"ln1": {"gamma": 1, "beta": 0}, "ln2": {"gamma": 1, "beta": 0}}], "lnf": {"gamma": 1, '
        '"beta": 0}}'
    )
    short = (
        "block_size: 2  tok_emb: [[1 -1 0] [1 0 -1] [0 1 -1]]  layers: [{V: eye(3) P: eye(3) * 5}]"
    )
    tokens = np.array(list(product(range(3), repeat=2)))
    np.testing.assert_array_equal(parse(long)(tokens), parse(short)(tokens))
