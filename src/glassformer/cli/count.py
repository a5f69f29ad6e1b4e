"""The command count: how many parameters a model has."""

from .. import api
from ..core.param_count import COUNT_NAMES
from .common import Json, Ref, app, make_table, out, print_json, print_text

MEANING = {
    "total": "entries of all arrays, a tied head once",
    "nonzero": "of these, not 0",
    "unique": "numbers that the weights are made from",
    "distinct": "different values",
    "strict": "of the numbers it is made from, different ones other than 0 and ±1; constants "
    "included",
    "bits": "to write the numbers it is made from down exactly",
    "embedding": "in the token, position and output embeddings",
    "nonzero_embedding": "of these, not 0",
    "booklet": "as the booklet counts: norms left out",
}


@app.command("count")
def count_(ref: Ref, as_json: Json = False) -> None:
    """How many parameters, by each way of counting."""
    model = api.load(ref)
    counted = api.count(model)
    if as_json:
        return print_json({"ref": ref, **counted.to_json()})
    rows = [(way, f"{getattr(counted, way):,}", MEANING[way]) for way in COUNT_NAMES]
    out.print(make_table(("count", "", "means"), rows))
    print_text(model)
