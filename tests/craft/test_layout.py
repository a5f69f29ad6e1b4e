"""Slots of a layout, and errors that name the slot."""

import numpy as np

from glassformer.craft import Layout
from helpers import raises

LAYOUT = Layout(token=3, nothing=0, padding=4, position=3)


def test_slots_lie_side_by_side() -> None:
    assert LAYOUT.size == 10
    assert (LAYOUT["token"], LAYOUT["position"]) == (slice(0, 3), slice(7, 10))
    assert LAYOUT.slots == {"token": (0, 3), "padding": (3, 7), "position": (7, 10)}
    assert LAYOUT.span("padding", "position") == slice(3, 10)
    assert list(LAYOUT) == ["token", "nothing", "padding", "position"]


def test_row_fills_named_slots_only() -> None:
    row = LAYOUT.row(token=[1, 2, 3], position=-1)
    assert row.tolist() == [1, 2, 3, 0, 0, 0, 0, -1, -1, -1]


def test_row_repeats_single_vectors() -> None:
    tokens = np.arange(6.0).reshape(2, 3)
    rows = LAYOUT.row(token=tokens, padding=[9, 8, 7, 6])
    assert rows.shape == (2, 10)
    assert np.array_equal(rows[:, LAYOUT["token"]], tokens)
    assert rows[:, LAYOUT["padding"]].tolist() == [[9, 8, 7, 6]] * 2


def test_mistakes_are_named() -> None:
    with raises("bad_argument", "'digit'", "position"):
        LAYOUT["digit"]
    with raises("bad_argument", "slot token", 3, 2):
        LAYOUT.row(token=[1, 2])
    with raises("bad_argument", "slot token", 0):
        Layout(token=-1)
