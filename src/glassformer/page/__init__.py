"""The page of the report: one HTML file, put together from plain files and a block of data.

Data are never executed: they stand in a block of JSON in which no `<` is left, and the page's
policy lets a browser run only the two scripts whose hashes it names, and fetch nothing at all.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from ..errors import GlassformerError
from ..show import style

BUDGET = 1_000_000  # bytes of a file that are ours: all but Plotly
SCRIPTS = ("charts", "state", "attention", "sections", "report")


def plotly_js() -> str:
    """The text of Plotly's script, out of its Python package."""
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError:
        needed = "needs Plotly, which is not installed: pip install 'glassformer[report]'"
        raise GlassformerError(f"report — {needed}") from None
    script: str = get_plotlyjs()
    if re.search(r"</script|<!--", script, re.IGNORECASE):  # would end the element that holds it
        raise GlassformerError("report — this version of Plotly cannot be put into a page")
    return script


def own(data: Mapping[str, Any]) -> int:
    """Bytes of the page without Plotly."""
    return len(assemble(data, ""))


def assemble(data: Mapping[str, Any], plotly: str) -> bytes:
    """The whole file."""
    script = "".join(_file(f"{name}.js") for name in SCRIPTS)
    policy = [
        "default-src 'none'", f"script-src {_hash(plotly)} {_hash(script)}",
        "style-src 'unsafe-inline'", "img-src data: blob:", "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    parts = {
        "policy": html.escape("; ".join(policy)), "title": html.escape(data["title"]),
        "colours": "".join(f"--{name}: {value}; " for name, value in COLOURS.items()),
        "css": _file("report.css"), "data": block({**data, "colours": COLOURS}), "plotly": plotly,
        "script": script,
    }  # fmt: skip
    # One pass, so that no part is searched for the marks of others.
    page = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _file("report.html"))
    return page.encode("utf-8", "replace")


def block(data: Any) -> str:
    """JSON that can stand in a page whatever texts are in it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _file(name: str) -> str:
    return files(__name__).joinpath(name).read_text("utf-8")


COLOURS = {
    "ink": style.INK, "grey": style.GREY, "pale": style.PALE, "blue": style.BLUE,
    "orange": style.ORANGE, "green": style.GREEN, "purple": style.PURPLE, "sky": style.SKY,
    "amber": style.AMBER,
}  # fmt: skip
