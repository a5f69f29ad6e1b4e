"""Proofs: the search for a certificate, and what becomes of it where there is none."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from .. import dust
from ..answers import EXHAUSTIVE
from ..checkpoint import digest
from ..errors import GlassformerError
from ..finding import Shown
from ..lang.task import Texts
from ..limits import many
from ..model import Model
from ..tasks.base import Task
from ..verification.checks import verify
from ..verification.verdict import Verdict
from .bounds import Bounder, Bounds
from .checker import check_call, check_certificate, describe, identity
from .columns import MOST_CASES, SPLITS, how_many
from .compiled import certified, is_compiled
from .layout import layout_of
from .refute import common, refute

Result = Literal["proved", "refuted", "unknown"]
Method = Literal["auto", "certificate", "enumeration"]
CLAIM = 1 - 1e-6  # of the margin found: other machines round the bounds otherwise
CUTS = 4  # how often what attention writes is halved: 16 pieces
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
    counterexample: dict[str, Any] | None = None
    reason: str  # how it was proved, or which case stayed open
    model: str  # SHA-256 of the weights
    task: str
    method: str
    certificate: dict[str, Any] | None = None  # for check_certificate

    @property
    def holds(self) -> bool:
        return self.result == "proved"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        margin = "" if self.margin is None else f", margin {self.margin:.3g}"
        return f"{self.result} ({self.method}, {self.cases:,} cases{margin}): {self.reason}"


def prove(model: Model, task: Task, *, method: Method = "auto", seed: int = 0) -> Proof:
    """Is the model right on all of the domain? Proved, refuted with a counterexample, or unknown.

    `enumeration` runs every row; `certificate` bounds the leads of a one-layer adder over all pairs
    of numbers, and looks for a counterexample where that fails; of a compiled model it is the one
    that the model carries, found anew. `auto` enumerates domains of up to about a million rows, of
    models that were not compiled; of a model with more layers it can beyond that only find a
    counterexample.
    """
    if method not in ("auto", "certificate", "enumeration"):
        must = "method must be auto, certificate or enumeration"
        raise GlassformerError(f"prove — {must}, got {method!r}")
    task.require(model.vocabulary)
    if method == "enumeration" and task.size > EXHAUSTIVE:
        most = f"enumeration takes at most {EXHAUSTIVE:,}"
        raise GlassformerError(f"{task.ref} — has {many(task.size)} rows; {most}")
    say = partial(Proof, dtype=model.dtype, model=digest(model), task=task.ref)
    if method != "enumeration" and isinstance(task, Texts) and is_compiled(model, task):
        proof: Proof = certified(model, task, seed, partial(say, method="compiled"))
        return replace(proof, reason=proof.reason + fused(model)) if proof.holds else proof
    if method == "enumeration" or (method == "auto" and task.size <= EXHAUSTIVE):
        return _enumerated(model, task, partial(say, method="enumeration"))
    if method == "auto" and model.config.n_layers != 1:
        return _searched(model, task, seed, partial(say, method="search"))
    return _certified(model, task, seed, partial(say, method="certificate"))


def _enumerated(model: Model, task: Task, say: Callable[..., Proof]) -> Proof:
    verdict = verify(model, task)
    if verdict.checked and not verdict.wrong:
        if tie := _within_rounding(model, task, verdict):
            return say("unknown", verdict.checked, reason=tie)
        reason = "every row was run, with this machine's rounding"
        return say("proved", verdict.checked, margin=verdict.worst_margin, reason=reason)
    shown = next(iter(verdict.counterexamples), None)
    result, reason = "refuted" if shown else "unknown", _wrong(verdict)
    return say(result, verdict.checked, counterexample=shown, reason=reason)


def _within_rounding(model: Model, task: Task, verdict: Verdict) -> str:
    """Why the worst row is no proof: alone or with others, its sums may round the other way."""
    if not verdict.worst:
        return ""
    tokens, _ = task.batch(np.array([verdict.worst["row"]], np.int64))
    if verdict.worst_margin > dust.tie(model.logits(tokens[:, :-1])):
        return ""
    lead = f"{verdict.worst['input']} is right by {verdict.worst_margin:.2g}"
    return f"{lead}, which another order of the same sums could turn"


def _searched(model: Model, task: Task, seed: int, say: Callable[..., Proof]) -> Proof:
    """For a model of more layers than the certificate covers: a counterexample, or unknown."""
    layout_of(task)  # a task that is not covered is an error, not unknown
    verdict = verify(model, task, seed=seed)
    if shown := next(iter(verdict.counterexamples), None):
        return say("refuted", 0, counterexample=shown, reason=_wrong(verdict))
    needs = f"a certificate needs a model of one layer, got {model.config.n_layers}"
    return say("unknown", 0, reason=f"{_wrong(verdict)}, but {needs}")


def _wrong(verdict: Verdict) -> str:
    return f"{verdict.wrong:,} wrong of {verdict.checked:,} rows"


def _certified(model: Model, task: Task, seed: int, say: Callable[..., Proof]) -> Proof:
    layout = check_call(model, task)
    bounder = Bounder(model, layout)
    coarse = {row: attempt(bounder, row, next(splits(bounder, row))) for row in layout.rows}
    left = [b for tried in coarse.values() for b in tried.left]
    found, tries = common(model, task, seed) if left else None, dict(coarse)
    for row, tried in coarse.items():
        if tried.left and not found:
            tries[row] = search(bounder, row, tried)
    open_ = [b for tried in tries.values() for b in tried.left]
    cases = sum(tried.closed for tried in tries.values())
    if not open_:
        certificate = identity(model, task, layout) | {
            "rows": [tried.to_json(row) for row, tried in tries.items()],
            "cases": cases,
            "margin": min(tried.least for tried in tries.values()) * CLAIM,
        }
        checked = check_certificate(model, task, certificate)
        if not checked.holds:
            return say("unknown", checked.cases, reason=checked.reason)
        stand_by(model, task, seed)
        reason = f"every case closes, with sums in any order in {model.dtype}{fused(model)}"
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


def fused(model: Model) -> str:
    """What a proof does not speak of when PyTorch computes the model, as words to add."""
    if model.is_numpy or model.config.norm != "layer":
        return ""
    other = "not of the fused one that PyTorch uses when nobody looks inside"
    return f"; of model.py's layer norm, {other}"


@dataclass(frozen=True)
class Attempt:
    """What came of splitting a row in one way."""

    split: tuple[str, ...]
    cuts: int
    closed: int
    least: float
    left: list[Bounds]

    def to_json(self, row: int) -> dict[str, Any]:
        """The row of a certificate."""
        return {"row": row, "split": list(self.split)} | ({"cuts": self.cuts} if self.cuts else {})

    def gains(self, on: "Attempt", part: float) -> bool:
        """Whether the worst lead is nearer to 0 by this part of what it was."""
        return self.least > on.least + part * abs(on.least)


def attempt(bounder: Bounder, row: int, split: tuple[str, ...], cuts: int = 0) -> Attempt:
    found = list(bounder.bounds(row, split, cuts))
    closed = sum(int((b.lead > 0).sum()) for b in found)
    left = [b for b in found if not (np.isfinite(b.lead) & (b.lead > 0)).all()]
    return Attempt(split, cuts, closed, min(float(b.lead.min()) for b in found), left)


def search(bounder: Bounder, row: int, coarse: Attempt) -> Attempt:
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


def splits(bounder: Bounder, row: int) -> Iterator[tuple[str, ...]]:
    """Ways to split the cases of a row, the coarsest first; then with one more column below."""
    size = len(bounder.window(row))
    ways = sorted(itertools.product(SPLITS, repeat=size), key=lambda s: s.count("pair"))
    if bounder.window(row)[0] > 0:
        ways += [("digit", *s) for s in ways]
    yield from (split for split in ways if how_many(split) <= MOST_CASES)
