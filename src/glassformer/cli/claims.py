"""The command claims: what the sources print, measured."""

from typing import Annotated

from typer import Argument, Exit, Option

from .. import api
from .common import Json, app, out, print_json, print_text, progress_bar


@app.command("claims")
def claims_(
    names: Annotated[
        list[str] | None, Argument(help="names, or how names start; default: all")
    ] = None,
    slow: Annotated[bool, Option(help="also those that take minutes")] = False,
    as_json: Json = False,
) -> None:
    """Measure what the sources claim, and compare with what the ledger records."""
    with progress_bar("measuring") as bar:
        found = api.claims(names or (), slow=slow, progress=bar)
    if as_json:
        print_json(found.to_json())
    else:
        for each in found.measurements:
            title, *lines = str(each).split("\n")
            out.print(title, style="bold")
            print_text("\n".join(lines))
        print_text(found.summary)
    raise Exit(0 if found.holds else 1)
