"""The checker: does a certificate close? A proof rests on this file, and on what it imports.

A certificate says into which cases to split the pairs of numbers, row by row: for every position
that must produce a token of the answer, how the columns near it are told apart, and how often what
attention writes is cut in halves. The checker takes nothing else from it. It makes the cases
itself, bounds the lead of the right token over every other in each, and wants all of them positive.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.checkpoint import digest
from ..core.model import Model
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from .bounds import Bounder, Bounds
from .layout import SumLayout, layout_of


@dataclass(frozen=True)
class CertificateResult:
    """What the checker found."""

    holds: bool
    cases: int
    margin: float  # no lead in any case is smaller
    reason: str = ""  # why it does not hold, or how it holds less than was claimed


def check_certificate(
    model: Model, task: Task, certificate: Mapping[str, Any]
) -> CertificateResult:
    """Whether a certificate proves that the model is right on the whole domain of the task."""
    layout, parts = check_model_and_task(model, task), read_certificate_rows(certificate)
    for name, value in certificate_identity(model, task, layout).items():
        if certificate.get(name) != value:
            return CertificateResult(False, 0, -np.inf, f"the certificate is for another {name}")
    if sorted(row for p in parts for row in p.rows(layout)) != list(layout.answer_rows):
        return CertificateResult(
            False, 0, -np.inf, "the certificate's rows are not those of the answer"
        )
    bounder, cases, margin = Bounder(model, layout), 0, np.inf
    for part in parts:
        view = bounder.row_group(part.row, part.last_row, part.radius)
        for bounds in bounder.bounds(view, part.split, part.cuts):
            if not (np.isfinite(bounds.margin) & (bounds.margin > 0)).all():
                return CertificateResult(
                    False, cases, -np.inf, f"open: {describe_worst_case(layout, bounds)}"
                )
            least = float(bounds.margin.min())
            least = least if least <= bounds.margin.min() else math.nextafter(least, -math.inf)
            cases, margin = cases + len(bounds.cases), min(margin, least)
    if not cases or cases != certificate["cases"] or not margin >= certificate["margin"]:
        reason = "the certificate claims another number of cases or a larger margin"
        return CertificateResult(False, cases, margin, reason)
    return CertificateResult(True, cases, margin)


def certificate_identity(model: Model, task: Task, layout: SumLayout) -> dict[str, Any]:
    """What a certificate is for, in its own words."""
    known = {"model": digest(model), "task": task.ref, "dtype": model.dtype}
    return known | {"layout": layout.to_json()}


@dataclass(frozen=True)
class CertificateRow:
    """What a certificate says of a row, or of all rows through another, looked at so far."""

    row: int
    split: tuple[str, ...]
    cuts: int
    last_row: int
    radius: int  # 0: all columns

    def rows(self, layout: SumLayout) -> range:
        """Its rows, as far as the text goes."""
        return range(self.row, max(self.row, min(self.last_row, len(layout.spots))) + 1)


def read_certificate_rows(certificate: Mapping[str, Any]) -> list[CertificateRow]:
    """How each row is split and how often cut (if it says so), of a certificate whose other fields
    are all there, and all of their types.
    """
    wanted = {
        "model": str, "task": str, "dtype": str, "layout": list, "rows": list, "cases": int,
        "margin": float,
    }  # fmt: skip
    good = isinstance(certificate, Mapping)
    good = good and all(type(certificate.get(n)) is kind for n, kind in wanted.items())
    rows = certificate["rows"] if good else []
    good = good and 0 <= certificate["margin"] < math.inf and all(
        isinstance(r, Mapping) and type(r.get("row")) is int and type(r.get("split")) is list
        and all(type(s) is str for s in r["split"])
        and all(type(r.get(n, 0)) is int for n in ("cuts", "through", "near")) for r in rows
    )  # fmt: skip
    if not good:
        raise GlassformerError("certificate — has not the fields of one that prove wrote")
    more = ("cuts", "through", "near")
    return [CertificateRow(r["row"], tuple(r["split"]), *(r.get(n, 0) for n in more)) for r in rows]


def check_model_and_task(model: Model, task: Task) -> SumLayout:
    """The task's layout, if a proof can be about it, and the model is one that can do it."""
    task.require(model.vocabulary)
    layout = layout_of(task)
    if (size := len(layout.spots) - 1) > (block := model.config.n_ctx):
        what = f"texts of {size} tokens; the model's block has {block}"
        raise GlassformerError(f"{task.ref} — {what}")
    for p in (*layout.answer_rows, size):
        if layout.spots[p][0] in "ab":
            what = f"a format the prover does not cover: a number's digit asks at {p}"
            raise GlassformerError(f"{task.ref} — {what}")
    return layout


def describe_worst_case(layout: SumLayout, bounds: Bounds) -> str:
    """The worst case of some, in words."""
    at = int(np.nan_to_num(bounds.margin, nan=-np.inf).argmin())
    words = []
    for step, way in zip(bounds.cases.window, bounds.cases.ways[:, at], strict=True):
        members = step.members(way)
        digits = f"{members[0] % 100 // 10}+{members[0] % 10} and " if len(members) == 1 else ""
        writes = f"carry {step.carry_in[way]} writes {step.digit[way]}"
        words.append(f"column {step.column + bounds.group.lowest_column} with {digits}{writes}")
    known = f"the lead is only known to be above {float(bounds.margin[at]):.3g}"
    rows = bounds.group.rows
    alike = f", and all to {rows[-1]} by their columns" if len(rows) > 1 else ""
    return f"position {bounds.row}{alike}, {'; '.join(words)}: {known}"
