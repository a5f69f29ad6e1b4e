"""The walkthroughs of docs/explained as offline pages with running models."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from glassformer.report_page import explained
from report_page.visit import SLOWLY, visits

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    """All walkthroughs, written once: {title: file}."""
    folder = tmp_path_factory.mktemp("walks") / "explained"
    return explained.write_walkthroughs(folder)


def test_they_are_those_of_the_documents():
    listed = (ROOT / "docs/explained/README.md").read_text()
    assert [*explained.WALKTHROUGHS] == re.findall(r"\]\(([\w-]+)\.md\)", listed)


def test_the_package_has_all_that_they_need():
    """pyproject.toml puts these documents into the wheel."""
    project = (ROOT / "pyproject.toml").read_text()
    taken = re.findall(r'^"(docs/[^"]+)" = "glassformer/\1"$', project, re.MULTILINE)
    assert explained.DOCS_FOLDER in taken
    for name in explained.WALKTHROUGHS:
        text = (ROOT / explained.DOCS_FOLDER / f"{name}.md").read_text()
        result = explained.LIVE_COMMENT.search(text)
        for path in re.findall(r"docs/[\w./-]+", result["refs"]):
            assert path.startswith(explained.DOCS_FOLDER) and (ROOT / path).exists()
        for picture in re.findall(r"!\[.*?\]\(\.\./(.*?)\)", explained.LIVE_COMMENT.sub("", text)):
            assert f"docs/{picture}" in taken and (ROOT / "docs" / picture).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", explained.WALKTHROUGHS)
def test_a_walk_runs_beside_its_text(chromium, walks, name):
    files = {path.stem: path for path in next(iter(walks.values())).parent.iterdir()}
    with visits(chromium, files) as go:
        context = chromium.new_context(offline=True, viewport={"width": 1400, "height": 900})
        go.contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda m: go.complaints.append(m.text))
        tab.on("request", go.asked)
        tab.goto(files[name].as_uri())
        title = tab.inner_text("h1")
        assert walks[title] == files[name] and tab.title() == title
        assert tab.inner_text("nav [aria-current]") == title
        live = tab.frame_locator("iframe")
        expect(live.locator("#answer")).not_to_be_empty(timeout=SLOWLY)
        at = explained.LIVE_COMMENT.search(
            (ROOT / explained.DOCS_FOLDER / f"{name}.md").read_text()
        )["at"]
        if at:  # the page opens with an input
            asked = at.removeprefix("#input=").replace("%2B", "+").replace("%20", " ")
            expect(live.locator("#input")).to_have_value(asked.replace("%7C", "|"))
        frame, first = (tab.locator(s).bounding_box() for s in ("iframe", "main > p >> nth=0"))
        assert frame["x"] > first["x"] + first["width"] - 1  # beside it
        tab.set_viewport_size({"width": 390, "height": 800})
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        for link in tab.locator("main a").all():
            where = link.get_attribute("href").split("#")[0]
            assert (files[name].parent / where).is_file(), where
