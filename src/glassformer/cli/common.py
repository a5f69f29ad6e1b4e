"""What commands share: the app, the options that several have, the consoles, bars, tables and JSON.

Tokens, names and messages come from files of anyone, and may hold what moves the cursor or turns
text around. All that is printed goes through `out`, `err`, `say` or `print_json`, which show such
characters (\\x1b) and never send them.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.text import Text
from typer import Argument, Exit, Option

from .. import __version__
from ..utils.errors import MAX_PRINTED_INT, GlassformerError, approx_int
from ..utils.fileio import check_writable
from ..utils.progress import Progress, ProgressCallback

if TYPE_CHECKING:  # a run shows neither
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn
    from rich.table import Table

MIN_COLUMNS = 20  # columns; a terminal that claims fewer is not believed
# Control characters (not ends of lines and tabs), what turns text around, what has no width (but
# not the joiners that scripts and emoji need), halves of characters.
INVISIBLE_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ud800-\udfff]"
)


def escape_invisible(text: str) -> str:
    """The text with what a terminal would obey written out: \\x1b, \\r, \\u202e."""
    return INVISIBLE_CHARACTERS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class Interrupted(GlassformerError):
    """A run was asked to stop, by Ctrl-C or a kill, and has said what became of it."""


class SafeConsole(Console):
    """A console on which nothing that is printed can do anything but be seen."""

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
        for segment in super().render(renderable, options):  # what did not come as a string
            yield (
                segment
                if segment.control
                else segment._replace(text=escape_invisible(segment.text))
            )

    def discard_output(self) -> None:
        """Drops what could not be written, or it would be tried again with what is printed next."""
        with suppress(OSError, ValueError):
            self.begin_capture()
            self.end_capture()

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # for `main` to deal with: the status is its business


app = typer.Typer(
    pretty_exceptions_enable=False, rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Glassformer: transformers you can see through.",
)  # fmt: skip
out = SafeConsole(width=None if sys.stdout and sys.stdout.isatty() else 120)
err = SafeConsole(stderr=True)


Ref = Annotated[str, Argument(help="a program with options (addition:digits=3), "
    "lang/sort, x.safetensors, x.taotp, x.glass or x.py:NAME")]  # fmt: skip
Seed = Annotated[int, Option(help="seed of sampling, from 0")]
TaskOption = Annotated[str | None, Option(
    "--task", help="task to check against; default: the model's own")]  # fmt: skip
TaskArgument = Annotated[str, Argument(
    help="a task with options: addition:digits=3,order=ones, or mine.py:Vote")]  # fmt: skip
RecipeName = Annotated[str, Option(
    "--recipe",
    help="a name (glassformer list recipes), FILE.json, FILE.toml or x.py:NAME; default: what "
    "suits the task")]  # fmt: skip
Settings = Annotated[list[str] | None, Option(
    "--set", help="FIELD=VALUE: change a field of the recipe; repeat")]  # fmt: skip
Threads = Annotated[int, Option(help="number of PyTorch threads; tiny models are fastest with one")]
Cluster = Annotated[str, Option(help="the scheduler of a Dask cluster: tcp://host:port")]
Json = Annotated[bool, Option("--json", help="one JSON object on stdout and nothing else")]


def _version(asked: bool) -> None:
    if asked:
        print_text(__version__)
        raise Exit


@app.callback()
def options(
    version: Annotated[bool, Option("--version", "-V", callback=_version, is_eager=True,
        help="the version")] = False,
) -> None:  # fmt: skip
    """Options of the whole command line, before the name of a command."""


# ── what is asked for ──────────────────────────────────────────────────────────────────────────
def join_words(words: Iterable[str], conjunction: str = "or") -> str:
    """a, b or c."""
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last


# ── what is said ───────────────────────────────────────────────────────────────────────────────
def make_table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]] = ()) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for c in columns:
        table.add_column(c, overflow="fold", justify="left" if c else "right", no_wrap=c == "claim")
    for row in rows:
        table.add_row(*row)
    return table


def print_text(text: object) -> None:
    """Prints a text as it is, without the breaks of lines and colours of a console."""
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
    """A value for JSON, with whole numbers in words that Python would not write."""
    if isinstance(value, dict):
        return {name: _json_safe(v) for name, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_safe(v) for v in value]
    return approx_int(value) if type(value) is int and abs(value) >= MAX_PRINTED_INT else value


def parse_settings(texts: Iterable[str] | None) -> dict[str, Any]:
    """Parse FIELD=VALUE texts into recipe fields and their values."""
    fields = dict[str, Any]()
    for text in texts or ():
        field, equals, value = text.partition("=")
        if not equals:
            raise GlassformerError(f"--set {text} — expected FIELD=VALUE, such as lr=0.01")
        fields[field.strip()] = value.strip()
    return fields


def check_figure(path: Path | None, *inputs: str | Path | None) -> None:
    """Refuse a figure path that cannot be written, before the work. `read`: the input files."""
    if path is not None:
        from ..plotting.style import check_figure_path

        check_writable(check_figure_path(path), *inputs)


def save_figure(figure: Any, path: Path) -> None:
    from ..plotting.style import save

    save(figure, path)


def progress_display(*columns: "ProgressColumn") -> "Bar":
    """A bar where there is a terminal, gone at the end."""
    from rich.progress import Progress as Bar

    return Bar(*columns, console=err, transient=True, disable=not sys.stderr.isatty())


@contextmanager
def progress_bar(label: str) -> Iterator[ProgressCallback]:
    """Yield a callback that shows progress as a bar on a terminal: `progress=` of a public call."""
    from rich.progress import Progress as Bar
    from rich.progress import TextColumn

    with progress_display(*Bar.get_default_columns(), TextColumn("{task.fields[rate]}")) as bar:
        line = bar.add_task(escape(label), total=None, rate="")

        def show(p: Progress) -> None:
            text = escape(p.stage or label) + (f", {p.wrong:,} wrong" if p.wrong else "")
            speed = bar.tasks[0].speed
            bar.update(
                line, description=text, total=p.total or None, completed=p.done,
                rate=f"{speed:,.0f}/s" if speed and p.total else "",
            )  # fmt: skip

        yield show
