"""The puzzles in the page, with a server and without one."""

import json

import pytest
from playwright.sync_api import expect

from glassformer import load, report_page
from glassformer.puzzles import levels
from glassformer.puzzles.level import AXES
from glassformer.report_page.payload import model_payload
from puzzles.measure import SOLUTIONS
from puzzles.walks import TOLD, WALKS
from server.conftest import ADDER, serving

PATIENCE = 60_000  # milliseconds: machines may be busy
MARKUP = "<img src=x onerror=hacked=1><script>hacked=1</script>"


@pytest.fixture(scope="module")
def server():
    with serving([ADDER]) as result:
        yield result.open


@pytest.fixture
def opened(chromium):
    """opened(address) -> a page. A browser error fails the test."""
    complaints = []
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE)

    def visit(address):
        tab = context.new_page()
        tab.on("console", lambda m: complaints.append(f"{m.type}: {m.text}"))
        tab.on("pageerror", lambda e: complaints.append(str(e)))
        tab.goto(address)
        return tab

    yield visit
    context.close()
    assert complaints == []


@pytest.fixture
def file(tmp_path):
    """file(levels) -> the address of a page without a server."""

    def made(given):
        models = [model_payload(load(ADDER), ADDER)]
        data = {"title": "a page", "models": models, "notes": [], "footer": "", "levels": given}
        path = tmp_path / "page.html"
        path.write_bytes(report_page.assemble(data))
        return path.as_uri()

    return made


def shown():
    return [json.loads(json.dumps(each.to_json())) for each in levels().values()]


def checked(tab):
    """Return the judgement of the text in the box."""
    tab.click("#check")
    expect(tab.locator("#judgement .verdict")).to_be_visible(timeout=PATIENCE)
    return tab.text_content("#judgement .verdict").replace("Not judged", "not judged")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n != "traffic-light")) for n in WALKS]
)
def test_a_level_is_solved_by_following_only_the_page(opened, server, name):
    tab = opened(server.address)
    tab.click("#to-puzzles")
    tab.select_option("#level", name)
    assert tab.text_content("#goal") == levels()[name].goal
    assert tab.locator("#hints li").count() == 0 and checked(tab).startswith(TOLD[name][0])
    for (hint, old, new), reported in zip(WALKS[name], TOLD[name][1:], strict=True):
        while tab.locator("#hints li").count() < hint:
            tab.click("#hint")
        text = tab.input_value("#solution")
        assert old in text
        tab.fill("#solution", text.replace(old, new) if old else text)
        assert checked(tab).startswith(reported)
    expect(tab.locator("#progress")).to_have_text(f"1 of {len(levels())} solved")
    rows = tab.locator("#judgement tr").all_text_contents()
    best = levels()[name].best["parameters"]
    assert len(rows) == 6 and rows[1].startswith("parameters") and str(best) in rows[1]
    assert all(row.startswith(name) for row, name in zip(rows[1:], AXES.values(), strict=True))
    text, after = tab.input_value("#solution"), levels()[name].number + 1
    tab.click("#next-level")
    assert tab.text_content("#level option:checked").startswith(f"{after} ")
    tab.reload()  # what was solved is kept, and how
    expect(tab.locator("#progress")).to_have_text(f"1 of {len(levels())} solved")
    tab.select_option("#level", name)
    assert tab.text_content("#level option:checked").endswith("✓")
    assert tab.input_value("#solution") == text
    tab.click("#begin-again")
    assert tab.input_value("#solution") == levels()[name].stub


def test_a_judgement_disappears_when_the_text_changes(opened, server):
    tab, place = opened(server.address), "#judgement"
    solved = (SOLUTIONS / "traffic-light.1.taotp").read_text("utf-8")
    tab.fill("#solution", solved)
    assert checked(tab).startswith("right")
    tab.fill("#solution", "another")
    expect(tab.locator(place)).to_be_empty()
    assert checked(tab).startswith("not judged")
    tab.click("#begin-again")
    expect(tab.locator(place)).to_be_empty()
    tab.fill("#solution", solved)
    held = []
    tab.route("**/api/check", lambda route: held.append(route))
    tab.click("#check")
    expect(tab.locator(place)).to_contain_text("Judging")
    tab.press("#solution", "End")
    tab.keyboard.type(" ")  # while it is being judged
    expect(tab.locator(place)).to_be_empty()
    held[0].continue_()
    expect(tab.locator("#check")).to_be_enabled(timeout=PATIENCE)
    expect(tab.locator(place)).to_be_empty()
    expect(tab.locator("#progress")).to_have_text(f"1 of {len(levels())} solved")


@pytest.mark.slow
def test_a_solution_wrong_outside_of_the_examples_is_refused(opened, server):
    tab = opened(server.address)
    tab.select_option("#level", "the-largest")
    text = (SOLUTIONS / "the-largest.1.taotp").read_text("utf-8").replace("-1e4", "-5")
    tab.fill("#solution", text)
    tab.press("#solution", "Control+Enter")
    expect(tab.locator("#judgement .verdict")).to_have_class("verdict wrong", timeout=PATIENCE)
    output = tab.text_content("#judgement .verdict")
    assert output.endswith("questions; the smallest: 0 0 1 → 0, expected 1")
    expect(tab.locator("#progress")).to_have_text(f"0 of {len(levels())} solved")


def test_no_solution_is_in_the_page(opened, server):
    html = "".join(opened(server.address).content().split())
    assert levels()["traffic-light"].goal.replace(" ", "") in html
    for path in SOLUTIONS.iterdir():
        text = path.read_text("utf-8")
        for reported in (text, json.dumps(text)[1:-1]):
            assert "".join(reported.split()) not in html, path.name


def test_without_a_server_it_shows_the_command(opened, file):
    tab = opened(file(shown()))
    assert tab.locator("#check").count() == 0
    command = "glassformer puzzle check traffic-light traffic-light.taotp"
    assert tab.text_content("#judgement code") == command
    tab.fill("#solution", "mine")
    with tab.expect_download() as saved:
        tab.click("#save-solution")
    assert saved.value.suggested_filename == "traffic-light.taotp"
    assert saved.value.path().read_text("utf-8") == "mine"
    tab.click("#level-after")
    assert tab.input_value("#solution") == levels()["echo"].stub
    tab.click("#level-before")
    assert tab.input_value("#solution") == "mine"


def test_a_page_without_levels_has_no_puzzles(opened, file):
    tab = opened(file([]))
    assert tab.locator("#puzzles, #to-puzzles").count() == 0


def test_texts_are_texts(opened, file):
    """Markup in levels and in stored progress."""
    evil = shown()[0] | dict.fromkeys(("title", "goal", "stub", "command", "read"), MARKUP)
    evil |= {"hints": [MARKUP], "examples": {MARKUP: MARKUP}}
    address = file([evil])
    tab = opened(address)
    tab.evaluate("() => localStorage.setItem('glassformer.puzzles', '[\"x\"]')")
    tab.reload()
    tab.click("#hint")
    assert tab.text_content("#goal") == MARKUP == tab.text_content("#hints li")
    kept = {"traffic-light": {"text": 7, "hints": "x", "solved": True, "score": MARKUP}}
    tab.evaluate("t => localStorage.setItem('glassformer.puzzles', t)", json.dumps(kept))
    tab.reload()
    assert tab.input_value("#solution") == MARKUP
    assert tab.evaluate("() => typeof hacked") == "undefined"
