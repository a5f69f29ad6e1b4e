"""The command claims: what the sources print, measured."""

from typing import Annotated

from typer import Argument, Exit, Option

from ..claims import as_text, select
from .common import Json, app, out, print_json, progress, say


@app.command("claims")
def claims_(
    names: Annotated[
        list[str] | None, Argument(help="names, or how names start; default: all")
    ] = None,
    slow: Annotated[bool, Option(help="also those that take minutes")] = False,
    as_json: Json = False,
) -> None:
    """Measure what the sources claim, and compare with what the ledger records."""
    chosen = select(names or [], slow)
    with progress() as bar:
        measured = [(c, c.measure()) for c in bar.track(chosen, description="measuring")]
    differ = sum(not c.matches(m) for c, m in measured)
    if as_json:
        rows = [c.to_json() | {"measured": m, "matches": c.matches(m)} for c, m in measured]
        print_json({"differ": differ, "claims": rows})
    else:
        for c, m in measured:
            mark = "" if c.matches(m) else f"  ≠ record {as_text(c.records)}"
            out.print(f"{c.name}  {c.verdict}", style="bold")
            say(f"    {c.where} says: {c.says}")
            say(f"    measured: {as_text(m)}{mark}" + (f" ({c.note})" if c.note else ""))
        n = f"{len(measured)} claim{'s' * (len(measured) != 1)}"
        out.print(f"{n} measured, {differ} differ from the record")
    raise Exit(1 if differ else 0)
