"""The live page: one HTML file that runs its models, put together from plain files and data.

The scripts are ES modules, which a file that was opened from a disk cannot fetch. So each becomes a
function that gives what the module exports, in the order in which they import one another: the
engine (all that engine.js needs, and nothing of the page: a worker is made from its text), then the
page. Data are never executed: they stand in a block of JSON in which no `<` is left, and the page's
policy lets a browser run only the scripts whose hashes it names, and fetch nothing at all.
"""

import base64
import hashlib
import html
import json
import posixpath
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

from ..utils.errors import GlassformerError

IMPORT = re.compile(r'^import\s+(?:\{([^}]*)\}\s+from\s+)?"(\.\.?/[\w/-]+)\.js";[^\n]*\n', re.M)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|const|class) (\w+))", re.M)
MODULE_SYNTAX = re.compile(r"^(?:import|export)\b", re.M)


def assemble(data: Mapping[str, Any], server: Mapping[str, Any] | None = None) -> bytes:
    """The whole file: `data` is {models: [payload…], title, notes, made, settings}. `server`: what
    the page must know to talk to the server that it came from; then, and only then, it may.
    """
    engine = module_order("engine")
    scripts = {"engine": bundle(engine), "script": bundle(module_order("page"), exclude=engine)}
    allowed = " ".join(_csp_hash(script) for script in scripts.values())
    policy = [
        "default-src 'none'", f"script-src {allowed}", "worker-src blob:",
        "style-src 'unsafe-inline'", "img-src data: blob:", "base-uri 'none'", "form-action 'none'",
        *(["connect-src 'self'"] if server else []),
    ]  # fmt: skip
    parts = {
        "policy": html.escape("; ".join(policy)),
        "title": html.escape(str(data["title"])),
        "css": _read_web_file("page.css"),
        "data": json_block(data),
        "server": json_block(server),
        **scripts,
    }
    return fill_template("page.html", parts)


def fill_template(name: str, parts: Mapping[str, str]) -> bytes:
    """Return a file of web/ with its placeholders filled, in one pass: placeholders inside the
    inserted parts are left alone.
    """
    page = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _read_web_file(name))
    return page.encode("utf-8", "replace")


def json_block(data: Any) -> str:
    """JSON that can stand in a page whatever texts are in it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# ── modules into one script ────────────────────────────────────────────────────────────────────
def module_imports(name: str) -> list[tuple[str, list[str]]]:
    """Return the imports of a module: paths in web/, and the names from each."""
    found = IMPORT.findall(_read_web_file(f"{name}.js"))
    return [
        (posixpath.normpath(f"{posixpath.dirname(name) or '.'}/{path}"), re.findall(r"\w+", names))
        for names, path in found
    ]


def module_order(name: str) -> list[str]:
    """A module and all that it imports, each after those that it needs."""
    found: dict[str, None] = {}
    below: list[str] = []

    def visit(each: str) -> None:
        if each in below:
            raise GlassformerError(f"page — modules import in a circle: {' → '.join(below)}")
        if each in found:
            return
        below.append(each)
        for needed, _ in module_imports(each):
            visit(needed)
        found[below.pop()] = None

    visit(name)
    return list(found)


def bundle(names: Iterable[str], exclude: Iterable[str] = ()) -> str:
    """Modules as one script: each a function of its own, so that only what it exports is seen."""
    left = set(exclude)
    return '"use strict";\n' + "".join(_wrap_module(name) for name in names if name not in left)


def _wrap_module(name: str) -> str:
    text = _read_web_file(f"{name}.js")
    for needed, wanted in module_imports(name):
        exported = set(EXPORT.findall(_read_web_file(f"{needed}.js")))
        if missing := [each for each in wanted if each not in exported]:
            raise GlassformerError(f"page — {name}.js imports {missing[0]}: not in {needed}.js")
    body, names = EXPORT.sub("", IMPORT.sub("", text)), EXPORT.findall(text)
    if found := MODULE_SYNTAX.search(body):
        line = body[found.start() :].partition("\n")[0]
        raise GlassformerError(f"page — {name}.js has a line that cannot be joined: {line}")
    if "</script" in body.lower() or "<!--" in body:  # would end the element that holds it
        raise GlassformerError(f"page — {name}.js has a text that ends a script element")
    given = ", ".join(names)
    return f"const {{ {given} }} = (() => {{ // {name}.js\n{body}return {{ {given} }};\n}})();\n"


def _csp_hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _read_web_file(name: str) -> str:
    return files(__package__.partition(".")[0]).joinpath("web", name).read_text("utf-8")
