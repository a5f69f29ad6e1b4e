"""The command truth: what computes what in a program, for those who test their own methods."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from .. import api
from .common import Json, Ref, app, make_table, out, print_json, print_text

if TYPE_CHECKING:
    from ..ground_truth.edges import GroundTruth

MAX_SHOWN_NEURONS = 12  # neurons in the table


@app.command("truth")
def truth_(
    ref: Ref,
    path: Annotated[Path | None, Option("--out", help="FILE.json: write all of it")] = None,
    task: Annotated[str | None,
        Option(help="task whose examples to measure on; by default the model's own")] = None,
    seed: Annotated[int, Option(help="seed of the examples, from 0")] = 0,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Ground truth of a program as data: which head, slot and neuron computes what, and from
    what.
    """
    found = api.truth(ref, task, seed=seed, out=path)
    if as_json:
        return print_json(found.to_json())
    _show(found)
    if path:
        print_text(f"wrote {path}")


def _show(found: "GroundTruth") -> None:
    """The tables: slots, heads, neurons, edges."""
    print_text(f"{found.ref or found.task or 'model'}: measured on {found.inputs}")
    if not found.named:
        out.print("its slots have no names: the stream is taken as a whole")
    slots = []
    for s in found.slots:
        at, by, to = (
            f"{s['start']}:{s['stop']}",
            _join_names(s["written_by"]),
            _join_names(s["read_by"]),
        )
        slots.append((s["name"], at, str(s["rank"]), by, to))
    out.print(make_table(("slot", "at", "rank", "written by", "read by"), slots))
    if found.heads:
        heads = []
        for h in found.heads:
            look = h["attention"]
            moves = ", ".join(f"{c['from']} → {c['to']}" for c in h["copies"])
            looks = ", ".join(f"{m['from']} · {m['to']}" for m in h["matches"])
            places = ", fixed" if look["fixed"] else ", by content"
            heads.append((h["part"], h["name"], looks or "–", moves or "–", look["kind"] + places))
        out.print("", make_table(("head", "name", "compares", "copies", "attention"), heads))
    if found.neurons:
        neurons = []
        for n in found.neurons[:MAX_SHOWN_NEURONS]:
            reads, writes = ", ".join(n["reads"]), ", ".join(n["writes"])
            neurons.append((n["part"], n["name"], reads, writes, f"{n['fires']:.0%}"))
        out.print("", make_table(("neuron", "name", "reads", "writes", "fires"), neurons))
        if len(found.neurons) > MAX_SHOWN_NEURONS:
            out.print(f"… and {len(found.neurons) - MAX_SHOWN_NEURONS:,} more")
    edges = []
    for e in found.edges:
        to, moves = f"{e.reader}, {e.port}", f"{e.shift:.2g}" if e.matters else "–"
        edges.append((e.writer, to, ", ".join(e.via), moves, f"{e.changed:.0%}"))
    out.print(
        "", make_table(("edge from", "to", "via", "cut: logits move", "tokens change"), edges)
    )
    if found.idle:
        out.print(f"no way to the logits: {_join_names(found.idle)}")


def _join_names(names: list[str], max_names: int = 6) -> str:
    more = f" and {len(names) - max_names} more" if len(names) > max_names else ""
    return (", ".join(names[:max_names]) or "–") + more
