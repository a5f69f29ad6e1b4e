"""The live page in a notebook, embedded as in Jupyter and VS Code."""

import pytest
from playwright.sync_api import expect

import glassformer as gf

# Policies around an output. VS Code's webview allows inline scripts, and only data: and https:
# for frames and workers.
VS_CODE = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src https: data:; connect-src https:; child-src https: data:"
)
POLICIES = {"jupyter": "frame-ancestors 'self'", "vs-code": VS_CODE}


@pytest.fixture(scope="module")
def output():
    return gf.report("addition:digits=2", inputs="45+78", rows=50)._repr_html_()


@pytest.mark.parametrize("where", POLICIES)
def test_it_runs_in_a_notebook(chromium, tmp_path, output, where):
    around = "" if where == "jupyter" else (
        f'<meta http-equiv="Content-Security-Policy" content="{POLICIES[where]}">'
    )  # fmt: skip
    notebook = tmp_path / "notebook.html"
    notebook.write_text(
        f"<!doctype html><html><head>{around}<title>notebook</title></head><body>"
        f"<div class='output'>{output}</div></body></html>"
    )
    context = chromium.new_context(offline=True)
    tab, asked, wrong = context.new_page(), [], []
    tab.on("request", lambda r: asked.append(r.url) if r.url.startswith("http") else None)
    tab.on("pageerror", lambda e: wrong.append(str(e)))
    tab.goto(notebook.as_uri())
    page = tab.frame_locator("iframe")
    expect(page.locator("#score")).to_contain_text("50 of 50 examples right", timeout=60_000)
    expect(page.locator("body")).to_contain_text("123")
    page.locator("#input").fill("99+1")
    page.locator("#input").press("Enter")
    expect(page.locator("#score")).to_be_visible()
    expect(page.locator("body")).to_contain_text("100", timeout=20_000)
    context.close()
    assert not asked and not wrong


def test_it_reaches_nothing_of_the_notebook(chromium, tmp_path, output):
    """The frame has an origin of its own."""
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><title>notebook</title><body>{output}</body>")
    tab = chromium.new_page()
    tab.goto(notebook.as_uri())
    expect(tab.frame_locator("iframe").locator("#score")).to_be_visible(timeout=60_000)
    frame = tab.frames[1]
    assert frame.evaluate("() => self.origin") == "null"
    with pytest.raises(Exception, match=r"SecurityError|Blocked"):
        frame.evaluate("() => parent.document.title")
    tab.close()


def test_names_of_models_stay_text(output):
    model = gf.load("addition:digits=1")
    evil = '"><script>alert(1)</script>'
    page = gf.report(gf.Model(model.config, model.weights, model.vocabulary,
                              provenance={"ref": evil}), rows=5)._repr_html_()  # fmt: skip
    assert page.count("<") == output.count("<") == 2, "an iframe and its end, and no other tag"
    assert evil not in page and page.startswith("<iframe ") and page.endswith("</iframe>")
