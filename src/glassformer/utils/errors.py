"""GlassformerError, its error codes, and helpers for error messages."""

import difflib
import math
import re
import reprlib
import sys
from collections.abc import Iterable
from typing import Any

MAX_PRINTED_INT = 10**4_000  # larger ints print as "about 10^n"; Python's limit is 4,300 digits
EXTRAS = {  # maps a module to its library and the extra that installs it
    "torch": ("PyTorch", "torch"), "matplotlib": ("Matplotlib", "figures"),
    "transformers": ("transformers", "gpt2"), "tokenizers": ("tokenizers", "gpt2"),
    "onnx": ("ONNX", "onnx"), "onnxruntime": ("ONNX Runtime", "onnx"),
    "distributed": ("Dask", "cluster"), "flint": ("python-flint", "proof"),
    "transformer_lens": ("TransformerLens", "transformer-lens"),
    "fastapi": ("FastAPI", "serve"), "pydantic": ("FastAPI", "serve"),
    "starlette": ("FastAPI", "serve"), "uvicorn": ("Uvicorn", "serve"),
}  # fmt: skip


def missing_library_message(module: str) -> str:
    """Return an error message with the command that installs a module of EXTRAS."""
    library, extra = EXTRAS[module]
    return f"needs {library}, which is not installed: pip install 'glassformer[{extra}]'"


FIGURES_MISSING, TORCH_MISSING = map(missing_library_message, ("matplotlib", "torch"))
DAMAGED_FILE = "damaged_file"
# Stable error codes: `error.code` in Python, `code` in server responses.
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
    """An error in the caller's input, with the expected and the actual value in its message.

    `code` is one of CODES. An error raised while handling an exception takes its code.
    """

    def __init__(self, *args: Any, code: str = "") -> None:
        super().__init__(*args)
        self.code = code or _code_of(sys.exc_info()[1])


def _code_of(handled: BaseException | None) -> str:
    """Return the code of an error raised while this package handles `handled`."""
    trace = handled and handled.__traceback__
    if not trace or not trace.tb_frame.f_globals.get("__name__", "").startswith(PACKAGE):
        return "bad_argument"  # The caller handles an unrelated exception.
    if isinstance(handled, GlassformerError):
        return handled.code
    if isinstance(handled, ModuleNotFoundError):
        missing = (handled.name or "").partition(".")[0]
        return "needs_extra" if missing in EXTRAS else "bad_argument"
    if isinstance(handled, OSError):
        return "not_found" if isinstance(handled, FileNotFoundError) else "file_error"
    return "too_large" if isinstance(handled, MemoryError) else "bad_argument"


class ErrorList(GlassformerError):
    """Several errors as one exception with one line per error."""


class NamedError(GlassformerError):
    """An error whose message already starts with the name of a program or task."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name

    def __reduce__(self) -> Any:
        return type(self), (self.name, *self.args), vars(self)


def missing_extra(label: str, error: ModuleNotFoundError) -> GlassformerError | None:
    """Return the error for a missing library of EXTRAS, or None for any other module."""
    if (module := (error.name or "").partition(".")[0]) not in EXTRAS:
        return None
    return GlassformerError(f"{label} — {missing_library_message(module)}", code="needs_extra")


def short_repr(value: Any) -> str:
    """Return the repr of a value, shortened to one short line."""
    return re.sub(r"\s*\n\s*", " ", _short.repr(value))


def value_error(where: str, expected: str, value: Any, code: str = "") -> GlassformerError:
    """Return the error "where — expected …, got …"; `where` may end in a colon instead."""
    start = f"{where} " if where.endswith(":") else f"{where} — "
    return GlassformerError(f"{start}expected {expected}, got {short_repr(value)}", code=code)


def shorten(text: str, max_characters: int) -> str:
    """Return a text with at most `max_characters` characters, ending in … if it was longer."""
    return text if len(text) <= max_characters else text[: max_characters - 1] + "…"


def ascii_name(name: Any) -> str:
    r"""Return a name that was read from a file in printable ASCII: `additi\u043en`.

    Homoglyphs, zero-width and control characters would make the name look like another one.
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
    """Return a hint with the known names closest to `name`, or all known names if none is close."""
    names = list(known)
    if near := difflib.get_close_matches(name[:100], names, max_matches, cutoff):
        return f"did you mean {' or '.join(near)}?"
    return f"{otherwise} {', '.join(names) or 'none'}"


def unknown_name_error(
    kind: str, name: str, known: Iterable[str], max_matches: int = 2, cutoff: float = 0.5
) -> GlassformerError:
    """Return an error for an unknown name that suggests the closest known names."""
    short = " ".join(shorten(name, 100).split())
    hint = did_you_mean(name, known, max_matches, cutoff)
    return GlassformerError(f"{short} — no such {kind}; {hint}", code="not_found")


def approx_int(n: int) -> str:
    """Return the order of magnitude of an integer that is too long to print."""
    return f"about {'-' * (n < 0)}10^{int(math.log10(abs(n)) + 1e-9)}"


class _Short(reprlib.Repr):
    def repr1(self, x: Any, level: int) -> str:
        try:
            return super().repr1(x, level)
        except Exception:  # reprlib picks a method by the name of the class, such as "array".
            return self.repr_instance(x, level)

    def repr_int(self, x: int, level: int) -> str:
        return approx_int(x) if abs(x) >= MAX_PRINTED_INT else super().repr_int(x, level)


_short = _Short()
_short.maxstring = _short.maxother = _short.maxlong = 60
_short.maxlevel = 2
