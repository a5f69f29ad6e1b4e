"""The site: every document is in it, whatever can run is run, and it is built without a warning.

What the site must show is looked at as a reader would: in a browser, from the disk, offline.
"""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import glassformer as gf
from test_docs import FENCE, RUN, transcript

ROOT = Path(__file__).parents[1]
SETTINGS = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
SECTIONS = (
    "Start", "Guide", "Gallery", "Language", "Exercises", "Ground truth", "Proofs", "Reference",
    "How it works", "Log",
)  # fmt: skip


def pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from pages(item)


PAGES = list(pages(SETTINGS["nav"]))
WRITTEN = {
    page: ROOT / (page.removeprefix("source/") if "source/" in page else f"docs/{page}")
    for page in PAGES
    if not page.startswith("api/")
}


def test_sections():
    named = [name for section in SETTINGS["nav"] for name in section]
    assert [name for name in named if name in SECTIONS] == list(SECTIONS)


def test_every_document_is_in_the_nav():
    assert {p.relative_to(ROOT / "docs").as_posix() for p in ROOT.glob("docs/**/*.md")} <= {*PAGES}
    assert all(path.exists() for path in WRITTEN.values())


def runnable(text: str) -> list[str]:
    """The blocks of a document that say what comes out: Python, and commands after a `$`."""
    return [
        body
        for language, body in FENCE.findall(text)
        if language == "python" or (language in ("", "sh", "text") and transcript(body))
    ]


@pytest.mark.parametrize("page", WRITTEN)
def test_what_can_run_is_run(page):
    name = WRITTEN[page].relative_to(ROOT).as_posix()
    assert name in RUN or not runnable(WRITTEN[page].read_text())


def test_what_is_runnable():
    output = "```python\n1\n```\n```\n$ glassformer list\n```\n```\nglassformer list\n```\n"
    assert runnable(output) == ["1\n", "$ glassformer list\n"]


@pytest.mark.parametrize("page", [p for p in PAGES if p.startswith("api/")])
def test_a_page_of_the_reference_is_named_after_a_room(page):
    assert importlib.util.find_spec(f"glassformer.{Path(page).stem}")


def test_answers_are_folded():
    """Nothing of an answer stands in the open: only what is asked, and how to run the answers."""
    text = (ROOT / "docs/exercises.md").read_text()
    folded = re.findall(r"<details markdown>.*?</details>", text, re.DOTALL)
    asked = re.findall(r"^\*\*\d\.\d+\*\* ", text, re.MULTILINE)
    assert len(folded) == len(asked) > 70
    open_ = re.sub(r"<details markdown>.*?</details>", "", text, flags=re.DOTALL).split("## ", 1)[1]
    assert not re.search(r"\*\*(code|words|open)\b", open_, re.IGNORECASE)


# ── as it is built ─────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if sys.version_info < (3, 11):
        pytest.skip("what builds the site needs Python 3.11")
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    run = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PYTHONUTF8": "1"}
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_built(site):
    for page in PAGES:
        html = page.removesuffix(".md") + ".html"
        assert (site / re.sub(r"(^|/)README\.html$", r"\1index.html", html)).exists(), page


@pytest.mark.slow
def test_the_page_of_public_functions_is_complete(site):
    text = (site / "api/api.html").read_text("utf-8")
    assert not [
        n for n in [*gf.__all__, "list", "compile"] if not re.search(rf">\s*gf\.{n}\s*<", text)
    ]


@pytest.mark.slow
def test_links_to_files_of_the_repository_stay_in_the_site(site):
    text = (site / "how-it-works.html").read_text("utf-8")
    for name in ("src/glassformer/core/model.py", "src/glassformer/lens", "tests/test_imports.py"):
        assert f'href="source/{name}.html"' in text
        assert (site / f"source/{name}.html").exists()
    assert "def forward" in re.sub(
        "<[^>]*>", "", (site / "source/src/glassformer/core/model.py.html").read_text("utf-8")
    )


@pytest.mark.slow
@pytest.mark.parametrize("scheme,dark", [("light", False), ("dark", True)])
def test_from_a_disk_without_a_network(site, chromium, scheme, dark):
    """Search finds, colours follow the system and the button, and nothing is asked of a network."""
    asked, wrong = [], []
    page = chromium.new_page(viewport={"width": 390, "height": 800}, color_scheme=scheme)
    page.on("request", lambda r: asked.append(r.url))
    page.on("pageerror", lambda e: wrong.append(str(e)))
    for name in ("index", "guide/01-start", "reference", "exercises", "api/api", "gallery"):
        page.goto((site / f"{name}.html").as_uri())
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{name} is wider than a telephone"
    page.set_viewport_size({"width": 1280, "height": 900})
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", colour)[:3])) < 80) is dark
    page.locator("label[for^=__palette]:visible").click()
    other = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", other)[:3])) < 80) is not dark
    page.get_by_placeholder("Search").press_sequentially("interchange", delay=30)
    page.locator(".md-search-result__item a").first.wait_for()
    page.close()
    assert not wrong
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))]
