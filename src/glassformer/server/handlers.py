"""What a process does for a page: models, verdicts, proofs, trainings, puzzles. A list, no more.

What comes in was looked at by request_models.py and is plain data. Texts of sources are read, never
executed.
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .. import api, resolve, taotp
from ..compiler import source_refs
from ..core import checkpoint
from ..core.model import Model
from ..proof.counterexamples import first_wrong
from ..puzzles import judge, level
from ..puzzles.judge_process import MEMORY
from ..report_page.examples import spelled
from ..report_page.inputs import refused, some_inputs
from ..report_page.payload import payload, weights
from ..report_page.report import titles
from ..tasks.base import Task
from ..tasks.token_layout import answer_names
from ..training.recipe import option
from ..utils.errors import GlassformerError, no_such
from ..utils.progress import Progress
from ..utils.sandbox.child import limited_memory
from .catalogue import RECIPE_NAMES, Shelf
from .errors import SOURCE

if TYPE_CHECKING:
    from ..training.loop import Trainer
    from .worker_main import Line

KEPT = 4  # compiled models
GLANCE = 1_000  # rows, besides the edge cases, that are looked at before a proof is looked for
SNAPSHOTS, NUMBERS = 60, 1_500_000  # of a training, and the weights that all of them may have
Given = Mapping[str, Any]


class Desk:
    """Where a process keeps what it needs to work for a page."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.compiled = lru_cache(KEPT)(self._compiled)
        self.does: dict[str, Callable[[Given, Line], Any]] = {
            "refs": lambda given, line: shelf.names(), "model": self.model, "verify": self.verify,
            "prove": self.prove, "train": self.train, "check": self.check,
        }  # fmt: skip

    def do(self, what: str, given: Given, line: "Line") -> Any:
        with np.errstate(all="ignore"):  # what is not finite, the rooms see to
            return self.does[what](given, line)

    # ── models ─────────────────────────────────────────────────────────────────────────────────
    def model(self, given: Given, line: "Line") -> dict[str, Any]:
        """A model as the page has it."""
        model, ref = self.load(given)
        texts = given.get("inputs") or _inputs(model)
        for text in texts:
            if problem := refused(model, text):
                raise GlassformerError(f"{ref} — {problem}")
        return payload(model, ref, title=titles([ref])[0], inputs=texts)

    def load(self, given: Given) -> tuple[Model, str]:
        """The model that was asked for, with its edits, and what to call it."""
        if (ref := given.get("ref")) is not None:
            in_library = ref.startswith(source_refs.LIBRARY)
            model = self.compiled(ref, "") if in_library else self.shelf.model(ref)
        elif given.get("source") is not None:
            model, ref = self.read(given["source"], given["kind"]), f"{SOURCE}.{given['kind']}"
        else:
            try:
                data = base64.b64decode(given["checkpoint"], validate=True)
            except (ValueError, binascii.Error):
                raise GlassformerError("checkpoint — expected base64") from None
            model, ref = self.shelf.settled(checkpoint.from_bytes(data, "checkpoint")), ""
        return edited(model, given.get("edits") or ()), ref

    def read(self, text: str, kind: str) -> Model:
        """The model of a text that was typed."""
        if kind == "glass":
            return self.compiled("", text)
        return resolve.agreeing(SOURCE, self.shelf.settled(taotp.parse(text, SOURCE)))

    def _compiled(self, ref: str, text: str) -> Model:
        """The model of a ref of the library or of a source. The last few are kept: after every edit
        the same one is asked for.
        """
        return (
            self.shelf.model(ref)
            if ref
            else source_refs.build(source_refs.Named(SOURCE, text, {})).model
        )

    def both(self, given: Given) -> tuple[Model, Task]:
        model, _ = self.load(given)
        task = self.shelf.task(given.get("task") or "", model)
        task.require(model.vocabulary)
        return model, task

    # ── is it right? ───────────────────────────────────────────────────────────────────────────
    def verify(self, given: Given, line: "Line") -> dict[str, Any]:
        model, task = self.both(given)
        verdict = api.verify(
            model, task, sample=given.get("sample"), exhaustive=bool(given.get("every")),
            seed=given.get("seed", 0), progress=lambda event: line.tell(progress(event)),
        )  # fmt: skip
        found = next(iter(verdict.counterexamples), None)
        return {"verdict": verdict.to_json(), "margin": verdict.worst_margin,
                "counterexample": typed(model, task, found)}  # fmt: skip

    def prove(self, given: Given, line: "Line") -> dict[str, Any]:
        """A proof. First a glance: what is badly broken is seen to be at once. What it is at is
        told, as making a model from a source may take longer than to prove it.
        """
        line.tell({"doing": "compiling" if _is_source(given) else "reading the model"})
        model, task = self.both(given)
        line.tell({"doing": "trying edge cases"})
        seed = given.get("seed", 0)
        rows = [task.edges(), task.sample(GLANCE, np.random.default_rng(seed))]
        rows_ = np.concatenate(rows)
        if wrong := first_wrong(model, task, rows_[task.defined(rows_)]):
            line.tell({"counterexample": typed(model, task, wrong)})
        line.tell({"doing": "proving"})
        proof = api.prove(
            model, task, method=given.get("method", "auto"), seed=seed,
            progress=lambda event: line.tell(progress(event)) if event.total else None,
        )  # fmt: skip
        told = proof.to_json()
        told.pop("certificate")  # large, and of no use to a page
        found = proof.counterexample
        margin = found.get("margin") if found else proof.margin
        shown = typed(model, task, found)
        return {"proof": told, "margin": margin, "counterexample": shown}

    # ── training ───────────────────────────────────────────────────────────────────────────────
    def train(self, given: Given, line: "Line") -> dict[str, Any]:
        """A model trained while the page looks on: every evaluation is told, and the model at the
        end comes with its snapshots.
        """
        task = self.shelf.task(given["task"])
        name = given.get("recipe", "")
        if name and name not in RECIPE_NAMES:  # a file, say
            raise no_such("recipe", name, RECIPE_NAMES, alike=0.4)
        settings = given.get("settings", {})
        for field in settings:
            option(field)  # an error unless it is a recipe field
        with self.shelf.fence.lowered():  # PyTorch looks for a place for its files, and uses none
            import torch as torch

        run = api.train(
            task, name, [seed := given.get("seed", 0)], stop=line.stopped,
            **cast(Any, {field: str(value) for field, value in settings.items()}),
        )  # fmt: skip
        trainer, recipe = run.trainer, run.trainer.recipe
        album, training = Album(trainer), None
        line.tell({"of": recipe.steps, "names": list(answer_names(task)), "recipe": recipe.name})
        for event in run:
            if event.kind == "done":
                training = event.data["training"]
            elif event.kind == "step":
                line.tell({"step": event.step, "loss": event.data["loss"], "of": recipe.steps})
            elif event.kind != "checkpoint":
                line.tell({"event": {"kind": event.kind, "step": event.step, **event.data}})
            if event.kind == "evaluation":
                album.add(event.data)
        assert training is not None
        ref = f"{task.ref}, trained ({recipe.name}, seed {seed}, {training.steps:,} steps)"
        model = training.model
        shown = payload(model, ref, inputs=_inputs(model), snapshots=album.pages or None)
        told = training.to_json()
        told.pop("events")
        return {"model": shown, "training": told}

    # ── puzzles ────────────────────────────────────────────────────────────────────────────────
    def check(self, given: Given, line: "Line") -> Any:
        with limited_memory(MEMORY):  # the limit of `glassformer check`
            return judge(level(given["level"]), given["text"]).to_json()


class Album:
    """Snapshots of a training, few enough for a page: when there are too many, every other goes."""

    def __init__(self, trainer: "Trainer") -> None:
        self.trainer, self.every, self.seen = trainer, 1, 0
        self.pages: list[dict[str, Any]] = []
        size = sum(int(np.prod(w.shape)) for w in trainer.model(0).weights.values())
        self.most = min(SNAPSHOTS, NUMBERS // max(size, 1))

    def add(self, report: Mapping[str, Any]) -> None:
        self.seen += 1
        if self.most < 2 or (self.seen - 1) % self.every:
            return
        model = self.trainer.model(0).map(lambda w: w.cpu().numpy()).astype("float32")
        told = {name: report[name] for name in ("step", "loss", "accuracy")}
        told |= {"places": report["digits"], "trained": report.get("train_accuracy")}
        self.pages.append({**told, "weights": weights(model)})
        if len(self.pages) > self.most:
            self.pages, self.every = self.pages[::2], 2 * self.every


def _inputs(model: Model) -> list[str]:
    """Texts to begin with; none, if the model says nothing of what it reads."""
    try:
        return some_inputs(model)
    except GlassformerError:
        return []


def _is_source(given: Given) -> bool:
    """Whether a model is made from a source of the sequence language."""
    typed = given.get("source") is not None and given["kind"] == "glass"
    return typed or source_refs.is_named(given.get("ref") or "")


def progress(event: Progress) -> dict[str, int]:
    return {"done": event.done, "todo": event.total, "wrong": event.wrong}


def typed(model: Model, task: Task, found: dict[str, Any] | None) -> dict[str, Any] | None:
    """A counterexample as one can type it, since a click in the page does: a row of digits alone is
    no text that the model reads.
    """
    if found is None or not refused(model, found["input"]):
        return found
    tokens, answer = (x[0] for x in task.batch(np.array([found["row"]], task.row_type)))
    text = spelled(task, tokens[: int(answer.argmax())].tolist())
    return found if text is None else {**found, "input": text}


def edited(model: Model, edits: Sequence[Mapping[str, Any]]) -> Model:
    """The model with some of its weights set anew. What theta made them is no longer true."""
    if not edits:
        return model
    model = model.numpy()
    changed = {name: np.array(model.weights[name]) for name in dict.fromkeys(_names(model, edits))}
    for edit in edits:
        w, at = changed[edit["name"]], tuple(edit["index"])
        if len(at) != w.ndim or any(not 0 <= i < n for i, n in zip(at, w.shape, strict=True)):
            where = f"an index of shape {list(w.shape)}, got {list(at)[:8]}"
            raise GlassformerError(f"edit of {edit['name']} — expected {where}")
        with np.errstate(over="ignore"):
            w[at] = edit["value"]
        if not np.isfinite(w[at]):
            what = f"expected a number that {w.dtype} can hold, got {edit['value']:g}"
            raise GlassformerError(f"edit of {edit['name']} — {what}")
    return replace(model, weights={**model.weights, **changed}, theta={}, blueprint="")


def _names(model: Model, edits: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for edit in edits:
        if edit["name"] not in model.weights:
            raise no_such("weight", edit["name"], model.weights)
        yield edit["name"]


def folders_of(given: Sequence[str | Path]) -> list[Path]:
    """The folders that were given, as they really are; an error for what is none."""
    found = []
    for folder in map(Path, given):
        try:
            real = folder.resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            raise GlassformerError(f"--folder {folder} — there is no such folder") from None
        if not real.is_dir():
            raise GlassformerError(f"--folder {folder} — is a file; expected a folder")
        found.append(real)
    return found
