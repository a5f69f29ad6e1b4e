"""The file of an unfinished run (format, writing, reading, checks), and snapshot folders.

checkpointing.py fills it. No generator state is saved: the rows of a step depend only on the seed
and the step and, in the full-domain phase, on the pool, which is saved.
"""

import hashlib
import json
import os.path
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import UNSET, Meta, UnsetType, defstruct

from ..core.backend import Array
from ..core.checkpoint_format import RUN_STATE_KEY as KEY
from ..core.checkpoint_format import parse_safetensors
from ..utils import migrate
from ..utils.errors import DAMAGED_FILE, GlassformerError, short_repr
from ..utils.fileio import check_writable, os_error_text, read_bytes, write_atomically
from ..utils.limits import MAX_MEMBERS, available_memory, check_int_range
from ..utils.typed_json import (
    Count,
    Finite,
    JsonObject,
    Name,
    Ref,
    Seed,
    Settings,
    convert,
    parse_json,
)
from .full_domain_phase import MAX_POOL_ROWS
from .history import check_history_path
from .recipe import MAX_STEPS, RECIPE_FIELDS

RUN_SUFFIX = ".run.safetensors"
OTHER_RUN_SNAPSHOTS = "has snapshots of another run: expected an empty folder or a new one"
MAX_SHOWN_DIFFERENCES = 6
NOT_A_RUN = "not the state of a run, or damaged"
Step = Annotated[int, Meta(ge=0, le=MAX_STEPS)]
Rows = Annotated[int, Meta(ge=0, le=10**9)]
Word = Annotated[str, Meta(max_length=100)]
Digest = Annotated[str, Meta(max_length=64)]  # "" if absent


def _fields(**types: Any) -> type:
    return defstruct("Data", [*types.items()], forbid_unknown_fields=True)


MILESTONE_SCHEMAS = {  # maps the kind of a milestone to the schema of its data
    "digit learned": _fields(digit=Annotated[int, Meta(ge=0, le=10**6)], accuracy=Finite),
    "memorizing": _fields(train_accuracy=Finite, accuracy=Finite),
    "fitted": _fields(accuracy=Finite),
    "generalized": _fields(accuracy=Finite),
    "restarted": _fields(accuracy=Finite),
    "domain checked": _fields(wrong=Rows, checked=Rows, coverage=Word),
    "grokking": _fields(fitted_at=Step),
    "stable": _fields(since=Step, accuracy=Finite),
}
MEMORIZING_BY_LOSS = _fields(loss=Finite, floor=Finite)  # alternative schema of "memorizing"


class SavedMilestone(JsonObject):
    """Schema of a saved milestone Event; routine events are not saved."""

    kind: Word
    step: Step
    member: Seed
    data: dict[str, Any]

    def __post_init__(self) -> None:
        if self.kind not in MILESTONE_SCHEMAS:
            raise ValueError(
                f"expected an event of {', '.join(MILESTONE_SCHEMAS)}, got {short_repr(self.kind)}"
            )
        by_loss = self.kind == "memorizing" and "floor" in self.data
        convert(self.data, MEMORIZING_BY_LOSS if by_loss else MILESTONE_SCHEMAS[self.kind], "data")


class RunIdentity(JsonObject):
    """Settings that identify a run; resuming a run requires equal settings."""

    task: Ref
    recipe: Settings
    seed: Seed
    parametrization: Ref
    start: Digest
    teacher: Digest
    source: Digest = ""
    parametrization_source: Digest = ""


class MilestoneState(JsonObject):
    """Schema of the state of an events.MilestoneTracker."""

    seen: Annotated[dict[Name, Step], Meta(max_length=10_000)]
    in_a_row: Step
    since: Step


class SavedEvaluation(JsonObject):
    """Schema of an events.EvaluationData."""

    step: Step
    loss: float
    accuracy: Finite
    seconds: Finite
    digits: Annotated[list[Finite], Meta(max_length=10_000)]
    epoch: Finite | UnsetType = UNSET
    train_accuracy: Finite | UnsetType = UNSET
    tested: Rows | UnsetType = UNSET
    wrong: Rows | UnsetType = UNSET
    checked: Rows | UnsetType = UNSET
    phase: Annotated[str, Meta(max_length=20)] | UnsetType = UNSET
    classes: Annotated[dict[Name, Finite], Meta(max_length=1_000_000)] | UnsetType = UNSET


class FullDomainState(JsonObject):
    """Schema of the state of a full_domain_phase.FullDomainPhase."""

    began: Step
    accuracy: Finite
    pool: Annotated[
        list[Annotated[list[Count], Meta(max_length=10_000)]], Meta(max_length=MAX_POOL_ROWS)
    ]


class RunHeader(JsonObject):
    """Schema of the header of a saved run: all its fields except the arrays."""

    identity: RunIdentity
    step: Step
    seconds: Finite
    smooth: Annotated[str, Meta(max_length=40)]
    decay_at: Annotated[int, Meta(ge=-1, le=MAX_STEPS)]
    watcher: MilestoneState
    history: Annotated[list[SavedEvaluation], Meta(max_length=10_000_000)]
    events: Annotated[list[SavedMilestone], Meta(max_length=100_000)]
    exact: FullDomainState | None = None


def state_path(out: str | Path) -> Path:
    """Return the path of the saved state of a run with the model file `out`."""
    out = Path(out)
    return out.with_name(out.name.removesuffix(".safetensors") + RUN_SUFFIX)


def check_out(out: str | Path, resume: bool, *read: str) -> None:
    """Raise an error if a run cannot write the model file `out`, or if it is an input of `read`."""
    out = Path(out)
    if out.suffix != ".safetensors":
        hint = out.with_suffix(".safetensors").name
        wanted = "expected a name that ends in .safetensors"
        raise GlassformerError(f"out: {wanted}, got {out}. Use {hint}")
    if out.name.endswith(RUN_SUFFIX):
        hint = f"{out.name.removesuffix(RUN_SUFFIX)}.safetensors"
        wanted = f"expected a model file, got {out}, the state of an unfinished run"
        raise GlassformerError(f"out: {wanted}. Use {hint}")
    state = state_path(out)
    if resume and out.exists() and not state.exists():
        raise GlassformerError(f"{out} — its run is finished; there is nothing to resume")
    if not resume and state.exists():
        hint = "Continue it with --resume (resume=True), or delete it to start over"
        raise GlassformerError(f"{state} — expected no unfinished run, got one. {hint}")
    check_writable(out, *read)


def seed_files(out: str | Path | None, seeds: Sequence[int]) -> list[Path]:
    """Return the model files: `out`, or out-seed0, out-seed1, … for several seeds."""
    if out is None:
        return []
    path = Path(out)
    several = (path.with_name(f"{path.stem}-seed{s}{path.suffix}") for s in seeds)
    return [path] if len(seeds) == 1 else [*several]


def check_outputs(
    out: Path | None, seeds: Sequence[int], resume: bool, history: Path | None, read: Sequence[str]
) -> None:
    """Raise an error if a run cannot write its output files, or if one is an input of `read`."""
    check_int_range("train — the number of seeds", len(seeds), 1, MAX_MEMBERS)
    if history:
        check_history_path(history)  # The ending differs from the model file's.
    for path in seed_files(out, seeds):
        check_out(path, resume and len(seeds) == 1, *read)
    check_writable(history, *read)


def save_state(path: Path, tensors: dict[str, Array], header: dict[str, Any]) -> None:
    from safetensors.numpy import save

    arrays = {n: np.require(t.detach().cpu().numpy(), requirements="C") for n, t in tensors.items()}
    text = json.dumps(header)
    write_atomically(path, save(arrays, {KEY: text, "sha256": _sha256(text, arrays)}))


def load_state(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays and the header of a saved run. Raise an error if the file is damaged."""
    if not os.path.lexists(path):
        problem = "no run to resume: it has ended, or was never started"
        raise GlassformerError(f"{path} — {problem}", code="not_found")
    try:
        arrays, metadata = parse_safetensors(path, read_bytes(path, available_memory()))
        good = KEY in metadata and metadata.get("sha256") == _sha256(metadata[KEY], arrays)
    except GlassformerError as e:
        reason = str(e).removeprefix(f"{path} — ")
        raise GlassformerError(f"{path} — {NOT_A_RUN} ({reason})") from None
    if not good:
        text = f"{NOT_A_RUN}: its SHA-256 does not match"
        raise GlassformerError(f"{path} — {text}", code=DAMAGED_FILE)
    saved = parse_json(metadata[KEY], path, NOT_A_RUN, finite=False)  # A loss may be infinite.
    header: dict[str, Any] = migrate.run_header(saved)
    try:
        convert(header, RunHeader)
        header["smooth"] = float.fromhex(header["smooth"])
    except (GlassformerError, ValueError, OverflowError) as e:
        raise GlassformerError(f"{path} — {NOT_A_RUN}: {e}") from None
    return arrays, header


def check_identity(path: Path, header: dict[str, Any], identity: dict[str, Any]) -> None:
    """Raise an error that lists the differing settings if a saved run has other settings."""
    if differences := describe_differences(*map(_flat_identity, (header["identity"], identity))):
        hint = "Delete it to start over, or write elsewhere"
        raise GlassformerError(f"{path} — is of another run: {differences}. {hint}")


def describe_differences(saved: dict[str, Any], current: dict[str, Any]) -> str:
    """Return the settings that differ, as in "lr=0.1 (now 0.2)", or "" if none does."""
    differ = [k for k in {**current, **saved} if saved.get(k) != current.get(k)]
    texts = [f"{k}={_short_text(saved.get(k))} (now {_short_text(current.get(k))})" for k in differ]
    rest = len(differ) - MAX_SHOWN_DIFFERENCES
    return ", ".join(texts[:MAX_SHOWN_DIFFERENCES]) + (f" and {rest} more" if rest > 0 else "")


def _flat_identity(identity: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run by name, with defaults for recipe fields added later."""
    recipe = {name: f.default for name, f in RECIPE_FIELDS.items()} | identity["recipe"]
    # The file format keeps the old key of init_from.
    names = {"name": "recipe", "start": "init_from"}
    settings = {k: v for k, v in identity.items() if k != "recipe"} | recipe
    return {names.get(k, k): v for k, v in settings.items()}


def _short_text(value: Any) -> str:
    text = str(value)
    return (text if len(text) <= 60 else text[:12] + "…") or "none"


def snapshot_folders(folder: str | Path, seeds: Sequence[int], resume: bool) -> dict[int, Path]:
    """Create a snapshot folder for each seed; a folder of a new run must not have snapshots."""
    folder = Path(folder)
    folders = {seed: folder / f"seed{seed}" if len(seeds) > 1 else folder for seed in seeds}
    for path in folders.values():
        try:
            path.mkdir(parents=True, exist_ok=True)
            used = not resume and any(path.glob("step-*.safetensors"))
        except (OSError, ValueError) as e:
            text = os_error_text(e)
            raise GlassformerError(f"{path} — cannot be a folder for snapshots: {text}") from None
        if used:
            raise GlassformerError(f"{path} — {OTHER_RUN_SNAPSHOTS}")
    return folders


def _sha256(text: str, arrays: dict[str, Array]) -> str:
    h = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        h.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        h.update(arrays[name].tobytes())
    return h.hexdigest()
