"""The training loop, a generator of events for one run or an ensemble of runs.

On a CPU, runs with equal seed, recipe, versions and kernels are bitwise equal. A member of an
ensemble equals its single run up to rounding: within 1e-12 after 100 steps of `fast` in float64. In
float32 the two diverge, like any two runs that differ by one rounding.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch

from ..core.backend import Array
from ..core.checkpoint import save
from ..core.model import Model
from ..parametrizations import Dense, Parametrization
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..utils.fileio import remove
from . import setup
from .checkpointing import check_snapshots, load_run, save_run, save_snapshots
from .data import TrainingData
from .evaluate import Evaluator
from .events import RESTARTED, EvaluationData, Event, MilestoneTracker
from .full_domain_phase import (
    DOMAIN_CHECKED,
    FULL_DOMAIN,
    MIN_LR_FACTOR,
    NEAR_SUCCESS,
    UNSURE_NLL,
    FullDomainPhase,
)
from .loss import Objective, Theta
from .optim import Optimizer, decay_start_steps, lr_factors, member_norms, smooth_losses
from .recipe import SHAPE_FIELDS, Recipe
from .result import Training
from .run_file import snapshot_folders, state_path

EXPLODED_NORM_RATIO = 1e6  # Larger norms, relative to the initial norm (or 1), are diverged.
PROGRESS_SECONDS = 0.2  # minimum time between two progress events


class CheckInterrupted(Exception):
    """Raised when a stop is requested during a full-domain check."""


class Trainer:
    """A training run of one member or of an ensemble.

    Each member has a seed, a theta and a history.
    """

    def __init__(
        self, task: Task, recipe: Recipe, seeds: Sequence[int] = (0,), *,
        parametrization: Parametrization | None = None, init_from: Model | None = None,
        teacher: Model | None = None, device: str = "cpu", threads: int = 1,
        out: str | Path | None = None, resume: bool = False, compile: bool = False,
        snapshots: str | Path | None = None, stop: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """Prepare a run; `gf.train` describes the options. `out` is allowed only with one seed."""
        parametrization = setup.choose_parametrization(recipe, parametrization, init_from)
        init_from = init_from or parametrization.base
        models = {"init_from": init_from, "teacher": teacher}
        setup.check_arguments(task, seeds, models, threads, out, resume, parametrization.ref)
        setup.check_training_memory(task, recipe, len(seeds), init_from)
        torch.set_num_threads(threads)
        self.task, self.recipe, self.parametrization = task, recipe, parametrization
        self.init_from, self.teacher, self.out, self.stop_requested = init_from, teacher, out, stop
        self.device, self.seeds = setup.find_device(device, recipe.dtype), list(seeds)
        self.data = TrainingData(task, recipe)
        self.evaluator = Evaluator(task, recipe, self.data)
        self.config, shapes = setup.architecture(recipe, task, self.data.length, init_from)
        for name, model in models.items():
            if model and self.data.length - 1 > (n := model.config.n_ctx):
                raise GlassformerError(f"{name} — its block of {n} is too short for {task.ref}")
        # The shape of init_from replaces the recipe's.
        shape = {n: getattr(self.config, n) for n in SHAPE_FIELDS if init_from}
        self.effective_recipe = replace(recipe, **shape)
        self.objective = Objective(self.config, shapes, parametrization, recipe, teacher, compile)
        self._init_members()
        self.step, self.seconds = 0, 0.0
        self.clock = time.perf_counter  # Benchmarks may use processor time instead.
        self.folders = snapshot_folders(snapshots, seeds, resume) if snapshots else {}
        if resume:
            load_run(self)
            check_snapshots(self)

    def _init_members(self) -> None:
        """Set the state of every member before the first step."""
        r, seeds = self.recipe, self.seeds
        theta = setup.stack_members([self._initial_theta(s) for s in seeds], r, self.init_from)
        self.theta: Theta = {n: t.to(self.device) for n, t in theta.items()}
        self.average: Theta = {n: t.clone() for n, t in self.theta.items()} if r.ema else {}
        self.last_good_theta: Theta = {n: t.clone() for n, t in self.theta.items()}
        self.last_good_step, self.is_single = np.zeros(len(seeds), int), len(seeds) == 1
        self.max_norms = EXPLODED_NORM_RATIO * np.maximum(member_norms(self.theta), 1.0)
        self.optimizer = Optimizer(self.theta, r)
        self.smoothed_loss = np.full(len(seeds), np.nan)
        self.decay_at, self.start_steps = np.full(len(seeds), -1), np.zeros(len(seeds), int)
        self.milestone_trackers = [self._milestone_tracker(seed) for seed in seeds]
        self.history: dict[int, list[EvaluationData]] = {seed: [] for seed in seeds}
        self.full_domain_phases: dict[int, FullDomainPhase] = {}  # started phases by seed
        self.milestones: dict[int, list[Event]] = {seed: [] for seed in seeds}

    def _initial_theta(self, seed: int, restarts: int = 0) -> dict[str, Array]:
        args = self.recipe, self.config, self.objective.shapes, self.parametrization, self.init_from
        return setup.initial_theta(*args, seed, restarts)

    def _milestone_tracker(self, seed: int) -> MilestoneTracker:
        return MilestoneTracker(self.recipe, seed, self.task.entropy_floor())

    def _restart_member(self, i: int) -> None:
        """Reset member i and draw new initial weights for it."""
        seed = self.seeds[i]
        restarts = sum(e.kind == RESTARTED for e in self.milestones[seed])
        initial = [self._initial_theta(seed, restarts)]
        theta = setup.stack_members(initial, self.recipe, self.init_from)
        for n, t in theta.items():
            self.theta[n][i] = t[0]
            if self.average:
                self.average[n][i] = t[0]
        self.optimizer.reset_member(i)
        self.smoothed_loss[i], self.decay_at[i], self.start_steps[i] = np.nan, -1, self.step
        self.milestone_trackers[i] = self._milestone_tracker(seed)
        self.milestone_trackers[i].start_step = self.step
        self.snapshot_good_state([i])

    def _restart_due(self, i: int) -> bool:
        """Whether member i has used up its attempt and enough steps are left for another one."""
        attempt, step = self.recipe.restart_after_steps, self.step
        if not attempt or self.init_from:  # init_from has only one set of weights.
            return False
        return step - self.start_steps[i] >= attempt and step + attempt <= self.recipe.steps

    @property
    def evaluated_theta(self) -> Theta:
        """The theta to evaluate and save: the weight average if the recipe has one."""
        return self.average or self.theta

    def events(self) -> Iterator[Event]:
        """Train and yield events.

        A trainer yields its events once. To continue a stopped run, create a new trainer.
        """
        shown = time.perf_counter()
        if self.step == 0:  # Detect an unwritable folder early.
            yield from save_run(self)
            save_snapshots(self, list(range(len(self.seeds))))
        while self.seeds and (self.step < self.recipe.steps or self.full_domain_phases):
            began = self.clock()
            losses = self._step()
            self.seconds += (self.clock() - began) / len(self.seeds)
            ended, stopped = self.step == self.recipe.steps, self.stop_requested()
            due = self.step % self.recipe.evaluate_every == 0 or ended
            yield from self._drop_diverged(losses, due or stopped)
            indices = range(len(self.seeds))
            if members := [i for i in indices if due or self._full_domain_phase_over(i)]:
                try:
                    yield from self._evaluate(members)
                except CheckInterrupted:  # A resumed run continues from the last evaluation.
                    yield from self._finish([(s, "interrupted") for s in self.seeds])
                    return
            elif self.seeds and time.perf_counter() - shown > PROGRESS_SECONDS:
                shown = time.perf_counter()
                yield self._progress(0)
            if stopped and not ended and self.seeds:
                yield from save_run(self)
                yield from self._finish([(s, "interrupted") for s in self.seeds])
            if ended:
                done = [s for s in self.seeds if s not in self.full_domain_phases]
                yield from self._finish([(s, "done") for s in done])
        yield from self._finish([(s, "done") for s in self.seeds])

    def _full_domain_phase_over(self, i: int) -> bool:
        """Whether the full-domain phase of member i has used all its steps."""
        phase = self.full_domain_phases.get(self.seeds[i])
        return phase is not None and self.step - phase.start_step >= self.recipe.full_domain_steps

    def past_events(self) -> list[Event]:
        """Return the evaluations and milestones before the run was resumed, in order."""
        seed = self.seeds[0]
        evaluations = [Event("evaluation", r["step"], seed, r) for r in self.history[seed]]
        # The sort is stable, so an evaluation stays before its milestones.
        return sorted(evaluations + self.milestones[seed], key=lambda e: e.step)

    # ── one step ───────────────────────────────────────────────────────────────────────────────
    def _step(self) -> Array:
        """Train one step and return the losses [N]."""
        r, step = self.recipe, self.step
        tokens, answer = self.data.tokens_for_step(self.seeds, step)
        self.decay_at = decay_start_steps(r, step, self.smoothed_loss, self.decay_at)
        ages = step - self.start_steps
        rate = lr_factors(r, step, self.decay_at, ages)
        phases, rows = {self.seeds.index(s): p for s, p in self.full_domain_phases.items()}, {}
        for i, phase in phases.items():
            rows[i] = phase.batch_rows(tokens.shape[1], step)
            tokens[i], answer[i] = self.data.tokens_of(rows[i])
            rate[i] = max(rate[i], MIN_LR_FACTOR)
        gradients, losses, worst = self.objective.gradients(self.theta, tokens, answer)
        for i, phase in phases.items():
            phase.add_unsure(rows[i], worst[i].cpu().numpy() > UNSURE_NLL)
        self.optimizer.step(gradients, rate, ages)
        if self.average:
            average, theta = list(self.average.values()), list(self.theta.values())
            torch._foreach_lerp_(average, theta, 1 - r.ema)
        self.step += 1
        values = losses.cpu().numpy()
        self.smoothed_loss = smooth_losses(self.smoothed_loss, values)
        return values

    def _drop_diverged(self, losses: Array, check_norms: bool) -> Iterator[Event]:
        """Remove members with a non-finite loss or, with `check_norms`, a huge theta."""
        good = np.isfinite(losses)
        if check_norms:
            good &= member_norms(self.theta) < self.max_norms
        if good.all():
            return
        bad, last_good = np.nonzero(~good)[0].tolist(), self.last_good_step[0]
        for n, t in self.evaluated_theta.items():
            t[bad] = self.last_good_theta[n][bad]
        yield from self._finish([(self.seeds[i], "diverged") for i in bad])
        if self.is_single:  # Members of an ensemble have only a status.
            saved = f"; {self.out} has the model of step {last_good:,}" if self.out else ""
            raise GlassformerError(
                f"training diverged at step {self.step}: loss or weights not finite, or huge{saved}"
            )

    # ── evaluation ─────────────────────────────────────────────────────────────────────────────
    def model(self, i: int, step: int | None = None) -> Model:
        """Return the current model of member i, with `step` in its provenance."""
        theta = {n: t[i].detach().clone() for n, t in self.evaluated_theta.items()}
        with torch.no_grad():
            weights = self.objective.weights(theta)
        provenance = {
            "maker": "trainer", "seed": self.seeds[i], "step": self.step if step is None else step,
            "recipe": self.effective_recipe.to_json(), "parametrization": self.parametrization.ref,
        }  # fmt: skip
        vocabulary, ref = self.task.vocabulary, self.task.ref
        model = Model(self.config, weights, vocabulary, ref, provenance=provenance)
        if type(self.parametrization) is Dense:  # Theta equals the weights.
            return model
        return replace(model, theta=theta, parametrization=self.parametrization.ref)

    def _evaluate(self, members: list[int]) -> Iterator[Event]:
        self.snapshot_good_state(members)
        save_snapshots(self, members)  # A run killed before saving its state repeats this.
        finished: list[tuple[int, str]] = []
        restarted = []
        for i in members:
            status = yield from self._evaluate_member(i)
            if status == RESTARTED:
                restarted.append(i)
            elif status:
                finished.append((self.seeds[i], status))
        for i in restarted:  # Restart after all events of the evaluation.
            self._restart_member(i)
        if finished:
            yield from self._finish(finished)
        else:
            yield from save_run(self)

    def _evaluate_member(self, i: int) -> Generator[Event, None, str]:
        """Evaluate member i and return its status.

        The status is "" if training continues, RESTARTED, or the reason why the member ends.
        """
        r, seed, tracker = self.recipe, self.seeds[i], self.milestone_trackers[i]
        phase = self.full_domain_phases.get(seed)
        report: EvaluationData = {
            "step": self.step, "loss": float(self.smoothed_loss[i]), "seconds": self.seconds,
        }  # fmt: skip
        if phase:
            report["phase"] = FULL_DOMAIN
        elif (epoch := self.data.epoch(self.step)) is not None:
            report["epoch"] = epoch
        report |= self.evaluator(self.model(i), bool(phase))
        accuracy = report["accuracy"]
        events = tracker.update(self.step, report)
        if self.decay_at[i] < 0 and 0 < r.decay_when_accuracy_above <= accuracy:
            self.decay_at[i] = self.step
        over = self.step == r.steps or self._restart_due(i)
        nearly = over and accuracy >= min(NEAR_SUCCESS, r.target_accuracy)
        status = "stable" if tracker.is_stable else ""
        if r.full_domain_steps and (phase or tracker.is_stable or nearly):
            phase = yield from self._check_domain(i, accuracy)
            check = phase.last_check
            assert check
            report |= {"wrong": check.wrong, "checked": check.checked}
            events.append(Event(DOMAIN_CHECKED, self.step, seed, check.to_json()))
            status = phase.status if phase.done or self._full_domain_phase_over(i) else ""
        elif 0 < r.abort_after_steps <= self.step - self.start_steps[i] and (
            accuracy < r.abort_below_accuracy
        ):
            status = status or "aborted"
        elif not tracker.streak and self._restart_due(i):
            events.append(Event(RESTARTED, self.step, seed, {"accuracy": accuracy}))
            status = status or RESTARTED
        self.history[seed].append(report)
        yield Event("evaluation", self.step, seed, report)
        self.milestones[seed] += events
        yield from events
        return status

    def snapshot_good_state(self, members: list[int]) -> None:
        """Save the state to which the given members return if they diverge."""
        for n, t in self.evaluated_theta.items():
            self.last_good_theta[n][members] = t[members]
        self.last_good_step[members] = self.step

    def _check_domain(self, i: int, accuracy: float) -> Generator[Event, None, FullDomainPhase]:
        """Check the whole domain with member i and start its full-domain phase if necessary."""
        seed, model, fraction = self.seeds[i], self.model(i), self.recipe.near_tie_fraction
        phase = self.full_domain_phases.setdefault(
            seed, FullDomainPhase(self.task, seed, self.step, accuracy, near_tie_fraction=fraction)
        )
        total = phase.max_checked_rows
        yield from self._with_progress(i, phase.check(model, self.step), total)
        if self._full_domain_phase_over(i) and not phase.done:  # Count the remaining errors.
            yield from self._with_progress(i, phase.count_errors(model, self.step), total)
        return phase

    def _with_progress(self, i: int, counts: Iterator[int], rows: int) -> Iterator[Event]:
        """Yield progress events of member i's check; `counts` are numbers of newly checked rows."""
        for n in accumulate(counts):
            yield self._progress(i, checked_rows=n, rows=rows)
            if n < rows and self.stop_requested():
                raise CheckInterrupted

    def _progress(self, i: int, **counts: int) -> Event:
        data = {"loss": float(self.smoothed_loss[i]), "of": self.recipe.steps, **counts}
        return Event("step", self.step, self.seeds[i], data)

    def _finish(self, members: list[tuple[int, str]]) -> Iterator[Event]:
        """Yield the "done" events of members (seed, status) and remove them from the run."""
        for seed, status in members:
            i = self.seeds.index(seed)
            model = self.model(i, int(self.last_good_step[i]) if status == "diverged" else None)
            model = model.map(lambda w: w.cpu().numpy())
            history, phase = self.history[seed], self.full_domain_phases.pop(seed, None)
            # Evaluations before a restart belong to another model.
            last = [r["accuracy"] for r in history[-1:] if r["step"] > self.start_steps[i]]
            training = Training(
                model, self.effective_recipe, seed, self.step, self.seconds,
                phase.held_out_accuracy if phase else sum(last, 0.0), status, history,
                self.milestones[seed], phase.last_check if phase else None,
                phase.start_step if phase else None,
            )  # fmt: skip
            if self.out and status != "interrupted":
                save(model, self.out)
                remove(state_path(self.out))
            yield Event("done", self.step, seed, {"training": training})
        if gone := {s for s, _ in members}:
            self._keep_members([i for i, s in enumerate(self.seeds) if s not in gone])

    def _keep_members(self, index: list[int]) -> None:
        state = {n: t[index] if t.ndim else t for n, t in self.optimizer.state().items()}
        for name in ("theta", "average", "last_good_theta"):
            setattr(self, name, {n: t[index] for n, t in getattr(self, name).items()})
        self.optimizer = Optimizer(self.theta, self.recipe)
        self.optimizer.load(state)
        for name in ("smoothed_loss", "decay_at", "start_steps", "max_norms", "last_good_step"):
            setattr(self, name, getattr(self, name)[index])
        self.milestone_trackers = [self.milestone_trackers[i] for i in index]
        self.seeds = [self.seeds[i] for i in index]
