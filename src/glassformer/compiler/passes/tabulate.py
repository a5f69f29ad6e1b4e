"""Turn sums into tables where `nothing` among the terms cannot be encoded as a number."""

from dataclasses import replace

from ..ir import MAX_DOMAIN_SIZE, Map, Program, Sum
from ..joint_domains import joint_cases
from .allocate import encode_values
from .encode import UnencodableSum
from .simplify import Replacements, rebuild, renumber_members


def tabulate(program: Program) -> tuple[Program, Replacements]:
    """Return the program with unencodable sums as maps, and the replacements of its values."""
    replacements: Replacements = {v: v for v in program.values}
    while True:
        try:
            encode_values(program)
            return program, replacements
        except UnencodableSum as e:
            program, new = _tabulate_first(program, e)
            replacements = {v: new.get(w, w) for v, w in replacements.items()}


def _tabulate_first(program: Program, error: UnencodableSum) -> tuple[Program, Replacements]:
    """Turn the unencodable sum with the fewest arguments into a map."""
    chosen = min(dict.fromkeys(error.sums), key=lambda s: len(s.args))
    new: Replacements = {}
    for old in program.values:
        value = rebuild(old, new)
        if old is chosen:
            assert isinstance(value, Sum)
            cases = joint_cases(program, list(value.args))
            members = [cases[a] for a in value.args]
            if len(members[0]) > MAX_DOMAIN_SIZE:
                raise error
            rows = zip(*(m.tolist() for m in members), strict=True)
            results = (value.domain[i] for i in value.result_indices(members))
            value = Map(value.name, value.args, dict(zip(rows, results, strict=True)))
        new[old] = renumber_members(value, old)
    return replace(program, emit=new[program.emit]), new
