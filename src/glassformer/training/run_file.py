"""The file of a run, to go on after a kill: how it is written, read and checked; and where its
models go, step by step, if all are kept. What stands in it is said in checkpointing.py.

There is no generator state to save: what a step reads depends on the seed and the step alone, and
in the last phase on the pool of rows, which is saved.
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

RUN_SUFFIX = ".run.safetensors"  # of the file of a run
OTHER_RUN_SNAPSHOTS = "has snapshots of another run: expected an empty folder or a new one"
MAX_SHOWN_DIFFERENCES = 6  # that a message names
NOT_A_RUN = "not the state of a run, or a damaged one"
COUNTER_DTYPE = "float32"
Step = Annotated[int, Meta(ge=0, le=MAX_STEPS)]
Rows = Annotated[int, Meta(ge=0, le=10**9)]
Word = Annotated[str, Meta(max_length=100)]
Digest = Annotated[str, Meta(max_length=64)]  # "": absent


def _fields(**types: Any) -> type:
    return defstruct("Data", [*types.items()], forbid_unknown_fields=True)


MILESTONE_SCHEMAS = {  # kind of a turning point -> schema of its data (see events.in_words)
    "digit learned": _fields(digit=Annotated[int, Meta(ge=0, le=10**6)], accuracy=Finite),
    "memorizing": _fields(train_accuracy=Finite, accuracy=Finite),
    "fitted": _fields(accuracy=Finite),
    "generalized": _fields(accuracy=Finite),
    "restarted": _fields(accuracy=Finite),
    "domain checked": _fields(wrong=Rows, checked=Rows, coverage=Word),
    "grokking": _fields(fitted_at=Step),
    "stable": _fields(since=Step, accuracy=Finite),
}
MEMORIZING_BY_LOSS = _fields(loss=Finite, floor=Finite)  # alternative data of "memorizing"


class SavedMilestone(JsonObject):
    """A saved Event; routine events are not saved."""

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
    """Identity of a run (checkpointing.identity); resuming requires an equal one."""

    task: Ref
    recipe: Settings
    seed: Seed
    parametrization: Ref
    start: Digest
    teacher: Digest
    source: Digest = ""
    parametrization_source: Digest = ""


class MilestoneState(JsonObject):
    """The state of an events.Watcher."""

    seen: Annotated[dict[Name, Step], Meta(max_length=10_000)]
    in_a_row: Step
    since: Step


class SavedEvaluation(JsonObject):
    """An events.Report."""

    step: Step
    loss: float
    accuracy: Finite
    seconds: Finite
    digits: Annotated[list[Finite], Meta(max_length=10_000)]
    train_accuracy: Finite | UnsetType = UNSET
    tested: Rows | UnsetType = UNSET
    wrong: Rows | UnsetType = UNSET
    checked: Rows | UnsetType = UNSET
    phase: Annotated[str, Meta(max_length=20)] | UnsetType = UNSET
    classes: Annotated[dict[Name, Finite], Meta(max_length=1_000_000)] | UnsetType = UNSET


class FullDomainState(JsonObject):
    """The state of a full_domain_phase.Exact."""

    began: Step
    accuracy: Finite
    pool: Annotated[
        list[Annotated[list[Count], Meta(max_length=10_000)]], Meta(max_length=MAX_POOL_ROWS)
    ]


class RunHeader(JsonObject):
    """Every field of a saved run except its arrays (checkpointing.save_run)."""

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
    """Where the state of a run is kept whose model goes to `out`."""
    out = Path(out)
    return out.with_name(out.name.removesuffix(".safetensors") + RUN_SUFFIX)


def check_out(out: str | Path, resume: bool, *read: str) -> None:
    """Refuse a file that the model of a run cannot go to, before the run takes a step. `read`: refs
    that the run reads, whose files are not to be replaced.
    """
    out = Path(out)
    if out.suffix != ".safetensors":
        new = out.with_suffix(".safetensors").name
        raise GlassformerError(
            f"out: expected a name that ends in .safetensors, got {out}. Use {new}"
        )
    if out.name.endswith(RUN_SUFFIX):
        what = (
            f"expected a model's name, got {out}: {RUN_SUFFIX} is for the state of unfinished runs"
        )
        raise GlassformerError(f"out: {what}. Use {out.name.removesuffix(RUN_SUFFIX)}.safetensors")
    state = state_path(out)
    if resume and out.exists() and not state.exists():
        raise GlassformerError(f"{out} — its run is finished; there is nothing to resume")
    if not resume and state.exists():
        way = "go on with --resume (resume=True), or delete it to begin anew"
        raise GlassformerError(f"{state} — an unfinished run is here: {way}")
    check_writable(out, *read)


def seed_files(out: str | Path | None, seeds: Sequence[int]) -> list[Path]:
    """Return the model files: `out`, or out-seed0, out-seed1, … with several seeds."""
    if out is None:
        return []
    path = Path(out)
    several = (path.with_name(f"{path.stem}-seed{s}{path.suffix}") for s in seeds)
    return [path] if len(seeds) == 1 else [*several]


def check_outputs(
    out: Path | None, seeds: Sequence[int], resume: bool, history: Path | None, read: Sequence[str]
) -> None:
    """Refuse outputs that a run cannot write, before the work. `read`: refs of the inputs."""
    check_int_range("train — the number of seeds", len(seeds), 1, MAX_MEMBERS)
    if history:
        check_history_path(history)  # only log endings, so it cannot be the model file
    for path in seed_files(out, seeds):
        check_out(path, resume and len(seeds) == 1, *read)
    check_writable(history, *read)


def save_state(path: Path, tensors: dict[str, Array], header: dict[str, Any]) -> None:
    from safetensors.numpy import save

    arrays = {n: np.require(t.detach().cpu().numpy(), requirements="C") for n, t in tensors.items()}
    text = json.dumps(header)
    write_atomically(path, save(arrays, {KEY: text, "sha256": _sha256(text, arrays)}))


def load_state(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays by name, and the header; anything that is not exactly what was saved is an error."""
    if not os.path.lexists(path):
        raise GlassformerError(
            f"{path} — no run to resume: it has ended, or was never begun", code="not_found"
        )
    try:
        arrays, found = parse_safetensors(path, read_bytes(path, available_memory()))
        good = KEY in found and found.get("sha256") == _sha256(found[KEY], arrays)
    except GlassformerError as e:
        raise GlassformerError(
            f"{path} — {NOT_A_RUN} ({str(e).removeprefix(f'{path} — ')})"
        ) from None
    if not good:
        raise GlassformerError(
            f"{path} — {NOT_A_RUN}: its SHA-256 does not match", code=DAMAGED_FILE
        )
    # a loss may be infinite
    saved = parse_json(found[KEY], path, NOT_A_RUN, finite=False)
    header: dict[str, Any] = migrate.run_header(saved)
    try:
        convert(header, RunHeader)
        header["smooth"] = float.fromhex(header["smooth"])
    except (GlassformerError, ValueError, OverflowError) as e:
        raise GlassformerError(f"{path} — {NOT_A_RUN}: {e}") from None
    return arrays, header


def check_identity(path: Path, header: dict[str, Any], identity: dict[str, Any]) -> None:
    """Refuses the state of another run, with what differs: of the recipe, its fields."""
    was, now = _flat_identity(header["identity"]), _flat_identity(identity)
    if differ := [k for k in {**now, **was} if was.get(k) != now.get(k)]:
        both = [
            (k, _short_text(was.get(k)), _short_text(now.get(k)))
            for k in differ[:MAX_SHOWN_DIFFERENCES]
        ]
        which = ", ".join(f"{k}={old} (now {new})" for k, old, new in both)
        more = f" and {n} more" if (n := len(differ) - MAX_SHOWN_DIFFERENCES) > 0 else ""
        way = "delete it to begin anew, or write elsewhere"
        raise GlassformerError(f"{path} — is of another run: {which}{more}; {way}")


def _flat_identity(identity: dict[str, Any]) -> dict[str, Any]:
    """What a run is of, with the fields of its recipe one by one: those that it does not have, as
    there were none of the name yet, are at their defaults.
    """
    every = {name: f.default for name, f in RECIPE_FIELDS.items()} | identity["recipe"]
    fields = {"recipe" if k == "name" else k: v for k, v in every.items()}
    return {**{k: v for k, v in identity.items() if k != "recipe"}, **fields}


def _short_text(value: Any) -> str:
    text = str(value)
    return (text if len(text) <= 24 else text[:12] + "…") or "none"


def check_state(
    path: Path, arrays: dict[str, Array], header: dict[str, Any], *,
    shapes: dict[str, tuple[int, ...]], steps: int, full_domain_steps: int, digits: int, dtype: str,
) -> None:  # fmt: skip
    """Refuses arrays that the run does not have, and figures that it cannot have reached."""
    wrong, step = "", header["step"]
    began = header["exact"]["began"] if header.get("exact") else step
    last = steps + full_domain_steps if header.get("exact") else steps
    found = {n: a.shape for n, a in arrays.items()}
    finite = {n: n.startswith("optimizer.") or np.isfinite(a).all() for n, a in arrays.items()}
    if odd := sorted(n for n in {*shapes, *found} if found.get(n) != shapes.get(n)):
        wrong = f"{odd[0]} is {list(found[odd[0]]) if odd[0] in found else 'missing'}"
    elif odd := [
        n for n, a in arrays.items() if a.dtype != (COUNTER_DTYPE if _is_step_counter(n) else dtype)
    ]:
        wrong = f"{odd[0]} is in {arrays[odd[0]].dtype}"
    elif odd := [n for n, good in finite.items() if not good]:
        wrong = f"{odd[0]} is not finite"
    elif step > last or max(header["decay_at"], header["watcher"]["since"], began) > step:
        wrong = f"step {step:,} of {last:,} does not fit"
    elif step - began > full_domain_steps:
        wrong = f"{step - began:,} steps of a full-domain phase of {full_domain_steps:,} do not fit"
    elif any(len(report["digits"]) != digits for report in header["history"]):
        wrong = "its history has other answers"
    if wrong:
        raise GlassformerError(f"{path} — {NOT_A_RUN}: {wrong}", code=DAMAGED_FILE)


def _is_step_counter(name: str) -> bool:
    """Whether an array is how often AdamW has stepped, which is in FLOAT always."""
    return name.startswith("optimizer.step.")


# ── its models ─────────────────────────────────────────────────────────────────────────────────
def snapshot_path(folder: Path, step: int) -> Path:
    """Where the model of a step is kept."""
    return folder / f"step-{step:06d}.safetensors"


def snapshot_folders(folder: str | Path, seeds: Sequence[int], resume: bool) -> dict[int, Path]:
    """A folder for each seed. Those of a new run must have no snapshots yet."""
    folder = Path(folder)
    found = {seed: folder / f"seed{seed}" if len(seeds) > 1 else folder for seed in seeds}
    for path in found.values():
        try:
            path.mkdir(parents=True, exist_ok=True)
            old = not resume and any(path.glob("step-*.safetensors"))
        except (OSError, ValueError) as e:
            raise GlassformerError(
                f"{path} — cannot be a folder for snapshots: {os_error_text(e)}"
            ) from None
        if old:
            raise GlassformerError(f"{path} — {OTHER_RUN_SNAPSHOTS}")
    return found


def _sha256(text: str, arrays: dict[str, Array]) -> str:
    h = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        h.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        h.update(arrays[name].tobytes())
    return h.hexdigest()
