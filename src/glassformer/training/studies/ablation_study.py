"""Ablation studies: train a recipe with one part removed at a time, over several seeds.

An ablation changes only some of the recipe's fields or of the task's options. If a folder is given,
each result is one file, written when all its seeds are trained; saved results are not repeated.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from msgspec import Meta, to_builtins

from ... import registry
from ...tasks.base import Rows, Task
from ...utils import migrate
from ...utils.errors import DAMAGED_FILE, GlassformerError, unknown_name_error
from ...utils.fileio import check_writable, exclusive_lock, make_folder, write_atomically
from ...utils.limits import MAX_MEMBERS, check_int_range
from ...utils.progress import Progress, ProgressCallback
from ...utils.results import Result
from ...utils.typed_json import JsonObject, Ref, Seed, Settings, convert, read_json
from ...verification.evaluation import correct_tokens
from ..data import example_length
from ..events import Event, percent
from ..loop import Trainer
from ..recipe import Recipe
from ..result import Training
from ..run_file import describe_differences
from ..train_hooks import TRAIN_HOOKS

BASELINE = "baseline"
# Fields without effect in a model without layers.
LAYER_FIELDS = {"train_hook", "mask", "n_layers", "d_mlp", "n_heads"}
Word = Annotated[str, Meta(max_length=100)]
Share = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True)
class Ablation:
    """A named change of a recipe or a task, and its expected effect."""

    name: str
    expected_effect: str
    recipe_changes: Mapping[str, Any] = field(default_factory=dict)
    task_options: Mapping[str, str] = field(default_factory=dict)


def _heads(n: int, effect: str) -> Ablation:
    # d_head=0 fills the stream's width.
    return Ablation(f"heads-{n}", effect, {"n_heads": n, "d_head": 0})


def _width(n: int, effect: str) -> Ablation:
    return Ablation(f"d-model-{n}", effect, {"d_model": n, "d_head": 0})


ABLATIONS = {a.name: a for a in (
    Ablation(BASELINE, "nothing: the recipe itself"),
    Ablation("no-positions", "order, although a causal mask allows counting",
             {"positions": "none"}),
    Ablation("no-mask", "generation: in training it reads the token to predict", {"mask": "none"}),
    Ablation("one-layer", "two-step lookups: find digits, then use them", {"n_layers": 1}),
    Ablation("no-mlp", "everything but weighted means: tables, carries", {"d_mlp": 0}),
    Ablation("no-attention", "everything: each position sees its own token only",
             {"train_hook": "no-attention"}),
    Ablation("no-residual", "memory: a block must pass on everything later blocks need",
             {"train_hook": "no-residual"}),
    Ablation("no-layer-norm", "stability: the stream can grow without limit", {"norm": "none"}),
    Ablation("no-weight-decay", "little, unless training rows are few", {"weight_decay": 0.0}),
    Ablation("most-first", "the first digit: it depends on all carries",
             task_options={"order": "most"}),
    _heads(1, "attention to two positions at once"),
    _heads(2, "little: two heads of half the size"),
    _heads(4, "little: four heads of a quarter of the size"),
    _width(4, "nearly all: four numbers for digit, position and carry"),
    _width(8, "much: digits share dimensions"),
    _width(16, "little, but training takes longer"),
    _width(32, "nothing, for tasks of a dozen tokens"),
)}  # fmt: skip


# ── plan ───────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class AblationCase:
    """A baseline changed by an ablation, ready to be trained."""

    ablation: Ablation
    task: Task
    recipe: Recipe

    @property
    def name(self) -> str:
        return self.ablation.name


@dataclass(frozen=True)
class SkippedAblation:
    """An ablation that does not apply to the baseline."""

    name: str
    why: str


def plan_ablations(
    task: Task, recipe: Recipe, names: Sequence[str] = ()
) -> tuple[list[AblationCase], list[SkippedAblation]]:
    """Return the baseline with the selected ablations, and the ablations that do not apply.

    `names` selects ablations. Defaults to all of them.
    """
    if unknown := [n for n in names if n not in ABLATIONS]:
        raise unknown_name_error("ablation", unknown[0], ABLATIONS, max_matches=3)
    _check_model(task, recipe)
    chosen = [a for a in ABLATIONS.values() if not names or a.name in (BASELINE, *names)]
    cases: list[AblationCase] = []
    skipped: list[SkippedAblation] = []
    for ablation in chosen:
        try:
            cases.append(_apply_ablation(ablation, task, recipe))
        except GlassformerError as e:
            skipped.append(SkippedAblation(ablation.name, str(e)))
    return cases, skipped


def _apply_ablation(ablation: Ablation, task: Task, recipe: Recipe) -> AblationCase:
    """Return the changed baseline. Raise an error if the ablation does not apply."""
    changes = ablation.recipe_changes
    if ablation.name == BASELINE:
        return AblationCase(ablation, task, recipe)
    if recipe.train_hook not in ("", changes.get("train_hook", recipe.train_hook)):
        hook = f"train_hook={recipe.train_hook}"
        raise GlassformerError(f"the baseline has {hook}, and a model has one")
    if not recipe.n_layers and changes.keys() & LAYER_FIELDS:
        raise GlassformerError("the baseline has no layers")
    options, changed = ablation.task_options, replace(recipe, **changes)
    changed_task = _with_options(task, options) if options else task
    _check_model(changed_task, changed)
    before, after = (r.d_head or r.d_model // r.n_heads for r in (recipe, changed))
    same = replace(recipe, d_head=before) == replace(changed, d_head=after)
    if changes.get("n_heads") == recipe.n_heads or (same and changed_task.ref == task.ref):
        raise GlassformerError("is the baseline")
    return AblationCase(ablation, changed_task, changed)


def _with_options(task: Task, options: Mapping[str, str]) -> Task:
    name = registry.ref_head(task.ref)
    entry = registry.find("task", name)
    for option, value in options.items():
        if option not in entry.options or value not in entry.options[option].choices:
            raise GlassformerError(f"{name} has no {option}={value}")
    texts = registry.split_ref(task.ref, entry.options)[1] | dict(options)
    changed: Task = entry.build(**entry.parse(texts))
    return changed


def _check_model(task: Task, recipe: Recipe) -> None:
    """Raise an error if the recipe does not define a model."""
    recipe.config(len(task.vocabulary), example_length(task))


# ── training ───────────────────────────────────────────────────────────────────────────────────
class SeedOutcome(JsonObject):
    """Result of one seed of an ablation."""

    seed: Seed
    accuracy: Share  # autoregressive accuracy
    # Teacher-forced accuracy; None for causal models, where it equals `accuracy`.
    forced: Share | None
    steps: Annotated[int, Meta(ge=0, le=10**12)]
    seconds: float
    status: Word  # status of the Training


class SavedAblation(JsonObject):
    """Schema of the file of an ablation."""

    name: Word
    task: Ref
    recipe: Settings
    runs: Annotated[list[SeedOutcome], Meta(max_length=MAX_MEMBERS)]


@dataclass(frozen=True)
class AblationResult:
    """Results of an ablation over all seeds."""

    case: AblationCase
    outcomes: tuple[SeedOutcome, ...]

    @property
    def accuracy(self) -> list[float]:
        """Accuracy by seed."""
        return [o.accuracy for o in self.outcomes]

    @property
    def forced(self) -> list[float]:
        """Teacher-forced accuracy by seed, or an empty list for causal models."""
        return [o.forced for o in self.outcomes if o.forced is not None]

    def summary_lines(self) -> list[tuple[str, list[float]]]:
        """Return labels with accuracies by seed; models without a causal mask have two lines."""
        name = self.case.name
        if not self.forced:
            return [(name, self.accuracy)]
        return [
            (f"{name}, teacher-forced", self.forced), (f"{name}, autoregressive", self.accuracy)
        ]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return the contents of the result's file."""
        case = self.case
        saved = SavedAblation(case.name, case.task.ref, case.recipe.to_json(), [*self.outcomes])
        data: dict[str, Any] = to_builtins(saved)
        return data


@dataclass(frozen=True)
class AblationProgress:
    """Progress of a study: an ablation began, its training had an event, or it has a result."""

    name: str
    event: Event | None = None
    result: AblationResult | None = None


def train_ablations(
    cases: Sequence[AblationCase], seeds: Sequence[int], folder: str | Path | None = None,
    threads: int = 1,
) -> Iterator[AblationProgress]:  # fmt: skip
    """Train the cases, the seeds of each as one ensemble; yield progress."""
    saved = [_read_outcomes(case, folder) for case in cases]  # all files, before any training
    for case, outcomes in zip(cases, saved, strict=True):
        yield AblationProgress(case.name)
        if left := [s for s in seeds if s not in outcomes]:
            yield from _train_case(case, left, outcomes, threads)
            if folder:
                whole = AblationResult(case, tuple(outcomes[s] for s in sorted(outcomes)))
                text = json.dumps(whole.to_json(), indent=1) + "\n"
                write_atomically(_path(folder, case), text.encode())
        result = AblationResult(case, tuple(outcomes[s] for s in seeds))
        yield AblationProgress(case.name, result=result)


def _train_case(
    case: AblationCase, seeds: list[int], outcomes: dict[int, SeedOutcome], threads: int
) -> Iterator[AblationProgress]:
    """Train a case with the given seeds and add their results to `outcomes`."""
    trainer = Trainer(case.task, case.recipe, seeds, threads=threads)
    try:
        for event in trainer.events():
            if event.kind == "done":
                training = event.data["training"]
                outcomes[training.seed] = _outcome(case, training, trainer.data.test_rows)
            yield AblationProgress(case.name, event)
    except GlassformerError:
        if not outcomes.keys() >= set(seeds):  # If the last seed diverged, all are present.
            raise


def _outcome(case: AblationCase, t: Training, test_rows: Rows) -> SeedOutcome:
    forced = None
    if t.model.config.mask != "causal":
        hook = TRAIN_HOOKS[case.recipe.train_hook]()
        model = t.model.torch()
        good = correct_tokens(model, case.task, test_rows, hook, teacher_forced=True)
        forced = float(good.all(1).mean())
    return SeedOutcome(t.seed, t.accuracy, forced, t.steps, t.seconds, t.status)


# ── files ──────────────────────────────────────────────────────────────────────────────────────
def _path(folder: str | Path, case: AblationCase) -> Path:
    return Path(folder, f"{case.name}.json")


def _read_outcomes(case: AblationCase, folder: str | Path | None) -> dict[int, SeedOutcome]:
    """Return the saved outcomes of a case by seed; its file must be of the same study."""
    if not folder or not (path := _path(folder, case)).exists():
        return {}
    try:
        saved = convert(migrate.ablation_result(read_json(path, finite=False)), SavedAblation)
    except GlassformerError:
        wanted = "expected a result of an ablation study. Remove it, or use another folder"
        raise GlassformerError(f"{path} — {wanted}", code=DAMAGED_FILE) from None
    before = {"task": saved.task, **saved.recipe}
    now = {"task": case.task.ref, **case.recipe.to_json()}
    if differences := describe_differences({k: before.get(k) for k in now}, now):
        raise GlassformerError(f"{path} — is of another study: {differences}. Use another folder")
    return {run.seed: run for run in saved.runs}


# ── the study ──────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class AblationStudy(Result):
    """The results of an ablation study."""

    task: str
    recipe: Recipe
    seeds: list[int]
    results: list[AblationResult]
    skipped: list[SkippedAblation]

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task, "recipe": self.recipe.to_json(), "seeds": self.seeds,
            "ablations": [_row(r) for r in self.results],
            "skipped": [asdict(s) for s in self.skipped],
        }  # fmt: skip

    @property
    def title(self) -> str:
        several = len(self.seeds) > 1
        seeds = f"seeds {self.seeds[0]} to {self.seeds[-1]}" if several else f"seed {self.seeds[0]}"
        return f"{self.task}, recipe {self.recipe.name}, {seeds}"

    def __str__(self) -> str:
        lines = [f"{self.title}, at most {self.recipe.steps:,} steps; test rows right:"]
        for result in self.results:
            for label, values in result.summary_lines():
                spread = f"{percent(min(values))} … {percent(max(values))}"
                lines += [f"{label}: {percent(fmean(values))} ({spread})"]
        return "\n".join([*lines, *(f"skipped {s.name}: {s.why}" for s in self.skipped)])


def run_ablation_study(
    task: Task, recipe: Recipe, *, seeds: Sequence[int], only: str | Sequence[str],
    out: Path | None, threads: int, progress: ProgressCallback | None,
) -> AblationStudy:  # fmt: skip
    """Implement `api.ablation_study`. Progress is in training steps over all cases."""
    names = [only] if isinstance(only, str) else list(only)
    check_int_range("ablation_study — the number of seeds", len(seeds), 1, MAX_MEMBERS)
    # The full-domain phase would correct the errors of an ablation.
    recipe = replace(recipe, full_domain_steps=0)
    cases, skipped = plan_ablations(task, recipe, names)
    if out:
        check_writable(make_folder(out) / "baseline.json")
    results = []
    with exclusive_lock(out and out / "ablations"):
        for news in train_ablations(cases, seeds, out, threads):
            if news.result:
                results.append(news.result)
            if progress:
                done, total = len(results) * recipe.steps, len(cases) * recipe.steps
                if news.event and not news.result:
                    done += news.event.step
                stage = f"{news.name}, {min(len(results) + 1, len(cases))} of {len(cases)}"
                progress(Progress(done, total, stage=stage))
    return AblationStudy(task.ref, recipe, list(seeds), results, skipped)


def _row(result: AblationResult) -> dict[str, Any]:
    def summary(values: list[float]) -> dict[str, float] | None:
        return {"mean": fmean(values), "min": min(values), "max": max(values)} if values else None

    saved, ablation = result.to_json(), result.case.ablation
    return {
        "name": saved["name"], "expected": ablation.expected_effect, "task": saved["task"],
        "changed": {**ablation.recipe_changes, **ablation.task_options},
        "accuracy": summary(result.accuracy), "forced": summary(result.forced),
        "runs": saved["runs"],
    }  # fmt: skip
