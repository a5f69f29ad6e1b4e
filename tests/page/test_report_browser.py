"""The report in a real browser: it opens without a network, says nothing to the console, and
answers the hand.
"""

import shutil

import pytest
from playwright.sync_api import sync_playwright

from cases import CASES
from glassformer import load
from glassformer.page.report import report, write
from page.nasty import NASTY, nasty_model

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
]
ADDERS = (
    "addition:digits=2",
    "addition:digits=2,padding=none",
)  # both read 45+78; the second has 3 layers of 2 heads
CASE = next(case for case in CASES if case[0] == ADDERS[0])


@pytest.fixture(scope="module")
def browser():
    found = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    assert found, (
        "these tests open the report in Chromium, which is not installed: apt-get install chromium"
    )
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    pages = {
        "adders": report([(ref, load(ref)) for ref in ADDERS], [CASE[1], "0+0", "99+99"], rows=30),
        "apart": report(
            [("hello-world", load("hello-world")), ("reverse", load("reverse"))], rows=30
        ),
        "nasty": report(
            [(NASTY[0], nasty_model())],
            ["<b>|<img src=x onerror=hacked=1>|&lt;", "{{data}}"],
            rows=10,
        ),
    }
    return {name: write(made, folder / f"{name}.html") for name, made in pages.items()}


@pytest.fixture
def visit(browser, files):
    """visit("adders") -> the page, opened; whatever it complained of or asked for fails the
    test at its end.
    """
    contexts, complaints, asked = [], [], []

    def go(name, width=1300):
        context = browser.new_context(viewport={"width": width, "height": 900}, offline=True)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: complaints.append(f"{m.type}: {m.text}"))
        page.on("pageerror", lambda e: complaints.append(str(e)))
        page.on("request", lambda r: asked.append(r.url))
        page.goto(files[name].as_uri())
        page.wait_for_selector("#controls select")
        return page

    yield go
    for context in contexts:
        context.close()
    assert complaints == []
    assert len(asked) == len(contexts) and all(
        url.startswith("file:") and url.endswith(".html") for url in asked
    )


def panel(page, section, model=0):
    return page.locator(f"#{section} .panel").nth(model)


def plotted(page, section, model=0, what="data[0].z"):
    """What Plotly was given for the first chart of a panel."""
    chart = panel(page, section, model).locator(".js-plotly-plot").first
    return chart.evaluate(f"chart => JSON.parse(JSON.stringify(chart.{what}))")


def test_it_opens_and_draws_every_section(visit, tmp_path):
    page = visit("adders")
    assert page.title() == page.inner_text("h1") == " and ".join(ADDERS)
    shown = page.locator("main > section:visible h2").all_inner_texts()
    assert len(shown) == 6 and shown[1] == "Tokens and attention"  # no spectrum, no training
    assert "0 wrong of 10,000 (every input)" in panel(page, "card").inner_text()
    for section in ("attention", "decoding", "margin", "embeddings", "ablation"):
        assert page.locator(f"#{section} .panel").count() == 2
        assert page.locator(f"#{section} .js-plotly-plot .plotly").count() >= 2
    page.screenshot(path=tmp_path / "wide.png", full_page=True)


def test_hovering_a_token_shows_its_row(visit):
    page = visit("adders")
    tokens, says = (
        panel(page, "attention").locator(".tokens > *"),
        panel(page, "attention").locator(".row-says"),
    )
    said = []
    for t in (2, 5):
        tokens.nth(t).hover()
        said.append(says.inner_text())
        box = plotted(page, "attention", what="layout.shapes[0]")
        assert (box["y0"], box["y1"]) == (t - 0.5, t + 0.5)
        assert "asking" in tokens.nth(t).get_attribute("class")
        weights = plotted(page, "attention")[t]
        shades = tokens.evaluate_all("all => all.map(e => e.style.backgroundColor)")
        assert shades[weights.index(max(weights))] != "rgb(255, 255, 255)" == shades[-1]
    assert said[0].startswith("Position 2, ‘+’") and said[1].startswith(
        "Position 5, ‘=’ (then writes ‘1’)"
    )
    tokens.nth(5).focus()
    page.keyboard.press("ArrowLeft")
    assert says.inner_text().startswith("Position 4,")


def test_hovering_the_map_shows_its_row(visit):
    page = visit("adders")
    chart = panel(page, "attention").locator(".js-plotly-plot")
    chart.scroll_into_view_if_needed()
    area = chart.locator(".nsewdrag").bounding_box()
    rows = len(plotted(page, "attention"))
    page.mouse.move(area["x"] + area["width"] / 2, area["y"] + area["height"] * 1.5 / rows)
    page.wait_for_function(
        "() => document.querySelector('#attention .row-says').textContent.startsWith('Position 1,')"
    )


def test_picking_a_head_and_a_layer_changes_the_map(visit):
    page = visit("adders")
    seen = [plotted(page, "attention", 1)]
    page.select_option("#layer-1", "2")
    seen.append(plotted(page, "attention", 1))
    page.focus("#head-1")
    page.select_option("#head-1", "1")
    seen.append(plotted(page, "attention", 1))
    assert seen[0] != seen[1] != seen[2] and all(
        abs(sum(row) - 1) < 0.01 for z in seen for row in z
    )
    assert page.evaluate("document.activeElement.id") == "head-1"
    panel(page, "attention", 1).locator("td button").first.click()
    assert plotted(page, "attention", 1) == seen[0]
    assert page.input_value("#layer-1") == "0"


def test_outlines_come_and_go(visit):
    page = visit("adders")
    count = len(plotted(page, "attention", what="layout.shapes"))
    page.uncheck("#roles-0")
    assert len(plotted(page, "attention", what="layout.shapes")) < count


def test_stepping_through_decoding(visit):
    page = visit("adders")
    assert page.is_disabled("#previous-0")
    tokens, margins = [], []
    for step in range(len(CASE[2])):
        assert page.inner_text("#step-0").startswith(f"token {step + 1} of ")
        says = panel(page, "decoding").locator(".step-says").inner_text()
        tokens.append(says.split("it writes ‘")[1][0])
        margins.append(plotted(page, "margin", what="data[0].x"))
        assert (
            panel(page, "attention")
            .locator(".row-says")
            .inner_text()
            .startswith(f"Position {5 + step},")
        )
        if not page.is_disabled("#next-0"):
            page.click("#next-0")
    assert "".join(tokens) == CASE[2] == panel(page, "decoding").locator(".answer").inner_text()
    assert margins[0] != margins[1] != margins[2]
    panel(page, "decoding").locator(".tokens button").first.click()
    assert page.inner_text("#step-0").startswith("token 1 of ")


def test_switching_the_input(visit):
    page = visit("adders")
    before = plotted(page, "decoding", what="data[0].x")
    page.select_option("#input-0", label="99+99")
    for model, answer in enumerate(("198", "198")):
        assert panel(page, "decoding", model).locator(".answer").inner_text() == answer
    assert panel(page, "attention").locator(".tokens").inner_text().split()[:5] == list("99+99")
    assert plotted(page, "attention", what="layout.xaxis.ticktext")[:5] == list("99+99")
    assert plotted(page, "decoding", what="data[0].x") != before


def test_models_of_different_tasks_have_their_own_inputs(visit):
    page = visit("apart")
    assert page.locator("#controls select").count() == 2
    page.click("#next-1")
    assert page.inner_text("#step-0").startswith("token 1") and page.inner_text(
        "#step-1"
    ).startswith("token 2")
    assert "no layers" in panel(page, "attention").inner_text()


def test_a_narrow_screen_stacks_the_models(visit, tmp_path):
    page = visit("adders", width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    first, second = (panel(page, "attention", m).bounding_box() for m in (0, 1))
    assert second["y"] >= first["y"] + first["height"] and first["x"] == second["x"]
    page.screenshot(path=tmp_path / "narrow.png", full_page=True)


def test_markup_in_a_model_is_shown_and_not_obeyed(visit):
    page = visit("nasty")
    tokens = panel(page, "attention").locator(".tokens > *").all_inner_texts()
    assert tokens[:3] == ["<b>", "<img␣src=x␣onerror=hacked=1>", "&lt;"]
    assert page.inner_text("h1") == NASTY[0]
    ticks = panel(page, "attention").locator(".ytick text").all_text_contents()
    assert ticks[:3] == tokens[:3]  # as Plotly shows them
    for m in range(4):
        page.select_option("#layer-0", str(m // 2))
        page.select_option("#head-0", str(m % 2))
    page.select_option("#input-0", "1")
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.locator("main img, main b, main script").count() == 0
