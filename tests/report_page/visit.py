"""A page in Chromium, opened from its file and offline, that must cause no request and no error."""

from contextlib import contextmanager

from playwright.sync_api import expect

from glassformer import load
from glassformer.report_page.report import report

SLOWLY = 30_000  # milliseconds


class Visits:
    """go("adder") -> a tab with that page. Requests and errors are collected in `complaints`."""

    def __init__(self, chromium, files):
        self.chromium, self.files, self.contexts, self.complaints = chromium, files, [], []

    def __call__(self, name, width=1280, hash_="", **options):
        size = {"width": width, "height": 900}
        context = self.chromium.new_context(viewport=size, offline=True, **options)
        context.set_default_timeout(SLOWLY)
        # Draw right after the event instead of in the next frame, before the next assertion.
        context.add_init_script(
            "window.requestAnimationFrame = (f) => { queueMicrotask(() => f(0)); return 1; }"
        )
        self.contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda m: self.complaints.append(f"{m.type}: {m.text}"))
        tab.on("pageerror", lambda e: self.complaints.append(str(e)))
        tab.on("request", self.asked)
        tab.goto(self.files[name].as_uri() + hash_)
        expect(tab.locator("#answer")).not_to_be_empty(timeout=SLOWLY)
        return tab

    def asked(self, request):
        """Allow only the page itself and its worker."""
        own = request.url.startswith("blob:") or request.url.split("#")[0] in {
            path.as_uri() for path in self.files.values()
        }
        if not own:
            self.complaints.append(f"asked for {request.url}")


@contextmanager
def visits(chromium, files):
    result = Visits(chromium, files)
    yield result
    for context in result.contexts:
        context.close()
    assert result.complaints == []


def page_of(folder, name, *refs, inputs=(), rows=60, **options):
    """Return the file of a page of some models."""
    made = report([(ref, load(ref)) for ref in refs], inputs, rows=rows, **options)
    return made.save(folder / f"{name}.html")


def scored(tab, m=0):
    """Return the page's score (right, total) once it is up to date."""
    place = tab.locator("#score" + (f"-{m}" if m else ""))
    expect(place).to_contain_text("examples right", timeout=SLOWLY)
    expect(place).not_to_have_class("stale", timeout=SLOWLY)
    expect(place).not_to_have_class("stale broken", timeout=SLOWLY)
    expect(place).not_to_have_class("broken stale", timeout=SLOWLY)
    right, total = place.inner_text().split(" examples")[0].split(" of ")
    return int(right.replace(",", "")), int(total.replace(",", ""))
