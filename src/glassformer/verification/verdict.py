"""Verdicts: results of verifications, with the model's hash and all options for a rerun."""

import json
import platform
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from ..utils import limits
from ..utils.argcheck import as_text, validate_init
from ..utils.errors import DAMAGED_FILE, GlassformerError, short_repr, shorten
from ..utils.fileio import check_ending, write_atomically
from ..utils.results import Displayable
from ..utils.typed_json import Count, JsonObject, Name, convert, read_json

FORMAT = "glassformer verdict 1"
COUNT_FIELDS = ("looked_at", "checked", "wrong")
MAX_SEARCH_SIZE_RATIO = 4  # maximum ratio of rows in two searches with equal options
MARGIN_TOLERANCE = 1e-3  # relative difference between processors and libraries
# A search depends on margins, so its result may differ between processors.
SEARCH_DEPENDENT_FIELDS = {"worst_margin", "classes", "counterexamples"}


Text = Annotated[str, Meta(max_length=limits.MAX_TEXT_BYTES)]


class ClassFigures(JsonObject):
    """Counts and worst margin of one class of inputs."""

    checked: Count
    wrong: Count
    worst_margin: float


class PartFigures(ClassFigures):
    """Counts and worst margin of one part of the rows, such as sample or edges."""

    looked_at: Count


class WorstRow(JsonObject):
    """Row with the worst margin, with its input and expected output."""

    row: Annotated[list[int], Meta(max_length=10**6)]
    input: Text
    expected: Text


NESTED_SCHEMAS: dict[str, Any] = {  # schemas of the nested fields of a Verdict
    "worst": WorstRow | None,
    "parts": Annotated[dict[Name, PartFigures], Meta(max_length=10)],
    "classes": Annotated[dict[Name, ClassFigures], Meta(max_length=10**6)],
}
CounterexampleList = Annotated[list[dict[str, Any]], Meta(max_length=limits.MAX_LISTED_VALUES)]


@validate_init()
@dataclass(frozen=True)
class Verdict(Displayable):
    """Result of a verification."""

    model: str  # SHA-256 of the weights
    task: str
    dtype: str
    domain: Count  # rows in the domain
    exhaustive: bool  # True if all rows of the domain were run
    looked_at: Count  # rows, including rows on which the task is not defined
    checked: Count  # rows on which the task is defined
    wrong: Count
    worst_margin: float  # smallest margin of all answer tokens
    counterexamples: CounterexampleList = field(default_factory=list)
    seed: int | None = None
    worst: dict[str, Any] | None = None  # a WorstRow
    # names of parts: domain; or sample, edges and search; or given
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)  # values: PartFigures
    classes: dict[str, dict[str, Any]] = field(default_factory=dict)  # values: ClassFigures
    # upper bound on the share of wrong inputs at this confidence, for samples only
    error_bound: float | None = None
    confidence: float | None = None
    # options of verify
    sample: Annotated[int, Meta(ge=0, le=limits.MAX_SAMPLE_ROWS)] | None = None
    search: Annotated[int, Meta(ge=0, le=limits.MAX_SEARCH_ROUNDS)] = 0
    keep: Count = 10
    # saved because rounding may depend on the number of rows per forward pass
    chunk: Count = field(default=0, compare=False)
    versions: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def holds(self) -> bool:
        return self.checked > 0 and self.wrong == 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"holds": self.holds}

    def __str__(self) -> str:
        how = "all" if self.exhaustive else "sampled"
        worst = f"worst margin {self.worst_margin:.3g}"
        return f"{self.wrong:,} wrong of {self.checked:,} ({how}), {worst}"

    # ── files and comparisons ──────────────────────────────────────────────────────────────────
    def save(self, path: str | Path) -> Path:
        """Write the verdict to a JSON file atomically and return its path."""
        check_ending(file := as_text(path, "path", "a path"), ".json")
        text = json.dumps({"format": FORMAT, **self.to_json()}, indent=1) + "\n"
        return write_atomically(file, text.encode())

    @classmethod
    def read(cls, path: str | Path) -> "Verdict":
        """Read a saved verdict; raise an error if the file is damaged or inconsistent."""
        damaged = "damaged verdict, or none"
        value = read_json(as_text(path, "path", "a path"), damaged, finite=False)  # margins of inf
        try:
            saved = convert(value, dict[str, Any])
            if saved.get("format") != FORMAT:
                raise GlassformerError(f"expected format {FORMAT!r}")
            v = convert({n: x for n, x in saved.items() if n not in ("format", "holds")}, cls)
            if missing := [n for n in v.to_json() if n not in saved]:
                raise GlassformerError(f"field {missing[0]} is missing")
            for name, kind in NESTED_SCHEMAS.items():
                convert(getattr(v, name), kind, name)
            drawn = v.parts.get("sample", {}).get("looked_at", v.sample)
            if drawn != v.sample:
                raise GlassformerError(f"sample: expected {drawn}, as in parts, got {v.sample}")
            if max(v.domain, v.looked_at, v.checked, v.wrong) > limits.MAX_DOMAIN_SIZE:
                raise GlassformerError("a count exceeds the largest domain")
            if odd := v._inconsistent_figure():
                raise GlassformerError(f"{odd} differs from the sum over its parts or classes")
            if v.holds is not saved["holds"]:
                figures = f"{v.wrong:,} wrong of {v.checked:,}"
                raise GlassformerError(f"holds is {short_repr(saved['holds'])} with {figures}")
        except GlassformerError as e:
            raise GlassformerError(f"{path} — {damaged} ({e})", code=DAMAGED_FILE) from None
        return v

    def _inconsistent_figure(self) -> str:
        """Return the name of a figure that contradicts the parts or classes, or ""."""
        # rows that were run alone are already counted in other parts
        apart = {"looked_at": {"alone"}, "checked": {"alone"}, "wrong": set[str]()}
        for name in COUNT_FIELDS if self.parts else ():
            counts = (p[name] for n, p in self.parts.items() if n not in apart[name])
            if getattr(self, name) != sum(counts):
                return name
        for name in ("checked", "wrong"):
            if sum(c[name] for c in self.classes.values()) > getattr(self, name):
                return name
        worst = [p["worst_margin"] for p in self.parts.values()]
        return "worst_margin" if worst and not _nearly_equal(self.worst_margin, min(worst)) else ""

    @property
    def recheck_options(self) -> dict[str, Any]:
        """Options of `verify` for running the same rows again."""
        if "given" in self.parts or not self.parts:
            problem = "got given rows, which a verdict does not store"
            raise GlassformerError(f"verdict — expected a domain or a sample, {problem}")
        names = ("exhaustive", "sample", "search", "chunk", "dtype")
        options = {name: getattr(self, name) for name in names}
        return options | {"seed": self.seed or 0, "max_counterexamples": self.keep}

    def differences(self, other: "Verdict") -> list[dict[str, Any]]:
        """Return the figures that differ from another verdict: [{"what", "saved", "found"}].

        Processors round differently. So margins are equal within MARGIN_TOLERANCE, and the worst
        row is not compared. Searches are compared only by their size and by whether they found
        failures.
        """
        if not isinstance(other, Verdict):
            raise GlassformerError(f"differences — expected a Verdict, got {short_repr(other)}")
        searched = "search" in self.parts and "search" in other.parts
        mine, its = self._comparable_figures(searched), other._comparable_figures(searched)
        pairs = [(name, mine[name], its[name]) for name in mine]
        if searched:
            a, b = (v.parts["search"]["looked_at"] for v in (self, other))
            if max(a, b) > MAX_SEARCH_SIZE_RATIO * (min(a, b) + 1):
                pairs.append(("search", a, b))
        return [{"what": n, "saved": a, "found": b} for n, a, b in pairs if not _nearly_equal(a, b)]

    def _comparable_figures(self, searched: bool) -> dict[str, Any]:
        """Return the figures that are equal on all processors up to rounding."""
        left_out = {"worst"} | (SEARCH_DEPENDENT_FIELDS if searched else set())
        names = [f.name for f in fields(self) if f.compare and f.name not in left_out]
        figures = {name: getattr(self, name) for name in names}
        if searched:
            parts = dict(self.parts)
            search = parts.pop("search")
            figures |= {name: figures[name] - search[name] for name in COUNT_FIELDS}
            figures |= {"parts": parts, "holds": self.holds}
        return figures


@dataclass(frozen=True)
class RecheckResult(Displayable):
    """A saved verdict and a new verdict of the same rows."""

    saved: Verdict
    rerun: Verdict

    @property
    def differences(self) -> list[dict[str, Any]]:
        """Figures that differ between the verdicts: [{"what", "saved", "found"}]."""
        return self.saved.differences(self.rerun)

    @property
    def confirmed(self) -> bool:
        return not self.differences

    @property
    def holds(self) -> bool:
        """Whether the verdict is confirmed and no row is wrong."""
        return self.rerun.holds and self.confirmed

    def to_json(self) -> dict[str, Any]:
        comparison = {"confirmed": self.confirmed, "differences": self.differences}
        return self.rerun.to_json() | comparison

    def __str__(self) -> str:
        lines = [f"{'' if self.confirmed else 'NOT '}confirmed: {self.rerun}"]
        for d in self.differences:
            saved, rerun = short_value(d["saved"]), short_value(d["found"])
            lines.append(f"{d['what']}: saved {saved}, found {rerun}")
        return "\n".join(lines)


def short_value(value: object) -> str:
    """Format a value of a verdict with at most 60 characters."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return shorten(f"{value:,}" if is_number else str(value), 60)


def versions(dtype: str) -> dict[str, str]:
    """Return the versions of all libraries that affect rounding."""
    from .. import __version__  # circular import

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    names = {
        "glassformer": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{blas.get('name', '?')} {blas.get('version', '')}".strip(),
        "machine": platform.machine(),
    }
    if dtype == "bfloat16":
        import torch

        names["torch"] = str(torch.__version__)
    return names


def _nearly_equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_nearly_equal(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_nearly_equal, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= MARGIN_TOLERANCE * max(abs(a), abs(b))
    return bool(a == b)
