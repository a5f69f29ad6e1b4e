"""What train and ablate have in common: a task and a recipe; and `list recipes`."""

import shlex
from typing import Annotated

from rich.padding import Padding
from typer import Argument, Option

from .. import limits
from ..training.recipes import RECIPES, recipe
from .common import out, print_json

TaskRef = Annotated[str, Argument(help="a task with options: addition:digits=3,order=ones")]
RecipeName = Annotated[
    str, Option("--recipe", help="a name (glassformer list recipes) or FILE.json, FILE.toml")
]
Settings = Annotated[
    list[str] | None, Option("--set", help="FIELD=VALUE: change a field of the recipe; repeat")
]
Threads = Annotated[
    int, Option(min=1, max=limits.PROCESSES, help="of PyTorch; tiny models are fastest with one")
]


def list_recipes(name: str, as_json: bool) -> None:
    """Each recipe with the fields that it changes; as JSON all: what --recipe FILE.json reads."""
    found = [recipe(name)] if name else list(RECIPES.values())
    if as_json:
        rows = [r.to_json() for r in found]
        return print_json(rows[0] if name else {"recipes": rows})
    for r in found:
        out.print(r.name, style="bold")
        changed = [shlex.quote(f"{n}={v}") for n, v in r.changed().items() if n != "name"]
        out.print(Padding(" ".join(changed), (0, 0, 0, 4)), style="dim")
