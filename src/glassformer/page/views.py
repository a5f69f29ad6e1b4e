"""What the report shows of a whole model: its parts, its embeddings, its spectrum, its training.

A view that makes no sense for a model says why, in the words of the lens that refused.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .. import schema
from ..dust import sweep
from ..errors import GlassformerError
from ..lens.attention import SUMS, alignment
from ..lens.embeddings import Embeddings, position_embeddings, token_embeddings
from ..lens.embeddings import cosine as cosines
from ..lens.heads import classify
from ..lens.interventions.ablate import ablations
from ..lens.logits import answer_shares
from ..lens.modular.apart import take_apart
from ..model import POSITIONS, Model
from ..records import read_text
from ..tasks.base import Task
from ..tasks.format import answer_names
from .runs import short

POINTS, CELLS = 1_000, 128  # tokens in a plane, and rows of a map of cosines, at most
WORK = 30_000_000_000  # what averages and ablations may take, as `work` reckons: some seconds
PARTS = 48  # heads and MLPs that are silenced, at most
CURVE = 400  # points of a training curve, at most
EVALUATED = {"step": schema.whole(0, 10**12), "loss": schema.number, "accuracy": schema.number}
EVALUATION = schema.record(EVALUATED, {"train_accuracy": schema.number})
KEPT = (*EVALUATED, "train_accuracy")


def work(model: Model, task: Task) -> int:
    """Roughly the numbers used for one input at all positions, softmax counted dearly."""
    c, T = model.config, task.batch(task.rows(0, 1))[0].shape[1]
    size = sum(int(np.prod(w.shape)) for w in model.weights.values())
    return int(T * (size + c.tied * c.d_vocab * c.d_model + 40 * c.n_layers * c.n_heads * T))


def sample(model: Model, task: Task, n: int) -> Any:
    """Rows to measure on: the domain, or some at random; fewer for models that take long."""
    parts = model.config.n_layers * (model.config.n_heads + 1)
    return task.some(min(n, max(50, WORK // (parts + 4) // work(model, task))))


def attempt(view: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a view shows, or why it shows nothing."""
    try:
        with np.errstate(all="ignore"):
            return view()
    except GlassformerError as e:
        return {"problem": str(e)}


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def heads(model: Model, task: Task, rows: Any) -> dict[str, Any]:
    """The kind of each head, and how much of its attention is where the task's map says. [L][H]"""
    c = model.config
    if not c.n_layers:
        return {"says": "", "kinds": []}
    found = classify(model, task, rows)
    kinds = [[found[i, h].kind for h in range(c.n_heads)] for i in range(c.n_layers)]
    says = f"Kinds of heads are judged on {found.rows:,} inputs."
    if not task.roles():
        return {"kinds": kinds, "says": says}
    aligned = alignment(model, task, rows)
    chance = float(np.nanmean(aligned.chance["expected"]))
    says = (
        f"Kinds and shares are means over {found.rows:,} inputs and the positions that ask for a "
        f"token of the answer. Looking everywhere alike would put {percent(chance)} on "
        f"{SUMS['expected']}."
    )
    return {"kinds": kinds, "share": short(aligned.mean("expected")), "says": says}


def margins(model: Model, task: Task, rows: Any) -> dict[str, Any]:
    """Mean shares of the margin over many inputs, by the position of the answer token."""
    found = answer_shares(model, task, rows)
    shares, margin = short(sweep(found.shares, axis=0)), short(found.margin)
    return {"names": found.parts, "positions": found.positions, "shares": shares,
            "margin": margin, "rows": len(rows)}  # fmt: skip


def ablation(model: Model, task: Task, rows: Any) -> dict[str, Any]:
    """What is still right without each head and MLP."""
    c = model.config
    n = c.n_layers * (c.n_heads + (c.d_mlp > 0))
    if not n:
        return {"problem": "This model has no head and no MLP to silence."}
    if n > PARTS:
        problem = f"This model has {n} heads and MLPs; silencing each is left out beyond {PARTS}."
        return {"problem": problem}
    found = list(ablations(model, task, how="zero", rows=rows))
    names = ["nothing silenced", *(f"{a.what}: {a.name}" if a.name else a.what for a in found[1:])]
    width = len(found[0].score.positions)
    first = "all right" if width > 1 else "right"
    width = width if 1 < width <= 12 else 0  # a single token is the answer; more are not legible
    columns = [first, *answer_names(task)[:width]]
    values = short([[a.score.accuracy, *a.score.positions[:width]] for a in found])
    says = f"Silenced means: it writes 0. Measured on {found[0].score.checked:,} inputs."
    return {"rows": names, "columns": columns, "values": values, "says": says}


def embeddings(model: Model) -> dict[str, Any]:
    """Tokens in the plane that shows most of them, and how alike tokens and positions are."""
    tokens = token_embeddings(model)
    if not np.isfinite(tokens.vectors).all():
        return {"problem": "The embedding of the tokens is not finite."}
    found = tokens.plane
    n = min(len(tokens.names), POINTS)
    plane = np.pad(found.points[:n], ((0, 0), (0, 2)))[:, :2]  # one dimension has no second
    held = [*(float(x) for x in found.explained[:2]), 0.0][:2]
    whose = " of the numbers" if len(tokens.numbers) > 2 else ""
    axes = [f"component {i + 1}{whose} ({percent(x)} of the variance)" for i, x in enumerate(held)]
    shown = f"The first {n:,} of {len(tokens.names):,} tokens. " if n < len(tokens.names) else ""
    if tokens.line is not None:
        shown += f"A straight line explains {percent(tokens.line)} of how the numbers differ. "
    if tokens.circle is not None:
        frequency, share = tokens.circle
        shown += f"The best circle, of frequency {frequency}, explains {percent(share)}."
    x, y = short(plane.T)
    points = {"x": x, "y": y, "names": tokens.names[:n], "titles": axes, "says": shown}
    there = POSITIONS[model.config.positions].embed is not None
    return {
        "pca": points, "tokens": _alike(tokens),
        "positions": _alike(position_embeddings(model)) if there else None,
        "noPositions": None if there else "Nothing is added to the stream for positions.",
    }  # fmt: skip


def _alike(rows: Embeddings) -> dict[str, Any]:
    """Cosines in hundredths."""
    n = min(len(rows.names), CELLS)
    says = f"The first {n} of {len(rows.names):,} {rows.what}." if n < len(rows.names) else ""
    cosine = np.rint(100 * cosines(rows.vectors[:n])).astype(int)
    return {"names": rows.names[:n], "cosine": cosine.tolist(), "says": says}


def spectrum(model: Model, task: Task) -> dict[str, Any] | None:
    """For sums and differences modulo p: the embedding's power by frequency."""
    if not task.modular:
        return None
    found = take_apart(model, task)
    power = short(found.embedding.shares)
    says = (
        f"Key frequencies, from which the answer is read: {', '.join(map(str, found.key))}. They "
        f"hold {percent(found.key_share)} of the embedding's power; {percent(found.explained)} of "
        f"the logits' variance is cosines of these. Clock or pizza: {found.kind} (distance "
        f"irrelevance {found.irrelevance:.2f})."
    )
    frequencies = list(range(1, len(power) + 1))
    return {"frequencies": frequencies, "power": power, "key": found.key, "says": says}


def history(path: Path) -> dict[str, Any]:
    """A training curve out of a file of evaluations, JSON lines; of several seeds the first."""
    text = read_text(path)
    try:
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        rows = [x for x in lines if isinstance(x, dict) and "loss" in x]
        rows = [x for x in rows if x.get("kind", "evaluation") == "evaluation"]
        rows = [x for x in rows if x.get("seed") == rows[0].get("seed")]
        rows = rows[:: -(-len(rows) // CURVE)] if rows else []
        for x in rows:
            EVALUATION({name: v for name, v in x.items() if name in KEPT}, "")
        curve = {name: short([float(x[name]) for x in rows]) for name in ("loss", "accuracy")}
        both = all("train_accuracy" in x for x in rows)
        trained = short([float(x["train_accuracy"]) for x in rows]) if both else None
    except (ValueError, RecursionError, GlassformerError):
        expected = "one JSON object a line with step, loss and accuracy"
        raise GlassformerError(f"{path} — expected a training history, {expected}") from None
    if not rows:
        raise GlassformerError(f"{path} — a training history without an evaluation")
    return {"steps": [x["step"] for x in rows], **curve, "trained": trained}
