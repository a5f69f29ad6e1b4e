"""Components shared by all commands: the app, options, consoles, progress bars, tables and JSON.

Tokens, names and messages may come from untrusted files. Everything is printed by `out`, `err`,
`print_text` or `print_json`, which escape control characters (\\x1b) instead of sending them.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.text import Text
from typer import Exit, Option

from .. import __version__
from ..utils.errors import MAX_PRINTED_INT, GlassformerError, approx_int
from ..utils.fileio import check_writable
from ..utils.progress import Progress, ProgressCallback

if TYPE_CHECKING:
    from rich.table import Table

MIN_COLUMNS = 20  # smaller values of $COLUMNS are ignored
# Control characters (except newlines and tabs), bidirectional marks, zero-width characters (except
# joiners, which scripts and emoji need) and surrogates.
INVISIBLE_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ud800-\udfff]"
)


def escape_invisible(text: str) -> str:
    r"""Escape characters that control a terminal, such as \x1b, \r and \u202e."""
    return INVISIBLE_CHARACTERS.sub(lambda m: m[0].encode("unicode_escape").decode(), text)


class Interrupted(GlassformerError):
    """Exception: a signal interrupted the command. The message contains the command to resume."""


class SafeConsole(Console):
    """A Rich console that escapes control characters."""

    def __init__(self, **options: Any) -> None:
        columns = os.environ.get("COLUMNS", "")
        if columns and not (columns.isdecimal() and int(columns[:9]) >= MIN_COLUMNS):
            options["_environ"] = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(escape_invisible(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        # segments of tables and other renderables
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else escape_invisible(segment.text)
            yield segment._replace(text=text)

    def discard_output(self) -> None:
        """Clear the buffer after a failed write, so that the next print does not write it again."""
        with suppress(OSError, ValueError):
            self.begin_capture()
            self.end_capture()

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # entry.py sets the exit status


app = typer.Typer(
    pretty_exceptions_enable=False, rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Glassformer: transformers you can see through.",
)  # fmt: skip
out = SafeConsole(width=None if sys.stdout and sys.stdout.isatty() else 120)
err = SafeConsole(stderr=True)


def _version(requested: bool) -> None:
    if requested:
        print_text(__version__)
        raise Exit


@app.callback()
def options(
    version: Annotated[bool, Option("--version", "-V", callback=_version, is_eager=True,
        help="print the version and exit")] = False,
) -> None:  # fmt: skip
    """Options before the name of a command."""


def join_words(words: Iterable[str], conjunction: str = "or") -> str:
    """Join words as in "a, b or c"."""
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last


# ── output ─────────────────────────────────────────────────────────────────────────────────────
def make_table(
    columns: tuple[str, ...], rows: Iterable[tuple[str, ...]] = (),
    right: Sequence[str] = ("count",),
) -> "Table":  # fmt: skip
    """Return a table; the columns `right` are aligned to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for c in columns:
        table.add_column(
            c, overflow="fold", justify="right" if c in right else "left", no_wrap=c == "claim"
        )
    for row in rows:
        table.add_row(*row)
    return table


def print_text(text: object) -> None:
    """Print a string without the line breaks and colors of a Rich console."""
    print(escape_invisible(str(text)))


def print_json(value: object) -> None:
    value = _json_safe(value)
    text = json.dumps(value, default=float, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
        plain = not INVISIBLE_CHARACTERS.search(text)
    except UnicodeEncodeError:
        plain = False
    print(text if plain else json.dumps(value, default=float))


def _json_safe(value: Any) -> Any:
    """Replace integers with too many digits for Python to print by approximations."""
    if isinstance(value, dict):
        return {name: _json_safe(v) for name, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_safe(v) for v in value]
    return approx_int(value) if type(value) is int and abs(value) >= MAX_PRINTED_INT else value


def parse_settings(texts: Iterable[str] | None) -> dict[str, Any]:
    """Parse FIELD=VALUE strings into recipe fields and values."""
    fields = dict[str, Any]()
    for text in texts or ():
        field, equals, value = text.partition("=")
        if not equals:
            raise GlassformerError(f"--set {text} — expected FIELD=VALUE, such as lr=0.01")
        fields[field.strip()] = value.strip()
    return fields


def check_names(names: str | None) -> str | None:
    """Check the comma-separated names of --only."""
    if names is not None and not names.strip(", "):
        raise GlassformerError("--only — expected a name, got none")
    return names


def check_figure(path: Path | None, *inputs: str | Path | None) -> None:
    """Raise an error early if a figure path cannot be written or is an input file."""
    if path is not None:
        from ..plotting.style import check_figure_path

        check_writable(check_figure_path(path), *inputs)


def save_figure(figure: Any, path: Path) -> None:
    from ..plotting.style import save

    save(figure, path)


@contextmanager
def progress_bar(label: str) -> Iterator[ProgressCallback]:
    """Yield a callback that shows progress as a bar on a terminal: `progress=` of a public call."""
    from rich.progress import Progress as Bar
    from rich.progress import TextColumn

    columns = (*Bar.get_default_columns(), TextColumn("{task.fields[rate]}"))
    with Bar(*columns, console=err, transient=True, disable=not sys.stderr.isatty()) as bar:
        line = bar.add_task(escape(label), total=None, rate="")

        def show(p: Progress) -> None:
            text = escape(p.stage or label) + (f", {p.wrong:,} wrong" if p.wrong else "")
            speed = bar.tasks[0].speed
            bar.update(
                line, description=text, total=p.total or None, completed=p.done,
                rate=f"{speed:,.0f}/s" if speed and p.total else "",
            )  # fmt: skip

        yield show
