"""The command count: the parameters of a model, counted by several rules."""

from typing import TYPE_CHECKING

from .. import api
from ..core.param_count import COMPONENT_KINDS, COUNT_NAMES, ParameterCount
from .common import app, make_table, out, print_json, print_text
from .options import Json, Ref

if TYPE_CHECKING:
    from rich.table import Table

MEANING = {
    "total": "entries of all arrays, a tied head once",
    "nonzero": "nonzero entries of all arrays",
    "unique": "numbers that the weights are made from",
    "distinct": "different values among all entries",
    "strict": "of the numbers it is made from, different ones other than 0 and ±1; constants "
    "included",
    "bits": "to write the numbers it is made from down exactly",
    "embedding": "in the token, position and output embeddings",
    "nonzero_embedding": "nonzero entries of the embeddings",
    "booklet": "as the booklet counts: no norms, equal embeddings once",
}


@app.command("count")
def count_(ref: Ref, as_json: Json = False) -> None:
    """Count the parameters of a model by each rule."""
    model = api.load(ref)
    counted = api.count(model)
    if as_json:
        return print_json({"ref": ref, **counted.to_json()})
    rows = [(way, f"{getattr(counted, way):,}", MEANING[way]) for way in COUNT_NAMES]
    out.print(make_table(("parameters", "count", "meaning"), rows))
    out.print("", _component_table(counted), "", sep="\n")
    print_text(model)


def _component_table(counted: ParameterCount) -> "Table":
    """Return a table of the entries by component, with sums."""
    rows = {**counted.components, "sum": counted.kinds}
    cells = [
        (name, *(f"{row[kind]:,}" if row.get(kind) else "" for kind in COMPONENT_KINDS),
         f"{sum(row.values()):,}") for name, row in rows.items()
    ]  # fmt: skip
    columns = ("component", *COMPONENT_KINDS, "sum")
    return make_table(columns, cells, right=columns[1:])
