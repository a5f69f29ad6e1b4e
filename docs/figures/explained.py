"""Draw the pictures of docs/explained, which replace the site's live pages in the repository.

Needs the extra test, and Chromium.
"""

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import glassformer as gf
from glassformer.report_page.report import report

HERE = Path(__file__).parent
SEEN = HERE.parent / "explained/grok-seen"
PICTURES = {  # name -> refs, folder of snapshots, address
    "add": (["addition:digits=3"], None, "input=127%2B458&step=2"),
    "trained": (["addition:order=ones", "adder-3.safetensors"], None, "input=127%2B458&step=1"),
    "sort": (["lang/sort:vocab=5,length=4"], None, "input=3+1+2+1+%7C"),
    "grokking": ([str(SEEN / "step-004000.safetensors")], SEEN, "snapshot=0%7C7"),
}


def draw(browser, name, refs, folder, at):
    """Draw the first screen of a page."""
    with tempfile.TemporaryDirectory() as temporary:
        named = [(Path(ref).name, gf.load(ref)) for ref in refs]
        run = {"snapshots": [folder], "history": [folder / "history.jsonl"]} if folder else {}
        page = report(named, **run).save(Path(temporary, "p.html"))
        tab = browser.new_page(viewport={"width": 1200, "height": 820}, device_scale_factor=1.5)
        tab.goto(f"{page.as_uri()}#{at}")
        tab.wait_for_timeout(2500)
        picture = Image.open(io.BytesIO(tab.screenshot()))
    picture.convert("RGB").quantize(128).save(HERE / f"explained-{name}.png", optimize=True)


if __name__ == "__main__":
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name, options in PICTURES.items():
            draw(browser, name, *options)
        browser.close()
