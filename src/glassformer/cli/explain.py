"""The command explain: explain a model's next token."""

from typing import Annotated

from typer import Argument

from .. import api, coerce
from .common import app, print_json, print_text
from .options import Json, Ref, TaskOption


@app.command("explain")
def explain_(
    ref: Ref,
    text: Annotated[str, Argument(help="text that the model has read")] = "",
    task: TaskOption = None,
    as_json: Json = False,
) -> None:
    """Explain why the next token wins, by the names of heads, slots and neurons."""
    explanation = api.explain(coerce.as_model(ref, task), text)
    print_json(explanation.to_json()) if as_json else print_text(explanation)
