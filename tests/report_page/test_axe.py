"""axe finds no accessibility problem at any width, light and dark."""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from glassformer.report_page import explained
from report_page.visit import SLOWLY, page_of
from server.conftest import ADDER, serving

GROK = Path(__file__).parents[2] / "docs/explained/grok-seen"
LOOKS = [("light", 390), ("dark", 1280), ("light", 2560)]
WRONG = 'tokens = [*"abc"]\nlength = 6\nemit = firs(token, default="a")\n'


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of hand-made, compiled and trained models, side by side, and of a text."""
    folder = tmp_path_factory.mktemp("axe")
    last, history = str(GROK / "step-004000.safetensors"), GROK / "history.jsonl"
    text = explained.walkthrough_page("160-numbers", {"160-numbers": "How", "sort": "A sort"})
    (folder / "text.html").write_bytes(text)
    return [
        page_of(folder, "adder", "addition:digits=3"),
        page_of(
            folder, "three", "addition:order=ones", "adder-3.safetensors", "book-3.safetensors"
        ),
        page_of(folder, "sort", "lang/sort:vocab=5,length=4"),
        page_of(folder, "trained", last, snapshots=[GROK], history=[history]),
        folder / "text.html",
    ]


@pytest.fixture(scope="module")
def server():
    with serving([ADDER]) as result:
        yield result.open


def complaints(tab):
    """Return the violations of a page with their elements."""
    result = Axe().run(tab).response["violations"]
    return [(v["id"], [" ".join(n["target"]) for n in v["nodes"]][:3]) for v in result]


def test_axe_finds_what_is_there(chromium):
    """A page with a violation, to check axe itself."""
    tab = chromium.new_page()
    tab.set_content('<html lang="en"><title>x</title><main><h1>x</h1><img src="data:,"></main>')
    assert [name for name, _ in complaints(tab)] == ["image-alt"]
    tab.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme, width", LOOKS)
def test_axe_finds_nothing(chromium, pages, server, scheme, width):
    context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    context.set_default_timeout(SLOWLY)
    tab, result = context.new_page(), {}
    for path in pages:
        tab.goto(path.as_uri())
        if path.stem != "text":
            expect(tab.locator("#score")).to_contain_text("examples right", timeout=SLOWLY)
            tab.click("#heads .switch button >> nth=1")  # an ablation
            expect(tab.locator("#chips .chip")).to_be_visible()
        result[path.stem] = complaints(tab)
    tab.goto(server.address)  # an invalid source, a hint, a proof
    tab.fill("#source-text", WRONG)
    expect(tab.locator("#source-errors li")).to_have_count(1, timeout=SLOWLY)
    tab.click("#hint")
    tab.click("#check")
    expect(tab.locator("#judgement .verdict")).to_be_visible(timeout=SLOWLY)
    tab.click("#prove")
    expect(tab.locator("#judged")).to_have_attribute("data-result", "proved", timeout=SLOWLY)
    result["open"] = complaints(tab)
    context.close()
    assert not {name: output for name, output in result.items() if output}
