"""The command ground-truth: the known circuit of a program as data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from .. import api
from .common import app, make_table, out, print_json, print_text
from .options import Json, Ref

if TYPE_CHECKING:
    from ..circuits.edges import GroundTruth

MAX_SHOWN_NEURONS, MAX_SHOWN_NAMES = 12, 6


@app.command("ground-truth")
def ground_truth_(
    ref: Ref,
    path: Annotated[Path | None, Option("--out", help="FILE.json for the whole circuit")] = None,
    task: Annotated[str | None, Option(
        help="task whose examples to measure on; default: the model's own")] = None,
    seed: Annotated[int, Option(help="seed of the examples, from 0")] = 0,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Show the known circuit of a program: what each slot, head and neuron computes, and the edges
    between them.
    """
    truth = api.ground_truth(ref, task, seed=seed, out=path)
    if as_json:
        return print_json(truth.to_json())
    _show(truth)
    if path:
        print_text(f"wrote {path}")


def _show(truth: "GroundTruth") -> None:
    print_text(f"{truth.ref or truth.task or 'model'}: measured on {truth.inputs}")
    if not truth.named:
        out.print("the slots have no names: the whole stream is one slot")
    slots = [
        (s["name"], f"{s['start']}:{s['stop']}", str(s["rank"]), _join_names(s["written_by"]),
         _join_names(s["read_by"]))
        for s in truth.slots
    ]  # fmt: skip
    out.print(make_table(("slot", "at", "rank", "written by", "read by"), slots))
    if truth.heads:
        heads = []
        for h in truth.heads:
            compares = ", ".join(f"{m['from']} · {m['to']}" for m in h["matches"]) or "–"
            copies = ", ".join(f"{c['from']} → {c['to']}" for c in h["copies"]) or "–"
            fixed = ", fixed" if h["attention"]["fixed"] else ", by content"
            heads.append((h["part"], h["name"], compares, copies, h["attention"]["kind"] + fixed))
        out.print("", make_table(("head", "name", "compares", "copies", "attention"), heads))
    if truth.neurons:
        neurons = [
            (n["part"], n["name"], ", ".join(n["reads"]), ", ".join(n["writes"]),
             f"{n['fires']:.0%}")
            for n in truth.neurons[:MAX_SHOWN_NEURONS]
        ]  # fmt: skip
        out.print("", make_table(("neuron", "name", "reads", "writes", "fires"), neurons))
        if len(truth.neurons) > MAX_SHOWN_NEURONS:
            out.print(f"… and {len(truth.neurons) - MAX_SHOWN_NEURONS:,} more")
    edges = []
    for e in truth.edges:
        to, moves = f"{e.reader}, {e.port}", f"{e.shift:.2g}" if e.matters else "–"
        edges.append((e.writer, to, ", ".join(e.via), moves, f"{e.changed:.0%}"))
    columns = ("edge from", "to", "via", "cut: logits move", "tokens change")
    out.print("", make_table(columns, edges))
    if truth.idle:
        out.print(f"no path to the logits: {_join_names(truth.idle)}")


def _join_names(names: list[str]) -> str:
    more = f" and {len(names) - MAX_SHOWN_NAMES} more" if len(names) > MAX_SHOWN_NAMES else ""
    return (", ".join(names[:MAX_SHOWN_NAMES]) or "–") + more
