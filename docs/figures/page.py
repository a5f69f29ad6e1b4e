"""Draw page.png, the report page at the top of the README: two adders on one input.

    python docs/figures/page.py            draw it, and write its words and numbers
    python docs/figures/page.py --check    compare the page with these, without drawing

Needs the extra test, and Chromium.
"""

import io
import re
import shutil
import tempfile
from pathlib import Path

from current import keep
from PIL import Image
from playwright.sync_api import expect, sync_playwright

import glassformer as gf

# The text of all elements in the window: the picture shows no more of the page.
SEEN = """() => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  for (let node; (node = walk.nextNode()); ) {
    const box = node.parentElement.getBoundingClientRect();
    const there = box.width && box.height && box.bottom > 0 && box.top < innerHeight;
    if (there && !["SCRIPT", "STYLE"].includes(node.parentElement.tagName)) found.push(node.data);
  }
  return found;
}"""

with tempfile.TemporaryDirectory() as folder, sync_playwright() as browsers:
    page = Path(folder, "page.html")
    gf.report(["addition:order=ones", "adder-3.safetensors"], page, inputs=["123+456"], rows=200)
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = browsers.chromium.launch(
        executable_path=next(filter(None, map(shutil.which, names)), None), args=["--no-sandbox"]
    )
    tab = browser.new_page(viewport={"width": 1280, "height": 820}, color_scheme="light")
    tab.goto(page.as_uri())
    tab.click("#step-forward")
    scores = [tab.locator(score) for score in ("#score", "#score-1")]
    for score in scores:
        expect(score).to_contain_text("examples right", timeout=60_000)
    tab.hover("#head-0-0")
    words = sorted({w for text in tab.evaluate(SEEN) for w in re.findall(r"[^\W\d_]{3,}", text)})
    rows = [[float(n) for n in re.findall(r"\d+", score.inner_text())[:2]] for score in scores]
    picture = Image.open(io.BytesIO(tab.screenshot()))
    browser.close()
picture = picture.convert("RGB").quantize(256)
keep("page.png", {"words": words, "rows": rows}, lambda path: picture.save(path, optimize=True))
