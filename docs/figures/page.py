"""Draws page.png, the picture of the report at the head of the README: a hand-made adder and a
trained one, where they look. Needs the extras report and test, and Chromium.
"""

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import glassformer as gf

with tempfile.TemporaryDirectory() as folder, sync_playwright() as browsers:
    page = Path(folder, "page.html")
    gf.report(["addition:order=ones", "adder-3.safetensors"], page)
    browser = browsers.chromium.launch(executable_path=shutil.which("chromium"))
    tab = browser.new_page(viewport={"width": 1280, "height": 1700})
    tab.goto(page.as_uri())
    tab.get_by_role("button", name="Next token").click(click_count=2)
    tab.wait_for_timeout(1000)
    top = tab.locator("#attention h3").first.bounding_box()
    end = tab.locator("#attention").get_by_text("All heads").first.bounding_box()
    assert top and end
    area = {"x": 0, "y": top["y"] - 10, "width": 1280, "height": end["y"] - top["y"]}
    picture = Image.open(io.BytesIO(tab.screenshot(clip=area)))
    browser.close()
picture.convert("RGB").quantize(256).save(Path(__file__).with_name("page.png"), optimize=True)
