"""The training loop: a generator of events. One run or many at once are the same code.

Same seed, recipe, versions and kernels, on a CPU: same bits. A member of an ensemble follows its
single run to rounding: within 1e-12 after 100 steps of `fast` in float64, while in float32 the two
drift apart, as any two runs do that differ by a rounding.
"""

import time
from collections.abc import Callable, Iterator, Sequence
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
from .setup import (
    architecture,
    check_arguments,
    check_training_memory,
    find_device,
    initial_theta,
    stack_members,
)

# a norm of theta, as a multiple of what it was at first (or of 1), that no sound run comes near
EXPLODED_NORM_RATIO = 1e6


class CheckInterrupted(Exception):
    """Somebody asked to stop in the middle of a look at many rows."""


class Trainer:
    """A run in progress, of one member or many: each has a seed, a theta and a history."""

    def __init__(
        self, task: Task, recipe: Recipe, seeds: Sequence[int] = (0,), *,
        parametrization: Parametrization | None = None, init_from: Model | None = None,
        teacher: Model | None = None, device: str = "cpu", threads: int = 1,
        out: str | Path | None = None, resume: bool = False, compile: bool = False,
        snapshots: str | Path | None = None, stop: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """`init_from`: weights to begin with, and their config. `teacher`: its words are the truth.

        `out`: where the model goes (one seed only), and beside it the state of the run at every
        evaluation. `snapshots`: a folder for the model at the start and at every evaluation,
        step-000200.safetensors and so on; of several seeds, each has a folder of its own within it.
        `stop`: asked after every step; True ends the run after saving.
        """
        parametrization = parametrization or Dense()
        init_from = init_from or parametrization.base
        models = {"init_from": init_from, "teacher": teacher}
        check_arguments(task, seeds, models, threads, out, resume, parametrization.ref)
        check_training_memory(task, recipe, len(seeds), init_from)
        torch.set_num_threads(threads)
        self.task, self.recipe, self.parametrization = task, recipe, parametrization
        self.init_from, self.teacher, self.out, self.stop_requested = init_from, teacher, out, stop
        self.device, self.seeds = find_device(device, recipe.dtype), list(seeds)
        self.data = TrainingData(task, recipe)
        self.evaluator = Evaluator(task, recipe, self.data)
        self.config, shapes = architecture(recipe, task, self.data.length, init_from)
        for what, model in models.items():
            if model and self.data.length - 1 > (n := model.config.n_ctx):
                raise GlassformerError(f"{what} — its block of {n} is too short for {task.ref}")
        # with init_from, the shape is not the recipe's
        self.effective_recipe = replace(
            recipe, **{n: getattr(self.config, n) for n in SHAPE_FIELDS if init_from}
        )
        self.objective = Objective(self.config, shapes, parametrization, recipe, teacher, compile)
        self._init_members()
        self.step, self.seconds = 0, 0.0
        self.clock = time.perf_counter  # of the training steps; a benchmark may take processor time
        self.folders = snapshot_folders(snapshots, seeds, resume) if snapshots else {}
        if resume:
            load_run(self)
            check_snapshots(self)

    def _init_members(self) -> None:
        """All that is each member's own, as it is before the first step."""
        r, seeds = self.recipe, self.seeds
        begun = stack_members([self._initial_theta(seed) for seed in seeds], r, self.init_from)
        self.theta: Theta = {n: t.to(self.device) for n, t in begun.items()}
        self.average: Theta = {n: t.clone() for n, t in self.theta.items()} if r.ema else {}
        # as at the last evaluation, and the step of that
        self.last_good_theta: Theta = {n: t.clone() for n, t in self.theta.items()}
        self.last_good_step, self.is_single = np.zeros(len(seeds), int), len(seeds) == 1
        self.max_norms = EXPLODED_NORM_RATIO * np.maximum(member_norms(self.theta), 1.0)
        self.optimizer = Optimizer(self.theta, r)
        self.smoothed_loss = np.full(len(seeds), np.nan)  # losses
        self.decay_at, self.start_steps = np.full(len(seeds), -1), np.zeros(len(seeds), int)
        self.milestone_trackers = [self._milestone_tracker(seed) for seed in seeds]
        self.history: dict[int, list[EvaluationData]] = {seed: [] for seed in seeds}
        self.full_domain_phases: dict[
            int, FullDomainPhase
        ] = {}  # seed -> its last phase, once it has begun
        self.milestones: dict[int, list[Event]] = {seed: [] for seed in seeds}

    def _initial_theta(self, seed: int, restarts: int = 0) -> dict[str, Array]:
        """What a member begins with, and after so many tries begins with anew."""
        made = self.recipe, self.config, self.objective.shapes, self.parametrization, self.init_from
        return initial_theta(*made, seed, restarts)

    def _milestone_tracker(self, seed: int) -> MilestoneTracker:
        return MilestoneTracker(self.recipe, seed, self.task.entropy_floor())

    def _restart_member(self, i: int) -> None:
        """Member i forgets all that it has learned, and begins with other weights."""
        tries = sum(e.kind == RESTARTED for e in self.milestones[self.seeds[i]])
        begun = stack_members(
            [self._initial_theta(self.seeds[i], tries)], self.recipe, self.init_from
        )
        for n, first in begun.items():
            self.theta[n][i] = first[0]
            if self.average:
                self.average[n][i] = first[0]
        self.optimizer.reset_member(i)
        self.smoothed_loss[i], self.decay_at[i], self.start_steps[i] = np.nan, -1, self.step
        self.milestone_trackers[i] = self._milestone_tracker(self.seeds[i])
        self.milestone_trackers[i].start_step = self.step
        self.snapshot_good_state([i])

    def _restart_due(self, i: int) -> bool:
        """Whether member i has had the steps of a try, and has those for a whole try more."""
        again, step = self.recipe.restart_after_steps, self.step
        other = again > 0 and not self.init_from  # a start has no other weights to begin with
        return other and step - self.start_steps[i] >= again and step + again <= self.recipe.steps

    @property
    def evaluated_theta(self) -> Theta:
        """What is evaluated and kept: the average of theta where there is one."""
        return self.average or self.theta

    def events(self) -> Iterator[Event]:
        """Trains, and yields what happens; once, to its end. (What was stopped is resumed.)"""
        shown = time.perf_counter()
        if self.step == 0:
            # a folder that cannot be written to is found now, not in an hour
            yield from save_run(self)
            save_snapshots(self, list(range(len(self.seeds))))
        while self.seeds and (self.step < self.recipe.steps or self.full_domain_phases):
            began = self.clock()
            losses = self._step()
            self.seconds += (self.clock() - began) / len(self.seeds)
            ended, stopped = self.step == self.recipe.steps, self.stop_requested()
            due = self.step % self.recipe.evaluate_every == 0 or ended
            yield from self._drop_diverged(losses, due or stopped)
            if due_now := [
                i for i, seed in enumerate(self.seeds) if due or self._full_domain_phase_over(seed)
            ]:
                try:
                    yield from self._evaluate(due_now)
                except CheckInterrupted:
                    # what was saved is of the evaluation before: a resumed run begins there
                    yield from self._finish([(s, "interrupted") for s in self.seeds])
                    return
            elif self.seeds and time.perf_counter() - shown > 0.2:
                shown = time.perf_counter()
                yield self._progress(0)
            if stopped and not ended and self.seeds:
                yield from save_run(self)
                yield from self._finish([(s, "interrupted") for s in self.seeds])
            if ended:
                yield from self._finish(
                    [(s, "done") for s in self.seeds if s not in self.full_domain_phases]
                )
        yield from self._finish([(s, "done") for s in self.seeds])

    def _full_domain_phase_over(self, seed: int) -> bool:
        """Whether a member's last phase has had all its steps."""
        phase = self.full_domain_phases.get(seed)
        return phase is not None and self.step - phase.start_step >= self.recipe.full_domain_steps

    def past_events(self) -> list[Event]:
        """What a resumed run has behind it, in the order in which it happened."""
        seed = self.seeds[0]
        evaluations = [Event("evaluation", r["step"], seed, r) for r in self.history[seed]]
        # sorting is stable: an evaluation stays before what it showed
        return sorted(evaluations + self.milestones[seed], key=lambda e: e.step)

    # ── one step ───────────────────────────────────────────────────────────────────────────────
    def _step(self) -> Array:
        """Takes a step; returns the losses [N]."""
        tokens, answer = self.data.tokens_for_step(self.seeds, self.step)
        self.decay_at = decay_start_steps(self.recipe, self.step, self.smoothed_loss, self.decay_at)
        ages = self.step - self.start_steps
        rate = lr_factors(self.recipe, self.step, self.decay_at, ages)
        last = {
            i: phase
            for i, seed in enumerate(self.seeds)
            if (phase := self.full_domain_phases.get(seed))
        }
        rows = {i: phase.batch_rows(tokens.shape[1], self.step) for i, phase in last.items()}
        for i in last:
            tokens[i], answer[i] = self.data.tokens_of(rows[i])
            rate[i] = max(rate[i], MIN_LR_FACTOR)
        gradients, losses, worst = self.objective.gradients(self.theta, tokens, answer)
        for i, phase in last.items():
            phase.add_unsure(rows[i], worst[i].cpu().numpy() > UNSURE_NLL)
        self.optimizer.step(gradients, rate, ages)
        if self.average:
            average, theta = list(self.average.values()), list(self.theta.values())
            torch._foreach_lerp_(average, theta, 1 - self.recipe.ema)
        self.step += 1
        found = losses.cpu().numpy()
        self.smoothed_loss = smooth_losses(self.smoothed_loss, found)
        return found

    def _drop_diverged(self, losses: Array, check_norms: bool) -> Iterator[Event]:
        """Ends members whose loss is not finite or (if we `look`) whose theta is huge."""
        good = np.isfinite(losses)
        if check_norms:
            good &= member_norms(self.theta) < self.max_norms
        if good.all():
            return
        bad, last = (
            np.nonzero(~good)[0].tolist(),
            f"step {self.last_good_step[0]:,}, the last good one",
        )
        for n, t in self.evaluated_theta.items():
            t[bad] = self.last_good_theta[n][bad]
        yield from self._finish([(self.seeds[i], "diverged") for i in bad])
        if self.is_single:  # who trains many is told of each
            kept = f"; {self.out} has the model of {last}" if self.out else ""
            what = "loss or weights not finite, or huge"
            raise GlassformerError(f"training diverged at step {self.step}: {what}{kept}")

    # ── looking at it ──────────────────────────────────────────────────────────────────────────
    def model(self, i: int, step: int | None = None) -> Model:
        """Return member i's current model, with averaged weights if kept. `at`: step to record."""
        theta = {n: t[i].detach().clone() for n, t in self.evaluated_theta.items()}
        with torch.no_grad():
            weights = self.objective.weights(theta)
        made = {
            "maker": "trainer", "seed": self.seeds[i], "step": self.step if step is None else step,
            "recipe": self.effective_recipe.to_json(), "parametrization": self.parametrization.ref,
        }  # fmt: skip
        model = Model(self.config, weights, self.task.vocabulary, self.task.ref, provenance=made)
        if type(self.parametrization) is Dense:  # theta is the weights
            return model
        return replace(model, theta=theta, parametrization=self.parametrization.ref)

    def _evaluate(self, members: list[int]) -> Iterator[Event]:
        finished, failed, r = [], [], self.recipe
        self.snapshot_good_state(members)
        # before the state: what is resumed after a kill writes the same files again
        save_snapshots(self, members)
        for i in members:
            seed = self.seeds[i]
            seen = seed in self.full_domain_phases  # test rows are trained on
            report: EvaluationData = {
                "step": self.step,
                "loss": float(self.smoothed_loss[i]),
                "seconds": self.seconds,
            }
            report |= ({"phase": FULL_DOMAIN} if seen else {}) | self.evaluator(self.model(i), seen)
            events = self.milestone_trackers[i].update(self.step, report)
            if (
                r.decay_when_accuracy_above
                and self.decay_at[i] < 0
                and report["accuracy"] >= r.decay_when_accuracy_above
            ):
                self.decay_at[i] = self.step
            end = self.step == r.steps or self._restart_due(i)
            last = end and report["accuracy"] >= min(NEAR_SUCCESS, r.target_accuracy)
            looks = r.full_domain_steps and (
                seed in self.full_domain_phases or self.milestone_trackers[i].is_stable or last
            )
            if looks:
                yield from self._check_domain(i, report)
                found = self.full_domain_phases[seed].last_check
                assert found
                report |= {"wrong": found.wrong, "checked": found.checked}
                events.append(Event(DOMAIN_CHECKED, self.step, seed, found.to_json()))
            hopeless = 0 < r.abort_after_steps <= self.step - self.start_steps[i]
            hopeless &= report["accuracy"] < r.abort_below_accuracy
            if not (looks or hopeless or self.milestone_trackers[i].streak) and self._restart_due(
                i
            ):
                events.append(Event(RESTARTED, self.step, seed, {"accuracy": report["accuracy"]}))
                failed.append(i)
            self.history[seed].append(report)
            yield Event("evaluation", self.step, seed, report)
            self.milestones[seed] += events
            yield from events
            if looks:
                if self.full_domain_phases[seed].done or self._full_domain_phase_over(seed):
                    finished.append((seed, self.full_domain_phases[seed].status))
            elif self.milestone_trackers[i].is_stable:
                finished.append((seed, "stable"))
            elif hopeless:
                finished.append((seed, "aborted"))
        for i in failed:  # now that all has been told of what was
            self._restart_member(i)
        if finished:
            yield from self._finish(finished)
        else:
            yield from save_run(self)

    def snapshot_good_state(self, members: list[int]) -> None:
        """What these go back to if they diverge."""
        for n, t in self.evaluated_theta.items():
            self.last_good_theta[n][members] = t[members]
        self.last_good_step[members] = self.step

    def _check_domain(self, i: int, report: EvaluationData) -> Iterator[Event]:
        """Check member i's whole domain, with progress events. Starts its last phase if needed."""
        seed, model = self.seeds[i], self.model(i)
        begun = FullDomainPhase(
            self.task,
            seed,
            self.step,
            report["accuracy"],
            near_tie_fraction=self.recipe.near_tie_fraction,
        )
        phase = self.full_domain_phases.setdefault(seed, begun)
        yield from self._with_progress(i, phase.check(model, self.step), phase.max_checked_rows)
        if self._full_domain_phase_over(seed) and not phase.done:  # count the remaining wrong rows
            yield from self._with_progress(
                i, phase.count_errors(model, self.step), phase.max_checked_rows
            )

    def _with_progress(self, i: int, looked: Iterator[int], rows: int) -> Iterator[Event]:
        """Check rows of member i's domain, with progress events."""
        for n in accumulate(looked):
            yield self._progress(i, checked_rows=n, rows=rows)
            if n < rows and self.stop_requested():
                raise CheckInterrupted

    def _progress(self, i: int, **more: int) -> Event:
        data = {"loss": float(self.smoothed_loss[i]), "of": self.recipe.steps, **more}
        return Event("step", self.step, self.seeds[i], data)

    def _finish(self, members: list[tuple[int, str]]) -> Iterator[Event]:
        """Hands out the members' trainings and goes on with the others."""
        for seed, status in members:
            i = self.seeds.index(seed)
            model = self.model(i, int(self.last_good_step[i]) if status == "diverged" else None)
            model = model.map(lambda w: w.cpu().numpy())
            history, events = self.history[seed], self.milestones[seed]
            phase = self.full_domain_phases.pop(seed, None)
            # what was measured before it began anew is of another model
            last = [r["accuracy"] for r in history[-1:] if r["step"] > self.start_steps[i]]
            accuracy = phase.held_out_accuracy if phase else sum(last, 0.0)  # on held-out rows
            training = Training(
                model,
                self.effective_recipe,
                seed,
                self.step,
                self.seconds,
                accuracy,
                status,
                history,
                events,
                phase.last_check if phase else None,
                phase.start_step if phase else None,
            )
            if self.out and status != "interrupted":
                save(model, self.out)
                remove(state_path(self.out))
            yield Event("done", self.step, seed, {"training": training})
        if gone := {s for s, _ in members}:
            self._keep_members([i for i, s in enumerate(self.seeds) if s not in gone])

    def _keep_members(self, index: list[int]) -> None:
        """Drops all members but these."""
        state = {n: t[index] if t.ndim else t for n, t in self.optimizer.state().items()}
        for name in ("theta", "average", "last_good_theta"):
            setattr(self, name, {n: t[index] for n, t in getattr(self, name).items()})
        self.optimizer = Optimizer(self.theta, self.recipe)
        self.optimizer.load(state)
        for name in ("smoothed_loss", "decay_at", "start_steps", "max_norms", "last_good_step"):
            setattr(self, name, getattr(self, name)[index])
        self.milestone_trackers = [self.milestone_trackers[i] for i in index]
        self.seeds = [self.seeds[i] for i in index]
