"""The command list: what there is."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Annotated

from rich.padding import Padding
from typer import Argument

from .. import claims, face, refs, registry
from ..errors import GlassformerError
from ..lang import library, named
from ..training.recipes import ABOUT, RECIPES, recipe
from .common import Json, app, listed, out, print_json, say, table_of

REGISTERED = ("programs", "tasks", "blueprints")
NAMES = ("trained", "bridges", "views", "hooks")
WHAT = listed(("programs", "tasks", "recipes", "blueprints", "lang", "claims", *NAMES))


@app.command("list")
def list_(
    what: Annotated[str, Argument(help=WHAT)] = "programs",
    ref: Annotated[
        str, Argument(help="for hooks: the model; for recipes and lang: just this one")
    ] = "",
    as_json: Json = False,
) -> None:
    """What there is: programs, tasks and blueprints with their options, recipes, sources of the
    language, claims; names of trained models, bridges, views and hooks. A source (lang/sort,
    x.glass) is shown with its options.
    """
    if what in REGISTERED:
        entries = [entry for _, entry in sorted(registry.entries(what[:-1]).items())]
        print_json({what: [e.to_json() for e in entries]}) if as_json else _show_options(entries)
    elif what == "recipes":
        _list_recipes(ref, as_json)
    elif what == "claims":
        ledger = claims.ledger().values()
        columns = ("claim", "where", "says", "verdict")
        if as_json:
            return print_json({what: [c.to_json() for c in ledger]})
        out.print(table_of(columns, [(c.name, c.where, c.says, c.verdict) for c in ledger]))
    elif named.is_named(what) or (what == "lang" and ref):
        name = what if what != "lang" else named.LIBRARY + ref.removeprefix(named.LIBRARY)
        _show_source(named.find(name), as_json)
    elif what == "lang":
        told = {name: library.about(name.removeprefix(named.LIBRARY)) for name in named.names()}
        if as_json:
            return print_json({what: [{"name": n, "help": text} for n, text in told.items()]})
        _show_sentences(told)
    elif what in NAMES:
        names = face.list_(what, ref)
        if what == "trained" and not as_json:
            return _show_sentences({name: refs.ABOUT.get(name, "") for name in names})
        print_json({what: names}) if as_json else out.print("\n".join(names))
    else:
        raise GlassformerError(f"list {what} — expected {WHAT}")


def _show_sentences(told: Mapping[str, str]) -> None:
    for name, text in told.items():
        out.print(name, style="bold", end="  ")
        out.print(text)


def _show_options(entries: Iterable[registry.Entry]) -> None:
    for e in entries:
        out.print(e.name, style="bold", end="  ")
        out.print(e.help)
        defaults = [f"{o.name}={o.default}" for o in e.options.values()]
        width = max(map(len, defaults), default=0)
        for default, o in zip(defaults, e.options.values(), strict=True):
            out.print(f"    {default:<{width}}  {o.expected}", style="dim")


def _show_source(source: named.Named, as_json: bool) -> None:
    """What a source says, and what may be told to it."""
    options = named.options(source)
    if as_json:
        return print_json({"name": source.name, "options": options, "source": source.text})
    say(source.text.removeprefix("\ufeff").rstrip("\n"))
    if options:
        say("")
    for name, given in options.items():
        ends = f"  from {given['least']} to {given['most']}" if "least" in given else ""
        out.print(f"{source.name}:{name}={given['default']}{ends}", style="dim")


def _list_recipes(name: str, as_json: bool) -> None:
    """Each recipe with the fields that it changes; as JSON all: what --recipe FILE.json reads."""
    found = [recipe(name)] if name else list(RECIPES.values())
    if as_json:
        rows = [r.to_json() for r in found]
        return print_json(rows[0] if name else {"recipes": rows})
    for r in found:
        _show_sentences({r.name: ABOUT.get(r.name, "")})
        changed = [shlex.quote(f"{n}={v}") for n, v in r.changed().items() if n != "name"]
        out.print(Padding(" ".join(changed), (0, 0, 0, 4)), style="dim")
