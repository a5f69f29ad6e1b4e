"""What a check found, to keep: it names the model by its hash, and says what was looked at and how.

A saved verdict can be checked again: the same rows, and figures that are the same but for rounding,
or it is not true here.
"""

import json
import platform
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from ..utils.argcheck import as_text, validate_init
from ..utils.errors import DAMAGED_FILE, GlassformerError, short_repr
from ..utils.fileio import check_ending, write_atomically
from ..utils.limits import (
    MAX_DOMAIN_SIZE,
    MAX_LISTED_VALUES,
    MAX_SAMPLE_ROWS,
    MAX_SEARCH_ROUNDS,
    MAX_TEXT_BYTES,
)
from ..utils.results import Displayable
from ..utils.typed_json import Count, JsonObject, Name, convert, read_json

FORMAT = "glassformer verdict 1"
COUNT_FIELDS = ("looked_at", "checked", "wrong")
MAX_SEARCH_SIZE_RATIO = 4  # times as many rows as another search: so far it may go elsewhere
MARGIN_TOLERANCE = 1e-3  # of a margin: what other processors or versions may round it by
# what a search decides, which follows margins and so may go elsewhere on another processor
SEARCH_DEPENDENT_FIELDS = {"worst_margin", "classes", "counterexamples"}


class ClassFigures(JsonObject):
    """Counts and worst margin of one class of inputs."""

    checked: Count
    wrong: Count
    worst_margin: float


class PartFigures(ClassFigures):
    """Counts and worst margin of one part of the rows: sample, edges, …"""

    looked_at: Count


class WorstRow(JsonObject):
    """Row with the worst margin."""

    row: Annotated[list[int], Meta(max_length=10**6)]
    input: Annotated[str, Meta(max_length=MAX_TEXT_BYTES)]
    expected: Annotated[str, Meta(max_length=MAX_TEXT_BYTES)]


NESTED_SCHEMAS: dict[str, Any] = {  # schemas of the nested fields of a Verdict
    "worst": WorstRow | None, "parts": Annotated[dict[Name, PartFigures], Meta(max_length=10)],
    "classes": Annotated[dict[Name, ClassFigures], Meta(max_length=10**6)],
}  # fmt: skip


@validate_init()
@dataclass(frozen=True)
class Verdict(Displayable):
    """What a check found."""

    model: str  # SHA-256 of the weights
    task: str
    dtype: str
    domain: Count  # rows in the domain
    exhaustive: bool  # every row of the domain was looked at
    looked_at: Count
    checked: Count  # rows of these on which the task is defined
    wrong: Count
    worst_margin: float  # over all answer tokens of all rows
    counterexamples: Annotated[list[dict[str, Any]], Meta(max_length=MAX_LISTED_VALUES)] = field(
        default_factory=list
    )
    seed: int | None = None
    worst: dict[str, Any] | None = None  # a WorstRow
    # domain | sample, edges, search | given
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)  # a PartFigures each
    classes: dict[str, dict[str, Any]] = field(default_factory=dict)  # a ClassFigures each
    # sampled: with this confidence no larger share of all inputs is wrong
    error_bound: float | None = None
    confidence: float | None = None
    # options: rows drawn, rounds of search, counterexamples kept
    sample: Annotated[int, Meta(ge=0, le=MAX_SAMPLE_ROWS)] | None = None
    search: Annotated[int, Meta(ge=0, le=MAX_SEARCH_ROUNDS)] = 0
    keep: Count = 10
    # rows at a time: sums may round differently with another
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

    # ── kept, and checked again ────────────────────────────────────────────────────────────────
    def save(self, path: str | Path) -> Path:
        """Writes a JSON file, atomically. `read` reads it."""
        check_ending(file := as_text(path, "path", "a path"), ".json")
        text = json.dumps({"format": FORMAT, **self.to_json()}, indent=1) + "\n"
        return write_atomically(file, text.encode())

    @classmethod
    def read(cls, path: str | Path) -> "Verdict":
        """A saved verdict; anything that is not one is an error."""
        damaged = "damaged verdict, or none"
        # a margin may be infinite
        value = read_json(as_text(path, "path", "a path"), damaged, finite=False)
        try:
            saved = convert(value, dict[str, Any])
            if saved.get("format") != FORMAT:
                raise GlassformerError("another format")
            v = convert({n: x for n, x in saved.items() if n not in ("format", "holds")}, cls)
            if missing := [n for n in v.to_json() if n not in saved]:
                raise GlassformerError(f"it has no {missing[0]}")
            for name, kind in NESTED_SCHEMAS.items():
                convert(getattr(v, name), kind, name)
            if "sample" in v.parts and v.parts["sample"]["looked_at"] != v.sample:
                raise GlassformerError(f"sample is {v.sample}, but parts.sample differs")
            if max(v.domain, v.looked_at, v.checked, v.wrong) > MAX_DOMAIN_SIZE:
                raise GlassformerError("a count is larger than any domain")
            if odd := v._inconsistent_figure():
                raise GlassformerError(f"{odd} is not what its parts or classes say")
            if v.holds is not saved["holds"]:
                said = f"holds is {short_repr(saved['holds'])}"
                raise GlassformerError(f"{said} with {v.wrong:,} wrong of {v.checked:,}")
        except GlassformerError as e:
            raise GlassformerError(f"{path} — {damaged} ({e})", code=DAMAGED_FILE) from None
        return v

    def _inconsistent_figure(self) -> str:
        """A figure that is not that of all parts together, or not enough for its classes; "": none
        is.
        """
        # what was run alone has been counted before, and is wrong only there
        apart = {"looked_at": {"alone"}, "checked": {"alone"}, "wrong": set[str]()}
        for name in COUNT_FIELDS if self.parts else ():
            each = (p[name] for n, p in self.parts.items() if n not in apart[name])
            if getattr(self, name) != sum(each):
                return name
        for name in ("checked", "wrong"):
            if sum(c[name] for c in self.classes.values()) > getattr(self, name):
                return name
        least = [p["worst_margin"] for p in self.parts.values()]
        return "worst_margin" if least and not _nearly_equal(self.worst_margin, min(least)) else ""

    @property
    def recheck_options(self) -> dict[str, Any]:
        """The options of `check` that look at the same rows again."""
        if "given" in self.parts or not self.parts:
            what = "was given its rows, which it does not hold: it cannot be checked again"
            raise GlassformerError(f"verdict — {what}")
        return {
            "exhaustive": self.exhaustive, "sample": self.sample, "seed": self.seed or 0,
            "search": self.search, "keep": self.keep, "chunk": self.chunk, "dtype": self.dtype,
        }  # fmt: skip

    def differences(self, other: "Verdict") -> list[dict[str, Any]]:
        """What another check of the same rows found differently: [{"what", "saved", "found"}].

        Other processors round differently, even with the same versions. So margins are the same if
        they are near, any of equally bad rows may be the worst, and of a search, which may go
        elsewhere for that, only counts whether it found anything wrong.
        """
        if not isinstance(other, Verdict):
            raise GlassformerError(f"differences — expected a Verdict, got {short_repr(other)}")
        searched = "search" in self.parts and "search" in other.parts
        mine, its = self._comparable_figures(searched), other._comparable_figures(searched)
        pairs = [(name, mine[name], its[name]) for name in mine]
        if searched:
            a, b = (v.parts["search"]["looked_at"] for v in (self, other))
            pairs += [("search", a, b)] * (
                max(a, b) > MAX_SEARCH_SIZE_RATIO * min(a, b) + MAX_SEARCH_SIZE_RATIO
            )
        return [{"what": n, "saved": a, "found": b} for n, a, b in pairs if not _nearly_equal(a, b)]

    def _comparable_figures(self, searched: bool) -> dict[str, Any]:
        """The figures that are the same on every processor, but for rounding."""
        left_out = {"worst"} | (SEARCH_DEPENDENT_FIELDS if searched else set())
        names = [f.name for f in fields(self) if f.compare and f.name not in left_out]
        found = {name: getattr(self, name) for name in names}
        if searched:
            parts = dict(self.parts)
            search = parts.pop("search")
            found |= {name: found[name] - search[name] for name in COUNT_FIELDS}
            found |= {"parts": parts, "holds": self.holds}
        return found


def versions(dtype: str) -> dict[str, str]:
    """What the arithmetic was done by."""
    from .. import __version__  # not there yet while the package is being imported

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    found = {
        "glassformer": __version__, "python": platform.python_version(), "numpy": np.__version__,
        "blas": f"{blas.get('name', '?')} {blas.get('version', '')}".strip(),
        "machine": platform.machine(),
    }  # fmt: skip
    if dtype == "bfloat16":
        import torch

        found["torch"] = str(torch.__version__)
    return found


def _nearly_equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_nearly_equal(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_nearly_equal, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= MARGIN_TOLERANCE * max(abs(a), abs(b))
    return bool(a == b)
