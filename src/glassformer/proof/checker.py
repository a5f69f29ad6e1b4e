"""Checker of certificates. Proofs by certificate rely on this file and its imports only.

A certificate defines how to split the pairs of numbers into cases, row by row: for every position
that must produce a token of the answer, which columns are split and how, and how often the
attention output is bisected. The checker reads nothing else from it. It derives the cases, bounds
the margin of the right token in each, and requires every bound to be positive.
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
from .qkv_bounds import check_context_length

FIELDS = {
    "model": str, "task": str, "dtype": str, "layout": list, "rows": list, "cases": int,
    "margin": float,
}  # fmt: skip
OPTIONAL_ROW_FIELDS = ("cuts", "through", "near")


@dataclass(frozen=True)
class CertificateResult:
    """Result of one checker for a certificate."""

    holds: bool
    cases: int
    margin: float  # lower bound over all cases
    reason: str = ""  # why the check fails, or passes with a smaller margin than claimed


def check_certificate(
    model: Model, task: Task, certificate: Mapping[str, Any]
) -> CertificateResult:
    """Check whether a certificate proves that a model is right on the whole domain of a task.

    Args:
        model: The model that the certificate names.
        task: Its task: a sum of two numbers at fixed positions.
        certificate: The parsed JSON of the certificate.

    Returns:
        Whether the certificate holds, with the number of cases and the margin, or the reason for
        the failure.

    Raises:
        GlassformerError: The task is not covered, or the certificate is malformed.
    """
    layout, rows = check_model_and_task(model, task), read_certificate_rows(certificate)
    for name, value in certificate_identity(model, task, layout).items():
        if certificate.get(name) != value:
            return _fails(0, f"the certificate is for another {name}")
    if sorted(row for r in rows for row in r.rows(layout)) != list(layout.answer_rows):
        return _fails(0, "the certificate's rows are not those of the answer")
    bounder, cases, margin = Bounder(model, layout), 0, np.inf
    for r in rows:
        group = bounder.row_group(r.row, r.last_row, r.radius)
        for bounds in bounder.bounds(group, r.split, r.cuts):
            if not (np.isfinite(bounds.margin) & (bounds.margin > 0)).all():
                return _fails(cases, f"open: {describe_worst_case(bounds)}")
            lowest = float(bounds.margin.min())
            lowest = lowest if lowest <= bounds.margin.min() else math.nextafter(lowest, -math.inf)
            cases, margin = cases + len(bounds.cases), min(margin, lowest)
    if not cases or cases != certificate["cases"] or not margin >= certificate["margin"]:
        reason = "the certificate claims another number of cases or a larger margin"
        return CertificateResult(False, cases, margin, reason)
    return CertificateResult(True, cases, margin)


def _fails(cases: int, reason: str) -> CertificateResult:
    return CertificateResult(False, cases, -np.inf, reason)


def certificate_identity(model: Model, task: Task, layout: SumLayout) -> dict[str, Any]:
    """Return the fields of a certificate that identify its model, task, dtype and layout."""
    return {
        "model": digest(model), "task": task.ref, "dtype": model.dtype, "layout": layout.to_json(),
    }  # fmt: skip


@dataclass(frozen=True)
class CertificateRow:
    """Entry of a certificate: the split of one row, or of a range of rows, into cases."""

    row: int
    split: tuple[str, ...]
    cuts: int
    last_row: int
    radius: int  # 0 if the rows see all columns

    def rows(self, layout: SumLayout) -> range:
        """Return the query positions of this entry, limited to the length of the sequence."""
        return range(self.row, max(self.row, min(self.last_row, len(layout.spots))) + 1)


def read_certificate_rows(certificate: Mapping[str, Any]) -> list[CertificateRow]:
    """Check the types of all fields of a certificate and return its rows."""
    if not isinstance(certificate, Mapping):
        raise _malformed("a mapping", type(certificate).__name__)
    for name, kind in FIELDS.items():
        if type(certificate.get(name)) is not kind:
            raise _malformed(f"{name}: {kind.__name__}", type(certificate.get(name)).__name__)
    if not 0 <= certificate["margin"] < math.inf:
        raise _malformed("a finite margin of at least 0", certificate["margin"])
    for r in certificate["rows"]:
        if not (
            isinstance(r, Mapping)
            and type(r.get("row")) is int
            and type(r.get("split")) is list
            and all(type(s) is str for s in r["split"])
            and all(type(r.get(name, 0)) is int for name in OPTIONAL_ROW_FIELDS)
        ):
            raise _malformed("rows with row, split and optionally cuts, through and near", r)
    return [
        CertificateRow(
            r["row"], tuple(r["split"]), *(r.get(name, 0) for name in OPTIONAL_ROW_FIELDS)
        )
        for r in certificate["rows"]
    ]


def _malformed(expected: str, value: Any) -> GlassformerError:
    return GlassformerError(f"certificate: expected {expected}, got {value!s:.60}")


def check_model_and_task(model: Model, task: Task) -> SumLayout:
    """Return the task's layout; raise an error if certificates do not cover model and task."""
    task.require(model.vocabulary)
    layout = layout_of(task)
    T = len(layout.spots) - 1
    check_context_length(model, task, T)
    for p in (*layout.answer_rows, T):
        if layout.spots[p][0] in "ab":
            raise GlassformerError(
                f"{task.ref}: expected no digit of a number at the query position {p}, got "
                f"{layout.spots[p]}",
                code="unsupported",
            )
    return layout


def describe_worst_case(bounds: Bounds) -> str:
    """Describe the case with the smallest margin: position, columns and margin."""
    worst = int(np.nan_to_num(bounds.margin, nan=-np.inf).argmin())
    columns = []
    for step, transition in zip(bounds.cases.window, bounds.cases.ways[:, worst], strict=True):
        members = step.members(transition)
        digits = f"{members[0] % 100 // 10}+{members[0] % 10} and " if len(members) == 1 else ""
        output = f"carry {step.carry_in[transition]} writes {step.digit[transition]}"
        columns.append(f"column {step.column + bounds.group.lowest_column} with {digits}{output}")
    margin = f"the margin is only known to be above {float(bounds.margin[worst]):.3g}"
    rows = bounds.group.rows
    through = f" to {rows[-1]}" if len(rows) > 1 else ""
    return f"position {bounds.row}{through}, {'; '.join(columns)}: {margin}"
