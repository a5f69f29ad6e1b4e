"""The live page: one HTML file that runs models, assembled from the files of web/ and JSON data.

A page opened from a file cannot fetch ES modules, so each module becomes a function that returns
its exports. The engine (engine.js and its imports) is a separate script, because a worker runs
its text. Data is a JSON block without `<`. The page's content security policy allows only these
scripts, by hash, and no network access.
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
    """Return the HTML file of a live page.

    Args:
        data: {models: [payload…], title, notes, footer}.
        server: {token, base} of the server to which the page may connect.
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
    """Return a file of web/ with its placeholders replaced by `parts`."""
    page = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read_web_file(name))
    return page.encode("utf-8", "replace")


def json_block(data: Any) -> str:
    """Return JSON that is safe inside a script element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# ── modules into one script ────────────────────────────────────────────────────────────────────
def module_imports(name: str) -> list[tuple[str, list[str]]]:
    """Return the imports of a JavaScript module as (path in web/, names)."""
    matches = IMPORT.findall(_read_web_file(f"{name}.js"))
    return [
        (posixpath.normpath(f"{posixpath.dirname(name) or '.'}/{path}"), re.findall(r"\w+", names))
        for names, path in matches
    ]


def module_order(name: str) -> list[str]:
    """Return a JavaScript module and all its imports, in dependency order."""
    order: dict[str, None] = {}
    importing: list[str] = []

    def visit(module: str) -> None:
        if module in importing:
            raise GlassformerError(f"web: circular import: {' → '.join(importing)}")
        if module in order:
            return
        importing.append(module)
        for needed, _ in module_imports(module):
            visit(needed)
        order[importing.pop()] = None

    visit(name)
    return list(order)


def bundle(names: Iterable[str], exclude: Iterable[str] = ()) -> str:
    """Return modules as one script in which each module exposes only its exports."""
    skipped = set(exclude)
    return '"use strict";\n' + "".join(_wrap_module(name) for name in names if name not in skipped)


def _wrap_module(name: str) -> str:
    text = _read_web_file(f"{name}.js")
    for needed, wanted in module_imports(name):
        exported = set(EXPORT.findall(_read_web_file(f"{needed}.js")))
        if missing := [export for export in wanted if export not in exported]:
            raise GlassformerError(f"web/{name}.js: {needed}.js does not export {missing[0]}")
    body, names = EXPORT.sub("", IMPORT.sub("", text)), EXPORT.findall(text)
    if match := MODULE_SYNTAX.search(body):
        line = body[match.start() :].partition("\n")[0]
        raise GlassformerError(f"web/{name}.js: unsupported import or export: {line}")
    if "</script" in body.lower() or "<!--" in body:
        raise GlassformerError(f"web/{name}.js: contains the end of a script element")
    exports = ", ".join(names)
    body = f"{body}return {{ {exports} }};\n"
    return f"const {{ {exports} }} = (() => {{ // {name}.js\n{body}}})();\n"


def _csp_hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _read_web_file(name: str) -> str:
    return files(__package__.partition(".")[0]).joinpath("web", name).read_text("utf-8")
