"""A source, read: a text in Python's syntax becomes a Program, and nothing in it is executed.

    tokens = [*"abc", "|"]                                  # what a text is made of
    length = 20                                             # how many a text may have
    often  = count(token == here.token)                     # a value at every position
    emit   = best(token, token != "|", most=(often, position), default="|")   # what comes next

Within a look (`count`, `best`, …) a bare name is the value *there* and `here.name` the value here.
Where `length` counts something else, as the items of a list, `block` says how long a text may be.
"""

import ast
import json
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any

from ...utils.errors import ErrorList, GlassformerError, did_you_mean, short_repr
from ..examples import failing_examples
from ..ir import Position, Program, Token, Value, may_be_mean
from ..literals import format_element, type_exact_key
from .diagnostics import (  # fmt: skip
    INVALID,
    MEAN_MESSAGE,
    DependsOnError,
    NamedCondition,
    SourceError,
    SourceFunction,
    ValueList,
    expression_text,
    format_location,
    method_call_error,
    syntax_name,
    unsupported_syntax_error,
)
from .evaluate import EVALUATORS, evaluate
from .functions import AGGREGATES, FUNCTIONS, SELECTORS
from .inlining import is_here_attribute, nodes_outside_selectors
from .selectors import SelectorLowering
from .tables import check_element

MAX_CHARACTERS, MAX_DEPTH, MAX_SYNTAX_NODES = 100_000, 60, 10_000  # of a source
MAX_LENGTH, MAX_TOKENS = 1_000, 2_000  # the most
MAX_ERRORS = 20  # that are told at once
BODY_NODES = (ast.Return, ast.If, ast.For, ast.Assign, ast.Expr, ast.Starred, ast.Slice)
DECLARATIONS = ("tokens", "length", "block", "end", "examples", "emit")  # names that have a meaning
KEYWORDS = ("token", "position", "here", "nothing", "option", "pi")


def read(text: str, name: str = "source", options: Mapping[str, Any] | None = None) -> Program:
    """The program that a source describes, or an error that lists all that is wrong with it."""
    from ..passes.check import check_selectors  # passes may read sources themselves

    if not isinstance(text, str):
        raise GlassformerError(f"source — expected a text, got {short_repr(text)}")
    if not isinstance(name, str):
        raise GlassformerError(f"source — expected a name that is a text, got {short_repr(name)}")
    options = {} if options is None else options
    if not isinstance(options, Mapping) or not all(isinstance(o, str) for o in options):
        raise GlassformerError(
            f"{name} — expected options by their names, got {short_repr(options)}"
        )
    reader = SourceReader(name, text, dict(options))
    program = reader.read()
    check_selectors(program)
    reader.check_examples_hold(program)
    return program


def parse(text: str, name: str) -> ast.Module:
    """The text as a tree, unless it is too long, too deep, or no Python."""
    if len(text) > MAX_CHARACTERS:
        many = f"{len(text):,} characters, the most is {MAX_CHARACTERS:,}"
        raise GlassformerError(f"{name} — too long: {many}")
    if odd := re.search("[\0\ud800-\udfff]", text):
        what = "a null byte" if odd[0] == "\0" else "half a character"
        line, start = text.count("\n", 0, odd.start()) + 1, text.rfind("\n", 0, odd.start()) + 1
        raise GlassformerError(f"{name}:{line}:{odd.start() - start + 1} — holds {what}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's, on code that it would run
            tree = ast.parse(text.removeprefix("\ufeff"))
    except SyntaxError as e:
        said = " ".join((e.msg or "cannot be read").split())
        said = "a number has too many digits" if said.startswith("Exceeds the limit") else said
        raise GlassformerError(f"{name}:{e.lineno or 1}:{e.offset or 1} — {said}") from None
    except (RecursionError, MemoryError):
        raise GlassformerError(f"{name} — nested too deeply") from None
    except ValueError as e:
        raise GlassformerError(f"{name} — {' '.join(str(e).split())}") from None
    left: list[tuple[ast.AST, int]] = [(tree, 0)]
    nodes, lines = 0, text.removeprefix("\ufeff").encode().splitlines()
    while left:
        node, depth = left.pop()
        nodes += 1
        if depth > MAX_DEPTH:
            raise GlassformerError(
                f"{format_location(name, node, text)} — nested more than {MAX_DEPTH} deep"
            )
        if isinstance(node, ast.Constant) and type(node.value) is float:
            check_decimal(node, node.value, lines, format_location(name, node, text))
        left += [(child, depth + 1) for child in ast.iter_child_nodes(node)]
    if nodes > MAX_SYNTAX_NODES:
        raise GlassformerError(
            f"{name} — too long: {nodes:,} parts, the most is {MAX_SYNTAX_NODES:,}"
        )
    return tree


def check_decimal(node: ast.Constant, value: float, lines: list[bytes], where: str) -> None:
    """A decimal is the fraction that is written. Python reads it by way of a float, which keeps
    about 16 digits: more of them, or numbers beyond all floats, would be others than was said.
    """
    there = lines[node.lineno - 1] if node.lineno <= len(lines) else b""
    said = there[node.col_offset : node.end_col_offset].decode(errors="replace").replace("_", "")
    short = len(said) <= 40 and 1e-300 < abs(value) < 1e300
    zero = not value and not re.search("[1-9]", said.lower().partition("e")[0])
    with suppress(ValueError):
        if zero or (short and Fraction(said) == Fraction(repr(value))):
            return
    raise GlassformerError(
        f"{where} — `{said[:40]}` is no number of the language: decimals have up to 15 digits; "
        "write a fraction, as 1/3"
    )


class SourceReader(SelectorLowering):
    """Goes through the statements; what is wrong is collected and told at the end."""

    def __init__(self, name: str, text: str, options: dict[str, Any]) -> None:
        super().__init__()
        self.name, self.text, self.options = name, text, options
        self.chosen_options: dict[str, Any] = {}  # the options of the source, and what they are
        self.option_ranges: dict[str, dict[str, Any]] = {}  # what they are unless told, and may be
        self.errors: list[str] = []
        self.has_default_options = True  # all options are what they are unless told otherwise
        self.examples_node: ast.expr | None = None  # the examples

    def read(self) -> Program:
        tree = parse(self.text, self.name)
        assigned = [t for s in tree.body if isinstance(s, ast.Assign) for t in s.targets]
        names = {t.id for t in assigned if isinstance(t, ast.Name)}
        self.length_name = "block" if "block" in names else "length"
        self.missing_names = {"tokens", self.length_name, "emit"} - names
        for statement in tree.body:
            try:
                self.read_statement(statement)
            except DependsOnError:
                pass
            except SourceError as e:
                self.report_error(e.node, str(e))
            except GlassformerError as e:
                self.report_error(statement, str(e))
            except RecursionError:
                self.report_error(statement, "nested too deeply")
            if len(self.errors) >= MAX_ERRORS or self.budget.steps_left < 0:
                break
        else:
            for o in self.options:
                if o not in self.chosen_options:
                    near = (
                        did_you_mean(o, self.chosen_options)
                        if self.chosen_options
                        else "there are none"
                    )
                    self.errors.append(f"{self.name} — has no option {o[:60]}; {near}")
            for needed in sorted(self.missing_names):
                self.errors.append(f"{self.name} — says no `{needed}`")
        if self.errors:
            raise ErrorList("\n".join(self.errors))
        return Program(
            tuple(self.scope["tokens"]),
            self.scope[self.length_name],
            self.scope["emit"],
            self.name,
            self.scope.get("end"),
            ast.get_docstring(tree) or "",
            self.scope.get("examples", {}),
            self.text.removeprefix("\ufeff"),
            self.chosen_options,
        )

    def available_options(self) -> dict[str, dict[str, Any]]:
        """The options of a source, be it right or wrong otherwise."""
        for statement in parse(self.text, self.name).body:
            with suppress(SourceError, DependsOnError, GlassformerError, RecursionError):
                self.read_statement(statement)
        return self.option_ranges

    def report_error(self, node: ast.AST, message: str) -> None:
        self.errors.append(f"{format_location(self.name, node, self.text)} — {message}")

    # ── statements ─────────────────────────────────────────────────────────────────────────────
    def read_statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # a text that explains
        if isinstance(node, ast.FunctionDef):
            self.check_shadowing(node)
            self.define_function(node)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if not isinstance(target, ast.Name):
                raise SourceError(target, "expected one name before the =")
            self.check_new(target, target.id)  # a name that is assigned again keeps its first value
            try:
                self.check_shadowing(node)
                self.current_name = target.id
                self.scope[target.id] = self.read_assignment(target.id, node.value)
            except (SourceError, DependsOnError, GlassformerError, RecursionError):
                self.scope[target.id] = INVALID
                raise
            finally:
                self.current_name = ""
        else:
            raise SourceError(
                node, f"a source has assignments and functions, no {syntax_name(node)}"
            )

    def check_shadowing(self, node: ast.stmt) -> None:
        """The name of a comprehension must not be that of a value: which is meant would have to be
        guessed.
        """
        for part in ast.walk(node):
            if isinstance(part, ast.comprehension):
                for name in [n for n in ast.walk(part.target) if isinstance(n, ast.Name)]:
                    known = isinstance(self.scope.get(name.id), (Value, ValueList, NamedCondition))
                    if known or name.id in KEYWORDS:
                        raise SourceError(
                            name, f"`{name.id}` is a value already; what a comprehension goes "
                            "through needs a name of its own",
                        )  # fmt: skip

    def check_new(self, node: ast.AST, name: str) -> None:
        if name in KEYWORDS:
            raise SourceError(node, f"`{name}` is a word of the language and cannot be assigned")
        if name in self.scope:
            raise SourceError(
                node, f"`{name[:60]}` is assigned already; a name stands for one thing"
            )

    def read_assignment(self, name: str, node: ast.expr) -> Any:
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and isinstance(called, ast.Name) and called.id == "option":
            found = self.read_option(name, node)
        elif name not in DECLARATIONS and self.is_condition(node):
            self.extract_selectors(node, dict(self.scope), {})  # its names are known
            return NamedCondition(name, node)
        else:
            found = self.lift(node, self.scope, name)
        if name in DECLARATIONS:
            if isinstance(found, Value) and name != "emit":
                raise SourceError(node, f"{name} must be a constant, not a value at positions")
            found = getattr(self, f"check_{name}")(node, found)
        if isinstance(found, Value) and found.source_position is None:
            found.source_position = (node.lineno, node.col_offset)
        if name in ("tokens", self.length_name):
            self.scope[name] = found
            if all(self.scope.get(n, INVALID) is not INVALID for n in ("tokens", self.length_name)):
                self.scope["token"] = Token("token", self.scope["tokens"])
                self.scope["position"] = Position("position", range(self.scope[self.length_name]))
        return found

    def is_condition(self, node: ast.expr) -> bool:
        """Whether an expression has, outside of looks, both `here` and a value there."""
        here = there = False
        for part in nodes_outside_selectors(node):
            found = self.scope.get(part.id) if isinstance(part, ast.Name) else None
            here |= is_here_attribute(part) or isinstance(found, NamedCondition)
            there |= isinstance(found, (Value, NamedCondition, ValueList))
        return here and there

    def check_length(self, node: ast.expr, found: Any, name: str = "length") -> int:
        if type(found) is not int or not 1 <= found <= MAX_LENGTH:
            raise SourceError(
                node,
                f"{name} must be a whole number from 1 to {MAX_LENGTH:,}, got {format_element(found)}",
            )
        return found

    def check_block(self, node: ast.expr, found: Any) -> int:
        return self.check_length(node, found, "block")

    def check_tokens(self, node: ast.expr, found: Any) -> list[Any]:
        many = found if isinstance(found, (list, tuple, range)) else []
        if not 1 <= len(many) <= MAX_TOKENS:
            raise SourceError(
                node,
                f"tokens must be a list of 1 to {MAX_TOKENS:,} tokens, got {format_element(found)}",
            )
        texts: set[str] = set()
        for t in many:
            if type(t) not in (int, str):
                raise SourceError(
                    node, f"a token must be a whole number or a text, got {format_element(t)}"
                )
            if not str(t).isprintable() or len(str(t).split()) != 1 or " " in str(t):
                raise SourceError(
                    node, f"a token must be one word of characters that can be printed, got "
                    f"{ascii(t)[:60]}",
                )  # fmt: skip
            if str(t) in texts:
                raise SourceError(node, f"the token {format_element(t)} is there twice")
            texts.add(str(t))
        return list(many)

    def check_end(self, node: ast.expr, found: Any) -> Any:
        if self.scope.get("tokens", INVALID) is INVALID:
            if "tokens" in self.missing_names or "tokens" in self.scope:
                raise DependsOnError
            raise SourceError(node, "`tokens` must be assigned before `end`")
        if not any(type_exact_key(found) == type_exact_key(t) for t in self.scope["tokens"]):
            raise SourceError(node, f"end must be one of the tokens, got {format_element(found)}")
        return found

    def check_examples(self, node: ast.expr, found: Any) -> Any:
        if not isinstance(found, dict) or not all(
            isinstance(x, str) for pair in found.items() for x in pair
        ):
            raise SourceError(node, "examples must be a dict of texts, {'a b |': 'b a'}")
        self.examples_node = node
        return found

    def check_examples_hold(self, program: Program) -> None:
        """Examples are of the source as it is: with other options others may be right."""
        if self.examples_node is None or not self.has_default_options:
            return
        keys = self.examples_node.keys if isinstance(self.examples_node, ast.Dict) else []
        at = {k.value: k for k in keys if isinstance(k, ast.Constant)}
        for text, reason in failing_examples(program):
            self.report_error(
                at.get(text, self.examples_node),
                f"example {json.dumps(text, ensure_ascii=False)} {reason}",
            )
        if self.errors:
            raise GlassformerError("\n".join(self.errors[:MAX_ERRORS]))

    def check_emit(self, node: ast.expr, found: Any) -> Any:
        self.known(ast.copy_location(ast.Name("token", ast.Load()), node), self.scope)
        if isinstance(found, ValueList):
            raise SourceError(
                node, f"`{expression_text(node)}` is a list of values; emit one of them, `…[0]`"
            )
        if not isinstance(found, Value):
            found = Token("emit", [check_element(node, found)] * len(self.scope["tokens"]))
        if may_be_mean(found):
            raise SourceError(node, MEAN_MESSAGE.format(expression_text(node)))
        try:
            Program(tuple(self.scope["tokens"]), self.scope[self.length_name], found)
        except GlassformerError as e:
            # Domains are worked out one value at a time: what no text brings may still be in one.
            hint = ""
            if "emits nothing" in str(e):
                hint = "; say what comes then, with `default=` or first_of(…, …)"
            elif any(type(d) is bool for d in found.domain):
                hint = "; `… if … else …` makes a token of it"
            elif any(type(d) is int and d not in self.scope["tokens"] for d in found.domain):
                hint = "; if it never is that, say so with min or max"
            raise SourceError(node, f"{e}{hint}") from None
        return found

    def read_option(self, name: str, node: ast.Call) -> Any:
        """`vocab = option(10, 2, 100)`: 10 unless the reader of the source is told otherwise."""
        args = [evaluate(a, self.scope, self.budget) for a in node.args]
        numbers = len(args) == 1 or all(type(a) is int for a in args)
        if not 1 <= len(args) <= 3 or node.keywords or not numbers:
            raise SourceError(
                node, "option takes a default and, for a number, the least and the most"
            )
        default = args[0]
        kinds: dict[type, str] = {int: "a whole number", str: "a text", bool: "True or False"}
        if type(default) not in kinds:
            raise SourceError(node, "an option is a whole number, a text, or True or False")
        found = self.options.get(name, default)
        self.chosen_options[name], self.option_ranges[name] = found, {"default": default}
        if type(default) is int and isinstance(found, str) and len(found) < 20:
            found = int(found) if found.removeprefix("-").isdecimal() else found
        if type(default) is bool and isinstance(found, str):
            found = {"true": True, "false": False}.get(found.lower(), found)
        if type(found) is not type(default):
            raise SourceError(
                node, f"{name} must be {kinds[type(default)]}, got {format_element(found)}"
            )
        if type(default) is int:
            ends = [min(1, default), max(MAX_LENGTH, default)]
            least, most = args[1:] + ends[len(args) - 1 :]
            self.option_ranges[name] |= {"least": least, "most": most}
            if not least <= found <= most:
                raise SourceError(node, f"{name} must be from {least} to {most}, got {found}")
        self.chosen_options[name] = found
        self.has_default_options &= found == default
        return found

    def define_function(self, node: ast.FunctionDef) -> None:
        a = node.args
        more = (a.defaults, a.vararg, a.kwonlyargs, a.kwarg, a.posonlyargs, node.decorator_list)
        names = tuple(x.arg for x in a.args)
        self.check_new(node, node.name)
        try:
            if node.name in DECLARATIONS:
                raise SourceError(node, f"`{node.name}` must be assigned, it cannot be a function")
            if node.name in SELECTORS or node.name in FUNCTIONS or node.name in AGGREGATES:
                raise SourceError(node, f"`{node.name}` is a function of the language already")
            if any(more):
                raise SourceError(node, "a function has plain arguments and no decorators")
            for part in ast.walk(ast.Module(node.body, [])):
                if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
                    raise method_call_error(part)
                known = (
                    (*EVALUATORS, *BODY_NODES)
                    if isinstance(part, (ast.expr, ast.stmt))
                    else (ast.AST,)
                )
                if not isinstance(part, known) and not is_here_attribute(part):
                    raise unsupported_syntax_error(part)
        except SourceError:
            self.scope[node.name] = INVALID
            raise
        self.scope[node.name] = SourceFunction(node.name, names, tuple(node.body), self.scope)
