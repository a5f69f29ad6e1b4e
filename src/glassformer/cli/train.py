"""The command train: a model from a task and a recipe."""

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
from ..plotting.figures.curves import training_curves
from ..tasks.token_layout import answer_names
from ..training.events import Event, EventConsumer, describe_event, percent
from ..training.full_domain_phase import ALL_ROWS, DOMAIN_CHECKED, EXACT, SAMPLED_ROWS
from ..training.loss_floor import loss_plateaus
from ..training.run_file import seed_files, state_path
from ..training.ui.terminal import STOP_MESSAGE, LiveView, LogView
from ..utils import limits
from ..utils.errors import GlassformerError
from ..verification.confidence import CONFIDENCE, upper_bound
from .common import (
    Json,
    RecipeName,
    Settings,
    TaskArgument,
    Threads,
    app,
    check_figure,
    err,
    out,
    parse_settings,
    print_json,
    print_text,
    save_figure,
)

if TYPE_CHECKING:
    from ..tasks.base import Task
    from ..training.loop import Trainer
    from ..training.result import Training


@app.command("train")
def train_(
    task: TaskArgument,
    file: Annotated[Path, Option("--out", help="FILE.safetensors: where the model goes")],
    recipe: RecipeName = "",
    seed: Annotated[int, Option(
        help="seed of weights and batches, from 0; equal seeds give equal models")] = 0,
    settings: Settings = None,
    parametrization: Annotated[str | None, Option(
        help="low-rank:rank=4, … (glassformer list parametrizations)")] = None,
    init_from: Annotated[str | None, Option(
        help="a model whose weights and shape to start from")] = None,
    teacher: Annotated[str | None, Option(
        help="train on this model's answers instead of the task's")] = None,
    seeds: Annotated[int, Option(
        help="number of seeds to train at once; each gets its own file")] = 1,
    device: Annotated[str, Option(help="cpu, cuda or mps")] = "cpu",
    resume: Annotated[bool, Option("--resume",
        help="go on with the run that was writing to --out")] = False,
    history: Annotated[Path | None,
        Option(help="FILE.jsonl or FILE.csv: evaluations and milestones")] = None,
    figure: Annotated[Path | None, Option(help="FILE.png, .svg or .pdf: training curves")] = None,
    snapshots: Annotated[Path | None,
        Option(help="FOLDER: the model at the start and every evaluation")] = None,
    exact: Annotated[bool | None, Option("--exact/--no-exact",
        help="at the end, train on the wrong rows of the whole domain; default: as in the recipe")
    ] = None,
    watch: Annotated[bool, Option("--watch",
        help="the curve while it trains; in a pipe, a line for each evaluation")] = False,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Train a model on a task. Status 0: it reached the recipe's success (and is exact, where it
    was to be); 1: it did not.
    """
    fields, every = parse_settings(settings), range(seed, seed + seeds)
    if exact is not None:
        chosen = coerce.as_recipe(recipe, coerce.as_task(task)).override(fields)
        fields["full_domain_steps"] = (chosen.full_domain_steps or chosen.steps) if exact else 0
    check_figure(figure, task, recipe, init_from, teacher, parametrization)
    with _stop_on_signal() as asked:
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
            stop=lambda: bool(asked.signal_number),
            **fields,
        )
        trainer, goal = run.trainer, run.trainer.task
        files = seed_files(file, every)
        there = {str(path) for path in files if path.exists()}
        names, stairs = answer_names(goal), loss_plateaus(goal, trainer.recipe)
        if resume:
            err.print(f"going on from step {trainer.step:,} of {trainer.recipe.steps:,}")
        floor = stairs[0].loss if stairs else None
        consumer = _consumer(trainer, names, floor, watch, asked)
        trainings = sorted(_consume(run, consumer), key=lambda t: t.seed)
    if figure and any(t.history for t in trainings):
        whose = f"seed {seed}" if seeds == 1 else f"seeds {seed} to {seed + seeds - 1}"
        title = f"{goal.ref}, recipe {trainer.recipe.name}, {whose}"
        save_figure(training_curves(trainings, stairs, names, title), figure)
    overlap, pairs = trainer.data.overlap(), zip(trainings, files, strict=True)
    rows = [_run_to_json(t, goal.ref, path, seeds == 1, overlap) for t, path in pairs]
    if as_json:
        print_json(rows[0] if len(rows) == 1 else {"runs": rows})
    else:
        _show(trainings, rows, goal, there, fixed_shape=bool(init_from or parametrization))
        if figure and figure.exists():
            print_text(f"drew {figure}")
        for kept in (history, snapshots):
            if kept:
                print_text(f"wrote {kept}")
    if asked.signal_number and any(t.status == "interrupted" for t in trainings):
        last = any(t.full_domain_start is not None for t in trainings)
        of = ", in the full-domain phase" if last else f" of {trainer.recipe.steps:,}"
        err.print(f"interrupted after step {trainer.step:,}{of}")
        if seeds == 1 and "resume" in rows[0]:
            err.print(f"saved {rows[0]['state']}; to go on:\n{rows[0]['resume']}", soft_wrap=True)
        raise Exit(128 + asked.signal_number)
    raise Exit(0 if all(r["reached"] for r in rows) else 1)


# ── while it runs ──────────────────────────────────────────────────────────────────────────────
def _announce_stop() -> None:
    os.write(2, f"\n{STOP_MESSAGE}\n".encode())


@dataclass
class StopRequest:
    """Whether somebody asked the run to end, and by which signal; 0: nobody has."""

    announce: Callable[[], None] = _announce_stop
    signal_number: int = 0

    def __call__(self, number: int, frame: Any) -> None:
        if self.signal_number:  # for the second time: at once
            raise KeyboardInterrupt
        self.signal_number = number
        self.announce()


@contextmanager
def _stop_on_signal() -> Iterator[StopRequest]:
    """Within it, Ctrl-C or a polite kill asks the run to stop after its step; a second ends it."""
    asked = StopRequest()
    before = {s: signal.signal(s, asked) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def _consumer(
    trainer: "Trainer", names: list[str], floor: float | None, watch: bool, asked: "StopRequest"
) -> EventConsumer:
    """Return the display of a run: a live view on a terminal, or lines."""
    if not sys.stderr.isatty():
        return LogView(err, names, len(trainer.seeds) > 1, watch)
    steps, ending = trainer.recipe.steps, lambda: asked.signal_number
    view = LiveView(err, steps, names, floor, trainer.past_events(), watch, ending)
    if not err.is_dumb_terminal:  # a dumb terminal shows nothing before the end
        asked.announce = view.live.refresh  # otherwise the view would paint over the output
    return view


def _consume(events: Iterator[Event], consumer: EventConsumer) -> "list[Training]":
    """Show every event; return the trainings."""
    trainings = []
    try:
        for event in events:
            consumer(event)
            if event.kind == "done":
                trainings.append(event.data["training"])
    except GlassformerError as e:
        if not trainings or trainings[-1].status != "diverged":
            raise
        # the last good state is reported as a failed run
        err.print(str(e), soft_wrap=True)
    finally:
        consumer.close()
    return trainings


# ── what is said at the end ────────────────────────────────────────────────────────────────────
def _run_to_json(
    t: "Training", task: str, path: Path, only_seed: bool, overlap: float
) -> dict[str, Any]:
    kept = not only_seed or t.status != "interrupted"  # else it has a state, and no model yet
    found = {
        "task": task, "recipe": t.recipe.name, **t.to_json(), "out": str(path) if kept else None,
        "reached": t.status in (EXACT, "sampled")
        or (t.accuracy >= t.recipe.target_accuracy and t.status not in ("diverged", "not exact")),
        "overlap": overlap,
    }  # fmt: skip
    if not kept:
        words = sys.argv[1:] + ["--resume"] * ("--resume" not in sys.argv)
        found |= {"state": str(state_path(path)), "resume": shlex.join(["glassformer", *words])}
    return found


def _show(
    trainings: "list[Training]", rows: list[dict[str, Any]], task: "Task", existing_files: set[str],
    fixed_shape: bool,
) -> None:  # fmt: skip
    """`there`: files that a model was in before. `fixed`: the model's shape is not the recipe's."""
    names = answer_names(task)
    for t, row in zip(trainings, rows, strict=True):
        short = t.accuracy < t.recipe.target_accuracy or not row["reached"]
        wanted = (
            percent(t.recipe.target_accuracy)
            if t.recipe.target_accuracy <= 1
            else f"{t.recipe.target_accuracy:.0%}".replace("%", " %")
        )
        goal = f"{'short of' if short else 'reached'} {wanted}"
        goal += ", before the full-domain phase" * (short and row["reached"])
        out.print(f"{row['task']}, recipe {t.recipe.name}, seed {t.seed}: ", end="")
        whole = t.recipe.data == "all"
        some = (
            t.recipe.eval_screen_rows and t.accuracy < t.recipe.target_accuracy
        )  # the others were not asked
        tested = f"{percent(t.accuracy)} of {'all' if whole and not some else 'test'} rows right"
        out.print(f"{tested} ({goal})", style="bold", end="")
        steps = f"{t.steps:,} step{'s' * (t.steps != 1)}"
        print_text(f" after {steps}, which took {t.seconds:.1f} s; {t.status}")
        if t.domain_check:
            print_text(f"  {_full_domain_result(t, row, task)}")
        if row["overlap"]:
            share = f"{percent(row['overlap'])} of test rows were also trained on"
            both = "none held out: all rows are trained on, and tested" if whole else share
            out.print(f"  {both} (data={t.recipe.data})")
        if t.recipe.train_hook:
            print_text(
                f"  trained with train_hook={t.recipe.train_hook}; the saved model does not have it"
            )
        looks = [e for e in t.events if e.kind == DOMAIN_CHECKED]
        for event in t.events:
            if event not in looks[1:-1]:  # these are in the history
                print_text(f"  step {event.step:>7,}  {describe_event(event, names)}")
        if not row["reached"] and t.status in ("done", "aborted", "not exact"):
            print_text(f"  to try: {_advice(t, fixed_shape)}")
        if row["out"]:
            print_text(f"wrote {row['out']}{', replaced' * (row['out'] in existing_files)}")


def _advice(t: "Training", fixed_shape: bool) -> str:
    """What may help a run that fell short: other luck, more time, more room."""
    r, fields = t.recipe, {"not exact": "full_domain_steps", "aborted": "abort_after_steps"}
    limit = fields.get(t.status, "steps")
    found = f"another --seed, --set {limit}={2 * getattr(r, limit)}"
    if fixed_shape:
        return found
    wider = [f"--set {n}={2 * size}" for n in ("d_model", "d_mlp") if (size := getattr(r, n))]
    auto = "; or leave out --recipe, for one that suits the task" * (r.name != "auto")
    return f"{found}, {' '.join(wider)}{auto}"


def _full_domain_result(t: "Training", row: dict[str, Any], task: "Task") -> str:
    """What the last phase came to, and which rows it trained on."""
    assert t.domain_check and t.full_domain_start is not None
    look = t.domain_check
    found = f"{t.status}: {look.wrong:,} wrong of {look.checked:,}"
    if look.coverage not in (ALL_ROWS, SAMPLED_ROWS):
        found += f" ({look.coverage})"
    elif not look.is_exhaustive:
        whole, most = limits.format_count(task.inputs), upper_bound(look.wrong, look.checked)
        found += f" drawn of {whole} (at most {most:.2g} of all, at {CONFIDENCE:.0%})"
    if t.steps > t.full_domain_start:
        return f"{found}; from step {t.full_domain_start:,} on all rows were trained on"
    return found if row["overlap"] else f"{found}; no test row was trained on"
