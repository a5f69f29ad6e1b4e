"""The walks of docs/explained as pages for those who are offline: a text, and beside it the models
that it is about, running.

    write_all("explained")     # explained/160-numbers.html, … ; each frames its NAME-live.html

Where a document says <!-- live: REF... #ADDRESS --> above a picture, the live page of these models
stands instead of it; `snapshots=FOLDER` and `history=FILE` are a training to scrub. Paths there
begin at the folder that holds `docs`: a clone, or the package, which carries these documents.
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
    r"<!-- live: (?P<what>[^#\n]+?) *(?P<at>#\S*)? -->\n!\[(?P<alt>.*?)\]\(.*?\)"
)
IMAGE_SOURCE = re.compile(r'<img src="([^":]+)"')
DOCUMENT_LINK = re.compile(r'<a href="([^":#]+\.md)(?:#[^"]*)?">(.*?)</a>', re.DOTALL)
PACKAGE = Path(__file__).parents[1]


def docs_root() -> Path:
    """The folder that holds `docs`: the package, which has some of it, or the clone."""
    return PACKAGE if (PACKAGE / DOCS_FOLDER).is_dir() else PACKAGE.parents[1]


def live_report(directive: str, root: Path) -> Report:
    """The live page of some models, as a document names them; its paths begin at `root`."""
    words = [(*word.partition("="),) for word in directive.split()]
    of = {kind: [root / path for name, _, path in words if name == kind]
          for kind in ("snapshots", "history")}  # fmt: skip
    refs = ["".join(word) for word in words if word[0] not in of]
    named = [(ref, load(root / ref if (root / ref).is_file() else ref)) for ref in refs]
    return report(named, snapshots=of["snapshots"], history=of["history"])


def write_walkthroughs(folder: str | Path) -> dict[str, Path]:
    """Writes the walks, each in two files: the text, and the models that stand beside it. Their
    titles, and where the texts are.
    """
    target, here = make_folder(folder), docs_root() / DOCS_FOLDER
    texts = {name: (here / f"{name}.md").read_text("utf-8") for name in WALKTHROUGHS}
    titles = {name: text.partition("\n")[0].removeprefix("# ") for name, text in texts.items()}
    out = {}
    for name, text in texts.items():
        found = LIVE_COMMENT.search(text)
        assert found, f"{name}.md shows no model"
        write_atomically(
            target / f"{name}-live.html", live_report(found["what"], docs_root()).html()
        )
        out[titles[name]] = write_atomically(
            target / f"{name}.html", walkthrough_page(name, titles)
        )
    return out


def walkthrough_page(name: str, titles: Mapping[str, str]) -> bytes:
    """The text of a walk as a page that frames NAME-live.html, with links to the others."""
    here = docs_root() / DOCS_FOLDER
    text = _render_document((here / f"{name}.md").read_text("utf-8"), name, here)
    links = "\n".join(
        f'<a href="{each}.html"{" aria-current=page" * (each == name)}>{html.escape(title)}</a>'
        for each, title in titles.items()
    )
    parts = {"title": html.escape(titles[name]), "nav": links, "text": text}
    return fill_template("explained.html", parts)


def _render_document(text: str, name: str, here: Path) -> str:
    """A document as HTML: its models in a frame, its pictures in it, and of what is not written
    with it the path, in words.
    """
    from markdown_it import MarkdownIt

    def frame(found: re.Match[str]) -> str:
        where, alt = html.escape(f"{name}-live.html{found['at'] or ''}"), html.escape(found["alt"])
        alone = f'<p><a href="{where}">This page alone</a></p>'
        return f'<div class="live"><iframe src="{where}" title="{alt}"></iframe>{alone}</div>\n'

    def picture(found: re.Match[str]) -> str:
        data = base64.b64encode((here / found[1]).read_bytes()).decode()
        return f'<img src="data:image/png;base64,{data}"'

    def link(found: re.Match[str]) -> str:
        where = posixpath.normpath(f"{DOCS_FOLDER}/{found[1]}")
        other = posixpath.basename(where).removesuffix(".md")
        if where == f"{DOCS_FOLDER}/{other}.md" and other in WALKTHROUGHS:
            return f'<a href="{other}.html">{found[2]}</a>'
        return f"{found[2]} (<code>{html.escape(where)}</code>)"

    made = MarkdownIt("commonmark", {"html": True}).render(LIVE_COMMENT.sub(frame, text))
    made = made.replace("<pre>", '<pre tabindex="0">')  # what scrolls can be reached by keys
    return DOCUMENT_LINK.sub(link, IMAGE_SOURCE.sub(picture, made))
