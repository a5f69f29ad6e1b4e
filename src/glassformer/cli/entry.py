"""The `glassformer` command: import the requested command, run it, set the exit status.

Every exception becomes one line on stderr and an exit status. Failed writes to stdout are reported.
"""

import contextlib
import importlib
import os
import pkgutil
import re
import signal
import sys
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
import typer
from typer.models import CommandInfo

from ..utils import fileio
from ..utils.errors import ErrorList, GlassformerError, missing_extra, short_repr
from .common import Interrupted, app, err, escape_invisible, out

COMMAND_ORDER = (  # order of commands in --help; other commands follow
    "tour", "list", "run", "explain", "verify", "prove", "compile", "check-task", "train", "sweep",
    "ablation-study", "inspect", "report", "studio", "compare", "count", "sizes",
    "adderboard", "ground-truth", "obfuscate", "export", "claims", "puzzle",
)  # fmt: skip
MAX_WORD_CHARACTERS, MAX_MESSAGE_CHARACTERS = 200, 1_500  # limits for error messages


def load_commands(command: str = "") -> list[CommandInfo]:
    """Import the module of a command, or all modules; return the registered commands in order."""
    modules = [m.name for m in pkgutil.iter_modules([os.path.dirname(__file__)])]
    module = command.replace("-", "_")
    for name in [module] if command in COMMAND_ORDER and module in modules else modules:
        importlib.import_module(f"{__package__}.{name}")
    rank = {name: i for i, name in enumerate(COMMAND_ORDER)}
    app.registered_commands.sort(key=lambda c: rank.get(c.name or "", len(rank)))
    return app.registered_commands


def main() -> None:
    """Run the command line and exit. Every error is one line on stderr, with status 2."""
    _prepare_streams()
    if "_GLASSFORMER_COMPLETE" in os.environ:  # for shell completion
        typer.main.get_command(app)(prog_name="glassformer")
    try:
        with _signals_as_interrupt():
            status = _flush_output(_run_command(sys.argv[1:] or ["--help"]))
    except KeyboardInterrupt:
        status = _fail("interrupted", 128 + _signal)
    sys.exit(status)


def _run_command(words: list[str]) -> int:
    """Run a command and return its exit status. Exceptions are printed in one line on stderr."""
    try:
        load_commands(words[0])
        command = typer.main.get_command(app)
        context = command.make_context("glassformer", [*words])  # make_context empties the list
        with context, np.errstate(all="ignore"):  # results report non-finite values
            command.invoke(context)
        return 0
    except typer.Exit as e:
        return e.exit_code
    except BrokenPipeError:
        return _broken_pipe_status()
    except Interrupted as e:
        return _fail(str(e), 128 + _signal)
    except ErrorList as e:
        return max(_fail(line) for line in str(e).split("\n"))
    except GlassformerError as e:
        return _fail(str(e))
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", 128 + _signal)
    except (SystemExit, GeneratorExit) as e:  # status 0 of a user's file would mean success
        return _fail(f"{words[0]} — expected no {type(e).__name__} in a user's file, got {e!r}")
    except MemoryError as e:
        return _fail("not enough memory for this" + (f": {e}" if str(e) else ""), error=e)
    except RecursionError as e:
        return _fail("nested too deeply for this", error=e)
    except OSError as e:
        return _fail(f"{e.filename or 'input or output'} — {fileio.os_error_text(e)}", error=e)
    except Exception as e:
        if hasattr(e, "format_message"):  # this is a usage error of Typer
            option = getattr(e, "option_name", "")
            if words[0] in ("train", "ablation-study"):
                from ..training.recipe import RECIPE_FIELDS

                if (field := option.lstrip("-").replace("-", "_")) in RECIPE_FIELDS:
                    return _fail(f"{words[0]} {option} — is a field of the recipe: --set {field}=…")
            return _fail(_usage_message(words, e))
        if isinstance(e, ModuleNotFoundError) and (needed := missing_extra(words[0], e)):
            return _fail(str(needed))
        # PyTorch raises the first two, Matplotlib the third
        if (
            "can't allocate memory" in str(e)
            or type(e).__name__ == "OutOfMemoryError"
            or isinstance(e.__cause__, MemoryError)
        ):
            return _fail("not enough memory for this", error=e)
        error = f"{type(e).__name__}: {e}"
        hint = "set GLASSFORMER_DEBUG=1 for the traceback"
        return _fail(f"{words[0]} — failed (a defect of glassformer: {error}); {hint}", error=e)


def _usage_message(words: list[str], error: Any) -> str:
    """Return the message of a usage error. For an invalid number, use the wording of api.py."""
    text: str = error.format_message()
    param: Any = getattr(error, "param", None)
    kind = re.search(r"valid (integer|float|number)", text)
    for option in param.opts if kind and param else ():
        for word, value in zip(words, [*words[1:], ""], strict=True):
            text_value = value if word == option else word.removeprefix(option + "=")
            if word.partition("=")[0] == option:
                expected = "a whole number" if kind and kind[1] == "integer" else "a number"
                got = short_repr(text_value)
                return f"{words[0]} — {param.name} must be {expected}, got {got}"
    return text


def _fail(message: str, status: int = 2, error: BaseException | None = None) -> int:
    lines = [" ".join(line.split()) for line in escape_invisible(message).split("\n")]
    text = "; ".join(line for line in lines if line)
    # Shorten long words and the whole message.
    start, middle, end = (MAX_WORD_CHARACTERS // n for n in (2, 4, 4))
    text = re.sub(rf"(\S{{{start}}})\S{{{middle + 1},}}(\S{{{end}}})", r"\1…\2", text)
    text = text if len(text) <= MAX_MESSAGE_CHARACTERS else text[:MAX_MESSAGE_CHARACTERS] + "…"
    try:
        if error and os.environ.get("GLASSFORMER_DEBUG"):
            err.print("".join(traceback.format_exception(error)), soft_wrap=True)
        err.print("error: " + text, soft_wrap=True)
    except (OSError, ValueError):  # stderr is closed
        err.discard_output()
    return status


# ── streams and signals ────────────────────────────────────────────────────────────────────────
_signal: int = signal.SIGINT  # signal that interrupted the command


@contextlib.contextmanager
def _signals_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C, so that commands clean up and write their journals.

    During an import the process ends at once, because an exception there may be swallowed, replaced
    by an ImportError or, in C++, abort the process.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        global _signal
        _signal = number
        while frame:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                with contextlib.suppress(OSError):
                    os.write(2, b"error: interrupted\n")
                os._exit(128 + number)
            frame = frame.f_back
        raise KeyboardInterrupt

    global _signal
    _signal = signal.SIGINT
    before = {}
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        with contextlib.suppress(ValueError):  # raised outside the main thread
            usual = signal.SIG_DFL, signal.default_int_handler
            if number is not None and signal.getsignal(number) in usual:
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _prepare_streams() -> None:
    """Open closed standard streams on the null device, and escape unencodable characters."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # occupies the lowest free descriptor, which a later opened file would get otherwise
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # the stream was replaced, or it is broken and fails later
        with contextlib.suppress(AttributeError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _flush_output(status: int) -> int:
    """Flush stdout. Return the status, or another status if flushing fails."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _broken_pipe_status()
    except (OSError, ValueError) as e:
        _discard_output()
        if status != 2:  # with status 2, an error was already printed
            return _fail(f"output — cannot be written: {fileio.os_error_text(e)}")
    return status


def _broken_pipe_status() -> int:
    _discard_output()
    return 128 + signal.SIGPIPE if hasattr(signal, "SIGPIPE") else 0


def _discard_output() -> None:
    """Drop unwritten output, so that Python does not fail again at exit with another status."""
    out.discard_output()
    stream = sys.__stdout__
    if stream and sys.stdout is stream:  # the stream was not replaced
        with contextlib.suppress(OSError, ValueError):
            null_device = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null_device, stream.fileno())
            os.close(null_device)
