"""The engine of the page, in a real Chromium."""

import base64
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from browser import launched
from glassformer import report_page
from glassformer.report_page.payload import model_payload

# Arrays go as texts: number by number they would take a hundred times as long.
PACK = """
const pack = (data) => { let out = ""; const all = new Uint8Array(Float64Array.from(data).buffer);
    for (const byte of all) out += String.fromCharCode(byte); return btoa(out); };
const bytes = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
const unpack = (text) => new Float64Array(bytes(text).buffer);
"""


def packed(x):
    """Numbers, as `unpack` reads them in the page."""
    return base64.b64encode(np.ascontiguousarray(x, dtype="<f8").tobytes()).decode()


def unpacked(text):
    """What `pack` in the page wrote."""
    return np.frombuffer(base64.b64decode(text), dtype="<f8")


class Engine:
    """The page's engine, to be asked from Python."""

    def __init__(self, tab):
        self.tab = tab

    def __call__(self, expression, *given):
        """The value of a JavaScript expression of `m`, the model given first, and of `x`, the rest
        that was given: engine("run(m, x[0]).output", model, "4+8").
        """
        first, *rest = given or [None]
        told = None if first is None else report_page.json_block(_payload(first))
        read = "const m = d && readModel(JSON.parse(d));"
        return self.tab.evaluate(f"([d, x]) => {{ {read} return {expression}; }}", [told, rest])


HERE, browsers, way_out = Path(__file__).parent, [], ExitStack()


@pytest.fixture(scope="module")
def chromium():
    """One for all files of this folder: no test in it has a loop of its own."""
    if not browsers:
        browsers.append(way_out.enter_context(launched()))
    return browsers[0]


@pytest.hookimpl(trylast=True)  # when the test's own things are gone
def pytest_runtest_teardown(item, nextitem):
    if nextitem is None or HERE not in nextitem.path.parents:
        browsers.clear()
        way_out.close()


def _payload(model):
    return model if isinstance(model, dict) else model_payload(model, rows=300)


@pytest.fixture(scope="module")
def engine(chromium):
    """engine("forward(…)", model, …); an error on the way fails the test."""
    context = chromium.new_context(offline=True)
    tab, complaints = context.new_page(), []
    tab.on("console", lambda m: complaints.append(m.text))
    tab.on("pageerror", lambda e: complaints.append(str(e)))
    tab.add_script_tag(content=report_page.bundle(report_page.module_order("engine")) + PACK)
    yield Engine(tab)
    context.close()
    assert complaints == []
