"""Adapt the documents to the site, so that one text serves the repository and the site.

- A document may link to any file or folder of the repository. On the site each of these is a page
  below source/, and the link goes there, so no link leaves the site.
- A comment <!-- live: REF... #ADDRESS --> above a picture replaces it on the site by the live page
  of these models; `snapshots=FOLDER` and `history=FILE` add a training with a slider.
- A page api/PACKAGE.md of the nav is made from the docstrings of that package, and api/api.md from
  the public functions.
"""

import html
import importlib
import inspect
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

from griffe import Extension
from mkdocs.structure.files import File, Files

from glassformer.report_page.explained import LIVE_COMMENT, live_report

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=[^)\s]*\))")
LANGUAGES = {".py": "python", ".toml": "toml", ".js": "js", ".css": "css"}
TEXTS = {".md", ".taotp", ".glass", *LANGUAGES}


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages: sources, live pages and the API reference."""
    todo: list[str] = []
    for page in _pages(config.nav):
        if page.startswith("api/"):
            files.append(File.generated(config, page, content=_api(Path(page).stem)))
        else:
            todo.append(_file(page))
    done: set[str] = set()
    while todo:
        path = todo.pop()
        if path in done:
            continue
        done.add(path)
        if _page(path).startswith("source/"):
            files.append(File.generated(config, _page(path), content=_source(path)))
        if (ROOT / path).is_dir():
            todo += _within(path)
        elif path.endswith(".md"):
            text = FENCE.sub("", (ROOT / path).read_text("utf-8"))
            for refs in {match["refs"] for match in LIVE_COMMENT.finditer(text)}:
                files.append(
                    File.generated(config, _live(refs), content=live_report(refs, ROOT).html())
                )
            todo += [_target(path, link) for link in LINK.findall(text) if "://" not in link]
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point each link at the page that shows the file, and hide empty lists beside a page."""
    page_path = page.file.src_uri
    empty = [("navigation", page.parent is None), ("toc", "\n## " not in markdown)]
    if not page_path.startswith("api/"):
        page.meta.setdefault("hide", [name for name, nothing in empty if nothing])

    def moved(link: re.Match[str]) -> str:
        if "://" in link[0]:
            return link[0]
        return posixpath.relpath(
            _page(_target(_file(page_path), link[0])), posixpath.dirname(page_path)
        )

    if page_path.startswith("api/"):
        return markdown
    markdown = LIVE_COMMENT.sub(lambda match: _frame(match, page_path), markdown)
    markdown = markdown.replace("\n```glass\n", "\n```python\n")  # Its syntax is Python's.
    pieces = FENCE.split(markdown)
    return "".join(p if p.startswith("```") else LINK.sub(moved, p) for p in pieces)


# ── models that run in a page ──────────────────────────────────────────────────────────────────
def _live(refs: str) -> str:
    """Return the site path of the live page of some models."""
    return f"live/{re.sub(r'[^a-z0-9]+', '-', refs.lower()).strip('-')}.html"


def _frame(match: re.Match[str], page_path: str) -> str:
    """Return a frame with the live page, and a link to the page itself."""
    where = posixpath.relpath(_live(match["refs"]), posixpath.dirname(page_path)) + (
        match["at"] or ""
    )
    name = html.escape(match["alt"])
    style = "width: 100%; height: 40rem; border: 1px solid #8884"
    alone = f'<p><a href="{where}">This page alone</a></p>'
    return f'<iframe src="{where}" title="{name}" style="{style}" loading="lazy"></iframe>\n{alone}'


# ── files of the repository ────────────────────────────────────────────────────────────────────
def _pages(nav: Any) -> Iterator[str]:
    """Yield all pages of a nav."""
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from _pages(item)


def _page(path: str) -> str:
    """Return the site page, or picture, that shows a file or folder of the repository."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/") and not path.endswith(".py") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    return f"source/{path.removesuffix('.md')}.md"


def _file(page: str) -> str:
    """Return the file or folder of the repository that a page shows, the inverse of `_page`."""
    if not page.startswith("source/"):
        return f"docs/{page}"
    path = page.removeprefix("source/")
    return path if (ROOT / path).exists() else path.removesuffix(".md")


def _target(path: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _within(folder: str) -> list[str]:
    """Return the text files in a folder."""
    paths = sorted((ROOT / folder).iterdir())
    return [f"{folder}/{p.name}" for p in paths if p.suffix in {*TEXTS, ".ipynb"}]


def _source(path: str) -> str:
    """Return a file or folder of the repository as a page."""
    source = ROOT / path
    if source.suffix == ".md":
        return source.read_text("utf-8")
    head = f"---\nsearch:\n  exclude: true\nhide: [navigation, toc]\n---\n# {path}\n\n"
    if source.is_dir():
        names = (posixpath.basename(p) for p in _within(path))
        base = posixpath.basename(path)  # as a link from beside the folder
        return head + "".join(f"- [`{name}`]({base}/{name})\n" for name in names)
    language = LANGUAGES.get(source.suffix, "text")
    return f"{head}````{language}\n{source.read_text('utf-8')}\n````\n"


# ── pages from docstrings ──────────────────────────────────────────────────────────────────────
def _api(package: str) -> str:
    """Return the API page of a package, file by file, or of the public functions."""
    if package == "api":
        return _public()
    module = importlib.import_module(f"glassformer.{package}")
    head = f"# glassformer.{package}\n\n"
    if not hasattr(module, "__path__"):
        options = "{show_root_heading: false, show_root_toc_entry: false}"
        return f"{head}::: glassformer.{package}\n    options: {options}\n"
    folder = Path(module.__path__[0])
    files = sorted(p.stem for p in folder.glob("*.py") if p.stem[0] != "_")
    head += f"{Writable.written(module.__doc__ or '')}\n\n"
    return head + "".join(f"::: glassformer.{package}.{file}\n" for file in files)


def _public() -> str:
    """Return the page of all public names with their docstrings."""
    named = importlib.import_module("glassformer")
    text = "# The public functions\n\nThe names of `import glassformer as gf`. "
    text += "A `model` is a ref, a path or a Model; a `task` is a ref or a Task; "
    text += "`tokens` are a text or token numbers; a `recipe` is a name, a file or a Recipe.\n\n"
    for name in sorted([*named.__all__, "list", "compile"], key=lambda n: n[0].isupper()):
        thing = inspect.unwrap(getattr(named, name))  # in the module that defines it
        text += (
            f'::: {thing.__module__}.{thing.__qualname__}\n    options: {{heading: "gf.{name}", '
        )
        text += f'toc_label: "gf.{name}", members: false}}\n'
    return text


class Writable(Extension):
    """Converts docstrings to Markdown: escapes `<` and `[`, and makes `>>>` an example."""

    @staticmethod
    def written(text: str) -> str:
        return "\n\n".join(map(_paragraph, text.split("\n\n")))

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = self.written(obj.docstring.value)


def _paragraph(text: str) -> str:
    if text.startswith(">>>"):
        return indent(text, "    ")
    if text.startswith("    "):
        return text
    parts = re.split(r"(`[^`]*`)", text)
    signs = {"<": "&lt;", "[": "&#91;"}
    return "".join(p if p[:1] == "`" else re.sub(r"[<[]", lambda s: signs[s[0]], p) for p in parts)
