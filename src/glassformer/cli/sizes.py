"""The command sizes: the size of a model beside those of GPT-2 small and Llama 3 8B."""

from .. import api
from .common import app, make_table, out, print_json, print_text
from .options import Json, Ref

ROWS = {
    "parameters": "parameters", "layers": "layers", "d_model": "d_model",
    "heads": "attention heads", "d_ff": "d_ff", "vocabulary": "vocabulary",
    "context": "context length",
}  # fmt: skip


@app.command("sizes")
def sizes_(ref: Ref, as_json: Json = False) -> None:
    """Show the size of a model beside those of GPT-2 small and Llama 3 8B, with their sources."""
    table = api.sizes(ref, name=ref)
    if as_json:
        return print_json({"ref": ref, **table.to_json()})
    names = [size.name for size in table.sizes]
    rows = [(text, *(f"{getattr(s, name):,}" for s in table.sizes)) for name, text in ROWS.items()]
    out.print(make_table(("", *names), rows, right=names))
    for size in table.sizes:
        if size.source:
            print_text(f"{size.name}: {size.source}")
