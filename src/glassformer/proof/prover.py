"""Entry point of proofs: selects a method and searches for a certificate."""

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
from .counterexamples import (
    BatchDependent,
    describe_counterexample,
    prover_defect,
    refute,
    sample_counterexample,
    verify_counterexample,
)
from .layout import layout_of

if TYPE_CHECKING:
    from .agreement import CheckerResult

ProofStatus = Literal["proved", "refuted", "unknown"]
ProofMethod = Literal["auto", "certificate", "enumeration"]
CLAIMED_MARGIN_FRACTION = 1 - 1e-6  # tolerance for the rounding of other machines
MAX_DIGITS_WITHOUT_WINDOW = 12  # rows of longer numbers use column windows
WINDOW_RADIUS = 4  # columns on either side of the requested one
SEARCH_CUTS = 4  # bisections of the attention output, which give 16 pieces
FUSED_NORM_EXCEPTION = " but for its fused layer norm"  # scope exception of proofs in PyTorch
MIN_SPLIT_GAIN = 0.01  # minimum relative gain in margin for further splits
MIN_CUT_GAIN = 0.5  # minimum relative gain in margin for further bisections


@dataclass(frozen=True)
class Proof(Displayable):
    """Result of a proof for a model on the whole domain of a task."""

    result: ProofStatus
    cases: int  # number of closed cases, or of rows that were enumerated
    _: KW_ONLY
    margin: float | None = None  # lower bound on the margin of the right token, if proved
    dtype: str
    backend: str = ""  # backend of the model: NumPy or PyTorch
    counterexample: dict[str, Any] | None = None
    reason: str  # method of the proof, counterexample, or open case
    model: str  # SHA-256 of the weights
    task: str
    method: str
    certificate: dict[str, Any] | None = None  # input of check_certificate
    checkers: tuple["CheckerResult", ...] = ()

    @property
    def independent(self) -> bool:
        """Whether the independent checker accepted the proof."""
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
    model: Model,
    task: Task,
    *,
    method: ProofMethod = "auto",
    seed: int = 0,
    progress: ProgressCallback | None = None,
    independent: bool | None = False,
) -> Proof:
    """Decide whether a model is right on the whole domain of a task.

    Args:
        model: The model.
        task: The task.
        method: "enumeration" runs every row. "certificate" bounds the margins of an adder over all
            pairs of numbers and searches for a counterexample if that fails. For a compiled model
            it checks the embedded certificate; for min, max, sort, reverse and modular addition
            it bounds the cases of the task (other_tasks.py). "auto" enumerates
            domains of up to about a million rows, unless the model is compiled. For an adder with
            more than two layers it can only find a counterexample.
        seed: Seed of the search for a counterexample.
        progress: Called with the number of rows run, rows of the certificate, or values of a
            compiled model.
        independent: Whether to check a proof with the independent checker (agreement.py). None runs
            it if it covers the model and task.

    Returns:
        The proof: proved, refuted with a counterexample, or unknown.

    Raises:
        GlassformerError: The method does not cover the model or the task.
    """
    if method not in ("auto", "certificate", "enumeration"):
        raise GlassformerError(
            f"prove: expected method auto, certificate or enumeration, got {method!r}"
        )
    task.require(model.vocabulary)
    if method == "enumeration" and task.size > MAX_EXHAUSTIVE_ROWS:
        raise GlassformerError(
            f"{task.ref}: expected at most {MAX_EXHAUSTIVE_ROWS:,} rows for enumeration, got "
            f"{format_count(task.size)}. Leave out method"
        )
    backend = "NumPy" if model.is_numpy else "PyTorch"
    make_proof = partial(
        Proof, dtype=model.dtype, backend=backend, model=digest(model), task=task.ref
    )
    start = time.process_time()
    try:
        proof = _prove(model, task, method, seed, progress, make_proof, independent)
    except BatchDependent as e:
        return make_proof("unknown", 0, reason=str(e), method="search")
    if independent is False:
        return proof
    from .agreement import confirm_independently

    return confirm_independently(model, task, proof, time.process_time() - start, independent)


def _prove(
    model: Model,
    task: Task,
    method: ProofMethod,
    seed: int,
    progress: ProgressCallback | None,
    make_proof: Callable[..., Proof],
    independent: bool | None,
) -> Proof:
    if method != "enumeration" and isinstance(task, SequenceTask) and is_compiled(model, task):
        make_compiled = partial(make_proof, method="compiled")
        return prove_compiled(model, task, seed, make_compiled, progress)
    if method == "enumeration" or (method == "auto" and task.size <= MAX_EXHAUSTIVE_ROWS):
        make_enumerated = partial(make_proof, method="enumeration")
        return _prove_by_enumeration(model, task, make_enumerated, progress)
    from .other_tasks import has_lemma_for, prove_by_cases  # loads the tasks' modules

    if has_lemma_for(task):
        make_by_cases = partial(make_proof, method="cases")
        proof = prove_by_cases(model, task, seed, make_by_cases, independent is not False)
        if not proof.holds:
            return proof
        # interval proofs cover the fused norm; lemmas do not
        return replace(proof, reason=describe_scope(model, task, proof.method == "intervals"))
    if method == "auto" and model.config.n_layers != 1:
        return _prove_multilayer(model, task, seed, make_proof)
    make_certified = partial(make_proof, method="certificate")
    return _prove_by_certificate(model, task, seed, make_certified, progress)


def _prove_by_enumeration(
    model: Model, task: Task, make_proof: Callable[..., Proof], progress: ProgressCallback | None
) -> Proof:
    """Run every row with two orders of summation, and some rows alone."""
    run = evaluate_domain(model, task, row_progress(task, progress))
    for row in run.failures:
        if example := verify_counterexample(model, task, np.array(row, task.row_type)):
            return make_proof(
                "refuted", run.checked, counterexample=example, reason=_error_count(run)
            )
    if run.wrong or not run.checked:
        alone = ", but right when run alone: it depends on the order of sums" if run.wrong else ""
        return make_proof("unknown", run.checked, reason=_error_count(run) + alone)
    if run.uncertain:
        return make_proof("unknown", run.checked, reason=run.doubt)
    reason = "every row was run in two orders of the same sums, with this machine's rounding"
    reason += f" in {'NumPy' if model.is_numpy else 'PyTorch'}"
    if undefined := task.size - run.checked:
        reason += f"; {undefined:,} inputs have no defined answer"
    return make_proof("proved", run.checked, margin=run.margin, reason=reason)


def row_progress(task: Task, progress: ProgressCallback | None) -> Callable[..., object] | None:
    """Return a callback for `evaluate_domain` that reports to `progress`, or None."""
    if progress is None:
        return None
    wrong = 0

    def on_rows(done: int, rows: Rows, margins: RobustMargins) -> None:
        nonlocal wrong
        wrong += int((~(margins.margin > 0)).sum())
        progress(Progress(done, task.size, wrong))

    return on_rows


def _prove_multilayer(
    model: Model, task: Task, seed: int, make_proof: Callable[..., Proof]
) -> Proof:
    """Search a sample for a counterexample, then try a certificate if there are two layers."""
    layout_of(task)  # raises an error if certificates do not cover the task
    verdict = verify(model, task, seed=seed)
    count, n_layers = _error_count(verdict), model.config.n_layers
    if example := next(iter(verdict.counterexamples), None):
        return make_proof("refuted", 0, counterexample=example, reason=count, method="search")
    reason = f"a certificate needs a model of one layer, or two, got {n_layers}"
    if n_layers == 2:
        try:
            make_certified = partial(make_proof, method="certificate")
            return _prove_by_certificate(model, task, seed, make_certified)
        except GlassformerError as e:
            reason = str(e)
    return make_proof("unknown", 0, reason=f"{count}, but {reason}", method="search")


def _error_count(result: Verdict | ExhaustiveResult) -> str:
    return f"{result.wrong:,} wrong of {result.checked:,} rows"


def _prove_by_certificate(
    model: Model,
    task: Task,
    seed: int,
    make_proof: Callable[..., Proof],
    progress: ProgressCallback | None = None,
) -> Proof:
    layout = check_model_and_task(model, task)
    bounder = Bounder(model, layout)
    coarse = [try_coarsest_split(bounder, group) for group in initial_row_groups(bounder)]
    example = None
    if any(attempt.open_bounds for attempt in coarse):
        example = sample_counterexample(model, task, seed)
    attempts = []
    for done, attempt in enumerate(coarse, 1):
        attempts += [attempt] if example else refine(bounder, attempt)
        if progress:
            progress(Progress(done, len(coarse), 0))
    open_ = [b for attempt in attempts for b in attempt.open_bounds]
    cases = sum(attempt.closed_cases for attempt in attempts)
    if not open_:
        certificate = certificate_identity(model, task, layout) | {
            "rows": [attempt.to_json() for attempt in attempts],
            "cases": cases,
            "margin": min(attempt.min_margin for attempt in attempts) * CLAIMED_MARGIN_FRACTION,
        }
        check = check_certificate(model, task, certificate)
        if not check.holds:
            return make_proof("unknown", check.cases, reason=check.reason)
        sanity_check_by_running(model, task, seed)
        return make_proof(
            "proved",
            check.cases,
            margin=check.margin,
            certificate=certificate,
            reason=describe_scope(model, task),
        )
    open_.sort(key=lambda b: float(np.nan_to_num(b.margin, nan=-np.inf).min()))
    if example := example or refute(model, task, bounder, open_, seed):
        reason = describe_counterexample(example)
        return make_proof("refuted", cases, counterexample=example, reason=reason)
    count = sum(int((~(b.margin > 0)).sum()) for b in open_)
    s, worst = "s" * (count != 1), describe_worst_case(open_[0])
    return make_proof("unknown", cases, reason=f"{count:,} case{s} stayed open, the worst: {worst}")


def sanity_check_by_running(model: Model, task: Task, seed: int = 0) -> None:
    """Run a proved model on edge cases and a sample; raise an error if it is wrong on any row."""
    if example := sample_counterexample(model, task, seed):
        raise prover_defect(f"its certificate passes, but {describe_counterexample(example)}")


def describe_scope(model: Model, task: Task, fused_norm: bool = False) -> str:
    """Describe the arithmetic that a proof covers.

    Args:
        model: The proved model.
        task: The task.
        fused_norm: Whether the proof also covers PyTorch's fused layer norm.
    """
    exception = FUSED_NORM_EXCEPTION if model.config.norm == "layer" and not fused_norm else ""
    scope = f"for every order of summation, in NumPy and PyTorch{exception}"
    owner = "file" if ".py:" in task.ref else "class"
    if owner == "file" or not type(task).__module__.startswith("glassformer."):
        sample = "compared on edge cases and 2,000 rows"
        scope += f"; what is right is declared by the task's {owner}, {sample}"
    return scope


@dataclass(frozen=True)
class SplitAttempt:
    """Result of bounding a row group with one split into cases."""

    group: RowGroup
    split: tuple[str, ...]
    cuts: int
    closed_cases: int
    min_margin: float
    open_bounds: list[Bounds]

    def to_json(self) -> dict[str, Any]:
        """Return the certificate entry of this row group and split."""
        cuts = {"cuts": self.cuts} if self.cuts else {}
        return self.group.to_json() | {"split": list(self.split)} | cuts

    def improves_on(self, other: "SplitAttempt", min_fraction: float) -> bool:
        """Return whether the smallest margin grows by `min_fraction` of its absolute value."""
        return self.min_margin > other.min_margin + min_fraction * abs(other.min_margin)


def initial_row_groups(bounder: Bounder) -> list[RowGroup]:
    """Return the row groups with which the search starts.

    Rows of short numbers form single groups over all columns. Rows of long numbers use windows;
    neighboring rows form one group if their windows are within the numbers.
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


def refine(bounder: Bounder, attempt: SplitAttempt) -> list[SplitAttempt]:
    """Try finer splits of an open attempt, then its rows one by one over all columns.

    If a group of rows stays open, its first and last rows are tried alone, since counterexamples
    are searched there. The remaining rows are tried only if these close.
    """
    if not attempt.open_bounds:
        return [attempt]
    best, rows = search_splits(bounder, attempt.group, attempt), attempt.group.rows
    if not best.open_bounds or not attempt.group.radius:
        return [best]
    single = list[SplitAttempt]()
    for row in [*sorted({rows[0], rows[-1]}), *rows[1:-1]]:
        group = bounder.row_group(row)
        single.append(search_splits(bounder, group, try_coarsest_split(bounder, group)))
        if single[-1].open_bounds:
            return [best, *single]
    return single


def try_coarsest_split(bounder: Bounder, group: RowGroup) -> SplitAttempt:
    return try_split(bounder, group, next(candidate_splits(bounder, group)))


def try_split(
    bounder: Bounder, group: RowGroup, split: tuple[str, ...], cuts: int = 0
) -> SplitAttempt:
    bounds = list(bounder.bounds(group, split, cuts))
    closed = sum(int((b.margin > 0).sum()) for b in bounds)
    open_ = [b for b in bounds if not (np.isfinite(b.margin) & (b.margin > 0)).all()]
    min_margin = min(float(b.margin.min()) for b in bounds)
    return SplitAttempt(group, split, cuts, closed, min_margin, open_)


def search_splits(bounder: Bounder, group: RowGroup, coarse: SplitAttempt) -> SplitAttempt:
    """Return the coarsest split that closes all cases, or else the one with the largest margin.

    The attention output is bisected before cases are split further, because bisection needs fewer
    bounds. If bisection does not improve one split, finer splits are not bisected. Splitting all
    columns into pairs is finer than every earlier split; if it does not improve the margin, the
    search stops, since more columns do not help either.
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
        best = max(best, finer, key=lambda attempt: attempt.min_margin)
        if set(split) == {"pair"} and not best.improves_on(coarse, MIN_SPLIT_GAIN):
            break
    return best


def max_search_cuts(split: tuple[str, ...]) -> int:
    """Return the number of bisections to try: SEARCH_CUTS, or fewer for a split with many cases."""
    return max(n for n in range(SEARCH_CUTS + 1) if not n or max_case_count(split, n) <= MAX_CASES)


def candidate_splits(bounder: Bounder, group: RowGroup) -> Iterator[tuple[str, ...]]:
    """Yield splits of the window's columns from coarse to fine, then with one more column below."""
    columns = bounder.window(group)
    splits = itertools.product(MAX_WAYS_PER_SPLIT, repeat=len(columns))
    candidates = sorted(splits, key=lambda s: s.count("pair"))
    if columns[0] > 0:
        candidates += [("digit", *s) for s in candidates]
    yield from (split for split in candidates if max_case_count(split) <= MAX_CASES)
