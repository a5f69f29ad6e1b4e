"""Ablations and patches in the live page agree with Python; failures are listed; links light up."""

import numpy as np
import pytest
from playwright.sync_api import expect

from glassformer import load
from glassformer.generate import prompt_tokens, run
from report_page.visit import SLOWLY, page_of, scored, visits

ADDER, ONES = "addition:digits=3", "addition:digits=3,order=ones"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    return {
        "adder": page_of(folder, "adder", ADDER, inputs=["127+458", "999+1"], rows=200),
        "ones": page_of(folder, "ones", ONES, inputs=["127+458", "999+1"], rows=100),
    }


@pytest.fixture
def visit(chromium, files):
    with visits(chromium, files) as go:
        yield go


def said(ref, text, tap, steps=4):
    """Return the answer of a model with a hook, token by token."""
    model = load(ref)
    tokens = prompt_tokens(model, text)
    for _ in range(steps):
        tokens = [*tokens, int(model(np.array(tokens), hook=tap)[-1].argmax())]
    return model.vocabulary.decode(tokens[-steps:])


def without_head(head):
    def tap(name, value):
        if name.endswith("hook_z"):
            value = value.copy()
            value[:, :, head] = 0
        return value

    return tap


def test_an_ablated_head_breaks_examples_and_undo_restores_them(visit):
    tab = visit("adder")
    right, total = scored(tab)
    assert right == total == 200
    tab.click("#do-head-0-1-zero")
    assert tab.inner_text("#answer") == said(ADDER, "127+458", without_head(1)) != "0585"
    assert tab.inner_text("#was") == "was 0585" and "head 0.1" in tab.inner_text("#chips")
    assert "off" in tab.locator(".head").nth(1).get_attribute("class").split()
    expect(tab.locator("#wrong li").first).to_be_visible(timeout=SLOWLY)
    right, total = scored(tab)
    assert right < total == 200
    assert tab.inner_text("#score").endswith(" % of edge cases and a sample)")
    assert "edge cases and a sample of every class" in tab.inner_text("#examples")
    row = tab.locator("#wrong li").nth(2)
    text, reported = row.locator("button").inner_text(), row.locator("b").all_inner_texts()
    row.locator("button").click()
    assert tab.input_value("#input") == text
    assert [tab.inner_text("#answer"), run(load(ADDER), text).output] == reported
    tab.click("#undo")
    assert tab.inner_text("#answer") == reported[1] and tab.inner_text("#chips") == ""
    expect(tab.locator("#wrong li")).to_have_count(0, timeout=SLOWLY)
    assert scored(tab) == (200, 200) and tab.is_disabled("#undo")


def test_every_kind_of_part_can_be_switched(visit):
    tab = visit("ones")
    before = tab.inner_text("#margin")
    for part, open_ in (("position 2", "#token-2"), ("neuron 0.1", "#neuron-0-1"),
                        ("slot digit", "#slot-digit")):  # fmt: skip
        tab.click(open_)
        menu = tab.locator("#menu")
        assert part in menu.inner_text()
        menu.get_by_role("button", name="off").click()
        assert part in tab.inner_text("#chips")
        tab.keyboard.press("Escape")
        tab.locator("#chips .chip button").click()
        assert tab.inner_text("#chips") == "" and tab.inner_text("#margin") == before
    for name in ("mask", "norm-ln_final", "mlp-0", "attention-0", "embed"):
        tab.click(f"#do-{name}-zero")
        assert tab.locator("#chips .chip").count() == 1
        tab.click(f"#do-{name}-on")
    assert tab.inner_text("#margin") == before and tab.inner_text("#was") == ""


def test_mean_and_from_another_input(visit):
    tab = visit("ones")
    tab.click("#do-head-0-0-mean")
    assert "mean" in tab.inner_text("#chips")
    tab.click("#do-head-0-0-from")
    assert tab.evaluate("document.activeElement.id") == "menu-text"
    tab.fill("#menu-text", "222+333")
    tab.keyboard.press("Enter")
    assert "from 222+333" in tab.inner_text("#chips")
    model, other = load(ONES), []

    def keep(name, value):
        other.extend([value] if name.endswith("hook_z") else [])
        return value

    model(np.array(prompt_tokens(model, "222+333")), hook=keep)

    def patched(name, value):
        if name.endswith("hook_z"):
            value = value.copy()
            value[:, : other[0].shape[1], 0] = other[0][:, :, 0]
        return value

    # the first token is decoded where the other input has a position as well
    assert tab.inner_text("#answer")[0] == said(ONES, "127+458", patched, steps=1)
    tab.fill("#menu-text", "no sum")
    tab.keyboard.press("Enter")
    assert "3 digits" in tab.inner_text("#problem")


def test_pointing_shows_inputs_and_outputs(visit):
    tab = visit("ones")
    tab.hover("#head-0-0")
    line = tab.locator("#pointed")
    assert line.inner_text().startswith("head 0.0, ahead: a and b of the column to write")
    lit = tab.locator("#tokens .from > span").all_inner_texts()
    assert lit == ["7", "8"]  # what it reads: the ones
    assert tab.locator('[data-link^="slot "].to').count() >= 1
    by_name = {"#token-2": "to head 0.0", "#neuron-0-0": "from slot", "#slot-digit": "head 0.0",
            "#logits .strong button": "from "}  # fmt: skip
    for what, result in by_name.items():
        tab.hover(what)
        expect(line).to_contain_text(result)
    tab.hover("h1")
    expect(line).to_be_hidden()
    assert tab.locator(".from, .to, .pointed").count() == 0
