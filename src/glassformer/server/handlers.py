"""The request handlers of a worker process: models, verdicts, proofs, trainings, puzzles.

Requests are plain data, already validated by request_models.py. Sources are parsed, never executed.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .. import api, registry, resolve, taotp
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
from ..utils.limits import MAX_SEED, check_int_range
from ..utils.progress import Progress
from ..utils.sandbox.child import limited_memory
from ..utils.worker_main import ProgressChannel
from .catalogue import RECIPE_NAMES, Catalogue
from .errors import SOURCE_NAME
from .fs_sandbox import FileSandbox

if TYPE_CHECKING:
    from ..training.loop import Trainer

COMPILED_CACHE_SIZE = 4
QUICK_CHECK_ROWS = 1_000  # number of sampled rows to run before a proof, besides edge cases
MAX_SNAPSHOTS = 60
MAX_SNAPSHOT_NUMBERS = 1_500_000  # total number of weights in all snapshots
RequestFields = Mapping[str, Any]
Handler = Callable[[str, RequestFields, ProgressChannel], Any]


def prepare(setup: dict[str, Any]) -> Handler:
    """Load command-line models, activate the file sandbox, and return a worker's handler."""
    folders = [Path(folder) for folder in setup["folders"]]
    sandbox = FileSandbox(folders)
    handlers = Handlers(Catalogue(setup["typed"], folders, sandbox))
    sandbox.activate()
    return handlers.handle


class Handlers:
    """The request handlers of a worker process, with cached models."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.compiled = lru_cache(COMPILED_CACHE_SIZE)(self._compiled)
        self.by_name: dict[str, Callable[[RequestFields, ProgressChannel], Any]] = {
            "refs": lambda request, line: catalogue.list_names(), "model": self.model,
            "verify": self.verify, "prove": self.prove, "train": self.train, "check": self.check,
        }  # fmt: skip

    def handle(self, name: str, request: RequestFields, line: ProgressChannel) -> Any:
        with np.errstate(all="ignore"):  # handlers check for non-finite values
            return self.by_name[name](request, line)

    # ── models ─────────────────────────────────────────────────────────────────────────────────
    def model(self, request: RequestFields, line: ProgressChannel) -> dict[str, Any]:
        model, ref = self.load(request)
        texts = request.get("inputs") or _initial_inputs(model)
        for text in texts:
            if problem := read_error(model, text):
                raise GlassformerError(f"{ref}: {problem}")
        return model_payload(model, ref, title=short_titles([ref])[0], inputs=texts)

    def load(self, request: RequestFields) -> tuple[Model, str]:
        """Load the requested model and apply its edits. Return the model and its ref."""
        if (ref := request.get("ref")) is not None:
            in_library = ref.startswith(registry.LIBRARY_PREFIX)
            model = self.compiled(ref, "") if in_library else self.catalogue.model(ref)
        elif (text := request.get("source")) is not None:
            ref = f"{SOURCE_NAME}.{request['kind']}"
            if request["kind"] == "glass":
                model = self.compiled("", text)
            else:
                model = self.catalogue.without_unknown_task(taotp.parse(text, SOURCE_NAME))
                model = resolve.check_task_vocabulary(SOURCE_NAME, model)
        else:
            try:
                data = base64.b64decode(request["checkpoint"], validate=True)
            except (ValueError, binascii.Error):
                raise GlassformerError("checkpoint: expected base64") from None
            model, ref = checkpoint.from_bytes(data, "checkpoint"), ""
            model = self.catalogue.without_unknown_task(model)
        return apply_edits(model, request.get("edits") or ()), ref

    def _compiled(self, ref: str, text: str) -> Model:
        """Compile a library ref or a source. It is cached, since every edit requests this model."""
        if ref:
            return self.catalogue.model(ref)
        return source_refs.compile_ref(source_refs.SourceRef(SOURCE_NAME, text, {})).model

    def model_and_task(self, request: RequestFields) -> tuple[Model, Task]:
        model, _ = self.load(request)
        task = self.catalogue.task(request.get("task") or "", model)
        task.require(model.vocabulary)
        return model, task

    # ── verdicts ───────────────────────────────────────────────────────────────────────────────
    def verify(self, request: RequestFields, line: ProgressChannel) -> dict[str, Any]:
        model, task = self.model_and_task(request)
        verdict = api.verify(
            model, task, sample=request.get("sample"), exhaustive=bool(request.get("exhaustive")),
            seed=request.get("seed", 0), progress=lambda p: line.send(_progress_fields(p)),
        )  # fmt: skip
        counterexample = next(iter(verdict.counterexamples), None)
        return {"verdict": verdict.to_json(), "margin": verdict.worst_margin,
                "counterexample": typeable_counterexample(model, task, counterexample)}  # fmt: skip

    def prove(self, request: RequestFields, line: ProgressChannel) -> dict[str, Any]:
        """Prove a model and report each stage. Search a sample for a counterexample first."""
        line.send({"stage": "compiling" if _is_source(request) else "reading the model"})
        model, task = self.model_and_task(request)
        line.send({"stage": "trying edge cases"})
        seed = check_int_range("prove — seed", request.get("seed", 0), 0, MAX_SEED)
        sampled = task.sample(QUICK_CHECK_ROWS, np.random.default_rng(seed))
        rows = np.concatenate([task.edges(), sampled])
        if wrong := first_counterexample(model, task, rows[task.defined(rows)]):
            line.send({"counterexample": typeable_counterexample(model, task, wrong)})
        line.send({"stage": "proving"})
        proof = api.prove(
            model, task, method=request.get("method", "auto"), seed=seed,
            progress=lambda p: line.send(_progress_fields(p)) if p.total else None,
        )  # fmt: skip
        result = proof.to_json()
        result.pop("certificate")  # the certificate is large and not used by the page
        counterexample = proof.counterexample
        margin = counterexample.get("margin") if counterexample else proof.margin
        shown = typeable_counterexample(model, task, counterexample)
        return {"proof": result, "margin": margin, "counterexample": shown}

    # ── training ───────────────────────────────────────────────────────────────────────────────
    def train(self, request: RequestFields, line: ProgressChannel) -> dict[str, Any]:
        """Train a model, report every event, and return the model with its snapshots."""
        task = self.catalogue.task(request["task"])
        name = request.get("recipe", "")
        if name and name not in RECIPE_NAMES:
            raise unknown_name_error("recipe", name, RECIPE_NAMES, cutoff=0.4)
        settings = request.get("settings", {})
        for field in settings:
            recipe_option(field)  # raises an error for unknown fields
        with self.catalogue.sandbox.suspended():  # importing PyTorch reads folders
            import torch as torch

        run = api.train(
            task, name, [seed := request.get("seed", 0)], stop=line.stopped,
            **cast(Any, {field: str(value) for field, value in settings.items()}),
        )  # fmt: skip
        trainer, recipe = run.trainer, run.trainer.recipe
        series, training = SnapshotSeries(trainer), None
        line.send({"steps": recipe.steps, "names": list(answer_names(task)), "recipe": recipe.name})
        for event in run:
            if event.kind == "done":
                training = event.data["training"]
            elif event.kind == "step":
                line.send({"step": event.step, "loss": event.data["loss"], "steps": recipe.steps})
            elif event.kind != "checkpoint":
                line.send({"event": {"kind": event.kind, "step": event.step, **event.data}})
            if event.kind == "evaluation":
                series.add(event.data)
        assert training is not None
        ref = f"{task.ref}, trained ({recipe.name}, seed {seed}, {training.steps:,} steps)"
        model, snapshots = training.model, series.snapshots or None
        shown = model_payload(model, ref, inputs=_initial_inputs(model), snapshots=snapshots)
        result = training.to_json()
        result.pop("events")
        return {"model": shown, "training": result}

    # ── puzzles ────────────────────────────────────────────────────────────────────────────────
    def check(self, request: RequestFields, line: ProgressChannel) -> Any:
        with limited_memory(MAX_MEMORY_BYTES):  # the limit of the command line
            return judge(level(request["level"]), request["text"]).to_json()


class SnapshotSeries:
    """Snapshots of a training. If there are too many, every second one is dropped."""

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
        entry = {name: report[name] for name in ("step", "loss", "accuracy")}
        entry |= {"places": report["digits"], "trained": report.get("train_accuracy")}
        self.snapshots.append({**entry, "weights": encode_weights(model)})
        if len(self.snapshots) > self.max_snapshots:
            self.snapshots, self.stride = self.snapshots[::2], 2 * self.stride


def _initial_inputs(model: Model) -> list[str]:
    """Return initial inputs, or no inputs for a model without a known task."""
    try:
        return initial_inputs(model)
    except GlassformerError:
        return []


def _is_source(request: RequestFields) -> bool:
    typed = request.get("source") is not None and request["kind"] == "glass"
    return typed or registry.is_source_ref(request.get("ref") or "")


def _progress_fields(p: Progress) -> dict[str, int]:
    return {"done": p.done, "total": p.total, "wrong": p.wrong}


def typeable_counterexample(
    model: Model, task: Task, counterexample: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return a counterexample with its input string, or None if the model cannot read it."""
    if counterexample is None or not read_error(model, counterexample["input"]):
        return counterexample
    tokens, answer = (x[0] for x in task.batch(np.array([counterexample["row"]], task.row_type)))
    text = typeable_text(task, tokens[: int(answer.argmax())].tolist())
    return counterexample if text is None else {**counterexample, "input": text}


def apply_edits(model: Model, edits: Sequence[Mapping[str, Any]]) -> Model:
    """Return the model with edited weights and without its parametrization."""
    if not edits:
        return model
    model = model.numpy()
    changed: dict[str, Any] = {}
    for edit in edits:
        name, at = edit["name"], tuple(edit["index"])
        if name not in model.weights:
            raise unknown_name_error("weight", name, model.weights)
        w = changed.setdefault(name, np.array(model.weights[name]))
        if len(at) != w.ndim or any(not 0 <= i < n for i, n in zip(at, w.shape, strict=True)):
            problem = f"expected an index of shape {list(w.shape)}, got {list(at)[:8]}"
            raise GlassformerError(f"edit of {name}: {problem}")
        with np.errstate(over="ignore"):
            w[at] = edit["value"]
        if not np.isfinite(w[at]):
            problem = f"expected a finite {w.dtype}, got {edit['value']:g}"
            raise GlassformerError(f"edit of {name}: {problem}")
    return replace(model, weights={**model.weights, **changed}, theta={}, parametrization="")


def resolve_folders(folders: Sequence[str | Path]) -> list[Path]:
    """Resolve links in folder paths. Raise an error for a path that is not a folder."""
    resolved = []
    for folder in map(Path, folders):
        try:
            real = folder.resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            raise GlassformerError(f"--folder {folder}: no such folder", code="not_found") from None
        if not real.is_dir():
            raise GlassformerError(f"--folder {folder}: expected a folder, got a file")
        resolved.append(real)
    return resolved
