"""Extraction of a parametrization's `expand` as standalone source code.

The methods, functions and constants of this package that `expand` uses are included recursively.
Type annotations and comments are removed; imports from other packages are kept. `backend` is
reduced to its PyTorch part.
"""

import ast
import copy
import importlib.util
import inspect
import sys
import textwrap
from typing import Any

import numpy as np

from ..core import backend
from ..parametrizations import build_parametrization
from ..registry import find, ref_head, split_ref
from ..utils.errors import GlassformerError

MAX_CONSTANT_SIZE = 100  # largest number of entries of a constant array
PACKAGE = __name__.split(".")[0]
LIBRARY_TEMPLATE = '''\
class Library:
    """PyTorch as the array library of the formula."""

    torch, F = torch, torch.nn.functional

    def __getattr__(self, name):
        return getattr(torch, name)OWN


class backend:
    @staticmethod
    def backend_for(x):
        return Library()'''


class PlainCode(ast.NodeTransformer):
    """Removes type annotations."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.Assign | None:
        return ast.Assign([node.target], node.value) if node.value else None


def plain_node(node: ast.stmt) -> Any:
    """Return a copy of a definition without annotations and its decorators."""
    node = copy.deepcopy(node)
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        node.decorator_list = []
    return ast.fix_missing_locations(PlainCode().visit(node))


def plain_source(node: ast.stmt) -> str:
    return ast.unparse(plain_node(node))


class Inliner:
    """Collects definitions so that each precedes its first use at the top level."""

    def __init__(self) -> None:
        self.modules: dict[str, dict[str, ast.stmt]] = {}
        self.done: set[Any] = set()
        self.imports: set[str] = set()
        self.parts: list[str] = []
        self.attributes: set[str] = set()  # used attributes, which may belong to the array library
        self.uses_backend = False

    def definitions(self, module: str) -> dict[str, ast.stmt]:
        """Return the top-level definitions of a module by name."""
        if module not in self.modules:
            body = ast.parse(inspect.getsource(importlib.import_module(module))).body
            self.modules[module] = {name: node for node in body for name in _defined_names(node)}
        return self.modules[module]

    def add_name(self, module: str, name: str) -> None:
        """Add the definition of a name in a module."""
        node = self.definitions(module).get(name)
        # Imported names are added one by one, other statements as a whole.
        key = (module, name) if isinstance(node, (ast.Import, ast.ImportFrom)) else node
        if node is None or key in self.done:  # a built-in name, or already added
            return
        self.done.add(key)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return self._add_import(module, name, node)
        if isinstance(node, ast.ClassDef):
            if name == GlassformerError.__name__:
                return self.parts.append(plain_source(node))
            raise _inline_error(module, f"{name} is a class that its formula uses")
        saved = len(self.parts), set(self.done), set(self.imports)
        try:
            self._add_references(module, node)
            self.parts.append(plain_source(node))
        # write the value of a computed constant
        except GlassformerError:
            if not isinstance(node, (ast.Assign, ast.AnnAssign)):
                raise
            self.parts, self.done, self.imports = self.parts[: saved[0]], saved[1], saved[2]
            values = vars(sys.modules[module])
            literals = {n: self._literal(module, n, values[n]) for n in _defined_names(node)}
            self.parts.append("\n".join(f"{n} = {value}" for n, value in literals.items()))

    def _literal(self, module: str, name: str, value: Any) -> str:
        if isinstance(value, np.ndarray) and value.size <= MAX_CONSTANT_SIZE:
            self.imports.add("import numpy as np")
            return f"np.array({value.tolist()!r})"
        if isinstance(value, (int, float, str)):
            return repr(value)
        raise _inline_error(module, f"{name} is no number and no small array")

    def add_class(self, kind: type, names: set[str]) -> None:
        """Add a class and its bases, reduced to the members that are used."""
        line = [k for k in kind.__mro__ if k is not object]
        members: dict[str, list[tuple[type, ast.stmt]]] = {}
        for k in line:
            for s in self._class_node(k).body:
                for name in _defined_names(s):
                    members.setdefault(name, []).append((k, s))
        reached: list[tuple[type, ast.stmt]] = []
        todo = [w for w in sorted(names) if w in members]
        while todo:
            for k, s in members.pop(todo.pop(), []):
                reached.append((k, s))
                self._add_references(k.__module__, s)
                attributes = [n.attr for n in ast.walk(s) if isinstance(n, ast.Attribute)]
                todo += [name for name in attributes if name in members]
                if not any(isinstance(n, ast.Name) and n.id == "super" for n in ast.walk(s)):
                    break  # this member overrides members of bases
        for k in line[::-1]:
            node = copy.copy(self._class_node(k))
            mine = [s for other, s in reached if other is k]
            node.body = [s for s in node.body if s in mine or _is_docstring(s)] or [ast.Pass()]
            self.parts.append(plain_source(node))

    def _class_node(self, kind: type) -> ast.ClassDef:
        node = self.definitions(kind.__module__)[kind.__name__]
        assert isinstance(node, ast.ClassDef)
        return node

    def _add_references(self, module: str, node: ast.stmt) -> None:
        for n in ast.walk(plain_node(node)):
            if isinstance(n, ast.Attribute):
                self.attributes.add(n.attr)
            if isinstance(n, ast.Name):
                self.add_name(module, n.id)

    def _add_import(self, module: str, name: str, node: ast.Import | ast.ImportFrom) -> None:
        alias = next(a for a in node.names if (a.asname or a.name.split(".")[0]) == name)
        brought = f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
        if isinstance(node, ast.Import):
            self.imports.add(brought)
            return
        package = sys.modules[module].__package__ or ""
        base = node.module or ""
        if node.level:
            base = importlib.util.resolve_name("." * node.level + base, package)
        if f"{base}.{alias.name}" == backend.__name__:
            self.uses_backend = True
        elif base.split(".")[0] != PACKAGE:
            self.imports.add(f"from {base} {brought}")
        elif alias.asname not in (None, alias.name):
            raise _inline_error(module, f"it imports {alias.name} by another name")
        else:
            self.add_name(base, alias.name)

    def library_source(self) -> str:
        """Return source that defines the array library: PyTorch and used functions of backend."""
        names = self.attributes - {"torch", "F"}
        body = self._class_node(backend.TorchNamespace).body
        methods = [s for s in body if isinstance(s, ast.FunctionDef) and s.name in names]
        own = "".join("\n\n" + textwrap.indent(plain_source(s), "    ") for s in methods)
        return LIBRARY_TEMPLATE.replace("OWN", own)


def formula_source(ref: str) -> tuple[set[str], list[str], str]:
    """Return imports, definitions and the constructor expression of a parametrization ref."""
    kind, inliner = type(build_parametrization(ref)), Inliner()
    entry = find("parametrization", ref_head(ref))
    try:
        inliner.add_class(kind, {"__init__", "expand"})
    except OSError:
        raise _inline_error(ref, "its source is not available") from None
    options = entry.parse(split_ref(ref, entry.options)[1]).items()
    expression = f"{kind.__name__}({', '.join(f'{n}={v!r}' for n, v in options)})"
    parts = [inliner.library_source()] * inliner.uses_backend + inliner.parts
    return inliner.imports, parts, expression


# ── helpers ────────────────────────────────────────────────────────────────────────────────────
def _inline_error(subject: str, reason: str) -> GlassformerError:
    problem = f"cannot be written as standalone code: {reason}"
    return GlassformerError(f"{subject}: {problem}", code="unsupported")


def _defined_names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [a.asname or a.name.split(".")[0] for a in node.names]
    if isinstance(node, ast.AnnAssign) and node.value:
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    if isinstance(node, ast.Assign):
        return [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    return []


def _is_docstring(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
