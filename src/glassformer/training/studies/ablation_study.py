"""An ablation study: every ablation of a recipe in one call (`gf.ablation_study`)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from ...tasks.base import Task
from ...utils.fileio import check_writable, exclusive_lock, make_folder
from ...utils.limits import MAX_MEMBERS, check_int_range
from ...utils.progress import Progress, ProgressCallback
from ...utils.results import Result
from ..events import percent
from ..recipe import Recipe
from .ablations import AblationResult, SkippedAblation, plan_ablations, train_ablations


@dataclass(frozen=True)
class AblationStudy(Result):
    """What breaks: a recipe, trained with one thing taken away at a time."""

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
        these = f"{self.seeds[0]} to {self.seeds[-1]}" if len(self.seeds) > 1 else self.seeds[0]
        return f"{self.task}, recipe {self.recipe.name}, seed{'s' * (len(self.seeds) > 1)} {these}"

    def __str__(self) -> str:
        lines = [f"{self.title}, at most {self.recipe.steps:,} steps; test rows right:"]
        for result in self.results:
            for label, values in result.summary_lines():
                spread = f"{percent(min(values))} … {percent(max(values))}"
                lines += [f"{label}: {percent(fmean(values))} ({spread})"]
        return "\n".join([*lines, *(f"skipped {s.name}: {s.why}" for s in self.skipped)])


def run_ablation_study(
    task: Task, recipe: Recipe, *, seeds: Sequence[int] = (0, 1, 2),
    only: str | Sequence[str] = (), out: str | Path | None = None, threads: int = 1,
    progress: ProgressCallback | None = None,
) -> AblationStudy:  # fmt: skip
    """Implement `api.ablation_study`. Progress is in training steps over all cases."""
    names = [only] if isinstance(only, str) and only else list(only)
    check_int_range("ablation_study — the number of seeds", len(seeds), 1, MAX_MEMBERS)
    # what is learned without the whole domain: of a last phase nobody could say what it mended
    recipe = replace(recipe, full_domain_steps=0)
    cases, skipped = plan_ablations(task, recipe, names)
    folder = Path(out) if out else None
    if folder:
        check_writable(make_folder(folder) / "baseline.json")
    results = []
    with exclusive_lock(folder and folder / "ablations"):
        for news in train_ablations(task, recipe, seeds, names, folder, threads):
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

    found = result.to_json()
    return {
        "name": found["name"],
        "expected": result.case.ablation.expected_effect,
        "task": found["task"],
        "changed": {**result.case.ablation.recipe_changes, **result.case.ablation.task_options},
        "accuracy": summary(result.accuracy),
        "forced": summary(result.forced),
        "runs": found["runs"],
    }
