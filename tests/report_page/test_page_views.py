"""The views of the live page agree with Python, and markup in a model stays text."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from glassformer import explain, load, record
from glassformer.core.checkpoint import save
from glassformer.generate import prompt_tokens
from glassformer.report_page.report import report
from helpers import random_model
from report_page.nasty import NASTY, nasty_model
from report_page.visit import page_of, visits

ONES, SORT = "addition:digits=3,order=ones", "lang/sort"
pytestmark = pytest.mark.slow  # a page drawn for every test; test_page_parts.py is quick


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views")
    nasty = report([(NASTY[0], nasty_model())], ["<b>|&lt;", "{{data}}"], rows=10)
    return {
        "ones": page_of(folder, "ones", ONES, inputs=["127+458"], rows=20),
        "sort": page_of(folder, "sort", SORT, inputs=["3 1 2 |"], rows=20),
        "nasty": nasty.save(folder / "nasty.html"),
        "trained": _training(folder),
    }


def _training(folder):
    """A page of three snapshots: a model between random weights and its own."""
    made, snapshots = load("addition:digits=2,order=ones"), folder / "snapshots"
    snapshots.mkdir()
    noise = np.random.default_rng(0)
    far = {name: noise.normal(size=w.shape) for name, w in made.weights.items()}
    for step, share in ((0, 0.0), (50, 0.5), (100, 1.0)):
        weights = {n: share * w + (1 - share) * far[n] for n, w in made.weights.items()}
        save(_with(made, weights), snapshots / f"step-{step:06}.safetensors")
    page = report([("trained", made)], ["12+34"], rows=20, snapshots=[snapshots])
    return page.save(folder / "trained.html")


def _with(model, weights):
    from dataclasses import replace

    return replace(model, weights=weights)


@pytest.fixture
def visit(chromium, files):
    with visits(chromium, files) as go:
        yield go


def number(text):
    return float(text.replace("−", "-"))


def test_attention_as_python_has_it(visit):
    tab, model = visit("ones"), load(ONES)
    tokens = prompt_tokens(model, "127+458")
    _, cache = record(model, tokens)
    assert tab.locator("#heads .thumb").count() == 2
    for head in (1, 0):
        tab.click(f"#head-0-{head}")
        row = cache["blocks.0.attn.hook_pattern"][0, head, -1]
        shade = "all => all.map(e => Number(e.style.getPropertyValue('--read')))"
        shown = tab.locator("#tokens button").evaluate_all(shade)[: len(tokens)]
        assert np.abs(np.array(shown) - row).max() < 1e-3
        assert tab.locator(".arcs .arc").count() == (row >= 0.01).sum()
    box = tab.locator("#attention canvas").bounding_box()
    cell = box["width"] / len(tokens)
    tab.mouse.move(box["x"] + 2.5 * cell, box["y"] + (len(tokens) - 0.5) * cell)
    assert tab.inner_text("#attention .status") == "= at 7 looks at 7 at 2: 50 %"
    expect(tab.locator("#sentence")).to_contain_text("reads 7 and 8")


def test_the_stream_by_name_as_explain_has_it(visit):
    tab, model = visit("sort"), load(SORT)
    assert tab.locator("#stream .tabs button").count() == 5
    by_name = {v.name: v for v in explain(model, "3 1 2 |").values}
    for name, place in (
        ("token", "embedding"),
        ("after", "attention 0"),
        ("listed", "mlp 0"),
        ("emit", "mlp 1"),
    ):
        tab.click(f"#after-{place.replace(' ', '-')}")
        row = tab.locator(
            ".slots tbody tr", has=tab.locator("th", has_text=re.compile(f"^{name}$"))
        )
        cell = row.locator("td").last
        expect(cell.locator("> span")).to_have_text(by_name[name].holds)
        expect(cell.locator(".means")).to_have_text(f"= {by_name[name].means}")
    tab.click("#do-attention-0-zero")
    tab.click("#after-attention-0")
    expect(tab.locator(".slots .differs").first).to_be_visible()  # from the interpreter's value


def test_neurons_logits_and_shares_as_python_has_them(visit):
    tab, model = visit("ones"), load(ONES)
    tokens = prompt_tokens(model, "127+458")
    logits, cache = record(model, tokens)
    fired = cache["blocks.0.mlp.hook_post"][0, -1]
    rows = tab.locator("#neurons .bars li")
    assert rows.count() == 3 and "turns the sign: u + 1" in rows.first.inner_text()
    shown = [number(text) for text in rows.locator(".value").all_inner_texts()]
    assert np.allclose(shown, fired, rtol=1e-3)
    last = np.sort(np.ravel(logits)[-model.config.d_vocab :])[::-1]
    shown = [number(text) for text in tab.locator("#logits .value").all_inner_texts()]
    assert abs(shown[0] - last[0]) < 1e-3 * last[0]
    assert np.allclose(shown[1:], (last - last[0])[1 : len(shown)], rtol=1e-3)
    shares = [number(text) for text in tab.locator("#sources .value").all_inner_texts()]
    assert abs(sum(shares) - (last[0] - last[1])) < 0.1  # of 750 − 806 + …, in four digits
    tab.locator("#logits li").nth(3).locator("button").click()  # against another
    shares = [number(text) for text in tab.locator("#sources .value").all_inner_texts()]
    assert abs(sum(shares) - (last[0] - last[3])) < 0.1


def test_a_training_to_scrub(visit):
    tab = visit("trained")
    assert tab.locator("#snapshots").get_attribute("max") == "2"
    assert tab.inner_text("#answer") == "640" and "step 100" in tab.inner_text("#snapshot-at")
    reads = "all => all.map(e => e.style.getPropertyValue('--read'))"
    before = tab.locator("#tokens button").evaluate_all(reads)
    tab.locator("#snapshots").press("Home")
    expect(tab.locator("#snapshot-at")).to_contain_text("step 0")
    assert tab.inner_text("#was") == "was 640"
    assert tab.locator("#tokens button").evaluate_all(reads)[:5] != before[:5]
    assert tab.locator("#training .chart").count() == 3  # loss, right, by token of the answer
    expect(tab).to_have_url(re.compile(r"snapshot=0%7C0"))
    tab.locator("h1").click()
    for step in ("step 50", "step 100"):
        tab.keyboard.press(".")
        expect(tab.locator("#snapshot-at")).to_contain_text(step)
    assert tab.inner_text("#answer") == "640" and tab.inner_text("#was") == ""


def test_markup_in_a_model_is_shown_and_not_obeyed(visit):
    tab = visit("nasty")
    assert tab.inner_text("h1") == NASTY[0]
    assert tab.locator("#tokens button > span").all_inner_texts()[:2] == ["<b>", "&lt;"]
    for part in ("#head-0-0", "#head-1-1", "#token-0"):
        tab.hover(part)
        tab.click(part)
        tab.keyboard.press("Escape")
    tab.click("#do-head-0-0-zero")
    tab.locator("details > summary").evaluate_all("all => all.forEach(e => e.click())")
    assert NASTY[2] in tab.inner_text("#facts")
    tab.fill("#input", NASTY[1] + "|" + NASTY[2])
    for value in tab.locator("#weight option").evaluate_all("all => all.map(o => o.value)"):
        tab.select_option("#weight", value)
    assert tab.evaluate("typeof hacked") == "undefined"
    assert tab.locator("main img, main script, main tbody > b, #head img").count() == 0


@pytest.mark.parametrize("options", [
    {"norm_first": False}, {"positions": "rotary", "norm": "rms"}, {"n_layers": 1, "d_mlp": 0},
    {"mask": "none"},
])  # fmt: skip
def test_any_architecture_opens(chromium, tmp_path, options):
    made = report([("random", random_model(**options))], rows=5)
    with visits(chromium, {"random": made.save(tmp_path / "random.html")}) as go:
        tab = go("random")
        for button in tab.locator("#others .switch button", has_text="off").all()[:3]:
            button.click()
        assert tab.locator("#chips .chip").count() >= 1
