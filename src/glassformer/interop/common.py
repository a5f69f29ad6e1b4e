"""What all bridges share: finding one, refusing what it cannot carry, writing, putting in place.

A bridge writes a model in the format of another library and reads logits back from the written
files through it. `export` compares them with ours (see parity.py) before it puts them in place.
"""

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .. import registry, taotp
from ..core import checkpoint
from ..core.hooks import record
from ..core.model import Model
from ..utils import fileio
from ..utils.errors import GlassformerError, did_you_mean
from ..utils.fileio import (
    check_writable,
    folder_beside,
    replace_folder,
    write_atomically,
    write_together,
)
from ..utils.results import Displayable, Result
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
FLOAT64_HINT = "the format torch keeps float64"
MAX_HOOKED_INPUTS = 64  # inputs whose activations are compared
NOISE_FACTOR = (
    8  # a model may differ by so many times what rounding does to it here, in a few orders
)


class Bridge(Protocol):
    """The way to another library, named by `@registry.bridge(NAME)`. Some have more.

    `read(path) -> Model`; `hooks(model, path, tokens)`: activations by our names, in the library;
    `files`: names that it writes into a folder, none if it writes a single file.
    """

    extra: str  # pip install 'glassformer[extra]'
    needs: tuple[str, ...]  # modules that must be there
    float32: bool  # written in float32 where that is enough; False: in the model's own type

    def check(self, model: Model) -> None:
        """Raises if the format cannot represent the model: the reason, and what to do instead."""

    def float32_limitation(self, model: Model) -> str:
        """What the library does in float32 though weights are float64; "" if nothing."""

    def write(self, model: Model, path: Path) -> list[str]:
        """Writes NumPy weights to a new file or folder `path`, in their type; notes for the reader.

        It may write more files beside it; the folder of `path` is empty and private to this call.
        """

    def logits(self, path: Path, tokens: Any) -> Any:
        """tokens [B,T] -> logits [B,T,V] in NumPy, by the real library from what was written."""


@dataclass(frozen=True)
class ExportResult(Displayable):
    """What an export wrote, and how near the library's logits come to ours."""

    path: Path
    to: str
    # largest |difference of logits| / max(1, largest |logit|) where a token is asked for
    parity: float
    rows: int
    notes: list[str] = field(default_factory=list)
    # greedy tokens compared: where the task asks for an answer, or at every position
    tokens: int = 0
    differ: int = 0  # of these, not the same
    elsewhere: float | None = None  # the parity where no token is asked for, if there is such
    dtype: str = ""  # that was written, and why
    why: str = ""
    moved: dict[str, float] = field(default_factory=dict)  # activation -> relative difference

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"path": str(self.path)}

    def __str__(self) -> str:
        tokens = f"{self.differ:,} of {self.tokens:,} greedy tokens differ"
        tokens = tokens if self.differ else "every greedy token the same"
        over = f"{self.rows:,} input{'s' * (self.rows != 1)}"
        at, off = f"at all {self.tokens:,} positions", self.elsewhere
        if off is not None:
            at = f"at the {self.tokens:,} positions that answer; elsewhere {off:.1e}"
        found = f"largest logit difference {self.parity:.1e} (relative) over {over}, {tokens}, {at}"
        if first := next(iter(self.moved.items()), None):
            more = f" and {len(self.moved) - 1:,} more" * (len(self.moved) > 1)
            found += f"; moved: {first[0]} by {first[1]:.1e}{more}"
        return found


@dataclass(frozen=True)
class WrittenFile(Result):
    """A file of ours: it holds the model itself, so there is no parity to measure."""

    path: Path
    to: str
    bytes: int

    def __str__(self) -> str:
        return f"wrote {self.path}: {self.to}, {self.bytes:,} bytes"


def bridge_names() -> list[str]:
    """Of all bridges."""
    return sorted(registry.entries("bridge"))


def find_bridge(name: str) -> Bridge:
    """The bridge of a name; an error if there is none or its library is not installed."""
    if name not in bridge_names():
        own = "gf.save writes .safetensors, gf.taotp.write a text"
        expected = f"expected one of {', '.join(bridge_names())}; {own}"
        raise GlassformerError(f"export to {name} — {expected}")
    found: Bridge = registry.build("bridge", name)
    if missing := [name for name in found.needs if importlib.util.find_spec(name) is None]:
        needs, hint = " and ".join(missing), f"pip install 'glassformer[{found.extra}]'"
        raise GlassformerError(f"export to {name} — needs {needs}, not installed here: {hint}")
    return found


def check_target(to: str, path: Path) -> None:
    """Refuse a folder that an export in this format would not replace, before the work."""
    if not os.path.isdir(path):  # and not path.is_dir(), which raises if the name is too long
        return check_writable(path)
    files = getattr(find_bridge(to), "files", None)
    if files == frozenset():
        raise GlassformerError(f"{path} — cannot be written: it is a folder; {to} is one file")
    if files and (foreign := _relative_paths(path) - files):
        what = f"has {min(foreign)} in it, which no export like this wrote"
        raise GlassformerError(f"{path} — {what}; name a new folder")


def import_library(name: str) -> Any:
    """A module of someone else, imported when it is needed; types are not looked into."""
    return importlib.import_module(name)


def check_finite(to: str, weights: Mapping[str, Any]) -> None:
    """Refuses numbers that a text cannot say."""
    for name, w in weights.items():
        if not np.isfinite(w).all():
            raise GlassformerError(f"export to {to} — {name} has numbers that are not finite")


def write_python(path: Path, text: str) -> None:
    if path.suffix != ".py":
        what = "expected a name that ends in .py: what is written is Python"
        raise GlassformerError(f"{path.name} — {what}")
    path.write_text(text, encoding="utf-8")


def run_python_file(path: Path) -> dict[str, Any]:
    """What a Python file of ours defines. Not imported: that leaves a folder beside it."""
    module: dict[str, Any] = {"__name__": "glassformer_exported", "__file__": str(path)}
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), module)
    return module


def torch_logits(net: Callable[[Any], Any], tokens: Any) -> Any:
    """tokens [B,T] -> logits [B,T,V] of a PyTorch module, in NumPy, by parts of the batch."""
    torch = import_library("torch")
    with torch.no_grad():
        return np.concatenate([net(part).numpy() for part in torch.as_tensor(tokens).split(256)])


def write_as(
    model: Model, to: str, out: str | Path, tolerance: float = TOLERANCE
) -> ExportResult | WrittenFile:
    """Write a model for another library (`export`), as a checkpoint or as a text."""
    if to not in OWN_FORMATS:
        if to not in bridge_names():
            hint = did_you_mean(to, (*OWN_FORMATS, *bridge_names()), 1, 0.6, "expected one of")
            raise GlassformerError(f"export to {to} — no such format; {hint}")
        return export_checked(model, to, out, tolerance)
    if to == "safetensors":
        kept = checkpoint.save(model, out)
    else:
        check_writable(out)
        kept = write_atomically(out, taotp.write(model).encode(errors="backslashreplace"))
    return WrittenFile(Path(kept), to, Path(kept).stat().st_size)


def export_checked(
    model: Model, to: str, path: str | Path, tolerance: float = TOLERANCE
) -> ExportResult:
    """Checks, writes beside `path`, measures through the real library, then renames into place.

    `tolerance`: how far logits may be off, relative to the largest. Right answers must stay right.
    """
    way, path = find_bridge(to), Path(path)
    if path.name in ("", ".."):
        raise GlassformerError(f"{path} — expected the name of a file or folder to write")
    check_target(to, path)
    model = model.numpy()
    way.check(model)
    tried = (
        reordered_agreements(model, "float32") if way.float32 or model.dtype == "float32" else []
    )
    sent, kind, notes = model, "its own", list[str]()
    if way.float32:
        sent, why = to_float32_if_safe(model, tolerance, tried)
        cannot = f"float32 cannot carry this model: {why}"
        if why and (narrow := way.float32_limitation(model)):
            raise GlassformerError(f"export to {to} — {cannot}; {narrow}; {FLOAT64_HINT}")
        kind = cannot if why else kind if sent.dtype == model.dtype else "enough for this model"
    batch = parity_batch(model)
    if model.dtype == "float32":
        tolerance, notes = _tolerance_above_noise(model, tolerance, tried)
    from safetensors import SafetensorError

    with folder_beside(path) as beside:
        try:
            notes += way.write(sent, beside / path.name)
            theirs = way.logits(beside / path.name, batch.tokens)
        except (OSError, SafetensorError) as e:
            raise GlassformerError(
                f"{path} — cannot be written: {fileio.os_error_text(e)}"
            ) from None
        found = compare_logits(batch, model.logits(batch.tokens), theirs)
        # rounding may be all it is
        if sent.dtype == "float64" and found.parity > tolerance and not found.lost_rows:
            tolerance, more = _tolerance_above_noise(
                model, tolerance, reordered_agreements(model, "float64")
            )
            notes = more + notes
        if why := found.failure_reason(model, batch, tolerance):
            raise GlassformerError(
                f"export to {to} — {way.needs[-1]} does not get the same from what was written: "
                f"{why}"
            )
        far = dict[str, float]()
        if hooks := getattr(way, "hooks", None):
            few = batch.tokens[:MAX_HOOKED_INPUTS]
            theirs = hooks(model, beside / path.name, few)
            far = differing_activations(record(model, few)[1], theirs, tolerance)
        _move_into_place(beside, path)
    measured = found.parity, len(batch.tokens), notes, found.tokens, found.differing_tokens
    return ExportResult(path, to, *measured, found.parity_elsewhere, sent.dtype, kind, far)


def _tolerance_above_noise(
    model: Model, tolerance: float, agreements: list[Agreement]
) -> tuple[float, list[str]]:
    """What may be off: more than was asked for, with a note, where rounding alone does as much."""
    noise = max(found.parity for found in agreements)
    if noise <= tolerance / NOISE_FACTOR:
        return tolerance, []
    by = f"{noise:.1e} (relative) all by themselves"
    return NOISE_FACTOR * noise, [f"{model.dtype} sums in another order move its logits by {by}"]


def _move_into_place(beside: Path, path: Path) -> None:
    """Puts what was written in place; a folder there goes only if nothing else is in it."""
    try:
        if (new := beside / path.name).is_dir():
            if path.is_dir() and (foreign := _relative_paths(path) - _relative_paths(new)):
                found = f"has {min(foreign)} in it, which no export like this wrote"
                raise GlassformerError(f"{path} — {found}; name a new folder")
            return replace_folder(new, path)
        files = {path.parent / file.name: file.read_bytes() for file in sorted(beside.iterdir())}
    except OSError as e:
        raise GlassformerError(f"{path} — cannot be written: {fileio.os_error_text(e)}") from None
    write_together(files)


def _relative_paths(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}
