"""What all bridges share: finding one, refusing what it cannot carry, writing, and measuring what arrived.

A bridge writes a model in the format of another library and reads logits back from the written files through that
library. `export` compares them with ours on a test batch before anything stands at the place asked for.
"""

import importlib
import importlib.util
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .. import records, registry
from ..errors import GlassformerError
from ..model import Labels, Model
from ..records import check_writable, folder_beside, replace_folder, write_together
from ..shapes import axes
from ..tasks.base import Task

ROWS = 1024  # of a test batch
NUMBERS = 2**24  # logits of a test batch at most
TOLERANCE = 1e-4  # relative, of float32 logits
NOISE = 4  # a model may differ by so many times what rounding does to it here


class Bridge(Protocol):
    """The way to another library; `@registry.bridge(NAME)` names it. `read(path) -> Model` is there where it can be."""

    extra: str  # pip install 'glassformer[extra]'
    needs: tuple[str, ...]  # modules that must be there
    float32: bool  # the format carries float32 only

    def check(self, model: Model) -> None:
        """Raises if the format cannot represent the model: the reason, and what to do instead."""

    def write(self, model: Model, path: Path) -> list[str]:
        """Writes NumPy weights to a file or folder `path`, which is not there yet; notes for the reader.

        It may write more files beside it; the folder of `path` is empty and private to this call.
        """

    def logits(self, path: Path, tokens: Any) -> Any:
        """tokens [B,T] -> logits [B,T,V] as a NumPy array, by the real library from what was written."""


@dataclass(frozen=True)
class Exported:
    """What an export wrote, and how near the library's logits come to ours."""

    path: Path
    to: str
    parity: float  # largest |difference of logits| / max(1, largest |logit|) where the test batch asks for a token
    rows: int
    notes: list[str] = field(default_factory=list)
    tokens: int = 0  # greedy tokens compared: where the task asks for an answer, or at every position
    differ: int = 0  # of these, not the same

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"path": str(self.path)}

    def __str__(self) -> str:
        differ = f"{self.differ:,} of {self.tokens:,} greedy tokens differ"
        same = "every greedy token the same"
        over = f"{self.rows:,} input{'s' * (self.rows != 1)}"
        return f"largest logit difference {self.parity:.1e} (relative) over {over}, {differ if self.differ else same}"


def names() -> list[str]:
    """Of all bridges."""
    return sorted(registry.entries("bridge"))


def find(to: str) -> Bridge:
    """The bridge of a name; an error if there is none or its library is not installed."""
    if to not in names():
        raise GlassformerError(f"--to {to} — expected one of {', '.join(names())}")
    found: Bridge = registry.build("bridge", to)
    if missing := [name for name in found.needs if importlib.util.find_spec(name) is None]:
        hint = f"pip install 'glassformer[{found.extra}]'"
        raise GlassformerError(f"--to {to} — needs {' and '.join(missing)}, not installed here: {hint}")
    return found


def library(name: str) -> Any:
    """A module of someone else, imported when it is needed; types are not looked into."""
    return importlib.import_module(name)


def export(model: Model, to: str, path: str | Path, tolerance: float = TOLERANCE) -> Exported:
    """Checks, writes beside `path`, measures through the real library, and only then renames into place.

    `tolerance`: how far logits may be off, relative to the largest. An answer that was right must stay right anyway.
    """
    way, path = find(to), Path(path)
    if path.name in ("", ".."):
        raise GlassformerError(f"{path} — expected the name of a file or folder to write")
    if not path.is_dir():
        check_writable(path)
    model = model.numpy()
    way.check(model)
    tried = in_float32(model) if way.float32 or model.dtype == "float32" else []
    if way.float32 and (why := float32_reason(model, tolerance, tried)):
        raise GlassformerError(f"--to {to} — float32 cannot carry this model: {why}; --to torch keeps {model.dtype}")
    batch, notes = trial(model), list[str]()
    if model.dtype == "float32":
        tolerance, notes = _bearable(model, tolerance, tried)
    from safetensors import SafetensorError

    with folder_beside(path) as beside:
        try:
            notes += way.write(model, beside / path.name)
            theirs = way.logits(beside / path.name, batch.tokens)
        except (OSError, SafetensorError) as e:
            raise GlassformerError(f"{path} — cannot be written: {records.why(e)}") from None
        found = compare(batch, model.logits(batch.tokens), theirs)
        if model.dtype == "float64" and found.parity > tolerance and not found.lost:  # rounding may be all it is
            tolerance, more = _bearable(model, tolerance, in_other_orders(model, "float64"))
            notes = more + notes
        if why := found.why(model, batch, tolerance):
            raise GlassformerError(f"--to {to} — {way.needs[-1]} does not get the same from what was written: {why}")
        _into_place(beside, path)
    return Exported(path, to, found.parity, len(batch.tokens), notes, found.tokens, found.differ)


def _bearable(model: Model, tolerance: float, tried: "list[Comparison]") -> tuple[float, list[str]]:
    """What may be off: more than was asked for where rounding alone does as much, and then a note on it."""
    noise = max(found.parity for found in tried)
    if noise <= tolerance / NOISE:
        return tolerance, []
    note = f"{model.dtype} sums in another order move its logits by {noise:.1e} (relative) all by themselves"
    return NOISE * noise, [note]


# ── what float32 can carry ─────────────────────────────────────────────────────────────────────
def float32_reason(model: Model, tolerance: float = TOLERANCE, tried: "list[Comparison] | None" = None) -> str:
    """Why float32 cannot carry the model's constants, found by trying; "" if it can."""
    model = model.numpy()
    for name, w in model.weights.items():
        with np.errstate(over="ignore"):
            if not np.isfinite(w.astype("float32")).all():
                return f"{name} has {float(w.flat[np.abs(w).argmax()]):g}, and float32 ends at 3.4e38"
    worst = max(tried or in_float32(model), key=lambda found: (len(found.lost), found.parity))
    # What is in float32 already loses nothing more; its answers count alone.
    return worst.why(model, trial(model), tolerance if model.dtype == "float64" else np.inf)


def in_float32(model: Model) -> list["Comparison"]:
    return in_other_orders(model, "float32")


def in_other_orders(model: Model, dtype: str) -> list["Comparison"]:
    """What becomes of the test batch in a float type.

    Libraries add up in other orders than we do, and a program may be right in one by luck. So the stream's coordinates
    are tried in several orders, which would change nothing if numbers were exact; and PyTorch's kernels, if it is here.
    """
    batch, D, rng = trial(model), model.config.d_model, np.random.default_rng(0)
    ours = model.logits(batch.tokens)
    orders = [np.arange(D)]
    if model.config.positions != "sinusoidal":  # which has an order of its own
        orders += [np.arange(D)[::-1], rng.permutation(D), rng.permutation(D)]
    tried = [reordered(model, order).astype(dtype) for order in orders]
    if importlib.util.find_spec("torch"):
        tried.append(model.torch(dtype))
    return [compare(batch, ours, m.logits(batch.tokens)) for m in tried]


def reordered(model: Model, order: Any) -> Model:
    """The same model with the coordinates of its stream in another order."""
    known, weights = axes(model.config), {}
    for name, w in model.weights.items():
        for i, axis in enumerate(known[name].rstrip("?")):
            w = np.take(w, order, axis=i) if axis == "D" else w
        weights[name] = w
    return replace(model, weights=weights, labels=Labels(), blueprint="", theta={})


# ── a test batch, and two sets of logits on it ─────────────────────────────────────────────────
@dataclass(frozen=True)
class Batch:
    """Texts to read, and the tokens that should come next where `asked`; without a task, none are known."""

    tokens: Any  # [B,T]
    wanted: Any  # [B,T]
    asked: Any  # bool [B,T]
    known: bool


def test_batch(model: Model) -> Any:
    """A deterministic batch of tokens [B,T]: rows of the model's task, edges first, or else random tokens."""
    return trial(model).tokens


test_batch.__test__ = False  # type: ignore[attr-defined]  # pytest: not a test


def trial(model: Model) -> Batch:
    """The same with what should come next."""
    c, rng = model.config, np.random.default_rng(0)
    task = task_of(model)
    if task is not None:
        tokens, answer = task.batch(_rows(task, 1, rng))
        most = int(np.clip(NUMBERS // (tokens.shape[1] * c.d_vocab), 1, ROWS))
        rows = _rows(task, most, rng)
        tokens, answer = task.batch(rows[task.defined(rows)])
        if len(tokens) and tokens.shape[1] - 1 <= c.n_ctx:
            return Batch(tokens[:, :-1], tokens[:, 1:], answer[:, 1:], True)
    T = min(c.n_ctx, 64)
    tokens = rng.integers(0, c.d_vocab, (int(np.clip(NUMBERS // (T * c.d_vocab), 1, ROWS)), T))
    return Batch(tokens, tokens, np.ones(tokens.shape, bool), False)


def task_of(model: Model) -> Task | None:
    """The task that the model is for, if it names one that is here and speaks its tokens."""
    try:
        task: Task = registry.build("task", model.task)
    except GlassformerError:
        return None
    return task if task.vocabulary == model.vocabulary else None


@dataclass(frozen=True)
class Comparison:
    """Our logits and theirs on one batch."""

    parity: float  # infinite if theirs are not finite where ours are
    tokens: int
    differ: int
    lost: list[int]  # rows that are right here and wrong there
    theirs: Any  # greedy tokens [B,T]

    def why(self, model: Model, batch: Batch, tolerance: float) -> str:
        """In words: what is wrong, with an example; "" if nothing is."""
        if not self.lost:
            if self.parity <= tolerance:
                return ""
            same = f", though {'every greedy token is' if not self.differ else 'all right answers are'} the same"
            off = f"logits differ by {self.parity:.1e} (relative), and {tolerance:g} is allowed{same}"
            return f"{off}; --tolerance allows more"
        i = self.lost[0]
        asked, say = batch.asked[i], model.vocabulary.decode
        read = say(batch.tokens[i, : int(asked.argmax()) + 1])
        return (
            f"{len(self.lost):,} of {len(batch.tokens):,} test inputs come out wrong, such as {read!r}: "
            f"{say(self.theirs[i][asked])!r} instead of {say(batch.wanted[i][asked])!r}"
        )


def compare(batch: Batch, ours: Any, theirs: Any) -> Comparison:
    """ours, theirs [B,T,V], compared where a token is asked for.

    Elsewhere a program may well be undecided, and then rounding decides: two keys with equal scores of 1e9, say.
    """
    finite = np.isfinite(ours) & batch.asked[..., None]
    with np.errstate(invalid="ignore"):
        gap = np.where(finite, np.abs(ours - theirs), 0.0)
    size = max(1.0, float(np.abs(ours[np.isfinite(ours)]).max(initial=0.0)))
    parity = float(gap.max(initial=0.0)) / size if np.isfinite(theirs[finite]).all() else np.inf
    a, b = ours.argmax(-1), theirs.argmax(-1)                                  # B T
    differs = (a != b) & batch.asked
    right = ((a == batch.wanted) | ~batch.asked).all(1) & batch.known
    lost = [int(i) for i in np.nonzero(right & differs.any(1))[0]]
    return Comparison(parity, int(batch.asked.sum()), int(differs.sum()), lost, b)


def _rows(task: Task, n: int, rng: np.random.Generator) -> Any:
    """n rows: all if there are no more, else edges, evenly chosen, and as many at random."""
    if task.size <= n:
        return task.rows(0, task.size)
    edges = task.edges()
    edges = edges[np.unique(np.linspace(0, len(edges) - 1, min(len(edges), n // 2)).astype(int))]
    return np.concatenate([edges, task.sample(n - len(edges), rng)])


# ── into place ─────────────────────────────────────────────────────────────────────────────────
def _into_place(beside: Path, path: Path) -> None:
    """Puts what was written where it was asked for; a folder that is there goes only if nothing else is in it."""
    try:
        if (new := beside / path.name).is_dir():
            if path.is_dir() and (foreign := _names(path) - _names(new)):
                found = f"has {min(foreign)} in it, which no export like this wrote"
                raise GlassformerError(f"{path} — {found}; name a new folder")
            return replace_folder(new, path)
        files = {path.parent / file.name: file.read_bytes() for file in sorted(beside.iterdir())}
    except OSError as e:
        raise GlassformerError(f"{path} — cannot be written: {records.why(e)}") from None
    write_together(files)


def _names(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}

