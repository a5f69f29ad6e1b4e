"""The command claims: measure published figures again."""

from typing import Annotated

from typer import Argument, Exit, Option

from .. import api
from .common import app, out, print_json, print_text, progress_bar
from .options import Json


@app.command("claims")
def claims_(
    names: Annotated[list[str] | None, Argument(
        help="names of claims, or prefixes of names; default: all")] = None,
    slow: Annotated[bool, Option(help="measure slow claims too, which take minutes")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Measure published figures and compare them with the recorded values."""
    with progress_bar("measuring") as bar:
        result = api.claims(names or (), slow=slow, progress=bar)
    if as_json:
        print_json(result.to_json())
    else:
        for measured in result.measurements:
            title, *lines = str(measured).split("\n")
            out.print(title, style="bold")
            print_text("\n".join(lines))
        print_text(result.summary)
    raise Exit(0 if result.holds else 1)
