"""Published figures as checks: each claim is measured again and compared with a recorded value.

A claim quotes a source, measures the same quantity with this package, and records the measured
value. It holds if the measurement equals the record, even if the source is wrong; `verdict` is the
verdict on the source.

    CLAIMS = [Claim("booklet-2.4-parameters", "section 2.4", "72 parameters", "holds", 72,
                    lambda: counted("hello-world:variant=book").total)]

The ledger contains the lists of all files.
"""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from itertools import chain
from typing import Any, TypeAlias

from ..utils.errors import GlassformerError
from ..utils.progress import Progress, ProgressCallback, terminal_line
from ..utils.results import Result

ClaimValue: TypeAlias = int | float | str | bool
# A value, or a range if the value varies between machines.
RecordedValue: TypeAlias = ClaimValue | tuple[float, float]
Measure: TypeAlias = Callable[[], ClaimValue]
# A statement about trained models varies if it holds in some runs and not in others.
VERDICTS = ("holds", "roughly", "varies", "misleading", "wrong")

MIN_RUNS = 20  # A statement about trained models is judged over at least this many.


@dataclass(frozen=True)
class Claim(Result):
    """A published figure, the function that measures it, and the recorded value."""

    name: str
    where: str  # place in the source
    says: str  # abridged statement of the source
    verdict: str  # one of VERDICTS
    records: RecordedValue  # recorded measurement
    measure: Measure = field(repr=False)
    note: str = ""  # explanation of a difference
    slow: bool = False
    runs: int = 0  # number of trained runs that it rests on; 0 if it is not about training

    @property
    def title(self) -> str:
        """Name and verdict, with the number of runs that the verdict rests on."""
        runs = f", in {self.runs} run{'s' * (self.runs != 1)}" if self.runs else ""
        runs += " so far" * (1 < self.runs < MIN_RUNS)
        return f"{self.name}  {self.verdict}{runs}"

    def matches(self, measured: ClaimValue) -> bool:
        """Return whether a measurement equals the recorded value or is in the recorded range."""
        exact = self.records
        if isinstance(exact, tuple):
            return not isinstance(measured, str) and exact[0] <= measured <= exact[1]
        if isinstance(exact, float):
            return not isinstance(measured, str) and abs(measured - exact) <= 1e-6 * abs(exact)
        return measured == exact


LEDGER: dict[str, Claim] = {}


@cache
def ledger() -> dict[str, Claim]:
    """Return all claims by name. Names start with the source, for example booklet-…"""
    for module in pkgutil.iter_modules(__path__):
        for c in getattr(importlib.import_module(f"{__name__}.{module.name}"), "CLAIMS", ()):
            assert c.verdict in VERDICTS, f"{c.name}: verdict must be one of {VERDICTS}"
            assert c.name not in LEDGER, f"two claims named {c.name}"
            LEDGER[c.name] = c
    return LEDGER


def select_claims(names: list[str], slow: bool = False) -> list[Claim]:
    """Return the claims with these names or prefixes; slow ones only if `slow`, or by full name."""
    claims = [c for c in ledger().values() if slow or not c.slow or c.name in names]
    if not names:
        return claims
    chosen = {n: [c for c in claims if c.name.startswith(n)] for n in names}
    if missing := [n for n, matches in chosen.items() if not matches]:
        raise GlassformerError(f"{missing[0]} — {_unmatched_reason(missing[0])}")
    return list(dict.fromkeys(chain(*chosen.values())))


def _unmatched_reason(name: str) -> str:
    if any(known.startswith(name) for known in ledger()):
        return "all claims of that name take minutes: ask for slow ones, or name one in full"
    starts = dict.fromkeys(known.partition("-")[0] for known in ledger())
    near = get_close_matches(name[:100], [*starts, *ledger()], 2)
    hint = f"did you mean {' or '.join(near)}?" if near else f"names start with {', '.join(starts)}"
    return f"no claim of that name; {hint}"


@dataclass(frozen=True)
class MeasuredClaim(Result):
    """A claim with its measured value."""

    claim: Claim
    measured: ClaimValue

    @property
    def matches(self) -> bool:
        return self.claim.matches(self.measured)

    def to_json(self) -> dict[str, Any]:
        return self.claim.to_json() | {"measured": self.measured, "matches": self.matches}

    def __str__(self) -> str:
        c = self.claim
        mark = "" if self.matches else f"  ≠ record {format_value(c.records)}"
        note = f" ({c.note})" if c.note else ""
        measured = f"measured: {format_value(self.measured)}{mark}{note}"
        return f"{c.title}\n    {c.where} says: {c.says}\n    {measured}"


@dataclass(frozen=True)
class ClaimsResult(Result):
    """The measured claims of a call."""

    measurements: list[MeasuredClaim]

    @property
    def differ(self) -> int:
        """Number of claims whose measurement differs from the record."""
        return sum(not m.matches for m in self.measurements)

    @property
    def holds(self) -> bool:
        return not self.differ

    def to_json(self) -> dict[str, Any]:
        return {"differ": self.differ, "claims": [m.to_json() for m in self.measurements]}

    @property
    def summary(self) -> str:
        n = len(self.measurements)
        return f"{n} claim{'s' * (n != 1)} measured, {self.differ} differ from the record"

    def __str__(self) -> str:
        return "\n".join([self.summary, *map(str, self.measurements)])


def claims(
    names: str | Sequence[str], slow: bool, progress: ProgressCallback | None
) -> ClaimsResult:
    """Implement `api.claims`."""
    chosen = select_claims([names] if isinstance(names, str) and names else list(names), slow)
    measured = list[MeasuredClaim]()
    with terminal_line() as write:
        for n, claim in enumerate(chosen):
            if progress:
                progress(Progress(n, len(chosen), stage=claim.name))
            else:
                write(f"claims: {n} of {len(chosen)} measured; now {claim.name}")
            measured.append(MeasuredClaim(claim, claim.measure()))
    return ClaimsResult(measured)


def format_value(value: RecordedValue) -> str:
    """Format a recorded or measured value."""
    if isinstance(value, tuple):
        return f"{format_value(value[0])} … {format_value(value[1])}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)
