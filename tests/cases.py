"""The one table of (ref, input, output) that unit, command-line, bridge and browser tests read."""

import os
from collections.abc import Iterable

import pytest

CASES: list[tuple[str, str, str]] = [
    ("hello-world", "", "Hello World!"),
    ("hello-world:variant=zero-pos", "Hello W", "orld!"),
    ("hello-world:message=Hello, World!", "", "Hello, World!"),
    ("repeat-last:vocab=12", "3 1 7", "7 7 7 7 7"),
    ("reverse", "12345", "54321"),
    ("reverse:length=7,alphabet=36", "glasses", "sessalg"),
    ("modular-addition", "90+90", "67"),
    ("modular-addition:operation=-", "5-8", "110"),
    ("lookup:table=xor", "1 0", "1"),
    ("search:prefix=3,vocab=10,block=20", "1 2 3 4 5 6 1 2 3", "4"),
    ("min:vocab=20", "6 2 0 12 18 7 12 12", "0"),
    ("max:vocab=20", "6 2 0 12 18 7 12 12", "18"),
    ("sort:vocab=20", "6 2 12 18 7", "2 6 7 12 18"),
    ("add-digit", "7 8", "5"),
    ("add-mod:digits=2", "12+33", "5"),
    ("addition:digits=2", "45+78", "123"),
    ("addition:digits=2,variant=book", "45+78", "123"),
    ("addition:digits=3,dtype=float32", "999+1", "1000"),
    ("addition:digits=10", "9999999999+1", "10000000000"),
    ("addition:digits=3,order=ones", "123+456", "9750"),
    ("addition:digits=2,padding=none", "84+88", "172"),
    ("addition:digits=2,padding=none", "4+8", "12"),
    ("multiplication:digits=2", "12*34", "0408"),
    ("hello.taotp", "", "Hello World!"),
    ("max.taotp", "0 2 1", "2"),
    ("min.taotp", "7 3 12", "3"),
    ("figure-8.2.taotp", "", "Hello World!"),
    ("lang/reverse", "3 1 2 |", "2 1 3"),
    ("lang/sort:vocab=5,length=4", "3 1 2 1 |", "1 1 2 3"),
    ("lang/dyck-1", "( ) ) (", "F"),
    ("lang/most-frequent:target=gpt2", "3 1 3 2", "3"),
]

# one of each kind: text, with and without norm, digit counts, a .taotp, a .glass
QUICK = {
    "hello-world", "reverse", "modular-addition", "lookup:table=xor", "add-digit", "max.taotp",
    "addition:digits=3,order=ones", "addition:digits=2", "lang/dyck-1", "adder-36",
}  # fmt: skip


def few(cases: list) -> list:
    """Mark cases of refs outside QUICK as slow."""
    return [
        case if ref in QUICK else pytest.param(*case, marks=pytest.mark.slow)
        for case in ((c,) if isinstance(c, str) else c for c in cases)
        for ref in case[:1]
    ]


def drawn(count: int, part: int = 5) -> int:
    """Return count // part, or count if GLASSFORMER_WHOLE is set (as for figures in the docs)."""
    return count if os.environ.get("GLASSFORMER_WHOLE") else count // part


def every(n: int, values: Iterable) -> list:
    """Mark all but every n-th value as slow."""
    return [pytest.param(v, marks=pytest.mark.slow if i % n else ()) for i, v in enumerate(values)]
