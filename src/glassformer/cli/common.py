"""What all commands share: the app, the consoles, tables, JSON, and what becomes of errors."""

import json
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from .. import __version__

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="Glassformer: transformers you can see through.",
)  # fmt: skip
out = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else 120)
err = Console(highlight=False, markup=False, emoji=False, stderr=True)

Ref = Annotated[str, typer.Argument(help="a program with options (addition:digits=3), x.safetensors or x.taotp")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object on stdout and nothing else")]


def _version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="the version")] = False,
) -> None:
    """Options of the whole command line, before the name of a command."""


def table_of(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for c in columns:
        table.add_column(c, overflow="fold", justify="right" if c == "" else "left", no_wrap=c == "claim")
    for row in rows:
        table.add_row(*row)
    return table


def print_json(value: Any) -> None:
    print(json.dumps(value, default=float, ensure_ascii=False))
