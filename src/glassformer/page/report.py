"""The report: one HTML file that shows what models do and why, and needs no network.

    made = report([("addition:order=ones", load("addition:order=ones")), …])
    write(made, "adders.html")

All figures are computed here; the page only draws them. What is ours in the file, all but Plotly,
stays within a budget of a megabyte: inputs are dropped until it does, and the page says so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import __version__, page
from ..checkpoint import digest
from ..counting import count
from ..errors import GlassformerError
from ..limits import many
from ..model import Model
from ..records import write_atomically
from ..refs import known_task
from ..tasks.base import Task
from ..verification import Verdict, verify
from . import runs, views

MODELS = 4  # side by side, at most
ROWS = 2_000  # inputs that averages and ablations are measured on
CHECKED = 20_000  # inputs that are verified, unless all are asked for; fewer if that takes long

Said = Callable[[str], None]


@dataclass(frozen=True)
class Report:
    """All that the page shows, as plain data."""

    data: dict[str, Any]

    @property
    def own(self) -> int:
        """Bytes of the page that are not Plotly's."""
        return page.own(self.data)

    def html(self) -> bytes:
        return page.assemble(self.data, page.plotly_js())


def report(
    models: Sequence[tuple[str, Model]], inputs: Sequence[str] = (), *, task: str = "",
    full: bool = False, rows: int = ROWS, history: Sequence[Path] = (), budget: int = page.BUDGET,
    say: Said = lambda text: None,
) -> Report:  # fmt: skip
    """Looks at models, each with the ref it is named by, and gathers what the page shows.

    `inputs`: texts that every model reads; by default a few of each task. `task`: what is right, if
    not what the models say. `full`: verify every input of a domain up to about a million.
    `history`: a file for each model in turn.
    """
    if not 1 <= len(models) <= MODELS:
        raise GlassformerError(f"report — expected from 1 to {MODELS} models, got {len(models)}")
    if len(history) > len(models):
        raise GlassformerError(f"report — {len(history)} histories for {len(models)} models")
    curves = [views.history(path) for path in history]
    known = [replace(model, task=task) if task else model for _, model in models]
    tasks = [known_task(model) for model in known]
    for model, goal in zip(known, tasks, strict=True):
        if goal:
            goal.require(model.vocabulary)
    found = runs.groups(known, inputs)
    names = _titles([ref for ref, _ in models])
    shown = []
    for i, (model, goal) in enumerate(zip(known, tasks, strict=True)):
        group = next(g for g, each in enumerate(found) if i in each.members)
        say(f"looking at {names[i]}")
        seen = _model(names[i], model, goal, found[group].texts, full, rows, say)
        shown.append(seen | {"group": group, "history": curves[i] if i < len(curves) else None})
    data: dict[str, Any] = {
        "title": " and ".join(names) if len(names) < 3 else f"{len(names)} models", "notes": [],
        "about": _about(tasks, found),
        "made": f"Made with glassformer {__version__}. The file needs no network.",
        "groups": [vars(g) for g in found], "models": shown,
    }  # fmt: skip
    return Report(_within(data, budget))


def check_name(path: str | Path) -> None:
    """Refuses to write a page over what is none: asked before the work."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise GlassformerError(f"{path} — a report ends in .html")


def write(made: Report, path: str | Path) -> Path:
    """Writes the page: the old file or the new one, never half of one."""
    return write_atomically(path, made.html())


def _titles(refs: Sequence[str]) -> list[str]:
    """Refs as titles, without the folders of files; the same one twice is numbered."""
    short = [Path(r).name if r.endswith((".safetensors", ".taotp")) else r for r in refs]
    short = list(refs) if len(set(short)) < len(set(refs)) else short
    number = [short[:i].count(name) + 1 for i, name in enumerate(short)]
    return [f"{r} ({n})" if short.count(r) > 1 else r for r, n in zip(short, number, strict=True)]


def _about(tasks: Sequence[Task | None], groups: Sequence[runs.Group]) -> str:
    if len(groups) > 1:
        return "These models do not read the same texts: each has inputs of its own, chosen apart."
    if len(tasks) > 1:
        how = "an input and a step are chosen for all of them at once"
        return f"The models read the same texts; {how}."
    return ""


# ── one model ──────────────────────────────────────────────────────────────────────────────────
def _model(
    title: str, model: Model, task: Task | None, texts: list[str], full: bool, n: int, say: Said
) -> dict[str, Any]:
    c, given, parts = model.config, model.labels.heads, list[str]()
    names = [[given.get(f"{i}.{h}", "") for h in range(c.n_heads)] for i in range(c.n_layers)]
    out: dict[str, Any] = {
        "title": title, "layers": c.n_layers, "heads": c.n_heads, "facts": _facts(model),
        "headNames": names, "runs": [runs.look(model, text, parts) for text in texts],
        "parts": parts, "embeddings": views.embeddings(model), "spectrum": None,
    }  # fmt: skip
    if task is None:
        why = {"problem": "Nothing says what is right for this model: it names no task."}
        out["verdict"] = {"holds": None, "text": "Not verified: no task is known.", "wrong": []}
        return out | {"measured": why, "average": why, "ablation": why}
    say(f"{title}: verifying")
    out["verdict"] = _verdict(model, task, full)
    rows = views.sample(model, task, n)
    say(f"{title}: heads, margins, ablation")
    out["measured"] = views.attempt(lambda: views.heads(model, task, rows))
    out["average"] = views.attempt(lambda: views.margins(model, task, rows))
    out["ablation"] = views.attempt(lambda: views.ablation(model, task, rows))
    out["spectrum"] = views.spectrum(model, task)
    return out


def _facts(model: Model) -> list[tuple[str, str]]:
    counted, made = count(model), model.provenance
    maker = str(made.get("maker", ""))
    kinds = {"program": "a program", "text": "a text program"}
    by = f"{kinds[maker]}: weights set by hand" if maker in kinds else maker or "not said"
    told = {k: v for k, v in made.items() if isinstance(v, (str, int, float)) and v != ""}
    more = [f"{k} {v}" for k, v in told.items() if k not in ("maker", "ref")]
    sizes = f"{counted.nonzero:,} of them not 0, {counted.distinct:,} distinct values"
    facts = [
        ("task", model.task or "none known"), ("made by", ", ".join([by, *more[:6]])),
        ("transformer", str(model.config)), ("parameters", f"{counted.total:,}, {sizes}"),
    ]  # fmt: skip
    if model.blueprint:
        made_from = f"{model.blueprint}: {counted.unique:,} numbers make the weights"
        facts.append(("blueprint", made_from))
    if model.labels.slots:
        slots = ", ".join(f"{n} [{a}:{b}]" for n, (a, b) in model.labels.slots.items())
        facts.append(("slots", slots))
    return [*facts, ("floats", model.dtype), ("SHA-256", digest(model))]


def _verdict(model: Model, task: Task, full: bool) -> dict[str, Any]:
    """Right or wrong, and on how many inputs that was looked at."""
    each = views.work(model, task)
    whole = full or (task.size <= CHECKED and task.size * each <= 2 * views.WORK)
    sample = None if whole else min(CHECKED, task.worth_checking, max(200, views.WORK // 3 // each))
    try:
        v: Verdict = verify(model, task, sample=sample)
    except GlassformerError as e:
        return {"holds": None, "text": f"Not verified: {e}.", "wrong": []}
    sampled = f"a sample of {many(v.domain)} inputs, edge cases among them"
    found = f"{v.wrong:,} wrong of {v.checked:,} ({'every input' if v.exhaustive else sampled})"
    text = f"{found} on {task.ref or 'the task'}; worst margin {v.worst_margin:.4g}"
    wrong = [[w["input"], w["got"], w["expected"], f"{w['margin']:.3g}"] for w in v.counterexamples]
    return {"holds": v.holds, "text": text, "wrong": wrong[:5]}


# ── the budget ─────────────────────────────────────────────────────────────────────────────────
def _within(data: dict[str, Any], budget: int) -> dict[str, Any]:
    """Drops inputs, the last of the largest group first, until the page fits; and says so."""
    dropped = 0
    while page.own(data) > budget:
        group = max(data["groups"], key=lambda g: len(g["texts"]))
        if len(group["texts"]) == 1:
            raise GlassformerError(
                f"report — one input of each model takes {page.own(data):,} bytes, more than the "
                f"{budget:,} that a report may have; give a shorter input, or fewer models"
            )
        dropped += 1
        group["texts"] = group["texts"][:-1]
        for m in group["members"]:
            data["models"][m]["runs"].pop()
        kept = f"to keep this file's own data within {budget:,} bytes"
        data["notes"] = [f"{dropped} input{'s' * (dropped > 1)} left out, {kept}."]
    return data
