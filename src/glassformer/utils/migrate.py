"""Migration of files of earlier versions: old names are converted to current names.

Every reader of such a file uses this module. No current name equals an old one, so up-to-date data
is unchanged. Data of an unexpected shape is also unchanged; the reader's schema rejects it.
"""

from collections.abc import Callable
from typing import Any

from .errors import GlassformerError

RECIPE_FIELDS = {
    "again": "restart_after_steps",
    "alike": "near_tie_fraction",
    "exact": "full_domain_steps",
    "extras": "optional_params",
    "first_rows": "eval_screen_rows",
    "held_share": "holdout_fraction",
    "hopeless_after": "abort_after_steps",
    "hopeless_at": "abort_below_accuracy",
    "last_lr": "final_lr_fraction",
    "spare": "extra_positions",
    "stable": "stop_after_successes",
    "success": "target_accuracy",
    "tap": "train_hook",
    "train_each": "train_rows_per_symbol",
    "train_share": "train_fraction",
    "wait_accuracy": "decay_when_accuracy_above",
    "wait_loss": "decay_when_loss_below",
}
RECIPE_VALUES = {"name": {"suited": "auto"}, "schedule": {"wait": "plateau"}}
MILESTONES = {
    "begun anew": "restarted",
    "exact": "domain checked",
    "generalised": "generalized",
    "memorising": "memorizing",
}
PHASES = {"exact": "full-domain"}
STATUSES = {"hopeless": "aborted"}
PARAMETRIZATION = {"blueprint": "parametrization", "blueprint_source": "parametrization_source"}
COVERAGE = {"of": "coverage"}  # fields of a domain check


def recipe(fields: Any) -> Any:
    """Migrate the fields of a recipe, or of the [set] and [grid] tables of a sweep."""
    values = {name: _value(names) for name, names in RECIPE_VALUES.items()}
    return _apply(_rename(fields, RECIPE_FIELDS), **values)


def recipe_before(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe with its oldest field names, from which ids of sweep runs are hashed."""
    old = {name: {new: o for o, new in names.items()} for name, names in RECIPE_VALUES.items()}
    values = {name: _value(names) for name, names in old.items()}
    renamed: dict[str, Any] = _rename(fields, {new: o for o, new in RECIPE_FIELDS.items()})
    return _apply(renamed, **values)  # type: ignore[no-any-return]


def sweep_spec(data: Any) -> Any:
    """Migrate the spec of a sweep."""
    return _apply(data, recipe=_value(RECIPE_VALUES["name"]), set=recipe, grid=recipe)


def provenance(data: Any) -> Any:
    """Migrate the provenance of a checkpoint."""
    return _apply(_rename(data, PARAMETRIZATION), recipe=recipe)


def checkpoint_header(data: Any) -> Any:
    """Migrate the header of a checkpoint."""
    return _apply(_rename(data, PARAMETRIZATION), provenance=provenance)


def run_header(data: Any) -> Any:
    """Migrate the header of an unfinished run."""

    def identity(data: Any) -> Any:
        return _apply(_rename(data, PARAMETRIZATION), recipe=recipe)

    def milestone_tracker(data: Any) -> Any:
        return _apply(data, seen=lambda steps: _rename(steps, MILESTONES))

    history, events = _each(_evaluation), _each(_event)
    return _apply(
        data, identity=identity, watcher=milestone_tracker, history=history, events=events
    )


def sweep_result(data: Any) -> Any:
    """Migrate the result of one run of a sweep."""
    check = data.get("exact") if isinstance(data, dict) else None
    result = _rename(data, {"exact": "domain_check"})
    if check:
        result["domain_check"] = _rename(check, COVERAGE | {"from": "start_step"})
    return _apply(
        result, recipe=recipe, status=_value(STATUSES), events=_each(_event),
        history=_each(_evaluation),
    )  # fmt: skip


def ablation_result(data: Any) -> Any:
    """Migrate the results of one ablation."""
    runs = _each(lambda run: _apply(run, status=_value(STATUSES)))
    return _apply(data, recipe=recipe, runs=runs)


def _evaluation(data: Any) -> Any:
    return _apply(data, phase=_value(PHASES))


def _event(data: Any) -> Any:
    if isinstance(data, dict) and data.get("kind") == "exact":
        data = _apply(data, data=lambda check: _rename(check, COVERAGE))
    return _apply(data, kind=_value(MILESTONES))


def _rename(data: Any, names: dict[str, str]) -> Any:
    if not isinstance(data, dict):
        return data
    for old, new in names.items():
        if old in data and new in data:
            raise GlassformerError(f"{old} and {new} are the same field. Leave out {old}")
    return {names.get(name, name): value for name, value in data.items()}


def _value(names: dict[str, str]) -> Callable[[Any], Any]:
    """Return a function that renames a string or the strings in a list."""

    def rename(value: Any) -> Any:
        if isinstance(value, list):
            return [rename(item) for item in value]
        return names.get(value, value) if isinstance(value, str) else value

    return rename


def _each(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda data: [change(item) for item in data] if isinstance(data, list) else data


def _apply(data: Any, /, **changes: Callable[[Any], Any]) -> Any:
    """Return `data` with the given fields changed if it is a dict that has them."""
    if not isinstance(data, dict):
        return data
    return {k: changes[k](v) if k in changes else v for k, v in data.items()}
