"""The command studio: the live page with a Python server behind it, on this machine only."""

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from .. import api
from .common import app, print_json, print_text
from .options import Json


@app.command("studio")
def studio_(
    refs: Annotated[list[str], Argument(metavar="REF...",
        help="models to show side by side, up to four; x.py:NAME executes that file")],
    folders: Annotated[list[Path] | None, Option("--folder",
        help="FOLDER whose models and sources the page may open; repeatable")] = None,
    inputs: Annotated[list[str] | None, Option("--input",
        help="text to start with; repeatable")] = None,
    port: Annotated[int | None, Option(
        help="port on 127.0.0.1, 0 for any; default: 8757, or any if that is taken")] = None,
    minutes: Annotated[float, Option(
        help="time limit of a verification, a proof, a training, and of loading each model")
    ] = 30.0,
    gigabytes: Annotated[float, Option("--memory", help="memory limit of each job, in GiB")] = 4.0,
    browser: Annotated[bool, Option("--browser/--no-browser",
        help="open the page in a browser if there is a screen")] = True,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Open the live page with a server behind it: write sources, verify, prove and train there.

    The server listens on 127.0.0.1 only and answers only requests with the token in the address
    that it prints. Nothing sent to it is executed. Ctrl-C stops it and all its jobs.
    """
    server, models = api.create_server(refs, folders or (), inputs or (), port, minutes, gigabytes)
    try:
        if as_json:
            print_json({"address": server.address, "port": server.port, "refs": refs})
        else:
            print_text(f"{server.address}\nCtrl-C stops the server")
        sys.stdout.flush()
        if browser and not as_json and _has_screen():
            webbrowser.open(server.one_time_address)
        server.run()
    except KeyboardInterrupt:  # Ctrl-C is the usual way to stop the server
        print_text("" if as_json else "closed")
    finally:
        server.close()
        models.cleanup()


def _has_screen() -> bool:
    """Return whether a browser on this machine is visible: there is a terminal and a display."""
    screen = sys.platform in ("darwin", "win32") or {"DISPLAY", "WAYLAND_DISPLAY"} & {*os.environ}
    return sys.stdout.isatty() and bool(screen)
