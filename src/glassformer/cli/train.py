"""The command train: train a model on a task by a recipe."""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Exit, Option

from .. import api, coerce
from ..tasks.token_layout import answer_names
from ..training.events import Event, describe_event, percent
from ..training.full_domain_phase import ALL_ROWS, DOMAIN_CHECKED, EXACT, SAMPLED_ROWS
from ..training.loss_floor import loss_plateaus
from ..training.run_file import seed_files, state_path
from ..training.ui.terminal import STOP_MESSAGE, LiveView, LogView
from ..utils import limits
from ..utils.errors import GlassformerError
from ..verification.counts import CONFIDENCE, upper_bound
from .common import app, check_figure, err, out, parse_settings, print_json, print_text, save_figure
from .options import Json, RecipeName, Settings, TaskArgument, Threads

if TYPE_CHECKING:
    from ..tasks.base import Task
    from ..training.loop import Trainer
    from ..training.result import Training


@app.command("train")
def train_(
    task: TaskArgument,
    file: Annotated[Path, Option("--out", help="FILE.safetensors for the model")],
    recipe: RecipeName = "",
    seed: Annotated[int, Option(
        help="seed of weights and batches, from 0; equal seeds give equal models")] = 0,
    settings: Settings = None,
    parametrization: Annotated[str | None, Option(
        help="parametrization: low-rank:rank=4, … (glassformer list parametrizations)")] = None,
    init_from: Annotated[str | None, Option(
        help="model whose weights and shape to start from")] = None,
    teacher: Annotated[str | None, Option(
        help="model whose answers to learn instead of the task's")] = None,
    seeds: Annotated[int, Option(
        help="number of seeds to train at once; each gets its own file")] = 1,
    device: Annotated[str, Option(help="cpu, cuda or mps")] = "cpu",
    resume: Annotated[bool, Option("--resume",
        help="continue the interrupted run of --out")] = False,
    history: Annotated[Path | None,
        Option(help="FILE.jsonl or FILE.csv for evaluations and milestones")] = None,
    figure: Annotated[Path | None, Option(help="FILE.png, .svg or .pdf: training curves")] = None,
    snapshots: Annotated[str | None,
        Option(help="FOLDER for the model at the start and at every evaluation")] = None,
    exact: Annotated[bool | None, Option("--exact/--no-exact",
        help="finish by training on the wrong rows of the whole domain; default: as in the recipe")
    ] = None,
    watch: Annotated[bool, Option("--watch",
        help="show the curve during training; in a pipe, one line per evaluation")] = False,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Train a model on a task.

    Exit status 0 if it reached the recipe's target accuracy (and all rows of the domain are right,
    if the recipe has a full-domain phase), else 1.
    """
    fields, every = parse_settings(settings), range(seed, seed + seeds)
    if exact is not None:
        chosen = coerce.as_recipe(recipe, coerce.as_task(task)).override(fields)
        fields["full_domain_steps"] = (chosen.full_domain_steps or chosen.steps) if exact else 0
    check_figure(figure, task, recipe, init_from, teacher, parametrization)
    with _stop_on_signal() as request:
        run = api.train(
            task,
            recipe,
            every,
            parametrization=parametrization,
            init_from=init_from,
            teacher=teacher,
            device=device,
            threads=threads,
            out=file,
            resume=resume,
            history=history,
            snapshots=snapshots,
            stop=lambda: bool(request.signal_number),
            **fields,
        )
        trainer, goal = run.trainer, run.trainer.task
        files = seed_files(file, every)
        existing = {str(path) for path in files if path.exists()}
        names, stairs = answer_names(goal), loss_plateaus(goal, trainer.recipe)
        if resume:
            err.print(f"resuming from step {trainer.step:,} of {trainer.recipe.steps:,}")
        floor = stairs[0].loss if stairs else None
        consumer = _consumer(trainer, names, floor, watch, request)
        trainings = sorted(_consume(run, consumer), key=lambda t: t.seed)
    if figure and any(t.history for t in trainings):
        seed_text = f"seed {seed}" if seeds == 1 else f"seeds {seed} to {seed + seeds - 1}"
        title = f"{goal.ref}, recipe {trainer.recipe.name}, {seed_text}"
        from ..plotting.figures.curves import training_curves

        save_figure(training_curves(trainings, stairs, names, title), figure)
    overlap, pairs = trainer.data.overlap(), zip(trainings, files, strict=True)
    rows = [_run_to_json(t, goal.ref, path, seeds == 1, overlap) for t, path in pairs]
    if as_json:
        print_json(rows[0] if len(rows) == 1 else {"runs": rows})
    else:
        _show(trainings, rows, goal, existing, fixed_shape=bool(init_from or parametrization))
        if figure and figure.exists():
            print_text(f"drew {figure}")
        for path in filter(None, (history, snapshots)):
            print_text(f"wrote {path}")
    if request.signal_number and any(t.status == "interrupted" for t in trainings):
        last = any(t.full_domain_start is not None for t in trainings)
        of = ", in the full-domain phase" if last else f" of {trainer.recipe.steps:,}"
        err.print(f"interrupted after step {trainer.step:,}{of}")
        if seeds == 1 and "resume" in rows[0]:
            err.print(f"saved {rows[0]['state']}; to resume:\n{rows[0]['resume']}", soft_wrap=True)
        raise Exit(128 + request.signal_number)
    raise Exit(0 if all(r["reached"] for r in rows) else 1)


# ── during training ──────────────────────────────────────────────────────────────────────────────
def _announce_stop() -> None:
    os.write(2, f"\n{STOP_MESSAGE}\n".encode())


@dataclass
class StopRequest:
    """A request to stop by a signal. `signal_number` is 0 without a request."""

    announce: Callable[[], None] = _announce_stop
    signal_number: int = 0

    def __call__(self, number: int, frame: Any) -> None:
        if self.signal_number:  # a second signal stops at once
            raise KeyboardInterrupt
        self.signal_number = number
        self.announce()


@contextmanager
def _stop_on_signal() -> Iterator[StopRequest]:
    """Let SIGINT and SIGTERM stop the run after its step; a second signal stops it at once."""
    request = StopRequest()
    before = {s: signal.signal(s, request) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def _consumer(
    trainer: "Trainer", names: list[str], floor: float | None, watch: bool, request: "StopRequest"
) -> LogView | LiveView:
    """Return the event display of a run: a live view on a terminal, otherwise lines."""
    if not sys.stderr.isatty():
        return LogView(err, names, len(trainer.seeds) > 1, watch)
    steps, ending = trainer.recipe.steps, lambda: request.signal_number
    view = LiveView(err, steps, names, floor, trainer.past_events(), watch, ending)
    if not err.is_dumb_terminal:  # a dumb terminal would show nothing before the end
        request.announce = view.live.refresh  # otherwise the live view would overwrite the output
    return view


def _consume(events: Iterator[Event], consumer: LogView | LiveView) -> "list[Training]":
    """Display every event of a run. Return the trainings."""
    trainings = []
    try:
        for event in events:
            consumer(event)
            if event.kind == "done":
                trainings.append(event.data["training"])
    except GlassformerError as e:
        if not trainings or trainings[-1].status != "diverged":
            raise
        # report the last good state as a failed run
        err.print(str(e), soft_wrap=True)
    finally:
        consumer.close()
    return trainings


# ── after training ─────────────────────────────────────────────────────────────────────────────
def _run_to_json(
    t: "Training", task: str, path: Path, only_seed: bool, overlap: float
) -> dict[str, Any]:
    # an interrupted run of one seed saves only its state
    saved = not only_seed or t.status != "interrupted"
    row = {
        "task": task, "recipe": t.recipe.name, **t.to_json(), "out": str(path) if saved else None,
        "reached": t.status in (EXACT, "sampled")
        or (t.accuracy >= t.recipe.target_accuracy and t.status not in ("diverged", "not exact")),
        "overlap": overlap,
    }  # fmt: skip
    if not saved:
        words = sys.argv[1:] + ["--resume"] * ("--resume" not in sys.argv)
        row |= {"state": str(state_path(path)), "resume": shlex.join(["glassformer", *words])}
    return row


def _show(
    trainings: "list[Training]", rows: list[dict[str, Any]], task: "Task", existing_files: set[str],
    fixed_shape: bool,
) -> None:  # fmt: skip
    """Print the result of each training; with `fixed_shape`, the recipe does not set the shape."""
    names = answer_names(task)
    for t, row in zip(trainings, rows, strict=True):
        target, whole = t.recipe.target_accuracy, t.recipe.data == "all"
        short = t.accuracy < target or not row["reached"]
        wanted = percent(target) if target <= 1 else f"{100 * target:.0f} %"
        goal = f"{'short of' if short else 'reached'} {wanted}"
        goal += ", before the full-domain phase" * (short and row["reached"])
        out.print(f"{row['task']}, recipe {t.recipe.name}, seed {t.seed}: ", end="")
        screened = t.recipe.eval_screen_rows and t.accuracy < target
        rows_name = "all" if whole and not screened else "test"
        tested = f"{percent(t.accuracy)} of {rows_name} rows right"
        out.print(f"{tested} ({goal})", style="bold", end="")
        steps = f"{t.steps:,} step{'s' * (t.steps != 1)}"
        print_text(f" after {steps}, which took {t.seconds:.1f} s; {t.status}")
        if t.domain_check:
            print_text(f"  {_full_domain_result(t, row, task)}")
        if row["overlap"]:
            share = f"{percent(row['overlap'])} of test rows were also trained on"
            note = "none held out: all rows are trained on, and tested" if whole else share
            out.print(f"  {note} (data={t.recipe.data})")
        if t.recipe.train_hook:
            hook = f"train_hook={t.recipe.train_hook}"
            print_text(f"  trained with {hook}; the saved model does not have it")
        checks = [e for e in t.events if e.kind == DOMAIN_CHECKED]
        for event in t.events:
            if event not in checks[1:-1]:  # the history contains the other checks
                print_text(f"  step {event.step:>7,}  {describe_event(event, names)}")
        if not row["reached"] and t.status in ("done", "aborted", "not exact"):
            print_text(f"  to try: {_advice(t, fixed_shape)}")
        if row["out"]:
            print_text(f"wrote {row['out']}{', replaced' * (row['out'] in existing_files)}")


def _advice(t: "Training", fixed_shape: bool) -> str:
    """Suggest another seed, more steps or a wider model for a run that missed its target."""
    r, fields = t.recipe, {"not exact": "full_domain_steps", "aborted": "abort_after_steps"}
    limit = fields.get(t.status, "steps")
    advice = f"another --seed, --set {limit}={2 * getattr(r, limit)}"
    if fixed_shape:
        return advice
    wider = [f"--set {n}={2 * size}" for n in ("d_model", "d_mlp") if (size := getattr(r, n))]
    auto = "; or leave out --recipe, for one that suits the task" * (r.name != "auto")
    return f"{advice}, {' '.join(wider)}{auto}"


def _full_domain_result(t: "Training", row: dict[str, Any], task: "Task") -> str:
    """Describe the result of the full-domain phase and the rows that it trained on."""
    assert t.domain_check and t.full_domain_start is not None
    check = t.domain_check
    text = f"{t.status}: {check.wrong:,} wrong of {check.checked:,}"
    if check.coverage not in (ALL_ROWS, SAMPLED_ROWS):
        text += f" ({check.coverage})"
    elif not check.is_exhaustive:
        size, bound = limits.format_count(task.inputs), upper_bound(check.wrong, check.checked)
        text += f" drawn of {size} (at most {bound:.2g} of all, at {CONFIDENCE:.0%})"
    if t.steps > t.full_domain_start:
        return f"{text}; from step {t.full_domain_start:,} on all rows were trained on"
    return text if row["overlap"] else f"{text}; no test row was trained on"
