"""A model to a file: ours, or one of another library's (`gf.export`, the command export)."""

from dataclasses import dataclass
from pathlib import Path

from .. import checkpoint, taotp
from ..errors import GlassformerError, did_you_mean
from ..finding import Finding
from ..model import Model
from ..records import check_writable, write_atomically
from .common import Exported, export, names
from .parity import TOLERANCE

OURS = ("safetensors", "taotp")


@dataclass(frozen=True)
class Written(Finding):
    """A file of ours: it holds the model itself, so there is no parity to measure."""

    path: Path
    to: str
    bytes: int

    def __str__(self) -> str:
        return f"wrote {self.path}: {self.to}, {self.bytes:,} bytes"


def export_(
    model: Model, to: str, out: str | Path, tolerance: float = TOLERANCE
) -> Exported | Written:
    """Writes a model for another library, which reads it back and must find the same; or, `to`
    safetensors or taotp, as a checkpoint or as a text to read and change.

    `out`: the file or folder to write. `tolerance`: how far logits may be off, relative to the
    largest. Right answers must stay right.
    """
    if to not in OURS:
        if to not in names():
            hint = did_you_mean(to, (*OURS, *names()), 1, 0.6, "expected one of")
            raise GlassformerError(f"export to {to} — no such format; {hint}")
        return export(model, to, out, tolerance)
    if to == "safetensors":
        kept = checkpoint.save(model, out)
    else:
        check_writable(out)
        kept = write_atomically(out, taotp.write(model).encode(errors="backslashreplace"))
    return Written(Path(kept), to, Path(kept).stat().st_size)
