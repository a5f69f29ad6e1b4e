"""A naive interpreter of the language, for comparison: it walks the syntax tree at every position
of one text. It has no domains and no tables, and shares no code with the compiler.
"""

import ast
import math
import operator
from dataclasses import dataclass, field, replace
from fractions import Fraction

NOTHING = None
SELECTORS = {
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
COMPARISONS = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.eq, ast.IsNot: operator.ne,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip


class Tie(Exception):
    """Two positions are equally good and hold different values."""


class Returned(Exception):
    """Raised by `return` with its value."""


@dataclass
class Where:
    """The position of bare names, the position of `here`, and local names."""

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
        """Return the value of a name at a position."""
        if (name, at) not in self.memo:
            self.memo[name, at] = self.evaluate(self.assigned[name], Where(at))
        return self.memo[name, at]

    def values(self, name):
        return [self.value(name, t) for t in range(len(self.text))]

    def evaluate(self, node, w):
        result = getattr(self, type(node).__name__)(node, w)
        if isinstance(result, Fraction) and result.denominator == 1:
            result = int(result)
        return result

    # ── expressions ────────────────────────────────────────────────────────────────────────────
    def Constant(self, node, w):
        return Fraction(str(node.value)) if isinstance(node.value, float) else node.value

    def Name(self, node, w):
        if node.id in w.names:
            binding = w.names[node.id]
            return binding(w.at) if callable(binding) else binding
        if (
            node.id in self.assigned
            and w.here is not None
            and self.has_here(self.assigned[node.id])
        ):
            return self.evaluate(self.assigned[node.id], replace(w, names={}))  # a condition
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
                out.extend(self.evaluate(e.value, w))
            else:
                out.append(self.evaluate(e, w))
        return out

    def Set(self, node, w):
        return set(self.List(node, w))

    def Dict(self, node, w):
        pairs = zip(node.keys, node.values, strict=True)
        return {self.evaluate(k, w): self.evaluate(v, w) for k, v in pairs}

    def BinOp(self, node, w):
        a, b = self.evaluate(node.left, w), self.evaluate(node.right, w)
        return NOTHING if a is None or b is None else BINARY[type(node.op)](a, b)

    def UnaryOp(self, node, w):
        x = self.evaluate(node.operand, w)
        if isinstance(node.op, ast.Not):
            return not x
        return NOTHING if x is None else -x if isinstance(node.op, ast.USub) else x

    def BoolOp(self, node, w):
        for part in node.values:
            x = self.evaluate(part, w)
            if bool(x) == isinstance(node.op, ast.Or):
                return x
        return x

    def Compare(self, node, w):
        a = self.evaluate(node.left, w)
        for op, right in zip(node.ops, node.comparators, strict=True):
            b = self.evaluate(right, w)
            ordered = isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
            if (ordered and (a is None or b is None)) or not COMPARISONS[type(op)](a, b):
                return False
            a = b
        return True

    def IfExp(self, node, w):
        return self.evaluate(node.body if self.evaluate(node.test, w) else node.orelse, w)

    def Subscript(self, node, w):
        whole = self.evaluate(node.value, w)
        if isinstance(node.slice, ast.Slice):
            ends = (node.slice.lower, node.slice.upper, node.slice.step)
            return whole[slice(*(e and self.evaluate(e, w) for e in ends))]
        return whole[self.evaluate(node.slice, w)]

    def ListComp(self, node, w):
        places = [w]
        for part in node.generators:
            bound = []
            for p in places:
                items = self.evaluate(part.iter, p)
                if self.uses_positions(part.iter, p):
                    items = [self.later(part.iter, p, i) for i in range(len(items))]
                for item in items:
                    inner = replace(p, names={**p.names, **bind(part.target, item)})
                    if all(self.evaluate(test, inner) for test in part.ifs):
                        bound.append(inner)
            places = bound
        if isinstance(node, ast.DictComp):
            return {self.evaluate(node.key, p): self.evaluate(node.value, p) for p in places}
        return [self.evaluate(node.elt, p) for p in places]

    GeneratorExp = DictComp = ListComp

    def SetComp(self, node, w):
        return set(self.ListComp(node, w))

    # ── calls ──────────────────────────────────────────────────────────────────────────────────
    def Call(self, node, w):
        name = node.func.id
        if name == "option":
            target = next(n for n, x in self.assigned.items() if x is node)
            return self.options.get(target, self.evaluate(node.args[0], w))
        if name in SELECTORS and not self.is_fold(node, w):
            arguments = dict(zip(SELECTORS[name], node.args, strict=False))
            arguments |= {k.arg: k.value for k in node.keywords}
            return getattr(self, f"select_{name}")(arguments, w)
        if name in self.functions and self.uses_positions(node.func, w):
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
        """Return a function of the position that evaluates an expression."""
        names = dict(w.names)

        def at(t):
            result = self.evaluate(node, Where(t, None, names))
            return result if i is None else result[i]

        return at

    def is_fold(self, node, w):
        """Whether `sum`, `any` or `all` is the function of a list, not a selector."""
        if node.func.id not in ("sum", "any", "all") or len(node.args) != 1 or node.keywords:
            return False
        listed = (ast.List, ast.Tuple, ast.Set, ast.ListComp, ast.SetComp, ast.GeneratorExp)
        (whole,) = node.args
        if isinstance(whole, listed) or not self.uses_positions(whole, w):
            return True
        row = whole.value if isinstance(whole, ast.Subscript) else whole
        own = self.functions.get(row.func.id) if isinstance(row, ast.Call) else None
        if not isinstance(row, ast.Name) and (own is None or any(map(self.has_here, own.body))):
            return False
        return isinstance(self.evaluate(whole, w), (tuple, list))

    def uses_positions(self, node, w, visited=()):
        """Whether an expression depends on positions."""
        own = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and type(n.ctx) is ast.Store}
        for n in ast.walk(node):
            name = n.id if isinstance(n, ast.Name) else ""
            if name in own or name in visited:
                continue
            if name in w.names:
                if callable(w.names[name]):
                    return True
            elif name in ("token", "position", "here") or name in {*SELECTORS} - {
                "sum",
                "any",
                "all",
            }:
                return True
            elif name in self.assigned:
                if self.uses_positions(self.assigned[name], Where(None), (*visited, name)):
                    return True
            elif name in self.functions:
                f = self.functions[name]
                if any(is_condition_selector(n) for n in ast.walk(ast.Module(f.body, []))):
                    return True
                inner = Where(None, None, {a.arg: NOTHING for a in f.args.args})
                if self.uses_positions(ast.Module(f.body, []), inner, (*visited, name)):
                    return True
        return False

    def has_here(self, node):
        """Whether an expression has a `here` outside of selectors."""
        if isinstance(node, ast.Call) and node.func.id in SELECTORS:
            return False
        if isinstance(node, ast.Name) and node.id in self.assigned:
            return self.has_here(self.assigned[node.id])
        inside = ast.iter_child_nodes(node)
        return isinstance(node, ast.Attribute) or any(self.has_here(n) for n in inside)

    def body(self, statements, w):
        for s in statements:
            if isinstance(s, ast.Return):
                raise Returned(None if s.value is None else self.evaluate(s.value, w))
            if isinstance(s, ast.If):
                self.body(s.body if self.evaluate(s.test, w) else s.orelse, w)
            elif isinstance(s, ast.For):
                for item in self.evaluate(s.iter, w):
                    w.names.update(bind(s.target, item))
                    self.body(s.body, w)
            elif isinstance(s, ast.Assign) and w.at is not None:
                w.names[s.targets[0].id] = self.later(s.value, w)
            elif isinstance(s, ast.Assign):
                w.names.update(bind(s.targets[0], self.evaluate(s.value, w)))

    # ── selectors ──────────────────────────────────────────────────────────────────────────────
    def matches(self, arguments, w):
        """Return the matching positions up to the current one."""
        places = [Where(s, w.at, w.names) for s in range(w.at + 1)]
        if "where" in arguments:
            places = [p for p in places if self.evaluate(arguments["where"], p)]
        return places

    def choose(self, arguments, w, priority):
        places = self.matches(arguments, w)
        if not places:
            default = Where(None, None, w.names)
            return (
                self.evaluate(arguments["default"], default) if "default" in arguments else NOTHING
            )
        best = max(priority(p) for p in places)
        values = [self.evaluate(arguments["value"], p) for p in places if priority(p) == best]
        if any(x != values[0] for x in values):
            raise Tie
        return values[0]

    def select_latest(self, arguments, w):
        return self.choose(arguments, w, lambda p: p.at)

    def select_first(self, arguments, w):
        return self.choose(arguments, w, lambda p: -p.at)

    def select_only(self, arguments, w):
        return self.choose(arguments, w, lambda p: 0)

    def select_best(self, arguments, w):
        sign = 1 if "most" in arguments else -1
        by = arguments.get("most", arguments.get("least"))
        parts = by.elts if isinstance(by, ast.Tuple) else [by]
        return self.choose(arguments, w, lambda p: [sign * self.evaluate(x, p) for x in parts])

    def select_count(self, arguments, w):
        return len(self.matches(arguments, w))

    def select_sum(self, arguments, w):
        values = [self.evaluate(arguments["value"], p) for p in self.matches(arguments, w)]
        return sum(int(x) for x in values if x is not None)

    def select_share(self, arguments, w):
        return Fraction(len(self.matches(arguments, w)), w.at + 1)

    def select_mean(self, arguments, w):
        return Fraction(self.select_sum(arguments, w), w.at + 1)

    def select_any(self, arguments, w):
        return bool(self.matches(arguments, w))

    def select_all(self, arguments, w):
        return len(self.matches(arguments, w)) == w.at + 1

    def select_nth(self, arguments, w):
        """Return the n-th smallest number. For n below 1 the result would depend on the domain."""
        n = math.ceil(self.evaluate(arguments["n"], Where(w.at, w.at, w.names)))
        assert n >= 1
        values = [self.evaluate(arguments["value"], p) for p in self.matches(arguments, w)]
        numbers = sorted(x for x in values if x is not None and not isinstance(x, (str, bool)))
        if len(numbers) >= n:
            return numbers[n - 1]
        return (
            self.evaluate(arguments["default"], Where(None)) if "default" in arguments else NOTHING
        )


def is_condition_selector(node):
    """Whether a node is `any(x == 1)` or the like, which is a selector in functions too."""
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
