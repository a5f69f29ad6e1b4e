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
from ..proof.counterexamples import first_counterexample
from ..puzzles import judge, level
from ..puzzles.judge_process import MAX_MEMORY_BYTES
from ..report_page.examples import typeable_text
from ..report_page.inputs import initial_inputs, read_error
from ..report_page.payload import encode_weights, model_payload
from ..report_page.report import short_titles
from ..tasks.base import Task
from ..tasks.token_layout import answer_names
from ..training.recipe import recipe_option
from ..utils.errors import GlassformerError, unknown_name_error
from ..utils.progress import Progress
from ..utils.sandbox.child import limited_memory
from .catalogue import RECIPE_NAMES, Catalogue
from .errors import SOURCE_NAME

if TYPE_CHECKING:
    from ..training.loop import Trainer
    from .worker_main import ProgressChannel

COMPILED_CACHE_SIZE = 4  # compiled models
QUICK_CHECK_ROWS = (
    1_000  # rows, besides the edge cases, that are looked at before a proof is looked for
)
MAX_SNAPSHOTS, MAX_SNAPSHOT_NUMBERS = (
    60,
    1_500_000,
)  # of a training, and the weights that all of them may have
RequestFields = Mapping[str, Any]


class Handlers:
    """Where a process keeps what it needs to work for a page."""

    def __init__(self, shelf: Catalogue) -> None:
        self.catalogue = shelf
        self.compiled = lru_cache(COMPILED_CACHE_SIZE)(self._compiled)
        self.by_name: dict[str, Callable[[RequestFields, ProgressChannel], Any]] = {
            "refs": lambda given, line: shelf.list_names(),
            "model": self.model,
            "verify": self.verify,
            "prove": self.prove,
            "train": self.train,
            "check": self.check,
        }

    def handle(self, what: str, given: RequestFields, line: "ProgressChannel") -> Any:
        with np.errstate(all="ignore"):  # what is not finite, the rooms see to
            return self.by_name[what](given, line)

    # ── models ─────────────────────────────────────────────────────────────────────────────────
    def model(self, given: RequestFields, line: "ProgressChannel") -> dict[str, Any]:
        """A model as the page has it."""
        model, ref = self.load(given)
        texts = given.get("inputs") or _initial_inputs(model)
        for text in texts:
            if problem := read_error(model, text):
                raise GlassformerError(f"{ref} — {problem}")
        return model_payload(model, ref, title=short_titles([ref])[0], inputs=texts)

    def load(self, given: RequestFields) -> tuple[Model, str]:
        """The model that was asked for, with its edits, and what to call it."""
        if (ref := given.get("ref")) is not None:
            in_library = ref.startswith(source_refs.LIBRARY_PREFIX)
            model = self.compiled(ref, "") if in_library else self.catalogue.model(ref)
        elif given.get("source") is not None:
            model, ref = (
                self.parse_source(given["source"], given["kind"]),
                f"{SOURCE_NAME}.{given['kind']}",
            )
        else:
            try:
                data = base64.b64decode(given["checkpoint"], validate=True)
            except (ValueError, binascii.Error):
                raise GlassformerError("checkpoint — expected base64") from None
            model, ref = (
                self.catalogue.without_unknown_task(checkpoint.from_bytes(data, "checkpoint")),
                "",
            )
        return apply_edits(model, given.get("edits") or ()), ref

    def parse_source(self, text: str, kind: str) -> Model:
        """The model of a text that was typed."""
        if kind == "glass":
            return self.compiled("", text)
        return resolve.check_task_vocabulary(
            SOURCE_NAME, self.catalogue.without_unknown_task(taotp.parse(text, SOURCE_NAME))
        )

    def _compiled(self, ref: str, text: str) -> Model:
        """The model of a ref of the library or of a source. The last few are kept: after every edit
        the same one is asked for.
        """
        return (
            self.catalogue.model(ref)
            if ref
            else source_refs.compile_ref(source_refs.SourceRef(SOURCE_NAME, text, {})).model
        )

    def model_and_task(self, given: RequestFields) -> tuple[Model, Task]:
        model, _ = self.load(given)
        task = self.catalogue.task(given.get("task") or "", model)
        task.require(model.vocabulary)
        return model, task

    # ── is it right? ───────────────────────────────────────────────────────────────────────────
    def verify(self, given: RequestFields, line: "ProgressChannel") -> dict[str, Any]:
        model, task = self.model_and_task(given)
        verdict = api.verify(
            model, task, sample=given.get("sample"), exhaustive=bool(given.get("every")),
            seed=given.get("seed", 0), progress=lambda event: line.send(progress_fields(event)),
        )  # fmt: skip
        found = next(iter(verdict.counterexamples), None)
        return {"verdict": verdict.to_json(), "margin": verdict.worst_margin,
                "counterexample": typeable_counterexample(model, task, found)}  # fmt: skip

    def prove(self, given: RequestFields, line: "ProgressChannel") -> dict[str, Any]:
        """A proof. First a glance: what is badly broken is seen to be at once. What it is at is
        told, as making a model from a source may take longer than to prove it.
        """
        line.send({"doing": "compiling" if _is_source(given) else "reading the model"})
        model, task = self.model_and_task(given)
        line.send({"doing": "trying edge cases"})
        seed = given.get("seed", 0)
        rows = [task.edges(), task.sample(QUICK_CHECK_ROWS, np.random.default_rng(seed))]
        rows_ = np.concatenate(rows)
        if wrong := first_counterexample(model, task, rows_[task.defined(rows_)]):
            line.send({"counterexample": typeable_counterexample(model, task, wrong)})
        line.send({"doing": "proving"})
        proof = api.prove(
            model, task, method=given.get("method", "auto"), seed=seed,
            progress=lambda event: line.send(progress_fields(event)) if event.total else None,
        )  # fmt: skip
        told = proof.to_json()
        told.pop("certificate")  # large, and of no use to a page
        found = proof.counterexample
        margin = found.get("margin") if found else proof.margin
        shown = typeable_counterexample(model, task, found)
        return {"proof": told, "margin": margin, "counterexample": shown}

    # ── training ───────────────────────────────────────────────────────────────────────────────
    def train(self, given: RequestFields, line: "ProgressChannel") -> dict[str, Any]:
        """A model trained while the page looks on: every evaluation is told, and the model at the
        end comes with its snapshots.
        """
        task = self.catalogue.task(given["task"])
        name = given.get("recipe", "")
        if name and name not in RECIPE_NAMES:  # a file, say
            raise unknown_name_error("recipe", name, RECIPE_NAMES, cutoff=0.4)
        settings = given.get("settings", {})
        for field in settings:
            recipe_option(field)  # an error unless it is a recipe field
        with (
            self.catalogue.sandbox.suspended()
        ):  # PyTorch looks for a place for its files, and uses none
            import torch as torch

        run = api.train(
            task, name, [seed := given.get("seed", 0)], stop=line.stopped,
            **cast(Any, {field: str(value) for field, value in settings.items()}),
        )  # fmt: skip
        trainer, recipe = run.trainer, run.trainer.recipe
        album, training = SnapshotSeries(trainer), None
        line.send({"of": recipe.steps, "names": list(answer_names(task)), "recipe": recipe.name})
        for event in run:
            if event.kind == "done":
                training = event.data["training"]
            elif event.kind == "step":
                line.send({"step": event.step, "loss": event.data["loss"], "of": recipe.steps})
            elif event.kind != "checkpoint":
                line.send({"event": {"kind": event.kind, "step": event.step, **event.data}})
            if event.kind == "evaluation":
                album.add(event.data)
        assert training is not None
        ref = f"{task.ref}, trained ({recipe.name}, seed {seed}, {training.steps:,} steps)"
        model = training.model
        shown = model_payload(
            model, ref, inputs=_initial_inputs(model), snapshots=album.snapshots or None
        )
        told = training.to_json()
        told.pop("events")
        return {"model": shown, "training": told}

    # ── puzzles ────────────────────────────────────────────────────────────────────────────────
    def check(self, given: RequestFields, line: "ProgressChannel") -> Any:
        with limited_memory(MAX_MEMORY_BYTES):  # the limit of `glassformer puzzle check`
            return judge(level(given["level"]), given["text"]).to_json()


class SnapshotSeries:
    """Snapshots of a training, few enough for a page: when there are too many, every other goes."""

    def __init__(self, trainer: "Trainer") -> None:
        self.trainer, self.stride, self.evaluations = trainer, 1, 0
        self.snapshots: list[dict[str, Any]] = []
        size = sum(int(np.prod(w.shape)) for w in trainer.model(0).weights.values())
        self.max_snapshots = min(MAX_SNAPSHOTS, MAX_SNAPSHOT_NUMBERS // max(size, 1))

    def add(self, report: Mapping[str, Any]) -> None:
        self.evaluations += 1
        if self.max_snapshots < 2 or (self.evaluations - 1) % self.stride:
            return
        model = self.trainer.model(0).map(lambda w: w.cpu().numpy()).astype("float32")
        told = {name: report[name] for name in ("step", "loss", "accuracy")}
        told |= {"places": report["digits"], "trained": report.get("train_accuracy")}
        self.snapshots.append({**told, "weights": encode_weights(model)})
        if len(self.snapshots) > self.max_snapshots:
            self.snapshots, self.stride = self.snapshots[::2], 2 * self.stride


def _initial_inputs(model: Model) -> list[str]:
    """Texts to begin with; none, if the model says nothing of what it reads."""
    try:
        return initial_inputs(model)
    except GlassformerError:
        return []


def _is_source(given: RequestFields) -> bool:
    """Whether a model is made from a source of the sequence language."""
    typed = given.get("source") is not None and given["kind"] == "glass"
    return typed or source_refs.is_source_ref(given.get("ref") or "")


def progress_fields(event: Progress) -> dict[str, int]:
    return {"done": event.done, "todo": event.total, "wrong": event.wrong}


def typeable_counterexample(
    model: Model, task: Task, found: dict[str, Any] | None
) -> dict[str, Any] | None:
    """A counterexample as one can type it, since a click in the page does: a row of digits alone is
    no text that the model reads.
    """
    if found is None or not read_error(model, found["input"]):
        return found
    tokens, answer = (x[0] for x in task.batch(np.array([found["row"]], task.row_type)))
    text = typeable_text(task, tokens[: int(answer.argmax())].tolist())
    return found if text is None else {**found, "input": text}


def apply_edits(model: Model, edits: Sequence[Mapping[str, Any]]) -> Model:
    """The model with some of its weights set anew. What theta made them is no longer true."""
    if not edits:
        return model
    model = model.numpy()
    changed = {
        name: np.array(model.weights[name]) for name in dict.fromkeys(_edited_names(model, edits))
    }
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
    return replace(model, weights={**model.weights, **changed}, theta={}, parametrization="")


def _edited_names(model: Model, edits: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for edit in edits:
        if edit["name"] not in model.weights:
            raise unknown_name_error("weight", edit["name"], model.weights)
        yield edit["name"]


def resolve_folders(given: Sequence[str | Path]) -> list[Path]:
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
