"""Measure the size and speed of the live page in the system's Chromium, each beside its limit.

python benchmarks/page.py

Times are by the browser's clock: from a key event to the painted frame that shows the answer, and
from an edit until the worker has scored all examples.
"""

import shutil
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

import glassformer as gf
import timing  # noqa: F401 - one thread, before NumPy
from glassformer.report_page.report import report

REF = "addition:digits=3"
BYTES, KEY, SCORE = (
    400_000,
    50,
    1_000,
)  # limits: bytes of a page, ms per key, ms to score all examples
KEYS, EDITS = 100, 10

# From a key event until the resulting frame is painted.
CLOCK = """() => {
    window.times = [];
    document.addEventListener("keydown", () => {
        const start = performance.now();
        requestAnimationFrame(() => setTimeout(() => window.times.push(performance.now() - start)));
    }, true);
}"""
EDITED = """async ([value]) => {
    const base = readModel(JSON.parse(document.getElementById("data").textContent).models[0]);
    await score(base, []);  // start the worker
    const start = performance.now();
    const result = await score(edited(base, [{name: "embed.W_E", index: [3, 2], value}]), []);
    return [performance.now() - start, result.total];
}"""


def line(label, figure, limit, unit):
    """Print a figure beside its limit and return whether it is within it."""
    good = figure <= limit
    comparison = f"{figure:12,.1f} {unit:5} limit {limit:9,} {unit:5}"
    print(f"{label:52} {comparison} {'ok' if good else 'TOO MUCH'}")
    return good


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = report([(REF, gf.load(REF))]).save(Path(folder) / "page.html")
        good = line(f"page of {REF}", path.stat().st_size, BYTES, "bytes")
        with sync_playwright() as p:
            browser = p.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            tab.goto(path.as_uri())
            expect(tab.locator("#answer")).to_have_text("0579")
            expect(tab.locator("#score")).to_contain_text("2,000 examples right", timeout=60_000)
            tab.fill("#input", "12+34")
            tab.focus("#input")
            tab.press("#input", "End")
            tab.evaluate(CLOCK)
            for i in range(KEYS):  # type a digit, then delete it
                digit = i // 2 % 10
                tab.keyboard.press("Backspace" if i % 2 else str(digit))
                while tab.evaluate("times.length") <= i:
                    tab.wait_for_timeout(1)
                right = f"{12 + (34 if i % 2 else 340 + digit):04}"
                assert tab.inner_text("#answer") == right, (tab.input_value("#input"), right)
            good &= line(f"a key to the repainted answer, median of {KEYS}",
                         statistics.median(tab.evaluate("times")), KEY, "ms")  # fmt: skip
            edits = [tab.evaluate(EDITED, [3000 + i]) for i in range(EDITS)]
            took = statistics.median(t for t, _ in edits)
            label = f"{edits[0][1]:,} examples scored after an edit, median of {EDITS}"
            good &= line(label, took, SCORE, "ms")
            browser.close()
    return good


if __name__ == "__main__":
    raise SystemExit(not main())
