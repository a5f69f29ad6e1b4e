"""How large the live page is and how fast, in the system's Chromium, each figure beside its limit.

python benchmarks/page.py

All times are the browser's own clock: from the event of a key until the frame that shows the answer
was painted, and from an edit until the score over all examples is back from the worker.
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
BYTES, KEY, SCORE = 400_000, 50, 1_000  # a page, ms of a key, ms of all examples
KEYS, EDITS = 100, 10

# From a key going down until the frame that shows what came of it is painted.
CLOCK = """() => {
    window.times = [];
    document.addEventListener("keydown", () => {
        const start = performance.now();
        requestAnimationFrame(() => setTimeout(() => window.times.push(performance.now() - start)));
    }, true);
}"""
EDITED = """async ([value]) => {
    const base = readModel(JSON.parse(document.getElementById("data").textContent).models[0]);
    await score(base, []);  // the worker is there
    const start = performance.now();
    const found = await score(edited(base, [{name: "embed.W_E", index: [3, 2], value}]), []);
    return [performance.now() - start, found.total];
}"""


def line(what, figure, limit, unit):
    """One figure beside its limit; whether it holds."""
    good = figure <= limit
    told = f"{figure:12,.1f} {unit:5} limit {limit:9,} {unit:5}"
    print(f"{what:52} {told} {'ok' if good else 'TOO MUCH'}")
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
            for i in range(KEYS):  # a digit is typed, and taken back
                digit = i // 2 % 10
                tab.keyboard.press("Backspace" if i % 2 else str(digit))
                while tab.evaluate("times.length") <= i:
                    tab.wait_for_timeout(1)
                right = f"{12 + (34 if i % 2 else 340 + digit):04}"
                assert tab.inner_text("#answer") == right, (tab.input_value("#input"), right)
            good &= line(f"a key to the repainted answer, median of {KEYS}",
                         statistics.median(tab.evaluate("times")), KEY, "ms")  # fmt: skip
            found = [tab.evaluate(EDITED, [3000 + i]) for i in range(EDITS)]
            took = statistics.median(t for t, _ in found)
            many = f"{found[0][1]:,} examples scored after an edit, median of {EDITS}"
            good &= line(many, took, SCORE, "ms")
            browser.close()
    return good


if __name__ == "__main__":
    raise SystemExit(not main())
