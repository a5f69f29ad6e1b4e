"""Ablations: take one thing away, train again over several seeds, and see what breaks.

    for news in train_ablations(task, recipe, seeds=[0, 1, 2], names=["no-mask", "one-layer"]):
        if news.result:
            print(news.name, news.result.accuracy)

An ablation is a change of the recipe's fields (or of the task's options) and of nothing else. With
a folder, each result is one file, written when all its seeds are trained, and not done again.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, to_builtins

from ... import registry
from ...tasks.base import Rows, Task
from ...utils import migrate
from ...utils.errors import GlassformerError, unknown_name_error
from ...utils.fileio import write_atomically
from ...utils.limits import MAX_MEMBERS
from ...utils.typed_json import JsonObject, Ref, Seed, Settings, convert, read_json
from ...verification.evaluation import correct_tokens
from ..data import example_length
from ..events import Event
from ..loop import Trainer
from ..recipe import Recipe
from ..result import Training
from ..train_hooks import TRAIN_HOOKS

BASELINE = "baseline"
LAYER_FIELDS = {
    "train_hook",
    "mask",
    "n_layers",
    "d_mlp",
    "n_heads",
}  # a model without layers has none
Word = Annotated[str, Meta(max_length=100)]
Share = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True)
class Ablation:
    """A named change, and in one line what one expects it to break."""

    name: str
    expected_effect: str
    recipe_changes: Mapping[str, Any] = field(default_factory=dict)  # fields of the recipe
    task_options: Mapping[str, str] = field(default_factory=dict)  # options of the task


def _heads(n: int, help: str) -> Ablation:
    # together as wide as the stream
    return Ablation(f"heads-{n}", help, {"n_heads": n, "d_head": 0})


def _width(n: int, help: str) -> Ablation:
    # the MLP stays as wide as it was
    return Ablation(f"d-model-{n}", help, {"d_model": n, "d_head": 0})


ABLATIONS = {
    a.name: a
    for a in (
        Ablation(BASELINE, "nothing: the recipe as it is"),
        Ablation(
            "no-positions",
            "order; but a causal mask lets it count what it sees",
            {"positions": "none"},
        ),
        Ablation(
            "no-mask", "honesty: in training it reads the token it is to say", {"mask": "none"}
        ),
        Ablation("one-layer", "what takes two looks: find digits, then use them", {"n_layers": 1}),
        Ablation("no-mlp", "whatever is not a weighted mean: tables, carries", {"d_mlp": 0}),
        Ablation(
            "no-attention",
            "all: each position knows its own token only",
            {"train_hook": "no-attention"},
        ),
        Ablation(
            "no-residual",
            "memory: a block must hand on all that later ones need",
            {"train_hook": "no-residual"},
        ),
        Ablation("no-layer-norm", "steadiness: the stream may grow as it likes", {"norm": "none"}),
        Ablation("no-weight-decay", "little, unless training rows are few", {"weight_decay": 0.0}),
        Ablation(
            "most-first",
            "the first digit: it depends on all carries",
            task_options={"order": "most"},
        ),
        _heads(1, "looking at two places at once"),
        _heads(2, "little: two heads of half the size"),
        _heads(4, "little: four heads of a quarter of the size"),
        _width(4, "nearly all: four numbers for digit, place and carry"),
        _width(8, "much: digits crowd each other"),
        _width(16, "little, but it takes longer"),
        _width(32, "nothing, for tasks of a dozen tokens"),
    )
}


# ── what is to be done ─────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class AblationCase:
    """An ablation of a certain baseline, ready to be trained."""

    ablation: Ablation
    task: Task
    recipe: Recipe

    @property
    def name(self) -> str:
        return self.ablation.name


@dataclass(frozen=True)
class SkippedAblation:
    """An ablation that this baseline cannot have."""

    name: str
    why: str


def plan_ablations(
    task: Task, recipe: Recipe, names: Sequence[str] = ()
) -> tuple[list[AblationCase], list[SkippedAblation]]:
    """The baseline and the ablations of these names (none: all), and those that do not apply."""
    if unknown := [n for n in names if n not in ABLATIONS]:
        raise unknown_name_error("ablation", unknown[0], ABLATIONS, max_matches=3)
    _check(task, recipe)
    wanted = [a for a in ABLATIONS.values() if not names or a.name in (BASELINE, *names)]
    found = [_apply_ablation(ablation, task, recipe) for ablation in wanted]
    return [c for c in found if isinstance(c, AblationCase)], [
        s for s in found if isinstance(s, SkippedAblation)
    ]


def _apply_ablation(
    ablation: Ablation, task: Task, recipe: Recipe
) -> AblationCase | SkippedAblation:
    """The baseline with the change, or why there is no such thing."""
    if ablation.name == BASELINE:
        return AblationCase(ablation, task, recipe)
    if "train_hook" in ablation.recipe_changes and recipe.train_hook not in (
        "",
        ablation.recipe_changes["train_hook"],
    ):
        return SkippedAblation(
            ablation.name,
            f"the baseline has train_hook={recipe.train_hook}, and a model has one",
        )
    if not recipe.n_layers and ablation.recipe_changes.keys() & LAYER_FIELDS:
        return SkippedAblation(ablation.name, "the baseline has no layers")
    try:
        goal = _with_options(task, ablation.task_options)
        changed = AblationCase(ablation, goal, replace(recipe, **ablation.recipe_changes))
        _check(changed.task, changed.recipe)
    except GlassformerError as e:
        return SkippedAblation(ablation.name, str(e))
    same_heads = ablation.recipe_changes.get("n_heads") == recipe.n_heads
    if same_heads or (changed.task.ref, _with_explicit_head_size(changed.recipe)) == (
        task.ref,
        _with_explicit_head_size(recipe),
    ):
        return SkippedAblation(ablation.name, "is the baseline")
    return changed


def _with_options(task: Task, options: Mapping[str, str]) -> Task:
    """The task with other options, where it has them."""
    if not options:
        return task
    name = registry.ref_head(task.ref)
    entry = registry.find("task", name)
    for option, value in options.items():
        if option not in entry.options or value not in entry.options[option].choices:
            raise GlassformerError(f"{name} has no {option}={value}")
    texts = registry.split_ref(task.ref, entry.options)[1] | dict(options)
    changed: Task = entry.build(**entry.parse(texts))
    return changed


def _check(task: Task, recipe: Recipe) -> None:
    """An error if no model can be made of a recipe."""
    recipe.config(len(task.vocabulary), example_length(task))


def _with_explicit_head_size(recipe: Recipe) -> Recipe:
    """The recipe with its heads' size said."""
    return replace(recipe, d_head=recipe.d_head or recipe.d_model // recipe.n_heads)


# ── doing it ───────────────────────────────────────────────────────────────────────────────────
class SeedOutcome(JsonObject):
    """What became of one seed."""

    seed: Seed
    accuracy: Share  # of what the model says by itself
    # of the next token after the right ones; None for causal models, where it is the same
    forced: Share | None
    steps: Annotated[int, Meta(ge=0, le=10**12)]
    seconds: float
    status: Word  # status of its Training


class SavedAblation(JsonObject):
    """Schema of an ablation file."""

    name: Word
    task: Ref
    recipe: Settings
    runs: Annotated[list[SeedOutcome], Meta(max_length=MAX_MEMBERS)]


@dataclass(frozen=True)
class AblationResult:
    """An ablation, trained."""

    case: AblationCase
    outcomes: tuple[SeedOutcome, ...]

    @property
    def accuracy(self) -> list[float]:
        """One a seed."""
        return [o.accuracy for o in self.outcomes]

    @property
    def forced(self) -> list[float]:
        """One a seed; empty for causal models."""
        return [o.forced for o in self.outcomes if o.forced is not None]

    def summary_lines(self) -> list[tuple[str, list[float]]]:
        """What is shown: a label and a share a seed; two lines for a model that can cheat."""
        name = self.case.name
        if not self.forced:
            return [(name, self.accuracy)]
        by_itself = (f"{name}, autoregressive", self.accuracy)
        return [(f"{name}, teacher-forced", self.forced), by_itself]

    def to_json(self) -> dict[str, Any]:
        """All that a file needs to be known again."""
        case, runs = self.case, [*self.outcomes]
        saved: dict[str, Any] = to_builtins(
            SavedAblation(case.name, case.task.ref, case.recipe.to_json(), runs)
        )
        return saved


@dataclass(frozen=True)
class AblationProgress:
    """An ablation began, its training had an event, or it is done and has a result."""

    name: str
    event: Event | None = None
    result: AblationResult | None = None


def train_ablations(
    task: Task, recipe: Recipe, seeds: Sequence[int] = (0, 1, 2), names: Sequence[str] = (),
    folder: str | Path | None = None, threads: int = 1,
) -> Iterator[AblationProgress]:  # fmt: skip
    """Trains the baseline and ablations, all seeds of each at once; yields what happens."""
    cases, _ = plan_ablations(task, recipe, names)
    # a folder of something else is refused now
    found = {case.name: _read_outcomes(case, folder) for case in cases}
    for case in cases:
        yield AblationProgress(case.name)
        outcomes = found[case.name]
        if left := [s for s in seeds if s not in outcomes]:
            yield from _train_case(case, left, outcomes, threads)
            if folder:
                whole = AblationResult(case, tuple(outcomes[s] for s in sorted(outcomes)))
                text = json.dumps(whole.to_json(), indent=1) + "\n"
                write_atomically(_path(folder, case), text.encode())
        yield AblationProgress(
            case.name, result=AblationResult(case, tuple(outcomes[s] for s in seeds))
        )


def _train_case(
    case: AblationCase, seeds: list[int], found: dict[int, SeedOutcome], threads: int
) -> Iterator[AblationProgress]:
    """Trains a case with these seeds, and puts what became of them into `found`."""
    trainer = Trainer(case.task, case.recipe, seeds, threads=threads)
    try:
        for event in trainer.events():
            if event.kind == "done":
                training = event.data["training"]
                found[training.seed] = _outcome(case, training, trainer.data.test_rows)
            yield AblationProgress(case.name, event)
    except GlassformerError:
        # else the last one left has diverged, which is a result
        if not found.keys() >= set(seeds):
            raise


def _outcome(case: AblationCase, t: Training, test_rows: Rows) -> SeedOutcome:
    forced = None
    if t.model.config.mask != "causal":
        good = correct_tokens(
            t.model.torch(),
            case.task,
            test_rows,
            TRAIN_HOOKS[case.recipe.train_hook](),
            teacher_forced=True,
        )
        forced = float(good.all(1).mean())
    return SeedOutcome(t.seed, t.accuracy, forced, t.steps, t.seconds, t.status)


# ── on disk ────────────────────────────────────────────────────────────────────────────────────
def _path(folder: str | Path, case: AblationCase) -> Path:
    return Path(folder, f"{case.name}.json")


def _read_outcomes(case: AblationCase, folder: str | Path | None) -> dict[int, SeedOutcome]:
    """What is known, by seed. A file that is something else is not ours to overwrite: an error."""
    if not folder or not (path := _path(folder, case)).exists():
        return {}
    try:
        saved = convert(migrate.ablation_result(read_json(path, finite=False)), SavedAblation)
    except GlassformerError:
        what = "not a result of ablate, or a damaged one"
        raise GlassformerError(f"{path} — {what}; remove it, or use another folder") from None
    was = {"task": saved.task, **saved.recipe}
    now = {"task": case.task.ref, **case.recipe.to_json()}
    if differ := [k for k in now if was.get(k) != now[k]]:
        which = ", ".join(f"{k}={was.get(k)} (now {now[k]})" for k in differ[:3])
        raise GlassformerError(f"{path} — is of another experiment: {which}; use another folder")
    return {run.seed: run for run in saved.runs}
