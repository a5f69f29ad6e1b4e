"""Proofs: the search for a certificate, and what becomes of it where there is none."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..compiler.task import SequenceTask
from ..core.checkpoint import digest
from ..core.model import Model
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError
from ..utils.limits import format_count
from ..utils.progress import Progress, ProgressCallback
from ..utils.results import Displayable
from ..verification.evaluation import MAX_EXHAUSTIVE_ROWS
from ..verification.robust_eval import ExhaustiveResult, RobustMargins, evaluate_domain
from ..verification.verdict import Verdict
from ..verification.verifier import verify
from .bounds import Bounder, Bounds
from .carry_dp import MAX_CASES, MAX_WAYS_PER_SPLIT, max_case_count
from .checker import (
    certificate_identity,
    check_certificate,
    check_model_and_task,
    describe_worst_case,
)
from .column_window import RowGroup
from .compiled_models import is_compiled, prove_compiled
from .counterexamples import BatchDependent, refute, sample_counterexample, verify_counterexample
from .layout import layout_of

if TYPE_CHECKING:
    from .agreement import CheckerResult

ProofStatus = Literal["proved", "refuted", "unknown"]
ProofMethod = Literal["auto", "certificate", "enumeration"]
CLAIMED_MARGIN_FRACTION = 1 - 1e-6  # of the margin found: other machines round the bounds otherwise
MAX_DIGITS_WITHOUT_WINDOW = 12  # digits: of longer numbers, rows look at a stretch of columns
WINDOW_RADIUS = 4  # columns, on either side of the one that is asked for
SEARCH_CUTS = 4  # how often what attention writes is halved: 16 pieces
FUSED_NORM_EXCEPTION = " but for its fused layer norm"  # exception to proofs in PyTorch
MIN_SPLIT_GAIN = 0.01  # a finer split is of use if it brings the worst lead this much nearer to 0
MIN_CUT_GAIN = 0.5  # and cutting, if it brings it so much nearer


@dataclass(frozen=True)
class Proof(Displayable):
    """What is known of a model on the whole domain of a task."""

    result: ProofStatus
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
    model: Model, task: Task, *, method: ProofMethod = "auto", seed: int = 0,
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
    if method == "enumeration" and task.size > MAX_EXHAUSTIVE_ROWS:
        most = f"enumeration takes at most {MAX_EXHAUSTIVE_ROWS:,}"
        raise GlassformerError(f"{task.ref} — has {format_count(task.size)} rows; {most}")
    backend = "NumPy" if model.is_numpy else "PyTorch"
    say = partial(Proof, dtype=model.dtype, backend=backend, model=digest(model), task=task.ref)
    began = time.process_time()
    try:
        proof = _prove(model, task, method, seed, progress, say, independent)
    except BatchDependent as e:
        return say("unknown", 0, reason=str(e), method="search")
    if independent is False:
        return proof
    from .agreement import confirm_independently

    return confirm_independently(model, task, proof, time.process_time() - began, independent)


def _prove(
    model: Model, task: Task, method: ProofMethod, seed: int, progress: ProgressCallback | None,
    make_proof: Callable[..., Proof], independent: bool | None,
) -> Proof:  # fmt: skip
    if method != "enumeration" and isinstance(task, SequenceTask) and is_compiled(model, task):
        found: Proof = prove_compiled(
            model, task, seed, partial(make_proof, method="compiled"), progress
        )
        return found
    if method == "enumeration" or (method == "auto" and task.size <= MAX_EXHAUSTIVE_ROWS):
        return _prove_by_enumeration(
            model, task, partial(make_proof, method="enumeration"), progress
        )
    from .other_tasks import (  # it reads the tasks it speaks of: not before it must
        has_lemma_for,
        prove_by_cases,
    )

    if has_lemma_for(task):
        alone = independent is not False  # whether the independent checker may close it alone
        proof: Proof = prove_by_cases(model, task, seed, partial(make_proof, method="cases"), alone)
        fused_norm = proof.method == "intervals"  # which intervals cover, and lemmas do not
        return (
            replace(proof, reason=describe_scope(model, task, fused_norm)) if proof.holds else proof
        )
    if method == "auto" and model.config.n_layers != 1:
        return _prove_multilayer(model, task, seed, make_proof)
    return _prove_by_certificate(
        model, task, seed, partial(make_proof, method="certificate"), progress
    )


def _prove_by_enumeration(
    model: Model, task: Task, make_proof: Callable[..., Proof], progress: ProgressCallback | None
) -> Proof:
    """Every row is run, in two orders of the same sums, and some alone."""
    ran = evaluate_domain(model, task, row_progress(task, progress))
    missed = (
        verify_counterexample(model, task, np.array(row, task.row_type)) for row in ran.failures
    )
    if shown := next(filter(None, missed), None):
        return make_proof("refuted", ran.checked, counterexample=shown, reason=_error_count(ran))
    if ran.wrong or not ran.checked:
        other = ", but right when run alone: it hangs on the order of sums" if ran.wrong else ""
        return make_proof("unknown", ran.checked, reason=_error_count(ran) + other)
    if ran.uncertain:
        return make_proof("unknown", ran.checked, reason=ran.doubt)
    reason = "every row was run in two orders of the same sums, with this machine's rounding"
    reason += f" in {'NumPy' if model.is_numpy else 'PyTorch'}"
    if undefined := task.size - ran.checked:
        reason += f"; {undefined:,} inputs have no defined answer"
    return make_proof("proved", ran.checked, margin=ran.margin, reason=reason)


def row_progress(task: Task, progress: ProgressCallback | None) -> Callable[..., object] | None:
    """The callback of `run_all` that calls `progress`."""
    wrong = 0

    def tell(done: int, rows: Rows, looked: RobustMargins) -> None:
        nonlocal wrong
        wrong += int((~(looked.margin > 0)).sum())
        if progress:
            progress(Progress(done, task.size, wrong))

    return tell if progress else None


def _prove_multilayer(
    model: Model, task: Task, seed: int, make_proof: Callable[..., Proof]
) -> Proof:
    """Of several layers: a counterexample from a sample; else a certificate, if it covers them."""
    found = _search_sample(model, task, seed, partial(make_proof, method="search"))
    if found.result == "refuted" or model.config.n_layers != 2:
        return found
    try:
        return _prove_by_certificate(model, task, seed, partial(make_proof, method="certificate"))
    except GlassformerError as e:
        return replace(found, reason=f"{found.reason.partition(', but ')[0]}, but {e}")


def _search_sample(model: Model, task: Task, seed: int, make_proof: Callable[..., Proof]) -> Proof:
    """For a model of more layers than the certificate covers: a counterexample, or unknown."""
    layout_of(task)  # a task that is not covered is an error, not unknown
    verdict = verify(model, task, seed=seed)
    if shown := next(iter(verdict.counterexamples), None):
        return make_proof("refuted", 0, counterexample=shown, reason=_error_count(verdict))
    needs = f"a certificate needs a model of one layer, or two, got {model.config.n_layers}"
    return make_proof("unknown", 0, reason=f"{_error_count(verdict)}, but {needs}")


def _error_count(result: Verdict | ExhaustiveResult) -> str:
    return f"{result.wrong:,} wrong of {result.checked:,} rows"


def _prove_by_certificate(
    model: Model, task: Task, seed: int, make_proof: Callable[..., Proof],
    progress: ProgressCallback | None = None,
) -> Proof:  # fmt: skip
    layout = check_model_and_task(model, task)
    bounder = Bounder(model, layout)
    tries = [
        try_split(bounder, v, next(candidate_splits(bounder, v)))
        for v in initial_row_groups(bounder)
    ]
    found = (
        sample_counterexample(model, task, seed)
        if any(tried.open_bounds for tried in tries)
        else None
    )
    closest = []
    for done, tried in enumerate(tries, 1):
        closest += [tried] if found else refine(bounder, tried)
        if progress:
            progress(Progress(done, len(tries), 0))
    tries = closest
    open_ = [b for tried in tries for b in tried.open_bounds]
    cases = sum(tried.closed_cases for tried in tries)
    if not open_:
        certificate = certificate_identity(model, task, layout) | {
            "rows": [tried.to_json() for tried in tries],
            "cases": cases,
            "margin": min(tried.min_margin for tried in tries) * CLAIMED_MARGIN_FRACTION,
        }
        checked = check_certificate(model, task, certificate)
        if not checked.holds:
            return make_proof("unknown", checked.cases, reason=checked.reason)
        sanity_check_by_running(model, task, seed)
        reason = describe_scope(model, task)
        shown = {"margin": checked.margin, "certificate": certificate}
        return make_proof("proved", checked.cases, reason=reason, **shown)
    open_.sort(key=lambda b: float(np.nan_to_num(b.margin, nan=-np.inf).min()))
    found = found or refute(model, task, bounder, open_, seed)
    if found:
        reason = f"{found['input']} gives {found['got']}, expected {found['expected']}"
        return make_proof("refuted", cases, counterexample=found, reason=reason)
    count = sum(int((~(b.margin > 0)).sum()) for b in open_)
    worst, s = describe_worst_case(layout, open_[0]), "s" * (count != 1)
    return make_proof("unknown", cases, reason=f"{count:,} case{s} stayed open, the worst: {worst}")


def sanity_check_by_running(model: Model, task: Task, seed: int = 0) -> None:
    """Before *proved* is said, the model is run. If it is wrong on anything, so is the prover."""
    if found := sample_counterexample(model, task, seed):
        wrong = f"{found['input']} gives {found['got']}, expected {found['expected']}"
        raise GlassformerError(
            f"prove — a defect of the prover: its certificate passes, but {wrong}; "
            "nothing is proved. Please report it with the model"
        )


def describe_scope(model: Model, task: Task, fused_norm: bool = False) -> str:
    """What a proof of all cases covers, in words. `fused_norm`: PyTorch's layer norm, too."""
    layer = model.config.norm == "layer" and not fused_norm
    but = FUSED_NORM_EXCEPTION if layer else ""
    words = f"for every order of summation, in NumPy and PyTorch{but}"
    owner = "file" if ".py:" in task.ref else "class"
    if owner == "file" or not type(task).__module__.startswith("glassformer."):
        sample = "compared on edge cases and 2,000 rows"
        words += f"; what is right is declared by the task's {owner}, {sample}"
    return words


@dataclass(frozen=True)
class SplitAttempt:
    """What came of splitting a row, or rows alike, in one way."""

    group: RowGroup
    split: tuple[str, ...]
    cuts: int
    closed_cases: int
    min_margin: float
    open_bounds: list[Bounds]

    def to_json(self) -> dict[str, Any]:
        """The row of a certificate."""
        cut = {"cuts": self.cuts} if self.cuts else {}
        return self.group.to_json() | {"split": list(self.split)} | cut

    def improves_on(self, other: "SplitAttempt", min_fraction: float) -> bool:
        """Whether the worst lead is nearer to 0 by this part of what it was."""
        return self.min_margin > other.min_margin + min_fraction * abs(other.min_margin)


def initial_row_groups(bounder: Bounder) -> list[RowGroup]:
    """How the rows of the answer are looked at first: one by one, at all columns; of long numbers,
    at a stretch around the column asked for, and all together whose stretch is within the numbers.
    """
    layout = bounder.layout
    if layout.digits <= MAX_DIGITS_WITHOUT_WINDOW:
        return [bounder.row_group(row) for row in layout.answer_rows]
    inner, groups = range(WINDOW_RADIUS + 1, layout.digits - WINDOW_RADIUS), list[list[int]]()
    for row in layout.answer_rows:
        kind, column = layout.spots[row + 1]
        alike = kind == "s" and column in inner
        if alike and groups and layout.spots[groups[-1][0] + 1][1] in inner:
            groups[-1].append(row)
        else:
            groups.append([row])
    return [bounder.row_group(g[0], g[-1], WINDOW_RADIUS) for g in groups]


def refine(bounder: Bounder, tried: SplitAttempt) -> list[SplitAttempt]:
    """What closes, if anything does: a finer split, or a closer look at rows one by one.

    Of rows that were looked at together and stay open, the first and the last are looked at closely
    (that is where counterexamples come from); the others only if these close.
    """
    if not tried.open_bounds:
        return [tried]
    best = search_splits(bounder, tried.group, tried)
    if not best.open_bounds or not tried.group.radius:
        return [best]
    ends, alone = sorted({tried.group.rows[0], tried.group.rows[-1]}), list[SplitAttempt]()
    for row in [*ends, *tried.group.rows[1:-1]]:
        view = bounder.row_group(row)
        alone.append(
            search_splits(
                bounder, view, try_split(bounder, view, next(candidate_splits(bounder, view)))
            )
        )
        if alone[-1].open_bounds:
            return [best, *alone]
    return alone


def try_split(
    bounder: Bounder, group: RowGroup, split: tuple[str, ...], cuts: int = 0
) -> SplitAttempt:
    found = list(bounder.bounds(group, split, cuts))
    closed = sum(int((b.margin > 0).sum()) for b in found)
    left = [b for b in found if not (np.isfinite(b.margin) & (b.margin > 0)).all()]
    return SplitAttempt(group, split, cuts, closed, min(float(b.margin.min()) for b in found), left)


def search_splits(bounder: Bounder, group: RowGroup, coarse: SplitAttempt) -> SplitAttempt:
    """The coarsest split of a row that closes, or the one whose worst case is best.

    What attention writes is cut before cases are split further: it takes fewer bounds. If that
    is of no use to one split, finer ones are not cut. All pairs of these columns is finer than all
    before: if that is no better, more will not help.
    """
    best, cutting = coarse, True
    for split in candidate_splits(bounder, group):
        finer = coarse if split == coarse.split else try_split(bounder, group, split)
        if finer.open_bounds and cutting and (cuts := max_search_cuts(split)):
            cut = try_split(bounder, group, split, cuts)
            cutting = cut.improves_on(finer, MIN_CUT_GAIN)
            finer = cut if cutting else finer
        if not finer.open_bounds:
            return finer
        best = max(best, finer, key=lambda tried: tried.min_margin)
        if set(split) == {"pair"} and not best.improves_on(coarse, MIN_SPLIT_GAIN):
            break
    return best


def max_search_cuts(split: tuple[str, ...]) -> int:
    """How often to cut the cases of a split: CUTS, or less where they are many."""
    return max(n for n in range(SEARCH_CUTS + 1) if not n or max_case_count(split, n) <= MAX_CASES)


def candidate_splits(bounder: Bounder, group: RowGroup) -> Iterator[tuple[str, ...]]:
    """Ways to split the cases of a row, the coarsest first; then with one more column below."""
    size = len(bounder.window(group))
    ways = sorted(itertools.product(MAX_WAYS_PER_SPLIT, repeat=size), key=lambda s: s.count("pair"))
    if bounder.window(group)[0] > 0:
        ways += [("digit", *s) for s in ways]
    yield from (split for split in ways if max_case_count(split) <= MAX_CASES)
