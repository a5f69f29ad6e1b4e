"""Chromium for the tests of the page."""

import shutil
from contextlib import contextmanager

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-dev-shm-usage"]  # fmt: skip

# A click waits for two frames, and on a busy machine Chromium sometimes drops a requested frame of
# an idle page (2 of 300 clicks). So frames are requested all the time.
FRAMES = "{ const ask = requestAnimationFrame.bind(window); setInterval(() => ask(() => {}), 50); }"


class Chromium:
    """A browser whose tabs request frames all the time."""

    def __init__(self, browser):
        self.browser = browser

    def new_context(self, **options):
        context = self.browser.new_context(**options)
        context.add_init_script(FRAMES)
        context.set_default_navigation_timeout(120_000)  # milliseconds: machines may be busy
        return context

    def new_page(self, **options):
        return self.new_context(**options).new_page()


@contextmanager
def launched():
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    result = next(filter(None, map(shutil.which, names)), None)
    assert result, "these tests need Chromium, which is not installed: apt-get install chromium"
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=result, args=FLAGS)
        yield Chromium(browser)
        browser.close()
