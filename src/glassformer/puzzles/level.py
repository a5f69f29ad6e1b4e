"""Levels of the puzzles: goal, initial stub, hints, limits and the best known scores.

Each level is a file levels/NN-NAME.toml, where NN is its position in the order.
tests/puzzles/measure.py writes best.json from solutions that are not in the package.
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
AXES = {  # axes of the score and their labels; smaller scores are better
    "parameters": "parameters",
    "strict": "different weights but 0 and ±1",
    "layers": "layers",
    "bits": "bits",
    "lines": "lines",
}
Figures = Annotated[dict[Name, Annotated[int, Meta(ge=0, le=10**9)]], Meta(max_length=len(AXES))]


@dataclass(frozen=True)
class Level:
    """A puzzle: the definition of a model to build."""

    id: str
    number: int  # position in the order, from 1
    title: Name
    kind: Annotated[str, Meta(max_length=5)]  # "taotp" (weights) or "glass" (a source)
    goal: Name
    stub: Annotated[str, Meta(max_length=5_000)]
    hints: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=9)]
    examples: Annotated[dict[Name, Name], Meta(max_length=9)]  # examples to display
    best: Figures  # best known score on each of AXES
    limits: Figures = field(default_factory=dict)  # limits on some axes
    read: Name = ""  # documentation page on the subject
    task_ref: Name = ""  # ref of a registry task, or
    truth: Name = ""  # name in reference_answers.py, with
    tokens: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=100)] = ()
    length: Annotated[int, Meta(ge=1, le=100)] = 0
    end: Name = ""  # token that ends an answer

    @property
    def file(self) -> str:
        """File name of a solution."""
        return f"{self.id}.{self.kind}"

    @property
    def command(self) -> str:
        return f"glassformer puzzle check {self.id} {self.file}"

    def task(self) -> Task:
        """Return the task with all questions and answers of the level."""
        if self.task_ref:
            return resolve.load_task(self.task_ref)
        return cached_puzzle_task(self.id, self.truth, self.tokens, self.length)

    @property
    def judged_by(self) -> str:
        """Description of the check of solutions on the whole domain."""
        task = self.task()
        if task.size > MAX_EXHAUSTIVE_ROWS:
            return f"a proof for all {format_count(task.inputs)} questions"
        every = f"all {task.inputs:,} questions"
        return every if self.kind == "taotp" else f"{every}, and the compiler's proof"

    def to_json(self) -> dict[str, Any]:
        """Return the public fields without the reference answers."""
        fields = asdict(self) | {"hints": [*self.hints], "tokens": [*self.tokens]}
        del fields["truth"]
        return fields | {"file": self.file, "command": self.command}


@cache
def levels() -> dict[str, Level]:
    """Return all levels by id, in their order."""
    best = json.loads((FOLDER / "best.json").read_text("utf-8"))
    out = {}
    for path in sorted((FOLDER / "levels").glob("*.toml")):
        number, _, name = path.stem.partition("-")
        out[name] = _load_level(path, name, int(number), best.get(name, {}))
    return out


def level(name: str) -> Level:
    """Return the level with an id, a title or a number, ignoring case and punctuation."""
    by_id = levels()
    titles = {_normalize(one.title): one.id for one in by_id.values()}
    by_number = {str(one.number): one for one in by_id.values()}
    if name in by_id or name in by_number:
        return by_id.get(name) or by_number[name]
    if (bare := _normalize(name)) in titles:
        return by_id[titles[bare]]
    spelled = {_normalize(one.id): one.id for one in by_id.values()} | titles
    near = {spelled[n] for n in difflib.get_close_matches(bare[:100], spelled, 3, 0.5)}
    raise (
        unknown_name_error("level", name, sorted(near), 3, 0.0)
        if near
        else unknown_name_error("level", name, by_id)
    )


def _normalize(name: str) -> str:
    """Return the letters and digits of a name."""
    return "".join(c for c in name[:1_000].casefold() if c.isalnum())


def _load_level(path: Path, name: str, number: int, best: dict[str, int]) -> Level:
    fields = tomllib.loads(path.read_text("utf-8"))
    fields |= {"id": name, "number": number, "best": best, "task_ref": fields.pop("task", "")}
    parsed = convert(fields, Level, path.name)
    return replace(parsed, stub=parsed.stub.lstrip("\n"))
