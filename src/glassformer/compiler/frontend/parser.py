"""The parser: convert a source in Python's syntax to a Program, without executing it.

    tokens = [*"abc", "|"]                                  # the vocabulary
    length = 20                                             # maximum number of tokens
    often  = count(token == here.token)                     # a value at every position
    emit   = best(token, token != "|", most=(often, position), default="|")   # the next token

Inside a selector (`count`, `best`, …) a bare name is the value at the selected position and
`here.name` the value at the current one. If `length` has another meaning in a source, such as the
length of a list, use `block` for the maximum number of tokens.
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
from .diagnostics import (
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

MAX_CHARACTERS, MAX_DEPTH, MAX_SYNTAX_NODES = 100_000, 60, 10_000  # per source
MAX_LENGTH, MAX_TOKENS = 1_000, 2_000
MAX_ERRORS = 20  # limit for errors in one report
BODY_NODES = (ast.Return, ast.If, ast.For, ast.Assign, ast.Expr, ast.Starred, ast.Slice)
DECLARATIONS = ("tokens", "length", "block", "end", "examples", "emit")
KEYWORDS = ("token", "position", "here", "nothing", "option", "pi")


def read(text: str, name: str = "source", options: Mapping[str, Any] | None = None) -> Program:
    """Read a source and check its selectors and examples.

    Args:
        text: Text of the source.
        name: Name of the source in error messages, before line and column.
        options: Values of the source's options.

    Returns:
        The program.

    Raises:
        GlassformerError: With code `bad_source` and one line for each error in the source.
    """
    from ..passes.check import check_selectors  # local import, because passes may read sources

    if not isinstance(text, str):
        raise GlassformerError(f"source: expected a string, got {short_repr(text)}")
    if not isinstance(name, str):
        raise GlassformerError(f"name: expected a string, got {short_repr(name)}")
    options = {} if options is None else options
    if not isinstance(options, Mapping) or not all(isinstance(o, str) for o in options):
        raise GlassformerError(
            f"options: expected a mapping from names to values, got {short_repr(options)}"
        )
    reader = SourceReader(name, text, dict(options))
    program = reader.read()
    check_selectors(program)
    reader.check_examples_hold(program)
    return program


def bad_source(location: str, message: str) -> GlassformerError:
    return GlassformerError(f"{location} — {message}", code=SourceError.code)


def parse(text: str, name: str) -> ast.Module:
    """Return the syntax tree of a source; raise an error if it is too long, deep or malformed."""
    if len(text) > MAX_CHARACTERS:
        raise bad_source(name, f"expected at most {MAX_CHARACTERS:,} characters, got {len(text):,}")
    if odd := re.search("[\0\ud800-\udfff]", text):
        problem = "a null byte" if odd[0] == "\0" else "an unpaired surrogate"
        line, start = text.count("\n", 0, odd.start()) + 1, text.rfind("\n", 0, odd.start()) + 1
        raise bad_source(f"{name}:{line}:{odd.start() - start + 1}", f"contains {problem}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the source is never executed as Python
            tree = ast.parse(text.removeprefix("\ufeff"))
    except SyntaxError as e:
        message = " ".join((e.msg or "cannot be parsed").split())
        if message.startswith("Exceeds the limit"):
            message = "a number has too many digits"
        raise bad_source(f"{name}:{e.lineno or 1}:{e.offset or 1}", message) from None
    except (RecursionError, MemoryError):
        raise bad_source(name, "nested too deeply") from None
    except ValueError as e:
        raise bad_source(name, " ".join(str(e).split())) from None
    stack: list[tuple[ast.AST, int]] = [(tree, 0)]
    nodes, lines = 0, text.removeprefix("\ufeff").encode().splitlines()
    while stack:
        node, depth = stack.pop()
        nodes += 1
        if depth > MAX_DEPTH:
            location = format_location(name, node, text)
            raise bad_source(location, f"nested more than {MAX_DEPTH} deep")
        if isinstance(node, ast.Constant) and type(node.value) is float:
            check_decimal(node, node.value, lines, format_location(name, node, text))
        stack += [(child, depth + 1) for child in ast.iter_child_nodes(node)]
    if nodes > MAX_SYNTAX_NODES:
        raise bad_source(name, f"expected at most {MAX_SYNTAX_NODES:,} syntax nodes, got {nodes:,}")
    return tree


def check_decimal(node: ast.Constant, value: float, lines: list[bytes], location: str) -> None:
    """Raise an error for a decimal that float64 rounds; decimals are read as fractions."""
    line = lines[node.lineno - 1] if node.lineno <= len(lines) else b""
    text = line[node.col_offset : node.end_col_offset].decode(errors="replace").replace("_", "")
    is_short = len(text) <= 40 and 1e-300 < abs(value) < 1e300
    is_zero = not value and not re.search("[1-9]", text.lower().partition("e")[0])
    with suppress(ValueError):
        if is_zero or (is_short and Fraction(text) == Fraction(repr(value))):
            return
    hint = "use at most 15 digits, or a fraction such as 1/3"
    raise bad_source(location, f"`{text[:40]}` cannot be represented exactly; {hint}")


class SourceReader(SelectorLowering):
    """Reader of the statements of a source, which collects their errors."""

    def __init__(self, name: str, text: str, options: dict[str, Any]) -> None:
        super().__init__()
        self.name, self.text, self.options = name, text, options
        self.chosen_options: dict[str, Any] = {}  # option name -> value
        self.option_ranges: dict[str, dict[str, Any]] = {}  # option name -> default and range
        self.errors: list[str] = []
        self.has_default_options = True
        self.examples_node: ast.expr | None = None

    def read(self) -> Program:
        tree = parse(self.text, self.name)
        targets = [t for s in tree.body if isinstance(s, ast.Assign) for t in s.targets]
        names = {t.id for t in targets if isinstance(t, ast.Name)}
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
            known = self.chosen_options
            for option in [o for o in self.options if o not in known]:
                hint = did_you_mean(option, known) if known else "it has no options"
                self.errors.append(f"{self.name} — has no option {option[:60]}; {hint}")
            for needed in sorted(self.missing_names):
                self.errors.append(f"{self.name} — does not assign `{needed}`")
        if self.errors:
            raise ErrorList("\n".join(self.errors), code=SourceError.code)
        return Program(
            tuple(self.scope["tokens"]), self.scope[self.length_name], self.scope["emit"],
            self.name, self.scope.get("end"), ast.get_docstring(tree) or "",
            self.scope.get("examples", {}), self.text.removeprefix("\ufeff"), self.chosen_options,
        )  # fmt: skip

    def available_options(self) -> dict[str, dict[str, Any]]:
        """Return the default and the range of each option, even if the source has errors."""
        for statement in parse(self.text, self.name).body:
            with suppress(SourceError, DependsOnError, GlassformerError, RecursionError):
                self.read_statement(statement)
        return self.option_ranges

    def report_error(self, node: ast.AST, message: str) -> None:
        self.errors.append(f"{format_location(self.name, node, self.text)} — {message}")

    # ── statements ─────────────────────────────────────────────────────────────────────────────
    def read_statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # a docstring
        if isinstance(node, ast.FunctionDef):
            self.check_shadowing(node)
            self.define_function(node)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if not isinstance(target, ast.Name):
                raise SourceError(target, "expected one name before the =")
            self.check_new(target, target.id)
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
                node, f"expected an assignment or a function, got {syntax_name(node)}"
            )

    def check_shadowing(self, node: ast.stmt) -> None:
        """Raise an error if a comprehension binds the name of a value or a keyword."""
        for part in ast.walk(node):
            if not isinstance(part, ast.comprehension):
                continue
            for name in [n for n in ast.walk(part.target) if isinstance(n, ast.Name)]:
                binding = self.scope.get(name.id)
                if isinstance(binding, (Value, ValueList, NamedCondition)) or name.id in KEYWORDS:
                    hint = "use another name in the comprehension"
                    raise SourceError(name, f"`{name.id}` is the name of a value; {hint}")

    def check_new(self, node: ast.AST, name: str) -> None:
        if name in KEYWORDS:
            raise SourceError(node, f"`{name}` is a keyword and cannot be assigned")
        if name in self.scope:
            raise SourceError(node, f"`{name[:60]}` is already assigned; use another name")

    def read_assignment(self, name: str, node: ast.expr) -> Any:
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and isinstance(called, ast.Name) and called.id == "option":
            result = self.read_option(name, node)
        elif name not in DECLARATIONS and self.is_condition(node):
            self.extract_selectors(
                node, dict(self.scope), {}
            )  # raises an error for undefined names
            return NamedCondition(name, node)
        else:
            result = self.lower(node, self.scope, name)
        if name in DECLARATIONS:
            if isinstance(result, Value) and name != "emit":
                raise SourceError(node, f"{name} must be constant, got a value at positions")
            result = getattr(self, f"check_{name}")(node, result)
        if isinstance(result, Value) and result.source_position is None:
            result.source_position = (node.lineno, node.col_offset)
        if name in ("tokens", self.length_name):
            self.scope[name] = result
            tokens, length = (self.scope.get(n, INVALID) for n in ("tokens", self.length_name))
            if tokens is not INVALID and length is not INVALID:
                self.scope["token"] = Token("token", tokens)
                self.scope["position"] = Position("position", range(length))
        return result

    def is_condition(self, node: ast.expr) -> bool:
        """Return whether an expression outside of selectors compares `here` with a value."""
        has_query = has_key = False
        for part in nodes_outside_selectors(node):
            binding = self.scope.get(part.id) if isinstance(part, ast.Name) else None
            has_query |= is_here_attribute(part) or isinstance(binding, NamedCondition)
            has_key |= isinstance(binding, (Value, NamedCondition, ValueList))
        return has_query and has_key

    def check_length(self, node: ast.expr, length: Any, name: str = "length") -> int:
        if type(length) is not int or not 1 <= length <= MAX_LENGTH:
            expected = f"a whole number from 1 to {MAX_LENGTH:,}"
            raise SourceError(node, f"{name} must be {expected}, got {format_element(length)}")
        return length

    def check_block(self, node: ast.expr, length: Any) -> int:
        return self.check_length(node, length, "block")

    def check_tokens(self, node: ast.expr, tokens: Any) -> list[Any]:
        if not isinstance(tokens, (list, tuple, range)) or not 1 <= len(tokens) <= MAX_TOKENS:
            expected = f"a list of 1 to {MAX_TOKENS:,} tokens"
            raise SourceError(node, f"tokens must be {expected}, got {format_element(tokens)}")
        texts: set[str] = set()
        for t in tokens:
            if type(t) not in (int, str):
                expected = "a whole number or a text"
                raise SourceError(node, f"a token must be {expected}, got {format_element(t)}")
            if not str(t).isprintable() or len(str(t).split()) != 1 or " " in str(t):
                expected = "one word of printable characters"
                raise SourceError(node, f"a token must be {expected}, got {ascii(t)[:60]}")
            if str(t) in texts:
                raise SourceError(node, f"the token {format_element(t)} occurs twice")
            texts.add(str(t))
        return list(tokens)

    def check_end(self, node: ast.expr, end: Any) -> Any:
        if self.scope.get("tokens", INVALID) is INVALID:
            if "tokens" in self.missing_names or "tokens" in self.scope:
                raise DependsOnError
            raise SourceError(node, "assign `tokens` before `end`")
        if not any(type_exact_key(end) == type_exact_key(t) for t in self.scope["tokens"]):
            raise SourceError(node, f"end must be one of the tokens, got {format_element(end)}")
        return end

    def check_examples(self, node: ast.expr, examples: Any) -> Any:
        is_dict = isinstance(examples, dict)
        if not is_dict or not all(isinstance(x, str) for pair in examples.items() for x in pair):
            raise SourceError(node, "examples must be a dict of texts, {'a b |': 'b a'}")
        self.examples_node = node
        return examples

    def check_examples_hold(self, program: Program) -> None:
        """Check that the program reproduces its examples, if all options have their defaults."""
        node = self.examples_node
        if node is None or not self.has_default_options:
            return
        keys = node.keys if isinstance(node, ast.Dict) else []
        nodes = {k.value: k for k in keys if isinstance(k, ast.Constant)}
        for text, reason in failing_examples(program):
            example = json.dumps(text, ensure_ascii=False)
            self.report_error(nodes.get(text, node), f"example {example} {reason}")
        if self.errors:
            raise GlassformerError("\n".join(self.errors[:MAX_ERRORS]), code=SourceError.code)

    def check_emit(self, node: ast.expr, emit: Any) -> Any:
        self.check_name(node, "token", self.scope)
        tokens, text = self.scope["tokens"], expression_text(node)
        if isinstance(emit, ValueList):
            raise SourceError(node, f"`{text}` is a list of values; emit one of them: `…[0]`")
        if not isinstance(emit, Value):
            emit = Token("emit", [check_element(node, emit)] * len(tokens))
        if may_be_mean(emit):
            raise SourceError(node, MEAN_MESSAGE.format(text))
        try:
            Program(tuple(tokens), self.scope[self.length_name], emit)
        except GlassformerError as e:
            # Domains are computed separately, so they may have elements that never occur.
            hint = ""
            if "emits nothing" in str(e):
                hint = "; add `default=` or first_of(…, …)"
            elif any(type(d) is bool for d in emit.domain):
                hint = "; `… if … else …` turns it into a token"
            elif any(type(d) is int and d not in tokens for d in emit.domain):
                hint = "; if that cannot occur, exclude it with min or max"
            raise SourceError(node, f"{e}{hint}") from None
        return emit

    def read_option(self, name: str, node: ast.Call) -> Any:
        """Return the value of an option: `option(10, 2, 100)` defaults to 10, from 2 to 100."""
        args = [evaluate(a, self.scope, self.budget) for a in node.args]
        are_numbers = len(args) == 1 or all(type(a) is int for a in args)
        if not 1 <= len(args) <= 3 or node.keywords or not are_numbers:
            expected = "a default and, for a number, the smallest and the largest value"
            raise SourceError(node, f"option takes {expected}")
        default = args[0]
        kinds: dict[type, str] = {int: "a whole number", str: "a text", bool: "True or False"}
        if type(default) not in kinds:
            raise SourceError(node, "an option is a whole number, a text, or True or False")
        value = self.options.get(name, default)
        self.chosen_options[name], self.option_ranges[name] = value, {"default": default}
        if type(default) is int and isinstance(value, str) and len(value) < 20:
            value = int(value) if value.removeprefix("-").isdecimal() else value
        if type(default) is bool and isinstance(value, str):
            value = {"true": True, "false": False}.get(value.lower(), value)
        if type(value) is not type(default):
            expected = kinds[type(default)]
            raise SourceError(node, f"{name} must be {expected}, got {format_element(value)}")
        if type(default) is int:
            ends = [min(1, default), max(MAX_LENGTH, default)]
            smallest, largest = args[1:] + ends[len(args) - 1 :]
            self.option_ranges[name] |= {"least": smallest, "most": largest}
            if not smallest <= value <= largest:
                expected = f"from {smallest} to {largest}"
                raise SourceError(node, f"{name} must be {expected}, got {value}")
        self.chosen_options[name] = value
        self.has_default_options &= value == default
        return value

    def define_function(self, node: ast.FunctionDef) -> None:
        a = node.args
        others = (a.defaults, a.vararg, a.kwonlyargs, a.kwarg, a.posonlyargs, node.decorator_list)
        names = tuple(x.arg for x in a.args)
        self.check_new(node, node.name)
        try:
            if node.name in DECLARATIONS:
                raise SourceError(node, f"`{node.name}` must be assigned, not defined by def")
            if node.name in SELECTORS or node.name in FUNCTIONS or node.name in AGGREGATES:
                raise SourceError(node, f"`{node.name}` is a function of the language")
            if any(others):
                raise SourceError(node, "a function takes plain arguments and no decorators")
            for part in ast.walk(ast.Module(node.body, [])):
                if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
                    raise method_call_error(part)
                is_code = isinstance(part, (ast.expr, ast.stmt))
                allowed = (*EVALUATORS, *BODY_NODES) if is_code else (ast.AST,)
                if not isinstance(part, allowed) and not is_here_attribute(part):
                    raise unsupported_syntax_error(part)
        except SourceError:
            self.scope[node.name] = INVALID
            raise
        self.scope[node.name] = SourceFunction(node.name, names, tuple(node.body), self.scope)
