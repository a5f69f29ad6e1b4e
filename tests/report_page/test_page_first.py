"""The first screen of the live page: input, answer, steps, keys, address, theme, widths."""

import re

import pytest
from playwright.sync_api import expect

from cases import CASES
from glassformer import load, report_page, run
from glassformer.report_page.payload import model_payload
from helpers import raises
from report_page.visit import SLOWLY, page_of, visits

ADDER = "addition:digits=3"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first")
    return {
        "adder": page_of(folder, "adder", ADDER, inputs=["127+458", "999+1"]),
        "two": page_of(folder, "two", "addition:digits=3,order=ones", "adder-3.safetensors"),
        "three": page_of(folder, "three", *["addition:order=ones"] * 3, rows=10),
        "sort": page_of(folder, "sort", "lang/sort", inputs=["3 1 2 |"]),
        "apart": page_of(folder, "apart", "hello-world", "reverse"),
    }


pytestmark = pytest.mark.slow  # a page drawn for every test; test_page_parts.py is quick


@pytest.fixture
def visit(chromium, files):
    with visits(chromium, files) as go:
        yield go


def test_it_opens_with_an_input_and_its_answer(visit):
    tab = visit("adder")
    assert tab.title() == tab.inner_text("h1") == ADDER
    assert tab.input_value("#input") == "127+458" and tab.inner_text("#answer") == "0585"
    assert tab.locator("#tokens button > span").all_inner_texts() == list("127+458=0585")
    assert tab.inner_text("#step") == "token 1 of 4"
    assert tab.inner_text("#margin").startswith("0 leads 1 by ")
    assert abs(float(tab.inner_text("#margin b")) - 1131) < 1
    expect(tab.locator("#sentence em")).to_have_text("adds the operands")
    assert tab.locator("#problem").inner_text() == ""
    assert not tab.locator("#facts").evaluate("e => e.open")  # metadata folded, at the end


def test_every_change_of_the_input_runs_the_model(visit):
    tab = visit("adder")
    for text in ("999+1", "0+0", "5+7", "999+999"):
        tab.fill("#input", text)
        assert tab.inner_text("#answer") == run(load(ADDER), text).output


def test_an_invalid_input_shows_a_problem(visit):
    tab = visit("adder")
    tab.fill("#input", "12x")
    with raises("bad_argument"):
        run(load(ADDER), "12x")
    assert "3 digits" in tab.inner_text("#problem")
    assert "stale" in tab.get_attribute("#result", "class") and tab.inner_text("#answer") == "0585"
    pale = "e => getComputedStyle(e).opacity"  # everything of the previous input
    for place in (".answer-line", "#sentence", "#stage", "#heads .body", "#stream .body"):
        assert float(tab.locator(place).first.evaluate(pale)) < 0.5, place
    assert tab.locator("#weights .body").evaluate(pale) == "1"
    tab.fill("#input", "12+3")
    assert tab.inner_text("#problem") == "" and tab.inner_text("#answer") == "0015"
    assert tab.locator("#stage").evaluate(pale) == "1"


def test_the_bar_is_low_on_a_small_screen(visit):
    tab = visit("three", width=390)
    assert tab.locator("#answers").bounding_box()["height"] < 0.18 * 844
    tab.fill("#input", "12x")  # the problem is shown once
    results = [tab.inner_text(f"#problem{m}") for m in ("", "-1", "-2")]
    assert "3 digits" in results[0] and results[1:] == ["", ""]


def test_stepping_back_and_forth(visit):
    tab = visit("adder")
    assert tab.is_disabled("#step-back")
    written = []
    for step in range(4):
        assert tab.inner_text("#step") == f"token {step + 1} of 4"
        written.append(tab.inner_text("#answer .writing"))
        asking = tab.locator("#tokens .asking > span").inner_text()
        assert asking == "=058"[step]
        if step < 3:
            tab.click("#step-forward")
    assert written == list("0585") and tab.is_disabled("#step-forward")
    tab.click("#step-back")
    assert tab.inner_text("#step") == "token 3 of 4"


def test_enter_writes_the_answer_token_by_token(visit):
    tab = visit("adder")
    tab.fill("#input", "500+500")
    tab.press("#input", "Enter")
    assert tab.inner_text("#answer") == "1000"  # what is to come is there, pale
    assert tab.get_attribute("#play", "aria-pressed") == "true"
    expect(tab.locator("#step")).to_have_text("token 4 of 4", timeout=SLOWLY)
    expect(tab.locator("#play")).to_have_attribute("aria-pressed", "false")


def test_reduced_motion_is_respected(visit):
    tab = visit("adder", reduced_motion="reduce")
    tab.press("#input", "Enter")
    assert tab.inner_text("#step") == "token 4 of 4"
    assert tab.get_attribute("#play", "aria-pressed") == "false"


def test_keys(visit):
    tab = visit("adder")
    tab.locator("h1").click()
    tab.keyboard.press("ArrowRight")
    assert tab.inner_text("#step") == "token 2 of 4"
    tab.keyboard.press("End")
    assert tab.inner_text("#step") == "token 4 of 4"
    tab.keyboard.press("]")
    assert tab.get_attribute("#head-0-1", "aria-pressed") == "true"
    tab.keyboard.press("x")
    assert "0.1" in tab.inner_text("#chips")
    tab.keyboard.press("u")
    assert tab.inner_text("#chips") == ""
    tab.keyboard.press("t")
    assert tab.evaluate("document.activeElement.id") == "token-10"
    tab.keyboard.press("ArrowLeft")
    assert tab.evaluate("document.activeElement.id") == "token-9"
    tab.keyboard.press("Enter")
    assert tab.locator("#menu").is_visible()
    tab.keyboard.press("Escape")
    assert tab.locator("#menu").is_hidden()
    assert tab.evaluate("document.activeElement.id") == "token-9"
    tab.keyboard.press("?")
    assert "ablate or restore the selected head" in tab.inner_text("#keys")
    tab.keyboard.press("Escape")
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.id") == "input"
    tab.keyboard.type("x?")  # letters are letters there
    assert tab.input_value("#input") == "x?" and not tab.locator("#keys").is_visible()


def test_the_address_restores_the_page(visit):
    tab = visit("adder")
    tab.fill("#input", "999+1")
    tab.click("#step-forward")
    tab.click("#head-0-1")
    tab.click("#do-head-0-0-mean")
    tab.click("#grid td[data-i='3'][data-j='2']")
    tab.fill("#weight-value", "-1234.5")
    tab.press("#weight-value", "Enter")
    expect(tab).to_have_url(re.compile("edit=.*-1234.5"))
    seen = {name: tab.inner_text(f"#{name}") for name in ("answer", "margin", "step", "chips")}
    again = visit("adder", hash_=tab.evaluate("location.hash"))
    assert again.input_value("#input") == "999+1"
    assert {name: again.inner_text(f"#{name}") for name in seen} == seen
    assert again.get_attribute("#head-0-1", "aria-pressed") == "true"
    tab.evaluate("location.hash = '#input=5%2B7&step=3'")  # another address, the same page
    expect(tab.locator("#answer")).to_have_text("0012")
    assert tab.inner_text("#step") == "token 3 of 4" and tab.inner_text("#chips") == ""
    edited = again.locator("#grid td.edited")
    assert edited.count() == 1 and edited.inner_text() in ("−1234", "−1235")


@pytest.mark.parametrize("hash_", [
    "#input=%3Cb%3E&step=99999999999999999&head=0|7.7&head=9|0.0&part=0|head 9.9|zero&part=0|x|y",
    "#edit=0|__proto__|0|1&edit=0|embed.W_E|99,99|1&edit=0|embed.W_E|0,0|Infinity&snapshot=0|-1",
    "#head=length|0.0", "#edit=map|embed.W_E|0,0|1", "#snapshot=0|map", "#part=at|head 0.0|zero",
    "#model=nothing&step=-4&part=0|head 0.0|from|zz&edit=5|embed.W_E|0,0|1&%%%",
])  # fmt: skip
def test_an_invalid_address_is_harmless(visit, files, chromium, hash_):
    with visits(chromium, files) as go:
        context = chromium.new_context(offline=True)
        tab = context.new_page()
        tab.on("pageerror", lambda e: go.complaints.append(str(e)))
        tab.goto(files["adder"].as_uri() + hash_)
        tab.fill("#input", "1+2")
        expect(tab.locator("#answer")).to_have_text("0003")
        assert tab.locator("#chips").inner_text() == ""
        context.close()


def test_light_and_dark(visit):
    grounds = {}
    for scheme in ("light", "dark"):
        tab = visit("adder", color_scheme=scheme)
        ground = "getComputedStyle(document.documentElement).backgroundColor"
        grounds[scheme] = tab.evaluate(ground)
        tab.click("#theme")
        assert tab.evaluate(ground) != grounds[scheme]
        pixel = "document.querySelector('#attention canvas').getContext('2d')"
        there = tab.evaluate(f"Array.from({pixel}.getImageData(0, 0, 1, 1).data)")
        tab.click("#theme")
        expect(tab.locator("#attention canvas")).to_be_visible()
        back = tab.evaluate(f"Array.from({pixel}.getImageData(0, 0, 1, 1).data)")
        assert there != back and there[2] > there[0]  # the map follows; more is blue in both
    assert grounds["light"] != grounds["dark"]


@pytest.mark.parametrize("name", ["adder", "two", "sort", "apart"])
def test_no_width_scrolls_sideways(visit, name):
    tab = visit(name, width=2560)
    for width in (2560, 1280, 768, 390):
        tab.set_viewport_size({"width": width, "height": 900})
        expect(tab.locator("#columns")).to_have_attribute("data-width", str(width))
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, width


def test_models_side_by_side_on_one_input(visit):
    tab = visit("two")
    assert tab.locator("input#input").count() == 1 and tab.locator("#input-1").count() == 0
    tab.fill("#input", "85+17")
    assert tab.inner_text("#answer") == tab.inner_text("#answer-1") == "2010"
    first, second = (tab.locator(s).bounding_box() for s in ("#model", "#model-1"))
    assert first["y"] == second["y"] and second["x"] > first["x"] + first["width"] - 1
    tab.click("#step-forward")
    assert tab.inner_text("#answer .writing") == tab.inner_text("#answer-1 .writing") == "0"
    tab.click("#do-head-1-0-zero-1")
    assert tab.inner_text("#chips") == "" and "head 1.0" in tab.inner_text("#chips-1")
    tab.set_viewport_size({"width": 390, "height": 800})
    both = "[...document.querySelectorAll('#model, #model-1')]"  # at one moment: things still move
    first, second = tab.evaluate(f"() => {both}.map((m) => m.getBoundingClientRect().toJSON())")
    assert second["y"] >= first["y"] + first["height"]  # one after the other


def test_models_of_different_tasks_have_their_own_inputs(visit):
    tab = visit("apart")
    tab.fill("#input-1", "54321")
    assert tab.inner_text("#answer-1") == "12345"
    assert tab.inner_text("#answer").startswith("ello") or "Hello" in tab.inner_text("#answer")
    assert tab.locator("#heads").is_hidden() and tab.locator("#heads-1").is_visible()


def test_it_prints(visit):
    tab = visit("adder", color_scheme="dark")
    pixel = "document.querySelector('#attention canvas').getContext('2d')"
    corner = f"Array.from({pixel}.getImageData(0, 7, 1, 1).data.slice(0, 3))"
    assert max(tab.evaluate(corner)) < 100
    tab.emulate_media(media="print")
    expect(tab.locator("#walk")).to_be_hidden()
    assert min(tab.evaluate(corner)) > 150  # dark on the screen, light on paper
    assert tab.locator("#answer").is_visible() and tab.locator("#tokens").is_visible()
    assert tab.locator("#walk").is_hidden() and tab.locator("#heads .switch").first.is_hidden()


@pytest.mark.slow
@pytest.mark.parametrize("ref, text, output", CASES, ids=[case[0] for case in CASES])
def test_every_case(chromium, tmp_path, ref, text, output):
    reported = model_payload(load(ref), ref, inputs=[text], rows=1)
    path = tmp_path / "case.html"
    path.write_bytes(report_page.assemble({"title": ref, "models": [reported]}))
    with visits(chromium, {"case": path}) as go:
        tab = go("case")
        tab.fill("#input", text)
        expect(tab.locator("#answer")).to_have_text(output or "empty answer")
