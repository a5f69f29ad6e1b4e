"""Validation of a task's methods, with errors that name the method and its mistake."""

import functools
import inspect
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.vocabulary import Vocabulary
from ..utils.errors import GlassformerError, shown
from ..utils.limits import SAMPLE, SEED
from .token_layout import Format

if TYPE_CHECKING:
    from .base import Task


def wrong(task: "Task", why: str) -> GlassformerError:
    """The error that names a task and its mistake."""
    return GlassformerError(f"{task.ref or type(task).__name__} — {why}")


def check(task: "Task") -> None:
    """What a task has, before it is asked anything."""
    if not isinstance(words := getattr(task, "vocabulary", None), Vocabulary):
        raise wrong(task, f"vocabulary: expected a Vocabulary, got {shown(words)}")
    radix = getattr(task, "radix", None)
    if not isinstance(radix, (tuple, list)) or any(type(n) is not int or n < 1 for n in radix):
        raise wrong(task, f"radix must be whole numbers from 1, got {shown(radix)}")
    modular = getattr(task, "modular", None)
    pair = modular is None or (isinstance(modular, tuple) and len(modular) == 2)
    if not pair or (modular and (type(modular[0]) is not int or modular[1] not in ("+", "-"))):
        raise wrong(task, f"modular must be p and + or -, or None, got {shown(modular)}")


def looked_at(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a task, one of LOOKS, whose words are looked at."""

    @functools.wraps(method)
    def ask(self: "Task", *args: Any, **kwargs: Any) -> Any:
        try:
            said = method(self, *args, **kwargs)
        except (GlassformerError, MemoryError):
            raise
        except Exception as e:
            if (place := _place(method, e)) is None:
                raise
            raise wrong(self, f"its {name} failed: {type(e).__name__}: {e} ({place})") from e
        if getattr(type(self), name) is ask:  # else a subclass asks, and makes something of it
            LOOKS[name](self, said, *args, **kwargs)
            return _plain(name, said)
        return said

    return ask


def _is_array(axes: int, value: Any, kinds: str = "iuO") -> bool:
    return isinstance(value, np.ndarray) and value.ndim == axes and value.dtype.kind in kinds


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_number_of_rows(value: Any) -> bool:
    return _is_whole(value) and 0 <= value <= SAMPLE


def _is_seed(value: Any) -> bool:
    return _is_whole(value) and 0 <= value <= SEED


def _is_tokens(value: Any) -> bool:
    listed = isinstance(value, (list, tuple)) and all(map(_is_whole, value))
    return listed or _is_array(1, value, "iu")


Expected = tuple[Callable[[Any], bool], str]
ROWS: Expected = (partial(_is_array, 2), "an array of whole numbers [B,n]")
PAIRS: Expected = (partial(_is_array, 3), "an array of whole numbers [2,B,n]")
TOKENS: Expected = (_is_tokens, "whole numbers [T]")
WHOLE: Expected = (_is_whole, "a whole number")
NUMBER: Expected = (_is_number_of_rows, f"a whole number from 0 to {SAMPLE:,}")
SEED_: Expected = (_is_seed, f"a whole number from 0 to {SEED:,}")
TEXT: Expected = (lambda value: isinstance(value, str), "a text")
RNG: Expected = (lambda value: isinstance(value, np.random.Generator), "a NumPy Generator")
ARGUMENTS: dict[str, dict[str, Expected]] = {  # method -> argument -> expected type
    **{name: {"rows": ROWS} for name in ("batch", "defined", "classes", "values")},
    **{name: {"text": TEXT} for name in ("prompt", "read")},
    "simpler": {"rows": ROWS, "level": WHOLE}, "foretold": {"rows": PAIRS, "i": WHOLE},
    "rows": {"start": WHOLE, "stop": WHOLE}, "sample": {"n": NUMBER, "rng": RNG},
    "some": {"n": NUMBER, "seed": SEED_}, "says": {"name": TEXT}, "answer": {"tokens": TOKENS},
}  # fmt: skip


def with_checked_arguments(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a task, one of ARGUMENTS, that refuses arguments of another type."""
    expected = ARGUMENTS[name]

    @functools.wraps(method)
    def call(self: "Task", *args: Any, **kwargs: Any) -> Any:
        for argument, value in (*zip(expected, args, strict=False), *kwargs.items()):
            if argument in expected and not expected[argument][0](value):
                must = expected[argument][1]
                raise wrong(self, f"{name}: expected {must}, got {shown(value)}")
        return method(self, *args, **kwargs)

    return call


def _plain(name: str, said: Any) -> Any:
    """Whole numbers as int64, in whatever kind they were said: kinds that mix make floats."""
    if name == "batch":
        return said[0].astype(np.int64, copy=False), said[1]
    if name in ("rows", "sample", "edges") and said.dtype != object:
        return said.astype(np.int64, copy=False)
    return said


def _place(method: Callable[..., Any], e: Exception) -> str | None:
    """The last line of the method's own file that an error came by; None for one of ours."""
    if (getattr(method, "__module__", "") or "").partition(".")[0] == __name__.partition(".")[0]:
        return None
    code = getattr(inspect.unwrap(method), "__code__", None)
    if code is None:  # it has no lines of its own
        return f"in a {type(method).__name__}"
    file, line = code.co_filename, code.co_firstlineno
    for frame, at in traceback.walk_tb(e.__traceback__):
        line = at if frame.f_code.co_filename == file else line
    return f"{Path(file).name}:{line}"


def _batch(task: "Task", said: Any, rows: Any) -> None:
    if not isinstance(said, tuple) or len(said) != 2:
        raise wrong(task, f"its batch must be tokens and where the answer is, got {shown(said)}")
    tokens, answer = said
    shape = (len(rows), *_shape(tokens)[1:])
    wide = len(shape) == 2 and shape[1] > 1
    _require(task, "the tokens of its batch", tokens, np.integer, shape, wide, "[B,T], T from 2")
    _require(task, "the answers of its batch", answer, np.bool_, shape)
    if not len(rows):
        return
    last = len(task.vocabulary) - 1
    if tokens.min() < 0 or tokens.max() > last:
        _refuse(task, f"a token beyond the last one, {last}", (tokens < 0) | (tokens > last), rows)
    if not answer.any(1).all():
        _refuse(task, "no answer", ~answer.any(1, keepdims=True), rows)
    if answer[:, 0].any():
        _refuse(task, "an answer before anything is read", answer[:, :1], rows)


def _refuse(task: "Task", what: str, where: Any, rows: Any) -> None:
    """An error if that is so of a row that has a right answer: the others may be anything."""
    if (bad := where.any(1) & task.defined(rows)).any():
        raise wrong(task, f"its batch has {what}, for row {rows[bad][0].tolist()}")


def _format(task: "Task", said: Any) -> None:
    if said is not None and not isinstance(said, Format):
        raise wrong(task, f"its format must be a Format or None, got {shown(said)}")


def _shape(said: Any) -> tuple[int, ...]:
    return said.shape if isinstance(said, np.ndarray) else ()


NUMBERS = ("its rows", "its sample", "its edges")  # which may be beyond int64


def _require(
    task: "Task", what: str, said: Any, kind: type, shape: tuple[int, ...], good: bool = True,
    form: str = "",
) -> None:  # fmt: skip
    """An error unless it is an array of this kind and shape."""
    is_array = isinstance(said, np.ndarray)
    if is_array and np.issubdtype(said.dtype, kind) and said.shape == shape and good:
        return
    if is_array and what in NUMBERS and said.dtype == task.row_type and said.shape == shape:
        return
    words = "whole numbers" if kind is np.integer else "True or False"
    got = f"{said.dtype} {list(said.shape)}" if is_array else shown(said)
    raise wrong(task, f"{what} must be {words} {form or list(shape)}, got {got}")


def _require_rows(task: "Task", what: str, said: Any, n: int) -> None:
    _require(task, what, said, np.integer, (n, len(task.radix)))


LOOKS: dict[str, Callable[..., None]] = {
    "batch": _batch, "format": _format,
    "defined": lambda t, said, rows: _require(t, "its defined", said, np.bool_, (len(rows),)),
    "rows": lambda t, said, start, stop: _require_rows(t, "its rows", said, stop - start),
    "sample": lambda t, said, n, rng: _require_rows(t, "its sample", said, n),
    "edges": lambda t, said: _require_rows(t, "its edges", said, sum(_shape(said)[:1])),
}  # fmt: skip
