"""Export through bridges: check the model, write files, compare logits, move files into place.

A bridge writes a model in the format of another library and uses that library to compute logits
from the files. The export fails unless they agree with the logits of the model (see parity.py).
"""

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .. import registry, taotp
from ..core import checkpoint
from ..core.hooks import record
from ..core.model import Model
from ..utils import fileio
from ..utils.errors import GlassformerError, did_you_mean
from ..utils.results import Result
from .parity import (
    TOLERANCE,
    Agreement,
    compare_logits,
    differing_activations,
    parity_batch,
    reordered_agreements,
    to_float32_if_safe,
)

OWN_FORMATS = ("safetensors", "taotp")
FLOAT64_HINT = "export to torch, which keeps float64"
MAX_HOOKED_INPUTS = 64  # inputs with compared activations
NOISE_FACTOR = 8  # largest allowed difference, as a multiple of the measured rounding noise


class Bridge(Protocol):
    """An export format, registered by `@registry.bridge(NAME)`.

    Optional members: `read(path) -> Model`; `hooks(model, path, tokens)`, which returns the
    library's activations under Glassformer's hook names; `files`, the names of files written to a
    folder (empty for a single file).
    """

    extra: str  # name for pip install 'glassformer[extra]'
    needs: tuple[str, ...]  # names of required modules
    float32: bool  # write float32 if it is precise enough; False keeps the model's type

    def check(self, model: Model) -> None:
        """Raise an error if the format cannot represent the model."""

    def float32_limitation(self, model: Model) -> str:
        """Describe float32 computations of the library with float64 weights, or return ""."""

    def write(self, model: Model, path: Path) -> list[str]:
        """Write the model to `path`, a new file or folder, and return notes for the user."""

    def logits(self, path: Path, tokens: Any) -> Any:
        """Compute NumPy logits [B,T,V] of tokens [B,T] from the written files with the library."""


@dataclass(frozen=True)
class ExportResult(Result):
    """The path of an export, and the agreement of the library's logits with the model's logits."""

    path: Path
    to: str
    parity: float  # largest |difference of logits| / max(1, largest |logit|) at answer positions
    rows: int
    notes: list[str]
    tokens: int  # compared greedy tokens: at answer positions, or at all without a task
    differ: int  # number of greedy tokens that differ
    elsewhere: float | None  # parity at the other positions
    dtype: str  # float type of the file; `why` is the reason
    why: str
    moved: dict[str, float]  # activation -> relative difference

    def __str__(self) -> str:
        inputs = f"{self.rows:,} input{'s' * (self.rows != 1)}"
        tokens, at = "all greedy tokens equal", f"at all {self.tokens:,} positions"
        if self.differ:
            tokens = f"{self.differ:,} of {self.tokens:,} greedy tokens differ"
        if self.elsewhere is not None:
            at = f"at the {self.tokens:,} answer positions; elsewhere {self.elsewhere:.1e}"
        text = f"largest logit difference {self.parity:.1e} (relative) over {inputs}"
        text += f", {tokens}, {at}"
        for name, gap in [*self.moved.items()][:1]:
            rest = f" and {len(self.moved) - 1:,} more" * (len(self.moved) > 1)
            text += f"; differing activations: {name} by {gap:.1e}{rest}"
        return text


@dataclass(frozen=True)
class WrittenFile(Result):
    """A written checkpoint or .taotp file, formats that contain the whole model."""

    path: Path
    to: str
    bytes: int

    def __str__(self) -> str:
        return f"wrote {self.path}: {self.to}, {self.bytes:,} bytes"


def bridge_names() -> list[str]:
    """Return the names of all bridges."""
    return sorted(registry.entries("bridge"))


def find_bridge(name: str) -> Bridge:
    """Return a bridge by name. Raise an error if it is unknown or its library is not installed."""
    if name not in bridge_names():
        hint = did_you_mean(name, (*OWN_FORMATS, *bridge_names()), 1, 0.6, "expected one of")
        raise GlassformerError(f"export to {name}: unknown format; {hint}")
    bridge: Bridge = registry.build("bridge", name)
    if missing := [m for m in bridge.needs if importlib.util.find_spec(m) is None]:
        problem = f"needs {' and '.join(missing)}. pip install 'glassformer[{bridge.extra}]'"
        raise export_error(name, problem, "needs_extra")
    return bridge


def export_error(to: str, problem: str, code: str = "unsupported") -> GlassformerError:
    """Return the error of an export to the format `to`."""
    return GlassformerError(f"export to {to}: {problem}", code=code)


def check_supported(to: str, reasons: Iterable[tuple[object, str]]) -> None:
    """Raise the error of the first of the (condition, reason) pairs whose condition holds."""
    for holds, reason in reasons:
        if holds:
            raise export_error(to, f"{reason}. Export to torch or onnx instead")


def check_target(to: str, path: Path) -> None:
    """Raise an error early if an export in this format cannot replace `path`."""
    files = getattr(find_bridge(to), "files", None)
    if not os.path.isdir(path):  # path.is_dir() raises for long names
        if files and os.path.lexists(path):
            raise GlassformerError(f"{path}: expected a folder for {to}, got a file")
        return fileio.check_writable(path)
    if files == frozenset():
        raise GlassformerError(f"{path}: expected a file name for {to}, got a folder")
    if files:
        _check_replaceable(path, files)


def import_library(name: str) -> Any:
    """Import an optional library, as an untyped module."""
    return importlib.import_module(name)


def check_finite(to: str, weights: Mapping[str, Any]) -> None:
    """Raise an error if weights contain NaN or infinity, since no logits could be compared."""
    for name, w in weights.items():
        if not np.isfinite(w).all():
            raise export_error(to, f"expected finite weights, got NaN or inf in {name}")


def write_python(path: Path, text: str) -> None:
    if path.suffix != ".py":
        raise GlassformerError(f"{path.name}: expected a name that ends in .py")
    path.write_text(text, encoding="utf-8")


def run_python_file(path: Path) -> dict[str, Any]:
    """Execute an exported Python file without importing it. Return its global names."""
    module: dict[str, Any] = {"__name__": "glassformer_exported", "__file__": str(path)}
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), module)
    return module


def torch_logits(net: Callable[[Any], Any], tokens: Any) -> Any:
    """Compute NumPy logits [B,T,V] of tokens [B,T] with a PyTorch module, in batches."""
    torch = import_library("torch")
    with torch.no_grad():
        return np.concatenate([net(part).numpy() for part in torch.as_tensor(tokens).split(256)])


def write_as(
    model: Model, to: str, out: str | Path, tolerance: float = TOLERANCE
) -> ExportResult | WrittenFile:
    """Write a model as a checkpoint, as .taotp text, or in a format of `bridge_names()`."""
    if to == "safetensors":
        written = checkpoint.save(model, out)
    elif to == "taotp":
        fileio.check_writable(out)
        written = fileio.write_atomically(out, taotp.write(model).encode(errors="backslashreplace"))
    else:
        return export_checked(model, to, out, tolerance)
    return WrittenFile(Path(written), to, Path(written).stat().st_size)


def export_checked(
    model: Model, to: str, path: str | Path, tolerance: float = TOLERANCE
) -> ExportResult:
    """Export a model, and check the files with the other library before moving them to `path`.

    `tolerance` is the largest allowed difference of logits, relative to the largest logit. Right
    answers must not change.
    """
    bridge, path = find_bridge(to), Path(path)
    if path.name in ("", ".."):
        raise GlassformerError(f"{path}: expected the name of a file or folder")
    check_target(to, path)
    bridge.check(model := model.numpy())
    check_finite(to, model.weights)
    batch = parity_batch(model)
    ours = model.logits(batch.tokens)
    if not np.isfinite(ours[batch.answer_mask]).all():
        raise export_error(to, "expected finite logits of its answers, got NaN or inf")
    use_float32 = bridge.float32 or model.dtype == "float32"
    agreements = reordered_agreements(model, "float32") if use_float32 else []
    sent, why, notes = model, "the model's own type", list[str]()
    if bridge.float32:
        sent, reason = to_float32_if_safe(model, tolerance, agreements)
        if reason:
            why = f"float32 is not enough for this model: {reason}"
            if limitation := bridge.float32_limitation(model):
                raise export_error(to, f"{why}; {limitation}. {FLOAT64_HINT}")
        elif sent.dtype != model.dtype:
            why = "enough for this model"
    if model.dtype == "float32":
        tolerance, notes = _tolerance_above_noise(model, tolerance, agreements)
    from safetensors import SafetensorError

    with fileio.folder_beside(path) as temporary:
        new = temporary / path.name
        try:
            notes += bridge.write(sent, new)
            theirs = bridge.logits(new, batch.tokens)
        except (OSError, SafetensorError) as e:
            raise _write_error(path, e) from None
        result = compare_logits(batch, ours, theirs)
        # the difference may be only rounding noise
        if sent.dtype == "float64" and result.parity > tolerance and not result.lost_rows:
            agreements = reordered_agreements(model, "float64")
            tolerance, noise_notes = _tolerance_above_noise(model, tolerance, agreements)
            notes = noise_notes + notes
        if reason := result.failure_reason(model, batch, tolerance):
            raise export_error(to, f"{bridge.needs[-1]} computes other logits: {reason}")
        moved = dict[str, float]()
        if hooks := getattr(bridge, "hooks", None):
            tokens = batch.tokens[:MAX_HOOKED_INPUTS]
            activations = hooks(model, new, tokens)
            moved = differing_activations(record(model, tokens)[1], activations, tolerance)
        _move_into_place(new, path)
    return ExportResult(
        path, to, result.parity, len(batch.tokens), notes, result.tokens, result.differing_tokens,
        result.parity_elsewhere, sent.dtype, why, moved,
    )  # fmt: skip


def _tolerance_above_noise(
    model: Model, tolerance: float, agreements: list[Agreement]
) -> tuple[float, list[str]]:
    """Return `tolerance`, or a larger one and a note if rounding noise alone exceeds it."""
    noise = max(agreement.parity for agreement in agreements)
    if noise <= tolerance / NOISE_FACTOR or noise == np.inf:
        return tolerance, []
    note = f"{model.dtype} rounding alone changes logits by {noise:.1e} (relative)"
    return NOISE_FACTOR * noise, [note]


def _move_into_place(new: Path, path: Path) -> None:
    """Move written files to `path`. A folder is replaced only if it contains no other files."""
    try:
        if new.is_dir():
            if path.is_dir():
                _check_replaceable(path, _relative_paths(new))
            return fileio.replace_folder(new, path)
        files = {path.with_name(f.name): f.read_bytes() for f in sorted(new.parent.iterdir())}
    except OSError as e:
        raise _write_error(path, e) from None
    fileio.write_together(files)


def _check_replaceable(path: Path, names: Set[str]) -> None:
    if foreign := _relative_paths(path) - names:
        problem = f"contains {min(foreign)}, not from an export; name a new folder"
        raise GlassformerError(f"{path}: {problem}")


def _write_error(path: Path, error: Exception) -> GlassformerError:
    problem = f"{path}: cannot be written: {fileio.os_error_text(error)}"
    return GlassformerError(problem, code="file_error")


def _relative_paths(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}
