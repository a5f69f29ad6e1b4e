"""The language once more, in the most naive way: the tree of a source is walked anew at every
position of one text. No domains, no tables, nothing shared with what it is compared with.
"""

import ast
import math
import operator
from dataclasses import dataclass, field, replace
from fractions import Fraction

NOTHING = None
LOOKS = {
    "latest": ["value", "where", "default"], "first": ["value", "where", "default"],
    "only": ["value", "where", "default"], "best": ["value", "where", "most", "least", "default"],
    "nth": ["value", "n", "where", "default"], "count": ["where"], "sum": ["value", "where"],
    "share": ["where"], "mean": ["value"], "any": ["where"], "all": ["where"],
}  # fmt: skip
BINARY = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: lambda a, b: Fraction(a) / b, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Pow: lambda a, b: Fraction(a) ** b if b < 0 else a**b,
}  # fmt: skip
COMPARE = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.eq, ast.IsNot: operator.ne,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip


class Tie(Exception):
    """Two positions are equally good and hold different values."""


class Returned(Exception):
    """A function of the source returned this."""


@dataclass
class Where:
    """Where an expression stands: the position of bare names, that of `here`, and other names."""

    at: int | None
    here: int | None = None
    names: dict = field(default_factory=dict)


class Naive:
    """One source on one text (a list of tokens)."""

    def __init__(self, source, text, **options):
        self.text, self.options = text, options
        self.assigned, self.functions, self.memo = {}, {}, {}
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef):
                self.functions[node.name] = node
            elif isinstance(node, ast.Assign):
                self.assigned[node.targets[0].id] = node.value

    def value(self, name, at):
        """What a name stands for at a position of the text."""
        if (name, at) not in self.memo:
            self.memo[name, at] = self.work_out(self.assigned[name], Where(at))
        return self.memo[name, at]

    def values(self, name):
        return [self.value(name, t) for t in range(len(self.text))]

    def work_out(self, node, w):
        found = getattr(self, type(node).__name__)(node, w)
        if isinstance(found, Fraction) and found.denominator == 1:
            found = int(found)
        return found

    # ── expressions ────────────────────────────────────────────────────────────────────────────
    def Constant(self, node, w):
        return Fraction(str(node.value)) if isinstance(node.value, float) else node.value

    def Name(self, node, w):
        if node.id in w.names:
            found = w.names[node.id]
            return found(w.at) if callable(found) else found
        if (
            node.id in self.assigned
            and w.here is not None
            and self.has_here(self.assigned[node.id])
        ):
            return self.work_out(self.assigned[node.id], replace(w, names={}))  # a condition
        if node.id == "token":
            return self.text[w.at]
        if node.id == "position":
            return w.at
        if node.id in ("nothing", "pi"):
            return {"nothing": NOTHING, "pi": math.pi}[node.id]
        return self.value(node.id, w.at)

    def Attribute(self, node, w):
        return self.Name(ast.Name(node.attr), replace(w, at=w.here, here=None))

    def Tuple(self, node, w):
        return tuple(self.List(node, w))

    def List(self, node, w):
        out = []
        for e in node.elts:
            if isinstance(e, ast.Starred):
                out.extend(self.work_out(e.value, w))
            else:
                out.append(self.work_out(e, w))
        return out

    def Set(self, node, w):
        return set(self.List(node, w))

    def Dict(self, node, w):
        pairs = zip(node.keys, node.values, strict=True)
        return {self.work_out(k, w): self.work_out(v, w) for k, v in pairs}

    def BinOp(self, node, w):
        a, b = self.work_out(node.left, w), self.work_out(node.right, w)
        return NOTHING if a is None or b is None else BINARY[type(node.op)](a, b)

    def UnaryOp(self, node, w):
        x = self.work_out(node.operand, w)
        if isinstance(node.op, ast.Not):
            return not x
        return NOTHING if x is None else -x if isinstance(node.op, ast.USub) else x

    def BoolOp(self, node, w):
        for part in node.values:
            x = self.work_out(part, w)
            if bool(x) == isinstance(node.op, ast.Or):
                return x
        return x

    def Compare(self, node, w):
        a = self.work_out(node.left, w)
        for op, right in zip(node.ops, node.comparators, strict=True):
            b = self.work_out(right, w)
            ordered = isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
            if (ordered and (a is None or b is None)) or not COMPARE[type(op)](a, b):
                return False
            a = b
        return True

    def IfExp(self, node, w):
        return self.work_out(node.body if self.work_out(node.test, w) else node.orelse, w)

    def Subscript(self, node, w):
        whole = self.work_out(node.value, w)
        if isinstance(node.slice, ast.Slice):
            ends = (node.slice.lower, node.slice.upper, node.slice.step)
            return whole[slice(*(e and self.work_out(e, w) for e in ends))]
        return whole[self.work_out(node.slice, w)]

    def ListComp(self, node, w):
        places = [w]
        for part in node.generators:
            bound = []
            for p in places:
                items = self.work_out(part.iter, p)
                if self.stands_somewhere(part.iter, p):  # there it may be another
                    items = [self.later(part.iter, p, i) for i in range(len(items))]
                for item in items:
                    inner = replace(p, names={**p.names, **bind(part.target, item)})
                    if all(self.work_out(test, inner) for test in part.ifs):
                        bound.append(inner)
            places = bound
        if isinstance(node, ast.DictComp):
            return {self.work_out(node.key, p): self.work_out(node.value, p) for p in places}
        return [self.work_out(node.elt, p) for p in places]

    GeneratorExp = DictComp = ListComp

    def SetComp(self, node, w):
        return set(self.ListComp(node, w))

    # ── calls ──────────────────────────────────────────────────────────────────────────────────
    def Call(self, node, w):
        name = node.func.id
        if name == "option":
            target = next(n for n, x in self.assigned.items() if x is node)
            return self.options.get(target, self.work_out(node.args[0], w))
        if name in LOOKS and not self.is_fold(node, w):
            given = dict(zip(LOOKS[name], node.args, strict=False))
            given |= {k.arg: k.value for k in node.keywords}
            return getattr(self, f"look_{name}")(given, w)
        if name in self.functions and self.stands_somewhere(node.func, w):
            f = self.functions[name]
            args = [self.later(a, w) for a in node.args]
            names = dict(zip([a.arg for a in f.args.args], args, strict=True))
            try:
                here = w.here if any(map(self.has_here, f.body)) else None
                self.body(f.body, Where(w.at, here, names))
            except Returned as r:
                return r.args[0]
            return NOTHING
        args = self.List(ast.List(node.args), w)
        if name in ("any", "all") and isinstance(args[0], bool):
            return args[0]
        if name in self.functions:
            f = self.functions[name]
            names = dict(zip([a.arg for a in f.args.args], args, strict=True))
            try:
                self.body(f.body, Where(None, None, names))
            except Returned as r:
                return r.args[0]
            return NOTHING
        if args and args[0] is None and name in ("abs", "round", "int", "floor", "ceil", "sqrt"):
            return NOTHING
        return {
            "abs": abs, "min": min, "max": max, "len": len, "range": range, "sum": sum,
            "any": any, "all": all, "sorted": sorted, "list": list, "tuple": tuple, "set": set,
            "int": int, "floor": math.floor, "ceil": math.ceil, "sqrt": math.sqrt, "str": text_of,
            "bool": bool, "zip": lambda *x: list(zip(*x, strict=False)), "round": half_up,
            "enumerate": lambda x: list(enumerate(x)), "reversed": lambda x: list(x)[::-1],
            "first_of": lambda *x: next((y for y in x if y is not None), None),
            "factorial": math.factorial,
        }[name](*args)  # fmt: skip

    def later(self, node, w, i=None):
        """What an expression is, wherever it is asked for."""
        names = dict(w.names)

        def at(t):
            found = self.work_out(node, Where(t, None, names))
            return found if i is None else found[i]

        return at

    def is_fold(self, node, w):
        """Of lists, `sum`, `any` and `all` are Python's."""
        if node.func.id not in ("sum", "any", "all") or len(node.args) != 1 or node.keywords:
            return False
        listed = (ast.List, ast.Tuple, ast.Set, ast.ListComp, ast.SetComp, ast.GeneratorExp)
        (whole,) = node.args
        if isinstance(whole, listed) or not self.stands_somewhere(whole, w):
            return True
        row = whole.value if isinstance(whole, ast.Subscript) else whole  # of which it is a slice
        own = self.functions.get(row.func.id) if isinstance(row, ast.Call) else None
        if not isinstance(row, ast.Name) and (own is None or any(map(self.has_here, own.body))):
            return False
        return isinstance(self.work_out(whole, w), (tuple, list))

    def stands_somewhere(self, node, w, seen=()):
        own = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and type(n.ctx) is ast.Store}
        for n in ast.walk(node):
            name = n.id if isinstance(n, ast.Name) else ""
            if name in own or name in seen:
                continue
            if name in w.names:
                if callable(w.names[name]):
                    return True
            elif name in ("token", "position", "here") or name in {*LOOKS} - {"sum", "any", "all"}:
                return True
            elif name in self.assigned:
                if self.stands_somewhere(self.assigned[name], Where(None), (*seen, name)):
                    return True
            elif name in self.functions:
                f = self.functions[name]
                if any(of_a_condition(n) for n in ast.walk(ast.Module(f.body, []))):
                    return True
                inner = Where(None, None, {a.arg: NOTHING for a in f.args.args})
                if self.stands_somewhere(ast.Module(f.body, []), inner, (*seen, name)):
                    return True
        return False

    def has_here(self, node):
        """Whether there is a `here` outside of all looks."""
        if isinstance(node, ast.Call) and node.func.id in LOOKS:
            return False
        if isinstance(node, ast.Name) and node.id in self.assigned:
            return self.has_here(self.assigned[node.id])
        inside = ast.iter_child_nodes(node)
        return isinstance(node, ast.Attribute) or any(self.has_here(n) for n in inside)

    def body(self, statements, w):
        for s in statements:
            if isinstance(s, ast.Return):
                raise Returned(None if s.value is None else self.work_out(s.value, w))
            if isinstance(s, ast.If):
                self.body(s.body if self.work_out(s.test, w) else s.orelse, w)
            elif isinstance(s, ast.For):
                for item in self.work_out(s.iter, w):
                    w.names.update(bind(s.target, item))
                    self.body(s.body, w)
            elif isinstance(s, ast.Assign) and w.at is not None:
                w.names[s.targets[0].id] = self.later(s.value, w)
            elif isinstance(s, ast.Assign):
                w.names.update(bind(s.targets[0], self.work_out(s.value, w)))

    # ── looks ──────────────────────────────────────────────────────────────────────────────────
    def seen(self, given, w):
        """Where the condition holds, of the positions up to where the look stands."""
        places = [Where(s, w.at, w.names) for s in range(w.at + 1)]
        if "where" in given:
            places = [p for p in places if self.work_out(given["where"], p)]
        return places

    def chosen(self, given, w, good):
        places = self.seen(given, w)
        if not places:
            default = Where(None, None, w.names)
            return self.work_out(given["default"], default) if "default" in given else NOTHING
        best = max(good(p) for p in places)
        found = [self.work_out(given["value"], p) for p in places if good(p) == best]
        if any(x != found[0] for x in found):
            raise Tie
        return found[0]

    def look_latest(self, given, w):
        return self.chosen(given, w, lambda p: p.at)

    def look_first(self, given, w):
        return self.chosen(given, w, lambda p: -p.at)

    def look_only(self, given, w):
        return self.chosen(given, w, lambda p: 0)

    def look_best(self, given, w):
        sign = 1 if "most" in given else -1
        by = given.get("most", given.get("least"))
        parts = by.elts if isinstance(by, ast.Tuple) else [by]
        return self.chosen(given, w, lambda p: [sign * self.work_out(x, p) for x in parts])

    def look_count(self, given, w):
        return len(self.seen(given, w))

    def look_sum(self, given, w):
        found = [self.work_out(given["value"], p) for p in self.seen(given, w)]
        return sum(int(x) for x in found if x is not None)

    def look_share(self, given, w):
        return Fraction(len(self.seen(given, w)), w.at + 1)

    def look_mean(self, given, w):
        return Fraction(self.look_sum(given, w), w.at + 1)

    def look_any(self, given, w):
        return bool(self.seen(given, w))

    def look_all(self, given, w):
        return len(self.seen(given, w)) == w.at + 1

    def look_nth(self, given, w):
        """The smallest number that n or more of those there do not exceed. (So for an n below 1 it
        would be the least that there could be, which only a domain knows: not asked here.)
        """
        n = math.ceil(self.work_out(given["n"], Where(w.at, w.at, w.names)))
        assert n >= 1
        found = [self.work_out(given["value"], p) for p in self.seen(given, w)]
        found = sorted(x for x in found if x is not None and not isinstance(x, (str, bool)))
        if len(found) >= n:
            return found[n - 1]
        return self.work_out(given["default"], Where(None)) if "default" in given else NOTHING


def of_a_condition(node):
    """`any(x == 1)`: what is asked of all positions, in a function too."""
    kinds = (ast.Compare, ast.BoolOp, ast.UnaryOp)
    fold = isinstance(node, ast.Call) and node.func.id in ("sum", "any", "all")
    return fold and len(node.args) == 1 and isinstance(node.args[0], kinds)


def bind(target, item):
    if isinstance(target, ast.Name):
        return {target.id: item}
    return {k: v for t, x in zip(target.elts, item, strict=True) for k, v in bind(t, x).items()}


def half_up(x, digits=0):
    return Fraction(math.floor(Fraction(x) * 10**digits + Fraction(1, 2)), 1) / 10**digits


def text_of(x):
    if isinstance(x, Fraction):
        exact = str(float(x))
        return exact if Fraction(exact) == x else f"{x.numerator}/{x.denominator}"
    return "nothing" if x is None else str(x)
