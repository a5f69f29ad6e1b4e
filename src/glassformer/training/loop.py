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
from ..parametrizations import Blueprint, Dense
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..utils.fileio import remove
from .checkpointing import check_snapshots, load_run, save_run, save_snapshots
from .data import Data
from .evaluate import Measure
from .events import ANEW, Event, Report, Watcher
from .full_domain_phase import EXACT, LEAST_RATE, NEARLY, UNSURE, Exact
from .loss import Objective, Theta
from .optim import Optimizer, decay_begins, norms, rates, smoothed
from .recipe import SHAPE, Recipe
from .result import Training
from .run_file import snapshot_folders, state_path
from .setup import architecture, check_call, check_memory, find_device, initial_theta, stacked

# a norm of theta, as a multiple of what it was at first (or of 1), that no sound run comes near
EXPLODED = 1e6


class StoppedLooking(Exception):
    """Somebody asked to stop in the middle of a look at many rows."""


class Trainer:
    """A run in progress, of one member or many: each has a seed, a theta and a history."""

    def __init__(
        self, task: Task, recipe: Recipe, seeds: Sequence[int] = (0,), *,
        blueprint: Blueprint | None = None, start: Model | None = None,
        teacher: Model | None = None, device: str = "cpu", threads: int = 1,
        out: str | Path | None = None, resume: bool = False, compile: bool = False,
        snapshots: str | Path | None = None, stop: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """`start`: weights to begin with, and their config. `teacher`: its words are the truth.

        `out`: where the model goes (one seed only), and beside it the state of the run at every
        evaluation. `snapshots`: a folder for the model at the start and at every evaluation,
        step-000200.safetensors and so on; of several seeds, each has a folder of its own within it.
        `stop`: asked after every step; True ends the run after saving.
        """
        blueprint = blueprint or Dense()
        start = start or blueprint.base
        models = {"start": start, "teacher": teacher}
        check_call(task, seeds, models, threads, out, resume, blueprint.ref)
        check_memory(task, recipe, len(seeds), start)
        torch.set_num_threads(threads)
        self.task, self.recipe, self.blueprint = task, recipe, blueprint
        self.start, self.teacher, self.out, self.asked_to_stop = start, teacher, out, stop
        self.device, self.seeds = find_device(device, recipe.dtype), list(seeds)
        self.data = Data(task, recipe)
        self.measure = Measure(task, recipe, self.data)
        self.config, shapes = architecture(recipe, task, self.data.length, start)
        for what, model in models.items():
            if model and self.data.length - 1 > (n := model.config.n_ctx):
                raise GlassformerError(f"{what} — its block of {n} is too short for {task.ref}")
        # with a start, the shape is not the recipe's
        self.reported = replace(recipe, **{n: getattr(self.config, n) for n in SHAPE if start})
        self.objective = Objective(self.config, shapes, blueprint, recipe, teacher, compile)
        self._begin_members()
        self.step, self.seconds = 0, 0.0
        self.clock = time.perf_counter  # of the training steps; a benchmark may take processor time
        self.folders = snapshot_folders(snapshots, seeds, resume) if snapshots else {}
        if resume:
            load_run(self)
            check_snapshots(self)

    def _begin_members(self) -> None:
        """All that is each member's own, as it is before the first step."""
        r, seeds = self.recipe, self.seeds
        begun = stacked([self._first(seed) for seed in seeds], r, self.start)
        self.theta: Theta = {n: t.to(self.device) for n, t in begun.items()}
        self.average: Theta = {n: t.clone() for n, t in self.theta.items()} if r.ema else {}
        # as at the last evaluation, and the step of that
        self.good: Theta = {n: t.clone() for n, t in self.theta.items()}
        self.good_at, self.alone = np.zeros(len(seeds), int), len(seeds) == 1
        self.too_large = EXPLODED * np.maximum(norms(self.theta), 1.0)
        self.optimizer = Optimizer(self.theta, r)
        self.smooth = np.full(len(seeds), np.nan)  # losses
        self.decay_at, self.begun = np.full(len(seeds), -1), np.zeros(len(seeds), int)
        self.watchers = [self._watcher(seed) for seed in seeds]
        self.history: dict[int, list[Report]] = {seed: [] for seed in seeds}
        self.exact: dict[int, Exact] = {}  # seed -> its last phase, once it has begun
        self.turning_points: dict[int, list[Event]] = {seed: [] for seed in seeds}

    def _first(self, seed: int, tries: int = 0) -> dict[str, Array]:
        """What a member begins with, and after so many tries begins with anew."""
        made = self.recipe, self.config, self.objective.shapes, self.blueprint, self.start
        return initial_theta(*made, seed, tries)

    def _watcher(self, seed: int) -> Watcher:
        return Watcher(self.recipe, seed, self.task.floor())

    def _begin_anew(self, i: int) -> None:
        """Member i forgets all that it has learned, and begins with other weights."""
        tries = sum(e.kind == ANEW for e in self.turning_points[self.seeds[i]])
        begun = stacked([self._first(self.seeds[i], tries)], self.recipe, self.start)
        for n, first in begun.items():
            self.theta[n][i] = first[0]
            if self.average:
                self.average[n][i] = first[0]
        self.optimizer.forget(i)
        self.smooth[i], self.decay_at[i], self.begun[i] = np.nan, -1, self.step
        self.watchers[i] = self._watcher(self.seeds[i])
        self.watchers[i].begun = self.step
        self.mark_good([i])

    def _is_tried_out(self, i: int) -> bool:
        """Whether member i has had the steps of a try, and has those for a whole try more."""
        again, step = self.recipe.again, self.step
        other = again > 0 and not self.start  # a start has no other weights to begin with
        return other and step - self.begun[i] >= again and step + again <= self.recipe.steps

    @property
    def kept(self) -> Theta:
        """What is evaluated and kept: the average of theta where there is one."""
        return self.average or self.theta

    def events(self) -> Iterator[Event]:
        """Trains, and yields what happens; once, to its end. (What was stopped is resumed.)"""
        shown = time.perf_counter()
        if self.step == 0:
            # a folder that cannot be written to is found now, not in an hour
            yield from save_run(self)
            save_snapshots(self, list(range(len(self.seeds))))
        while self.seeds and (self.step < self.recipe.steps or self.exact):
            began = self.clock()
            losses = self._step()
            self.seconds += (self.clock() - began) / len(self.seeds)
            ended, stopped = self.step == self.recipe.steps, self.asked_to_stop()
            due = self.step % self.recipe.evaluate_every == 0 or ended
            yield from self._drop_diverged(losses, due or stopped)
            if due_now := [i for i, seed in enumerate(self.seeds) if due or self._is_last(seed)]:
                try:
                    yield from self._evaluate(due_now)
                except StoppedLooking:
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
                yield from self._finish([(s, "done") for s in self.seeds if s not in self.exact])
        yield from self._finish([(s, "done") for s in self.seeds])

    def _is_last(self, seed: int) -> bool:
        """Whether a member's last phase has had all its steps."""
        phase = self.exact.get(seed)
        return phase is not None and self.step - phase.began >= self.recipe.exact

    def past(self) -> list[Event]:
        """What a resumed run has behind it, in the order in which it happened."""
        seed = self.seeds[0]
        evaluations = [Event("evaluation", r["step"], seed, r) for r in self.history[seed]]
        # sorting is stable: an evaluation stays before what it showed
        return sorted(evaluations + self.turning_points[seed], key=lambda e: e.step)

    # ── one step ───────────────────────────────────────────────────────────────────────────────
    def _step(self) -> Array:
        """Takes a step; returns the losses [N]."""
        tokens, answer = self.data.read(self.seeds, self.step)
        self.decay_at = decay_begins(self.recipe, self.step, self.smooth, self.decay_at)
        ages = self.step - self.begun
        rate = rates(self.recipe, self.step, self.decay_at, ages)
        last = {i: phase for i, seed in enumerate(self.seeds) if (phase := self.exact.get(seed))}
        rows = {i: phase.rows(tokens.shape[1], self.step) for i, phase in last.items()}
        for i in last:
            tokens[i], answer[i] = self.data.tokens_of(rows[i])
            rate[i] = max(rate[i], LEAST_RATE)
        gradients, losses, worst = self.objective.gradients(self.theta, tokens, answer)
        for i, phase in last.items():
            phase.learn(rows[i], worst[i].cpu().numpy() > UNSURE)
        self.optimizer.step(gradients, rate, ages)
        if self.average:
            average, theta = list(self.average.values()), list(self.theta.values())
            torch._foreach_lerp_(average, theta, 1 - self.recipe.ema)
        self.step += 1
        found = losses.cpu().numpy()
        self.smooth = smoothed(self.smooth, found)
        return found

    def _drop_diverged(self, losses: Array, look: bool) -> Iterator[Event]:
        """Ends members whose loss is not finite or (if we `look`) whose theta is huge."""
        good = np.isfinite(losses)
        if look:
            good &= norms(self.theta) < self.too_large
        if good.all():
            return
        bad, last = np.nonzero(~good)[0].tolist(), f"step {self.good_at[0]:,}, the last good one"
        for n, t in self.kept.items():
            t[bad] = self.good[n][bad]
        yield from self._finish([(self.seeds[i], "diverged") for i in bad])
        if self.alone:  # who trains many is told of each
            kept = f"; {self.out} has the model of {last}" if self.out else ""
            what = "loss or weights not finite, or huge"
            raise GlassformerError(f"training diverged at step {self.step}: {what}{kept}")

    # ── looking at it ──────────────────────────────────────────────────────────────────────────
    def model(self, i: int, at: int | None = None) -> Model:
        """Return member i's current model, with averaged weights if kept. `at`: step to record."""
        theta = {n: t[i].detach().clone() for n, t in self.kept.items()}
        with torch.no_grad():
            weights = self.objective.weights(theta)
        made = {
            "maker": "trainer", "seed": self.seeds[i], "step": self.step if at is None else at,
            "recipe": self.reported.to_json(), "blueprint": self.blueprint.ref,
        }  # fmt: skip
        model = Model(self.config, weights, self.task.vocabulary, self.task.ref, provenance=made)
        if type(self.blueprint) is Dense:  # theta is the weights
            return model
        return replace(model, theta=theta, blueprint=self.blueprint.ref)

    def _evaluate(self, members: list[int]) -> Iterator[Event]:
        finished, failed, r = [], [], self.recipe
        self.mark_good(members)
        # before the state: what is resumed after a kill writes the same files again
        save_snapshots(self, members)
        for i in members:
            seed = self.seeds[i]
            seen = seed in self.exact  # test rows are trained on
            report: Report = {
                "step": self.step,
                "loss": float(self.smooth[i]),
                "seconds": self.seconds,
            }
            report |= ({"phase": EXACT} if seen else {}) | self.measure(self.model(i), seen)
            events = self.watchers[i].look(self.step, report)
            if r.wait_accuracy and self.decay_at[i] < 0 and report["accuracy"] >= r.wait_accuracy:
                self.decay_at[i] = self.step
            end = self.step == r.steps or self._is_tried_out(i)
            last = end and report["accuracy"] >= min(NEARLY, r.success)
            looks = r.exact and (seed in self.exact or self.watchers[i].is_stable or last)
            if looks:
                yield from self._look(i, report)
                found = self.exact[seed].last
                assert found
                report |= {"wrong": found.wrong, "checked": found.checked}
                events.append(Event(EXACT, self.step, seed, found.to_json()))
            hopeless = 0 < r.hopeless_after <= self.step - self.begun[i]
            hopeless &= report["accuracy"] < r.hopeless_at
            if not (looks or hopeless or self.watchers[i].in_a_row) and self._is_tried_out(i):
                events.append(Event(ANEW, self.step, seed, {"accuracy": report["accuracy"]}))
                failed.append(i)
            self.history[seed].append(report)
            yield Event("evaluation", self.step, seed, report)
            self.turning_points[seed] += events
            yield from events
            if looks:
                if self.exact[seed].done or self._is_last(seed):
                    finished.append((seed, self.exact[seed].status))
            elif self.watchers[i].is_stable:
                finished.append((seed, "stable"))
            elif hopeless:
                finished.append((seed, "hopeless"))
        for i in failed:  # now that all has been told of what was
            self._begin_anew(i)
        if finished:
            yield from self._finish(finished)
        else:
            yield from save_run(self)

    def mark_good(self, members: list[int]) -> None:
        """What these go back to if they diverge."""
        for n, t in self.kept.items():
            self.good[n][members] = t[members]
        self.good_at[members] = self.step

    def _look(self, i: int, report: Report) -> Iterator[Event]:
        """Check member i's whole domain, with progress events. Starts its last phase if needed."""
        seed, model = self.seeds[i], self.model(i)
        begun = Exact(self.task, seed, self.step, report["accuracy"], alike=self.recipe.alike)
        phase = self.exact.setdefault(seed, begun)
        yield from self._with_progress(i, phase.look(model, self.step), phase.most)
        if self._is_last(seed) and not phase.done:  # count the remaining wrong rows
            yield from self._with_progress(i, phase.count(model, self.step), phase.most)

    def _with_progress(self, i: int, looked: Iterator[int], rows: int) -> Iterator[Event]:
        """Check rows of member i's domain, with progress events."""
        for n in accumulate(looked):
            yield self._progress(i, looked=n, rows=rows)
            if n < rows and self.asked_to_stop():
                raise StoppedLooking

    def _progress(self, i: int, **more: int) -> Event:
        data = {"loss": float(self.smooth[i]), "of": self.recipe.steps, **more}
        return Event("step", self.step, self.seeds[i], data)

    def _finish(self, members: list[tuple[int, str]]) -> Iterator[Event]:
        """Hands out the members' trainings and goes on with the others."""
        for seed, status in members:
            i = self.seeds.index(seed)
            model = self.model(i, int(self.good_at[i]) if status == "diverged" else None)
            model = model.map(lambda w: w.cpu().numpy())
            history, events = self.history[seed], self.turning_points[seed]
            phase = self.exact.pop(seed, None)
            # what was measured before it began anew is of another model
            last = [r["accuracy"] for r in history[-1:] if r["step"] > self.begun[i]]
            accuracy = phase.accuracy if phase else sum(last, 0.0)  # on held-out rows
            training = Training(
                model, self.reported, seed, self.step, self.seconds, accuracy, status, history,
                events, phase.last if phase else None, phase.began if phase else None,
            )  # fmt: skip
            if self.out and status != "interrupted":
                save(model, self.out)
                remove(state_path(self.out))
            yield Event("done", self.step, seed, {"training": training})
        if gone := {s for s, _ in members}:
            self._keep([i for i, s in enumerate(self.seeds) if s not in gone])

    def _keep(self, index: list[int]) -> None:
        """Drops all members but these."""
        state = {n: t[index] if t.ndim else t for n, t in self.optimizer.state().items()}
        for name in ("theta", "average", "good"):
            setattr(self, name, {n: t[index] for n, t in getattr(self, name).items()})
        self.optimizer = Optimizer(self.theta, self.recipe)
        self.optimizer.load(state)
        for name in ("smooth", "decay_at", "begun", "too_large", "good_at"):
            setattr(self, name, getattr(self, name)[index])
        self.watchers = [self.watchers[i] for i in index]
        self.seeds = [self.seeds[i] for i in index]
