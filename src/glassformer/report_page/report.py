"""The live page of some models: one HTML file that runs them, and needs no network.

    made = report([("addition:order=ones", load("addition:order=ones")), …])
    made.save("adders.html")

Verification runs here, over the whole domain or a sample; the page computes everything else.
"""

import html
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from .. import __version__, report_page
from ..core.model import Model
from ..resolve import load_task, task_if_known, with_task
from ..tasks.base import Task
from ..utils.argcheck import as_text
from ..utils.errors import GlassformerError, short_repr
from ..utils.fileio import check_writable, write_atomically
from ..utils.limits import check_int_range, format_count
from ..utils.progress import ProgressCallback, report_stage
from ..utils.results import Displayable
from ..verification import Verdict, verify
from .examples import MAX_EXAMPLES, multiplications_per_example
from .inputs import group_models
from .payload import model_payload
from .snapshots import read_history as curve
from .snapshots import read_snapshots as read_snapshots

MAX_MODELS = 4  # side by side, at most
MAX_VERIFIED_INPUTS = (
    20_000  # inputs that are verified, unless all are asked for; fewer if that takes long
)
FRAME_HEIGHT = 720  # pixels of a notebook
MAX_VERIFY_MULTIPLICATIONS = 30_000_000_000  # multiplications that verifying may take: some seconds

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


@dataclass(frozen=True)
class Report(Displayable):
    """All that the page holds, as plain data; a notebook shows the page itself, alive."""

    data: dict[str, Any]
    path: Path | None = None  # the file that it was written to

    def html(self) -> bytes:
        return report_page.assemble(self.data)

    def save(self, out: str | Path) -> Path:
        """Writes the page to a file that ends in .html."""
        check_html_suffix(out)
        return write_atomically(out, self.html())

    def __str__(self) -> str:
        where = f" in {self.path}" if self.path else ""
        return f"the live page of {self.data['title']}{where}"

    def __fspath__(self) -> str:
        if self.path is None:
            raise TypeError("this page is in no file: its `save` writes one")
        return str(self.path)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, which reaches neither the notebook nor a network."""
        inside = html.escape(self.html().decode())
        size = f"width:100%;height:{FRAME_HEIGHT}px;border:1px solid #8888"
        may = "allow-scripts allow-downloads"
        return f'<iframe sandbox="{may}" style="{size}" srcdoc="{inside}"></iframe>'


def report(
    models: Sequence[tuple[str, Model]],
    inputs: str | Sequence[str] = (),
    *,
    out: Path | None = None,
    task: Task | str | None = None,
    full: bool = False,
    rows: int = MAX_EXAMPLES,
    history: Paths = (),
    snapshots: Paths = (),
    progress: ProgressCallback | None = None,
) -> Report:
    """Return the page of some models, and write it if `out` is passed.

    Args:
        models: Pairs of a ref, which is the name in the page, and a model.
        inputs: Initial texts for every model; by default a few of each task.
        out: FILE.html to write.
        task: The task to verify on; by default each model's own.
        full: Verify every input of a domain of up to about a million.
        rows: Number of examples of each model in the page.
        history: Files of training evaluations, one for each model.
        snapshots: Folders of training snapshots, one for each model.
        progress: Called as inputs are verified.
    """
    check_int_range("report — rows", rows, 1, MAX_EXAMPLES)
    if not 1 <= len(models) <= MAX_MODELS:
        raise GlassformerError(
            f"report — expected from 1 to {MAX_MODELS} models, got {len(models)}"
        )
    histories, folders = _as_paths(history), _as_paths(snapshots)
    for what, paths in (("histories", histories), ("folders of snapshots", folders)):
        if len(paths) > len(models):
            raise GlassformerError(f"report — {len(paths)} {what} for {len(models)} models")
    curves = [curve(path) for path in histories]
    ref = _task_ref(task) if isinstance(task, Task) else task
    known = [with_task(model, ref) if ref else model for _, model in models]
    tasks = [task_if_known(model) for model in known]
    for model, goal in zip(known, tasks, strict=True):
        if goal:
            goal.require(model.vocabulary)
    found = group_models(known, [inputs] if isinstance(inputs, str) else inputs)
    names, data = short_titles([ref for ref, _ in models]), []
    for i, (model, goal) in enumerate(zip(known, tasks, strict=True)):
        report_stage(progress, f"{names[i]}: {'verifying' if goal else 'reading'}")
        texts = next(group.texts for group in found if i in group.members)
        runs = None
        if i < len(folders):
            report_stage(progress, f"{names[i]}: snapshots")
            runs = read_snapshots(model, folders[i], curves[i] if i < len(curves) else None)
        told = model_payload(
            model,
            models[i][0],
            title=names[i],
            inputs=texts,
            verdict=verification_summary(model, goal, full),
            rows=rows,
            snapshots=runs,
        )
        data.append(told | {"history": curves[i] if i < len(curves) else None})
    title = " and ".join(names) if len(names) < 3 else f"{len(names)} models"
    made = f"Made with glassformer {__version__}. The file needs no network."
    notes = [] if len(found) == 1 else [
        "These models do not read the same texts: each has an input of its own."
    ]  # fmt: skip
    contents = {"title": title, "notes": notes, "made": made, "models": data, "settings": {}}
    page = Report(contents)
    return page if out is None else replace(page, path=page.save(out))


def check_output_path(out: str | PathLike[str] | None) -> Path | None:
    """Refuse a file that a page cannot go to, before the work."""
    if out is None:
        return None
    if isinstance(out, str) and not out.lower().endswith((".html", ".htm")):
        models_ = "several models are a list: gf.report([…, …])"
        raise GlassformerError(
            f"report — out: expected FILE.html, got {short_repr(out)}; {models_}"
        )
    path = Path(as_text(out, "out", "a path"))
    check_html_suffix(path)
    check_writable(path)
    return path


def _task_ref(task: Task) -> str:
    """The ref of a task: a page names what its models are judged by, and looks it up."""
    with suppress(GlassformerError):
        if task.ref and type(load_task(task.ref)) is type(task):
            return task.ref
    what = "(found by no ref: give it a name, @gf.task, or type FILE.py:NAME)"
    raise GlassformerError(f"report — expected a task with a ref, got {type(task).__name__} {what}")


def _as_paths(given: Paths) -> list[Path]:
    some = [given] if isinstance(given, (str, PathLike)) else given
    return [Path(as_text(each, "report", "a path")) for each in some]


def check_html_suffix(path: str | Path) -> None:
    """Refuses to write a page over what is none: asked before the work."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise GlassformerError(f"{path} — a report ends in .html")


def short_titles(refs: Sequence[str]) -> list[str]:
    """Refs as titles, without the folders of files; the same one twice is numbered."""
    short = [Path(r).name if r.endswith((".safetensors", ".taotp", ".glass")) else r for r in refs]
    short = list(refs) if len(set(short)) < len(set(refs)) else short
    number = [short[:i].count(name) + 1 for i, name in enumerate(short)]
    return [f"{r} ({n})" if short.count(r) > 1 else r for r, n in zip(short, number, strict=True)]


def verification_summary(model: Model, task: Task | None, full: bool = False) -> dict[str, Any]:
    """Right or wrong, and on how many inputs that was looked at."""
    if task is None:
        return {"holds": None, "text": "Not verified: no task is known.", "wrong": []}
    each = multiplications_per_example(model, task)
    whole = full or (
        task.size <= MAX_VERIFIED_INPUTS and task.size * each <= 2 * MAX_VERIFY_MULTIPLICATIONS
    )
    sample = (
        None
        if whole
        else min(
            MAX_VERIFIED_INPUTS,
            task.default_sample_size,
            max(200, MAX_VERIFY_MULTIPLICATIONS // 3 // each),
        )
    )
    try:
        v: Verdict = verify(model, task, sample=sample)
    except GlassformerError as e:
        return {"holds": None, "text": f"Not verified: {e}.", "wrong": []}
    sampled = f"a sample of {format_count(v.domain)} inputs, edge cases among them"
    found = f"{v.wrong:,} wrong of {v.checked:,} ({'every input' if v.exhaustive else sampled})"
    text = f"{found} on {task.ref or 'the task'}; worst margin {v.worst_margin:.4g}"
    wrong = [[w["input"], w["got"], w["expected"], f"{w['margin']:.3g}"] for w in v.counterexamples]
    return {"holds": v.holds, "text": text, "wrong": wrong[:5]}
