"""Sums that may add nothing, in a way that no number can stand for, become tables."""

from dataclasses import replace

from ..ir import MAX_DOMAIN_SIZE, Map, Program, Sum
from ..joint_domains import joint_cases
from .allocate import encode_values
from .encode import UnencodableSum
from .simplify import Replacements, rebuild, renumber_members


def tabulate(program: Program) -> tuple[Program, Replacements]:
    """The program with such sums as tables of all their cases."""
    became: Replacements = {v: v for v in program.values}
    while True:
        try:
            encode_values(program)
            return program, became
        except UnencodableSum as e:
            program, new = _tabulate_first(program, e)
            became = {v: new.get(w, w) for v, w in became.items()}


def _tabulate_first(program: Program, error: UnencodableSum) -> tuple[Program, Replacements]:
    """The first of them, the fewest cases first, as a table."""
    chosen = min(dict.fromkeys(error.sums), key=lambda s: len(s.args))
    new: Replacements = {}
    for old in program.values:
        made = rebuild(old, new)
        if old is chosen:
            assert isinstance(made, Sum)
            found = joint_cases(program, list(made.args))
            members = [found[a] for a in made.args]
            if len(members[0]) > MAX_DOMAIN_SIZE:
                raise error
            rows = zip(*(m.tolist() for m in members), strict=True)
            things = (made.domain[i] for i in made.result_indices(members))
            made = Map(made.name, made.args, dict(zip(rows, things, strict=True)))
        new[old] = renumber_members(made, old)
    return replace(program, emit=new[program.emit]), new
