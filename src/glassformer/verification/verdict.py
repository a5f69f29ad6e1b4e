"""What a check found, to keep: it names the model by its hash, and says what was looked at and how.

A saved verdict can be checked again: the same rows, and figures that are the same but for rounding,
or it is not true here.
"""

import json
import platform
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..utils.argcheck import checked, text_of
from ..utils.errors import DAMAGED, GlassformerError
from ..utils.fileio import check_ending, write_atomically
from ..utils.json_schema import (
    listing,
    mapping,
    number,
    optional,
    read_json,
    record,
    text,
    that,
    whole,
)
from ..utils.limits import DOMAIN, SAMPLE, SEARCH, TEXT
from ..utils.results import Shown

FORMAT = "glassformer verdict 1"
COUNTS = ("looked_at", "checked", "wrong")
PARTS = mapping(record(dict.fromkeys(COUNTS, whole(0, DOMAIN)) | {"worst_margin": number}), 10)
CLASSES = mapping(
    record({"checked": whole(0, DOMAIN), "wrong": whole(0, DOMAIN), "worst_margin": number}), 10**6
)
A_ROW = listing(that(lambda x: type(x) is int, "a whole number"), 10**6)
WORST = optional(record({"row": A_ROW, "input": text(TEXT), "expected": text(TEXT)}))
FURTHER = 4  # times as many rows as another search: so far it may go elsewhere
NEAR = 1e-3  # of a margin: what other processors or versions may round it by
# what a search decides, which follows margins and so may go elsewhere on another processor
SEARCHED = {"worst_margin", "classes", "counterexamples"}


@checked()
@dataclass(frozen=True)
class Verdict(Shown):
    """What a check found."""

    model: str  # SHA-256 of the weights
    task: str
    dtype: str
    domain: int  # rows in the domain
    exhaustive: bool  # every row of the domain was looked at
    looked_at: int
    checked: int  # of these, rows on which the task is defined
    wrong: int
    worst_margin: float  # over all answer tokens of all rows
    counterexamples: list[dict[str, Any]] = field(default_factory=list)
    seed: int | None = None
    worst: dict[str, Any] | None = None  # the row of the worst margin, and its input
    # domain | sample, edges, search | given
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    # checked, wrong, worst_margin of each class
    classes: dict[str, dict[str, Any]] = field(default_factory=dict)
    # sampled: with this confidence no larger share of all inputs is wrong
    error_bound: float | None = None
    confidence: float | None = None
    sample: int | None = None  # how it was made: rows drawn, rounds of search, counterexamples kept
    search: int = 0
    keep: int = 10
    # rows at a time: sums may round differently with another
    chunk: int = field(default=0, compare=False)
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
        check_ending(file := text_of(path, "path", "a path"), ".json")
        text = json.dumps({"format": FORMAT, **self.to_json()}, indent=1) + "\n"
        return write_atomically(file, text.encode())

    @classmethod
    def read(cls, path: str | Path) -> "Verdict":
        """A saved verdict; anything that is not one is an error."""
        file = text_of(path, "path", "a path")
        o = read_json(file, "damaged verdict, or none", finite=False)  # a margin may be infinite
        try:
            if o.pop("format") != FORMAT:
                raise ValueError("another format")
            holds = o.pop("holds")
            if wrong := [f.name for f in fields(cls) if not _fits(o[f.name], f.type)]:
                raise ValueError(f"{wrong[0]} is {json.dumps(o[wrong[0]])[:40]}")
            v = cls(**o)
            PARTS(v.parts, "parts")
            counts = (v.domain, v.looked_at, v.checked, v.wrong)
            if min(*counts, v.keep, v.chunk) < 0:
                raise ValueError("a count is negative")
            if not 0 <= v.search <= SEARCH or not 0 <= (v.sample or 1) <= SAMPLE:
                raise ValueError(f"sample is {v.sample}, search is {v.search}")
            if "sample" in v.parts and v.parts["sample"]["looked_at"] != v.sample:
                raise ValueError(f"sample is {v.sample}, its parts say something else")
            if max(counts) > DOMAIN:
                raise ValueError("a count is beyond all domains")
            if odd := v._disagreeing():
                raise ValueError(f"{odd} is not what its parts or classes say")
            if v.holds is not holds:
                said = f"holds is {json.dumps(holds)}"
                raise ValueError(f"{said} with {v.wrong:,} wrong of {v.checked:,}")
        except KeyError as e:
            what = f"{path} — damaged verdict, or none: it has no {e}"
            raise GlassformerError(what, code=DAMAGED) from None
        except (ValueError, TypeError, AttributeError, RecursionError, GlassformerError) as e:
            what = f"{path} — damaged verdict, or none ({e})"
            raise GlassformerError(what, code=DAMAGED) from None
        return v

    def _disagreeing(self) -> str:
        """A figure that is not that of all parts together, or not enough for its classes; "": none
        is.
        """
        WORST(self.worst, "worst")
        CLASSES(self.classes, "classes")
        # what was run alone has been counted before, and is wrong only there
        apart = {"looked_at": {"alone"}, "checked": {"alone"}, "wrong": set[str]()}
        for name in COUNTS if self.parts else ():
            each = (p[name] for n, p in self.parts.items() if n not in apart[name])
            if getattr(self, name) != sum(each):
                return name
        for name in ("checked", "wrong"):
            if sum(c[name] for c in self.classes.values()) > getattr(self, name):
                return name
        least = [p["worst_margin"] for p in self.parts.values()]
        return "worst_margin" if least and not _same(self.worst_margin, min(least)) else ""

    @property
    def again(self) -> dict[str, Any]:
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
        searched = "search" in self.parts and "search" in other.parts
        mine, its = self._compared(searched), other._compared(searched)
        pairs = [(name, mine[name], its[name]) for name in mine]
        if searched:
            a, b = (v.parts["search"]["looked_at"] for v in (self, other))
            pairs += [("search", a, b)] * (max(a, b) > FURTHER * min(a, b) + FURTHER)
        return [{"what": n, "saved": a, "found": b} for n, a, b in pairs if not _same(a, b)]

    def _compared(self, searched: bool) -> dict[str, Any]:
        """The figures that are the same on every processor, but for rounding."""
        left_out = {"worst"} | (SEARCHED if searched else set())
        names = [f.name for f in fields(self) if f.compare and f.name not in left_out]
        found = {name: getattr(self, name) for name in names}
        if searched:
            parts = dict(self.parts)
            search = parts.pop("search")
            found |= {name: found[name] - search[name] for name in COUNTS}
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


def _fits(value: Any, of: Any) -> bool:
    """Whether a value read from JSON is of a field's type, as far as its name says."""
    kind = str(of).removeprefix("<class '").removesuffix("'>")
    if kind.endswith(" | None"):
        return value is None or _fits(value, kind.removesuffix(" | None"))
    types = {"str": (str,), "int": (int,), "bool": (bool,), "float": (float, int)}
    return type(value) in types.get(kind, (list,) if kind.startswith("list") else (dict,))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= NEAR * max(abs(a), abs(b))
    return bool(a == b)
