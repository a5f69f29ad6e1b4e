"""Sums that may add nothing, in a way that no number can stand for, become tables."""

from dataclasses import replace

from ..cases import cases
from ..values import MOST, Map, Program, Sum, Value
from .allocate import encoded
from .encode import Unsayable
from .simplify import like, rebuilt


def tabulate(program: Program) -> Program:
    """The program with such sums as tables of all their cases."""
    while True:
        try:
            encoded(program)
            return program
        except Unsayable as e:
            program = _tabled(program, e)


def _tabled(program: Program, why: Unsayable) -> Program:
    """The first of them, the fewest cases first, as a table."""
    chosen = min(dict.fromkeys(why.sums), key=lambda s: len(s.args))
    new: dict[Value, Value] = {}
    for old in program.values:
        made = rebuilt(old, new)
        if old is chosen:
            assert isinstance(made, Sum)
            found = cases(program, list(made.args))
            members = [found[a] for a in made.args]
            if len(members[0]) > MOST:
                raise why
            rows = zip(*(m.tolist() for m in members), strict=True)
            things = (made.domain[i] for i in made.of(members))
            made = Map(made.name, made.args, dict(zip(rows, things, strict=True)))
        new[old] = like(made, old)
    return replace(program, emit=new[program.emit])
