"""The engine of the page in Chromium."""

import base64
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from browser import launched
from glassformer import report_page
from glassformer.report_page.payload import model_payload

# Arrays are sent as base64, which is a hundred times faster than lists of numbers.
PACK = """
const pack = (data) => { let out = ""; const all = new Uint8Array(Float64Array.from(data).buffer);
    for (const byte of all) out += String.fromCharCode(byte); return btoa(out); };
const bytes = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
const unpack = (text) => new Float64Array(bytes(text).buffer);
"""


def packed(x):
    """Return numbers as `unpack` reads them in the page."""
    return base64.b64encode(np.ascontiguousarray(x, dtype="<f8").tobytes()).decode()


def unpacked(text):
    """Return the numbers that `pack` wrote in the page."""
    return np.frombuffer(base64.b64decode(text), dtype="<f8")


class Engine:
    """Evaluates JavaScript with the page's engine."""

    def __init__(self, tab):
        self.tab = tab

    def __call__(self, expression, *given):
        """Return the value of an expression of `m`, the first argument, and `x`, the others:
        engine("run(m, x[0]).output", model, "4+8").
        """
        first, *rest = given or [None]
        reported = None if first is None else report_page.json_block(_payload(first))
        read = "const m = d && readModel(JSON.parse(d));"
        return self.tab.evaluate(f"([d, x]) => {{ {read} return {expression}; }}", [reported, rest])


HERE, browsers, way_out = Path(__file__).parent, [], ExitStack()


@pytest.fixture(scope="module")
def chromium():
    """A browser shared by all files of this folder."""
    if not browsers:
        browsers.append(way_out.enter_context(launched()))
    return browsers[0]


@pytest.hookimpl(trylast=True)  # after the fixtures of the test
def pytest_runtest_teardown(item, nextitem):
    if nextitem is None or HERE not in nextitem.path.parents:
        browsers.clear()
        way_out.close()


def _payload(model):
    return model if isinstance(model, dict) else model_payload(model, rows=300)


@pytest.fixture(scope="module")
def engine(chromium):
    """engine("forward(…)", model, …); a browser error fails the test."""
    context = chromium.new_context(offline=True)
    tab, complaints = context.new_page(), []
    tab.on("console", lambda m: complaints.append(m.text))
    tab.on("pageerror", lambda e: complaints.append(str(e)))
    tab.add_script_tag(content=report_page.bundle(report_page.module_order("engine")) + PACK)
    yield Engine(tab)
    context.close()
    assert complaints == []
