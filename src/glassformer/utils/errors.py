"""GlassformerError, its codes, and helpers for its messages."""

import difflib
import math
import re
import reprlib
import sys
from collections.abc import Iterable
from typing import Any

MAX_PRINTED_INT = 10**4_000  # larger ints are shown as "about 10^n": Python converts 4,300 digits
EXTRAS = {  # module: the library's name, and the extra of this package that installs it
    "torch": ("PyTorch", "torch"), "matplotlib": ("Matplotlib", "figures"),
    "transformers": ("transformers", "gpt2"), "tokenizers": ("tokenizers", "gpt2"),
    "onnx": ("ONNX", "onnx"), "onnxruntime": ("ONNX Runtime", "onnx"),
    "distributed": ("Dask", "cluster"), "flint": ("python-flint", "proof"),
    "transformer_lens": ("TransformerLens", "transformer-lens"),
    "fastapi": ("FastAPI", "serve"), "pydantic": ("FastAPI", "serve"),
    "starlette": ("FastAPI", "serve"), "uvicorn": ("Uvicorn", "serve"),
}  # fmt: skip


def missing_library_message(module: str) -> str:
    """Return the message with the install command for a module of EXTRAS."""
    library, extra = EXTRAS[module]
    return f"needs {library}, which is not installed: pip install 'glassformer[{extra}]'"


FIGURES_MISSING, TORCH_MISSING = (
    missing_library_message("matplotlib"),
    missing_library_message("torch"),
)
DAMAGED_FILE = "damaged_file"
# Error codes: `error.code` in Python, `code` in server responses. Codes are stable, messages are
# not.
CODES = {
    "bad_argument": "an argument has a wrong type or value, or conflicts with another argument",
    "not_found": "no file, model, task or other object has that name",
    "file_error": "a file cannot be read or written",
    DAMAGED_FILE: "a file is damaged or in another format",
    "too_large": "the call needs more memory than is available",
    "needs_extra": "an optional library is missing; the message has the command to install it",
    "bad_source": "a .glass source or .taotp text has an error at the place the message names",
    "unsupported": "a format, library or method cannot represent this model or task",
}
PACKAGE = __name__.partition(".")[0]


class GlassformerError(Exception):
    """An error in the caller's input. The message names the operation, the expected value and the
    actual one.

    `code` is one of CODES. An error raised while another is handled takes the code of that one.
    """

    def __init__(self, *args: Any, code: str = "") -> None:
        super().__init__(*args)
        self.code = code or _code_of(sys.exc_info()[1])


def _code_of(handled: BaseException | None) -> str:
    """Return the code of an error raised while `handled` is handled in this package."""
    trace = handled and handled.__traceback__
    if not trace or not trace.tb_frame.f_globals.get("__name__", "").startswith(PACKAGE):
        return "bad_argument"  # the caller handles something else
    if isinstance(handled, GlassformerError):
        return handled.code
    if isinstance(handled, ModuleNotFoundError):
        missing = (handled.name or "").partition(".")[0]
        return "needs_extra" if missing in EXTRAS else "bad_argument"
    if isinstance(handled, OSError):
        return "not_found" if isinstance(handled, FileNotFoundError) else "file_error"
    return "too_large" if isinstance(handled, MemoryError) else "bad_argument"


class ErrorList(GlassformerError):
    """Several errors at once, one line each."""


class NamedError(GlassformerError):
    """An error whose message already starts with the name of a program or task."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name

    def __reduce__(self) -> Any:
        return type(self), (self.name, *self.args), vars(self)


def missing_extra(label: str, error: ModuleNotFoundError) -> GlassformerError | None:
    """The error for a missing library of EXTRAS; None for any other module."""
    module = (error.name or "").partition(".")[0]
    message = f"{label} — {missing_library_message(module)}" if module in EXTRAS else ""
    return GlassformerError(message, code="needs_extra") if message else None


def short_repr(value: Any) -> str:
    """Return a value on one short line, whatever its size."""
    return re.sub(r"\s*\n\s*", " ", _short.repr(value))


def ascii_name(name: Any) -> str:
    """A name read from a file, in printable ASCII: `additi\\u043en` with a Cyrillic letter.

    Homoglyphs, zero-width and control characters would make it look like another name. Names that
    the user typed are shown as typed.
    """
    text = str(name)
    return text if text.isascii() and text.isprintable() else text.encode("unicode_escape").decode()


def did_you_mean(
    name: str,
    known: Iterable[str],
    max_matches: int = 3,
    cutoff: float = 0.5,
    otherwise: str = "there are",
) -> str:
    """Return a hint with the names closest to `name`, or all names if none is close."""
    names = list(known)
    near = difflib.get_close_matches(name[:100], names, max_matches, cutoff)
    return (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"{otherwise} {', '.join(names) or 'none'}"
    )


def unknown_name_error(
    kind: str, name: str, known: Iterable[str], max_matches: int = 2, cutoff: float = 0.5
) -> GlassformerError:
    """Return the error for a name that does not exist, with the closest existing names."""
    short = " ".join((name if len(name) <= 100 else name[:99] + "…").split())
    hint = did_you_mean(name, known, max_matches, cutoff)
    return GlassformerError(f"{short} — no such {kind}; {hint}", code="not_found")


def approx_int(n: int) -> str:
    """Return the order of magnitude of a whole number too long to write out."""
    return f"about {'-' * (n < 0)}10^{int(math.log10(abs(n)) + 1e-9)}"


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        return approx_int(x) if abs(x) >= MAX_PRINTED_INT else super().repr_int(x, level)


_short = _Short()
_short.maxstring = _short.maxother = _short.maxlong = 60
_short.maxlevel = 2
