"""The honest board: what an adder costs, by more than one count, and what is known of it.

The leaderboard counts the numbers that weights are made from, and takes the code that makes them
for free; it tries 10,010 sums. Beside that stand here: what a strict reader counts; how many bits
it takes to write down the numbers, and the form that they are put into; whether all 10^20 sums are
proved, and in which float type; and how many seeds were tried for a trained one.

Bits of a form. The formula's source (what `expand` needs, without annotations and docstrings) and
the config's fields that are not at their defaults, as one text of words: names, signs, numbers.
Each word is written by its place in the list of the words that occur, n·⌈log2 k⌉ bits for n words
of which k are different, and the list itself with 8 bits a letter. It is no shortest description,
but it is the same rule for all, and whoever moves a number from theta into the formula pays for it.
"""

import ast
import hashlib
import io
import math
import tokenize
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..core.checkpoint import digest
from ..core.model import Config, Model
from ..core.param_count import count
from ..interop.inline import formula_source
from ..proof import prove
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..utils.fileio import read_bytes
from ..utils.progress import Progress, ProgressCallback
from ..utils.results import Displayable, Result
from .protocol import check_adder
from .trust import MAX_SUBMISSION_BYTES

OUR_ADDERS = (
    "adder-least", "adder-hinge", "adder-prefix", "adder-36", "addition:digits=10",
    "addition:digits=10,order=ones", "adder-10-7p.safetensors", "adder-10-34p.safetensors",
)  # fmt: skip
SEEDS_TRIED = {  # of what comes with the package, as docs/adders.md tells it
    "adder-10-7p.safetensors": "24 tried, 1 gets there",
    "adder-10-34p.safetensors": "16 tried near the peak; of 6 that ran to the end 5 get there",
}
TASK_SIZE_FIELDS = ("d_vocab", "n_ctx")  # the task's, not the model's


@dataclass(frozen=True)
class AdderEntry(Displayable):
    """One line of the board."""

    name: str
    made: str  # by hand, trained, or someone's file
    order: str  # ones first, or most significant first
    counts: int | None  # the leaderboard's count; None: only its own word is known
    strict: int | None
    numbers: int | None  # bits of all that it is made from
    form: int  # bits of the formula and the config
    known: str  # proved, refuted or unknown, in which float type
    reason: str
    seeds: str
    model: str  # SHA-256

    @property
    def bits(self) -> int:
        """Of all there is to write down."""
        return (self.numbers or 0) + self.form

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"bits": self.bits}


@dataclass(frozen=True)
class AdderTable(Result):
    """The honest board: a line for each adder."""

    entries: list[AdderEntry]

    def __str__(self) -> str:
        lines = []
        for e in self.entries:
            told = ["?" if x is None else f"{x:,}" for x in (e.counts, e.strict, e.numbers)]
            made = f"{told[0]} numbers ({told[1]} strictly), {told[2]} bits and {e.form:,} of form"
            lines += [f"{e.name}: {made}; {e.known}; {e.made}, {e.order}"]
        return "\n".join(lines)


def model_entry(name: str, model: Model, task: Task) -> AdderEntry:
    """A model's line. What can be proved is proved anew."""
    form, counted = check_adder(model, task), count(model)
    maker = {"program": "by hand", "trainer": "trained"}.get(model.provenance.get("maker", ""), "?")
    try:
        proof = prove(model, task)
        known, reason = f"{proof.result} in {proof.dtype}", proof.reason
    except GlassformerError as e:
        known, reason = f"unknown in {model.dtype}", str(e)
    told = SEEDS_TRIED.get(Path(name).name, "not told") if maker == "trained" else "none: by hand"
    order = "ones first" if form.spots[form.first][1] == 0 else "most first"
    return AdderEntry(
        name, maker, order, counted.unique, counted.strict, counted.bits, form_bits(model), known,
        reason, told, digest(model),
    )  # fmt: skip


def file_entry(path: str | Path) -> AdderEntry:
    """The line of someone's file, of which nothing is run: its text is all there is to count."""
    data = read_bytes(Path(path), MAX_SUBMISSION_BYTES)
    try:
        words = source_words(data.decode())
    except (SyntaxError, ValueError, RecursionError) as e:
        raise GlassformerError(f"{path} — expected a file of Python: {str(e)[:80]}") from None
    reason = "code is no model: of a weights file and one fixed forward something could be proved"
    return AdderEntry(
        str(path), "someone's file", "?", None, None, None, text_bits(words), "unknown", reason,
        "not told", hashlib.sha256(data).hexdigest(),
    )  # fmt: skip


def table_entries(
    other_entries: Iterator[AdderEntry] | list[AdderEntry], load: Any, progress: ProgressCallback
) -> Iterator[AdderEntry]:
    """Our adders, by `load(ref) -> (model, task)`, and others after them."""
    for i, ref in enumerate(OUR_ADDERS):
        progress(Progress(i, len(OUR_ADDERS)))
        yield model_entry(ref, *load(ref))
    yield from other_entries


# ── bits of a form ─────────────────────────────────────────────────────────────────────────────
def form_bits(model: Model) -> int:
    """Bits of the formula, if there is one, and of the config."""
    words = [
        word
        for f in fields(Config)
        if f.name not in TASK_SIZE_FIELDS and (value := getattr(model.config, f.name)) != f.default
        for word in (f.name, repr(value))
    ]
    if model.parametrization:
        imports, parts, made = formula_source(model.parametrization)
        words += source_words("\n".join([*sorted(imports), *parts, made]))
    return text_bits(words)


def text_bits(words: list[str]) -> int:
    """n words of which k are different: n·⌈log2 k⌉ bits, and 8 for each letter of the k."""
    different = set(words)
    each = math.ceil(math.log2(len(different))) if len(different) > 1 else 1
    return len(words) * each + 8 * sum(len(word.encode()) for word in different)


def source_words(source: str) -> list[str]:
    """The words of a Python text without comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and _has_docstring(body):
            node.body = node.body[1:] or [ast.Pass()]
    plain = ast.unparse(ast.fix_missing_locations(tree))
    words = tokenize.generate_tokens(io.StringIO(plain).readline)
    blank = (tokenize.NL, tokenize.ENDMARKER, tokenize.ENCODING, tokenize.COMMENT)
    names = {tokenize.NEWLINE: "\n", tokenize.INDENT: ">", tokenize.DEDENT: "<"}
    return [names.get(t.type, t.string) for t in words if t.type not in blank]


def _has_docstring(body: Any) -> bool:
    """Whether a body begins with a docstring."""
    first = body[0] if isinstance(body, list) and body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(
        first.value.value, str
    )  # fmt: skip
