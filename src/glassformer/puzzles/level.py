"""Levels: what is asked, with a stub to begin from, hints, limits, and the best that is known.

One file of text a level, in levels/, with its place in the order before its name: 07-one-back.toml.
What is best known is in best.json, which tests/puzzles/measure.py writes from real solutions; these
are not in the package.
"""

import difflib
import json
import sys
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from .. import resolve
from ..tasks.base import Task
from ..utils.errors import unknown_name_error
from ..utils.limits import format_count
from ..utils.typed_json import Name, convert
from ..verification.evaluation import MAX_EXHAUSTIVE_ROWS
from .questions import cached_puzzle_task

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent
KINDS = ("taotp", "glass")
AXES = {  # what is scored, and what it is called; less is better
    "parameters": "parameters",
    "strict": "different weights but 0 and ±1",
    "layers": "layers",
    "bits": "bits",
    "lines": "lines",
}
Figures = Annotated[dict[Name, Annotated[int, Meta(ge=0, le=10**9)]], Meta(max_length=len(AXES))]


@dataclass(frozen=True)
class Level:
    """What a person is asked to build."""

    id: str
    number: int  # from 1
    title: Name
    kind: Annotated[str, Meta(max_length=5)]  # "taotp": weights as text; "glass": a source
    goal: Name
    stub: Annotated[str, Meta(max_length=5_000)]
    hints: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=9)]
    examples: Annotated[dict[Name, Name], Meta(max_length=9)]  # shown, not judged
    best: Figures  # best known score on each of AXES
    limits: Figures = field(default_factory=dict)  # limits on some of AXES
    read: Name = ""  # documentation page on the subject
    task_ref: Name = ""  # a task of the registry, or
    truth: Name = ""  # a name of reference_answers.py, with
    tokens: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=100)] = ()
    length: Annotated[int, Meta(ge=1, le=100)] = 0
    end: Name = ""  # the token that ends an answer

    @property
    def file(self) -> str:
        """What a solution may be called."""
        return f"{self.id}.{self.kind}"

    @property
    def command(self) -> str:
        return f"glassformer puzzle check {self.id} {self.file}"

    def task(self) -> Task:
        """What is right."""
        if self.task_ref:
            return resolve.load_task(self.task_ref)
        return cached_puzzle_task(self.id, self.truth, self.tokens, self.length)

    @property
    def judged_by(self) -> str:
        """How the whole domain is gone through, in words."""
        task = self.task()
        if task.size > MAX_EXHAUSTIVE_ROWS:
            return f"a proof for all {format_count(task.inputs)} questions"
        every = f"all {task.inputs:,} questions"
        return every if self.kind == "taotp" else f"{every}, and the compiler's proof"

    def to_json(self) -> dict[str, Any]:
        """All that may be shown of it. (No solution is known here.)"""
        told = asdict(self) | {"hints": [*self.hints], "tokens": [*self.tokens]}
        del told["truth"]
        return told | {"file": self.file, "command": self.command}


@cache
def levels() -> dict[str, Level]:
    """All levels by their ids, in the order in which they teach."""
    best = json.loads((FOLDER / "best.json").read_text("utf-8"))
    out = {}
    for path in sorted((FOLDER / "levels").glob("*.toml")):
        number, _, name = path.stem.partition("-")
        out[name] = _load_level(path, name, int(number), best.get(name, {}))
    return out


def level(name: str) -> Level:
    """The level of this id, or of this title, however it is written."""
    known = levels()
    titles = {_normalize(each.title): each.id for each in known.values()}
    if name in known:
        return known[name]
    if (bare := _normalize(name)) in titles:
        return known[titles[bare]]
    spelled = {_normalize(each.id): each.id for each in known.values()} | titles
    near = {spelled[n] for n in difflib.get_close_matches(bare[:100], spelled, 3, 0.5)}
    raise (
        unknown_name_error("level", name, sorted(near), 3, 0.0)
        if near
        else unknown_name_error("level", name, known)
    )


def _normalize(name: str) -> str:
    """A name by its letters and digits alone."""
    return "".join(c for c in name[:1_000].casefold() if c.isalnum())


def _load_level(path: Path, name: str, number: int, best: dict[str, int]) -> Level:
    fields = tomllib.loads(path.read_text("utf-8"))
    fields |= {"id": name, "number": number, "best": best, "task_ref": fields.pop("task", "")}
    made = convert(fields, Level, path.name)
    return replace(made, stub=made.stub.lstrip("\n"))
