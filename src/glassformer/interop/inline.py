"""Extraction of a parametrization's `expand` as standalone source code.

The methods, functions and constants of this package that `expand` uses are included recursively.
Type annotations are removed; imports from other packages are kept. `backend` is reduced to its
PyTorch part.
"""

import ast
import importlib.util
import inspect
import sys
from types import ModuleType
from typing import Any

import numpy as np

from ..core import backend
from ..parametrizations import build_parametrization
from ..registry import find, ref_head, split_ref
from ..utils.errors import GlassformerError

MAX_CONSTANT_SIZE = 100  # largest number of entries of a constant array
PACKAGE = __name__.split(".")[0]
Span = tuple[int, int]
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


class ModuleSource:
    """The source of a module and its top-level definitions."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.text = module, inspect.getsource(module)
        self.line_offsets = [0]
        for line in self.text.splitlines(keepends=True):
            self.line_offsets.append(self.line_offsets[-1] + len(line.encode()))
        self.definitions: dict[str, ast.stmt] = {}
        for node in ast.parse(self.text).body:
            for name in _defined_names(node):
                self.definitions[name] = node

    def extract(self, node: ast.stmt, skip: list[ast.stmt]) -> str:
        """Return the source of a node without annotations, decorators and skipped statements."""
        spans = [span for n in ast.walk(node) for span in self._annotation_spans(n)]
        for s in skip:
            above = [d.lineno for d in getattr(s, "decorator_list", [])]
            first, last = min([s.lineno, *above]) - 1, s.end_lineno or 0
            spans.append((self.line_offsets[first], self.line_offsets[last]))
        data = self.text.encode()
        begin, end = self.line_offsets[node.lineno - 1], self.line_offsets[node.end_lineno or 0]
        out, at = b"", begin
        for a, b in sorted(spans):
            if a >= at:
                out, at = out + data[at:a], b
        return _strip_blank_lines((out + data[at:end]).decode())

    def _annotation_spans(self, n: ast.AST) -> list[Span]:
        if isinstance(n, ast.arg) and n.annotation:
            return [(self._start_offset(n) + len(n.arg.encode()), self._end_offset(n.annotation))]
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.returns:
            arrow = self.text.encode().rindex(b"->", 0, self._start_offset(n.returns))
            return [(arrow - 1, self._end_offset(n.returns))]
        if isinstance(n, ast.AnnAssign):
            return [(self._end_offset(n.target), self._end_offset(n.annotation))]
        return []

    def _start_offset(self, n: Any) -> int:
        return int(self.line_offsets[n.lineno - 1] + n.col_offset)

    def _end_offset(self, n: Any) -> int:
        return int(self.line_offsets[n.end_lineno - 1] + n.end_col_offset)


class Inliner:
    """Collects definitions so that each precedes its first use at the top level."""

    def __init__(self) -> None:
        self.sources: dict[str, ModuleSource] = {}
        self.done: set[Any] = set()
        self.imports: set[str] = set()
        self.parts: list[str] = []
        self.attributes: set[str] = set()  # used attributes, which may belong to the array library
        self.uses_backend = False

    def module_source(self, module: str) -> ModuleSource:
        if module not in self.sources:
            self.sources[module] = ModuleSource(importlib.import_module(module))
        return self.sources[module]

    def add_name(self, module: str, name: str) -> None:
        """Add the definition of a name in a module."""
        node = self.module_source(module).definitions.get(name)
        # Imported names are added one by one, other statements as a whole.
        key = (module, name) if isinstance(node, (ast.Import, ast.ImportFrom)) else node
        if node is None or key in self.done:  # a built-in name, or already added
            return
        self.done.add(key)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return self._add_import(module, name, node)
        if isinstance(node, ast.ClassDef):
            if name == GlassformerError.__name__:
                return self.parts.append(self.module_source(module).extract(node, []))
            raise _inline_error(module, f"{name} is a class that its formula uses")
        saved = len(self.parts), set(self.done), set(self.imports)
        try:
            self._add_references(module, node)
            self.parts.append(self.module_source(module).extract(node, []))
        # write the value of a computed constant
        except GlassformerError:
            if not isinstance(node, (ast.Assign, ast.AnnAssign)):
                raise
            self.parts, self.done, self.imports = self.parts[: saved[0]], saved[1], saved[2]
            values = vars(self.module_source(module).module)
            assignments = [
                f"{n} = {self._literal(module, n, values[n])}" for n in _defined_names(node)
            ]
            self.parts.append("\n".join(assignments))

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
            body = self.module_source(k.__module__).definitions[k.__name__]
            assert isinstance(body, ast.ClassDef)
            for s in body.body:
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
            source = self.module_source(k.__module__)
            node = source.definitions[k.__name__]
            assert isinstance(node, ast.ClassDef)
            mine = [s for other, s in reached if other is k]
            rest = [s for s in node.body if not any(s is m for m in mine) and not _is_docstring(s)]
            text = source.extract(node, rest)
            self.parts.append(text if mine or _is_docstring(node.body[0]) else text + "    pass")

    def _add_references(self, module: str, node: ast.AST) -> None:
        for n in _walk_without_annotations(node):
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
        source = self.module_source(backend.__name__)
        node = source.definitions["TorchNamespace"]
        assert isinstance(node, ast.ClassDef)
        methods = [s for s in node.body if isinstance(s, ast.FunctionDef)]
        methods_ = [s for s in methods if s.name in self.attributes - {"torch", "F"}]
        return LIBRARY_TEMPLATE.replace(
            "OWN", "".join(f"\n\n{source.extract(s, [])}" for s in methods_)
        )


def formula_source(ref: str) -> tuple[set[str], list[str], str]:
    """Return imports, definitions and the constructor expression of a parametrization ref."""
    kind, inliner = type(build_parametrization(ref)), Inliner()
    entry = find("parametrization", ref_head(ref))
    try:
        inliner.add_class(kind, {"__init__", "expand"})
    except OSError:
        raise _inline_error(ref, "its source is not available") from None
    options = ", ".join(
        f"{n}={v!r}" for n, v in entry.parse(split_ref(ref, entry.options)[1]).items()
    )
    parts = [inliner.library_source()] * inliner.uses_backend + inliner.parts
    return inliner.imports, parts, f"{kind.__name__}({options})"


# ── helpers ────────────────────────────────────────────────────────────────────────────────────
def _inline_error(subject: str, reason: str) -> GlassformerError:
    return GlassformerError(
        f"{subject}: cannot be written as standalone code: {reason}", code="unsupported"
    )


def _defined_names(node: ast.stmt) -> list[str]:
    """Return the names that a statement defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [a.asname or a.name.split(".")[0] for a in node.names]
    if isinstance(node, ast.AnnAssign) and node.value:
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    if isinstance(node, ast.Assign):
        return [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    return []


def _walk_without_annotations(node: ast.AST) -> list[ast.AST]:
    out, todo = [], [node]
    while todo:
        n = todo.pop()
        out.append(n)
        for name, value in ast.iter_fields(n):
            if name not in ("annotation", "returns", "decorator_list"):
                values = value if isinstance(value, list) else [value]
                todo += [v for v in values if isinstance(v, ast.AST)]
    return out


def _is_docstring(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _strip_blank_lines(text: str) -> str:
    """Remove blank lines at the ends and all but one in between."""
    lines: list[str] = []
    for line in text.rstrip().splitlines():
        if line.strip() or (lines and lines[-1].strip()):
            lines.append(line.rstrip().removesuffix("  # fmt: skip"))
    return "\n".join(lines)
