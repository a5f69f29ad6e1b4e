"""Weights in the live page: named axes, edits by typing and dragging, undo and saved files."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from glassformer import load
from glassformer.generate import run
from report_page.visit import SLOWLY, page_of, scored, visits

ADDER = "addition:digits=3"
pytestmark = pytest.mark.slow  # a page drawn for every test; test_page_parts.py is quick
CELL = "#grid td[data-i='{}'][data-j='{}']"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    return {
        "adder": page_of(folder, "adder", ADDER, inputs=["127+458"], rows=200),
        "large": page_of(folder, "large", "grok-113.safetensors", rows=2),
    }


@pytest.fixture
def visit(chromium, files):
    with visits(chromium, files) as go:
        yield go


def put(tab, i, j, text):
    tab.click(CELL.format(i, j))
    tab.fill("#weight-value", text)
    tab.press("#weight-value", "Enter")


def test_the_axes_have_names(visit):
    tab = visit("adder")
    slots = ["scale 0", "scale 1", "digit 0", "digit 1", "score"]
    assert tab.locator("#grid thead th").all_inner_texts() == slots
    assert tab.locator("#grid tbody th").all_inner_texts() == list("0123456789+=")
    tab.click(CELL.format(7, 2))
    expect(tab.locator("#weight-place")).to_have_text("W_E [7, digit 0]")
    W_E = load(ADDER).weights["embed.W_E"]
    assert float(tab.input_value("#weight-value")) == W_E[7, 2]
    tab.select_option("#weight", "blocks.0.attn.W_O")
    tab.select_option("#weight-head", "1")
    assert tab.locator("#grid thead th").all_inner_texts() == slots
    expect(tab.locator("#weight-head")).to_contain_text("0.1 takes away the digits written")
    W_O = load(ADDER).weights["blocks.0.attn.W_O"]
    tab.click(CELL.format(0, 3))
    assert float(tab.input_value("#weight-value")) == W_O[1, 0, 3]


def test_what_was_verified_is_the_model_as_it_was_made(visit):
    tab = visit("adder")
    output, note = tab.locator("#facts .verdict"), tab.locator("#facts .since")
    tab.click("#facts summary")
    expect(output).to_have_class("verdict right")
    expect(note).to_be_hidden()
    put(tab, 7, 2, "-9999")
    expect(note).to_have_text("This describes the model as opened. It has been changed since.")
    tab.click("#undo")
    expect(note).to_be_hidden()


def test_edit_by_typing_undo_and_save(visit, tmp_path):
    tab = visit("adder")
    assert scored(tab) == (200, 200)
    put(tab, 5, 2, "4000")  # a five that counts as a four
    expect(tab.locator(CELL.format(5, 2))).to_have_text("4000")
    expect(tab.locator("td.edited")).to_have_count(1)
    expect(tab.locator("#wrong li").first).to_be_visible(timeout=SLOWLY)
    assert scored(tab)[0] < 200 and "1 weight edited" in tab.inner_text("#chips")
    output = tab.inner_text("#answer")
    tab.click("#text summary")
    expect(tab.locator("#text pre")).to_contain_text("4000")
    weights = {name: w.copy() for name, w in load(ADDER).weights.items()}
    weights["embed.W_E"][5, 2] = 4000
    for button, ending in (("#save-checkpoint", "safetensors"), ("#save-taotp", "taotp")):
        with tab.expect_download() as download:
            tab.click(button)
        file = tmp_path / download.value.suggested_filename
        assert file.name == f"addition-digits-3-edited.{ending}"
        download.value.save_as(file)
        saved = load(str(file))
        for name, w in weights.items():
            assert np.array_equal(saved.weights[name], w), name
        assert run(saved, "127+458").output == output
    tab.click("#undo")
    assert tab.locator("td.edited").count() == 0 and tab.inner_text("#answer") == "0585"
    expect(tab.locator("#wrong li")).to_have_count(0, timeout=SLOWLY)


def test_what_is_no_number_is_refused(visit):
    tab = visit("adder")
    for text in ("seven", "", "1e999", "NaN"):
        put(tab, 1, 1, text)
        expect(tab.locator("#weight-problem")).to_contain_text("finite number")
        expect(tab.locator("#chips")).to_have_text("")
    put(tab, 1, 1, "-2.5")
    expect(tab.locator("#weight-problem")).to_have_text("")
    expect(tab.locator("#chips")).to_contain_text("1 weight")
    assert re.search("reset to 0$", tab.inner_text("#weight-back"))
    tab.click("#weight-back")
    expect(tab.locator("#chips")).to_have_text("")
    expect(tab.locator(CELL.format(1, 1))).to_have_text("0")


def test_edit_by_dragging_and_by_keys(visit):
    tab = visit("adder")
    cell = tab.locator(CELL.format(4, 3))
    cell.scroll_into_view_if_needed()
    box = cell.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x + 20, y, steps=4)
    tab.mouse.move(x + 50, y, steps=4)
    tab.mouse.up()
    expect(tab.locator(CELL.format(4, 3))).to_have_text(
        "−2000"
    )  # −4000 and 50 hundredths of its size
    cell.focus()
    tab.keyboard.press("Shift+ArrowUp")
    expect(tab.locator(CELL.format(4, 3))).to_have_text("−1800")
    tab.keyboard.press("ArrowRight")
    expect(tab.locator("#weight-place")).to_have_text("W_E [4, score]")
    tab.keyboard.press("7")
    tab.keyboard.press("Enter")
    expect(tab.locator(CELL.format(4, 4))).to_have_text("7")
    for left in ("2 weights", "1 weight", ""):  # a whole drag is one deed
        assert left in tab.inner_text("#chips")
        tab.click("#undo")
    assert tab.is_disabled("#undo") and tab.inner_text(CELL.format(4, 3)) == "−4000"


def test_a_large_weight_is_drawn_and_can_be_edited_too(visit):
    tab = visit("large")
    tab.select_option("#weight", "blocks.0.mlp.W_in")
    canvas = tab.locator("#grid canvas")
    expect(canvas).to_have_attribute("height", "128")
    canvas.click(position={"x": 10, "y": 10})
    place = tab.inner_text("#weight-place")
    tab.keyboard.press("ArrowRight")
    assert tab.inner_text("#weight-place") != place
    tab.keyboard.press("Enter")
    tab.keyboard.type("2.5")
    tab.keyboard.press("Enter")
    expect(tab.locator("#chips")).to_contain_text("1 weight edited")
    tab.fill("#weight-value", "1e300")  # more than float32 holds
    tab.press("#weight-value", "Enter")
    expect(tab.locator("#weight-problem")).to_contain_text("finite number")
    expect(tab.locator("#chips")).to_contain_text("1 weight edited")
