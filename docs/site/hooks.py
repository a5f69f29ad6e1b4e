"""What the site has besides the documents, so that one text holds in the repository and here.

- A document may link to any file or folder of the repository. Here each of these is a page below
  source/, and the link goes there: nothing leaves the site.
- Where a document says <!-- live: REF... #ADDRESS --> above a picture, the live page of these
  models stands here instead of it; `snapshots=FOLDER` and `history=FILE` are a training to scrub.
- A page api/ROOM.md of the nav is made from the docstrings of that room, and api/api.md from what
  stands at the front door.
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
    """Adds the pages that nobody wrote."""
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
            for refs in {found["refs"] for found in LIVE_COMMENT.finditer(text)}:
                files.append(
                    File.generated(config, _live(refs), content=live_report(refs, ROOT).html())
                )
            todo += [_target(path, link) for link in LINK.findall(text) if "://" not in link]
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Has each link go to the page that shows the file, and no list beside a page be empty."""
    here = page.file.src_uri
    empty = [("navigation", page.parent is None), ("toc", "\n## " not in markdown)]
    if not here.startswith("api/"):
        page.meta.setdefault("hide", [name for name, nothing in empty if nothing])

    def moved(link: re.Match[str]) -> str:
        if "://" in link[0]:
            return link[0]
        return posixpath.relpath(_page(_target(_file(here), link[0])), posixpath.dirname(here))

    if here.startswith("api/"):
        return markdown
    markdown = LIVE_COMMENT.sub(lambda found: _frame(found, here), markdown)
    markdown = markdown.replace("\n```glass\n", "\n```python\n")  # whose syntax it has
    pieces = FENCE.split(markdown)
    return "".join(p if p.startswith("```") else LINK.sub(moved, p) for p in pieces)


# ── models that run in a page ──────────────────────────────────────────────────────────────────
def _live(what: str) -> str:
    """Where the page of some models stands in the site."""
    return f"live/{re.sub(r'[^a-z0-9]+', '-', what.lower()).strip('-')}.html"


def _frame(found: re.Match[str], here: str) -> str:
    """The live page in a frame, and a link to have it alone."""
    where = posixpath.relpath(_live(found["refs"]), posixpath.dirname(here)) + (found["at"] or "")
    name = html.escape(found["alt"])
    style = "width: 100%; height: 40rem; border: 1px solid #8884"
    alone = f'<p><a href="{where}">This page alone</a></p>'
    return f'<iframe src="{where}" title="{name}" style="{style}" loading="lazy"></iframe>\n{alone}'


# ── files of the repository ────────────────────────────────────────────────────────────────────
def _pages(nav: Any) -> Iterator[str]:
    """All pages that a nav names."""
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from _pages(item)


def _page(path: str) -> str:
    """The page, or the picture, that shows a file or folder of the repository."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/") and not path.endswith(".py") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    return f"source/{path.removesuffix('.md')}.md"


def _file(page: str) -> str:
    """The file or folder of the repository that a page shows: `_page`, the other way round."""
    if not page.startswith("source/"):
        return f"docs/{page}"
    path = page.removeprefix("source/")
    return path if (ROOT / path).exists() else path.removesuffix(".md")


def _target(path: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _within(folder: str) -> list[str]:
    """The files in a folder that can be read."""
    paths = sorted((ROOT / folder).iterdir())
    return [f"{folder}/{p.name}" for p in paths if p.suffix in {*TEXTS, ".ipynb"}]


def _source(path: str) -> str:
    """A file or folder of the repository as a page."""
    there = ROOT / path
    if there.suffix == ".md":
        return there.read_text("utf-8")
    head = f"---\nsearch:\n  exclude: true\nhide: [navigation, toc]\n---\n# {path}\n\n"
    if there.is_dir():
        names = (posixpath.basename(p) for p in _within(path))
        base = posixpath.basename(path)  # as a link from beside the folder
        return head + "".join(f"- [`{name}`]({base}/{name})\n" for name in names)
    language = LANGUAGES.get(there.suffix, "text")
    return f"{head}````{language}\n{there.read_text('utf-8')}\n````\n"


# ── pages from docstrings ──────────────────────────────────────────────────────────────────────
def _api(room: str) -> str:
    """What a room has, file by file, or what stands at the front door."""
    if room == "api":
        return _public()
    module = importlib.import_module(f"glassformer.{room}")
    head = f"# glassformer.{room}\n\n"
    if not hasattr(module, "__path__"):
        options = "{show_root_heading: false, show_root_toc_entry: false}"
        return f"{head}::: glassformer.{room}\n    options: {options}\n"
    folder = Path(module.__path__[0])
    files = sorted(p.stem for p in folder.glob("*.py") if p.stem[0] != "_")
    head += f"{Writable.written(module.__doc__ or '')}\n\n"
    return head + "".join(f"::: glassformer.{room}.{file}\n" for file in files)


def _public() -> str:
    """Each public name, with its docstring."""
    named = importlib.import_module("glassformer")
    text = "# The public functions\n\nWhat `import glassformer as gf` gives. "
    text += "Where a `model` stands, a ref, a path or a Model will do; for `task` a ref or a Task; "
    text += "for `tokens` a text or tokens; for `recipe` a name, a file or a Recipe.\n\n"
    for name in sorted([*named.__all__, "list", "compile"], key=lambda n: n[0].isupper()):
        thing = inspect.unwrap(getattr(named, name))  # in the room that it comes from
        text += (
            f'::: {thing.__module__}.{thing.__qualname__}\n    options: {{heading: "gf.{name}", '
        )
        text += f'toc_label: "gf.{name}", members: false}}\n'
    return text


class Writable(Extension):
    """Docstrings as Markdown: `<` and `[` are signs there, and `>>>` starts an example."""

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
