"""Every published figure of the sources, as a check that runs.

A claim quotes what a source says, measures the same thing here, and records what was measured. The
ledger holds if the measurement is what the record says, whether or not the source was right;
`verdict` says which.

    CLAIMS = [Claim("booklet-2.4-parameters", "section 2.4", "72 parameters", "holds", 72,
                    lambda: counted("hello-world:variant=book").total)]

Each file here has such a list, and the ledger is all of them.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

from ..errors import GlassformerError
from ..finding import Finding

Value: TypeAlias = int | float | str | bool
# a value, or a range for what varies between machines
Records: TypeAlias = Value | tuple[float, float]
Measure: TypeAlias = Callable[[], Value]
VERDICTS = ("holds", "roughly", "misleading", "wrong")


@dataclass(frozen=True)
class Claim(Finding):
    """A figure someone published, the check that measures it, and what is on record."""

    name: str
    where: str  # the place in the source
    says: str  # what is printed there, in few words
    verdict: str  # one of VERDICTS
    records: Records  # what was measured
    measure: Measure = field(repr=False)
    note: str = ""  # what is behind a difference
    slow: bool = False

    def matches(self, measured: Value) -> bool:
        """Whether a measurement is what the ledger records."""
        exact = self.records
        if isinstance(exact, tuple):
            return not isinstance(measured, str) and exact[0] <= measured <= exact[1]
        if isinstance(exact, float):
            return not isinstance(measured, str) and abs(measured - exact) <= 1e-6 * abs(exact)
        return measured == exact


LEDGER: dict[str, Claim] = {}


@cache
def ledger() -> dict[str, Claim]:
    """All claims by name, which starts with the source, as booklet- does."""
    for module in pkgutil.iter_modules(__path__):
        found = importlib.import_module(f"{__name__}.{module.name}")
        for c in getattr(found, "CLAIMS", ()):
            assert c.verdict in VERDICTS, f"{c.name}: verdict must be one of {VERDICTS}"
            assert c.name not in LEDGER, f"two claims named {c.name}"
            LEDGER[c.name] = c
    return LEDGER


def select(names: list[str], slow: bool = False) -> list[Claim]:
    """Claims whose names start so, or all. Slow ones only if asked for, or named in full."""
    claims = [c for c in ledger().values() if slow or not c.slow or c.name in names]
    if not names:
        return claims
    chosen = {n: [c for c in claims if c.name.startswith(n)] for n in names}
    if missing := [n for n, found in chosen.items() if not found]:
        hint = "`glassformer list claims` shows them"
        raise GlassformerError(f"{missing[0]} — no claim of that name; {hint}")
    return list(dict.fromkeys(c for found in chosen.values() for c in found))


def as_text(value: Records) -> str:
    """A recorded or measured value for people."""
    if isinstance(value, tuple):
        return f"{as_text(value[0])} … {as_text(value[1])}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)
