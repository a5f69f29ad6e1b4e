"""Proofs: the search for a certificate, and what becomes of it where there is none."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..compiler.task import Texts
from ..core.checkpoint import digest
from ..core.model import Model
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError
from ..utils.limits import many
from ..utils.progress import Progress, ProgressCallback
from ..utils.results import Shown
from ..verification.evaluation import EXHAUSTIVE
from ..verification.robust_eval import Looked, Ran, run_all
from ..verification.verdict import Verdict
from ..verification.verifier import verify
from .bounds import Bounder, Bounds
from .carry_dp import MOST_CASES, SPLITS, how_many
from .checker import check_call, check_certificate, describe, identity
from .column_window import View
from .compiled_models import certified, is_compiled
from .counterexamples import BatchDependent, common, confirmed, refute
from .layout import layout_of

if TYPE_CHECKING:
    from .agreement import CheckerResult

Result = Literal["proved", "refuted", "unknown"]
Method = Literal["auto", "certificate", "enumeration"]
CLAIM = 1 - 1e-6  # of the margin found: other machines round the bounds otherwise
LONG = 12  # digits: of longer numbers, rows look at a stretch of columns
NEAR = 4  # columns, on either side of the one that is asked for
CUTS = 4  # how often what attention writes is halved: 16 pieces
FUSED_NORM = " but for its fused layer norm"  # exception to proofs in PyTorch
GAIN = 0.01  # a finer split is of use if it brings the worst lead this much nearer to 0
CUT_GAIN = 0.5  # and cutting, if it brings it so much nearer


@dataclass(frozen=True)
class Proof(Shown):
    """What is known of a model on the whole domain of a task."""

    result: Result
    cases: int  # that were closed; rows, if they were enumerated
    _: KW_ONLY
    margin: float | None = None  # proved: no right token leads by less, in any case
    dtype: str
    backend: str = ""  # NumPy or PyTorch: which the model ran on
    counterexample: dict[str, Any] | None = None
    reason: str  # how it was proved, or which case stayed open
    model: str  # SHA-256 of the weights
    task: str
    method: str
    certificate: dict[str, Any] | None = None  # for check_certificate
    checkers: tuple["CheckerResult", ...] = ()  # that passed it, or did not

    @property
    def independent(self) -> bool:
        """Whether the independent checker passed it."""
        return any(c.name == "independent" and c.holds for c in self.checkers)

    @property
    def holds(self) -> bool:
        return self.result == "proved"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        margin = "" if self.margin is None else f", margin {self.margin:.3g}"
        return f"{self.result} ({self.method}, {self.cases:,} cases{margin}): {self.reason}"


def prove(
    model: Model, task: Task, *, method: Method = "auto", seed: int = 0,
    progress: ProgressCallback | None = None, independent: bool | None = False,
) -> Proof:  # fmt: skip
    """Is the model right on all of the domain? Proved, refuted with a counterexample, or unknown.

    `enumeration` runs every row; `certificate` bounds the leads of a one-layer adder over all pairs
    of numbers, and looks for a counterexample where that fails; of a compiled model it is the one
    that the model carries, found anew; of min, max, sort, reverse and modular addition it goes
    through the cases of that task (other_tasks.py), and there is no file to check. `auto`
    enumerates domains of up to about a million rows, of models that were not compiled; of an adder
    with more layers it can beyond that only find a counterexample. `progress` counts
    rows that were run, rows of the certificate, or values of a compiled model. `independent`: check
    what is proved a second time (agreement.py); None: where there is such a check.
    """
    if method not in ("auto", "certificate", "enumeration"):
        must = "method must be auto, certificate or enumeration"
        raise GlassformerError(f"prove — {must}, got {method!r}")
    task.require(model.vocabulary)
    if method == "enumeration" and task.size > EXHAUSTIVE:
        most = f"enumeration takes at most {EXHAUSTIVE:,}"
        raise GlassformerError(f"{task.ref} — has {many(task.size)} rows; {most}")
    backend = "NumPy" if model.is_numpy else "PyTorch"
    say = partial(Proof, dtype=model.dtype, backend=backend, model=digest(model), task=task.ref)
    began = time.process_time()
    try:
        proof = _prove(model, task, method, seed, progress, say, independent)
    except BatchDependent as e:
        return say("unknown", 0, reason=str(e), method="search")
    if independent is False:
        return proof
    from .agreement import confirm

    return confirm(model, task, proof, time.process_time() - began, independent)


def _prove(
    model: Model, task: Task, method: Method, seed: int, progress: ProgressCallback | None,
    say: Callable[..., Proof], independent: bool | None,
) -> Proof:  # fmt: skip
    if method != "enumeration" and isinstance(task, Texts) and is_compiled(model, task):
        found: Proof = certified(model, task, seed, partial(say, method="compiled"), progress)
        return found
    if method == "enumeration" or (method == "auto" and task.size <= EXHAUSTIVE):
        return _enumerated(model, task, partial(say, method="enumeration"), progress)
    from .other_tasks import (  # it reads the tasks it speaks of: not before it must
        covers,
        prove_beyond,
    )

    if covers(task):
        alone = independent is not False  # whether the independent checker may close it alone
        proof: Proof = prove_beyond(model, task, seed, partial(say, method="cases"), alone)
        fused_norm = proof.method == "intervals"  # which intervals cover, and lemmas do not
        return replace(proof, reason=scope(model, task, fused_norm)) if proof.holds else proof
    if method == "auto" and model.config.n_layers != 1:
        return _of_layers(model, task, seed, say)
    return _certified(model, task, seed, partial(say, method="certificate"), progress)


def _enumerated(
    model: Model, task: Task, say: Callable[..., Proof], progress: ProgressCallback | None
) -> Proof:
    """Every row is run, in two orders of the same sums, and some alone."""
    ran = run_all(model, task, row_progress(task, progress))
    missed = (confirmed(model, task, np.array(row, task.row_type)) for row in ran.misses)
    if shown := next(filter(None, missed), None):
        return say("refuted", ran.checked, counterexample=shown, reason=_wrong(ran))
    if ran.wrong or not ran.checked:
        other = ", but right when run alone: it hangs on the order of sums" if ran.wrong else ""
        return say("unknown", ran.checked, reason=_wrong(ran) + other)
    if ran.open:
        return say("unknown", ran.checked, reason=ran.doubt)
    reason = "every row was run in two orders of the same sums, with this machine's rounding"
    reason += f" in {'NumPy' if model.is_numpy else 'PyTorch'}"
    if undefined := task.size - ran.checked:
        reason += f"; {undefined:,} inputs have no defined answer"
    return say("proved", ran.checked, margin=ran.margin, reason=reason)


def row_progress(task: Task, progress: ProgressCallback | None) -> Callable[..., object] | None:
    """The callback of `run_all` that calls `progress`."""
    wrong = 0

    def tell(done: int, rows: Rows, looked: Looked) -> None:
        nonlocal wrong
        wrong += int((~(looked.lead > 0)).sum())
        if progress:
            progress(Progress(done, task.size, wrong))

    return tell if progress else None


def _of_layers(model: Model, task: Task, seed: int, say: Callable[..., Proof]) -> Proof:
    """Of several layers: a counterexample from a sample; else a certificate, if it covers them."""
    found = _searched(model, task, seed, partial(say, method="search"))
    if found.result == "refuted" or model.config.n_layers != 2:
        return found
    try:
        return _certified(model, task, seed, partial(say, method="certificate"))
    except GlassformerError as e:
        return replace(found, reason=f"{found.reason.partition(', but ')[0]}, but {e}")


def _searched(model: Model, task: Task, seed: int, say: Callable[..., Proof]) -> Proof:
    """For a model of more layers than the certificate covers: a counterexample, or unknown."""
    layout_of(task)  # a task that is not covered is an error, not unknown
    verdict = verify(model, task, seed=seed)
    if shown := next(iter(verdict.counterexamples), None):
        return say("refuted", 0, counterexample=shown, reason=_wrong(verdict))
    needs = f"a certificate needs a model of one layer, or two, got {model.config.n_layers}"
    return say("unknown", 0, reason=f"{_wrong(verdict)}, but {needs}")


def _wrong(found: Verdict | Ran) -> str:
    return f"{found.wrong:,} wrong of {found.checked:,} rows"


def _certified(
    model: Model, task: Task, seed: int, say: Callable[..., Proof],
    progress: ProgressCallback | None = None,
) -> Proof:  # fmt: skip
    layout = check_call(model, task)
    bounder = Bounder(model, layout)
    tries = [attempt(bounder, v, next(splits(bounder, v))) for v in views(bounder)]
    found = common(model, task, seed) if any(tried.left for tried in tries) else None
    closest = []
    for done, tried in enumerate(tries, 1):
        closest += [tried] if found else closer(bounder, tried)
        if progress:
            progress(Progress(done, len(tries), 0))
    tries = closest
    open_ = [b for tried in tries for b in tried.left]
    cases = sum(tried.closed for tried in tries)
    if not open_:
        certificate = identity(model, task, layout) | {
            "rows": [tried.to_json() for tried in tries],
            "cases": cases,
            "margin": min(tried.least for tried in tries) * CLAIM,
        }
        checked = check_certificate(model, task, certificate)
        if not checked.holds:
            return say("unknown", checked.cases, reason=checked.reason)
        stand_by(model, task, seed)
        reason = scope(model, task)
        shown = {"margin": checked.margin, "certificate": certificate}
        return say("proved", checked.cases, reason=reason, **shown)
    open_.sort(key=lambda b: float(np.nan_to_num(b.lead, nan=-np.inf).min()))
    found = found or refute(model, task, bounder, open_, seed)
    if found:
        reason = f"{found['input']} gives {found['got']}, expected {found['expected']}"
        return say("refuted", cases, counterexample=found, reason=reason)
    count = sum(int((~(b.lead > 0)).sum()) for b in open_)
    worst, s = describe(layout, open_[0]), "s" * (count != 1)
    return say("unknown", cases, reason=f"{count:,} case{s} stayed open, the worst: {worst}")


def stand_by(model: Model, task: Task, seed: int = 0) -> None:
    """Before *proved* is said, the model is run. If it is wrong on anything, so is the prover."""
    if found := common(model, task, seed):
        wrong = f"{found['input']} gives {found['got']}, expected {found['expected']}"
        raise GlassformerError(
            f"prove — a defect of the prover: its certificate passes, but {wrong}; "
            "nothing is proved. Please report it with the model"
        )


def scope(model: Model, task: Task, fused_norm: bool = False) -> str:
    """What a proof of all cases covers, in words. `fused_norm`: PyTorch's layer norm, too."""
    layer = model.config.norm == "layer" and not fused_norm
    but = FUSED_NORM if layer else ""
    words = f"for every order of summation, in NumPy and PyTorch{but}"
    owner = "file" if ".py:" in task.ref else "class"
    if owner == "file" or not type(task).__module__.startswith("glassformer."):
        sample = "compared on edge cases and 2,000 rows"
        words += f"; what is right is declared by the task's {owner}, {sample}"
    return words


@dataclass(frozen=True)
class Attempt:
    """What came of splitting a row, or rows alike, in one way."""

    view: View
    split: tuple[str, ...]
    cuts: int
    closed: int
    least: float
    left: list[Bounds]

    def to_json(self) -> dict[str, Any]:
        """The row of a certificate."""
        cut = {"cuts": self.cuts} if self.cuts else {}
        return self.view.to_json() | {"split": list(self.split)} | cut

    def gains(self, on: "Attempt", part: float) -> bool:
        """Whether the worst lead is nearer to 0 by this part of what it was."""
        return self.least > on.least + part * abs(on.least)


def views(bounder: Bounder) -> list[View]:
    """How the rows of the answer are looked at first: one by one, at all columns; of long numbers,
    at a stretch around the column asked for, and all together whose stretch is within the numbers.
    """
    layout = bounder.layout
    if layout.digits <= LONG:
        return [bounder.view(row) for row in layout.rows]
    inner, groups = range(NEAR + 1, layout.digits - NEAR), list[list[int]]()
    for row in layout.rows:
        kind, column = layout.spots[row + 1]
        alike = kind == "s" and column in inner
        if alike and groups and layout.spots[groups[-1][0] + 1][1] in inner:
            groups[-1].append(row)
        else:
            groups.append([row])
    return [bounder.view(g[0], g[-1], NEAR) for g in groups]


def closer(bounder: Bounder, tried: Attempt) -> list[Attempt]:
    """What closes, if anything does: a finer split, or a closer look at rows one by one.

    Of rows that were looked at together and stay open, the first and the last are looked at closely
    (that is where counterexamples come from); the others only if these close.
    """
    if not tried.left:
        return [tried]
    best = search(bounder, tried.view, tried)
    if not best.left or not tried.view.near:
        return [best]
    ends, alone = sorted({tried.view.rows[0], tried.view.rows[-1]}), list[Attempt]()
    for row in [*ends, *tried.view.rows[1:-1]]:
        view = bounder.view(row)
        alone.append(search(bounder, view, attempt(bounder, view, next(splits(bounder, view)))))
        if alone[-1].left:
            return [best, *alone]
    return alone


def attempt(bounder: Bounder, row: View, split: tuple[str, ...], cuts: int = 0) -> Attempt:
    found = list(bounder.bounds(row, split, cuts))
    closed = sum(int((b.lead > 0).sum()) for b in found)
    left = [b for b in found if not (np.isfinite(b.lead) & (b.lead > 0)).all()]
    return Attempt(row, split, cuts, closed, min(float(b.lead.min()) for b in found), left)


def search(bounder: Bounder, row: View, coarse: Attempt) -> Attempt:
    """The coarsest split of a row that closes, or the one whose worst case is best.

    What attention writes is cut before cases are split further: it takes fewer bounds. If that
    is of no use to one split, finer ones are not cut. All pairs of these columns is finer than all
    before: if that is no better, more will not help.
    """
    best, cutting = coarse, True
    for split in splits(bounder, row):
        finer = coarse if split == coarse.split else attempt(bounder, row, split)
        if finer.left and cutting and (cuts := deepest(split)):
            cut = attempt(bounder, row, split, cuts)
            cutting = cut.gains(finer, CUT_GAIN)
            finer = cut if cutting else finer
        if not finer.left:
            return finer
        best = max(best, finer, key=lambda tried: tried.least)
        if set(split) == {"pair"} and not best.gains(coarse, GAIN):
            break
    return best


def deepest(split: tuple[str, ...]) -> int:
    """How often to cut the cases of a split: CUTS, or less where they are many."""
    return max(n for n in range(CUTS + 1) if not n or how_many(split, n) <= MOST_CASES)


def splits(bounder: Bounder, row: View) -> Iterator[tuple[str, ...]]:
    """Ways to split the cases of a row, the coarsest first; then with one more column below."""
    size = len(bounder.window(row))
    ways = sorted(itertools.product(SPLITS, repeat=size), key=lambda s: s.count("pair"))
    if bounder.window(row)[0] > 0:
        ways += [("digit", *s) for s in ways]
    yield from (split for split in ways if how_many(split) <= MOST_CASES)
