"""The training loop: a generator of events. One run or many at once are the same code, with a leading axis of members.

    for event in train(task, recipe, seeds=[0]):
        print(event.kind, event.step, event.data)

Same seed, recipe and machine: same bits. A member of an ensemble follows its single run to rounding: within 1e-12 after
100 steps in float64, while in float32 the two drift apart, as any two runs do that differ by a rounding.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import arrays
from ..blueprints import Blueprint
from ..blueprints.dense import Dense
from ..checkpoint import digest, save
from ..errors import GlassformerError
from ..limits import MEMBERS, PROCESSES, SEED, afford, within
from ..model import Config, Model
from ..records import remove
from ..tasks.base import Task
from .data import Data
from .events import Event, Watcher
from .initial import initial_weights
from .loss import Objective, Theta, right
from .optim import Optimizer
from .recipe import Recipe
from .state import load_state, save_state, snapshot_folders, snapshot_path, state_path
from .watch import answer_names

SMOOTH = 0.95  # of the loss that schedule=wait looks at
WARM_LOSS = 20  # steps that the smoothed loss needs to see a harder level of the curriculum
EXPLODED = 1e6  # a norm of theta, as a multiple of what it was at first (or of 1), that no sound run comes near


@dataclass(frozen=True)
class Training:
    """What training gives back."""

    model: Model
    recipe: Recipe
    seed: int
    steps: int
    seconds: float  # of steps alone; an ensemble's time is shared out
    accuracy: float  # at the last evaluation
    status: str  # done, stable, hopeless, diverged (the model is then the last good one), interrupted
    history: list[dict[str, Any]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed, "steps": self.steps, "seconds": self.seconds, "accuracy": self.accuracy,
            "status": self.status, "events": [e.to_json() for e in self.events],
        }  # fmt: skip


def fit(task: Task, recipe: Recipe, seed: int = 0, **options: Any) -> Training:
    """Trains one model."""
    return fit_many(task, recipe, [seed], **options)[0]


def fit_many(task: Task, recipe: Recipe, seeds: Sequence[int], **options: Any) -> list[Training]:
    """Trains one model a seed, all at once."""
    done = {e.member: e.data["training"] for e in train(task, recipe, seeds, **options) if e.kind == "done"}
    return [done[s] for s in seeds]


def train(task: Task, recipe: Recipe, seeds: Sequence[int] = (0,), **options: Any) -> Iterator[Event]:
    """Yields events; for each member a last one, "done", whose data has the Training. Options as of `Run`."""
    return Run(task, recipe, seeds, **options).events()


class Run:
    """A run in progress."""

    def __init__(
        self, task: Task, recipe: Recipe, seeds: Sequence[int] = (0,), *, blueprint: Blueprint | None = None,
        start: Model | None = None, teacher: Model | None = None, device: str = "cpu", threads: int = 1,
        out: str | Path | None = None, resume: bool = False, compile: bool = False,
        snapshots: str | Path | None = None, stop: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """`start`: weights to begin with (and their config). `teacher`: a model whose words are the truth.

        `out`: where the model goes (one seed only), and beside it the state of the run at every evaluation.
        `snapshots`: a folder for the model at the start and at every evaluation, step-000200.safetensors and so on;
        of several seeds, each has a folder of its own within it. `stop`: asked after every step; True ends the run
        after saving.
        """
        if len(set(seeds)) != len(seeds) or not seeds:
            raise GlassformerError(f"seeds — expected different numbers, got {list(seeds)}")
        if (out or resume) and len(seeds) > 1:
            raise GlassformerError("an ensemble is not saved while it runs: train one seed to keep its state")
        if resume and not out:
            raise GlassformerError("resume — needs the file that the run was writing to: out=FILE")
        blueprint = blueprint or Dense()
        start = start or blueprint.base
        for what, model in (("start", start), ("teacher", teacher)):
            if model and model.vocabulary != task.vocabulary:
                raise GlassformerError(f"{what} — its vocabulary {model.vocabulary} is not that of {task.ref}")
        within("train — threads", threads, 1, PROCESSES)
        within("train — the number of seeds", len(seeds), 1, MEMBERS)
        for seed in seeds:
            within("train — a seed", seed, 0, SEED)
        _afford(task, recipe, len(seeds), start)
        torch.set_num_threads(threads)
        self.task, self.recipe, self.blueprint = task, recipe, blueprint
        self.start, self.teacher, self.out, self.stop = start, teacher, out, stop
        self.device, self.seeds = _device(device), list(seeds)
        self.data = Data(task, recipe)
        self.config: Config = start.config if start else recipe.config(len(task.vocabulary), self.data.length)
        if self.data.length - 1 > self.config.n_ctx:
            raise GlassformerError(f"start — its block of {self.config.n_ctx} is too short for {task.ref}")
        shapes = {n: tuple(w.shape) for n, w in start.weights.items()} if start else recipe.weight_shapes(self.config)
        self.objective = Objective(self.config, shapes, self.blueprint, recipe, teacher, compile)
        begun = []
        for seed in seeds:
            rng = np.random.default_rng([seed, 0])
            weights = start.weights if start else initial_weights(recipe, self.config, shapes, rng)
            if start and start.theta and start.blueprint == blueprint.ref:  # of the same kind: its very numbers
                # in the blueprint's order: that of a file's arrays is not fixed, and sums over theta round by order
                begun.append({n: arrays.numpy(start.theta[n]) for n in blueprint.theta_shapes(shapes)})
            elif start and blueprint.at_random:
                raise GlassformerError(f"start — {blueprint.ref} begins at random, or with a model of its own kind")
            else:
                begun.append(blueprint.start(weights, rng))
        self.theta: Theta = {
            n: torch.tensor(np.stack([b[n] for b in begun]), dtype=getattr(torch, recipe.dtype), device=self.device)
            for n in begun[0]
        }
        self.average: Theta = {n: t.clone() for n, t in self.theta.items()} if recipe.ema else {}
        self.optimizer = Optimizer(self.theta, recipe)
        self.too_large = EXPLODED * np.maximum(_norms(self.theta), 1.0)
        self.good: Theta = {n: t.clone() for n, t in self.theta.items()}  # as at the last evaluation
        self.watchers = [Watcher(recipe, s, task.floor()) for s in seeds]
        self.smooth = np.full(len(seeds), np.nan)
        self.decay_at = np.full(len(seeds), -1)
        self.history: dict[int, list[dict[str, Any]]] = {s: [] for s in seeds}
        self.found: dict[int, list[Event]] = {s: [] for s in seeds}
        self.classes, self.class_of = np.unique(task.classes(self.data.test_rows), return_inverse=True)
        self.step, self.seconds = 0, 0.0
        self.clock = time.perf_counter  # of the training steps; a benchmark may take processor time
        self.folders = snapshot_folders(snapshots, seeds, resume) if snapshots else {}
        if resume:
            self._load()

    def events(self) -> Iterator[Event]:
        """Trains, and yields what happens."""
        shown = time.perf_counter()
        if self.step == 0:
            yield from self._save()  # a folder that cannot be written to is found now, not in an hour
            self._snapshot()
        while self.seeds and self.step < self.recipe.steps:
            began = self.clock()
            losses = self._step()
            self.seconds += (self.clock() - began) / len(self.seeds)
            ended, stopped = self.step >= self.recipe.steps, self.stop()
            due = self.step % self.recipe.evaluate_every == 0 or ended
            yield from self._drop_diverged(losses, due or stopped)
            if due and self.seeds:
                yield from self._evaluate()
            elif self.seeds and time.perf_counter() - shown > 0.2:
                shown = time.perf_counter()
                yield Event("step", self.step, self.seeds[0], {"loss": float(self.smooth[0]), "of": self.recipe.steps})
            if stopped and not ended and self.seeds:
                yield from self._save()
                yield from self._finish([(s, "interrupted") for s in self.seeds])
        yield from self._finish([(s, "done") for s in self.seeds])

    # ── one step ───────────────────────────────────────────────────────────────────────────────
    def _step(self) -> Any:
        """Takes a step; returns the losses [N]."""
        gradients, losses = self.objective.gradients(self.theta, *self.data.step(self.seeds, self.step))
        self.optimizer.step(gradients, self._rates())
        if self.average:
            torch._foreach_lerp_(list(self.average.values()), list(self.theta.values()), 1 - self.recipe.ema)
        self.step += 1
        out = losses.cpu().numpy()
        self.smooth = np.where(np.isnan(self.smooth), out, SMOOTH * self.smooth + (1 - SMOOTH) * out)
        return out

    def _rates(self) -> Any:
        """The share of the learning rate that each member uses in this step, [N]."""
        r, t = self.recipe, self.step
        warm = min(1.0, (t + 1) / r.warmup) if r.warmup else 1.0
        begin: Any = {"constant": r.steps, "cosine": r.warmup, "linear": r.decay_from, "wait": t}[r.schedule]
        if r.schedule == "wait":
            hardest = max((at for at, _ in r.levels()), default=0)  # what is learned before proves nothing
            now = (self.decay_at < 0) & (self.smooth < r.wait_loss) & (t >= max(r.warmup, hardest + WARM_LOSS))
            self.decay_at = np.where(now, t, self.decay_at)
            begin = np.where(self.decay_at < 0, t, self.decay_at)
        done = np.clip((t - begin) / (r.decay_steps or np.maximum(r.steps - begin, 1)), 0.0, 1.0)
        left = 0.5 * (1 + np.cos(math.pi * done)) if r.schedule == "cosine" else 1 - done
        return warm * (r.last_lr + (1 - r.last_lr) * left) * np.ones(len(self.seeds))

    def _drop_diverged(self, losses: Any, look: bool) -> Iterator[Event]:
        """Ends members with a loss that is not finite or (if we `look`) a huge theta, with the last good one."""
        good = np.isfinite(losses)
        if look:
            good &= _norms(self.theta) < self.too_large
        if good.all():
            return
        bad, alone = np.nonzero(~good)[0].tolist(), len(self.seeds) == 1
        for n, t in (self.average or self.theta).items():
            t[bad] = self.good[n][bad]
        history = self.history[self.seeds[bad[0]]]
        yield from self._finish([(self.seeds[i], "diverged") for i in bad])
        if alone:
            last = history[-1]["step"] if history else 0
            kept = f"; {self.out} has the model of step {last}, the last good one" if self.out else ""
            raise GlassformerError(f"training diverged at step {self.step}: loss or weights not finite, or huge{kept}")

    # ── looking at it ──────────────────────────────────────────────────────────────────────────
    def model(self, i: int) -> Model:
        """Member i's model as it is now: the average of its weights where one is kept."""
        theta = {n: t[i].detach().clone() for n, t in (self.average or self.theta).items()}
        with torch.no_grad():
            weights = self.objective.weights(theta)
        provenance = {
            "maker": "trainer", "seed": self.seeds[i], "step": self.step, "recipe": self.recipe.to_json(),
            "blueprint": self.blueprint.ref,
        }  # fmt: skip
        model = Model(self.config, weights, self.task.vocabulary, self.task.ref, provenance=provenance)
        if isinstance(self.blueprint, Dense):  # theta is the weights
            return model
        return replace(model, theta=theta, blueprint=self.blueprint.ref)

    def _evaluate(self) -> Iterator[Event]:
        finished = []
        for n, t in (self.average or self.theta).items():
            self.good[n].copy_(t)
        self._snapshot()  # before the state: what is resumed after a kill writes the same files again
        for i, seed in enumerate(self.seeds):
            report = self._report(i)
            self.history[seed].append(report)
            yield Event("evaluation", self.step, seed, report)
            events = self.watchers[i].look(self.step, report)
            self.found[seed] += events
            yield from events
            if self.watchers[i].is_stable:
                finished.append((seed, "stable"))
            elif 0 < self.recipe.hopeless_after <= self.step and report["accuracy"] < self.recipe.hopeless_at:
                finished.append((seed, "hopeless"))
        if finished:
            yield from self._finish(finished)
        else:
            yield from self._save()

    def _report(self, i: int) -> dict[str, Any]:
        """How good member i is, on the whole, a digit and a class of input."""
        model, r = self.model(i), self.recipe
        good = right(model, self.task, self.data.test_rows, r.tap)
        report = {
            "step": self.step, "loss": float(self.smooth[i]), "accuracy": float(good.all(1).mean()),
            "digits": good.mean(0).tolist(), "seconds": self.seconds,
        }  # fmt: skip
        if (sample := self.data.train_sample(2_000)) is not None:
            report["train_accuracy"] = float(right(model, self.task, sample, r.tap).all(1).mean())
        if len(self.classes) > 1:
            share = np.bincount(self.class_of, good.all(1)) / np.bincount(self.class_of)
            report["classes"] = dict(zip(self.classes.tolist(), share.tolist(), strict=True))
        return report

    def _finish(self, members: list[tuple[int, str]]) -> Iterator[Event]:
        """Hands out the members' trainings and goes on with the others."""
        for seed, status in members:
            model = self.model(self.seeds.index(seed)).map(lambda w: w.cpu().numpy())
            history = self.history[seed]
            accuracy = history[-1]["accuracy"] if history else 0.0
            training = Training(
                model, self.recipe, seed, self.step, self.seconds, accuracy, status, history, self.found[seed]
            )
            if self.out and status != "interrupted":
                save(model, self.out)
                remove(state_path(self.out))
            yield Event("done", self.step, seed, {"training": training})
        if gone := {s for s, _ in members}:
            self._keep([i for i, s in enumerate(self.seeds) if s not in gone])

    def _keep(self, index: list[int]) -> None:
        """Drops all members but these."""
        state = {n: t[index] if t.ndim else t for n, t in self.optimizer.state().items()}
        self.theta, self.average, self.good = (
            {n: t[index] for n, t in group.items()} for group in (self.theta, self.average, self.good)
        )
        self.optimizer = Optimizer(self.theta, self.recipe)
        self.optimizer.load(state)
        self.smooth, self.decay_at, self.too_large = self.smooth[index], self.decay_at[index], self.too_large[index]
        self.watchers, self.seeds = [self.watchers[i] for i in index], [self.seeds[i] for i in index]

    # ── on disk ────────────────────────────────────────────────────────────────────────────────
    def _identity(self) -> dict[str, Any]:
        """What must be the same for a run to go on."""
        return {
            "task": self.task.ref, "recipe": self.recipe.to_json(), "seed": self.seeds[0],
            "blueprint": self.blueprint.ref, "start": digest(self.start) if self.start else "",
            "teacher": digest(self.teacher) if self.teacher else "",
        }  # fmt: skip

    def _save(self) -> Iterator[Event]:
        if not self.out:
            return
        groups = {"theta": self.theta, "average": self.average, "optimizer": self.optimizer.state()}
        tensors = {f"{group}.{n}": t for group, members in groups.items() for n, t in members.items()}
        seed = self.seeds[0]
        header = {
            "identity": self._identity(), "step": self.step, "seconds": self.seconds,
            "smooth": float(self.smooth[0]).hex(), "decay_at": int(self.decay_at[0]),
            "watcher": self.watchers[0].state(), "history": self.history[seed],
            "events": [e.to_json() for e in self.found[seed]],
        }  # fmt: skip
        path = state_path(self.out)
        save_state(path, tensors, header)
        yield Event("checkpoint", self.step, seed, {"path": str(path)})

    def _snapshot(self) -> None:
        for i, seed in enumerate(self.seeds if self.folders else ()):
            model = self.model(i).map(lambda w: w.cpu().numpy())
            save(model, snapshot_path(self.folders[seed], self.step))

    def _check_state(self, path: Path, arrays: dict[str, Any], header: dict[str, Any]) -> None:
        """Refuses arrays that this run does not have, or of other shapes, and figures that it cannot have reached."""
        wrong = ""
        must: dict[str, tuple[int, ...]] = {}
        may: dict[str, tuple[int, ...]] = {}
        for group, members in (("theta", self.theta), ("average", self.average), ("optimizer", self.optimizer.state())):
            must |= {f"{group}.{n}": tuple(t.shape) for n, t in members.items()}
        for n in self.optimizer.by_adamw:  # there from the first step on
            may |= {f"optimizer.{kind}.{n}": tuple(self.theta[n].shape) for kind in ("exp_avg", "exp_avg_sq")}
            may[f"optimizer.step.{n}"] = ()
        known = may | must if header["step"] else must
        if odd := sorted(n for n in {*known, *arrays} if n not in arrays or arrays[n].shape != known.get(n)):
            wrong = f"{odd[0]} is {list(arrays[odd[0]].shape) if odd[0] in arrays else 'missing'}"
        elif odd := [n for n, a in arrays.items() if not n.startswith("optimizer.") and not np.isfinite(a).all()]:
            wrong = f"{odd[0]} is not finite"
        elif header["step"] > self.recipe.steps or max(header["decay_at"], header["watcher"]["since"]) > header["step"]:
            wrong = f"step {header['step']:,} of {self.recipe.steps:,} does not fit"
        elif any(len(report["digits"]) != len(answer_names(self.task)) for report in header["history"]):
            wrong = "its history has other answers"
        if wrong:
            raise GlassformerError(f"{path} — not the state of a run, or a damaged one: {wrong}")

    def _load(self) -> None:
        assert self.out
        path = state_path(self.out)
        arrays, header = load_state(path)
        differ = [k for k, v in self._identity().items() if header["identity"].get(k) != v]
        if differ:
            which = " and ".join(f"{k} differs" for k in differ)
            raise GlassformerError(f"{path} — is of another run: its {which}; start without --resume, or elsewhere")
        self._check_state(path, arrays, header)
        tensors = {n: torch.tensor(a, device=self.device) for n, a in arrays.items()}
        for group, into in (("theta", self.theta), ("average", self.average)):
            for n in into:
                into[n].copy_(tensors[f"{group}.{n}"])
        self.optimizer.load({n.removeprefix("optimizer."): t for n, t in tensors.items() if n.startswith("optimizer.")})
        for n, t in (self.average or self.theta).items():
            self.good[n].copy_(t)
        seed = self.seeds[0]
        self.step, self.seconds = int(header["step"]), float(header["seconds"])
        self.smooth, self.decay_at = np.array([header["smooth"]]), np.array([header["decay_at"]])
        self.watchers[0].load(header["watcher"])
        self.history[seed] = header["history"]
        self.found[seed] = [Event(**e) for e in header["events"]]


def _afford(task: Task, recipe: Recipe, members: int, start: Model | None) -> None:
    """Refuses a run whose rows, weights and activations cannot fit into memory. Counts what is sure to be there."""
    T = task.batch(task.rows(0, 1))[0].shape[1]
    rows = recipe.test_rows + (recipe.train_rows if recipe.data != "fresh" else 0)
    afford(f"training — {rows:,} rows of {task.ref}", rows * (8 * len(task.radix) + 9 * T))
    c = start.config if start else recipe.config(len(task.vocabulary), T)
    shapes = {n: tuple(w.shape) for n, w in start.weights.items()} if start else recipe.weight_shapes(c)
    number = 4 if recipe.dtype == "float32" else 8  # bytes
    weights = sum(map(math.prod, shapes.values()))
    afford(f"training — {members:,} times {weights:,} weights", 4 * number * members * weights)  # good, gradient, state
    batch = recipe.batch if recipe.data == "fresh" else min(recipe.batch or recipe.train_rows, recipe.train_rows)
    row = max(c.n_layers - 1, 0) * (T * (2 * c.d_model + c.d_mlp) + c.n_heads * T * T)
    afford(f"training — {members:,} times a batch of {batch:,}", number * members * batch * row)


def _norms(theta: Theta) -> Any:
    """The norm of each member's theta, [N]."""
    return torch.stack([t.cpu().double().flatten(1).square().sum(1) for t in theta.values()]).sum(0).sqrt().numpy()


def _device(name: str) -> torch.device:
    """A device by name: cpu, cuda, cuda:1, mps; an error if it is not here."""
    if name.partition(":")[0] in ("cpu", "cuda", "mps"):  # others that PyTorch knows have no numbers, or warn
        with contextlib.suppress(RuntimeError, AssertionError, NotImplementedError):
            return torch.ones(1, device=name).device
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    here = ", ".join(k for k, v in there.items() if v)
    raise GlassformerError(f"device {name} — not available on this machine; there is {here}")
