"""The looks, one method each: what a position sees at itself and those before it.

latest first only      the value at the last, the first, the only position that matches
best                   … at the one where something is most or least
any all count sum      whether, and how many, positions match; a sum over them
share mean             count and sum divided by how many positions there are
nth                    the n-th smallest of the numbers, from 1 (of none below it, the default;
                       for an n below 1 the least that there could be)
"""

import ast
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ...utils.errors import GlassformerError, did_you_mean
from ..ir import MOST, Look, Tally, Test, Value, mapped
from ..literals import Thing, is_number, spelled
from .conditions import Conditions
from .diagnostics import Wrong, words
from .functions import LOOKS, tidy
from .inlining import copied
from .sums import is_count, is_small
from .tables import Names, thing

# What people call the arguments of looks.
MEANT = {
    "otherwise": "default", "fallback": "default", "initial": "default", "none": "default",
    "when": "where", "condition": "where", "filter": "where", "key": "most", "by": "most",
    "max": "most", "largest": "most", "min": "least", "smallest": "least",
}  # fmt: skip


@dataclass
class Asked:
    """A look as it is written: what it is given, the names in it, and those of values here."""

    call: ast.Call
    given: dict[str, ast.expr]
    scope: Names
    here: dict[str, Value]

    @property
    def name(self) -> str:
        return words(self.call)


class Looks(Conditions):
    """Makes values of looks."""

    def look(self, call: ast.Call, outer: Names) -> Value:
        assert isinstance(call.func, ast.Name)
        kind, scope = call.func.id, dict(outer)
        here: dict[str, Value] = {}
        given = {
            key: self.looks_out(node, scope, here)
            for key, node in arguments(call, kind, scope).items()
        }
        self.known(ast.copy_location(ast.Name("position", ast.Load()), call), self.scope)
        try:
            value: Value = getattr(self, f"_{kind}")(Asked(call, given, scope, here))
        except GlassformerError as e:
            raise Wrong(call, str(e)) from None
        if isinstance(value, (Look, Tally)) and any(not t.table.any() for t in value.tests):
            value = self.always(value.default if isinstance(value, Look) else 0)
        self.charge(call, 0, len(value))
        value.name, value.at = words(call), (call.lineno, call.col_offset)
        return value

    # ── what looks are given ───────────────────────────────────────────────────────────────────
    def where(self, asked: Asked) -> list[Test]:
        where = asked.given.get("where")
        return [] if where is None else self.tests(where, asked.scope, asked.here)

    def flag(self, asked: Asked) -> Value | None:
        """The condition as a value, if it is one of there alone."""
        where = asked.given.get("where")
        names = [] if where is None else self.atoms(where, asked.scope)
        if where is None or not names or any(n in asked.here for n in names):
            return None
        return self.truth(where, asked.scope)

    def there(self, asked: Asked, node: ast.expr, what: str) -> Value:
        """A value at the position that is looked at."""
        for n in self.atoms(node, asked.scope):
            if n in asked.here:
                raise Wrong(node, f"{what} is taken there, so `{n}` cannot stand in it")
        found = self.value(node, asked.scope)
        return found if isinstance(found, Value) else self.always(thing(node, found))

    def brought(self, asked: Asked) -> Value:
        return self.there(asked, asked.given["value"], "what a look brings")

    def default(self, asked: Asked) -> Thing:
        node = asked.given.get("default")
        if node is None:
            return None
        found = self.value(node, asked.scope)
        if isinstance(found, Value):
            raise Wrong(
                node, "a default is a constant; leave it out, and use first_of(…, …) on what is "
                "found",
            )  # fmt: skip
        return thing(node, found)

    def whole(self, asked: Asked, value: Value, nothing: bool = False) -> Any:
        """The numbers of a domain; True is 1, and where `nothing` may be, it is 0."""
        numbers = [0 if nothing and d is None else int(d) if type(d) is bool else d
                   for d in value.domain]  # fmt: skip
        if odd := [d for d in numbers if not is_small(d)]:
            raise Wrong(
                asked.call, f"`{asked.name}` adds {spelled(odd[0])}: expected whole numbers"
            )
        return np.array([int(d) for d in numbers])

    # ── one position ───────────────────────────────────────────────────────────────────────────
    def _latest(self, asked: Asked, sign: int = 1) -> Value:
        order = [(sign, self.scope["position"])]
        tests, value = self.where(asked), self.brought(asked)
        return Look(asked.name, tests, value, self.default(asked), order)

    def _first(self, asked: Asked) -> Value:
        return self._latest(asked, -1)

    def _only(self, asked: Asked) -> Value:
        return Look(asked.name, self.where(asked), self.brought(asked), self.default(asked))

    def _best(self, asked: Asked) -> Value:
        given = asked.given
        if ("most" in given) == ("least" in given):
            raise Wrong(
                asked.call, "`best` needs `most` or `least`, one of them: what makes one position "
                "better than another",
            )  # fmt: skip
        whole, sign = (given["most"], 1) if "most" in given else (given["least"], -1)
        order: list[tuple[int, Value]] = []
        for node in whole.elts if isinstance(whole, ast.Tuple) else [whole]:
            minus = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
            inner = node.operand if isinstance(node, ast.UnaryOp) and minus else node
            value = self.there(asked, inner, "what is compared")
            if len(value) > 1 or not is_number(value.domain[0]):
                order.append((-sign if minus else sign, value))
        tests, value = self.where(asked), self.brought(asked)
        return Look(asked.name, tests, value, self.default(asked), order)

    def _any(self, asked: Asked) -> Value:
        tests = self.where(asked)
        return Look(asked.name, tests, self.always(True), False) if tests else self.always(True)

    def _all(self, asked: Asked) -> Value:
        tests = self.where(asked)
        if len(tests) == 1:
            (t,) = tests
            tests = [Test(t.here, t.there, ~t.table)]
        elif tests:
            where = asked.given["where"]
            node = ast.copy_location(ast.UnaryOp(ast.Not(), where), where)
            tests = self.tests(node, asked.scope, asked.here)
        else:
            tests = [Test(None, None, np.zeros((1, 1), bool))]
        return Look(asked.name, tests, self.always(False), True)

    # ── all of them ────────────────────────────────────────────────────────────────────────────
    def _count(self, asked: Asked) -> Value:
        flag = self.flag(asked)
        if flag:
            return self.total(asked.call, [], [(flag, self.whole(asked, flag))], 0)
        return self.total(asked.call, self.where(asked), [], 1)

    def _sum(self, asked: Asked) -> Value:
        value = self.brought(asked)
        numbers = self.whole(asked, value, nothing=True)
        return self.total(asked.call, self.where(asked), [(value, numbers)], 0)

    def _share(self, asked: Asked) -> Value:
        flag = self.flag(asked)
        if flag is None:
            raise Wrong(
                asked.call, "`share` is over all positions: its condition must be one of there, "
                "without `here`",
            )  # fmt: skip
        return self.average(asked, flag)

    def _mean(self, asked: Asked) -> Value:
        return self.average(asked, self.brought(asked))

    def average(self, asked: Asked, value: Value) -> Value:
        """A sum divided by how many there are: every fraction that it can be."""
        n, weights = self.scope[self.longest], self.whole(asked, value)
        low, high = int(weights.min()), int(weights.max())
        if n * n * (high - low) > 3 * MOST:
            raise Wrong(
                asked.call, f"`{asked.name}` can be too many different fractions: about "
                f"{n * n * (high - low) // 3:,}, the most is {MOST:,}",
            )  # fmt: skip
        self.charge(asked.call, 0, n * n * (high - low))
        sums = ((p, q) for q in range(1, n + 1) for p in range(low * q, high * q + 1))
        found = sorted({Fraction(p, q) for p, q in sums})
        over = np.array([f.denominator for f in found[1:]], int)
        each = -np.array([f.numerator for f in found[1:]], int)
        terms = [(value, over[:, None] * weights[None])]
        cut = np.full(len(each), -0.5)
        tally = Tally(asked.name, (), terms, each, cut, [tidy(f) for f in found])
        tally.mean = True
        return tally

    def _nth(self, asked: Asked) -> Value:
        value, call = self.brought(asked), asked.call
        numbers = sorted({d for d in value.domain if is_number(d)})[::-1]
        if not numbers:
            raise Wrong(call, f"`{asked.name}`: expected numbers, got {spelled(value.domain[0])}")
        n_terms, constant, over = self.counted(asked)
        if "where" in asked.given:
            flag = self.flag(asked)
            if flag is None:
                raise Wrong(
                    call, "`nth` is over all positions: its condition must be one of there, "
                    "without `here`",
                )  # fmt: skip
            both = self.joint([value, flag], call)
            kept = [d if f else None for d, f in both.domain]
            value = mapped(both, kept, f"{value.name} that counts")
            if not any(map(is_number, value.domain)):
                return self.always(self.default(asked))
        rank = {d: i for i, d in enumerate(numbers)}
        place = np.array([rank.get(d, -1) if is_number(d) else -1 for d in value.domain])
        J = len(numbers)
        if J * len(value) > 100 * MOST:
            raise Wrong(call, f"`{asked.name}` has {J:,} numbers, too many to put in order")
        self.charge(call, 5 * J * len(value))
        below = over * (place[None] >= np.arange(J)[:, None]).astype(int)
        terms: list[tuple[Value, Any]] = [(value, below)]
        each = np.zeros(J, int)
        for tally, factor in n_terms.items():
            terms += [(v, -factor * np.tile(w[0], (J, 1))) for v, w in tally.terms]
            each = each - factor * tally.each[0]
        cut = np.full(J, constant - 0.5)
        return Tally(asked.name, (), terms, each, cut, [self.default(asked), *numbers])

    def counted(self, asked: Asked) -> tuple[dict[Tally, int], int, int]:
        """The n of an nth: counts of what is there, plus or minus constants, and what all this is
        divided by: count() / 2 is the middle. It is a number here, so `here.` may be left out.
        """
        n = copied(asked.given["n"])
        for node in ast.walk(n):
            if isinstance(node, ast.Name):
                node.id = node.id.removeprefix("here.")
        over = 1
        if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div):
            below, n = n.right, n.left
            over = 0 if self.atoms(below, asked.scope) else self.plain(below, asked.scope)
            if type(over) is not int or not 1 <= over <= 1000:
                raise Wrong(below, "`nth` can be divided by a whole number from 1 to 1,000")
        found = self.linear(n, asked.scope)
        length = self.scope[self.longest]
        counts = {v: c for v, c in (found[0] if found else {}).items()
                  if isinstance(v, Tally) and is_count(v, length)}  # fmt: skip
        if found is None or len(counts) < len(found[0]):
            raise Wrong(
                asked.given["n"], "`nth` needs a number that is counted: count(…) of what is "
                "there, plus or minus constants",
            )  # fmt: skip
        if not counts and found[1] < 1:
            least = spelled(tidy(Fraction(found[1], over)))
            raise Wrong(asked.given["n"], f"`nth` counts from 1, the smallest; got {least}")
        return counts, found[1], over


def arguments(call: ast.Call, kind: str, scope: Names) -> dict[str, ast.expr]:
    """What is given to a look, by name."""
    allowed = [p.rstrip("=") for p in LOOKS[kind]]
    if len(call.args) > len(allowed) or any(isinstance(a, ast.Starred) for a in call.args):
        raise Wrong(call, f"`{kind}` takes {', '.join(allowed)}; got {len(call.args)} arguments")
    given = dict(zip(allowed, call.args, strict=False))
    for k in call.keywords:
        if k.arg not in allowed:
            near = did_you_mean(k.arg or "**", allowed)
            if k.arg in scope:
                near = f"did you mean `{k.arg} == {words(k.value)}`?"
            elif MEANT.get(k.arg or "") in allowed:
                near = f"did you mean {MEANT[k.arg or '']}?"
            raise Wrong(call, f"`{kind}` has no `{(k.arg or '**')[:60]}`; {near}")
        if k.arg in given:
            raise Wrong(call, f"`{kind}` got `{k.arg}` twice")
        given[k.arg] = k.value
    for p in LOOKS[kind]:
        if not p.endswith("=") and p not in given:
            raise Wrong(call, f"`{kind}` needs `{p}`")
    return given
