"""Commands that look at models: list, run, explain, count, claims, tour."""

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import track

from .. import claims, limits, refs, registry
from ..counting import WAYS, count
from ..dust import number
from ..errors import GlassformerError
from ..lens.explain import explain, read_in_words
from ..model import Model
from ..records import check_writable
from ..runs import Run, prompt, run
from ..tap import hook_names
from .common import Json, Ref, app, err, out, print_json, say, table_of


@app.command("list")
def list_(
    what: Annotated[
        str, typer.Argument(help="programs, tasks, recipes, blueprints, trained, claims or hooks")
    ] = "programs",
    ref: Annotated[str, typer.Argument(help="for hooks: the model; for recipes: just this one")] = "",
    as_json: Json = False,
) -> None:
    """What there is: programs, tasks and blueprints with their options, recipes, trained models, claims, hook names."""
    if what in ("programs", "tasks", "blueprints"):
        entries = registry.entries(what[:-1])
        rows = [entries[name] for name in sorted(entries)]
        if as_json:
            return print_json({what: [e.to_json() for e in rows]})
        for e in rows:
            out.print(e.name, style="bold", end="  ")
            out.print(e.help)
            defaults = [f"{o.name}={o.default}" for o in e.options.values()]
            width = max(map(len, defaults), default=0)
            for default, o in zip(defaults, e.options.values(), strict=True):
                out.print(f"    {default:<{width}}  {o.expected}", style="dim")
    elif what == "recipes":
        from .training import list_recipes

        list_recipes(ref, as_json)
    elif what == "trained":
        names = refs.trained()
        return print_json({"trained": names}) if as_json else out.print("\n".join(names))
    elif what == "claims":
        found = list(claims.ledger().values())
        if as_json:
            return print_json({"claims": [c.to_json() for c in found]})
        columns = ("claim", "where", "says", "verdict")
        out.print(table_of(columns, [(c.name, c.where, c.says, c.verdict) for c in found]))
    elif what == "hooks":
        if not ref:
            raise GlassformerError("list hooks — expected a model: glassformer list hooks REF")
        names = hook_names(refs.load(ref))
        return print_json({"hooks": names}) if as_json else out.print("\n".join(names))
    else:
        raise GlassformerError(f"list {what} — expected programs, tasks, recipes, blueprints, trained, claims or hooks")


@app.command("run")
def run_(
    ref: Ref,
    inputs: Annotated[list[str] | None, typer.Argument(help="what to read, one text each")] = None,
    trace: Annotated[bool, typer.Option(help="each step: its top tokens, the margin, what each head read")] = False,
    steps: Annotated[int | None, typer.Option(min=1, max=limits.DECODED, help="decode so many tokens at most")] = None,
    temperature: Annotated[float, typer.Option(min=0, help="0: always the best token")] = 0.0,
    top_k: Annotated[int | None, typer.Option(min=1, max=2**31, help="sample among the k best")] = None,
    seed: Annotated[int, typer.Option(min=0, max=limits.SEED, help="of sampling")] = 0,
    as_json: Json = False,
) -> None:
    """Decode: what the model says after each input."""
    model = refs.load(ref)
    rng = np.random.default_rng(seed)
    results = []
    for text in inputs or [""]:
        result = run(model, text, steps=steps, temperature=temperature, top_k=top_k, rng=rng)
        results.append(result)
        if trace and not as_json:
            _trace(model, result)
        elif not as_json:
            say(result.output)
    if as_json:
        rows = [r.to_json() | ({"trace": _trace_rows(model, r)} if trace else {}) for r in results]
        print_json(rows[0] if len(rows) == 1 else {"runs": rows})


@app.command("explain")
def explain_(
    ref: Ref, text: Annotated[str, typer.Argument(help="what the model has read")] = "", as_json: Json = False
) -> None:
    """Why the next token wins: by head, slot and neuron name."""
    model = refs.load(ref)
    story = explain(model, prompt(model, text))
    if as_json:
        return print_json(story.to_json())
    out.print(str(story), soft_wrap=True)


@app.command("count")
def count_(ref: Ref, as_json: Json = False) -> None:
    """How many parameters, by each way of counting."""
    model = refs.load(ref)
    counted = count(model)
    if as_json:
        return print_json({"ref": ref, **counted.to_json()})
    meaning = {
        "total": "entries of all arrays, a tied head once",
        "nonzero": "of these, not 0",
        "unique": "numbers that the weights are made from",
        "distinct": "different values",
        "strict": "of the numbers it is made from, different ones other than 0 and ±1; constants included",
        "bits": "to write the numbers it is made from down exactly",
        "embedding": "in the token, position and output embeddings",
        "nonzero_embedding": "of these, not 0",
        "booklet": "as the booklet counts: norms left out",
    }
    out.print(table_of(("count", "", "means"), [(w, f"{getattr(counted, w):,}", meaning[w]) for w in WAYS]))
    say(model)


@app.command("claims")
def claims_(
    names: Annotated[list[str] | None, typer.Argument(help="names, or how names start; default: all")] = None,
    slow: Annotated[bool, typer.Option(help="also those that take minutes")] = False,
    as_json: Json = False,
) -> None:
    """Measure what the sources claim, and compare with what the ledger records."""
    chosen = claims.select(names or [], slow)
    rows, differ = [], 0
    for c in track(chosen, "measuring", console=err, transient=True, disable=not sys.stderr.isatty()):
        measured = c.measure()
        differ += not c.matches(measured)
        rows.append((c, measured))
    if as_json:
        measured_claims = [c.to_json() | {"measured": m, "matches": c.matches(m)} for c, m in rows]
        print_json({"differ": differ, "claims": measured_claims})
    else:
        for c, m in rows:
            mark = "" if c.matches(m) else f"  ≠ record {claims.as_text(c.records)}"
            out.print(f"{c.name}  {c.verdict}", style="bold")
            out.print(f"    {c.where} says: {c.says}", soft_wrap=True)
            out.print(f"    measured: {claims.as_text(m)}{mark}" + (f" ({c.note})" if c.note else ""), soft_wrap=True)
        out.print(f"{len(rows)} claim{'s' * (len(rows) != 1)} measured, {differ} differ from the record")
    raise typer.Exit(1 if differ else 0)


@app.command("tour")
def tour_(
    page: Annotated[
        Path, typer.Option("--out", help="FILE.html for the report at its end")
    ] = Path("glassformer-tour.html"),
) -> None:
    """A walk through all of it: make, run, check, explain, train, look inside, compare with the sources."""
    from ..tour import tour

    check_writable(page)
    raise typer.Exit(tour(out, page))


# ── printing ───────────────────────────────────────────────────────────────────────────────────
def _trace(model: Model, result: Run) -> None:
    table = table_of(("step", "reads", "top tokens", "margin", "heads"))
    for row in _trace_rows(model, result):
        top = "  ".join(f"{t} {number(x)}" for t, x in row["top"])
        heads = "; ".join(f"{h['name']}: {read_in_words(h['read'], 3)}" for h in row["heads"])
        table.add_row(str(row["step"]), row["reads"], top, number(row["margin"]), heads)
    out.print(table)
    say(result.output)


def _trace_rows(model: Model, result: Run) -> list[dict[str, Any]]:
    rows, n = [], len(result.prompt)
    for i in range(len(result.tokens) - n):
        story = explain(model, result.tokens[: n + i][-model.config.n_ctx :])
        heads = [{"name": h.name, "read": h.read} for layer in story.layers for h in layer.heads]
        rows.append({"step": i + 1, "reads": model.vocabulary.decode(result.tokens[: n + i]), "top": story.top[:3],
                     "margin": story.margin, "heads": heads})  # fmt: skip
    return rows
