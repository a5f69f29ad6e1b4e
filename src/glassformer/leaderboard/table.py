"""The table of adders, with several cost measures and the proof status of each adder.

The contest counts the numbers from which weights are generated, not the generating code, and tests
10,010 sums. The table adds: a strict count, the bits of the numbers and of the form (formula and
config), whether all 10^20 sums are proved and in which float type, and the seeds tried for trained
adders.

Bits of a form: the formula's source (what `expand` needs, without annotations and docstrings) and
the config's fields with other values than the defaults, as one list of words (names, signs,
numbers). Each of n words is written as its index among the k different words, n·⌈log2 k⌉ bits; the
list of the different words takes 8 bits a character. This is not the shortest description, but the
same rule for all, and a number moved from theta into the formula still counts.
"""

import ast
import hashlib
import io
import math
import tokenize
from collections.abc import Callable, Iterator
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
SEEDS_TRIED = {  # seeds tried for the trained models in the package, see docs/adders.md
    "adder-10-7p.safetensors": "24 tried, 1 gets there",
    "adder-10-34p.safetensors": "16 tried near the peak; of 6 that ran to the end 5 get there",
}
TASK_SIZE_FIELDS = ("d_vocab", "n_ctx")  # config fields determined by the task


@dataclass(frozen=True)
class AdderEntry(Displayable):
    """A row of the table: one adder."""

    name: str
    made: str  # origin: by hand, trained, or a submission file
    order: str  # digit order: ones first, or most significant first
    counts: int | None  # parameters by the contest's rule; None if only claimed
    strict: int | None
    numbers: int | None  # bits of the numbers from which the weights are generated
    form: int  # bits of the formula and the config
    known: str  # proved, refuted or unknown, and the float type
    reason: str
    seeds: str
    model: str  # SHA-256 of the model

    @property
    def bits(self) -> int:
        """Total bits of the numbers and the form."""
        return (self.numbers or 0) + self.form

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"bits": self.bits}


@dataclass(frozen=True)
class AdderTable(Result):
    """The table of adders."""

    entries: list[AdderEntry]

    def __str__(self) -> str:
        lines = []
        for e in self.entries:
            counts = ["?" if x is None else f"{x:,}" for x in (e.counts, e.strict, e.numbers)]
            size = "{} numbers ({} strictly), {} bits".format(*counts)
            lines += [f"{e.name}: {size} and {e.form:,} of form; {e.known}; {e.made}, {e.order}"]
        return "\n".join(lines)


def model_entry(name: str, model: Model, task: Task) -> AdderEntry:
    """Return the table row of a model. This runs the prover."""
    layout, counted = check_adder(model, task), count(model)
    maker = {"program": "by hand", "trainer": "trained"}.get(model.provenance.get("maker", ""), "?")
    try:
        proof = prove(model, task)
        verdict, reason = f"{proof.result} in {proof.dtype}", proof.reason
    except GlassformerError as e:
        verdict, reason = f"unknown in {model.dtype}", str(e)
    trained = maker == "trained"
    seeds = SEEDS_TRIED.get(Path(name).name, "not reported") if trained else "none: by hand"
    order = "ones first" if layout.spots[layout.first][1] == 0 else "most first"
    return AdderEntry(
        name, maker, order, counted.unique, counted.strict, counted.bits, form_bits(model), verdict,
        reason, seeds, digest(model),
    )  # fmt: skip


def file_entry(path: str | Path) -> AdderEntry:
    """Return the table row of a submission file without executing it."""
    data = read_bytes(Path(path), MAX_SUBMISSION_BYTES)
    try:
        words = source_words(data.decode())
    except (SyntaxError, ValueError, RecursionError) as e:
        raise GlassformerError(f"{path} — expected a file of Python, got: {str(e)[:80]}") from None
    reason = "proofs are about weights in a fixed forward pass, not about code"
    return AdderEntry(
        str(path), "someone's file", "?", None, None, None, text_bits(words), "unknown", reason,
        "not reported", hashlib.sha256(data).hexdigest(),
    )  # fmt: skip


def table_entries(
    other_entries: list[AdderEntry],
    load: Callable[[str], tuple[Model, Task]],
    progress: ProgressCallback,
) -> Iterator[AdderEntry]:
    """Yield the rows of Glassformer's adders, followed by `other_entries`."""
    for i, ref in enumerate(OUR_ADDERS):
        progress(Progress(i, len(OUR_ADDERS)))
        yield model_entry(ref, *load(ref))
    yield from other_entries


# ── bits of a form ─────────────────────────────────────────────────────────────────────────────
def form_bits(model: Model) -> int:
    """Count the bits of the config and of the formula, if there is one."""
    words = [
        word
        for f in fields(Config)
        if f.name not in TASK_SIZE_FIELDS and (value := getattr(model.config, f.name)) != f.default
        for word in (f.name, repr(value))
    ]
    if model.parametrization:
        imports, parts, expression = formula_source(model.parametrization)
        words += source_words("\n".join([*sorted(imports), *parts, expression]))
    return text_bits(words)


def text_bits(words: list[str]) -> int:
    """Count the bits of n words, k of them different.

    These are n·⌈log2 k⌉ bits, and 8 bits per character of the k different words.
    """
    different = set(words)
    index_bits = math.ceil(math.log2(len(different))) if len(different) > 1 else 1
    return len(words) * index_bits + 8 * sum(len(word.encode()) for word in different)


def source_words(source: str) -> list[str]:
    """Return the words of Python source code without comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    plain = ast.unparse(ast.fix_missing_locations(tree))
    tokens = tokenize.generate_tokens(io.StringIO(plain).readline)
    skipped = (tokenize.NL, tokenize.ENDMARKER, tokenize.ENCODING, tokenize.COMMENT)
    names = {tokenize.NEWLINE: "\n", tokenize.INDENT: ">", tokenize.DEDENT: "<"}
    return [names.get(t.type, t.string) for t in tokens if t.type not in skipped]
