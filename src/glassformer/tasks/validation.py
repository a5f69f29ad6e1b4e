"""Checks of the arguments and results of a task's methods; errors name the task and the method."""

import functools
import inspect
import math
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.vocabulary import Vocabulary
from ..utils.errors import GlassformerError, short_repr
from ..utils.limits import MAX_SAMPLE_ROWS, MAX_SEED
from .token_layout import TokenLayout

if TYPE_CHECKING:
    from .base import Task


def task_error(task: "Task", problem: str) -> GlassformerError:
    """Return an error with the name of a task and a problem."""
    return GlassformerError(f"{task.ref or type(task).__name__} — {problem}")


def check_attributes(task: "Task") -> None:
    """Check the attributes of a task before its methods are called."""
    if not isinstance(words := getattr(task, "vocabulary", None), Vocabulary):
        raise task_error(task, f"vocabulary: expected a Vocabulary, got {short_repr(words)}")
    radix = getattr(task, "radix", None)
    if not isinstance(radix, (tuple, list)) or any(type(n) is not int or n < 1 for n in radix):
        raise task_error(task, f"radix must be whole numbers from 1, got {short_repr(radix)}")
    modular = getattr(task, "modular", None)
    pair = modular is None or (isinstance(modular, tuple) and len(modular) == 2)
    if not pair or (modular and (type(modular[0]) is not int or modular[1] not in ("+", "-"))):
        raise task_error(task, f"modular must be p and + or -, or None, got {short_repr(modular)}")


def with_checked_result(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method of RESULT_CHECKS to check its result and to name the task in errors."""

    @functools.wraps(method)
    def call(self: "Task", *args: Any, **kwargs: Any) -> Any:
        try:
            result = method(self, *args, **kwargs)
        except (GlassformerError, MemoryError):
            raise
        except Exception as e:
            if (place := _user_code_line(method, e)) is None:
                raise
            raise task_error(self, f"its {name} failed: {type(e).__name__}: {e} ({place})") from e
        if getattr(type(self), name) is call:  # A call by super() from a subclass is not checked.
            RESULT_CHECKS[name](self, result, *args, **kwargs)
            return _as_int64(name, result)
        return result

    return call


def _is_array(axes: int, value: Any, kinds: str = "iuO") -> bool:
    return isinstance(value, np.ndarray) and value.ndim == axes and value.dtype.kind in kinds


def _is_whole(value: Any, low: float = -math.inf, high: float = math.inf) -> bool:
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return is_integer and low <= value <= high


def _is_tokens(value: Any) -> bool:
    is_list = isinstance(value, (list, tuple)) and all(map(_is_whole, value))
    return is_list or _is_array(1, value, "iu")


Expected = tuple[Callable[[Any], bool], str]
ROWS: Expected = (partial(_is_array, 2), "an array of whole numbers [B,n]")
ROW_PAIRS: Expected = (partial(_is_array, 3), "an array of whole numbers [2,B,n]")
TOKENS: Expected = (_is_tokens, "whole numbers [T]")
INTEGER: Expected = (_is_whole, "a whole number")
ROW_COUNT, SEED_VALUE = (
    (partial(_is_whole, low=0, high=high), f"a whole number from 0 to {high:,}")
    for high in (MAX_SAMPLE_ROWS, MAX_SEED)
)
TEXT: Expected = (lambda value: isinstance(value, str), "a text")
RNG: Expected = (lambda value: isinstance(value, np.random.Generator), "a NumPy Generator")
ARGUMENTS: dict[str, dict[str, Expected]] = {  # maps method and argument to a type
    **{name: {"rows": ROWS} for name in ("batch", "defined", "classes", "values")},
    **{name: {"text": TEXT} for name in ("prompt", "read")},
    "at_difficulty": {"rows": ROWS, "level": INTEGER},
    "counterfactual_answers": {"rows": ROW_PAIRS, "i": INTEGER},
    "rows": {"start": INTEGER, "stop": INTEGER},
    "sample": {"n": ROW_COUNT, "rng": RNG},
    "sample_or_all": {"n": ROW_COUNT, "seed": SEED_VALUE},
    "declares": {"name": TEXT},
    "answer": {"tokens": TOKENS},
}


def with_checked_arguments(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method of ARGUMENTS to raise an error for arguments of a wrong type."""
    expected = ARGUMENTS[name]

    @functools.wraps(method)
    def call(self: "Task", *args: Any, **kwargs: Any) -> Any:
        for argument, value in (*zip(expected, args, strict=False), *kwargs.items()):
            if argument in expected and not expected[argument][0](value):
                must = expected[argument][1]
                raise task_error(self, f"{name}: expected {must}, got {short_repr(value)}")
        return method(self, *args, **kwargs)

    return call


def _as_int64(name: str, value: Any) -> Any:
    """Convert integers to int64, because mixed NumPy integer types give floats."""
    if name == "batch":
        return value[0].astype(np.int64, copy=False), value[1]
    if name in ("rows", "sample", "edges") and value.dtype != object:
        return value.astype(np.int64, copy=False)
    return value


def _user_code_line(method: Callable[..., Any], e: Exception) -> str | None:
    """Return the line of a method's file where an error passed; None inside this package."""
    if (getattr(method, "__module__", "") or "").partition(".")[0] == __name__.partition(".")[0]:
        return None
    code = getattr(inspect.unwrap(method), "__code__", None)
    if code is None:  # The method is not a Python function.
        return f"in a {type(method).__name__}"
    file, line = code.co_filename, code.co_firstlineno
    for frame, at in traceback.walk_tb(e.__traceback__):
        line = at if frame.f_code.co_filename == file else line
    return f"{Path(file).name}:{line}"


def _batch(task: "Task", value: Any, rows: Any) -> None:
    if not isinstance(value, tuple) or len(value) != 2:
        got = short_repr(value)
        raise task_error(task, f"its batch must be tokens and a mask of the answer, got {got}")
    tokens, answer = value
    shape = (len(rows), *_shape(tokens)[1:])
    wide = len(shape) == 2 and shape[1] > 1
    _require(task, "the tokens of its batch", tokens, np.integer, shape, wide, "[B,T], T from 2")
    _require(task, "the answers of its batch", answer, np.bool_, shape)
    if not len(rows):
        return
    last = len(task.vocabulary) - 1
    if tokens.min() < 0 or tokens.max() > last:
        outside = (tokens < 0) | (tokens > last)
        _refuse_rows(task, f"a token beyond the last one, {last}", outside, rows)
    if not answer.any(1).all():
        _refuse_rows(task, "no answer", ~answer.any(1, keepdims=True), rows)
    if answer[:, 0].any():
        _refuse_rows(task, "an answer at the first position", answer[:, :1], rows)


def _refuse_rows(task: "Task", problem: str, where: Any, rows: Any) -> None:
    """Raise an error if the mask `where` holds for a row that has an answer."""
    if (bad := where.any(1) & task.defined(rows)).any():
        raise task_error(task, f"its batch has {problem}, for row {rows[bad][0].tolist()}")


def _format(task: "Task", value: Any) -> None:
    if value is not None and not isinstance(value, TokenLayout):
        raise task_error(task, f"its layout must be a TokenLayout or None, got {short_repr(value)}")


def _shape(value: Any) -> tuple[int, ...]:
    return value.shape if isinstance(value, np.ndarray) else ()


ROW_METHODS = ("its rows", "its sample", "its edges")  # methods whose numbers may exceed int64


def _require(
    task: "Task", label: str, value: Any, kind: type, shape: tuple[int, ...], good: bool = True,
    form: str = "",
) -> None:  # fmt: skip
    """Raise an error unless `value` is an array of the given kind and shape."""
    is_array = isinstance(value, np.ndarray)
    if is_array and np.issubdtype(value.dtype, kind) and value.shape == shape and good:
        return
    if is_array and label in ROW_METHODS and value.dtype == task.row_type and value.shape == shape:
        return
    words = "whole numbers" if kind is np.integer else "True or False"
    got = f"{value.dtype} {list(value.shape)}" if is_array else short_repr(value)
    raise task_error(task, f"{label} must be {words} {form or list(shape)}, got {got}")


def _require_rows(task: "Task", label: str, value: Any, n: int) -> None:
    _require(task, label, value, np.integer, (n, len(task.radix)))


RESULT_CHECKS: dict[str, Callable[..., None]] = {
    "batch": _batch, "layout": _format,
    "defined": lambda t, mask, rows: _require(t, "its defined", mask, np.bool_, (len(rows),)),
    "rows": lambda t, rows, start, stop: _require_rows(t, "its rows", rows, stop - start),
    "sample": lambda t, rows, n, rng: _require_rows(t, "its sample", rows, n),
    "edges": lambda t, rows: _require_rows(t, "its edges", rows, sum(_shape(rows)[:1])),
}  # fmt: skip
