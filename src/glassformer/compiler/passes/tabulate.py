"""Sums that may add nothing, in a way that no number can stand for, become tables."""

from dataclasses import replace

from ..ir import MOST, Map, Program, Sum
from ..joint_domains import cases
from .allocate import encoded
from .encode import Unsayable
from .simplify import Became, like, rebuilt


def tabulate(program: Program) -> tuple[Program, Became]:
    """The program with such sums as tables of all their cases."""
    became: Became = {v: v for v in program.values}
    while True:
        try:
            encoded(program)
            return program, became
        except Unsayable as e:
            program, new = _tabled(program, e)
            became = {v: new.get(w, w) for v, w in became.items()}


def _tabled(program: Program, why: Unsayable) -> tuple[Program, Became]:
    """The first of them, the fewest cases first, as a table."""
    chosen = min(dict.fromkeys(why.sums), key=lambda s: len(s.args))
    new: Became = {}
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
    return replace(program, emit=new[program.emit]), new
