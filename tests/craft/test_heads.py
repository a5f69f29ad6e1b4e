"""A head attends and copies as documented, seen in the attention pattern of the model."""

import numpy as np
import pytest

from glassformer.core.hooks import ActivationCache, record
from glassformer.core.model import Config, Model, zeros
from glassformer.core.vocabulary import Vocabulary
from glassformer.craft import Head, Layout, hardness_for, padding, ring
from helpers import raises

TOKENS = 6
LAYOUT = Layout(token=3, free=4, position=3)


def blank(n: int, d_head: int = 10, *extra: str) -> tuple[Config, dict[str, np.ndarray]]:
    """A one-layer, one-head model whose every row is fixed under layer norm; eps = 0 so that it
    is exactly.
    """
    config = Config(TOKENS, n, LAYOUT.size, d_head=d_head, eps=0.0)
    w = zeros(config, *extra)
    w["embed.W_E"][:] = LAYOUT.row(token=ring(TOKENS), free=padding(4))
    w["pos_embed.W_pos"][:] = LAYOUT.row(position=ring(n))
    return config, w


def run(config: Config, w: dict[str, np.ndarray], tokens: list[int]) -> ActivationCache:
    return record(Model(config, w, Vocabulary.numbers(TOKENS)), np.array([tokens]))[1]


def pattern(config: Config, w: dict[str, np.ndarray], tokens: list[int]) -> np.ndarray:
    seen: np.ndarray = run(config, w, tokens)["blocks.0.attn.hook_pattern"][0, 0]
    return seen


def some_tokens(n: int) -> list[int]:
    return np.random.default_rng(n).integers(0, TOKENS, n).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("d_head", [2, 3, 10])
@pytest.mark.parametrize(("n", "delta"), [(8, 0), (8, 1), (200, 0), (200, 17)])
def test_attend_back_is_exact(n: int, delta: int, d_head: int) -> None:
    config, w = blank(n, d_head)
    Head(w, 0, 0).attend_back(delta, LAYOUT["position"], n)
    seen = pattern(config, w, some_tokens(n))
    expected = np.eye(n, k=-delta)
    # exactly: every other weight underflows to 0
    assert np.array_equal(seen[delta:], expected[delta:])


def test_before_the_start_back_sees_the_nearest_visible_position() -> None:
    config, w = blank(20)
    Head(w, 0, 0).attend_back(3, LAYOUT["position"], 20)
    assert np.array_equal(pattern(config, w, [0] * 20)[:3], np.eye(20)[[0, 0, 0]])


def test_back_at_a_thousand_positions_in_float32() -> None:
    config, w = blank(1000, 3)
    Head(w, 0, 0).attend_back(5, LAYOUT["position"], 1000)
    model = Model(config, w, Vocabulary.numbers(TOKENS)).astype("float32")
    seen = record(model, np.array([some_tokens(1000)]))[1]["blocks.0.attn.hook_pattern"][0, 0]
    assert np.array_equal(seen[5:], np.eye(1000, k=-5)[5:])


def test_hardness_is_the_lead_over_the_neighbours() -> None:
    scores = ring(50) @ ring(50)[7] * hardness_for(50, 4, gap=30) / np.sqrt(4)
    assert scores[7] - scores[8] == pytest.approx(30)
    assert scores[7] - scores[6] == pytest.approx(30)


@pytest.mark.parametrize("by_bias", [True, False])
def test_attend_to_position_from_everywhere(by_bias: bool) -> None:
    config, w = blank(30, 3, *["attn.b_Q"] * by_bias)
    constant = LAYOUT["free"].start  # padding(4) starts with √3 in every row
    Head(w, 0, 0).attend_to_position(
        4, LAYOUT["position"], 30, constant_dim=None if by_bias else constant
    )
    assert np.array_equal(pattern(config, w, some_tokens(30))[4:], np.eye(30)[[4] * 26])


def test_absolute_needs_something_constant() -> None:
    _, w = blank(30)
    with raises("bad_argument", "head 0.0", "constant_dim"):
        Head(w, 0, 0).attend_to_position(4, LAYOUT["position"], 30)


def test_content_shares_among_equals() -> None:
    config, w = blank(8)
    Head(w, 0, 0).attend_by_content(LAYOUT["token"], LAYOUT["token"], 1e4)
    tokens = [3, 1, 3, 2, 1, 3, 0, 5]
    seen = pattern(config, w, tokens)
    for i, token in enumerate(tokens):
        equal = np.array([t == token and j <= i for j, t in enumerate(tokens)])
        np.testing.assert_allclose(seen[i], equal / equal.sum(), atol=1e-12)


def test_attend_to_self() -> None:
    config, w = blank(8)
    Head(w, 0, 0).attend_to_self(LAYOUT["position"], 1e5)
    np.testing.assert_allclose(pattern(config, w, [3, 1, 3, 2, 1, 3, 0, 5]), np.eye(8), atol=1e-12)


def test_two_aims_add_their_scores() -> None:
    config, w = blank(8)
    head = Head(w, 0, 0)
    head.attend_by_content(LAYOUT["token"], LAYOUT["token"], 1e6)  # equal tokens first ...
    head.attend_back(0, LAYOUT["position"], 8, 1e3)  # ... and of those the nearest
    np.testing.assert_allclose(pattern(config, w, [3, 1, 3, 2, 1, 3, 0, 5]), np.eye(8), atol=1e-12)


def test_copy_and_erase_move_a_token_into_free_space() -> None:
    config, w = blank(8, 12)
    head = Head(w, 0, 0)
    head.attend_back(0, LAYOUT["position"], 8)
    head.erase(LAYOUT["free"])
    head.copy(LAYOUT["token"], slice(3, 6), 2.0)
    tokens = [3, 1, 3, 2, 1, 3, 0, 5]
    after = run(config, w, tokens)["blocks.0.hook_resid_post"][0]
    token = ring(TOKENS)[tokens]
    expected = LAYOUT.row(token=token, free=np.pad(2 * token, ((0, 0), (0, 1))), position=ring(8))
    np.testing.assert_allclose(after, expected, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (3, 3)])
def test_copy_by_a_matrix_takes_the_narrower_side(shape: tuple[int, int]) -> None:
    config, w = blank(8, 3)
    matrix = np.random.default_rng(0).normal(size=shape)
    source = LAYOUT["token"] if shape[0] == 3 else LAYOUT["free"]
    target = LAYOUT["free"] if shape[1] == 4 else LAYOUT["position"]
    head = Head(w, 0, 0)
    head.attend_back(0, LAYOUT["position"], 8)
    head.copy(source, target, matrix)
    seen = run(config, w, list(range(6)))
    before, wrote = seen["blocks.0.hook_resid_pre"][0], seen["blocks.0.hook_attn_out"][0]
    np.testing.assert_allclose(wrote[:, target], before[:, source] @ matrix, atol=1e-12)


def test_a_full_head_is_refused() -> None:
    _, w = blank(8, 5)
    head = Head(w, 0, 0)
    head.copy(LAYOUT["token"], LAYOUT["position"])
    with raises("bad_argument", "head 0.0", 3, "2 of 5"):
        head.copy(LAYOUT["token"], LAYOUT["position"])
    with raises("bad_argument", "head 0.0", "(3, 4)", "a number"):
        head.copy(LAYOUT["token"], LAYOUT["free"])
    with raises("bad_argument", "head 0.0", 3, 4):
        head.attend_by_content(LAYOUT["token"], LAYOUT["free"], 1.0)
    with raises("bad_argument", "head 0.0", 3, 4):
        head.attend_back(1, LAYOUT["free"], 8)
