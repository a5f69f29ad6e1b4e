"""The command line: parsing and printing only.

Exit status: 0 it holds, 1 it does not (wrong outputs, a claim that differs), 2 the call was wrong.
"""

import sys

from ..errors import GlassformerError
from . import (  # noqa: F401 - they register their commands
    ablate,
    export,
    inside,
    look,
    prove,
    report,
    sweep,
    training,
    truth,
    verify,
)
from .common import app, err


def main() -> None:
    """The `glassformer` command. Whatever a person typed wrong ends in one line and status 2."""
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        status = app(standalone_mode=False)
    except GlassformerError as e:
        status = _fail(str(e))
    except KeyboardInterrupt:
        status = _fail("interrupted")
    except BrokenPipeError:  # the reader had enough
        sys.stderr.close()
        status = 0
    except Exception as e:
        if not hasattr(e, "format_message"):  # not a usage error of the command line library
            raise
        status = _fail(e.format_message())
    sys.exit(status or 0)


def _fail(message: str) -> int:
    err.print("error: " + "; ".join(" ".join(line.split()) for line in message.splitlines()), soft_wrap=True)
    return 2
