"""The live page: one HTML file that runs models in the browser without a network.

    page = report([("addition:order=ones", load("addition:order=ones")), …])
    page.save("adders.html")

Models are verified in Python, on the whole domain or a sample. The page computes everything else.
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
from ..utils.errors import GlassformerError, value_error
from ..utils.fileio import check_writable, write_atomically
from ..utils.limits import check_int_range, format_count
from ..utils.progress import ProgressCallback, report_stage
from ..utils.results import Displayable
from ..verification import Verdict, verify
from .examples import MAX_EXAMPLES, multiplications_per_example
from .inputs import inputs_by_model
from .payload import model_payload
from .snapshots import read_history as curve
from .snapshots import read_snapshots as read_snapshots

MAX_MODELS = 4  # maximum number of models side by side
MAX_VERIFIED_INPUTS = 20_000  # number of inputs to verify without `full`
FRAME_HEIGHT = 720  # height in a notebook, in pixels
MAX_VERIFY_MULTIPLICATIONS = 30_000_000_000  # takes some seconds

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


@dataclass(frozen=True)
class Report(Displayable):
    """The data of a live page. In a notebook, it is displayed as the page."""

    data: dict[str, Any]
    path: Path | None = None  # path of the written file

    def html(self) -> bytes:
        return report_page.assemble(self.data)

    def save(self, out: str | Path) -> Path:
        """Write the page to FILE.html."""
        check_html_suffix(path := as_text(out, "out", "a path"))
        return write_atomically(path, self.html())

    def __str__(self) -> str:
        where = f" in {self.path}" if self.path else ""
        return f"the live page of {self.data['title']}{where}"

    def __fspath__(self) -> str:
        if self.path is None:
            raise TypeError("report has no file: call save(FILE.html)")
        return str(self.path)

    def _repr_html_(self) -> str:
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
    """Create the live page of (ref, model) pairs, and write it if `out` is passed.

    The ref is the title on the page. `gf.report` documents the other arguments.
    """
    check_int_range("report: rows", rows, 1, MAX_EXAMPLES)
    if not 1 <= len(models) <= MAX_MODELS:
        raise value_error("report:", f"1 to {MAX_MODELS} models", len(models))
    histories, folders = _as_paths(history), _as_paths(snapshots)
    for label, paths in (("histories", histories), ("folders of snapshots", folders)):
        if len(paths) > len(models):
            raise value_error("report:", f"at most {len(models)} {label}", len(paths))
    curves = [curve(path) for path in histories]
    ref = _task_ref(task) if isinstance(task, Task) else task
    with_tasks = [with_task(model, ref) if ref else model for _, model in models]
    tasks = [task_if_known(model) for model in with_tasks]
    for model, task_ in zip(with_tasks, tasks, strict=True):
        if task_:
            task_.require(model.vocabulary)
    texts = inputs_by_model(with_tasks, [inputs] if isinstance(inputs, str) else inputs)
    names, data = short_titles([ref for ref, _ in models]), []
    for i, (model, task_) in enumerate(zip(with_tasks, tasks, strict=True)):
        report_stage(progress, f"{names[i]}: {'verifying' if task_ else 'reading'}")
        runs = None
        if i < len(folders):
            report_stage(progress, f"{names[i]}: snapshots")
            runs = read_snapshots(model, folders[i], curves[i] if i < len(curves) else None)
        payload = model_payload(
            model, models[i][0], title=names[i], inputs=texts[i], rows=rows, snapshots=runs,
            verdict=verification_summary(model, task_, full),
        )  # fmt: skip
        data.append(payload | {"history": curves[i] if i < len(curves) else None})
    title = " and ".join(names) if len(names) < 3 else f"{len(names)} models"
    footer = f"Made with glassformer {__version__}. The file needs no network."
    separate = any(t != texts[0] for t in texts)
    notes = ["These models read different texts, so each group has its own input."] * separate
    page = Report({"title": title, "notes": notes, "footer": footer, "models": data})
    return page if out is None else replace(page, path=page.save(out))


def check_output_path(out: str | PathLike[str] | None) -> Path | None:
    """Raise an error early if `out` is not a writable FILE.html."""
    if out is None:
        return None
    if isinstance(out, str) and not out.lower().endswith((".html", ".htm")):
        expected = "FILE.html, or several models as a list: gf.report([…, …])"
        raise value_error("report: out:", expected, out)
    path = Path(as_text(out, "out", "a path"))
    check_html_suffix(path)
    check_writable(path)
    return path


def _task_ref(task: Task) -> str:
    with suppress(GlassformerError):
        if task.ref and type(load_task(task.ref)) is type(task):
            return task.ref
    problem = f"expected a task with a ref, got {type(task).__name__}"
    raise GlassformerError(f"report: {problem}. Register it with @gf.task or pass FILE.py:NAME")


def _as_paths(paths: Paths) -> list[Path]:
    items = [paths] if isinstance(paths, (str, PathLike)) else paths
    return [Path(as_text(path, "report", "a path")) for path in items]


def check_html_suffix(path: str | Path) -> None:
    """Raise an error if a path does not end in .html."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise GlassformerError(f"{path}: expected a name that ends in .html")


def short_titles(refs: Sequence[str]) -> list[str]:
    """Return distinct titles: refs without folders if that is enough, or numbered."""
    short = [Path(r).name if r.endswith((".safetensors", ".taotp", ".glass")) else r for r in refs]
    short = list(refs) if len(set(short)) < len(set(refs)) else short
    number = [short[:i].count(name) + 1 for i, name in enumerate(short)]
    return [f"{r} ({n})" if short.count(r) > 1 else r for r, n in zip(short, number, strict=True)]


def verification_summary(model: Model, task: Task | None, full: bool = False) -> dict[str, Any]:
    """Verify a model on all inputs, or on a sample of a large domain. Return {holds, text}."""
    if task is None:
        return {"holds": None, "text": "Not verified: no task is known."}
    cost = multiplications_per_example(model, task)
    fits = task.size <= MAX_VERIFIED_INPUTS and task.size * cost <= 2 * MAX_VERIFY_MULTIPLICATIONS
    affordable = max(200, MAX_VERIFY_MULTIPLICATIONS // 3 // cost)
    sample_size = min(MAX_VERIFIED_INPUTS, task.default_sample_size, affordable)
    sample = None if full or fits else sample_size
    try:
        v: Verdict = verify(model, task, sample=sample)
    except GlassformerError as e:
        return {"holds": None, "text": f"Not verified: {e}."}
    scope = "all inputs" if v.exhaustive else f"a sample of {format_count(v.domain)} inputs"
    counts = f"{v.wrong:,} wrong of {v.checked:,} ({scope})"
    text = f"{counts} on {task.ref or 'the task'}; worst margin {v.worst_margin:.4g}"
    return {"holds": v.holds, "text": text}
