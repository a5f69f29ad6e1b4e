"""The walkthroughs of docs/explained as offline pages: an article next to its live models.

    write_walkthroughs("explained")  # explained/160-numbers.html, with a frame of NAME-live.html

A comment <!-- live: REF... #ADDRESS --> above a picture replaces the picture by the live page of
these models. `snapshots=FOLDER` and `history=FILE` add a training. Paths are relative to the folder
of `docs`: a clone, or the package, which contains these documents.
"""

import base64
import html
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

from ..resolve import load
from ..utils.fileio import make_folder, write_atomically
from . import fill_template
from .report import Report, report

WALKTHROUGHS = ("160-numbers", "trained-adder", "grokking", "sort")
DOCS_FOLDER = "docs/explained"
LIVE_COMMENT = re.compile(
    r"<!-- live: (?P<refs>[^#\n]+?) *(?P<at>#\S*)? -->\n!\[(?P<alt>.*?)\]\(.*?\)"
)
IMAGE_SOURCE = re.compile(r'<img src="([^":]+)"')
DOCUMENT_LINK = re.compile(r'<a href="([^":#]+\.md)(?:#[^"]*)?">(.*?)</a>', re.DOTALL)
PACKAGE = Path(__file__).parents[1]


def docs_root() -> Path:
    """Return the folder that contains `docs`: the package or the repository clone."""
    return PACKAGE if (PACKAGE / DOCS_FOLDER).is_dir() else PACKAGE.parents[1]


def live_report(directive: str, root: Path) -> Report:
    """Create the live page of the refs and paths (relative to `root`) in a comment."""
    words = [(*word.partition("="),) for word in directive.split()]
    paths = {kind: [root / path for name, _, path in words if name == kind]
          for kind in ("snapshots", "history")}  # fmt: skip
    refs = ["".join(word) for word in words if word[0] not in paths]
    named = [(ref, load(root / ref if (root / ref).is_file() else ref)) for ref in refs]
    return report(named, snapshots=paths["snapshots"], history=paths["history"])


def write_walkthroughs(folder: str | Path) -> dict[str, Path]:
    """Write the article and the live page of every walkthrough. Return {title: article file}."""
    target, documents = make_folder(folder), docs_root() / DOCS_FOLDER
    texts = {name: (documents / f"{name}.md").read_text("utf-8") for name in WALKTHROUGHS}
    titles = {name: text.partition("\n")[0].removeprefix("# ") for name, text in texts.items()}
    out = {}
    for name, text in texts.items():
        comment = LIVE_COMMENT.search(text)
        assert comment, f"{name}.md has no live model"
        live_page = live_report(comment["refs"], docs_root()).html()
        write_atomically(target / f"{name}-live.html", live_page)
        text_page = walkthrough_page(name, titles)
        out[titles[name]] = write_atomically(target / f"{name}.html", text_page)
    return out


def walkthrough_page(name: str, titles: Mapping[str, str]) -> bytes:
    """Return an article's page with a frame of NAME-live.html and links to other articles."""
    documents = docs_root() / DOCS_FOLDER
    text = _render_document((documents / f"{name}.md").read_text("utf-8"), name, documents)
    links = "\n".join(
        f'<a href="{other}.html"{" aria-current=page" * (other == name)}>{html.escape(title)}</a>'
        for other, title in titles.items()
    )
    parts = {"title": html.escape(titles[name]), "nav": links, "text": text}
    return fill_template("explained.html", parts)


def _render_document(text: str, name: str, documents: Path) -> str:
    """Render a document as HTML with a frame for its models, pictures and working links."""
    from markdown_it import MarkdownIt

    def frame(match: re.Match[str]) -> str:
        source, alt = html.escape(f"{name}-live.html{match['at'] or ''}"), html.escape(match["alt"])
        link_ = f'<p><a href="{source}">Open in its own page</a></p>'
        return f'<div class="live"><iframe src="{source}" title="{alt}"></iframe>{link_}</div>\n'

    def picture(match: re.Match[str]) -> str:
        data = base64.b64encode((documents / match[1]).read_bytes()).decode()
        return f'<img src="data:image/png;base64,{data}"'

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(f"{DOCS_FOLDER}/{match[1]}")
        name_ = posixpath.basename(target).removesuffix(".md")
        if target == f"{DOCS_FOLDER}/{name_}.md" and name_ in WALKTHROUGHS:
            return f'<a href="{name_}.html">{match[2]}</a>'
        return f"{match[2]} (<code>{html.escape(target)}</code>)"

    page = MarkdownIt("commonmark", {"html": True}).render(LIVE_COMMENT.sub(frame, text))
    page = page.replace("<pre>", '<pre tabindex="0">')  # make it scrollable by keyboard
    return DOCUMENT_LINK.sub(link, IMAGE_SOURCE.sub(picture, page))
