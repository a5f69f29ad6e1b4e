"""Check the style rules of CONTRIBUTING.md: docstrings, banned words, class names, line length."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src/glassformer").rglob("*.py"))
SCRIPTS = sorted((ROOT / "src/glassformer/web").rglob("*.js"))
DOCUMENTS = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
MAX_LINE = 100
# Fenced code, code spans, HTML comments and targets of links may be longer than a line.
UNBREAKABLE = re.compile(
    r"^ *(```).*?^ *```$|<!--.*?-->|`[^`\n]*`|\]\([^)\s]*\)", re.DOTALL | re.MULTILINE
)
# A docstring starts with an imperative or a noun.
BAD_START = re.compile(r"(What|Who|Whatever|Whoever|All that|Which|The same|Those)\b")
BANNED = [
    "anew", "nobody", "whoever", "somebody", "so many", "told", "hangs on", "be it", "foretold",
    "by heart", "is asked", "are asked", "asked for", "says that", "tells of", "speaks of",
    "looked at", "a look", "dust", "errand", "errands", "disguise", "disguised", "tap", "taps",
    "blueprint", "blueprints", "house", "way out",
]  # fmt: skip
PATTERN = re.compile(r"\b(?:" + "|".join(BANNED).replace(" ", r"\s+") + r")\b", re.IGNORECASE)
# Texts that must stay: names in files of earlier versions, in results and of the Linux user.
ALLOWED = {
    "CHANGELOG.md": ["`disguise` is", "`--blueprint` is", "(was `blueprints`)", "(tap=)"],
    "SECURITY.md": ["the user `nobody`"],
    "src/glassformer/core/checkpoint_format.py": ['{"blueprint": '],
    "src/glassformer/utils/migrate.py": ['"tap": ', '"begun anew": ', '"blueprint": '],
    "src/glassformer/utils/sandbox/guard.py": ["NOBODY", "the user nobody"],
    "src/glassformer/web/save_checkpoint.js": ['{"blueprint":'],
}


def docstrings(path: Path) -> list[tuple[int, str]]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        (getattr(node, "lineno", 1), text)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, kinds) and (text := ast.get_docstring(node))
    ]


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks"])
def test_docstrings_start_with_an_imperative_or_a_noun(folder):
    bad = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in docstrings(path)
        if BAD_START.match(text)
    ]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("files", [SOURCES + SCRIPTS, DOCUMENTS], ids=["code", "documents"])
def test_no_banned_words(files):
    bad = []
    for path in files:
        name, text = path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
        for allowed in ALLOWED.get(name, ()):
            wrapped = re.compile(re.escape(allowed).replace(r"\ ", r"\s+"))
            assert wrapped.search(text), f"{name}: {allowed} is gone: remove it from ALLOWED"
            text = wrapped.sub(lambda match: re.sub(r"\S", "…", match[0]), text)
        for match in PATTERN.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            bad.append(f"{name}:{line}: {' '.join(match[0].split())}")
    assert not bad, "\n".join(bad)


def test_class_names_are_unique():
    places = defaultdict(list)
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not twice, twice


def test_lines_of_scripts_and_documents_are_short():
    bad = []
    for path in [*SCRIPTS, *DOCUMENTS]:
        text = path.read_text("utf-8")
        if path.suffix == ".md":
            text = UNBREAKABLE.sub(lambda match: "\n" * match[0].count("\n"), text)
        for line, row in enumerate(text.splitlines(), 1):
            if len(row) > MAX_LINE and not row.lstrip("> ").startswith("|"):  # a table
                bad.append(f"{path.relative_to(ROOT)}:{line}: {len(row)} columns")
    assert not bad, "\n".join(bad)
