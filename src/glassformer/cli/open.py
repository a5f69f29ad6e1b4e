"""The command open: the live page with Python behind it, from this machine to this machine."""

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from .. import api
from .common import Json, app, print_json, print_text


@app.command("open")
def open_(
    refs: Annotated[list[str], Argument(metavar="REF...",
        help="models to set side by side, up to four; x.py:NAME runs that file")],
    folders: Annotated[list[Path] | None, Option("--folder",
        help="FOLDER whose models and sources the page may name; may be given again")] = None,
    inputs: Annotated[list[str] | None, Option("--input",
        help="what they read at first; may be given again")] = None,
    port: Annotated[int | None, Option(
        help="of 127.0.0.1; 0: any free one; without it 8757, or any if that is taken")] = None,
    minutes: Annotated[float, Option(
        help="that a verification, a proof or a training may take, and each model at the start")
    ] = 30.0,
    gigabytes: Annotated[float, Option("--memory",
        help="GiB that a piece of work may take")] = 4.0,
    browser: Annotated[bool, Option("--browser/--no-browser",
        help="open the page in a browser, where there is a screen")] = True,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Open the live page with a server behind it: type sources, verify, prove and train from it.

    It listens on 127.0.0.1 alone, and answers only who knows the address that it prints. Nothing
    that is sent to it is executed. Ctrl-C ends it, and all that it is doing.
    """
    server, kept = api.serving(refs, folders or (), inputs or (), port, minutes, gigabytes)
    try:
        if as_json:
            print_json({"address": server.address, "port": server.port, "refs": refs})
        else:
            print_text(f"{server.address}\nCtrl-C ends it")
        sys.stdout.flush()
        if browser and not as_json and _has_screen():
            webbrowser.open(server.once)
        server.run()
    except KeyboardInterrupt:  # the way to end it
        print_text("" if as_json else "closed")
    finally:
        server.close()
        kept.cleanup()


def _has_screen() -> bool:
    """Whether someone sits before it: in a pipe or on a machine far away there is no browser."""
    screen = sys.platform in ("darwin", "win32") or {"DISPLAY", "WAYLAND_DISPLAY"} & {*os.environ}
    return sys.stdout.isatty() and bool(screen)
